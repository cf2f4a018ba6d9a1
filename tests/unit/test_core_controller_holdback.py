"""What holds evictions back, on the whole controller: limits, pauses, circuit breaker, modes, and their reload."""

import math
from dataclasses import replace

import pytest
from tests.memory import kept
from tests.unit.builders import Stage, epoch, moment, node, own_latch, pod, ref, taint, tolerates
from tests.unit.hints import hints

from taint_eviction.core.breaker import TaintSurge, TriedBefore
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause, Release
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import DecisionPolicy, Evict, StayReason
from taint_eviction.core.events import (
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
from taint_eviction.core.fair_queue import FairQueue
from taint_eviction.core.guards import WaitReason
from taint_eviction.core.label_selectors import parse_selector
from taint_eviction.core.objects import NOT_READY, Taint
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit, PolicyRule

BLOCK = Block(BlockReason.BUDGET, "web")
PAUSED = ControlState(cluster=Pause())
NOTHING = ControlState()


def blocked(retry_at: float) -> Failed:
    """A budget's refusal."""
    return Failed("no disruption allowed", retry_at, BLOCK)


def crowd(stage: Stage, count: int, on: str = "n1", prefix: str = "p", seconds: int | None = 0) -> None:
    """Taint a node, and put ``count`` pods with the same tolerance on it."""
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
    """List the UIDs of the pods."""
    return [work.ref.uid for work in works]


def hold_of(stage: Stage, uid: str = "a") -> WaitReason | None:
    """Return why a pod that is to be evicted waits."""
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
def test_evictions_are_as_fast_as_the_limits_allow(policy: EvictionPolicy, times: list[float]) -> None:
    """Six pods on two nodes are due at once: the burst is evicted first, then one pod after another, at exact times."""
    stage = Stage(eviction=policy)
    crowd(stage, 3, "n1", "a")
    crowd(stage, 3, "n2", "b")
    assert [at for at, _ in stage.play(100)] == times


def test_a_pod_that_is_not_due_uses_no_token() -> None:
    """Pods that tolerate the taint indefinitely, or are due later, leave the token to the pod that is due."""
    stage = limited(EvictionPolicy(total=Limit(0.1, 1)), 0)
    crowd(stage, 5, "n1", "stays", seconds=None)
    crowd(stage, 5, "n1", "later", seconds=1000)
    crowd(stage, 1, "n1", "goes")
    assert stage.play(5) == [(0, "goes0")]


def test_nodes_take_turns_and_the_most_overdue_goes_first() -> None:
    """A node with five due pods does not make two nodes with two due pods each wait."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 0)
    crowd(stage, 5, "n1", "a")
    stage.at(3)
    crowd(stage, 2, "n2", "b")
    stage.at(5)
    crowd(stage, 2, "n3", "c")
    assert [uid for _, uid in stage.play(20)] == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "a3", "a4"]


def test_a_pod_that_waits_for_its_turn_can_be_cancelled() -> None:
    """The node becomes clean while the pod waits for the limit; a new taint then gives the pod a new deadline."""
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
def test_only_an_attempt_that_may_have_ended_a_pod_uses_up_its_token(
    sent: bool, outcome: WorkOutcome, next_at: float
) -> None:
    """The limit allows one eviction per 10 s: an attempt that ends no pod leaves its token to the next pod at once."""
    stage = limited(EvictionPolicy(total=Limit(0.1, 1)), 2)
    [work] = stage.take()
    assert stage.at(4).take() == []
    assert stage.next_at() is None
    stage.at(5)
    if sent:
        stage.send(work)
    stage.finish(work, outcome)
    stage.observe(PodGone(work.ref))
    assert stage.next_at() == next_at
    assert stage.play(100) == [(next_at, "p1")]


@pytest.mark.parametrize(
    "outcome", [Done(), PodIsGone(), CalledOff(), CutOff(), Suspended(), Failed("late", 9.0), blocked(9.0)]
)
@pytest.mark.parametrize("gone", ["deleted", "recreated", "released", "node gone"])
@pytest.mark.parametrize("sent", [True, False])
def test_a_pod_that_disappears_in_flight_makes_room(outcome: WorkOutcome, gone: str, sent: bool) -> None:
    """However the pod disappears, and whatever its last call returns, exactly one other pod may then be in flight."""
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
    stage.at(1).finish(work, outcome)
    assert hints(stage.brain) == 0
    crowd(stage, 2, "n2", "b")
    assert len(stage.take()) == 1
    assert stage.brain.attempts.take_due(moment(1e9), 10, 10) == []


def test_no_more_evictions_are_in_flight_than_the_limits_allow() -> None:
    """Three evictions may be in flight, two per node; one that ends makes room for the next."""
    stage = limited(EvictionPolicy(total=Limit(at_once=3), per_node=Limit(at_once=2)), 0)
    crowd(stage, 4, "n1", "a")
    crowd(stage, 4, "n2", "b")
    begun = stage.take()
    assert uids(begun) == ["a0", "b0", "a1"]
    assert stage.next_at() is None
    stage.finish(begun[1], Done())
    assert uids(stage.take()) == ["b1"]
    stage.finish(begun[0], Done())
    assert uids(stage.take()) == ["a2"]


def test_first_tries_go_before_retries_under_a_limit() -> None:
    """The token goes to a pod that has not been tried yet, although the other pod's retry is due."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 1)
    [work] = stage.take()
    stage.send(work)
    stage.finish(work, Failed("denied", 0.5))
    crowd(stage, 1, "n2", "new")
    assert stage.play(10) == [(1, "new0"), (2, "p0")]


def test_retries_take_turns_as_well() -> None:
    """Nodes take turns with their retries, and each node's most overdue pod is first."""
    stage = Stage(eviction=EvictionPolicy(total=Limit(1.0, 3)))
    crowd(stage, 2, "n1", "a")
    crowd(stage, 1, "n2", "b")
    for work in stage.take():
        stage.send(work)
        stage.finish(work, Failed("denied", 0.25))
    assert stage.at(0.25).take() == []
    assert stage.next_at() == 1.0
    assert stage.play(10) == [(1, "a0"), (2, "b0"), (3, "a1")]


def test_only_a_pod_that_is_due_and_not_in_flight_is_limited() -> None:
    """A pod has no wait reason before its deadline, while it is in flight, or before its retry."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 2)
    crowd(stage, 1, "n1", "later", seconds=5)
    [work] = stage.take()
    assert [hold_of(stage, uid) for uid in ("p0", "p1", "later0")] == [None, WaitReason.LIMITED, None]
    stage.finish(work, Failed("denied", 3))
    assert hold_of(stage, "p0") is None
    assert stage.at(3).take() != []
    assert hold_of(stage, "p0") is WaitReason.LIMITED


# Pauses


def test_an_unknown_control_state_holds_everything() -> None:
    """Deadlines keep running, and a due pod is evicted once the control state is known to pause nothing."""
    stage = Stage(control_state=None)
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.next_at() == 10
    assert stage.at(15).take() == []
    assert stage.next_at() is None
    assert hold_of(stage) is WaitReason.ORDERS_UNKNOWN
    assert stage.order(NOTHING) == []
    assert stage.next_at() == 15
    assert stage.play(20) == [(15, "a")]


def test_after_a_pause_of_everything_the_limits_apply() -> None:
    """No pod is evicted during the pause; pods that became due are evicted after it, as fast as the limits allow."""
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
def test_a_node_or_a_namespace_may_be_paused(control_state: ControlState, hold: WaitReason) -> None:
    """Pods elsewhere are evicted, and the paused ones once their node or namespace is resumed."""
    stage = Stage(control_state=control_state)
    stage.sees(node(taint()), node(taint(), name="n2"), pod())
    stage.sees(pod(name="other", uid="other", on="n2", namespace="bank"))
    assert uids(stage.take()) == ["other"]
    assert hold_of(stage) is hold
    assert stage.next_at() is None
    stage.at(50).order(NOTHING)
    assert uids(stage.take()) == ["a"]


def test_a_pause_by_a_selector_follows_the_labels_of_nodes() -> None:
    """A node that gets the label is paused from then on; one that loses it is not, nor one recreated without it."""
    gpu, web = (replace(node(taint()), labels={"pool": pool}) for pool in ("gpu", "web"))
    stage = Stage(control_state=ControlState(selectors={"pool=gpu": Pause()}))
    stage.sees(web, pod(tolerates(10)))
    stage.at(5).sees(gpu)
    assert stage.at(20).take() == []
    assert hold_of(stage) is WaitReason.SELECTOR_PAUSED
    assert stage.next_at() is None
    stage.at(30).sees(web)
    [work] = stage.take()
    stage.sees(gpu)
    assert stage.brain.attempts.recheck(work, moment(stage.now)) == Suspended()
    assert stage.finish(work, Suspended()) == []
    assert stage.take() == []
    stage.at(40).sees(replace(node(taint(), uid="another"), labels={}))
    assert uids(stage.at(50).take()) == ["a"]


def test_a_rule_may_pause_the_pods_that_it_governs() -> None:
    """The pause ends when the rule of another policy no longer pauses."""
    rule = PolicyRule("keep", namespaces=("shop",), pause=True)
    stage = Stage(eviction=EvictionPolicy(rules=(PolicyRule("none", namespaces=("x",)), rule)))
    stage.sees(node(taint()), pod(), pod(name="other", uid="other", namespace="bank"))
    assert uids(stage.take()) == ["other"]
    assert hold_of(stage) is WaitReason.RULE_PAUSED
    stage.change_policy(EvictionPolicy(rules=(PolicyRule("keep", namespaces=("shop",)),)))
    assert uids(stage.take()) == ["a"]


def test_a_pause_holds_evictions_in_flight_too() -> None:
    """An eviction that has begun is suspended just before its call, and begins anew after the pause."""
    stage = limited(EvictionPolicy(), 1)
    [work] = stage.take()
    for control_state in (PAUSED, ControlState(nodes={"n1": Pause()}), ControlState(namespaces={"shop": Pause()})):
        stage.order(control_state)
        assert stage.brain.attempts.recheck(work, moment(stage.now)) == Suspended()
        stage.order(NOTHING)
        assert stage.decide_again(work)
    stage.order(PAUSED)
    assert stage.finish(work, Suspended()) == []
    assert stage.take() == []
    stage.at(9).order(NOTHING)
    assert stage.play(20) == [(9, "p0")]


def test_to_release_a_pause_lets_no_pod_go_that_the_breaker_or_a_rule_holds() -> None:
    """Asked before people do so: of pods that are due and blocked, whether they would leave."""
    rule = PolicyRule("not yet", namespaces=("bank",), pause=True)
    stage = limited(EvictionPolicy(rules=(rule,)), 1)
    stage.sees(pod(name="b", uid="b", namespace="bank"), pod(tolerates(50), name="later", uid="later"))

    def released() -> list[bool | None]:
        asked, status = moment(stage.now), stage.brain.status
        guards = status.supposing(Release(frozenset([EVERYTHING])))
        return [status.is_released(each, guards, asked) for each in status.pending(asked)]

    stage.order(ControlState(Pause(), latch=Latch(epoch(0), "many")))
    assert released() == [False, False, None]
    stage.at(2).order(ControlState(Pause(), reset_epoch=epoch(1)))
    assert released() == [True, False, None]


def test_a_pause_does_not_hold_a_take_back() -> None:
    """Taking back a DisruptionTarget condition ends no pod."""
    stage = Stage()
    stage.sees(node(taint()), pod())
    work = stage.take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.order(PAUSED)
    stage.sees(node())
    stage.finish(work, CalledOff())
    assert stage.decide_again(stage.take_take_back())


def test_a_node_may_be_paused_while_its_pods_wait_for_a_limit() -> None:
    """Pods of other nodes use the tokens meanwhile; after the pause, the paused node's pod is evicted in its turn."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 0)
    crowd(stage, 2, "n1", "a")
    crowd(stage, 2, "n2", "b")
    assert stage.play(0) == [(0, "a0")]
    stage.order(ControlState(nodes={"n1": Pause()}))
    assert stage.play(2.5) == [(1, "b0"), (2, "b1")]
    assert stage.next_at() is None
    stage.order(NOTHING)
    assert stage.play(9) == [(3, "a1")]


def test_an_unchanged_control_state_changes_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control state is read every two seconds; while it stays the same, the waiting flows are left as they are."""
    stage = limited(EvictionPolicy(total=Limit(1.0, 1)), 3)
    stage.order(ControlState(nodes={"n9": Pause()}))
    stage.play(0)
    asked: list[FairQueue] = []
    with monkeypatch.context() as patch:
        patch.setattr(FairQueue, "reconsider", asked.append)
        stage.order(ControlState(nodes={"n9": Pause()}))
    assert asked == []
    assert stage.play(5) == [(1, "p1"), (2, "p2")]


# Circuit breaker

QUARTER = BreakerPolicy(enabled=True, settle_seconds=2.0)
CAUSE = "4 of 12 nodes newly tainted within 300 s, more than 25 %"


def guarded(policy: BreakerPolicy = QUARTER, control_state: ControlState | None = NOTHING, nodes: int = 12) -> Stage:
    """A stage with a circuit breaker and ``nodes`` clean nodes."""
    stage = Stage(breaker=policy, control_state=control_state)
    for number in range(nodes):
        stage.sees(node(name=f"n{number}"))
    return stage


def taint_nodes(stage: Stage, *numbers: int, which: Taint | None = None, pods: int = 1, lists: bool = True) -> None:
    """Taint nodes, each with pods that are due at once, and list these unless ``lists`` is False."""
    for number in numbers:
        stage.sees(node(which or taint(), name=f"n{number}"))
        for one in range(pods):
            stage.sees(pod(name=f"p{number}-{one}", uid=f"p{number}-{one}", on=f"n{number}"))
        if lists:
            stage.lists(f"n{number}")


def turn(stage: Stage) -> list[str]:
    """Evaluate and take work, as the runtime does, and evict what is taken; return the UIDs of these pods."""
    stage.evaluate()
    gone = stage.take()
    for work in gone:
        assert stage.decide_again(work)
        stage.send(work)
        stage.finish(work, Done())
        stage.observe(PodGone(work.ref))
    return uids(gone)


def test_without_the_breaker_nothing_waits() -> None:
    """The breaker is off by default: due pods are evicted, however many nodes are tainted."""
    stage = guarded(BreakerPolicy())
    taint_nodes(stage, *range(12))
    assert len(turn(stage)) == 12


def test_the_breaker_opens_before_the_first_pods_of_a_surge_are_evicted() -> None:
    """Four nodes are tainted one after the other within two seconds; the breaker opens with the fourth."""
    stage = guarded()
    gone = []
    for number in range(4):
        stage.at(number * 0.5)
        taint_nodes(stage, number)
        gone += turn(stage)
    assert gone == []
    assert stage.brain.breaker.latch == own_latch(epoch(1.5), CAUSE)
    assert stage.at(100).take() == []
    assert hold_of(stage, "p0-0") is WaitReason.BREAKER_OPEN
    assert stage.next_at() is None


def test_opening_is_reported_once() -> None:
    """The evaluation that opens the breaker returns the effect, and the next evaluation returns nothing."""
    stage = guarded()
    taint_nodes(stage, 0, 1, 2, 3)
    assert stage.evaluate() == [BreakerOpened(own_latch(epoch(0), CAUSE))]
    assert stage.evaluate() == []


def test_without_a_surge_pods_are_evicted_after_settling() -> None:
    """Three of twelve nodes are no surge: each pod settles for two seconds after its deadline, and is evicted."""
    stage = guarded()
    taint_nodes(stage, 0, 1, 2)
    assert stage.next_at() == 0
    assert turn(stage) == []
    assert hold_of(stage, "p0-0") is WaitReason.SETTLING
    assert stage.next_at() == 2
    assert turn(stage.at(1.999)) == []
    assert turn(stage.at(2)) == ["p0-0", "p1-0", "p2-0"]


def unlisted_since(stage: Stage) -> float:
    """Return since when a newly tainted node has not been listed."""
    return stage.brain.breaker.unlisted_since(stage.brain.nodes.known, moment(stage.now))


def test_due_pods_wait_for_the_lists_of_newly_tainted_nodes() -> None:
    """After settling, the pod waits for lists, until 10 at most; the end of the last list ends the wait."""
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


def test_a_surge_is_judged_before_any_pod_is_evicted_however_late_its_lists_come() -> None:
    """Four of twelve nodes are tainted at once; the breaker opens with the pods of the fourth."""
    stage = guarded()
    taint_nodes(stage, 0, 1, 2, 3, pods=0, lists=False)
    for number in range(4):
        assert turn(stage.at(2.0 * number + 1)) == []
        taint_nodes(stage, number, lists=False)
        stage.lists(f"n{number}")
    stage.evaluate()
    assert stage.brain.breaker.latch == own_latch(epoch(7), CAUSE)


def test_no_pod_is_evicted_between_the_end_of_its_wait_and_the_next_evaluation() -> None:
    """When the wait for lists ends in vain, the breaker must evaluate first, and here it opens."""
    stage = guarded()
    taint_nodes(stage, 0)
    taint_nodes(stage, 1, 2, 3, pods=0, lists=False)
    assert turn(stage.at(9.999)) == []
    assert stage.at(10).take() == []
    assert stage.evaluate() == [BreakerOpened(own_latch(epoch(10), CAUSE))]
    assert stage.take() == []


def test_a_node_that_is_never_listed_delays_no_eviction_for_long() -> None:
    """Each eviction waits for the list ten seconds, or until the node no longer counts as newly tainted."""
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
    """The list counts for each node that was already tainted when the list was requested."""
    stage = guarded()
    taint_nodes(stage.at(1), 0, lists=False)
    taint_nodes(stage.at(3), 1, lists=False)
    stage.at(5).observe(PodsSwept(None, frozenset({"p0-0", "p1-0"}), 2, None))
    assert unlisted_since(stage) == 3
    stage.observe(PodsSwept(None, frozenset({"p0-0", "p1-0"}), 3, None))
    assert unlisted_since(stage) == math.inf


def test_the_wait_for_a_flapping_node_counts_from_its_first_taint() -> None:
    """While the node is clean, nothing waits for its list; once listed, nothing does while its pods are watched."""
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


def test_a_taint_found_at_start_is_new_only_if_an_old_one_would_have_evicted_a_pod() -> None:
    """The taints' manager wrote 61 s ago; only p3 was on its node before that and does not tolerate its taint."""
    stage = Stage(breaker=BreakerPolicy(enabled=True, nodes=NodeThreshold(0)))
    for number in range(4):
        stage.sees(node(taint(), name=f"n{number}", written_at=-61))
        patience = [tolerates(50_000)] if number < 2 else []
        stage.sees(
            pod(*patience, name=f"p{number}", uid=f"p{number}", on=f"n{number}", bound_at=-1000 if number != 2 else -30)
        )
        stage.lists(f"n{number}")
    assert stage.brain.status.surge(moment(0)).nodes == 1


def test_a_pod_that_its_owner_holds_does_not_prove_a_taint_new() -> None:
    """The pod is still on the node because of the hold, not because the taint is new."""
    stage = Stage(DecisionPolicy(max_hold_seconds=9000), breaker=BreakerPolicy(enabled=True))
    stage.sees(node(taint(), written_at=-61), pod(bound_at=-1000, hold_seconds=5000))
    assert stage.brain.status.surge(moment(0)).nodes == 0


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_taint_that_is_seen_to_appear_is_new(is_listed: bool) -> None:
    """This applies to a known node that was clean, and, once all nodes have been listed, to a node that was unknown."""
    stage = guarded(BreakerPolicy(enabled=True, nodes=NodeThreshold(1)))
    if is_listed:
        present = frozenset(known.node.uid for known in stage.brain.nodes.known.values())
        stage.observe(NodesSwept(present, 0, None))
    stage.at(1).sees(node(taint(), name="n0", written_at=0), node(taint(), name="new", written_at=0))
    for name in ("n0", "new"):
        stage.sees(pod(tolerates(5000), name=name, uid=name, on=name))
    assert stage.brain.status.surge(moment(1)).nodes == (2 if is_listed else 1)


def test_the_breaker_holds_evictions_in_flight() -> None:
    """The eviction began before the surge was seen, and has not been sent yet."""
    stage = guarded()
    taint_nodes(stage, 0)
    stage.at(2).evaluate()
    [work] = stage.take()
    taint_nodes(stage, 1, 2, 3)
    stage.evaluate()
    assert stage.brain.attempts.recheck(work, moment(2)) == Suspended()
    stage.finish(work, Suspended())
    assert turn(stage.at(50)) == []


def test_after_a_reset_everything_is_evicted() -> None:
    """The person who resets the breaker knows of the tainted nodes; the next node alone is no surge."""
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
    """The pause ends with the loss of the ConfigMap, but the breaker stays open."""
    stage = guarded()
    taint_nodes(stage, 0)
    stage.order(ControlState(cluster=Pause(), latch=Latch(epoch(0), "elsewhere")))
    assert stage.at(5).order(NOTHING) == [Resumed(EVERYTHING)]
    assert turn(stage.at(100)) == []


def test_a_restart_within_the_window_sees_the_surge_by_the_taints_own_time() -> None:
    """Taints that are older than the window do not open the breaker, although this process sees them only now."""
    for added_at, opened in ((-299.0, True), (-302.0, False)):
        stage = guarded()
        taint_nodes(stage, 0, 1, 2, 3, which=taint(added_at=added_at))
        stage.evaluate()
        assert (stage.brain.breaker.latch is not None) is opened


def test_after_a_restart_overdue_pods_settle_first() -> None:
    """The pod has been due for a minute; the next seconds show that pods of three other nodes are due as well."""
    stage = guarded()
    taint_nodes(stage, 0, which=taint(added_at=-60))
    assert turn(stage) == []
    taint_nodes(stage.at(1), 1, 2, 3, which=taint(added_at=-60))
    assert turn(stage.at(1.5)) == []
    assert hold_of(stage, "p0-0") is WaitReason.BREAKER_OPEN


def test_a_restart_does_not_open_the_breaker_again_after_a_reset() -> None:
    """The breaker does not evaluate before the control state is known, which says when the reset was."""
    stage = guarded(control_state=None)
    taint_nodes(stage, 0, 1, 2, 3, which=taint(added_at=-60))
    assert stage.evaluate() == []
    stage.at(1).order(ControlState(reset_epoch=epoch(-30)))
    assert stage.evaluate() == []
    assert len(turn(stage.at(3))) == 4


def test_a_taint_set_anew_in_a_gap_of_the_watch_is_new() -> None:
    """The watch missed the taint's removal; the list after the gap shows a later write of the taints."""
    stage = guarded(nodes=12)
    for number in range(4):
        stage.sees(node(taint(), name=f"n{number}", written_at=-1000, version=1))
        stage.sees(pod(tolerates(100_000), name=f"p{number}", uid=f"p{number}", on=f"n{number}"))
    assert stage.evaluate() == []
    stage.at(100)
    for number in range(4):
        stage.observe(NodeSeen(node(taint(), name=f"n{number}", written_at=90, version=2), True, 99))
    assert stage.evaluate() == [BreakerOpened(own_latch(epoch(100), CAUSE))]


def test_nodes_without_a_pod_to_evict_do_not_count() -> None:
    """All twelve nodes are tainted, but only three have a pod that does not tolerate the taint."""
    stage = guarded()
    taint_nodes(stage, *range(9), pods=0)
    stage.sees(pod(tolerates(), name="stays", uid="stays", on="n8"))
    taint_nodes(stage, 9, 10, 11)
    assert stage.evaluate() == []
    assert stage.brain.status.surge(moment(0)) == TaintSurge(3, 0, 12, 3)


def test_a_node_whose_pods_are_gone_still_counts() -> None:
    """Otherwise a slow surge would never open the breaker; a node that is clean again, or deleted, does not count."""
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


def test_a_new_process_knows_that_a_person_knows_what_was_due_at_the_last_reset() -> None:
    """Five pods were due before it, and do not count; the third that is due later opens the breaker."""
    stage = Stage(breaker=BreakerPolicy(enabled=True, nodes=NodeThreshold(), max_due=2), control_state=None)
    stage.at(60).order(ControlState(reset_epoch=epoch(20)))
    old = taint(added_at=10)
    stage.sees(node(old), *(pod(name=f"p{each}", uid=f"p{each}", bound_at=0) for each in range(5)))
    stage.sees(*(pod(tolerates(15), name=f"later-{each}", uid=f"later-{each}", bound_at=0) for each in range(2)))
    assert stage.evaluate() == []
    stage.sees(pod(tolerates(15), name="later-2", uid="later-2", bound_at=0))
    [opened] = stage.evaluate()
    assert isinstance(opened, BreakerOpened)
    assert opened.latch.cause == "8 pods due at once, more than 2"


def test_what_a_former_leader_has_tried_in_vain_is_known_once() -> None:
    """Eight pods, however often the breaker evaluates; the sixth that is due beside them opens it."""
    stage, tried = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2)), TriedBefore(8, epoch(0))
    taint_nodes(stage, 0, pods=8)
    assert [stage.brain.evaluate(moment(at), tried_before=tried) for at in (0, 1, 2)] == [[], [], []]
    taint_nodes(stage.at(3), 1, pods=6)
    cause = "14 pods due at once, more than 5"
    assert stage.brain.evaluate(moment(3), tried_before=tried) == [BreakerOpened(own_latch(epoch(3), cause))]


def test_pods_tried_in_vain_count_unless_they_are_blocked() -> None:
    """The next leader counts no blocked pod as due; while the breaker is open, the former one has let none through."""
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2))
    taint_nodes(stage, 0, pods=3)
    stage.lists("n0")
    stage.at(2).evaluate()
    for work in stage.take():
        stage.finish(work, blocked(60))
    assert stage.brain.tried_in_vain() == 3
    for control_state in (ControlState(nodes={"n0": Pause()}), ControlState(latch=Latch(epoch(2), "by hand"))):
        stage.order(control_state)
        assert stage.brain.tried_in_vain() == 0


def test_due_pods_of_which_people_know_count_once_for_the_next_leader() -> None:
    """Those that became due in a pause that has ended; others that are due wait for its own judgement."""
    policy = BreakerPolicy(enabled=True, max_due=5, settle_seconds=2)
    for control_state, known in ((PAUSED, 20), (NOTHING, 0)):
        stage = guarded(policy, control_state)
        taint_nodes(stage, 0, pods=known or 3)
        stage.at(1).evaluate()
        stage.order(NOTHING)
        stage.evaluate()
        assert stage.brain.tried_in_vain() == known


def test_too_many_due_pods_open_the_breaker() -> None:
    """Six pods are due on two of twelve nodes; a pod whose deadline has not come does not count."""
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2))
    taint_nodes(stage, 0, pods=5)
    stage.sees(pod(tolerates(50), name="later", uid="later", on="n0"))
    assert stage.evaluate() == []
    taint_nodes(stage.at(1), 1)
    assert stage.evaluate() == [BreakerOpened(own_latch(epoch(1), "6 pods due at once, more than 5"))]
    assert stage.brain.status.due_count() == 6


def test_paused_pods_do_not_count_as_due() -> None:
    """A node that is paused and then tainted does not stop the evictions of all other nodes."""
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2), ControlState(nodes={"n0": Pause()}))
    taint_nodes(stage, 0, pods=20)
    taint_nodes(stage, 1, pods=1)
    assert stage.evaluate() == []
    assert stage.brain.status.due_count() == 1
    assert turn(stage.at(2)) == ["p1-0"]


def test_a_backlog_from_a_pause_may_be_worked_off() -> None:
    """The person who ends the pause knows of the backlog; more than five due pods on top of it open the breaker."""
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2), PAUSED)
    taint_nodes(stage, 0, pods=20)
    assert stage.at(10).evaluate() == []
    stage.order(NOTHING)
    assert stage.evaluate() == []
    taint_nodes(stage.at(11), 1, pods=6)
    assert stage.evaluate() == [BreakerOpened(own_latch(epoch(11), "26 pods due at once, more than 5"))]


def test_the_backlog_of_a_pool_contains_what_became_due_in_the_last_moment_before_a_node_leaves_it() -> None:
    """The label itself ends the pause of the node, and whoever removes it knows what is due."""
    policy = BreakerPolicy(enabled=True, max_due=5, settle_seconds=2)
    stage = guarded(policy, ControlState(selectors={"pool": Pause()}))
    stage.sees(replace(node(taint(), name="n0"), labels={"pool": "gpu"}))
    stage.sees(*(pod(tolerates(50), name=f"p{number}", uid=f"p{number}", on="n0") for number in range(20)))
    stage.at(49).evaluate()
    stage.at(51).sees(node(taint(), name="n0"))
    assert stage.evaluate() == []
    assert len(stage.take()) == 20


def test_the_backlog_of_a_node_contains_what_became_due_in_the_last_moment_of_its_pause() -> None:
    """A standby does not evaluate, and a leader does so twice a second: what is due is known at the resume itself."""
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2), ControlState(nodes={"n0": Pause()}))
    taint_nodes(stage, 0, pods=0)
    stage.sees(*(pod(tolerates(50), name=f"p{number}", uid=f"p{number}", on="n0") for number in range(20)))
    stage.at(49).evaluate()
    stage.at(51).order(NOTHING)
    assert stage.evaluate() == []
    assert len(stage.take()) == 20


@pytest.mark.parametrize(("left", "more", "opened"), [(8, 5, False), (8, 6, True), (0, 5, False), (0, 6, True)])
def test_a_standby_knows_what_is_left_of_a_backlog_when_it_leads(left: int, more: int, opened: bool) -> None:
    """A standby reads latch and reset like the leader, counts due pods at each reading, and evaluates once it leads."""
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


@pytest.mark.parametrize(("in_force", "opened"), [(False, True), (True, False)])
def test_labels_that_another_policy_makes_readable_are_no_change_by_an_owner(in_force: bool, opened: bool) -> None:
    """Rules by labels come and go while countdowns run, and all pods are due then. A label by which a rule in force
    selects is put on pods by their owner.
    """
    stage = guarded(BreakerPolicy(enabled=True, max_due=5, settle_seconds=2))
    unlabelled = [pod(tolerates(30), name=f"p{one}", uid=f"p{one}", on="n0") for one in range(6)]
    by_label = EvictionPolicy(rules=(PolicyRule("web", pod_selector=parse_selector("app=web")),))
    stage.sees(node(taint(), name="n0"), *unlabelled)
    if in_force:
        stage.change_policy(by_label)
    stage.at(10).sees(*(replace(each, labels={"app": "web"}) for each in unlabelled))
    if not in_force:
        stage.change_policy(by_label)
        stage.change_policy(EvictionPolicy())
        stage.at(20).sees(*unlabelled)
    stage.at(32).lists("n0")
    assert (stage.evaluate() != []) is opened


def test_the_breaker_closes_by_itself_where_the_policy_allows() -> None:
    """One of the four nodes becomes clean: the breaker closes, and the pods of the other three are evicted."""
    stage = guarded(BreakerPolicy(enabled=True, settle_seconds=2, closes_by_itself=True))
    taint_nodes(stage, 0, 1, 2, 3)
    stage.evaluate()
    assert stage.at(1000).evaluate() == []
    stage.sees(node(name="n0"))
    assert stage.evaluate() == [BreakerClosed()]
    assert turn(stage) == ["p1-0", "p2-0", "p3-0"]


@pytest.mark.parametrize(
    ("untainted", "stored", "open_then"), [(False, None, True), (True, None, False), (True, True, True)]
)
def test_a_latch_that_was_not_written_outlives_another_leadership_with_its_cause_alone(
    untainted: bool, stored: bool | None, open_then: bool
) -> None:
    """Others have led since, and judged by themselves; what the cluster has counts as it is."""
    stage = guarded(BreakerPolicy(enabled=True, settle_seconds=2))
    taint_nodes(stage, 0, 1, 2, 3)
    stage.evaluate(term=1)
    latch = stage.brain.breaker.latch
    assert latch is not None
    if untainted:
        stage.at(5).sees(*(node(name=f"n{number}") for number in range(4)))
    assert stage.at(1000).evaluate(term=1) == []
    stage.order(ControlState(latch=latch if stored else None))
    stage.evaluate(term=2)
    assert (stage.brain.breaker.latch is not None) is open_then


def test_a_closing_that_was_not_written_ends_with_the_leadership() -> None:
    """Others have led since, and the breaker that the cluster has was open for them."""
    stage = guarded(BreakerPolicy(enabled=True, settle_seconds=2, closes_by_itself=True))
    taint_nodes(stage, 0, 1, 2, 3)
    stage.evaluate(term=1)
    latch = stage.brain.breaker.latch
    stage.at(10).sees(*(node(name=f"n{number}") for number in range(4)))
    assert stage.evaluate(term=1) == [BreakerClosed()]
    assert stage.order(ControlState(latch=latch)) == []
    assert latch is not None
    assert stage.at(1000).evaluate(term=2) == [BreakerOpened(latch)]


def test_not_ready_nodes_have_their_own_threshold_or_none() -> None:
    """Six of twelve nodes are not ready: fewer than 55 %, more than 40 %, and never too many without a threshold."""
    for threshold, opened in ((NodeThreshold(percent=55.0), False), (NodeThreshold(percent=40.0), True), (None, False)):
        stage = guarded(BreakerPolicy(enabled=True, lifecycle_nodes=threshold))
        taint_nodes(stage, *range(6), which=taint(NOT_READY))
        stage.evaluate()
        assert (stage.brain.breaker.latch is not None) is opened
        assert stage.brain.status.surge(moment(0)) == TaintSurge(0, 6, 12, 6)


def test_nothing_is_remembered_of_nodes_that_are_clean_or_gone() -> None:
    """The breaker forgets them although it never evaluates, and whether it is on or off."""
    for policy in (QUARTER, BreakerPolicy()):
        stage = guarded(policy)
        for lap in range(50):
            taint_nodes(stage.at(lap), lap % 12, which=taint(added_at=lap))
            stage.sees(node(name=f"n{lap % 12}"))
        taint_nodes(stage, 0, 1)
        assert kept(stage.brain.breaker, Taint) != []
        stage.sees(node(name="n0"))
        stage.observe(NodeGone("n1"))
        assert kept(stage.brain.breaker, Taint) == []
        for number in range(12):
            stage.observe(PodsReleased(f"n{number}"))
        assert stage.brain.breaker.unlisted == {}


# Modes


def by_mode(mode: EvictionMode, timeout: float = 300.0, seconds: int = 10) -> Stage:
    """A stage at 10 with a pod that is due then."""
    stage = Stage(eviction=EvictionPolicy(mode, timeout))
    stage.sees(node(taint()), pod(tolerates(seconds)))
    return stage.at(10)


def attempt(stage: Stage, outcome: WorkOutcome, sent: bool = True) -> bool:
    """Carry out the one eviction that is due; return whether it uses the eviction API."""
    work = stage.take_eviction()
    if sent:
        stage.send(work)
    stage.finish(work, outcome)
    return work.by_eviction_api


@pytest.mark.parametrize(
    ("mode", "asks"),
    [(EvictionMode.DELETE, False), (EvictionMode.EVICT, True), (EvictionMode.EVICT_THEN_DELETE, True)],
)
def test_each_mode_begins_with_its_call(mode: EvictionMode, asks: bool) -> None:
    """Mode delete begins with a deletion, the other modes with the eviction API, which respects budgets."""
    assert attempt(by_mode(mode), Done()) is asks


def test_mode_evict_respects_budgets_indefinitely() -> None:
    """After a day of refusals the controller still asks the eviction API, each time when it may ask again."""
    stage = by_mode(EvictionMode.EVICT)
    for _ in range(20):
        assert attempt(stage, blocked(stage.now + 5000)) is True
        failures = stage.explain().pending
        assert failures is not None
        assert failures.failures is not None
        assert (failures.failures.block, failures.failures.retry_at) == (BLOCK, stage.now + 5000)
        stage.at(stage.now + 5000)


def test_a_budgets_refusal_is_reported_with_the_budget() -> None:
    """The effect carries the block, so that nobody takes the refusal for an error."""
    stage = by_mode(EvictionMode.EVICT)
    work = stage.take_eviction()
    stage.send(work)
    assert stage.finish(work, blocked(20)) == [Refused(ref(), "n1", "no disruption allowed", 1, 10, 20, BLOCK)]


def test_a_blocked_pod_that_somebody_else_deletes_is_not_reported_as_evicted() -> None:
    """A budget's refusal is certain; after an attempt without an answer, the deletion may be the controller's own."""
    stage = by_mode(EvictionMode.EVICT)
    attempt(stage, blocked(20))
    assert stage.sees(pod(terminating=True)) == [Cancelled(ref(), "n1", StayReason.TERMINATING)]
    other = by_mode(EvictionMode.EVICT)
    attempt(other, Failed("no answer", 20))
    [evicted] = other.sees(pod(terminating=True))
    assert isinstance(evicted, Evicted)


def test_a_pod_is_deleted_once_budgets_have_refused_it_for_the_timeout() -> None:
    """The last wait ends at exactly the end of the timeout, although the budget may be asked again only later."""
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


def test_budgets_have_the_whole_timeout_however_overdue_the_pod_is() -> None:
    """The pod is paused until long after its deadline; it is deleted a minute after the first refusal."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    stage.order(PAUSED)
    stage.at(5000).order(NOTHING)
    assert attempt(stage, blocked(5600)) is True
    assert stage.next_at() == 5060
    assert attempt(stage.at(5060), Done()) is False


def test_failures_before_the_eviction_api_is_asked_do_not_count() -> None:
    """The node cannot be read for ten minutes; then the eviction API is asked before the pod is deleted."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    for at in (10, 100, 600):
        assert attempt(stage.at(at), Failed("the node cannot be read", at + 7), sent=False) is True
        assert stage.next_at() == at + 7
    assert attempt(stage.at(700), blocked(900)) is True
    assert stage.next_at() == 760
    assert attempt(stage.at(760), Failed("the node cannot be read", 780), sent=False) is False
    assert attempt(stage.at(780), Done()) is False


def test_a_failed_deletion_does_not_count_as_a_refusal() -> None:
    """A deletion fails under one policy; the next policy still asks the eviction API first."""
    stage = by_mode(EvictionMode.DELETE)
    assert attempt(stage, Failed("denied", 11)) is False
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 0.0))
    assert attempt(stage.at(11), blocked(99)) is True
    assert stage.next_at() == 11
    assert attempt(stage, Done()) is False


def test_an_earlier_retry_is_not_put_off_to_the_timeout() -> None:
    """The retry is due before the timeout ends, so it does not wait for that end."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    attempt(stage, Failed("busy", 12))
    assert stage.next_at() == 12


def test_a_later_deadline_moves_the_timeout() -> None:
    """The timeout counts from the first refusal after the new deadline."""
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
    """The first rule that matches the pod and the deciding taint applies, otherwise the policy's own values."""
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
        stage.finish(work, blocked(1000))
    assert stage.next_at() == 7
    assert uids(stage.at(7).take()) == ["db"]


def test_a_rule_shortens_tolerations_on_the_nodes_that_it_selects_alone() -> None:
    """A pod of another pool keeps its own seconds."""
    gpu = PolicyRule("gpu", node_selector=parse_selector("pool=gpu"), max_toleration_seconds=5)
    stage = Stage(eviction=EvictionPolicy(rules=(gpu,)))
    stage.sees(replace(node(taint()), labels={"pool": "gpu"}), node(taint(), name="n2"))
    stage.sees(pod(tolerates(30)), pod(tolerates(30), name="other", uid="other", on="n2"))
    assert stage.deadlines() == {"a": 5, "other": 30}


# Several taints that are due

NOT_YET = PolicyRule("not yet", taint_keys=("k1",), pause=True)
GENTLY = PolicyRule("gently", taint_keys=("k1",), mode=EvictionMode.EVICT)


def two_taints(*rules: PolicyRule, seconds: int = 20, breaker: BreakerPolicy | None = None) -> Stage:
    """A stage with a pod that is due at 10 because of one taint, and later because of another."""
    stage = Stage(eviction=EvictionPolicy(rules=rules), breaker=breaker)
    stage.sees(node(taint(), taint("k2")), pod(tolerates(10), tolerates(seconds, "k2")))
    return stage


def deciding(stage: Stage) -> str:
    """Name the taint that decides on the pod now; status and explanation must agree."""
    explained = stage.explain()
    assert explained.pending is not None
    assert isinstance(explained.decision, Evict)
    assert explained.pending.decision == explained.decision
    assert explained.decision.fire_at == 10
    return explained.decision.deciding.taint.key


def test_a_pod_under_a_paused_rule_is_evicted_when_another_taint_is_due() -> None:
    """The pause holds the pod until exactly that instant.

    The lateness counts from then, and no new deadline is reported.
    """
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
    [told] = stage.at(22).finish(work, Done())
    assert isinstance(told, Evicted)
    assert (told.decision.deciding.taint.key, told.late_seconds, told.decision.fire_at) == ("k2", 2, 10)


def test_another_due_taint_is_found_by_whichever_call_comes_first() -> None:
    """An evaluation, a reading of the control state, and taking work each find that the second taint is due."""
    for ask in (Stage.evaluate, lambda stage: stage.order(NOTHING), lambda stage: stage.take(0)):
        stage = two_taints(NOT_YET)
        ask(stage.at(20))
        assert stage.brain.status.due_count() == 1
        assert uids(stage.take()) == ["a"]


def test_another_due_taint_has_its_own_settling_time() -> None:
    """The pod waits two seconds after the second taint is due, however long it has been held because of the first."""
    stage = two_taints(NOT_YET, breaker=BreakerPolicy(enabled=True, settle_seconds=2.0))
    stage.lists("n1")
    assert turn(stage.at(10)) == []
    assert turn(stage.at(20)) == []
    assert hold_of(stage) is WaitReason.SETTLING
    assert turn(stage.at(21.999)) == []
    assert turn(stage.at(22)) == ["a"]


def test_a_pause_holds_again_once_the_other_taint_is_gone() -> None:
    """An eviction in flight is suspended as well, and the other taint's deadline no longer wakes the controller."""
    for at in (15.0, 25.0):
        stage = two_taints(NOT_YET)
        stage.at(at).evaluate()
        begun = stage.take()
        stage.sees(node(taint()))
        for work in begun:
            assert stage.brain.attempts.recheck(work, moment(at)) == Suspended()
            stage.finish(work, Suspended())
        assert stage.take() == []
        assert (hold_of(stage), stage.next_at()) == (WaitReason.RULE_PAUSED, None)


def test_a_rule_that_deletes_does_not_wait_for_a_budget() -> None:
    """Under the first taint's rule the budget may be asked at 500; the pod is deleted once the second taint is due."""
    stage = two_taints(GENTLY)
    assert attempt(stage.at(10), blocked(500)) is True
    assert stage.next_at() == 20
    assert attempt(stage.at(20), Failed("denied", 33)) is False
    assert stage.next_at() == 33
    stage.sees(node(taint()))
    assert stage.next_at() == 500
    assert attempt(stage.at(500), Done()) is True


def test_an_eviction_begun_under_one_rule_is_not_sent_under_another() -> None:
    """The second taint becomes due before the call, so the eviction begins anew with the call of the other rule."""
    stage = two_taints(GENTLY)
    work = stage.at(19).take_eviction()
    assert work.by_eviction_api
    assert stage.decide_again(work)
    assert stage.brain.attempts.recheck(work, moment(20)) == Suspended()
    stage.at(20).finish(work, Suspended())
    again = stage.take_eviction()
    assert not again.by_eviction_api
    assert stage.decide_again(again)


def test_with_equal_rules_the_earliest_deadline_decides() -> None:
    """Nothing changes for the eviction in flight when the other taint becomes due."""
    rules = (PolicyRule("one", taint_keys=("k1",), limit=Limit(1.0)), PolicyRule("two", limit=Limit(1.0)))
    stage = two_taints(*rules)
    work = stage.at(19).take_eviction()
    stage.at(30)
    assert stage.decide_again(work)
    stage.finish(work, Suspended())
    assert deciding(stage) == "k1"


def test_a_new_policy_decides_anew_which_taint_decides() -> None:
    """The old policy pauses the pod for both taints, the new one only for the first: the second taint evicts it."""
    never = PolicyRule("never", taint_keys=("k2",), pause=True)
    stage = two_taints(NOT_YET, never)
    assert stage.at(30).take() == []
    stage.change_policy(EvictionPolicy(rules=(NOT_YET,)))
    assert deciding(stage) == "k2"
    assert uids(stage.take()) == ["a"]


# A budget's patience


def refused(at: float = 10.0) -> Stage:
    """A stage with a pod that a budget refuses since 10 and until 40, with a timeout of a minute."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    stage.evaluate()
    assert attempt(stage, blocked(40)) is True
    return stage.at(at)


def beats(stage: Stage, until: float) -> Stage:
    """Let time go by for a process that acts: it evaluates twice a second."""
    while stage.now < until:
        stage.at(min(until, stage.now + 0.5)).evaluate()
    return stage


def test_patience_ends_during_an_uninterrupted_series_of_refusals() -> None:
    """The controller evaluates twice a second, so it knows that nothing has interrupted the series."""
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
def test_patience_begins_anew_after_a_suspension(control_state: ControlState, at: float) -> None:
    """A short suspension is enough, even one after patience has ended; the budget is not asked before it may be."""
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
def test_suspensions_of_others_do_not_affect_patience(control_state: ControlState) -> None:
    """Neither the beginning nor the end of such a suspension moves the end of the pod's patience."""
    stage = refused(12)
    stage.order(control_state)
    stage.at(40).order(NOTHING)
    assert attempt(stage, blocked(999)) is True
    assert stage.next_at() == 70


def test_a_suspension_that_begins_and_ends_during_a_deletion_attempt_stops_it() -> None:
    """The deletion began because patience had ended; the suspension restarts patience, so the eviction API is asked."""
    stage = beats(refused(), 40)
    assert attempt(stage, blocked(70.5)) is True
    work = beats(stage, 70).take_eviction()
    assert not work.by_eviction_api
    stage.order(PAUSED)
    stage.at(71).order(NOTHING)
    assert stage.brain.attempts.recheck(work, moment(71)) == Suspended()
    stage.finish(work, Suspended())
    assert attempt(stage, blocked(999)) is True


def test_patience_begins_anew_after_a_rule_that_paused() -> None:
    """The rule is added and removed at the same instant."""
    stage = refused(12)
    paused = PolicyRule("not yet", pause=True)
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 60.0, rules=(paused,)))
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 60.0))
    assert attempt(stage.at(40), blocked(999)) is True
    assert stage.next_at() == 100


def test_patience_begins_anew_after_a_hold_of_its_owner() -> None:
    """The owner holds the pod from 15 to 20; the budget is not asked before it may be."""
    policy = EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 60.0)
    stage = Stage(DecisionPolicy(max_hold_seconds=600.0), eviction=policy)
    stage.sees(node(taint()), pod(tolerates(10)))
    assert attempt(stage.at(10), blocked(40)) is True
    stage.at(15).sees(pod(tolerates(10), hold_seconds=10.0))
    assert attempt(stage.at(40), blocked(999)) is True
    assert stage.next_at() == 100


def test_a_new_policy_that_holds_nothing_does_not_restart_patience() -> None:
    """The series of refusals continues, but with the timeout of the new policy."""
    stage = refused(12)
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 45.0))
    assert attempt(stage.at(40), blocked(999)) is True
    assert stage.next_at() == 55


@pytest.mark.parametrize(("term", "deletes_at"), [(0, 70), (1, 100)])
def test_patience_begins_anew_under_another_leadership(term: int, deletes_at: float) -> None:
    """A gap between evaluations alone is a stall: it adds nothing, and interrupts nothing."""
    stage = beats(refused(), 15)
    stage.at(35).evaluate(term)
    assert attempt(stage.at(40), blocked(999)) is True
    assert stage.next_at() == deletes_at


@pytest.mark.parametrize("sent", [False, True])
def test_patience_goes_on_after_an_attempt_in_which_nobody_refused(sent: bool) -> None:
    """Either the node cannot be read, or the eviction API does not answer: its next refusal closes the span."""
    stage = refused(40)
    assert attempt(stage, Failed("no answer", 41), sent=sent) is True
    assert stage.next_at() == 41
    assert attempt(stage.at(41), blocked(999)) is True
    assert stage.next_at() == 70


def test_no_pod_is_deleted_before_somebody_has_refused_it_again_after_another_answer() -> None:
    """The patience would be over at 70, but since 40 only a busy server has answered."""
    stage = refused(40)
    for at in (40, 60, 80):
        assert attempt(stage.at(at), Failed("busy", at + 20)) is True
        assert stage.next_at() == at + 20
    assert attempt(stage.at(100), blocked(999)) is True
    assert attempt(stage, Done()) is False


def test_what_admission_denies_counts_as_refused() -> None:
    """The pauses are those of any failure, and the patience is that with budgets."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    for at in (10, 30, 50):
        assert attempt(stage.at(at), Failed("denied", at + 20, denied=True)) is True
    assert stage.next_at() == 70
    assert attempt(stage.at(70), Done()) is False


def test_a_span_counts_at_most_its_pauses_and_ten_seconds() -> None:
    """A stall of 500 s lies between two refusals, of which thirty seconds were planned."""
    stage = refused(510)
    assert attempt(stage, blocked(999)) is True
    assert stage.next_at() == 530


def test_a_failed_deletion_does_not_restart_patience() -> None:
    """The deletion is tried again as a deletion, until something suspends the pod."""
    stage = refused(40)
    assert attempt(stage, blocked(99)) is True
    assert attempt(stage.at(70), Failed("denied", 75)) is False
    assert attempt(stage.at(75), Failed("denied", 85)) is False
    stage.order(PAUSED)
    stage.at(99).order(NOTHING)
    assert attempt(stage, Done()) is True


def test_a_wait_for_a_limit_does_not_use_up_patience() -> None:
    """The retry is due at 20 and begins at 60. Of these 50 s, ten were planned, and ten count for the calls."""
    stage = limited(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 30.0, total=Limit(0.1, 1)), 1)
    assert attempt(stage.at(10), blocked(20)) is True
    crowd(stage.at(15), 1, "n2", "other")
    assert stage.play(19) == [(15, "other0")]
    assert stage.at(20).take() == []
    assert attempt(stage.at(60), blocked(999)) is True
    assert stage.next_at() == 70
    assert attempt(stage.at(70), Done()) is False


def test_patience_that_ended_before_a_wait_for_a_limit_stays_ended() -> None:
    """The pod is deleted after the wait: the eviction API is not asked again."""
    stage = limited(EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 10.0, total=Limit(0.1, 1)), 1)
    assert attempt(stage.at(10), blocked(99)) is True
    crowd(stage.at(15), 1, "n2", "other")
    assert stage.play(19) == [(15, "other0")]
    assert stage.at(20).take() == []
    assert attempt(stage.at(25), Done()) is False


# Reload


def test_a_new_mode_applies_to_evictions_in_flight_too() -> None:
    """A deletion has begun when the policy changes to mode evict: it begins anew, and asks the eviction API."""
    stage = by_mode(EvictionMode.DELETE)
    work = stage.take_eviction()
    assert not work.by_eviction_api
    stage.change_policy(EvictionPolicy(EvictionMode.EVICT))
    assert stage.brain.attempts.recheck(work, moment(10)) == Suspended()
    assert stage.finish(work, Suspended()) == []
    again = stage.take_eviction()
    assert again.by_eviction_api
    assert stage.decide_again(again)


def test_a_new_limit_applies_to_evictions_in_flight_too() -> None:
    """Twenty evictions began without a limit; those that are not sent yet wait for the new limit."""
    stage = limited(EvictionPolicy(), 20)
    begun = stage.take()
    stage.send(begun[0])
    stage.change_policy(EvictionPolicy(total=Limit(1.0, 2)))
    assert [stage.decide_again(work) for work in begun[1:]] == [False] * 19
    for work in begun:
        stage.finish(work, Done() if work is begun[0] else Suspended())
    stage.observe(PodGone(begun[0].ref))
    assert [at for at, _ in stage.play(100)] == [0, 0, *range(1, 18)]


def test_a_new_policy_moves_waiting_pods_to_other_flows() -> None:
    """Pods that wait for a removed limit are evicted at once; a new limit applies to due pods; no deadline moves."""
    slow = PolicyRule("slow", limit=Limit(0.1, 1))
    stage = limited(EvictionPolicy(rules=(slow,)), 4)
    assert stage.play(0) == [(0, "p0")]
    assert stage.change_policy(EvictionPolicy()) == []
    assert stage.play(1) == [(0, "p1"), (0, "p2"), (0, "p3")]
    crowd(stage, 3, "n2", "b")
    assert stage.change_policy(EvictionPolicy(rules=(slow,))) == []
    assert stage.play(100) == [(1, "b0"), (11, "b1"), (21, "b2")]
    assert stage.brain.status.policy.rules == (slow,)


def test_a_new_rule_with_an_old_name_may_match_other_pods() -> None:
    """Two rules with the same name need not govern the same pods."""
    stage = Stage(eviction=EvictionPolicy(rules=(PolicyRule("r", namespaces=("shop",), pause=True),)))
    stage.sees(node(taint()), pod(), pod(name="b", uid="b", namespace="bank"))
    stage.change_policy(EvictionPolicy(rules=(PolicyRule("r", namespaces=("bank",), pause=True),)))
    assert uids(stage.take()) == ["a"]
    assert hold_of(stage, "b") is WaitReason.RULE_PAUSED


# Defaults and holds


def test_default_tolerances_apply_in_the_whole_controller() -> None:
    """The pod is treated as if the API server had given it the default toleration."""
    stage = Stage(DecisionPolicy(default_not_ready_seconds=30))
    stage.sees(node(taint(NOT_READY)), pod())
    assert stage.play(100) == [(30, "a")]


def test_an_owner_may_hold_and_release_a_pod_at_any_time() -> None:
    """The owner sets the annotation when the pod is due already, makes it longer than allowed, and removes it."""
    stage = Stage(DecisionPolicy(max_hold_seconds=100))
    stage.sees(node(taint()), pod(tolerates(10)))
    stage.at(12).sees(pod(tolerates(10), hold_seconds=20.0))
    assert stage.deadlines() == {"a": 30}
    stage.sees(pod(tolerates(10), hold_seconds=math.inf))
    assert stage.deadlines() == {"a": 110}
    assert stage.take() == []
    stage.at(20).sees(pod(tolerates(10)))
    assert stage.play(50) == [(20, "a")]


def test_an_eviction_that_is_held_indefinitely_is_cancelled() -> None:
    """Here operators set no maximum for holds; the effect names the hold as the reason."""
    stage = Stage(DecisionPolicy(max_hold_seconds=math.inf))
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.sees(pod(tolerates(10), hold_seconds=math.inf)) == [Cancelled(ref(), "n1", StayReason.HELD)]
    assert stage.next_at() is None


# By default


def test_a_controller_with_default_values_holds_nothing_back() -> None:
    """By default there is no limit, no pause, and no breaker."""
    brain = Controller()
    assert brain.guards.blocking_all(moment(0)) is None
    assert not brain.breaker.policy.enabled
    assert brain.status.policy == EvictionPolicy()


def test_a_swapped_taint_does_not_make_the_controller_ask_a_budget_sooner() -> None:
    """The budget's refusal outlasts the new deadline; a deadline after the refusal's end belongs to a new eviction."""
    stage = Stage(eviction=EvictionPolicy(EvictionMode.EVICT))
    stage.sees(node(taint()), pod(tolerates(10, key="k3")))
    assert attempt(stage.at(1), blocked(6)) is True
    stage.at(2).sees(node(taint("k2")))
    assert stage.take() == []
    assert stage.brain.attempts.next_at(moment(2)) == 6
    stage.sees(node(taint("k3")))
    assert stage.brain.attempts.next_at(moment(2)) == 12
    assert stage.at(12).take_eviction().tries == 0


@pytest.mark.parametrize(("later_mode", "next_at"), [(EvictionMode.EVICT, 8), (EvictionMode.DELETE, 3.5)])
def test_a_budgets_refusal_outlasts_a_failed_deletion(later_mode: EvictionMode, next_at: float) -> None:
    """If another taint decides and its rule asks the eviction API, the budget is not asked before its refusal ends."""
    rule = PolicyRule("later", taint_keys=("k2",), mode=later_mode)
    stage = Stage(eviction=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 3.0, rules=(rule,)))
    stage.sees(node(taint()), pod())
    attempt(stage.at(0), blocked(8))
    assert attempt(stage.at(3), Failed("HTTP 503", 3.5)) is False
    assert stage.next_at() == 3.5
    stage.at(3.2).sees(node(taint("k2")))
    assert stage.next_at() == next_at


def test_a_moved_deadline_keeps_the_first_refusal() -> None:
    """The timeout begins anew, and the budget is not asked before its first refusal ends."""
    stage = Stage(DecisionPolicy(max_hold_seconds=9.0), eviction=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 3.0))
    stage.sees(node(taint()), pod())
    assert attempt(stage.at(0), blocked(6)) is True
    assert stage.next_at() == 3
    stage.at(2).sees(pod(hold_seconds=4.0))
    assert stage.at(4).next_at() == 6
    assert attempt(stage.at(6), blocked(20)) is True
    assert stage.next_at() == 9


def test_a_swapped_taint_leaves_the_patience_with_a_budget_as_it_is() -> None:
    """The pod is due before and after the swap, and the budget refuses it all the time."""
    stage = Stage(eviction=EvictionPolicy(EvictionMode.EVICT_THEN_DELETE, 3.0))
    stage.sees(node(taint()), pod())
    assert attempt(stage.at(0), blocked(6)) is True
    assert stage.next_at() == 3
    stage.at(2).sees(node(taint("k2")))
    assert stage.next_at() == 3
    assert not stage.at(3).take_eviction().by_eviction_api


# Virtual machines that move away


def moving(retry_at: float) -> Failed:
    """The answer of KubeVirt's webhook."""
    return Failed("Eviction triggered evacuation", retry_at, denied=True, evacuates=True)


def test_refusals_of_a_pod_whose_virtual_machine_moves_away_add_nothing_to_its_patience() -> None:
    """Nor do its budget's, for half an hour from the first answer; it is asked for every 30 s at most."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    assert attempt(stage, moving(11)) is True
    assert stage.next_at() == 40
    for at in (40, 100, 400, 1809):
        assert attempt(stage.at(at), blocked(at + 5)) is True
        assert stage.next_at() == at + 30
    assert attempt(stage.at(1839), blocked(1900)) is True
    assert stage.next_at() == 1899
    assert attempt(stage.at(1899), Done()) is False


def test_the_time_for_a_virtual_machine_to_move_away_is_never_renewed() -> None:
    """It says so again after the half hour: then it refuses as any webhook does."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    assert attempt(stage, moving(11)) is True
    assert attempt(stage.at(1810), moving(1811)) is True
    assert stage.next_at() == 1811
    assert attempt(stage.at(1870), moving(1871)) is True


def test_another_leadership_hears_anew_that_a_virtual_machine_moves_away() -> None:
    """It has heard nothing of the first time."""
    stage = by_mode(EvictionMode.EVICT_THEN_DELETE, timeout=60)
    assert attempt(stage, moving(11)) is True
    stage.at(1900).evaluate(term=1)
    assert attempt(stage, moving(1901)) is True
    assert stage.next_at() == 1930
