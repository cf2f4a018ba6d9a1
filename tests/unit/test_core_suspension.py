"""What holds evictions back: orders and circuit breaker, and what is told of it."""

import pytest
from tests.unit.builders import epoch, moment, node, since, taint

from taint_eviction.core.breaker import Breaker
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause, PauseScope
from taint_eviction.core.effects import BreakerClosed, BreakerOpened, Effect, Paused, Resumed
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.pod_record import WaitReason
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.core.suspension import Suspension

ANY_NODE = BreakerPolicy(enabled=True, nodes=NodeThreshold(number=0), max_due=5)
CLOSES = BreakerPolicy(enabled=True, nodes=NodeThreshold(number=0), max_due=5, closes_by_itself=True)
CAUSE = "1 of 1 nodes newly tainted within 300 s, more than 0"
WHY = Pause(epoch(1), "maintenance")
NOTHING = ControlState()


def suspension(policy: BreakerPolicy | None = None, control_state: ControlState | None = NOTHING) -> Suspension:
    """Suspension where nothing is ordered, or what is given."""
    return Suspension(EvictionPolicy(), Breaker(policy or BreakerPolicy()), control_state)


def tainted(it: Suspension, at: float = 1) -> dict[str, KnownNode]:
    """A cluster of one node, of which a pod has to go."""
    it._breaker.evicts("n1", taint())
    return {"n1": KnownNode(node(taint()), at, {taint(): since(at)})}


def ordered(it: Suspension, at: float, control_state: ControlState) -> list[Effect]:
    """Take in orders at an instant."""
    return it.order(control_state, moment(at))


# What is held


def test_nothing_is_held_where_nothing_is_ordered() -> None:
    """The breaker is closed, nobody has paused anything."""
    assert suspension().of_cluster() is None
    assert suspension().of_flow(FlowKey("n1", "shop", "")) is None
    assert suspension().pauses() == {"whole": 0, "node": 0, "namespace": 0}


def test_orders_that_are_not_known_hold_everything() -> None:
    """Nobody can tell whether it is paused."""
    it = suspension(control_state=None)
    assert it.of_cluster() is WaitReason.ORDERS_UNKNOWN
    assert it.of_flow(FlowKey("n1", "shop", "")) is None
    assert it.pauses() == {}
    ordered(it, 1, ControlState())
    assert it.of_cluster() is None


def test_each_pause_holds_what_it_is_about() -> None:
    """Everything, a node, a namespace; and a node before a namespace where both do."""
    it = suspension(control_state=ControlState(nodes={"n1": WHY}, namespaces={"shop": WHY, "bank": WHY}))
    assert it.of_cluster() is None
    assert it.of_flow(FlowKey("n1", "shop", "")) is WaitReason.NODE_PAUSED
    assert it.of_flow(FlowKey("n2", "shop", "")) is WaitReason.NAMESPACE_PAUSED
    assert it.of_flow(FlowKey("n2", "n1", "shop")) is None
    assert it.pauses() == {"whole": 0, "node": 1, "namespace": 2}
    ordered(it, 1, ControlState(cluster=Pause()))
    assert it.of_cluster() is WaitReason.PAUSED
    assert it.of_flow(FlowKey("n1", "shop", "")) is None
    assert it.pauses() == {"whole": 1, "node": 0, "namespace": 0}


def test_the_breaker_is_told_before_a_pause() -> None:
    """It takes a human to end both, and the breaker is what nobody has ordered."""
    it = suspension()
    ordered(it, 1, ControlState(cluster=Pause(), latch=Latch(epoch(1), "many")))
    assert it.of_cluster() is WaitReason.BREAKER_OPEN


# What is told


def test_each_pause_is_told_once_and_so_is_its_end() -> None:
    """With its scope in words."""
    it = suspension()
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


def test_what_is_paused_at_the_start_is_told() -> None:
    """The first orders that are known are news."""
    assert ordered(suspension(control_state=None), 1, ControlState(WHY)) == [Paused(EVERYTHING, WHY)]


# The breaker, seen by this process


def test_a_breaker_that_opens_is_told_once() -> None:
    """With its latch."""
    it = suspension(ANY_NODE)
    nodes = tainted(it)
    assert it.evaluate(nodes, 0, moment(2)) == [BreakerOpened(Latch(epoch(2), CAUSE))]
    assert it.evaluate(nodes, 0, moment(3)) == []
    assert it.of_cluster() is WaitReason.BREAKER_OPEN


def test_it_does_not_look_before_it_is_known_what_people_have_said() -> None:
    """A reset of a minute ago says that the wave is fine: a restart must not open the breaker for it again."""
    it = suspension(ANY_NODE, None)
    nodes = tainted(it, 1)
    assert it.evaluate(nodes, 1000, moment(2)) == []
    ordered(it, 3, ControlState(reset_epoch=epoch(1.5)))
    assert it.evaluate(nodes, 0, moment(3)) == []
    assert it.of_cluster() is None


def test_what_is_paused_is_not_about_to_go() -> None:
    """Pods that fall due during a pause of everything don't open it, nor do they once that is resumed."""
    it = suspension(ANY_NODE, ControlState(cluster=Pause()))
    assert it.evaluate({}, 1000, moment(1)) == []
    ordered(it, 2, ControlState())
    it._breaker.count_due(1000)
    assert it.evaluate({}, 1000, moment(2)) == []
    assert it.evaluate({}, 1006, moment(3)) == [BreakerOpened(Latch(epoch(3), "1006 pods due at once, more than 5"))]


def test_during_a_pause_not_even_one_is_about_to_go() -> None:
    """Where none may be due at once."""
    it = suspension(BreakerPolicy(enabled=True, max_due=0), ControlState(cluster=Pause()))
    assert it.evaluate({}, 7, moment(1)) == []
    ordered(it, 2, ControlState())
    assert it.evaluate({}, 7, moment(2)) == []


@pytest.mark.parametrize(
    "paused",
    [ControlState(cluster=Pause()), ControlState(nodes={"n1": Pause()}), ControlState(namespaces={"shop": Pause()})],
)
def test_whatever_is_resumed_somebody_knows_what_has_gathered(paused: ControlState) -> None:
    """Of everything, of a node, of a namespace; a pause that merely stays says nothing."""
    it = suspension(ANY_NODE, paused)
    ordered(it, 1, paused)
    it._breaker.count_due(0)
    ordered(it, 2, ControlState())
    assert it.evaluate({}, 1000, moment(2)) == []
    other = suspension(ANY_NODE, ControlState(nodes={"n9": Pause()}))
    ordered(other, 1, ControlState(nodes={"n9": WHY}))
    assert other.evaluate({}, 6, moment(2)) != []


# The breaker, as it stands in the cluster


def test_a_latch_in_the_cluster_opens_it_everywhere() -> None:
    """Its own time and cause."""
    it = suspension()
    latch = Latch(epoch(1), "elsewhere")
    assert ordered(it, 5, ControlState(latch=latch)) == [BreakerOpened(latch)]
    assert ordered(it, 6, ControlState(latch=Latch(epoch(2), "written again"))) == []
    assert it._breaker.latch == latch


def test_a_latch_that_is_known_stays_when_the_config_map_is_gone() -> None:
    """Nobody said that all is well."""
    it = suspension()
    ordered(it, 5, ControlState(latch=Latch(epoch(1), "elsewhere")))
    assert ordered(it, 6, ControlState()) == []
    assert it.of_cluster() is WaitReason.BREAKER_OPEN


@pytest.mark.parametrize(("reset_at", "closed"), [(9.999, False), (10.0, True), (11.0, True)])
def test_a_reset_counts_if_it_is_not_older_than_the_latch(reset_at: float, closed: bool) -> None:
    """One that was meant for an earlier latch does not close this one."""
    it = suspension()
    ordered(it, 10, ControlState(latch=Latch(epoch(10), "many")))
    effects = ordered(it, 12, ControlState(reset_epoch=epoch(reset_at)))
    assert effects == ([BreakerClosed()] if closed else [])
    assert (it.of_cluster() is None) is closed
    assert it._breaker.reset_epoch == (epoch(reset_at) if closed else None)


def test_a_reset_counts_once() -> None:
    """It stands in the cluster from then on, and says nothing of a wave that comes later."""
    it = suspension(ANY_NODE)
    nodes = tainted(it, 5)
    reset = ControlState(reset_epoch=epoch(4))
    ordered(it, 4, reset)
    assert it.evaluate(nodes, 0, moment(6)) != []
    assert ordered(it, 7, reset) == []
    assert it.of_cluster() is WaitReason.BREAKER_OPEN
    assert ordered(it, 9, ControlState(reset_epoch=epoch(8))) == [BreakerClosed()]
    assert it.evaluate(nodes, 0, moment(9)) == []


def test_a_reset_counts_once_even_where_it_opens_again_at_the_same_instant() -> None:
    """A latch of exactly its time is no reason to take it for another one."""
    it = suspension(ANY_NODE)
    reset = ControlState(reset_epoch=epoch(4))
    ordered(it, 4, reset)
    assert it.evaluate({}, 6, moment(4)) != []
    assert ordered(it, 4, reset) == []
    assert it.of_cluster() is WaitReason.BREAKER_OPEN


def test_a_second_reset_takes_in_what_has_come_since_the_first() -> None:
    """Also while the breaker is closed."""
    it = suspension(ANY_NODE)
    ordered(it, 4, ControlState(reset_epoch=epoch(4)))
    ordered(it, 6, ControlState(reset_epoch=epoch(6)))
    assert it.evaluate(tainted(it, 5), 0, moment(7)) == []


def test_whoever_opens_it_by_hand_is_obeyed_whatever_time_is_written_there() -> None:
    """The last word in the cluster counts: a latch in place of a reset was written after it."""
    it = suspension()
    ordered(it, 10, ControlState(reset_epoch=epoch(10)))
    latch = Latch(epoch(3), "by hand")
    assert ordered(it, 11, ControlState(latch=latch)) == [BreakerOpened(latch)]
    assert ordered(it, 12, ControlState(reset_epoch=epoch(12))) == [BreakerClosed()]


def test_one_that_closes_by_itself_is_told_and_not_opened_by_what_it_could_not_write_yet() -> None:
    """Its latch still stands in the cluster for a while; a newer one opens it again."""
    it = suspension(CLOSES)
    nodes = tainted(it)
    assert it.evaluate(nodes, 0, moment(2)) == [BreakerOpened(Latch(epoch(2), CAUSE))]
    ordered(it, 3, ControlState(latch=Latch(epoch(2), CAUSE)))
    it._breaker.node_changed("n1", ())
    assert it.evaluate(nodes, 0, moment(4)) == [BreakerClosed()]
    assert ordered(it, 5, ControlState(latch=Latch(epoch(2), CAUSE))) == []
    assert ordered(it, 5, ControlState(latch=Latch(epoch(4), CAUSE))) == []
    assert it.of_cluster() is None
    newer = Latch(epoch(4.5), "by another")
    assert ordered(it, 6, ControlState(latch=newer)) == [BreakerOpened(newer)]


def test_what_cannot_be_read_holds_even_who_closed_it_by_itself() -> None:
    """Only a human knows what was meant."""
    it = suspension(CLOSES)
    nodes = tainted(it)
    it.evaluate(nodes, 0, moment(2))
    it._breaker.node_changed("n1", ())
    it.evaluate(nodes, 0, moment(4))
    unreadable = Latch(epoch(1), "shut", unreadable=True)
    assert ordered(it, 5, ControlState(latch=unreadable)) == [BreakerOpened(unreadable)]


def test_what_cannot_be_read_holds_even_who_would_close_by_itself() -> None:
    """Nonsense that somebody writes over an open latch: the cause may go, and it stays open."""
    it = suspension(CLOSES)
    nodes = tainted(it)
    it.evaluate(nodes, 0, moment(2))
    unreadable = Latch(epoch(1), "shut", unreadable=True)
    assert ordered(it, 3, ControlState(latch=unreadable)) == []
    it._breaker.node_changed("n1", ())
    assert it.evaluate(nodes, 0, moment(4)) == []
    assert ordered(it, 5, ControlState(reset_epoch=epoch(5))) == [BreakerClosed()]


def test_a_readable_value_ends_what_could_not_be_read() -> None:
    """Somebody puts the old value back, closed since long ago: that counts, as it stands there."""
    it = suspension(BreakerPolicy(), ControlState(reset_epoch=epoch(1)))
    ordered(it, 2, ControlState(reset_epoch=epoch(1)))
    ordered(it, 3, ControlState(latch=Latch(0.0, "shut", unreadable=True)))
    assert ordered(it, 4, ControlState()) == []
    assert it.of_cluster() is WaitReason.BREAKER_OPEN
    assert ordered(it, 5, ControlState(reset_epoch=epoch(1))) == [BreakerClosed()]
    assert it.of_cluster() is None


def test_a_latch_that_is_put_back_is_as_it_was() -> None:
    """Open, and no human's business only: it may close by itself."""
    it = suspension(CLOSES)
    latch = Latch(epoch(1), "many")
    ordered(it, 2, ControlState(latch=latch))
    ordered(it, 3, ControlState(latch=Latch(0.0, "shut", unreadable=True)))
    assert ordered(it, 4, ControlState(latch=latch)) == []
    assert it._breaker.latch == latch


def test_what_has_come_while_nonsense_held_is_looked_at_once_it_is_put_right() -> None:
    """To correct a value is not to say that all is well."""
    it = suspension(ANY_NODE)
    ordered(it, 1, ControlState(reset_epoch=epoch(1)))
    ordered(it, 2, ControlState(latch=Latch(0.0, "shut", unreadable=True)))
    nodes = tainted(it, 3)
    assert it.evaluate(nodes, 0, moment(3)) == []
    assert ordered(it, 5, ControlState(reset_epoch=epoch(1))) == [BreakerClosed()]
    assert [type(effect) for effect in it.evaluate(nodes, 0, moment(5))] == [BreakerOpened]


def test_what_nonsense_has_held_until_it_was_put_right_may_go() -> None:
    """As after a pause: whoever put it right knows of the backlog, and it opens no breaker."""
    it = suspension(BreakerPolicy(enabled=True, max_due=2))
    ordered(it, 1, ControlState(reset_epoch=epoch(1)))
    ordered(it, 2, ControlState(latch=Latch(0.0, "shut", unreadable=True)))
    ordered(it, 5, ControlState(reset_epoch=epoch(1)))
    assert it.evaluate({}, 9, moment(5)) == []
    assert it.of_cluster() is None


def test_whose_clock_was_ahead_when_it_closed_is_not_blind_until_then() -> None:
    """Once the clock is right, what it remembers of later than now is of now."""
    it = suspension(ANY_NODE)
    it._breaker.reset(epoch(7200))
    ordered(it, 4, ControlState())
    assert [type(effect) for effect in it.evaluate(tainted(it, 5), 0, moment(6))] == [BreakerOpened]


def test_nothing_is_due_while_everything_is_paused() -> None:
    """So however little the breaker bears, it does not open for what is held anyway."""
    it = suspension(BreakerPolicy(enabled=True, max_due=0), ControlState(cluster=WHY))
    assert it.evaluate({}, 5, moment(1)) == []
    assert it._breaker.latch is None
    assert [type(effect) for effect in ordered(it, 2, NOTHING) + it.evaluate({}, 0, moment(2))] == [Resumed]


def test_a_breaker_found_open_closes_by_itself_only_once_its_cause_was_seen_and_went() -> None:
    """What is not listed yet is not gone; and of the next time it is found open, nothing has been seen yet either."""
    it = suspension(CLOSES, None)
    ordered(it, 10, ControlState(latch=Latch(epoch(5), CAUSE)))
    assert it.evaluate({}, 0, moment(10)) == []
    nodes = tainted(it, 6)
    assert it.evaluate(nodes, 0, moment(11)) == []
    it._breaker.node_changed("n1", ())
    assert it.evaluate({}, 0, moment(12)) == [BreakerClosed()]
    ordered(it, 20, ControlState(latch=Latch(epoch(19), CAUSE)))
    assert it.evaluate({}, 0, moment(20)) == []
    assert it._breaker.latch is not None
