"""What holds evictions back, on the whole controller: limits, pauses, circuit breaker, modes, and their reload."""

import math

import pytest
from tests.unit.builders import Stage, epoch, moment, node, pod, ref, taint, tolerates
from tests.unit.hints import hints

from taint_eviction.core.breaker import TaintSurge
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import DecisionPolicy, Evict, StayReason
from taint_eviction.core.effects import (
    Block,
    BlockReason,
    BreakerClosed,
    BreakerOpened,
    CalledOff,
    Cancelled,
    CutOff,
    Done,
    Evicted,
    Failed,
    Paused,
    PodIsGone,
    Refused,
    Resumed,
    Suspended,
    Work,
    WorkOutcome,
)
from taint_eviction.core.facts import NodeGone, NodeSeen, NodesSwept, PodGone, PodsReleased, PodsSwept
from taint_eviction.core.label_selectors import parse_selector
from taint_eviction.core.objects import NOT_READY, Taint
from taint_eviction.core.pod_record import WaitReason
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit, PolicyRule

BLOCK = Block(BlockReason.BUDGET, "web")
PAUSED = ControlState(cluster=Pause())
NOTHING = ControlState()


def blocked(retry_at: float) -> Failed:
    """A budget's no."""
    return Failed("no disruption allowed", retry_at, BLOCK)


def crowd(stage: Stage, count: int, on: str = "n1", prefix: str = "p", seconds: int | None = 0) -> None:
    """Taint a node and let pods of one tolerance be on it."""
    stage.sees(node(taint(), name=on))
    for number in range(count):
        uid = f"{prefix}{number}"
        stage.sees(pod(tolerates(seconds), name=uid, uid=uid, on=on))


def limited(policy: EvictionPolicy, count: int = 3) -> Stage:
    """A stage with pods that are due at 0."""
    stage = Stage(eviction=policy)
    crowd(stage, count)
    return stage


def uids(works: list[Work]) -> list[str]:
    """List whose work it is."""
    return [work.ref.uid for work in works]


def hold_of(stage: Stage, uid: str = "a") -> WaitReason | None:
    """Say what holds a pod that is still to go."""
    pending = stage.explain(uid).pending
    assert pending is not None
    return pending.wait_reason


# Limits


@pytest.mark.parametrize(
    ("policy", "times"),
    [
        (EvictionPolicy(total=Limit(1.0, 2)), [0, 0, 1, 2, 3, 4]),
        (EvictionPolicy(per_node=Limit(0.5, 1)), [0, 0, 2, 2, 4, 4]),
        (EvictionPolicy(per_namespace=Limit(2.0, 4)), [0, 0, 0, 0, 0.5, 1]),
        (EvictionPolicy(rules=(PolicyRule("slow", taint_keys=("k1",), limit=Limit(0.25, 3)),)), [0, 0, 0, 4, 8, 12]),
        (EvictionPolicy(rules=(PolicyRule("other", taint_keys=("k2",), limit=Limit(0.25, 3)),)), [0] * 6),
        (EvictionPolicy(total=Limit(1.0, 5), per_node=Limit(1.0, 2)), [0, 0, 0, 0, 1, 1]),
        (EvictionPolicy(), [0] * 6),
    ],
)
def test_evictions_go_as_fast_as_the_limits_let_them(policy: EvictionPolicy, times: list[float]) -> None:
    """Six pods on two nodes, all due at once: the burst, and then one by one, at exact instants."""
    stage = Stage(eviction=policy)
    crowd(stage, 3, "n1", "a")
    crowd(stage, 3, "n2", "b")
    assert [at for at, _ in stage.play(100)] == times


def test_who_tolerates_for_ever_uses_no_token() -> None:
    """Nor who leaves later: only what really goes does."""
    stage = limited(EvictionPolicy(total=Limit(0.1, 1)), 0)
    crowd(stage, 5, "n1", "stays", seconds=None)
    crowd(stage, 5, "n1", "later", seconds=1000)
    crowd(stage, 1, "n1", "goes")
    assert stage.play(5) == [(0, "goes0")]


def test_nodes_take_turns_and_the_most_overdue_goes_first() -> None:
    """A node with a hundred does not keep the other two waiting."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 0)
    crowd(stage, 5, "n1", "a")
    stage.at(3)
    crowd(stage, 2, "n2", "b")
    stage.at(5)
    crowd(stage, 2, "n3", "c")
    assert [uid for _, uid in stage.play(20)] == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "a3", "a4"]


def test_who_waits_for_its_turn_stays_cancellable() -> None:
    """Untainted while it waits: it is called off, and the token is the next one's."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 0)
    crowd(stage, 2, "n1", "a")
    crowd(stage, 1, "n2", "b")
    assert uids(stage.take()) == ["a0"]
    assert hold_of(stage, "a1") is WaitReason.LIMITED
    effects = stage.at(0.5).sees(node(name="n1"))
    assert Cancelled(ref("a1", "a1"), "n1", StayReason.NODE_CLEAN) in effects
    assert stage.explain("a1").pending is None
    stage.at(0.6).sees(node(taint("k2"), name="n1"))
    assert stage.deadlines()["a1"] == 0.6


@pytest.mark.parametrize(
    ("sent", "outcome", "next_at"),
    [
        (False, CalledOff(), 5),
        (False, Suspended(), 5),
        (False, PodIsGone(), 5),
        (False, Failed("the node cannot be read", 50), 5),
        (True, PodIsGone(), 5),
        (True, blocked(50), 5),
        (True, Failed("no answer", 50), 15),
        (True, Failed("denied", 50), 15),
        (False, CutOff(), 5),
        (True, CutOff(), 15),
        (True, Suspended(), 15),
        (True, Done(), 15),
    ],
)
def test_a_token_is_used_up_only_by_what_may_have_ended_a_pod(sent: bool, outcome: WorkOutcome, next_at: float) -> None:
    """Sent at 5, one each 10 s: whatever ends no pod leaves the token to the next, at once."""
    stage = limited(EvictionPolicy(total=Limit(0.1, 1)), 2)
    [work] = stage.take()
    assert stage.at(4).take() == []
    assert stage.next_at() is None
    stage.at(5)
    if sent:
        stage.send(work)
    stage.settle(work, outcome)
    stage.observe(PodGone(work.ref))
    assert stage.next_at() == next_at
    assert stage.play(100) == [(next_at, "p1")]


@pytest.mark.parametrize(
    "outcome", [Done(), PodIsGone(), CalledOff(), CutOff(), Suspended(), Failed("late", 9.0), blocked(9.0)]
)
@pytest.mark.parametrize("gone", ["deleted", "recreated", "released", "node gone"])
@pytest.mark.parametrize("sent", [True, False])
def test_who_vanishes_in_flight_gives_back_what_it_has(outcome: WorkOutcome, gone: str, sent: bool) -> None:
    """However it goes and whatever its last call comes to: one may be in flight, and after it another is."""
    stage = limited(EvictionPolicy(total=Limit(at_once=1)), 1)
    [work] = stage.take()
    if gone == "deleted":
        stage.observe(PodGone(work.ref))
    elif gone == "recreated":
        stage.sees(pod(tolerates(5), name="p0", uid="successor", on="n9"))
    elif gone == "released":
        stage.sees(node(name="n1"))
        stage.observe(PodsReleased("n1"))
    else:
        stage.observe(NodeGone("n1"), PodsReleased("n1"))
    if sent:
        stage.send(work)
    stage.at(1).settle(work, outcome)
    assert hints(stage.brain._queue) == {}
    crowd(stage, 2, "n2", "b")
    assert len(stage.take()) == 1
    assert stage.brain.attempts.take_due(moment(1e9), 10, 10) == []


def test_so_many_at_once_and_no_more() -> None:
    """Three hands for all, two for each node; who ends makes room."""
    stage = limited(EvictionPolicy(total=Limit(at_once=3), per_node=Limit(at_once=2)), 0)
    crowd(stage, 4, "n1", "a")
    crowd(stage, 4, "n2", "b")
    begun = stage.take()
    assert uids(begun) == ["a0", "b0", "a1"]
    assert stage.next_at() is None
    stage.settle(begun[1], Done())
    assert uids(stage.take()) == ["b1"]
    stage.settle(begun[0], Done())
    assert uids(stage.take()) == ["a2"]


def test_first_tries_go_before_retries_under_a_limit() -> None:
    """The retry's time has come, and the token goes to who has not been tried."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 1)
    [work] = stage.take()
    stage.send(work)
    stage.settle(work, Failed("denied", 0.5))
    crowd(stage, 1, "n2", "new")
    assert stage.play(10) == [(1, "new0"), (2, "p0")]


def test_retries_take_turns_as_well() -> None:
    """By node, the most overdue first."""
    stage = Stage(eviction=EvictionPolicy(total=Limit(1.0, 3)))
    crowd(stage, 2, "n1", "a")
    crowd(stage, 1, "n2", "b")
    for work in stage.take():
        stage.send(work)
        stage.settle(work, Failed("denied", 0.25))
    assert stage.at(0.25).take() == []
    assert stage.next_at() == 1.0
    assert stage.play(10) == [(1, "a0"), (2, "b0"), (3, "a1")]


def test_what_is_due_and_not_in_flight_is_limited() -> None:
    """In the words of the explanation; before its deadline, in flight and before its retry nothing holds it."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 2)
    crowd(stage, 1, "n1", "later", seconds=5)
    [work] = stage.take()
    assert [hold_of(stage, uid) for uid in ("p0", "p1", "later0")] == [None, WaitReason.LIMITED, None]
    stage.settle(work, Failed("denied", 3))
    assert hold_of(stage, "p0") is None
    assert stage.at(3).take() != []
    assert hold_of(stage, "p0") is WaitReason.LIMITED


# Pauses


def test_orders_that_are_not_known_yet_hold_everything() -> None:
    """Deadlines run on; what is due goes once it is known that nothing is paused."""
    stage = Stage(control_state=None)
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.next_at() == 10
    assert stage.at(15).take() == []
    assert stage.next_at() is None
    assert hold_of(stage) is WaitReason.ORDERS_UNKNOWN
    assert stage.order(NOTHING) == []
    assert stage.next_at() == 15
    assert stage.play(20) == [(15, "a")]


def test_while_all_is_paused_nothing_goes_and_then_under_the_limits() -> None:
    """Deadlines run on, and what has gathered does not go at once."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 2)), 4)
    assert stage.order(PAUSED) == [Paused(EVERYTHING, Pause())]
    assert stage.at(100).take() == []
    assert stage.next_at() is None
    assert hold_of(stage, "p0") is WaitReason.PAUSED
    assert stage.at(200).order(NOTHING) == [Resumed(EVERYTHING)]
    assert stage.play(300) == [(200, "p0"), (200, "p1"), (201, "p2"), (202, "p3")]


@pytest.mark.parametrize(
    ("control_state", "hold"),
    [
        (ControlState(nodes={"n1": Pause()}), WaitReason.NODE_PAUSED),
        (ControlState(namespaces={"shop": Pause()}), WaitReason.NAMESPACE_PAUSED),
    ],
)
def test_a_part_may_be_paused(control_state: ControlState, hold: WaitReason) -> None:
    """A node or a namespace; whoever is elsewhere goes, and the part when it is resumed."""
    stage = Stage(control_state=control_state)
    stage.sees(node(taint()), node(taint(), name="n2"), pod())
    stage.sees(pod(name="other", uid="other", on="n2", namespace="bank"))
    assert uids(stage.take()) == ["other"]
    assert hold_of(stage) is hold
    assert stage.next_at() is None
    stage.at(50).order(NOTHING)
    assert uids(stage.take()) == ["a"]


def test_a_rule_may_pause_what_it_governs() -> None:
    """Until another policy comes."""
    rule = PolicyRule("keep", namespaces=("shop",), pause=True)
    stage = Stage(eviction=EvictionPolicy(rules=(PolicyRule("none", namespaces=("x",)), rule)))
    stage.sees(node(taint()), pod(), pod(name="other", uid="other", namespace="bank"))
    assert uids(stage.take()) == ["other"]
    assert hold_of(stage) is WaitReason.RULE_PAUSED
    stage.change_policy(EvictionPolicy(rules=(PolicyRule("keep", namespaces=("shop",)),)))
    assert uids(stage.take()) == ["a"]


def test_a_pause_holds_what_is_in_flight_too() -> None:
    """Begun, but not sent: it is held just before the call, and goes after it is resumed as if it had not begun."""
    stage = limited(EvictionPolicy(), 1)
    [work] = stage.take()
    for control_state in (PAUSED, ControlState(nodes={"n1": Pause()}), ControlState(namespaces={"shop": Pause()})):
        stage.order(control_state)
        assert stage.brain.attempts.recheck(work, moment(stage.now)) == Suspended()
        stage.order(NOTHING)
        assert stage.decide_again(work)
    stage.order(PAUSED)
    assert stage.settle(work, Suspended()) == []
    assert stage.take() == []
    stage.at(9).order(NOTHING)
    assert stage.play(20) == [(9, "p0")]


def test_a_pause_does_not_keep_conditions_where_they_are() -> None:
    """To take one back ends nobody."""
    stage = Stage()
    stage.sees(node(taint()), pod())
    work = stage.take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.order(PAUSED)
    stage.sees(node())
    stage.settle(work, CalledOff())
    assert stage.decide_again(stage.take_take_back())


def test_a_pause_that_came_while_it_waited_for_a_limit() -> None:
    """Paused in line: others go in its place; resumed, it goes at its turn."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 0)
    crowd(stage, 2, "n1", "a")
    crowd(stage, 2, "n2", "b")
    assert stage.play(0) == [(0, "a0")]
    stage.order(ControlState(nodes={"n1": Pause()}))
    assert stage.play(2.5) == [(1, "b0"), (2, "b1")]
    assert stage.next_at() is None
    stage.order(NOTHING)
    assert stage.play(9) == [(3, "a1")]


def test_the_same_orders_again_change_nobodys_turn() -> None:
    """They are read every two seconds; nothing is gone through for that."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 3)
    stage.order(ControlState(nodes={"n9": Pause()}))
    stage.play(0)
    flows = stage.brain._queue._due_first
    before = list(flows._kept.values())
    stage.order(ControlState(nodes={"n9": Pause()}))
    assert list(flows._kept.values()) == before
    assert stage.play(5) == [(1, "p1"), (2, "p2")]


# Circuit breaker

QUARTER = BreakerPolicy(enabled=True, settle_seconds=2.0)
CAUSE = "4 of 12 nodes newly tainted within 300 s, more than 25 %"


def guarded(policy: BreakerPolicy = QUARTER, control_state: ControlState | None = NOTHING, nodes: int = 12) -> Stage:
    """A stage with so many nodes, and a pod on each that tolerates nothing."""
    stage = Stage(breaker=policy, control_state=control_state)
    for number in range(nodes):
        stage.sees(node(name=f"n{number}"))
    return stage


def taint_nodes(stage: Stage, *numbers: int, which: Taint | None = None, pods: int = 1, lists: bool = True) -> None:
    """Taint nodes, each with pods that have to go, and list these unless ``lists`` is False."""
    for number in numbers:
        stage.sees(node(which or taint(), name=f"n{number}"))
        for one in range(pods):
            stage.sees(pod(name=f"p{number}-{one}", uid=f"p{number}-{one}", on=f"n{number}"))
        if lists:
            stage.lists(f"n{number}")


def turn(stage: Stage) -> list[str]:
    """Look and take, as the body does, and evict what is taken; list whom."""
    stage.evaluate()
    gone = stage.take()
    for work in gone:
        assert stage.decide_again(work)
        stage.send(work)
        stage.settle(work, Done())
        stage.observe(PodGone(work.ref))
    return uids(gone)


def test_without_it_nothing_waits() -> None:
    """Off by default: due is due, however many nodes are tainted."""
    stage = guarded(BreakerPolicy())
    taint_nodes(stage, *range(12))
    assert len(turn(stage)) == 12


def test_a_wave_is_seen_before_its_first_pods_are_gone() -> None:
    """One node after the other within two seconds: by the fourth it opens, and nobody has gone."""
    stage = guarded()
    gone = []
    for number in range(4):
        stage.at(number * 0.5)
        taint_nodes(stage, number)
        gone += turn(stage)
    assert gone == []
    assert stage.brain.breaker.latch == Latch(epoch(1.5), CAUSE)
    assert stage.at(100).take() == []
    assert hold_of(stage, "p0-0") is WaitReason.BREAKER_OPEN
    assert stage.next_at() is None


def test_opening_is_told() -> None:
    """Once, by the look that sees it."""
    stage = guarded()
    taint_nodes(stage, 0, 1, 2, 3)
    assert stage.evaluate() == [BreakerOpened(Latch(epoch(0), CAUSE))]
    assert stage.evaluate() == []


def test_what_is_no_wave_goes_when_it_has_settled() -> None:
    """Three of twelve: two seconds after its deadline, each; meanwhile it is told what it waits for."""
    stage = guarded()
    taint_nodes(stage, 0, 1, 2)
    assert stage.next_at() == 0
    assert turn(stage) == []
    assert hold_of(stage, "p0-0") is WaitReason.SETTLING
    assert stage.next_at() == 2
    assert turn(stage.at(1.999)) == []
    assert turn(stage.at(2)) == ["p0-0", "p1-0", "p2-0"]


def unlisted_since(stage: Stage) -> float:
    """Since when a newly tainted node has not been listed."""
    return stage.brain.breaker.unlisted_since(stage.brain.nodes.known, moment(stage.now))


def test_what_is_due_waits_for_the_lists_of_newly_tainted_nodes() -> None:
    """Settled, it says so and wakes no earlier than it must; the end of the last list lets it go."""
    stage = guarded()
    taint_nodes(stage, 0)
    taint_nodes(stage.at(1), 1, pods=0, lists=False)
    assert turn(stage) == []
    assert hold_of(stage, "p0-0") is WaitReason.SETTLING
    assert turn(stage.at(2)) == []
    assert hold_of(stage, "p0-0") is WaitReason.UNLISTED
    assert stage.brain.status.surge(moment(2)) == TaintSurge(1, 0, 12, 1, 1)
    assert stage.next_at() == 10
    stage.at(4).lists("n1")
    assert turn(stage) == ["p0-0"]


def test_a_wave_is_judged_before_anybody_goes_however_late_its_lists_come() -> None:
    """Four of twelve at once, listed one after the other: with the fourth it opens."""
    stage = guarded()
    taint_nodes(stage, 0, 1, 2, 3, lists=False)
    for number in range(4):
        assert turn(stage.at(2.0 * number + 1)) == []
        stage.lists(f"n{number}")
    stage.evaluate()
    assert stage.brain.breaker.latch == Latch(epoch(1), CAUSE)


def test_no_pod_goes_between_the_end_of_its_wait_and_the_next_look() -> None:
    """What the lists were waited for in vain for is to be looked at first."""
    stage = guarded()
    taint_nodes(stage, 0)
    taint_nodes(stage, 1, 2, 3, pods=0, lists=False)
    assert turn(stage.at(9.999)) == []
    assert stage.at(10).take() == []
    assert stage.evaluate() == [BreakerOpened(Latch(epoch(10), CAUSE))]
    assert stage.take() == []


def test_one_node_that_is_never_listed_holds_up_nobody_for_long() -> None:
    """Each eviction for ten seconds, until the node is no longer new."""
    stage = guarded()
    taint_nodes(stage, 0)
    stage.sees(
        pod(tolerates(50), name="b", uid="b", on="n0"),
        pod(tolerates(299), name="c", uid="c", on="n0"),
    )
    taint_nodes(stage, 1, pods=0, lists=False)
    gone = []
    for instant in (9.999, 10, 59.999, 60, 300.999, 301):
        gone.append((instant, turn(stage.at(instant))))
    assert [(instant, uids) for instant, uids in gone if uids] == [(10, ["p0-0"]), (60, ["b"]), (301, ["c"])]


def test_a_list_of_all_bound_pods_is_a_list_of_each_node() -> None:
    """Of those that were tainted when it was asked for."""
    stage = guarded()
    taint_nodes(stage.at(1), 0, lists=False)
    taint_nodes(stage.at(3), 1, lists=False)
    stage.at(5).observe(PodsSwept(None, frozenset({"p0-0", "p1-0"}), 2, None))
    assert unlisted_since(stage) == 3
    stage.observe(PodsSwept(None, frozenset({"p0-0", "p1-0"}), 3, None))
    assert unlisted_since(stage) == math.inf


def test_a_node_that_flaps_is_waited_for_since_it_was_tainted_first() -> None:
    """While it is clean, for nothing; once listed, never again as long as its pods are watched."""
    stage = guarded()
    taint_nodes(stage.at(1), 0, lists=False)
    stage.at(3).sees(node(name="n0"))
    assert unlisted_since(stage) == math.inf
    taint_nodes(stage.at(4), 0, lists=False)
    assert unlisted_since(stage) == 1
    stage.at(5).lists("n0")
    stage.at(6).sees(node(name="n0"))
    taint_nodes(stage.at(7), 0, lists=False)
    assert unlisted_since(stage) == math.inf
    stage.at(8).sees(node(name="n0"))
    stage.observe(PodsReleased("n0"))
    taint_nodes(stage.at(9), 0, lists=False)
    assert unlisted_since(stage) == 9


def test_what_was_found_tainted_is_new_only_if_somebody_would_be_gone() -> None:
    """The taints' manager wrote something a minute ago; only p3-0 came before that and does not tolerate its taint."""
    stage = Stage(breaker=BreakerPolicy(enabled=True, nodes=NodeThreshold(0)))
    for number in range(4):
        stage.sees(node(taint(), name=f"n{number}", written_at=-61))
        patience = [tolerates(50_000)] if number < 2 else []
        stage.sees(
            pod(*patience, name=f"p{number}", uid=f"p{number}", on=f"n{number}", bound_at=-1000 if number != 2 else -30)
        )
        stage.lists(f"n{number}")
    assert stage.brain.status.surge(moment(0)).nodes == 1


def test_a_pod_that_its_owner_holds_proves_nothing() -> None:
    """It is there because of that."""
    stage = Stage(DecisionPolicy(max_hold_seconds=9000), breaker=BreakerPolicy(enabled=True))
    stage.sees(node(taint(), written_at=-61), pod(bound_at=-1000, hold_seconds=5000))
    assert stage.brain.status.surge(moment(0)).nodes == 0


@pytest.mark.parametrize("is_listed", [False, True])
def test_what_appears_on_a_node_is_new_by_sight(is_listed: bool) -> None:
    """On one that was clean, whenever that was; on one that nobody knew, once all nodes have been listed."""
    stage = guarded(BreakerPolicy(enabled=True, nodes=NodeThreshold(1)))
    if is_listed:
        present = frozenset(known.node.uid for known in stage.brain.nodes.known.values())
        stage.observe(NodesSwept(present, 0, None))
    stage.at(1).sees(node(taint(), name="n0", written_at=0), node(taint(), name="new", written_at=0))
    for name in ("n0", "new"):
        stage.sees(pod(tolerates(5000), name=name, uid=name, on=name))
    assert stage.brain.status.surge(moment(1)).nodes == (2 if is_listed else 1)


def test_it_holds_what_is_in_flight() -> None:
    """Begun before the wave was seen, not sent yet."""
    stage = guarded()
    taint_nodes(stage, 0)
    stage.at(2).evaluate()
    [work] = stage.take()
    taint_nodes(stage, 1, 2, 3)
    stage.evaluate()
    assert stage.brain.attempts.recheck(work, moment(2)) == Suspended()
    stage.settle(work, Suspended())
    assert turn(stage.at(50)) == []


def test_a_human_resets_it_and_everything_goes() -> None:
    """What was there is known; the next node alone is no wave."""
    stage = guarded()
    taint_nodes(stage, 0, 1, 2, 3)
    stage.evaluate()
    latch = stage.brain.breaker.latch
    assert latch is not None
    stage.at(10).order(ControlState(latch=latch))
    assert stage.at(60).order(ControlState(reset_epoch=epoch(59))) == [BreakerClosed()]
    assert turn(stage) == ["p0-0", "p1-0", "p2-0", "p3-0"]
    taint_nodes(stage.at(61), 4)
    assert turn(stage) == []
    assert turn(stage.at(63)) == ["p4-0"]


def test_a_latch_survives_the_loss_of_its_config_map() -> None:
    """Not paused any more, but still open."""
    stage = guarded()
    taint_nodes(stage, 0)
    stage.order(ControlState(cluster=Pause(), latch=Latch(epoch(0), "elsewhere")))
    assert stage.at(5).order(NOTHING) == [Resumed(EVERYTHING)]
    assert turn(stage.at(100)) == []


def test_a_restart_within_the_window_sees_the_wave_by_the_taints_own_time() -> None:
    """And not what was tainted before it, though it is seen at the same moment."""
    for added_at, opened in ((-299.0, True), (-302.0, False)):
        stage = guarded()
        taint_nodes(stage, 0, 1, 2, 3, which=taint(added_at=added_at))
        stage.evaluate()
        assert (stage.brain.breaker.latch is not None) is opened


def test_after_a_restart_what_was_overdue_settles() -> None:
    """It has been due for an hour; that other nodes are, too, is seen within the next seconds."""
    stage = guarded()
    taint_nodes(stage, 0, which=taint(added_at=-60))
    assert turn(stage) == []
    taint_nodes(stage.at(1), 1, 2, 3, which=taint(added_at=-60))
    assert turn(stage.at(1.5)) == []
    assert hold_of(stage, "p0-0") is WaitReason.BREAKER_OPEN


def test_a_restart_does_not_open_it_again_for_what_a_human_has_reset() -> None:
    """Before the orders are known it does not look: the reset stands there."""
    stage = guarded(control_state=None)
    taint_nodes(stage, 0, 1, 2, 3, which=taint(added_at=-60))
    assert stage.evaluate() == []
    stage.at(1).order(ControlState(reset_epoch=epoch(-30)))
    assert stage.evaluate() == []
    assert len(turn(stage.at(3))) == 4


def test_a_taint_set_anew_in_a_gap_of_the_watch_is_new() -> None:
    """Nobody has heard that it was removed; the list says that it was set since."""
    stage = guarded(nodes=12)
    for number in range(4):
        stage.sees(node(taint(), name=f"n{number}", written_at=-1000, version=1))
        stage.sees(pod(tolerates(100_000), name=f"p{number}", uid=f"p{number}", on=f"n{number}"))
    assert stage.evaluate() == []
    stage.at(100)
    for number in range(4):
        stage.observe(NodeSeen(node(taint(), name=f"n{number}", written_at=90, version=2), True, 99))
    assert stage.evaluate() == [BreakerOpened(Latch(epoch(100), CAUSE))]


def test_nodes_that_evict_nobody_do_not_count() -> None:
    """All tainted, three with a pod that has to go."""
    stage = guarded()
    taint_nodes(stage, *range(9), pods=0)
    stage.sees(pod(tolerates(), name="stays", uid="stays", on="n8"))
    taint_nodes(stage, 9, 10, 11)
    assert stage.evaluate() == []
    assert stage.brain.status.surge(moment(0)) == TaintSurge(3, 0, 12, 3)


def test_a_node_whose_pods_are_gone_still_counts() -> None:
    """Otherwise a slow wave would never be seen; one whose taint was removed, or that is gone, does not."""
    stage = guarded()
    gone = []
    for number in range(4):
        stage.at(10.0 * number)
        taint_nodes(stage, number)
        stage.evaluate()
        gone += turn(stage.at(10.0 * number + 5))
    assert gone == ["p0-0", "p1-0", "p2-0"]
    assert stage.brain.breaker.latch is not None
    for still in (3, 2):
        stage.sees(node(name=f"n{3 - still}"))
        assert stage.brain.status.surge(moment(40)).nodes == still
    stage.observe(NodeGone("n2"))
    assert stage.brain.status.surge(moment(40)) == TaintSurge(1, 0, 11, 1)


def test_too_many_pods_due_open_it() -> None:
    """On two nodes of twelve; retries and pods whose time has not come do not count."""
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2))
    taint_nodes(stage, 0, pods=5)
    stage.sees(pod(tolerates(50), name="later", uid="later", on="n0"))
    assert stage.evaluate() == []
    taint_nodes(stage.at(1), 1)
    assert stage.evaluate() == [BreakerOpened(Latch(epoch(1), "6 pods due at once, more than 5"))]
    assert stage.brain.status.due_count() == 6


def test_pods_that_are_paused_are_not_due() -> None:
    """A node that is paused and then tainted does not stop all others."""
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2), ControlState(nodes={"n0": Pause()}))
    taint_nodes(stage, 0, pods=20)
    taint_nodes(stage, 1, pods=1)
    assert stage.evaluate() == []
    assert stage.brain.status.due_count() == 1
    assert turn(stage.at(2)) == ["p1-0"]


def test_what_has_gathered_during_a_pause_may_be_worked_off() -> None:
    """Whoever resumes knows of it; what comes on top is too much."""
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2), PAUSED)
    taint_nodes(stage, 0, pods=20)
    assert stage.at(10).evaluate() == []
    stage.order(NOTHING)
    assert stage.evaluate() == []
    taint_nodes(stage.at(11), 1, pods=6)
    assert stage.evaluate() == [BreakerOpened(Latch(epoch(11), "26 pods due at once, more than 5"))]


@pytest.mark.parametrize(("left", "more", "opened"), [(8, 5, False), (8, 6, True), (0, 5, False), (0, 6, True)])
def test_a_standby_knows_what_is_left_of_a_backlog_when_it_leads(left: int, more: int, opened: bool) -> None:
    """It is told of latch and reset like the leader, counts at each reading of the orders, and looks when it leads."""
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2))
    taint_nodes(stage, 0, pods=20)
    stage.at(3).order(ControlState(latch=Latch(epoch(2), "20 pods due at once, more than 5")))
    reset = ControlState(reset_epoch=epoch(10))
    assert stage.at(11).order(reset) == [BreakerClosed()]
    for number in range(left, 20):
        stage.observe(PodGone(ref(f"p0-{number}", f"p0-{number}")))
    stage.at(13).order(reset)
    taint_nodes(stage.at(20), 1, pods=more)
    assert (stage.evaluate() != []) is opened


def test_it_closes_by_itself_where_it_may() -> None:
    """Two of the four nodes are untainted: what is left goes."""
    stage = guarded(BreakerPolicy(enabled=True, settle_seconds=2, closes_by_itself=True))
    taint_nodes(stage, 0, 1, 2, 3)
    stage.evaluate()
    assert stage.at(1000).evaluate() == []
    stage.sees(node(name="n0"))
    assert stage.evaluate() == [BreakerClosed()]
    assert turn(stage) == ["p1-0", "p2-0", "p3-0"]


def test_not_ready_nodes_have_their_own_threshold_or_none() -> None:
    """Six of twelve not ready: fewer than 55 %, and more than 40 %, and exempt."""
    for threshold, opened in ((NodeThreshold(percent=55.0), False), (NodeThreshold(percent=40.0), True), (None, False)):
        stage = guarded(BreakerPolicy(enabled=True, lifecycle_nodes=threshold))
        taint_nodes(stage, *range(6), which=taint(NOT_READY))
        stage.evaluate()
        assert (stage.brain.breaker.latch is not None) is opened
        assert stage.brain.status.surge(moment(0)) == TaintSurge(0, 6, 12, 6)


def test_nothing_is_remembered_of_nodes_that_are_clean_or_gone() -> None:
    """Whether or not anybody looks, and whether it is on or off."""
    for policy in (QUARTER, BreakerPolicy()):
        stage = guarded(policy)
        for lap in range(50):
            taint_nodes(stage.at(lap), lap % 12, which=taint(added_at=lap))
            stage.sees(node(name=f"n{lap % 12}"))
        taint_nodes(stage, 0, 1)
        assert set(stage.brain.breaker._evicting) == {"n0", "n1"}
        stage.sees(node(name="n0"))
        stage.observe(NodeGone("n1"))
        breaker = stage.brain.breaker
        assert (breaker._evicting, breaker._found) == ({}, {})
        for number in range(12):
            stage.observe(PodsReleased(f"n{number}"))
        assert breaker.unlisted == {}


# Modes


def by_mode(mode: EvictionMode, timeout: float = 300.0, seconds: int = 10) -> Stage:
    """A stage with a pod that is due at 10."""
    stage = Stage(eviction=EvictionPolicy(mode, timeout))
    stage.sees(node(taint()), pod(tolerates(seconds)))
    return stage.at(10)


def attempt(stage: Stage, outcome: WorkOutcome, sent: bool = True) -> bool:
    """Carry out the one eviction that is due; tell whether the eviction API was asked."""
    work = stage.take_eviction()
    if sent:
        stage.send(work)
    stage.settle(work, outcome)
    return work.by_eviction_api


@pytest.mark.parametrize(
    ("mode", "asks"),
    [(EvictionMode.DELETE, False), (EvictionMode.EVICT, True), (EvictionMode.EVICT_THEN_DELETE, True)],
)
def test_each_mode_begins_with_its_call(mode: EvictionMode, asks: bool) -> None:
    """Budgets hold where the eviction API is asked."""
    assert attempt(by_mode(mode), Done()) is asks


def test_budgets_hold_however_long() -> None:
    """Mode evict: a day later it still asks, at the times that it was told."""
    stage = by_mode(EvictionMode.EVICT)
    for _ in range(20):
        assert attempt(stage, blocked(stage.now + 5000)) is True
        failures = stage.explain().pending
        assert failures is not None
        assert failures.failures is not None
        assert (failures.failures.block, failures.failures.retry_at) == (BLOCK, stage.now + 5000)
        stage.at(stage.now + 5000)


def test_what_a_budget_refuses_is_told_with_it() -> None:
    """As blocked: nothing is wrong."""
    stage = by_mode(EvictionMode.EVICT)
    work = stage.take_eviction()
    stage.send(work)
    assert stage.settle(work, blocked(20)) == [Refused(ref(), "n1", "no disruption allowed", 1, 10, 20, BLOCK)]


def test_who_was_blocked_and_is_deleted_by_somebody_else_was_not_evicted_by_us() -> None:
    """A budget's no is sure; no answer is not."""
    stage = by_mode(EvictionMode.EVICT)
    attempt(stage, blocked(20))
    assert stage.sees(pod(terminating=True)) == [Cancelled(ref(), "n1", StayReason.TERMINATING)]
    other = by_mode(EvictionMode.EVICT)
    attempt(other, Failed("no answer", 20))
    [evicted] = other.sees(pod(terminating=True))
    assert isinstance(evicted, Evicted)


def test_once_budgets_have_refused_for_the_timeout_it_is_deleted() -> None:
    """Blocked until then; the last wait ends with the timeout, at exactly that instant."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    assert attempt(stage, blocked(30)) is True
    assert stage.at(30).next_at() == 30
    assert attempt(stage, blocked(65)) is True
    assert stage.next_at() == 65
    assert attempt(stage.at(65), blocked(600)) is True
    assert stage.next_at() == 70
    assert stage.at(69.999).take() == []
    assert attempt(stage.at(70), Failed("denied", 99)) is False
    assert stage.next_at() == 99
    assert attempt(stage.at(99), Done()) is False


def test_however_late_it_is_budgets_are_asked_for_the_whole_timeout() -> None:
    """Paused until long after its deadline: asked, refused, and deleted a minute later."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    stage.order(PAUSED)
    stage.at(5000).order(NOTHING)
    assert attempt(stage, blocked(5600)) is True
    assert stage.next_at() == 5060
    assert attempt(stage.at(5060), Done()) is False


def test_failures_before_it_could_be_asked_do_not_count_as_asking() -> None:
    """The node could not be read for ten minutes: then the eviction API is asked first all the same."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    for at in (10, 100, 600):
        assert attempt(stage.at(at), Failed("the node cannot be read", at + 7), sent=False) is True
        assert stage.next_at() == at + 7
    assert attempt(stage.at(700), blocked(900)) is True
    assert stage.next_at() == 760
    assert attempt(stage.at(760), Failed("the node cannot be read", 780), sent=False) is False
    assert attempt(stage.at(780), Done()) is False


def test_a_deletion_that_failed_is_no_asking_either() -> None:
    """Deleted in vain under one policy: under the next the eviction API is asked first."""
    stage = by_mode(EvictionMode.DELETE)
    assert attempt(stage, Failed("denied", 11)) is False
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 0.0))
    assert attempt(stage.at(11), blocked(99)) is True
    assert stage.next_at() == 11
    assert attempt(stage, Done()) is False


def test_an_earlier_retry_is_not_put_off_to_the_timeout() -> None:
    """The earlier of both counts."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    attempt(stage, Failed("busy", 12))
    assert stage.next_at() == 12


def test_a_later_deadline_moves_the_timeout() -> None:
    """It counts from the deadline, and that is the one that holds now."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    attempt(stage, blocked(20))
    stage.sees(pod(tolerates(40)))
    assert stage.next_at() == 40
    assert attempt(stage.at(40), blocked(1000)) is True
    assert stage.next_at() == 100


RULES = (
    PolicyRule("ask", namespaces=("shop",), mode=EvictionMode.EVICT),
    PolicyRule("late", taint_keys=("k2",), pod_selector=parse_selector("app=db"), evict_timeout_seconds=7.0),
)


def test_rules_choose_the_mode_by_the_taint_that_decides() -> None:
    """The first that matches pod and taint; else what holds for all."""
    stage = Stage(eviction=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 60.0, rules=RULES))
    stage.sees(node(taint(), taint("k2")))
    stage.sees(pod(tolerates(0), tolerates(0, "k2")))
    stage.sees(pod(tolerates(50), tolerates(0, "k2"), name="db", uid="db", namespace="x", labels={"app": "db"}))
    stage.sees(pod(name="else", uid="else", namespace="x", labels={"app": "web"}))
    said = {}
    for uid in ("a", "db", "else"):
        pending = stage.explain(uid).pending
        assert pending is not None
        said[uid] = (pending.handling.rule, pending.handling.mode, pending.handling.evict_timeout_seconds)
    assert said == {
        "a": (RULES[0], EvictionMode.EVICT, 60.0),
        "db": (RULES[1], EvictionMode.EVICT_THEN_DELETE, 7.0),
        "else": (None, EvictionMode.EVICT_THEN_DELETE, 60.0),
    }
    for work in stage.take():
        stage.send(work)
        stage.settle(work, blocked(1000))
    assert stage.next_at() == 7
    assert uids(stage.at(7).take()) == ["db"]


# Several taints that are due

NOT_YET = PolicyRule("not yet", taint_keys=("k1",), pause=True)
GENTLY = PolicyRule("gently", taint_keys=("k1",), mode=EvictionMode.EVICT)


def two_taints(*rules: PolicyRule, seconds: int = 20, breaker: BreakerPolicy | None = None) -> Stage:
    """A stage with a pod that is due at 10 by one taint and later by another."""
    stage = Stage(eviction=EvictionPolicy(rules=rules), breaker=breaker)
    stage.sees(node(taint(), taint("k2")), pod(tolerates(10), tolerates(seconds, "k2")))
    return stage


def deciding(stage: Stage) -> str:
    """Name the taint that decides on the pod now, as status and explanation tell it alike."""
    explained = stage.explain()
    assert explained.pending is not None
    assert isinstance(explained.decision, Evict)
    assert explained.pending.decision == explained.decision
    assert explained.decision.fire_at == 10
    return explained.decision.deciding.taint.key


def test_who_waits_under_a_paused_rule_goes_when_another_taint_is_due() -> None:
    """At exactly that instant, late by that taint; until then the pause holds. The deadline is not told anew."""
    stage = two_taints(NOT_YET)
    assert stage.next_at() == 10
    assert stage.at(10).take() == []
    assert (hold_of(stage), deciding(stage)) == (WaitReason.RULE_PAUSED, "k1")
    assert stage.next_at() == 20
    assert stage.at(19.999).take() == []
    assert stage.at(20).evaluate() == []
    assert deciding(stage) == "k2"
    work = stage.at(21).take_eviction()
    assert stage.decide_again(work)
    stage.send(work)
    [told] = stage.at(22).settle(work, Done())
    assert isinstance(told, Evicted)
    assert (told.decision.deciding.taint.key, told.late_seconds, told.decision.fire_at) == ("k2", 2, 10)


def test_another_taint_is_found_due_whoever_asks_first() -> None:
    """A look, orders that are read, or work that is taken; nothing more happens at that instant then."""
    for ask in (Stage.evaluate, lambda stage: stage.order(NOTHING), lambda stage: stage.take(0)):
        stage = two_taints(NOT_YET)
        ask(stage.at(20))
        assert stage.brain.status.due_count() == 1
        assert uids(stage.take()) == ["a"]


def test_another_taint_that_is_due_waits_for_a_wave_of_its_own() -> None:
    """However long the pod has been held because of the first."""
    stage = two_taints(NOT_YET, breaker=BreakerPolicy(enabled=True, settle_seconds=2.0))
    stage.lists("n1")
    assert turn(stage.at(10)) == []
    assert turn(stage.at(20)) == []
    assert hold_of(stage) is WaitReason.SETTLING
    assert turn(stage.at(21.999)) == []
    assert turn(stage.at(22)) == ["a"]


def test_a_pause_holds_again_once_the_other_taint_is_gone() -> None:
    """Also what is in flight already, and nothing is left of the instant at which the other would be due."""
    for at in (15.0, 25.0):
        stage = two_taints(NOT_YET)
        stage.at(at).evaluate()
        begun = stage.take()
        stage.sees(node(taint()))
        for work in begun:
            assert stage.brain.attempts.recheck(work, moment(at)) == Suspended()
            stage.settle(work, Suspended())
        assert stage.take() == []
        assert (hold_of(stage), stage.next_at()) == (WaitReason.RULE_PAUSED, None)


def test_a_rule_that_deletes_does_not_wait_for_a_budget() -> None:
    """What was refused because of the first taint, to be asked again much later, goes when the second is due."""
    stage = two_taints(GENTLY)
    assert attempt(stage.at(10), blocked(500)) is True
    assert stage.next_at() == 20
    assert attempt(stage.at(20), Failed("denied", 33)) is False
    assert stage.next_at() == 33
    stage.sees(node(taint()))
    assert stage.next_at() == 500
    assert attempt(stage.at(500), Done()) is True


def test_what_is_begun_under_one_rule_is_not_sent_under_another() -> None:
    """The second taint is due before the call: it begins anew by the other rule's call."""
    stage = two_taints(GENTLY)
    work = stage.at(19).take_eviction()
    assert work.by_eviction_api
    assert stage.decide_again(work)
    assert stage.brain.attempts.recheck(work, moment(20)) == Suspended()
    stage.at(20).settle(work, Suspended())
    again = stage.take_eviction()
    assert not again.by_eviction_api
    assert stage.decide_again(again)


def test_rules_that_are_alike_leave_a_pod_where_it_is() -> None:
    """The earliest deadline decides, its rule's limit counts, and nothing happens when the other taint is due."""
    rules = (PolicyRule("one", taint_keys=("k1",), limit=Limit(1.0)), PolicyRule("two", limit=Limit(1.0)))
    stage = two_taints(*rules)
    work = stage.at(19).take_eviction()
    stage.at(30)
    assert stage.decide_again(work)
    stage.settle(work, Suspended())
    assert deciding(stage) == "k1"


def test_a_policy_that_changes_decides_anew_which_taint_does() -> None:
    """The pod has waited under one paused rule; by the next policy it goes because of the other taint."""
    never = PolicyRule("never", taint_keys=("k2",), pause=True)
    stage = two_taints(NOT_YET, never)
    assert stage.at(30).take() == []
    stage.change_policy(EvictionPolicy(rules=(NOT_YET,)))
    assert deciding(stage) == "k2"
    assert uids(stage.take()) == ["a"]


# A budget's patience


def refused(at: float = 10.0) -> Stage:
    """A stage with a pod that a budget refuses since 10, to be asked again at 40, with a minute's patience."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    stage.evaluate()
    assert attempt(stage, blocked(40)) is True
    return stage.at(at)


def beats(stage: Stage, until: float) -> Stage:
    """Let time go by for a process that acts: it looks again and again."""
    while stage.now < until:
        stage.at(min(until, stage.now + 0.5)).evaluate()
    return stage


def test_while_refusals_follow_each_other_patience_runs_out() -> None:
    """Each look finds that somebody acts; nothing interrupts."""
    stage = beats(refused(), 40)
    assert attempt(stage, blocked(99)) is True
    assert stage.next_at() == 70
    assert attempt(beats(stage, 70), Done()) is False


@pytest.mark.parametrize(
    "control_state",
    [
        PAUSED,
        ControlState(nodes={"n1": Pause()}),
        ControlState(namespaces={"shop": Pause()}),
        ControlState(latch=Latch(5, "x")),
    ],
)
@pytest.mark.parametrize("at", [12.0, 69.0, 75.0])
def test_patience_begins_anew_after_a_hold(control_state: ControlState, at: float) -> None:
    """However short, and when it is over already; the budget is not asked before it may be."""
    stage = refused(at)
    stage.order(control_state)
    stage.at(at + 1).order(ControlState(reset_epoch=epoch(at)) if control_state.latch else NOTHING)
    assert stage.next_at() == max(40, at + 1)
    stage.at(max(40, at + 1))
    assert attempt(stage, blocked(999)) is True
    assert stage.next_at() == stage.now + 60


@pytest.mark.parametrize(
    "control_state", [ControlState(nodes={"n2": Pause()}), ControlState(namespaces={"bank": Pause()}), NOTHING]
)
def test_holds_of_others_do_not_touch_patience(control_state: ControlState) -> None:
    """Neither when they begin nor when they end."""
    stage = refused(12)
    stage.order(control_state)
    stage.at(50).order(NOTHING)
    assert attempt(stage, blocked(999)) is True
    assert stage.next_at() == 70 + 10  # At 50 it had waited for its turn for 10 s.


def test_a_hold_that_came_and_went_during_an_attempt_to_delete_ends_that_attempt() -> None:
    """It was begun because patience with the budget was over; that begins anew, so the eviction API is asked."""
    stage = beats(refused(), 40)
    assert attempt(stage, blocked(70.5)) is True
    work = beats(stage, 70).take_eviction()
    assert not work.by_eviction_api
    stage.order(PAUSED)
    stage.at(71).order(NOTHING)
    assert stage.brain.attempts.recheck(work, moment(71)) == Suspended()
    stage.settle(work, Suspended())
    assert attempt(stage, blocked(999)) is True


def test_patience_begins_anew_after_a_rule_that_paused() -> None:
    """Put in and taken out again in the same second."""
    stage = refused(12)
    paused = PolicyRule("not yet", pause=True)
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 60.0, rules=(paused,)))
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 60.0))
    assert attempt(stage.at(40), blocked(999)) is True
    assert stage.next_at() == 100


def test_another_policy_that_holds_nothing_leaves_patience_as_it_is() -> None:
    """But its length may be another."""
    stage = refused(12)
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 45.0))
    assert attempt(stage.at(40), blocked(999)) is True
    assert stage.next_at() == 55


@pytest.mark.parametrize(("seconds", "deletes_at"), [(2.0, 70), (2.001, 100)])
def test_patience_begins_anew_where_nobody_has_looked(seconds: float, deletes_at: float) -> None:
    """Who does not look twice a second does not lead, or is frozen."""
    stage = beats(refused(), 15)
    stage.at(15 + seconds).evaluate()
    assert attempt(beats(stage, 40), blocked(999)) is True
    assert stage.next_at() == deletes_at


def test_patience_begins_anew_after_an_attempt_in_which_no_budget_was_heard() -> None:
    """A node that cannot be read, or an eviction API that does not answer."""
    for sent in (False, True):
        stage = refused(40)
        assert attempt(stage, Failed("no answer", 41), sent=sent) is True
        assert stage.next_at() == 41
        assert attempt(stage.at(41), blocked(999)) is True
        assert stage.next_at() == 101


def test_a_deletion_that_fails_takes_no_patience_back() -> None:
    """It is tried again as any other, until something holds the pod."""
    stage = refused(40)
    assert attempt(stage, blocked(99)) is True
    assert attempt(stage.at(70), Failed("denied", 75)) is False
    assert attempt(stage.at(75), Failed("denied", 85)) is False
    stage.order(PAUSED)
    stage.at(99).order(NOTHING)
    assert attempt(stage, Done()) is True


def test_what_a_pod_waits_for_a_limit_is_no_patience() -> None:
    """Asked at 10, to be asked again at 20, and let through at 25: five seconds count neither way."""
    stage = limited(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 30.0, total=Limit(0.1, 1)), 1)
    assert attempt(stage.at(10), blocked(20)) is True
    crowd(stage.at(15), 1, "n2", "other")
    assert stage.play(19) == [(15, "other0")]
    assert stage.at(20).take() == []
    assert attempt(stage.at(25), blocked(999)) is True
    assert stage.next_at() == 45
    assert attempt(stage.at(45), Done()) is False


def test_patience_that_ran_out_before_a_wait_for_a_limit_is_over() -> None:
    """It is not asked again for having had to wait."""
    stage = limited(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 10.0, total=Limit(0.1, 1)), 1)
    assert attempt(stage.at(10), blocked(99)) is True
    crowd(stage.at(15), 1, "n2", "other")
    assert stage.play(19) == [(15, "other0")]
    assert stage.at(20).take() == []
    assert attempt(stage.at(25), Done()) is False


# Reload


def test_another_mode_holds_for_what_is_in_flight_too() -> None:
    """Begun as a deletion, and by now budgets are to hold: it begins anew, and asks."""
    stage = by_mode(EvictionMode.DELETE)
    work = stage.take_eviction()
    assert not work.by_eviction_api
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT))
    assert stage.brain.attempts.recheck(work, moment(10)) == Suspended()
    assert stage.settle(work, Suspended()) == []
    again = stage.take_eviction()
    assert again.by_eviction_api
    assert stage.decide_again(again)


def test_another_limit_holds_for_what_is_in_flight_too() -> None:
    """Twenty were begun without one: of them, too, no more are sent than it lets through."""
    stage = limited(EvictionPolicy(), 20)
    begun = stage.take()
    stage.send(begun[0])
    stage.change_policy(EvictionPolicy(total=Limit(1.0, 2)))
    assert [stage.decide_again(work) for work in begun[1:]] == [False] * 19
    for work in begun:
        stage.settle(work, Done() if work is begun[0] else Suspended())
    stage.observe(PodGone(begun[0].ref))
    assert [at for at, _ in stage.play(100)] == [0, 0, *range(1, 18)]


def test_what_another_policy_governs_otherwise_moves_to_its_lane() -> None:
    """Due and waiting for a limit that is no more, or free and limited by now; nobody's deadline moves."""
    slow = PolicyRule("slow", limit=Limit(0.1, 1))
    stage = limited(EvictionPolicy(rules=(slow,)), 4)
    assert stage.play(0) == [(0, "p0")]
    assert stage.change_policy(EvictionPolicy()) == []
    assert stage.play(1) == [(0, "p1"), (0, "p2"), (0, "p3")]
    crowd(stage, 3, "n2", "b")
    assert stage.change_policy(EvictionPolicy(rules=(slow,))) == []
    assert stage.play(100) == [(1, "b0"), (11, "b1"), (21, "b2")]
    assert stage.brain.status.policy.rules == (slow,)


def test_a_rule_of_the_same_name_that_matches_otherwise() -> None:
    """Names alone say nothing."""
    stage = Stage(eviction=EvictionPolicy(rules=(PolicyRule("r", namespaces=("shop",), pause=True),)))
    stage.sees(node(taint()), pod(), pod(name="b", uid="b", namespace="bank"))
    stage.change_policy(EvictionPolicy(rules=(PolicyRule("r", namespaces=("bank",), pause=True),)))
    assert uids(stage.take()) == ["a"]
    assert hold_of(stage, "b") is WaitReason.RULE_PAUSED


# Defaults and holds


def test_default_tolerances_hold_for_the_whole_controller() -> None:
    """As if the API server had given them to the pod."""
    stage = Stage(DecisionPolicy(default_seconds={NOT_READY: 30}))
    stage.sees(node(taint(NOT_READY)), pod())
    assert stage.play(100) == [(30, "a")]


def test_an_owner_may_put_off_and_let_go_at_any_time() -> None:
    """The annotation is set when the pod is due already, made longer than allowed, and removed."""
    stage = Stage(DecisionPolicy(max_hold_seconds=100))
    stage.sees(node(taint()), pod(tolerates(10)))
    stage.at(12).sees(pod(tolerates(10), hold_seconds=20.0))
    assert stage.deadlines() == {"a": 30}
    stage.sees(pod(tolerates(10), hold_seconds=math.inf))
    assert stage.deadlines() == {"a": 110}
    assert stage.take() == []
    stage.at(20).sees(pod(tolerates(10)))
    assert stage.play(50) == [(20, "a")]


def test_held_for_ever_it_is_called_off() -> None:
    """Where operators set no bound, with the reason."""
    stage = Stage(DecisionPolicy(max_hold_seconds=math.inf))
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.sees(pod(tolerates(10), hold_seconds=math.inf)) == [Cancelled(ref(), "n1", StayReason.HELD)]
    assert stage.next_at() is None


# By default


def test_a_controller_that_is_told_nothing_else_holds_nothing_back() -> None:
    """No limit, no pause, no breaker: as ever."""
    brain = Controller()
    assert brain.suspension.of_cluster() is None
    assert not brain.breaker.policy.enabled
    assert brain.status.policy == EvictionPolicy()


def test_a_taint_that_is_swapped_does_not_ask_a_budget_anew() -> None:
    """Its no outlasts the new deadline; a deadline after that is another eviction's."""
    stage = Stage(eviction=EvictionPolicy(EvictionMode.EVICT))
    stage.sees(node(taint()), pod(tolerates(10, key="k3")))
    assert attempt(stage.at(1), blocked(6)) is True
    stage.at(2).sees(node(taint("k2")))
    assert stage.take() == []
    assert stage.brain.attempts.next_at(2) == 6
    stage.sees(node(taint("k3")))
    assert stage.brain.attempts.next_at(2) == 12
    assert stage.at(12).take_eviction().tries == 0


@pytest.mark.parametrize(("later_mode", "next_at"), [(EvictionMode.EVICT, 8), (EvictionMode.DELETE, 3.5)])
def test_a_budgets_no_outlasts_a_deletion_that_failed(later_mode: EvictionMode, next_at: float) -> None:
    """Whoever is to be evicted by the budget's leave again, since another taint decides, is not asked for sooner."""
    rule = PolicyRule("later", taint_keys=("k2",), mode=later_mode)
    stage = Stage(eviction=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 3.0, rules=(rule,)))
    stage.sees(node(taint()), pod())
    attempt(stage.at(0), blocked(8))
    assert attempt(stage.at(3), Failed("HTTP 503", 3.5)) is False
    assert stage.next_at() == 3.5
    stage.at(3.2).sees(node(taint("k2")))
    assert stage.next_at() == next_at


def test_a_deadline_that_moves_takes_the_first_no_along() -> None:
    """The timeout begins anew, and until then the budget is asked no sooner than its no allows."""
    stage = Stage(DecisionPolicy(max_hold_seconds=9.0), eviction=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 3.0))
    stage.sees(node(taint()), pod())
    assert attempt(stage.at(0), blocked(6)) is True
    assert stage.next_at() == 3
    stage.at(2).sees(pod(hold_seconds=4.0))
    assert stage.at(4).next_at() == 6
    assert attempt(stage.at(6), blocked(20)) is True
    assert stage.next_at() == 9


def test_a_taint_that_is_swapped_leaves_a_budgets_patience_as_it_is() -> None:
    """The pod is due before and after, and the budget refuses it all the while."""
    stage = Stage(eviction=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 3.0))
    stage.sees(node(taint()), pod())
    assert attempt(stage.at(0), blocked(6)) is True
    assert stage.next_at() == 3
    stage.at(2).sees(node(taint("k2")))
    assert stage.next_at() == 3
    assert not stage.at(3).take_eviction().by_eviction_api
