"""The simulated ConfigMap with orders, and the door of a process to it."""

import pytest
from tests.simulation.scenario_texts import played

from taint_eviction.core.orders import Latch, Orders, Pause
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings
from taint_eviction.simulation.api import Network, SimulatedApi, World
from taint_eviction.simulation.cluster import Impossible
from taint_eviction.simulation.faults import Call, Picked, Trouble
from taint_eviction.simulation.orders import SimulatedOrders, SimulatedOrdersStore
from taint_eviction.simulation.pod_writes import PodWrites
from taint_eviction.simulation.stage import Stage
from taint_eviction.simulation.timeline import BREAKER, Timeline, What
from taint_eviction.simulation.virtual_clock import HostClock, ProcessClock, virtual_now
from taint_eviction.simulation.virtual_loop import run_virtually
from taint_eviction.wiring_simulation import production_parsing

READ = production_parsing().orders

WAVE = """
about: A wave.
settings: {breaker: {nodes: 0}}
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1}]
timeline:
  - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 60, resetBreaker: {}}
expect:
  breaker: {opened: 10, closed: 60}
  web-0: {evicted: {at: 60, within: 3}}
"""


def test_pauses_are_kept_side_by_side_and_taken_back_one_by_one() -> None:
    """A node's, a namespace's, and that of all."""

    async def main() -> None:
        orders = SimulatedOrders(Timeline(), READ)
        orders.pause(None, None, "why")
        orders.pause("node-1", None, "")
        orders.pause(None, "shop", "")
        pause = Pause(1893456000.5)
        assert orders.orders == Orders(Pause(1893456000.5, "why"), {"node-1": pause}, {"shop": pause})
        orders.resume(None, None, every=False)
        orders.resume("node-1", None, every=False)
        assert orders.orders == Orders(namespaces={"shop": pause})
        orders.resume(None, None, every=True)
        assert orders.orders == Orders()

    run_virtually(main())


def test_what_is_not_paused_cannot_be_resumed() -> None:
    """More likely a slip of the scenario than meant."""

    async def main() -> None:
        orders = SimulatedOrders(Timeline(), READ)
        with pytest.raises(Impossible, match="nothing is paused as a whole at this moment"):
            orders.resume(None, None, every=False)
        with pytest.raises(Impossible, match="'node-1' is not paused at this moment"):
            orders.resume("node-1", None, every=False)
        with pytest.raises(Impossible, match="there is no ConfigMap with orders at this moment"):
            orders.lose()

    run_virtually(main())


def test_a_latch_is_kept_unless_it_was_reset_since() -> None:
    """Pauses stay; the timeline has what was kept, and nothing twice."""

    async def main() -> None:
        timeline = Timeline()
        orders = SimulatedOrders(timeline, READ)
        orders.pause("node-1", None, "")
        orders.latch(Latch(100.0, "a wave"), "a")
        orders.latch(Latch(100.0, "a wave"), "b")
        orders.reset(200.0, "a human")
        orders.latch(Latch(150.0, "an older wave"), "b")
        assert orders.orders is not None
        assert (orders.orders.latch, orders.orders.reset_epoch) == (None, 200.0)
        assert list(orders.orders.nodes) == ["node-1"]
        told = [(entry.what, entry.why) for entry in timeline.about(BREAKER, *What)]
        assert told == [(What.BREAKER_OPENED, "a: a wave"), (What.BREAKER_CLOSED, "a human")]

    run_virtually(main())


def test_what_is_written_by_hand_holds_what_its_key_is_about() -> None:
    """Read as production reads it, so nonsense holds; what nobody knows changes nothing."""

    async def main() -> None:
        orders = SimulatedOrders(Timeline(), READ)
        orders.scribble("pauses", "yes")
        assert orders.orders == Orders()
        orders.scribble("pause-node.node-1", "yes")
        orders.scribble("breaker", "open")
        assert (orders.orders.whole, list(orders.orders.nodes), orders.orders.namespaces) == (None, ["node-1"], {})
        assert orders.orders.latch is not None
        assert orders.orders.latch.unreadable
        orders.latch(Latch(100.0, "a wave"), "a")
        assert orders.orders.latch.unreadable
        orders.reset(200.0, "a human")
        orders.resume(None, None, every=True)
        assert orders.orders == Orders(reset_epoch=200.0)

    run_virtually(main())


def test_orders_travel_like_every_call() -> None:
    """There and back, and with faults of their own."""

    async def main() -> None:
        stage = Stage(Timeline(), Settings(), production_parsing(), seed="test")
        writes = PodWrites(stage.cluster, stage.budgets, stage.timeline)
        world = World(stage.cluster, stage.faults, Network(), production_parsing(), stage.timeline, writes)
        store = SimulatedOrdersStore(SimulatedApi(world, ProcessClock(HostClock(), 0.0)), stage.orders)
        assert await store.read() is None
        assert virtual_now() == pytest.approx(0.01)
        await store.write_latch(Latch(100.0, "a wave"))
        await store.write_reset(200.0)
        assert await store.read() == Orders(reset_epoch=200.0)
        stage.faults.add(Picked(frozenset({Call.READ_ORDERS})), Trouble(fails=True, status=403))
        with pytest.raises(CallFailed, match="HTTP 403"):
            await store.read()

    run_virtually(main())


@pytest.mark.parametrize(
    ("old", "new", "expected", "seen"),
    [
        ("opened: 10", "opened: 20", "opened at 20", "opened at 10.025"),
        ("opened: 10, closed: 60", "closed: [60, 70]", "closed at 60, 70", "closed at 60.000"),
        ("closed: 60", "closed: []", "closed at never", "closed at 60.000"),
        ("  breaker: {opened: 10, closed: 60}\n", "", "opened at never", "opened at 10.025"),
    ],
)
def test_what_is_expected_of_the_breaker_can_be_broken(old: str, new: str, expected: str, seen: str) -> None:
    """Instants are complete; a breaker that nobody mentions must not open."""
    assert not played(WAVE).broken
    assert old in WAVE
    broken = [(verdict.pod, verdict.expected, verdict.seen) for verdict in played(WAVE.replace(old, new)).broken]
    assert broken == [(BREAKER, expected, seen)]
