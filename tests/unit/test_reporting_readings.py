"""What metrics read from a running controller, where that is more than passing on a number."""

from types import SimpleNamespace
from typing import Any

from tests.unit.builders import Stage, moment, node, pod, taint
from tests.unit.runtime_fakes import FakeGate

from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.events import Failed
from taint_eviction.core.instants import Moment
from taint_eviction.reporting.metrics import Readings
from taint_eviction.reporting.readings import readings_of


class StageClock:
    """The clock of a stage, which is never off."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def now(self) -> Moment:
        return moment(self._stage.now)

    def disagreement_seconds(self) -> float:
        """All agree."""
        return 0.0

    def host_offset_seconds(self) -> float:
        return 0.0


class QuietEngine:
    """Watches that have listed everything, and nothing beside the core."""

    control_state = adopter = policy_check = None

    def __init__(self, stage: Stage) -> None:
        self.live = SimpleNamespace(controller=stage.brain)

    def synced(self) -> bool:
        return True

    def silences(self) -> dict[str, float]:
        return {}


def readings(stage: Stage, gate: FakeGate) -> Readings:
    clock: Any = StageClock(stage)
    engine: Any = QuietEngine(stage)
    return readings_of(
        engine,
        clock,
        gate,
        policy_invalid=lambda: False,
        credential_failures=lambda: 0,
        certificate_ends=dict,
        keeper=None,
    )


def refused() -> Stage:
    """A stage with one pod that was refused at 0, and is to be tried again at 30."""
    stage = Stage()
    stage.sees(node(taint()), pod())
    [work] = stage.take()
    stage.finish(work, Failed("denied", 30.0))
    return stage


def test_only_the_leader_reports_failures() -> None:
    """A standby that led before remembers its failures, but another leader may have held or evicted the pod since."""
    stage, gate = refused(), FakeGate()
    stage.at(400.0)
    read = readings(stage, gate)
    assert (read.retrying(), read.longest_blocked_seconds()) == (1, 400.0)
    gate.open = False
    assert (read.retrying(), read.longest_blocked_seconds(), read.blocked(), read.waiting()) == (0, 0.0, {}, {})


def test_a_pod_that_a_pause_holds_does_not_count_as_blocked() -> None:
    """People who pause evictions to repair what refuses them get no alert until the pause ends."""
    stage = refused()
    read = readings(stage, FakeGate())
    stage.at(400.0).order(ControlState(cluster=Pause()))
    assert (read.retrying(), read.longest_blocked_seconds()) == (1, 0.0)
    stage.order(ControlState())
    assert read.longest_blocked_seconds() == 400.0


def test_pods_that_wait_are_counted_by_what_they_wait_for() -> None:
    """The reasons have the names that status uses; a pod whose eviction is under way does not count."""
    stage = Stage()
    stage.sees(node(taint()), pod(), node(taint(), name="n2"), pod(name="web-1", uid="b", on="n2"))
    stage.order(ControlState(nodes={"n1": Pause()}))
    read = readings(stage, FakeGate())
    stage.take()
    assert read.waiting() == {"node_paused": 1, "settling": 0}
    assert read.tainted_nodes() == 2
