"""PodDisruptionBudgets of a simulated cluster, and the disruption controller that counts for them.

As the real one it counts a moment after pods or budgets have changed. Until then the API server goes by the last count,
and takes off it each eviction that it lets through. A workload wants as many pods as it ever had at once: whoever
evicts one has it recreated by a step.

Its own arithmetic, shared with nothing that is tried out in here. Not here: what an eviction does to its pod
(``pod_writes``).

Reference: pkg/controller/disruption and pkg/registry/core/pod/storage/eviction.go
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction.simulation import kubernetes_json as kube
from taint_eviction.simulation.cluster import Change, Impossible, SimulatedCluster
from taint_eviction.simulation.kubernetes_json import JsonObject
from taint_eviction.simulation.virtual_clock import virtual_now

# Pods in these phases pass every budget, as terminating ones do.
_PAST_BUDGETS = ("Pending", "Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Budget:
    """What somebody wrote: ``selector`` in Kubernetes' own shape; one of two numbers of pods or percentages ("50%")."""

    key: NamespacedName
    selector: JsonObject
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    always_allow_unhealthy: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the eviction API lets a pod stay: ``by`` one budget, or several; ``counted`` False: it is not known yet."""

    by: tuple[str, ...]
    why: str
    counted: bool = True


@dataclass(slots=True)
class _Standing:
    """One budget's status; ``counted`` False: it has changed since."""

    budget: Budget
    counted: bool = False
    wanted: int = 0
    healthy: int = 0
    desired: int = 0
    allowed: int = 0


class SimulatedBudgets:
    """All budgets.

    ``delay_seconds``: how long after a change it is counted. ``ready_seconds``: how long after it was bound a pod is
    ready; those bound by second 0 are ready at once. A condition Ready says otherwise.
    """

    def __init__(self, cluster: SimulatedCluster, delay_seconds: float = 0.1, ready_seconds: float = 0.0) -> None:
        self._cluster = cluster
        self._delay_seconds = delay_seconds
        self._ready_seconds = ready_seconds
        self._standings: dict[NamespacedName, _Standing] = {}
        self._ready_at: dict[str, float] = {}
        self._counting: asyncio.TimerHandle | None = None
        cluster.subscribe(self._notice)

    # What people do

    def create(self, budget: Budget) -> None:
        """Create a budget."""
        if budget.key in self._standings:
            raise Impossible(f"there is a budget {str(budget.key)!r} already")
        self._standings[budget.key] = _Standing(budget)
        self._count_soon(self._delay_seconds)

    def change(self, budget: Budget) -> None:
        """Write a budget's whole spec."""
        self.delete(budget.key)
        self.create(budget)

    def delete(self, key: NamespacedName) -> None:
        """Delete a budget."""
        if self._standings.pop(key, None) is None:
            raise Impossible(f"there is no budget {str(key)!r} at this moment")

    # What the disruption controller does

    def _notice(self, change: Change) -> None:
        if not change.is_pod:
            return
        uid, now = change.body["metadata"]["uid"], virtual_now()
        if change.event_type == "DELETED":
            self._ready_at.pop(uid, None)
        elif kube.node_name_of(change.body) is not None and uid not in self._ready_at:
            self._ready_at[uid] = now if now <= 0.0 else round(now + self._ready_seconds, 6)
            if now > 0.0 and self._ready_seconds:
                asyncio.get_running_loop().call_later(self._ready_seconds, self._count_soon, self._delay_seconds)
        self._count_soon(self._delay_seconds)

    def _count_soon(self, seconds: float) -> None:
        if self._counting is None and self._standings:
            self._counting = asyncio.get_running_loop().call_later(seconds, self.count)

    def count(self) -> None:
        """Bring every budget's status up to date."""
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None
        for standing in self._standings.values():
            pods = [pod for pod in self._cluster.pods.values() if _covers(standing.budget, pod)]
            staying = [pod for pod in pods if not kube.is_terminating(pod) and not _is_over(pod)]
            standing.wanted = max(standing.wanted, len(staying))
            standing.healthy = sum(self._is_ready(pod) for pod in staying)
            standing.desired = _desired(standing.budget, standing.wanted)
            standing.allowed = max(0, standing.healthy - standing.desired)
            standing.counted = True

    def _is_ready(self, pod: JsonObject) -> bool:
        for condition in kube.list_in(kube.part_of(pod, "status"), "conditions"):
            if condition.get("type") == "Ready":
                return bool(condition.get("status") == "True")
        return self._ready_at.get(pod["metadata"]["uid"], math.inf) <= virtual_now()

    # What the API server does

    def admit(self, pod: JsonObject) -> Refusal | None:
        """Let an eviction of this pod through, and take it off its budget; or say why not."""
        standings = [standing for standing in self._standings.values() if _covers(standing.budget, pod)]
        if not standings or kube.is_terminating(pod) or kube.part_of(pod, "status").get("phase") in _PAST_BUDGETS:
            return None
        if len(standings) > 1:
            names = tuple(sorted(standing.budget.key.name for standing in standings))
            return Refusal(names, "the eviction subresource does not support more than one PodDisruptionBudget")
        (standing,) = standings
        return None if self._passes_unhealthy(pod, standing) else _taken_off(standing)

    def _passes_unhealthy(self, pod: JsonObject, standing: _Standing) -> bool:
        """Pods that are not ready do not count as healthy: their going costs nothing."""
        if self._is_ready(pod):
            return False
        return standing.budget.always_allow_unhealthy or 0 < standing.desired <= standing.healthy


def _taken_off(standing: _Standing) -> Refusal | None:
    name = standing.budget.key.name
    if not standing.counted:
        return Refusal((name,), f"the disruption budget {name} is still being processed", counted=False)
    if standing.allowed == 0:
        needs = f"needs {standing.desired} healthy pods and has {standing.healthy} currently"
        return Refusal((name,), f"the disruption budget {name} {needs}")
    standing.allowed -= 1
    return None


def _is_over(pod: JsonObject) -> bool:
    return kube.part_of(pod, "status").get("phase") in ("Succeeded", "Failed")


def _desired(budget: Budget, wanted: int) -> int:
    if budget.max_unavailable is not None:
        return max(0, wanted - _scaled(budget.max_unavailable, wanted))
    return _scaled(budget.min_available or 0, wanted)


def _scaled(value: int | str, total: int) -> int:
    """Return a number as it is, a percentage as its share of ``total``, rounded up."""
    return value if isinstance(value, int) else math.ceil(int(value.removesuffix("%")) * total / 100)


def _covers(budget: Budget, pod: Mapping[str, Any]) -> bool:
    metadata = pod["metadata"]
    if metadata["namespace"] != budget.key.namespace:
        return False
    found = metadata.get("labels")
    labels = found if isinstance(found, Mapping) else {}
    wanted = budget.selector.get("matchLabels") or {}
    terms = budget.selector.get("matchExpressions") or []
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(term, labels) for term in terms
    )


def _holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found, values = labels.get(term["key"]), term["values"]
    if term["operator"] in ("In", "Exists"):
        return found is not None and (term["operator"] == "Exists" or found in values)
    return found is None or (term["operator"] == "NotIn" and found not in values)
