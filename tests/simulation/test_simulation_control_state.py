"""The simulated ConfigMap with the control state, and a process's access to it."""

from dataclasses import replace

import pytest
from tests.simulation.scenario_texts import played

from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause, PauseScope
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation.calls import Network, SimulatedCalls, World
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.control_state import SimulatedControlState, SimulatedControlStateStore
from taint_eviction_lab.simulation.faults import CallFault, CallKind, Picked
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import BREAKER, Timeline, What
from taint_eviction_lab.simulation.virtual_clock import HostClock, ProcessClock, server_time, virtual_now
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing

READ = production_parsing().control_state

SURGE = """
about: A surge.
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


def test_pauses_of_different_scopes_end_one_by_one() -> None:
    """Pauses of a node, of a namespace and of the cluster exist side by side, and each can be resumed alone."""

    async def main() -> None:
        control_state = SimulatedControlState(Timeline(), READ)
        control_state.pause(EVERYTHING, "why")
        control_state.pause(PauseScope("node", "node-1"), "")
        control_state.pause(PauseScope("namespace", "shop"), "")
        pause = Pause(1893456000.5)
        assert control_state.control_state == ControlState(
            Pause(1893456000.5, "why"), {"node-1": pause}, {"shop": pause}
        )
        control_state.resume(EVERYTHING)
        control_state.resume(PauseScope("node", "node-1"))
        assert control_state.control_state == ControlState(namespaces={"shop": pause})
        control_state.resume(None)
        assert control_state.control_state == ControlState()

    run_virtually(main())


def test_what_is_not_paused_cannot_be_resumed() -> None:
    """A step that resumes what is not paused is an error, as it is probably a mistake of the scenario."""

    async def main() -> None:
        control_state = SimulatedControlState(Timeline(), READ)
        with pytest.raises(Impossible, match="all evictions are not paused at this moment"):
            control_state.resume(EVERYTHING)
        with pytest.raises(Impossible, match="evictions from node node-1 are not paused at this moment"):
            control_state.resume(PauseScope("node", "node-1"))
        with pytest.raises(Impossible, match="there is no ConfigMap with the control state at this moment"):
            control_state.lose()

    run_virtually(main())


def test_a_latch_is_kept_unless_it_was_reset_since() -> None:
    """An older latch than the reset is not kept. Pauses stay, and the timeline has each change once."""

    async def main() -> None:
        timeline = Timeline()
        control_state = SimulatedControlState(timeline, READ)
        control_state.pause(PauseScope("node", "node-1"), "")
        control_state.latch(Latch(100.0, "a surge"), "a")
        control_state.latch(Latch(100.0, "a surge"), "b")
        control_state.reset(200.0, "a human")
        control_state.latch(Latch(150.0, "an older surge"), "b")
        assert control_state.control_state is not None
        assert (control_state.control_state.latch, control_state.control_state.reset_epoch) == (None, 200.0)
        assert list(control_state.control_state.nodes) == ["node-1"]
        told = [(entry.what, entry.why) for entry in timeline.about(BREAKER, *What)]
        assert told == [(What.BREAKER_OPENED, "a: a surge"), (What.BREAKER_CLOSED, "a human")]

    run_virtually(main())


def test_a_wrong_date_of_the_breaker_is_corrected() -> None:
    """A latch or a reset gets its new date only if it still has the old one."""

    async def main() -> None:
        control_state = SimulatedControlState(Timeline(), READ)
        control_state.redate(100.0, 50.0)
        assert control_state.control_state is None
        control_state.latch(Latch(100.0, "a surge"), "a")
        control_state.redate(99.0, 50.0)
        control_state.redate(100.0, 60.0)
        assert control_state.control_state == ControlState(latch=Latch(60.0, "a surge"))
        control_state.reset(300.0, "a human")
        control_state.redate(300.0, 200.0)
        assert control_state.control_state == ControlState(reset_epoch=200.0)

    run_virtually(main())


def test_an_unreadable_value_pauses_the_scope_of_its_key() -> None:
    """Values written by hand are read as in production: unreadable ones hold back, unknown keys change nothing."""

    async def main() -> None:
        control_state = SimulatedControlState(Timeline(), READ)
        control_state.scribble("pauses", "yes")
        assert control_state.control_state == ControlState()
        control_state.scribble("pause-node.node-1", "yes")
        control_state.scribble("breaker", "open")
        assert (
            control_state.control_state.cluster,
            list(control_state.control_state.nodes),
            control_state.control_state.namespaces,
        ) == (None, ["node-1"], {})
        assert control_state.control_state.latch is not None
        assert control_state.control_state.latch.unreadable
        control_state.latch(Latch(100.0, "a surge"), "a")
        assert control_state.control_state.latch.unreadable
        control_state.reset(200.0, "a human")
        control_state.resume(None)
        assert control_state.control_state == ControlState(reset_epoch=200.0)
        control_state.scribble("breaker", "open")
        control_state.scribble("breaker", '{"open": false, "reset": "2030-01-01T00:00:00Z"}')
        assert control_state.control_state == ControlState(reset_epoch=server_time(-0.5))

    run_virtually(main())


def test_calls_about_the_control_state_take_time_and_can_fail() -> None:
    """Reads and writes of the control state take time on the network, as all calls do, and have faults of their own."""

    async def main() -> None:
        stage = ReplayStage(Timeline(), Settings(), production_parsing(), seed="test")
        writes = PodWrites(stage.cluster, stage.timeline)
        world = World(stage.cluster, stage.faults, Network(), production_parsing(), stage.timeline, writes)
        store = SimulatedControlStateStore(SimulatedCalls(world, ProcessClock(HostClock(), 0.0)), stage.control_state)
        assert await store.read() is None
        assert virtual_now() == pytest.approx(0.01)
        latch = Latch(100.0, "a surge", controller="another controller")
        await store.write_latch(latch)
        await store.close_latch(replace(latch, since_epoch=99.0), 150.0)
        await store.close_latch(latch, 200.0)
        assert await store.read() == ControlState(reset_epoch=200.0)
        stage.faults.add(Picked(frozenset({CallKind.READ_CONTROL_STATE})), CallFault(fails=True, status=403))
        with pytest.raises(CallFailed, match="HTTP 403"):
            await store.read()

    run_virtually(main())


@pytest.mark.parametrize(
    ("old", "new", "expected", "seen"),
    [
        ("opened: 10", "opened: 20", "opened at 20", "opened at 10.515"),
        ("opened: 10, closed: 60", "closed: [60, 70]", "closed at 60, 70", "closed at 60.000"),
        ("closed: 60", "closed: []", "never closed", "closed at 60.000"),
        ("  breaker: {opened: 10, closed: 60}\n", "", "never opened", "opened at 10.515"),
    ],
)
def test_every_expectation_about_the_breaker_can_be_broken(old: str, new: str, expected: str, seen: str) -> None:
    """All openings and closings must be expected; a breaker that a scenario does not mention must not open."""
    assert not played(SURGE).broken
    assert old in SURGE
    broken = [(verdict.pod, verdict.expected, verdict.seen) for verdict in played(SURGE.replace(old, new)).broken]
    assert broken == [(BREAKER, expected, seen)]
