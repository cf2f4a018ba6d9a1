"""The arithmetic of PodDisruptionBudgets: what a budget allows now, and what remains after pods leave. Pure and
pessimistic: it assumes that no pod that leaves is replaced in time. A budget's own status counts if it is up to date.
Otherwise healthy and desired pods are counted from the known pods; a percentage is then a share of the known pods.

Reference: pkg/controller/disruption and pkg/registry/core/pod/storage/eviction.go
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from taint_eviction.core.label_selectors import LabelSelector
from taint_eviction.core.objects import NamespacedName, PodRef


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """What the disruption controller has counted."""

    healthy: int
    desired: int
    expected: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget. ``selector`` None chooses no pod, an empty one every pod of its namespace.

    ``min_available`` and ``max_unavailable`` are numbers of pods or percentages ("30%"). ``always_allow_unhealthy``:
    unhealthyPodEvictionPolicy AlwaysAllow. ``status`` is None if there is none, or if it is older than the spec.
    """

    key: NamespacedName
    selector: LabelSelector | None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    always_allow_unhealthy: bool = False
    status: BudgetStatus | None = None

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True)
class CoveredPod:
    """A pod as budgets see it. ``past_budgets``: pending, finished or terminating, so that no budget protects it."""

    ref: PodRef
    ready: bool
    past_budgets: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """A budget before anything leaves; ``counted``: from the pods that are known, since no status could be used."""

    healthy: int
    desired: int
    expected: int
    allowed: int
    counted: bool


def standing(budget: Budget, pods: Sequence[CoveredPod]) -> Standing:
    """Return the state of a budget, given the pods that it covers."""
    status = budget.status
    if status is not None:
        return Standing(status.healthy, status.desired, status.expected, status.allowed, counted=False)
    healthy = sum(pod.ready and not pod.past_budgets for pod in pods)
    total = len(pods)
    if budget.max_unavailable is not None:
        desired = max(0, total - scaled(budget.max_unavailable, total))
    else:
        desired = scaled(1 if budget.min_available is None else budget.min_available, total)
    return Standing(healthy, desired, total, max(0, healthy - desired) if total else 0, counted=True)


def scaled(value: int | str, total: int) -> int:
    """Return a number of pods as it is, a percentage as its share of ``total``, rounded up."""
    return value if isinstance(value, int) else math.ceil(int(value.removesuffix("%")) * total / 100)


# Deleting


@dataclass(frozen=True, slots=True)
class Violation:
    """A budget that deletions violate: first at ``at``, and in the end with only ``lowest`` healthy pods."""

    at: float
    lowest: int


def violation(before: Standing, departures: Iterable[tuple[float, CoveredPod]]) -> Violation | None:
    """Return how pods that leave, in order of time, violate a budget; None if they do not."""
    healthy, first_at = before.healthy, None
    for at, pod in departures:
        if not pod.ready or pod.past_budgets:
            continue
        healthy -= 1
        if first_at is None and healthy < before.desired:
            first_at = at
    return None if first_at is None else Violation(first_at, max(0, healthy))


# Evicting


class EvictionVerdict(Enum):
    """How the eviction API would answer for a pod."""

    ALLOWED = "allowed"
    BLOCKED = "its budget allows no more disruptions"
    SEVERAL_BUDGETS = "more than one budget covers it, which the eviction API does not support"


class EvictionApi:
    """Answers evictions in the order of their requests, and counts all pods that leave."""

    def __init__(self, standings: dict[NamespacedName, Standing]) -> None:
        self._standings = standings
        self._allowed = {key: each.allowed for key, each in standings.items()}

    def evict(self, pod: CoveredPod, budgets: Sequence[Budget]) -> EvictionVerdict:
        """Return the answer to an eviction of ``pod``, covered by these budgets, after the requests before it."""
        if pod.past_budgets or not budgets:
            return EvictionVerdict.ALLOWED
        if len(budgets) > 1:
            return EvictionVerdict.SEVERAL_BUDGETS
        budget = budgets[0]
        if not pod.ready and self._passes_unhealthy(budget):
            return EvictionVerdict.ALLOWED
        if self._allowed[budget.key] <= 0:
            return EvictionVerdict.BLOCKED
        self._allowed[budget.key] -= 1
        return EvictionVerdict.ALLOWED

    def delete(self, pod: CoveredPod, budgets: Iterable[Budget]) -> None:
        """Count a pod as deleted without the eviction API: its budgets allow one disruption less."""
        for budget in budgets if pod.ready and not pod.past_budgets else ():
            self._allowed[budget.key] -= 1

    def _passes_unhealthy(self, budget: Budget) -> bool:
        at = self._standings[budget.key]
        return budget.always_allow_unhealthy or (at.desired > 0 and at.healthy >= at.desired)
