"""What holds evictions back: orders and circuit breaker, and what is told of it."""

import pytest
from tests.unit.builders import epoch, moment, node, since, taint

from taint_eviction.core.brakes import Brakes, Hold
from taint_eviction.core.breaker import BreakerPolicy, NodeThreshold
from taint_eviction.core.cluster import KnownNode
from taint_eviction.core.effects import BreakerClosed, BreakerOpened, Effect, Paused, Resumed
from taint_eviction.core.lanes import LaneKey
from taint_eviction.core.orders import Latch, Orders, Pause

ANY_NODE = BreakerPolicy(enabled=True, nodes=NodeThreshold(number=0), most_due=5)
CLOSES = BreakerPolicy(enabled=True, nodes=NodeThreshold(number=0), most_due=5, closes_by_itself=True)
CAUSE = "1 of 1 nodes newly tainted within 300 s, more than 0"
WHY = Pause(epoch(1), "maintenance")
NOTHING = Orders()


def brakes(policy: BreakerPolicy | None = None, orders: Orders | None = NOTHING) -> Brakes:
    """Brakes that know that nothing is ordered, or what is."""
    return Brakes(policy or BreakerPolicy(), orders)


def tainted(it: Brakes, at: float = 1) -> dict[str, KnownNode]:
    """A cluster of one node, of which a pod has to go."""
    it.breaker.evicts("n1", taint())
    return {"n1": KnownNode(node(taint()), at, {taint(): since(at)})}


def ordered(it: Brakes, at: float, orders: Orders) -> list[Effect]:
    """Take in orders at an instant."""
    return it.order(orders, moment(at))


# What is held


def test_nothing_is_held_where_nothing_is_ordered() -> None:
    """The breaker is closed, nobody has paused anything."""
    assert brakes().whole() is None
    assert brakes().lane(LaneKey("n1", "shop", "")) is None
    assert brakes().pauses() == {"whole": 0, "node": 0, "namespace": 0}


def test_orders_that_are_not_known_hold_everything() -> None:
    """Nobody can tell whether it is paused."""
    it = brakes(orders=None)
    assert it.whole() is Hold.ORDERS_UNKNOWN
    assert it.lane(LaneKey("n1", "shop", "")) is None
    assert it.pauses() == {}
    ordered(it, 1, Orders())
    assert it.whole() is None


def test_each_pause_holds_what_it_is_about() -> None:
    """Everything, a node, a namespace; and a node before a namespace where both do."""
    it = brakes(orders=Orders(nodes={"n1": WHY}, namespaces={"shop": WHY, "bank": WHY}))
    assert it.whole() is None
    assert it.lane(LaneKey("n1", "shop", "")) is Hold.NODE_PAUSED
    assert it.lane(LaneKey("n2", "shop", "")) is Hold.NAMESPACE_PAUSED
    assert it.lane(LaneKey("n2", "n1", "shop")) is None
    assert it.pauses() == {"whole": 0, "node": 1, "namespace": 2}
    ordered(it, 1, Orders(whole=Pause()))
    assert it.whole() is Hold.PAUSED
    assert it.lane(LaneKey("n1", "shop", "")) is None
    assert it.pauses() == {"whole": 1, "node": 0, "namespace": 0}


def test_the_breaker_is_told_before_a_pause() -> None:
    """It takes a human to end both, and the breaker is what nobody has ordered."""
    it = brakes()
    ordered(it, 1, Orders(whole=Pause(), latch=Latch(epoch(1), "many")))
    assert it.whole() is Hold.BREAKER_OPEN


# What is told


def test_each_pause_is_told_once_and_so_is_its_end() -> None:
    """With its scope in words."""
    it = brakes()
    orders = Orders(WHY, {"n1": WHY}, {"shop": Pause()})
    assert ordered(it, 1, orders) == [
        Paused("all evictions", WHY),
        Paused("evictions from node n1", WHY),
        Paused("evictions in namespace shop", Pause()),
    ]
    assert ordered(it, 2, orders) == []
    assert ordered(it, 3, Orders(nodes={"n1": Pause(), "n2": WHY})) == [
        Paused("evictions from node n2", WHY),
        Resumed("all evictions"),
        Resumed("evictions in namespace shop"),
    ]
    assert ordered(it, 4, Orders()) == [Resumed("evictions from node n1"), Resumed("evictions from node n2")]


def test_what_is_paused_at_the_start_is_told() -> None:
    """The first orders that are known are news."""
    assert ordered(brakes(orders=None), 1, Orders(WHY)) == [Paused("all evictions", WHY)]


# The breaker, seen by this process


def test_a_breaker_that_opens_is_told_once() -> None:
    """With its latch."""
    it = brakes(ANY_NODE)
    nodes = tainted(it)
    assert it.look(nodes, 0, moment(2)) == [BreakerOpened(Latch(epoch(2), CAUSE))]
    assert it.look(nodes, 0, moment(3)) == []
    assert it.whole() is Hold.BREAKER_OPEN


def test_it_does_not_look_before_it_is_known_what_people_have_said() -> None:
    """A reset of a minute ago says that the wave is fine: a restart must not open the breaker for it again."""
    it = brakes(ANY_NODE, None)
    nodes = tainted(it, 1)
    assert it.look(nodes, 1000, moment(2)) == []
    ordered(it, 3, Orders(reset_epoch=epoch(1.5)))
    assert it.look(nodes, 0, moment(3)) == []
    assert it.whole() is None


def test_what_is_paused_is_not_about_to_go() -> None:
    """Pods that fall due during a pause of everything don't open it, nor do they once that is resumed."""
    it = brakes(ANY_NODE, Orders(whole=Pause()))
    assert it.look({}, 1000, moment(1)) == []
    ordered(it, 2, Orders())
    it.breaker.count_due(1000)
    assert it.look({}, 1000, moment(2)) == []
    assert it.look({}, 1006, moment(3)) == [BreakerOpened(Latch(epoch(3), "1006 pods due at once, more than 5"))]


def test_during_a_pause_not_even_one_is_about_to_go() -> None:
    """Where none may be due at once."""
    it = brakes(BreakerPolicy(enabled=True, most_due=0), Orders(whole=Pause()))
    assert it.look({}, 7, moment(1)) == []
    ordered(it, 2, Orders())
    assert it.look({}, 7, moment(2)) == []


@pytest.mark.parametrize(
    "paused", [Orders(whole=Pause()), Orders(nodes={"n1": Pause()}), Orders(namespaces={"shop": Pause()})]
)
def test_whatever_is_resumed_somebody_knows_what_has_gathered(paused: Orders) -> None:
    """Of everything, of a node, of a namespace; a pause that merely stays says nothing."""
    it = brakes(ANY_NODE, paused)
    ordered(it, 1, paused)
    it.breaker.count_due(0)
    ordered(it, 2, Orders())
    assert it.look({}, 1000, moment(2)) == []
    other = brakes(ANY_NODE, Orders(nodes={"n9": Pause()}))
    ordered(other, 1, Orders(nodes={"n9": WHY}))
    assert other.look({}, 6, moment(2)) != []


# The breaker, as it stands in the cluster


def test_a_latch_in_the_cluster_opens_it_everywhere() -> None:
    """Its own time and cause."""
    it = brakes()
    latch = Latch(epoch(1), "elsewhere")
    assert ordered(it, 5, Orders(latch=latch)) == [BreakerOpened(latch)]
    assert ordered(it, 6, Orders(latch=Latch(epoch(2), "written again"))) == []
    assert it.breaker.latch == latch


def test_a_latch_that_is_known_stays_when_the_config_map_is_gone() -> None:
    """Nobody said that all is well."""
    it = brakes()
    ordered(it, 5, Orders(latch=Latch(epoch(1), "elsewhere")))
    assert ordered(it, 6, Orders()) == []
    assert it.whole() is Hold.BREAKER_OPEN


@pytest.mark.parametrize(("reset_at", "closed"), [(9.999, False), (10.0, True), (11.0, True)])
def test_a_reset_counts_if_it_is_not_older_than_the_latch(reset_at: float, closed: bool) -> None:
    """One that was meant for an earlier latch does not close this one."""
    it = brakes()
    ordered(it, 10, Orders(latch=Latch(epoch(10), "many")))
    effects = ordered(it, 12, Orders(reset_epoch=epoch(reset_at)))
    assert effects == ([BreakerClosed()] if closed else [])
    assert (it.whole() is None) is closed
    assert it.breaker.reset_epoch == (epoch(reset_at) if closed else None)


def test_a_reset_counts_once() -> None:
    """It stands in the cluster from then on, and says nothing of a wave that comes later."""
    it = brakes(ANY_NODE)
    nodes = tainted(it, 5)
    reset = Orders(reset_epoch=epoch(4))
    ordered(it, 4, reset)
    assert it.look(nodes, 0, moment(6)) != []
    assert ordered(it, 7, reset) == []
    assert it.whole() is Hold.BREAKER_OPEN
    assert ordered(it, 9, Orders(reset_epoch=epoch(8))) == [BreakerClosed()]
    assert it.look(nodes, 0, moment(9)) == []


def test_a_reset_counts_once_even_where_it_opens_again_at_the_same_instant() -> None:
    """A latch of exactly its time is no reason to take it for another one."""
    it = brakes(ANY_NODE)
    reset = Orders(reset_epoch=epoch(4))
    ordered(it, 4, reset)
    assert it.look({}, 6, moment(4)) != []
    assert ordered(it, 4, reset) == []
    assert it.whole() is Hold.BREAKER_OPEN


def test_a_second_reset_takes_in_what_has_come_since_the_first() -> None:
    """Also while the breaker is closed."""
    it = brakes(ANY_NODE)
    ordered(it, 4, Orders(reset_epoch=epoch(4)))
    ordered(it, 6, Orders(reset_epoch=epoch(6)))
    assert it.look(tainted(it, 5), 0, moment(7)) == []


def test_whoever_opens_it_by_hand_is_obeyed_whatever_time_is_written_there() -> None:
    """The last word in the cluster counts: a latch in place of a reset was written after it."""
    it = brakes()
    ordered(it, 10, Orders(reset_epoch=epoch(10)))
    latch = Latch(epoch(3), "by hand")
    assert ordered(it, 11, Orders(latch=latch)) == [BreakerOpened(latch)]
    assert ordered(it, 12, Orders(reset_epoch=epoch(12))) == [BreakerClosed()]


def test_one_that_closes_by_itself_is_told_and_not_opened_by_what_it_could_not_write_yet() -> None:
    """Its latch still stands in the cluster for a while; a newer one opens it again."""
    it = brakes(CLOSES)
    nodes = tainted(it)
    assert it.look(nodes, 0, moment(2)) == [BreakerOpened(Latch(epoch(2), CAUSE))]
    ordered(it, 3, Orders(latch=Latch(epoch(2), CAUSE)))
    it.breaker.node_changed("n1", ())
    assert it.look(nodes, 0, moment(4)) == [BreakerClosed()]
    assert ordered(it, 5, Orders(latch=Latch(epoch(2), CAUSE))) == []
    assert ordered(it, 5, Orders(latch=Latch(epoch(4), CAUSE))) == []
    assert it.whole() is None
    newer = Latch(epoch(4.5), "by another")
    assert ordered(it, 6, Orders(latch=newer)) == [BreakerOpened(newer)]


def test_what_cannot_be_read_holds_even_who_closed_it_by_itself() -> None:
    """Only a human knows what was meant."""
    it = brakes(CLOSES)
    nodes = tainted(it)
    it.look(nodes, 0, moment(2))
    it.breaker.node_changed("n1", ())
    it.look(nodes, 0, moment(4))
    unreadable = Latch(epoch(1), "shut", unreadable=True)
    assert ordered(it, 5, Orders(latch=unreadable)) == [BreakerOpened(unreadable)]


def test_what_cannot_be_read_holds_even_who_would_close_by_itself() -> None:
    """Nonsense that somebody writes over an open latch: the cause may go, and it stays open."""
    it = brakes(CLOSES)
    nodes = tainted(it)
    it.look(nodes, 0, moment(2))
    unreadable = Latch(epoch(1), "shut", unreadable=True)
    assert ordered(it, 3, Orders(latch=unreadable)) == []
    it.breaker.node_changed("n1", ())
    assert it.look(nodes, 0, moment(4)) == []
    assert ordered(it, 5, Orders(reset_epoch=epoch(5))) == [BreakerClosed()]


def test_nothing_is_due_while_everything_is_paused() -> None:
    """So however little the breaker bears, it does not open for what is held anyway."""
    it = brakes(BreakerPolicy(enabled=True, most_due=0), Orders(whole=WHY))
    assert it.look({}, 5, moment(1)) == []
    assert it.breaker.latch is None
    assert [type(effect) for effect in ordered(it, 2, NOTHING) + it.look({}, 0, moment(2))] == [Resumed]


def test_a_breaker_found_open_closes_by_itself_only_once_its_cause_was_seen_and_went() -> None:
    """What is not listed yet is not gone; and of the next time it is found open, nothing has been seen yet either."""
    it = brakes(CLOSES, None)
    ordered(it, 10, Orders(latch=Latch(epoch(5), CAUSE)))
    assert it.look({}, 0, moment(10)) == []
    nodes = tainted(it, 6)
    assert it.look(nodes, 0, moment(11)) == []
    it.breaker.node_changed("n1", ())
    assert it.look({}, 0, moment(12)) == [BreakerClosed()]
    ordered(it, 20, Orders(latch=Latch(epoch(19), CAUSE)))
    assert it.look({}, 0, moment(20)) == []
    assert it.breaker.latch is not None
