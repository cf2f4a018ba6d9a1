"""Compares a replay with that of the model of the built-in controller, pod by pod.

Each was played in a cluster of its own, with the same steps and faults. A pod is one UID: UIDs are the same in both
clusters as long as the same pods were created in the same order.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from taint_eviction.core.built_in import SAME_SECONDS
from taint_eviction.core.text import many
from taint_eviction_lab.built_in.version import BuiltIn, BuiltInVersion
from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.scenario import Scenario
from taint_eviction_lab.simulation.timeline import TimelineEntry, What


class Difference(Enum):
    """What the built-in controller does with a pod, compared with this controller; the value is for people."""

    SAME = "the same"
    NEITHER = "stays with both"
    LATER = "later"
    EARLIER = "earlier"
    NEVER = "never evicts it"
    ALONE = "evicts it, this one does not"


@dataclass(frozen=True, slots=True)
class PodComparison:
    """When each of the two controllers evicted a pod, None: never; ``why``: further reports of the model."""

    pod: str
    uid: str
    evicted_at: float | None
    built_in_at: float | None
    why: str

    @property
    def difference(self) -> Difference:
        """Return the difference."""
        if self.evicted_at is None:
            return Difference.NEITHER if self.built_in_at is None else Difference.ALONE
        if self.built_in_at is None:
            return Difference.NEVER
        seconds = self.built_in_at - self.evicted_at
        if abs(seconds) <= SAME_SECONDS:
            return Difference.SAME
        return Difference.LATER if seconds > 0 else Difference.EARLIER

    @property
    def differs(self) -> bool:
        """Return whether the two controllers differ."""
        return self.difference not in (Difference.SAME, Difference.NEITHER)

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "pod": self.pod,
            "uid": self.uid,
            "evictedAt": self.evicted_at,
            "builtInEvictedAt": self.built_in_at,
            "difference": self.difference.name.lower(),
            "why": self.why or None,
        }


@dataclass(frozen=True, slots=True)
class AgainstModel:
    """All pods of a scenario, and the steps that were impossible in the model's cluster."""

    version: BuiltInVersion
    pods: tuple[PodComparison, ...]
    left_out: tuple[TimelineEntry, ...]

    @property
    def differing(self) -> tuple[PodComparison, ...]:
        """The pods that the two controllers treat differently."""
        return tuple(pod for pod in self.pods if pod.differs)

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "builtIn": str(self.version),
            "pods": [pod.as_json() for pod in self.pods],
            "stepsLeftOut": [{"at": entry.at, "step": entry.subject, "why": entry.why} for entry in self.left_out],
        }


def alone(scenario: Scenario) -> Scenario:
    """Return the scenario without the built-in controller."""
    return replace(scenario, built_in=None)


def by_built_in(scenario: Scenario, version: BuiltInVersion) -> Scenario:
    """Return the scenario with the model in the controller's place."""
    return replace(scenario, built_in=BuiltIn(version, alone=True))


def compare(version: BuiltInVersion, own: ReplayResult, other: ReplayResult) -> AgainstModel:
    """Compare a replay with that of the model."""
    evicted, built_in = _evictions(own), _evictions(other)
    said = {pod: _said(other, *pod) for pod in {*own.pods, *other.pods}}
    pods = tuple(
        PodComparison(*pod, evicted.get(pod), built_in.get(pod), said[pod]) for pod in sorted({*own.pods, *other.pods})
    )
    return AgainstModel(version, pods, tuple(entry for entry in other.timeline if entry.what is What.LEFT_OUT))


def _evictions(result: ReplayResult) -> dict[tuple[str, str], float]:
    return {(entry.subject, entry.uid): entry.at for entry in result.timeline if entry.what is What.EVICTED}


def _said(result: ReplayResult, pod: str, uid: str) -> str:
    """Return the model's reports: that it gave up, and how often it deleted a pod that was already terminating."""
    words = [entry.why for entry in result.timeline if entry.subject == pod and entry.what is What.GAVE_UP]
    again = sum(entry.what is What.DELETED_AGAIN and entry.uid == uid for entry in result.timeline)
    last = [f"gave up {words[-1]}"] if words else []
    return ", ".join(last + [f"deleted again {many(again, 'time')}"] * bool(again))
