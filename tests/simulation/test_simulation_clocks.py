"""Wrong clocks in simulations: the times in answers and objects of an API server, and a monotonic clock that drifts."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation.api import SimulatedApi
from taint_eviction_lab.simulation.calls import Network, SimulatedCalls, World
from taint_eviction_lab.simulation.faults import CallFault, CallKind, Picked
from taint_eviction_lab.simulation.node_steps import create_node
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline
from taint_eviction_lab.simulation.virtual_clock import (
    RIGHT_CLOCKS,
    ClockSettings,
    HostClock,
    ProcessClock,
    date_of,
    virtual_now,
)
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing


class Dates(ServerClock):
    """A clock that records how far each ``Date`` it receives is ahead."""

    def __init__(self, ahead: list[float]) -> None:
        super().__init__()
        self._ahead = ahead

    def heard_date(self, epoch: float, connection: int = 0, audited: bool = True) -> None:
        """Record how far this time is ahead."""
        self._ahead.append(epoch - date_of(virtual_now()))


class ClockScene:
    """One process's calls to the API servers, and the dates of their answers, as seconds ahead of the right ones."""

    def __init__(self, clocks: ClockSettings = RIGHT_CLOCKS) -> None:
        self.stage = ReplayStage(Timeline(), Settings(), production_parsing(), seed="test", clocks=clocks)
        self.cluster = self.stage.cluster
        writes = PodWrites(self.cluster, self.stage.timeline)
        network = Network(one_way_seconds=0.0)
        world = World(self.cluster, self.stage.faults, network, production_parsing(), self.stage.timeline, writes)
        self.ahead: list[float] = []
        clock = ProcessClock(HostClock(), 0.0)
        clock.server_clock = Dates(self.ahead)
        self.calls = SimulatedCalls(world, clock)
        self.api = SimulatedApi(world, self.calls)

    async def ask(self, times: int = 1) -> None:
        """Read a node this many times; the node need not exist."""
        for _ in range(times):
            await self.api.read_node("n1")


def on_scene(play: Callable[[ClockScene], Awaitable[None]], clocks: ClockSettings = RIGHT_CLOCKS) -> None:
    """Run a test's coroutine in virtual time."""

    async def main() -> None:
        await play(ClockScene(clocks))

    run_virtually(main())


def test_a_balancer_chooses_an_api_server_for_each_connection() -> None:
    """One of three API servers is ahead. A connection that is kept alive stays with its server; new ones go in turn."""

    async def play(scene: ClockScene) -> None:
        scene.cluster.clocks.step(3600, server=2)
        await scene.ask(6)
        assert scene.ahead == [3600] * 6
        await asyncio.sleep(16)
        await scene.ask(2)
        assert scene.ahead[6:] == [0, 0]
        for _ in range(6):
            await scene.calls.ask_time()
        assert sorted(scene.ahead[8:]) == [0, 0, 0, 0, 3600, 3600]

    on_scene(play, ClockSettings(api_servers=3))


def test_connections_to_an_api_server_that_is_away_end() -> None:
    """Later calls go to another server, and stay there when the first is back."""

    async def play(scene: ClockScene) -> None:
        scene.cluster.clocks.step(3600, server=2)
        await scene.ask()
        scene.cluster.clocks.stop(2, 10)
        await scene.ask()
        await asyncio.sleep(11)
        await scene.ask()
        assert scene.ahead == [3600, 0, 0]

    on_scene(play, ClockSettings(api_servers=2))


def test_a_proxy_chooses_an_api_server_for_each_request() -> None:
    """One of three API servers is ahead, then all of them are stepped back."""

    async def play(scene: ClockScene) -> None:
        scene.cluster.clocks.step(3600, server=2)
        await scene.ask(6)
        assert sorted(scene.ahead) == [0, 0, 0, 0, 3600, 3600]
        scene.cluster.clocks.step(-60, server=None)
        await scene.ask(3)
        assert sorted(scene.ahead[6:]) == [-60, -60, 3540]

    on_scene(play, ClockSettings(api_servers=3, per_request=True))


def test_objects_are_dated_by_the_first_api_server() -> None:
    """The creation time of an object follows the clock of the first API server, not that of the second."""

    async def play(scene: ClockScene) -> None:
        scene.cluster.clocks.step(3600, server=1)
        scene.cluster.clocks.step(60, server=2)
        create_node(scene.cluster, {"metadata": {"name": "n1"}})
        assert scene.cluster.body("nodes", "n1")["metadata"]["creationTimestamp"] == "2030-01-01T01:00:00Z"

    on_scene(play, ClockSettings(api_servers=2))


def test_an_answer_may_be_misdated_and_so_may_a_refusal() -> None:
    """A fault changes the date of as many answers as it says; later answers have the right date."""

    async def play(scene: ClockScene) -> None:
        picked = Picked(frozenset({CallKind.READ_NODE}), times=1)
        scene.stage.faults.add(picked, CallFault(date_ahead_seconds=7200))
        scene.stage.faults.add(picked, CallFault(fails=True, status=502, date_ahead_seconds=-30))
        await scene.ask()
        with pytest.raises(CallFailed):
            await scene.ask()
        await scene.ask()
        assert scene.ahead == [7200, -30, 0]

    on_scene(play)


def test_a_clock_that_drifts_changes_instants_and_not_the_timeline() -> None:
    """A process whose clock runs 1,000 ppm fast measures one second more in a thousand."""

    async def main() -> None:
        clock = ProcessClock(HostClock(drift_ppm=1000), 500.0)
        await asyncio.sleep(2000)
        assert clock.server_clock.now().at == pytest.approx(2502)
        assert clock.scenario_second(clock.server_clock.now().at) == 2000

    run_virtually(main())
