"""What blocks evictions: the control state, rules and the circuit breaker, and what is reported about these."""

from dataclasses import replace

import pytest
from tests.unit.builders import epoch, moment, node, own_latch, since, taint

from taint_eviction.core.breaker import Breaker
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause, PauseScope
from taint_eviction.core.events import BreakerClosed, BreakerOpened, Event, Paused, Resumed
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.guards import Guards, WaitReason, guards_of
from taint_eviction.core.known_nodes import KnownNode, KnownNodes
from taint_eviction.core.policy import EvictionPolicy, PolicyRule

ANY_NODE = BreakerPolicy(enabled=True, nodes=NodeThreshold(number=0), max_due=5)
CLOSES = BreakerPolicy(enabled=True, nodes=NodeThreshold(number=0), max_due=5, closes_by_itself=True)
CAUSE = "1 of 1 nodes newly tainted within 300 s, more than 0"
WHY = Pause(epoch(1), "maintenance")
NOTHING = ControlState()


class Blocking(Guards):
    """Guards whose breaker is at hand."""

    def __init__(self, policy: BreakerPolicy, control_state: ControlState | None) -> None:
        self.breaker = Breaker(policy)
        super().__init__(EvictionPolicy(), self.breaker, control_state, KnownNodes(GoneObjects()))


def guards(policy: BreakerPolicy | None = None, control_state: ControlState | None = NOTHING) -> Blocking:
    """Guards with an empty control state, or the given one."""
    return Blocking(policy or BreakerPolicy(), control_state)


def tainted(it: Blocking, at: float = 1) -> dict[str, KnownNode]:
    """A cluster of one tainted node with a pod that must be evicted."""
    it.breaker.evicts("n1", taint())
    return {"n1": KnownNode(node(taint()), at, {taint(): since(at)})}


def ordered(it: Guards, at: float, control_state: ControlState) -> list[Event]:
    """Apply a control state at an instant."""
    return it.order(control_state, moment(at))


# What is held


def test_an_empty_control_state_holds_nothing() -> None:
    """The breaker is closed, and nothing is paused."""
    assert guards().blocking_all(moment(0)) is None
    assert guards().blocking_flow(FlowKey("n1", "shop", "")) is None
    assert guards().pauses() == {"whole": 0, "selector": 0, "node": 0, "namespace": 0}


def test_an_unknown_control_state_holds_everything() -> None:
    """Without the control state, it is unknown whether evictions are paused."""
    it = guards(control_state=None)
    assert it.blocking_all(moment(0)) is WaitReason.ORDERS_UNKNOWN
    assert it.blocking_flow(FlowKey("n1", "shop", "")) is None
    assert it.pauses() == {}
    ordered(it, 1, ControlState())
    assert it.blocking_all(moment(0)) is None


def test_each_pause_holds_its_scope() -> None:
    """The scope is everything, a node or a namespace; if both apply, the reason is the node."""
    it = guards(control_state=ControlState(nodes={"n1": WHY}, namespaces={"shop": WHY, "bank": WHY}))
    assert it.blocking_all(moment(0)) is None
    assert it.blocking_flow(FlowKey("n1", "shop", "")) is WaitReason.NODE_PAUSED
    assert it.blocking_flow(FlowKey("n2", "shop", "")) is WaitReason.NAMESPACE_PAUSED
    assert it.blocking_flow(FlowKey("n2", "bank", "")) is WaitReason.NAMESPACE_PAUSED
    assert it.blocking_flow(FlowKey("n2", "n1", "shop")) is None
    assert it.pauses() == {"whole": 0, "selector": 0, "node": 1, "namespace": 2}
    ordered(it, 1, ControlState(cluster=Pause()))
    assert it.blocking_all(moment(0)) is WaitReason.PAUSED
    assert it.blocking_flow(FlowKey("n1", "shop", "")) is None
    assert it.pauses() == {"whole": 1, "selector": 0, "node": 0, "namespace": 0}


def test_a_pause_by_a_selector_holds_the_nodes_that_have_the_labels() -> None:
    """It is the reason before a pause of the node itself; of several, the one that ends last is told."""
    labels = {"n1": {"pool": "gpu", "rack": "r1"}, "n2": {"pool": "web"}}
    short, long = Pause(epoch(1), "short", epoch(50)), Pause(epoch(1), "long", epoch(90))
    state = ControlState(nodes={"n1": WHY}, selectors={"pool=gpu": short, "rack": long, "pool!=web": short})
    nodes = {name: KnownNode(replace(node(name=name), labels=each), 0.0) for name, each in labels.items()}
    it = guards_of(state, EvictionPolicy(), nodes)
    on_gpu = FlowKey("n1", "shop", "")
    assert it.blocking_flow(on_gpu) is WaitReason.SELECTOR_PAUSED
    guard = it.of(WaitReason.SELECTOR_PAUSED)
    assert guard is not None
    assert (guard.says(on_gpu, moment(0)), guard.text(on_gpu)) == (
        long,
        "evictions from nodes that match rack are paused",
    )
    assert guard.named(on_gpu) == "the pause of nodes that match rack"
    assert [each.reason for each in it.blocking_then(on_gpu, moment(100))] == [WaitReason.NODE_PAUSED]
    assert it.blocking_flow(FlowKey("n2", "shop", "")) is None
    assert it.blocking_flow(FlowKey("n9", "shop", "")) is None


def test_the_breaker_is_the_reason_before_a_pause() -> None:
    """A person has to end both, but nobody ordered the breaker to open."""
    it = guards()
    ordered(it, 1, ControlState(cluster=Pause(), latch=Latch(epoch(1), "many")))
    assert it.blocking_all(moment(0)) is WaitReason.BREAKER_OPEN


def test_what_blocks_all_evictions_is_the_reason_before_what_blocks_a_flow() -> None:
    """It ends for all; a rule comes before pauses of nodes, and these before one of a namespace."""
    flow, policy = FlowKey("n1", "shop", "gpu"), EvictionPolicy(rules=(PolicyRule("gpu", pause=True),))
    state = ControlState(Pause(), {"n1": WHY}, {"shop": WHY}, selectors={"pool": WHY})
    expected = [WaitReason.PAUSED, WaitReason.RULE_PAUSED, WaitReason.SELECTOR_PAUSED, WaitReason.NODE_PAUSED]
    expected.append(WaitReason.NAMESPACE_PAUSED)
    it = guards_of(state, policy, {"n1": KnownNode(replace(node(), labels={"pool": "gpu"}), 0.0)})
    assert it.blocking(flow, moment(0)) is WaitReason.PAUSED
    assert [each.reason for each in it.blocking_then(flow, moment(0))] == expected


def test_a_pod_whose_node_is_off_waits_for_a_pause_and_not_for_a_breaker_that_others_opened() -> None:
    """A latch because of such nodes blocks it, and so does one that is not readable."""
    off = FlowKey("n1", "shop", "", bypasses_limits=True)
    assert guards(control_state=ControlState(cluster=Pause())).blocking(off, moment(0)) is WaitReason.PAUSED
    many = Latch(epoch(1), "many")
    for latch, reason in [
        (many, None),
        (replace(many, out_of_service=True), WaitReason.BREAKER_OPEN),
        (replace(many, unreadable=True), WaitReason.BREAKER_OPEN),
    ]:
        it = guards()
        ordered(it, 1, ControlState(latch=latch))
        assert it.blocking(off, moment(2)) is reason
        assert it.blocking(off._replace(bypasses_limits=False), moment(2)) is WaitReason.BREAKER_OPEN
        ordered(it, 3, ControlState(cluster=Pause(), latch=latch))
        assert it.blocking(off, moment(4)) is (reason or WaitReason.PAUSED)


def test_releasing_a_pause_releases_nothing_that_the_breaker_blocks() -> None:
    """A what-if question: other pauses still block in the answer, and the guards in force do not change."""
    paused = ControlState(Pause(), {"n2": WHY}, latch=Latch(epoch(1), "many"))
    it = guards(control_state=paused)
    ordered(it, 1, paused)
    after = it.supposing(lambda state: replace(state, cluster=None))
    assert after.blocking(FlowKey("n1", "shop", ""), moment(2)) is WaitReason.BREAKER_OPEN
    closed = it.supposing(lambda state: replace(state, cluster=None, latch=None))
    assert closed.blocking(FlowKey("n1", "shop", ""), moment(2)) is None
    assert closed.blocking(FlowKey("n2", "shop", ""), moment(2)) is WaitReason.NODE_PAUSED
    assert it.blocking(FlowKey("n1", "shop", "", bypasses_limits=True), moment(2)) is WaitReason.PAUSED
    unknown = guards(control_state=None).supposing(lambda state: replace(state, cluster=None))
    assert unknown.blocking(FlowKey("n1", "shop", ""), moment(2)) is WaitReason.ORDERS_UNKNOWN


# What is reported


def test_each_pause_and_its_end_are_reported_once() -> None:
    """The effect contains the scope."""
    it = guards()
    control_state = ControlState(WHY, {"n1": WHY}, {"shop": Pause()})
    assert ordered(it, 1, control_state) == [
        Paused(EVERYTHING, WHY),
        Paused(PauseScope("node", "n1"), WHY),
        Paused(PauseScope("namespace", "shop"), Pause()),
    ]
    assert ordered(it, 2, control_state) == []
    assert ordered(it, 3, ControlState(nodes={"n1": Pause(), "n2": WHY})) == [
        Paused(PauseScope("node", "n2"), WHY),
        Resumed(EVERYTHING),
        Resumed(PauseScope("namespace", "shop")),
    ]
    assert ordered(it, 4, ControlState()) == [Resumed(PauseScope("node", "n1")), Resumed(PauseScope("node", "n2"))]


def test_a_pause_that_is_in_force_at_the_start_is_reported() -> None:
    """The first control state that is read is news."""
    assert ordered(guards(control_state=None), 1, ControlState(WHY)) == [Paused(EVERYTHING, WHY)]


# The breaker, seen by this process


def test_a_breaker_that_opens_is_reported_once() -> None:
    """The effect contains the latch."""
    it = guards(ANY_NODE)
    nodes = tainted(it)
    assert it.evaluate(nodes, 0, moment(2)) == [BreakerOpened(own_latch(epoch(2), CAUSE))]
    assert it.evaluate(nodes, 0, moment(3)) == []
    assert it.blocking_all(moment(0)) is WaitReason.BREAKER_OPEN


def test_the_breaker_does_not_evaluate_before_the_control_state_is_known() -> None:
    """The control state may contain a recent reset, after which a restart must not open the breaker again."""
    it = guards(ANY_NODE, None)
    nodes = tainted(it, 1)
    assert it.evaluate(nodes, 1000, moment(2)) == []
    ordered(it, 3, ControlState(reset_epoch=epoch(1.5)))
    assert it.evaluate(nodes, 0, moment(3)) == []
    assert it.blocking_all(moment(0)) is None


def test_pods_due_before_the_control_state_was_read_open_the_breaker() -> None:
    """Nobody has paused them, so nobody knows of them."""
    it = guards(ANY_NODE, None)
    assert it.evaluate({}, 1000, moment(1)) == []
    ordered(it, 2, NOTHING)
    assert [type(effect) for effect in it.evaluate({}, 1000, moment(2))] == [BreakerOpened]


def test_pods_due_during_a_pause_do_not_open_the_breaker() -> None:
    """They do not open it after the pause either; more than five due pods on top of them do."""
    it = guards(ANY_NODE, ControlState(cluster=Pause()))
    assert it.evaluate({}, 1000, moment(1)) == []
    ordered(it, 2, ControlState())
    it.breaker.count_due(1000)
    assert it.evaluate({}, 1000, moment(2)) == []
    assert it.evaluate({}, 1006, moment(3)) == [
        BreakerOpened(own_latch(epoch(3), "1006 pods due at once, more than 5"))
    ]


def test_a_pause_does_not_open_a_breaker_that_allows_no_due_pod() -> None:
    """The policy allows no due pod at all."""
    it = guards(BreakerPolicy(enabled=True, max_due=0), ControlState(cluster=Pause()))
    assert it.evaluate({}, 7, moment(1)) == []
    ordered(it, 2, ControlState())
    assert it.evaluate({}, 7, moment(2)) == []


def test_a_person_who_ends_a_pause_of_all_evictions_knows_the_backlog() -> None:
    """Whatever is due was held by it. A pause of a node that stays makes no backlog known."""
    paused = ControlState(cluster=Pause())
    it = guards(ANY_NODE, paused)
    ordered(it, 1, paused)
    it.breaker.count_due(0)
    ordered(it, 2, ControlState())
    assert it.evaluate({}, 1000, moment(2)) == []
    other = guards(ANY_NODE, ControlState(nodes={"n9": Pause()}))
    ordered(other, 1, ControlState(nodes={"n9": WHY}))
    assert other.evaluate({}, 6, moment(2)) != []


# The breaker in the control state


def test_a_latch_in_the_cluster_opens_the_breaker_of_every_replica() -> None:
    """The breaker takes over the latch's time and cause. A person's replaces a controller's, never the reverse."""
    it = guards()
    latch = Latch(epoch(1), "elsewhere", controller="another controller")
    by_hand = Latch(epoch(0.5), "by hand")
    assert ordered(it, 5, ControlState(latch=latch)) == [BreakerOpened(latch)]
    assert ordered(it, 6, ControlState(latch=replace(latch, since_epoch=epoch(2)))) == []
    assert it.breaker.latch == latch
    assert ordered(it, 7, ControlState(latch=by_hand)) == []
    assert ordered(it, 8, ControlState(latch=latch)) == []
    assert it.breaker.latch == by_hand


def test_a_known_latch_stays_when_the_config_map_is_gone() -> None:
    """The loss of the ConfigMap is no reset."""
    it = guards()
    ordered(it, 5, ControlState(latch=Latch(epoch(1), "elsewhere")))
    assert ordered(it, 6, ControlState()) == []
    assert it.blocking_all(moment(0)) is WaitReason.BREAKER_OPEN


@pytest.mark.parametrize(("reset_at", "closed"), [(9.999, False), (10.0, True), (11.0, True)])
def test_a_reset_counts_if_it_is_not_older_than_the_latch(reset_at: float, closed: bool) -> None:
    """An older reset was meant for an earlier latch."""
    it = guards()
    ordered(it, 10, ControlState(latch=Latch(epoch(10), "many")))
    effects = ordered(it, 12, ControlState(reset_epoch=epoch(reset_at)))
    assert effects == ([BreakerClosed()] if closed else [])
    assert (it.blocking_all(moment(0)) is None) is closed
    assert it.breaker.reset_epoch == (epoch(reset_at) if closed else None)


def test_a_reset_counts_once() -> None:
    """The reset stays in the cluster, and does not apply to a later surge."""
    it = guards(ANY_NODE)
    nodes = tainted(it, 5)
    reset = ControlState(reset_epoch=epoch(4))
    ordered(it, 4, reset)
    assert it.evaluate(nodes, 0, moment(6)) != []
    assert ordered(it, 7, reset) == []
    assert it.blocking_all(moment(0)) is WaitReason.BREAKER_OPEN
    assert ordered(it, 9, ControlState(reset_epoch=epoch(8))) == [BreakerClosed()]
    assert it.evaluate(nodes, 0, moment(9)) == []


def test_a_reset_counts_once_even_if_the_breaker_opens_again_at_the_same_instant() -> None:
    """The reset is as old as the latch, but was applied before."""
    it = guards(ANY_NODE)
    reset = ControlState(reset_epoch=epoch(4))
    ordered(it, 4, reset)
    assert it.evaluate({}, 6, moment(4)) != []
    assert ordered(it, 4, reset) == []
    assert it.blocking_all(moment(0)) is WaitReason.BREAKER_OPEN


def test_a_second_reset_includes_what_has_happened_since_the_first() -> None:
    """This applies while the breaker is closed too."""
    it = guards(ANY_NODE)
    ordered(it, 4, ControlState(reset_epoch=epoch(4)))
    ordered(it, 6, ControlState(reset_epoch=epoch(6)))
    assert it.evaluate(tainted(it, 5), 0, moment(7)) == []


def test_a_latch_set_by_hand_opens_the_breaker_whatever_its_time() -> None:
    """A latch that replaces a reset in the cluster was written after it."""
    it = guards()
    ordered(it, 10, ControlState(reset_epoch=epoch(10)))
    latch = Latch(epoch(3), "by hand")
    assert ordered(it, 11, ControlState(latch=latch)) == [BreakerOpened(latch)]
    assert ordered(it, 12, ControlState(reset_epoch=epoch(12))) == [BreakerClosed()]


def test_a_breaker_that_closed_by_itself_ignores_its_old_latch_in_the_cluster() -> None:
    """The closing is reported; the old latch stays there for a while, and no other one is taken for it."""
    it = guards(CLOSES)
    nodes = tainted(it)
    latch = own_latch(epoch(2), CAUSE)
    assert it.evaluate(nodes, 0, moment(2)) == [BreakerOpened(latch)]
    ordered(it, 3, ControlState(latch=latch))
    it.breaker.node_changed("n1", ())
    assert it.evaluate(nodes, 0, moment(4)) == [BreakerClosed()]
    assert ordered(it, 5, ControlState(latch=latch)) == []
    assert it.blocking_all(moment(0)) is None
    older = Latch(epoch(1), "by hand")
    assert ordered(it, 6, ControlState(latch=older)) == [BreakerOpened(older)]


@pytest.mark.parametrize("how", ["read", "written"])
def test_a_latch_whose_closing_is_in_the_cluster_is_no_old_news_when_it_is_seen_again(how: str) -> None:
    """Somebody has applied a copy again."""
    it = guards(CLOSES)
    nodes = tainted(it)
    latch = own_latch(epoch(2), CAUSE)
    it.evaluate(nodes, 0, moment(2))
    it.breaker.node_changed("n1", ())
    assert it.evaluate(nodes, 0, moment(4)) == [BreakerClosed()]
    if how == "read":
        ordered(it, 5, ControlState(reset_epoch=epoch(4)))
    else:
        assert it.breaker.closed is not None
        it.breaker.closing_written(it.breaker.closed[0])
    assert ordered(it, 6, ControlState(latch=latch)) == [BreakerOpened(latch)]


def test_an_open_breaker_does_not_lower_its_own_count() -> None:
    """The pods that it blocks stay due, and keep it open; it closes once five are left, as many as it allows."""
    it = guards(CLOSES)
    assert [type(effect) for effect in it.evaluate({}, 6, moment(1))] == [BreakerOpened]
    it.note(moment(2))
    assert it.evaluate({}, 6, moment(2)) == []
    assert it.evaluate({}, 5, moment(3)) == [BreakerClosed()]


def test_a_breaker_that_closed_by_itself_knows_of_no_backlog() -> None:
    """No person knows of the due pods that are left: they count together with new ones."""
    it = guards(CLOSES)
    assert [type(effect) for effect in it.evaluate({}, 6, moment(1))] == [BreakerOpened]
    it.note(moment(2))
    assert it.evaluate({}, 5, moment(2)) == [BreakerClosed()]
    it.note(moment(3))
    assert [type(effect) for effect in it.evaluate({}, 9, moment(3))] == [BreakerOpened]


def test_the_end_of_a_pause_closes_no_breaker() -> None:
    """Who ends a pause knows what it has blocked; what the breaker has blocked beside it counts on."""
    it = guards(CLOSES)
    assert [type(effect) for effect in it.evaluate({}, 6, moment(1))] == [BreakerOpened]
    latch = it.breaker.latch
    ordered(it, 2, ControlState(cluster=Pause(), latch=latch))
    ordered(it, 3, ControlState(latch=latch))
    assert it.evaluate({}, 6, moment(3)) == []
    assert it.blocking_all(moment(3)) is WaitReason.BREAKER_OPEN


def test_what_a_person_has_opened_does_not_close_by_itself() -> None:
    """A latch that names no controller is a person's."""
    it = guards(CLOSES)
    ordered(it, 1, ControlState(latch=Latch(epoch(1), "by hand")))
    assert it.evaluate({}, 0, moment(2)) == []
    assert it.evaluate({}, 0, moment(10_000)) == []
    assert it.blocking_all(moment(0)) is WaitReason.BREAKER_OPEN


def test_an_older_reset_that_replaces_a_latch_counts_if_the_latch_is_older_still() -> None:
    """Somebody applies older copies: first the open latch, then the reset that is known already."""
    it = guards()
    reset = ControlState(reset_epoch=epoch(10))
    ordered(it, 10, reset)
    ordered(it, 11, ControlState(latch=Latch(epoch(3), "by hand")))
    assert ordered(it, 12, reset) == [BreakerClosed()]


def test_an_unreadable_latch_opens_a_breaker_that_closed_by_itself() -> None:
    """Only a person knows what the latch was meant to say."""
    it = guards(CLOSES)
    nodes = tainted(it)
    it.evaluate(nodes, 0, moment(2))
    it.breaker.node_changed("n1", ())
    it.evaluate(nodes, 0, moment(4))
    unreadable = Latch(epoch(1), "shut", unreadable=True)
    assert ordered(it, 5, ControlState(latch=unreadable)) == [BreakerOpened(unreadable)]


def test_an_unreadable_latch_keeps_the_breaker_from_closing_by_itself() -> None:
    """Somebody overwrites an open latch with nonsense: the breaker stays open without its cause, until a reset."""
    it = guards(CLOSES)
    nodes = tainted(it)
    it.evaluate(nodes, 0, moment(2))
    unreadable = Latch(epoch(1), "shut", unreadable=True)
    assert ordered(it, 3, ControlState(latch=unreadable)) == []
    it.breaker.node_changed("n1", ())
    assert it.evaluate(nodes, 0, moment(4)) == []
    assert ordered(it, 5, ControlState(reset_epoch=epoch(5))) == [BreakerClosed()]


def test_a_readable_value_ends_an_unreadable_latch() -> None:
    """Somebody restores the old value, by which the breaker was closed long ago: that value counts."""
    it = guards(BreakerPolicy(), ControlState(reset_epoch=epoch(1)))
    ordered(it, 2, ControlState(reset_epoch=epoch(1)))
    ordered(it, 3, ControlState(latch=Latch(0.0, "shut", unreadable=True)))
    assert ordered(it, 4, ControlState()) == []
    assert it.blocking_all(moment(0)) is WaitReason.BREAKER_OPEN
    assert ordered(it, 5, ControlState(reset_epoch=epoch(1))) == [BreakerClosed()]
    assert it.blocking_all(moment(0)) is None


def test_a_restored_latch_replaces_the_unreadable_one() -> None:
    """The breaker stays open, with the old latch, which is readable again."""
    it = guards(CLOSES)
    latch = Latch(epoch(1), "many")
    ordered(it, 2, ControlState(latch=latch))
    ordered(it, 3, ControlState(latch=Latch(0.0, "shut", unreadable=True)))
    assert ordered(it, 4, ControlState(latch=latch)) == []
    assert it.breaker.latch == latch


def test_after_an_unreadable_value_is_corrected_the_breaker_evaluates_again() -> None:
    """To correct a value is no reset: nodes that were tainted meanwhile count."""
    it = guards(ANY_NODE)
    ordered(it, 1, ControlState(reset_epoch=epoch(1)))
    ordered(it, 2, ControlState(latch=Latch(0.0, "shut", unreadable=True)))
    nodes = tainted(it, 3)
    assert it.evaluate(nodes, 0, moment(3)) == []
    assert ordered(it, 5, ControlState(reset_epoch=epoch(1))) == [BreakerClosed()]
    assert [type(effect) for effect in it.evaluate(nodes, 0, moment(5))] == [BreakerOpened]


def test_a_backlog_held_by_an_unreadable_value_may_be_worked_off() -> None:
    """As after a pause, the person who corrects the value knows the backlog, which does not open the breaker."""
    it = guards(BreakerPolicy(enabled=True, max_due=2))
    ordered(it, 1, ControlState(reset_epoch=epoch(1)))
    ordered(it, 2, ControlState(latch=Latch(0.0, "shut", unreadable=True)))
    ordered(it, 5, ControlState(reset_epoch=epoch(1)))
    assert it.evaluate({}, 9, moment(5)) == []
    assert it.blocking_all(moment(0)) is None


def test_a_reset_from_the_future_does_not_hide_a_surge() -> None:
    """Once the clock is right, a reset dated later than now counts as of now."""
    it = guards(ANY_NODE)
    it.breaker.reset(epoch(7200))
    ordered(it, 4, ControlState())
    assert [type(effect) for effect in it.evaluate(tainted(it, 5), 0, moment(6))] == [BreakerOpened]


def test_nothing_is_due_while_everything_is_paused() -> None:
    """The breaker does not open even if its policy allows no due pod."""
    it = guards(BreakerPolicy(enabled=True, max_due=0), ControlState(cluster=WHY))
    assert it.evaluate({}, 5, moment(1)) == []
    assert it.breaker.latch is None
    assert [type(effect) for effect in ordered(it, 2, NOTHING) + it.evaluate({}, 0, moment(2))] == [Resumed]


def test_a_breaker_found_open_closes_by_itself_only_once_its_cause_was_seen_and_is_gone() -> None:
    """The cause may not be listed yet. When the breaker is found open again, the new cause has not been seen either."""
    it = guards(CLOSES, None)
    ordered(it, 10, ControlState(latch=own_latch(epoch(5), CAUSE)))
    assert it.evaluate({}, 0, moment(10)) == []
    nodes = tainted(it, 6)
    assert it.evaluate(nodes, 0, moment(11)) == []
    it.breaker.node_changed("n1", ())
    assert it.evaluate({}, 0, moment(12)) == [BreakerClosed()]
    ordered(it, 20, ControlState(latch=own_latch(epoch(19), CAUSE)))
    assert it.evaluate({}, 0, moment(20)) == []
    assert it.breaker.latch is not None


# For how long something was blocked

FLOW = FlowKey("n1", "shop", "gpu")
GPU_PAUSED = EvictionPolicy(rules=(PolicyRule("gpu", pause=True),))


def test_only_the_time_from_an_instant_on_counts_as_blocked() -> None:
    """A pause from 100 to 300, asked about before it, in it, after it, and while it goes on."""
    it = guards()
    ordered(it, 100, ControlState(nodes={"n1": Pause()}))
    assert [it.blocked_seconds(FLOW, since, 250) for since in (0, 100, 160, 250)] == [150, 150, 90, 0]
    ordered(it, 300, NOTHING)
    assert [it.blocked_seconds(FLOW, since, 1000) for since in (0, 160, 300, 400)] == [200, 140, 0, 0]


def test_a_block_within_another_one_counts_once_and_ends_nothing() -> None:
    """The namespace is paused from 100 to 500, its node from 200 to 300, and all evictions from 400 to 600."""
    it = guards()
    namespace = {"shop": Pause()}
    ordered(it, 100, ControlState(namespaces=namespace))
    ordered(it, 200, ControlState(nodes={"n1": Pause()}, namespaces=namespace))
    ordered(it, 300, ControlState(namespaces=namespace))
    ordered(it, 400, ControlState(Pause(), namespaces=namespace))
    ordered(it, 500, ControlState(Pause()))
    ordered(it, 600, NOTHING)
    assert it.blocked_seconds(FLOW, 0, 1000) == 500
    assert it.blocked_seconds(FLOW, 0, 550) == 450
    everything, of_node, of_namespace = "the pause of all evictions", "a pause of its node", "a pause of its namespace"
    assert it.blocked_by(FLOW, 0, 1000) == (everything, of_node, of_namespace)
    assert it.blocked_by(FLOW, 350, 380) == (of_namespace,)
    assert it.blocked_by(FLOW, 550, 1000) == (everything,)
    assert it.blocked_by(FLOW, 600, 1000) == ()


def test_who_paused_and_why_is_told_of_what_blocked() -> None:
    """Also after the pause has ended, and for another one of the same scope."""
    it = guards()
    ordered(it, 100, ControlState(Pause(reason="one zone first", by="alice")))
    ordered(it, 200, NOTHING)
    ordered(it, 300, ControlState(Pause(by="bob")))
    first, second = "the pause of all evictions (by alice: one zone first)", "the pause of all evictions (by bob)"
    assert it.blocked_by(FLOW, 150, 250) == (first,)
    assert set(it.blocked_by(FLOW, 0, 1000)) == {first, second}


def test_what_is_told_of_blocks_is_bounded() -> None:
    """In number and length."""
    it = guards()
    for number in range(9):
        ordered(it, 100 + 20 * number, ControlState(Pause(reason=f"{number} {'x' * 1000}")))
        ordered(it, 110 + 20 * number, NOTHING)
    told = it.blocked_by(FLOW, 0, 1000)
    assert (len(told), {len(each) for each in told}) == (5, {200})


def test_several_blocks_add_up_and_those_of_others_do_not_count() -> None:
    """Pauses of another node and namespace, and a rule of another name, block others."""
    it = guards()
    for at in (100, 300):
        ordered(it, at, ControlState(nodes={"n1": Pause(), "n2": Pause()}))
        ordered(it, at + 20, ControlState(nodes={"n2": Pause()}, namespaces={"bank": Pause()}))
    assert it.blocked_seconds(FLOW, 0, 400) == 40
    assert it.blocked_seconds(FlowKey("n3", "shop", "web"), 0, 400) == 0
    assert it.blocked_seconds(FlowKey("n3", "bank", "web"), 0, 400) == 260


def test_a_rule_blocks_while_a_policy_with_it_pauses() -> None:
    """One that pauses from the beginning did so before this process, too."""
    it = Guards(GPU_PAUSED, Breaker(BreakerPolicy()), NOTHING, KnownNodes(GoneObjects()))
    assert it.blocked_seconds(FLOW, -500, 100) == 600
    it.change_policy(EvictionPolicy(), 100)
    it.change_policy(GPU_PAUSED, 300)
    it.change_policy(EvictionPolicy(), 350)
    assert it.blocked_seconds(FLOW, 50, 1000) == 100
    assert it.blocked_by(FLOW, 50, 1000) == (f"rule {FLOW.rule}",)
    assert it.blocked_seconds(FlowKey("n1", "shop", ""), 50, 1000) == 0


def test_what_blocks_is_noted_while_it_blocks() -> None:
    """An open breaker blocks since it opened, and a control state that is not known since that was asked first."""
    it = guards(ANY_NODE, None)
    it.note(moment(50))
    ordered(it, 70, NOTHING)
    assert it.blocked_seconds(FLOW, 0, 1000) == 20
    it.evaluate(tainted(it, 100), 0, moment(100))
    it.note(moment(103))
    assert it.blocked_seconds(FLOW, 80, 110) == 10
    ordered(it, 200, ControlState(reset_epoch=epoch(150)))
    it.note(moment(200))
    assert it.blocked_seconds(FLOW, 80, 1000) == 100


def test_a_block_that_is_noted_often_is_one() -> None:
    """Its beginning is remembered, also where nobody has dated it."""
    it = guards()
    ordered(it, 100, ControlState(Pause()))
    for at in range(101, 200):
        it.note(moment(at))
    ordered(it, 200, NOTHING)
    assert it.blocked_seconds(FLOW, 0, 1000) == 100


def test_a_pause_that_is_dated_ahead_blocks_from_now_on() -> None:
    """The clock of the person who paused was an hour ahead."""
    it = guards()
    ordered(it, 100, ControlState(nodes={"n1": Pause(epoch(3700))}))
    assert it.blocked_seconds(FLOW, 0, 150) == 50


def test_the_last_sixteen_blocks_of_one_thing_count() -> None:
    """A pause that comes and goes takes no more memory."""
    it = guards()
    for number in range(20):
        ordered(it, 10 * number, ControlState(nodes={"n1": Pause()}))
        ordered(it, 10 * number + 1, NOTHING)
    assert it.blocked_seconds(FLOW, -1, 1000) == 16


def test_the_blocks_of_the_thousand_things_that_ended_last_count() -> None:
    """Somebody may pause one node after the other; one whose pause ends again is not a further thing."""
    it = guards()
    for number in range(1000):
        ordered(it, 10, ControlState(nodes={f"n{number}": Pause()}))
        ordered(it, 11, NOTHING)
    assert blocked_of(it, "n0", "n1", "n999") == [1, 1, 1]
    ordered(it, 20, ControlState(nodes={"n999": Pause()}))
    ordered(it, 21, NOTHING)
    assert blocked_of(it, "n0", "n1", "n999") == [1, 1, 2]
    ordered(it, 20, ControlState(nodes={"n1000": Pause()}))
    ordered(it, 21, NOTHING)
    assert blocked_of(it, "n0", "n1", "n1000") == [0, 1, 1]


def blocked_of(it: Guards, *nodes: str) -> list[float]:
    """For how long each of these nodes was blocked."""
    return [it.blocked_seconds(FlowKey(name, "shop", ""), 0, 100) for name in nodes]
