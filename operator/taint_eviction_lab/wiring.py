"""Connects production to replays: how Kubernetes objects are read, and which events are posted."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from taint_eviction.core.control_state import ControlState
from taint_eviction.core.objects import Node, Pod, PodRef
from taint_eviction.kube.control_state_data import read_control_state
from taint_eviction.kube.kubernetes_objects import MalformedObject, Parsed, read_node, read_pod
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.kube.observations import Observations
from taint_eviction.reporting.event_recorder import EventRecorder
from taint_eviction.reporting.reporters import EventReporter, LeaderReporter
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction.settings import Settings
from taint_eviction_lab.built_in.version import BuiltInVersion
from taint_eviction_lab.simulation.against import AgainstModel, alone, by_built_in, compare
from taint_eviction_lab.simulation.calls import Parsing
from taint_eviction_lab.simulation.replay import ReplayResult, replay
from taint_eviction_lab.simulation.scenario import Scenario
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import virtual_now

ObjectT = TypeVar("ObjectT", Node, Pod)


def replay_scenario(scenario: Scenario) -> ReplayResult:
    """Play a scenario with production's readers and writers; raise ``Malformed`` if a step is impossible."""
    return replay(scenario, production_parsing(), production_reporters)


def replay_against(scenario: Scenario, version: BuiltInVersion) -> tuple[ReplayResult, AgainstModel]:
    """Play a scenario twice, the second time through the model of the built-in controller, and compare."""
    own = replay_scenario(alone(scenario))
    other = replay(by_built_in(scenario, version), production_parsing(), leaves_out=True)
    return own, compare(version, own, other)


def production_parsing() -> Parsing:
    """Return parsers that read objects as production does; malformed objects are logged and keep their last state."""
    malformed = MalformedObjects(lambda kind: None)

    def reading(read: Callable[[object], Parsed[ObjectT]]) -> Callable[[Mapping[str, Any]], ObjectT | None]:
        def read_or_tell(body: Mapping[str, Any]) -> ObjectT | None:
            try:
                value, complaints = read(body)
            except MalformedObject as error:
                malformed.malformed(error)
                return None
            if complaints:
                malformed.complained(value, complaints)
            return value

        return read_or_tell

    return Parsing(reading(read_node), reading(read_pod), Observations(malformed).interpret, _control_state)


def _control_state(config_map: Mapping[str, Any]) -> ControlState:
    return read_control_state(config_map)[0]


class _Recorder:
    """Takes Kubernetes events, as ``EventRecorder`` does, and puts them on the timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def post(self, ref: PodRef, reason: str, message: str, type: str = "Normal") -> None:
        self._timeline.add(TimelineEntry(virtual_now(), What.EVENT, str(ref), ref.uid, f"{type} {reason}: {message}"))


def production_reporters(timeline: Timeline, gate: Gate) -> Iterable[Reporter]:
    """Return reporters that put the Kubernetes events of effects on the timeline."""
    return [LeaderReporter(gate, [EventReporter(cast(EventRecorder, _Recorder(timeline)), Settings())])]
