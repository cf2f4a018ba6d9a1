"""A stand-in for the disruption controller: keeps the status of PodDisruptionBudgets up to date.
Like the real one it works asynchronously, a moment after pods or budgets change (`delay_seconds`), and can
be paused, so that evictions meet a stale status. Percentages and maxUnavailable refer to the desired number of
pods: the real one takes it from ReplicaSets and StatefulSets, this one from the function `scale`.
Reference: kubernetes/pkg/controller/disruption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from .clock import CallLater, call_later, parse_timestamp
from .records import Change, Selection, StoredObject
from .registry import Registry, WriteOptions
from .resources import RESOURCES
from .selectors import LabelSelector, labels_match, selector_of
from .status import JsonObject

DISRUPTION_TIMEOUT_SECONDS = 120.0
_FINISHED = frozenset({"Succeeded", "Failed"})
_PODS, _BUDGETS = RESOURCES["pods"], RESOURCES["poddisruptionbudgets"]
_WRITE = WriteOptions(manager="kube-controller-manager", subresource="status")


def is_ready(pod: JsonObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def matching_budgets(registry: Registry, pod: StoredObject) -> list[StoredObject]:
    """Budgets that cover a pod: an empty selector covers all pods of its namespace, an absent one none."""
    budgets = registry.store.select(Selection(_BUDGETS, pod.namespace))
    return [budget for budget in budgets if _covers(budget.decode(), pod)]


def _covers(budget: JsonObject, pod: StoredObject) -> bool:
    selector = selector_of(budget["spec"].get("selector"))
    return selector is not None and labels_match(selector, pod.labels)


def scaled(value: int | str, total: int) -> int:
    """An int as it is, a percentage of the total rounded up."""
    if isinstance(value, int):
        return value
    return math.ceil(int(value.removesuffix("%")) * total / 100)


@dataclass(frozen=True, slots=True)
class PodHealth:
    """The state of a pod that a budget counts. `alive`: neither terminating nor finished."""

    name: str
    ready: bool
    terminating: bool
    alive: bool


Scale = Callable[[StoredObject, LabelSelector, Sequence[PodHealth]], int]
"""How many pods should be there for a budget: its record, its selector, and the pods that are there now."""


def present(budget: StoredObject, selector: LabelSelector, pods: Sequence[PodHealth]) -> int:
    """The scale of pods that are not recreated: as many as there are."""
    return len(pods)


@dataclass(slots=True)
class Budgets:
    """Recomputes on every change of a pod or budget in a namespace that has budgets."""

    registry: Registry
    delay_seconds: float = 0.0
    paused: bool = False
    scale: Scale = present
    call_later: CallLater = call_later
    _pending: set[str] = field(default_factory=set)
    _facts: dict[str, tuple[int, PodHealth]] = field(default_factory=dict)

    def notice(self, change: Change) -> None:
        """Subscribed to the store."""
        plural, namespace = change.new.resource.plural, change.new.namespace
        if change.type == "DELETED":
            self._facts.pop(change.new.uid, None)
        if plural not in {"pods", "poddisruptionbudgets"} or namespace in self._pending:
            return
        if plural == "pods" and not self.registry.store.select(Selection(_BUDGETS, namespace)):
            return
        self._pending.add(namespace)
        try:
            self.call_later(self.delay_seconds, lambda: self.recompute(namespace))
        except RuntimeError:
            # No loop runs yet: objects are being set up, so do it at once.
            self.recompute(namespace)

    def resume(self) -> None:
        """Ends a pause and catches up."""
        self.paused = False
        self.catch_up()

    def catch_up(self) -> None:
        """Counts for all budgets now, unless paused."""
        for namespace in sorted({record.namespace for record in self.registry.store.select(Selection(_BUDGETS))}):
            self.recompute(namespace)

    def recompute(self, namespace: str) -> None:
        """Writes the status of each budget of a namespace where it changed."""
        self._pending.discard(namespace)
        if self.paused:
            return
        for record in self.registry.store.select(Selection(_BUDGETS, namespace)):
            budget = record.decode()
            generation = budget["metadata"].get("generation", 0)
            budget["status"] = {**(budget.get("status") or {}), "observedGeneration": generation}
            budget["status"] = self._status(budget, record)
            self.registry.replace(record, budget, _WRITE)

    def _status(self, budget: JsonObject, record: StoredObject) -> JsonObject:
        selector = selector_of(budget["spec"].get("selector"))
        pods = self.registry.store.select(Selection(_PODS, record.namespace, selector)) if selector is not None else []
        facts = [self._facts_of(pod) for pod in pods]
        disrupted = self._still_disrupted(budget, facts)
        healthy = sum(f.ready and not f.terminating and f.name not in disrupted for f in facts)
        scale = self.scale(record, selector, facts) if selector is not None else 0
        desired, expected = _desired(budget["spec"], len(pods), scale)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        status: JsonObject = {
            "observedGeneration": budget["metadata"].get("generation", 0),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": disruption_conditions(budget, allowed, self.registry.clock.timestamp()),
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        return status

    def _facts_of(self, record: StoredObject) -> PodHealth:
        """The state of a pod that budgets count, cached per version, because decoding all pods at each change is
        expensive.
        """
        known = self._facts.get(record.uid)
        if known is None or known[0] != record.resource_version:
            pod = record.decode()
            terminating = "deletionTimestamp" in pod["metadata"]
            alive = not terminating and record.field("status.phase") not in _FINISHED
            known = record.resource_version, PodHealth(record.name, is_ready(pod), terminating, alive)
            self._facts[record.uid] = known
        return known[1]

    def _still_disrupted(self, budget: JsonObject, facts: list[PodHealth]) -> dict[str, str]:
        """Evictions that were let through but whose pods have not been seen terminating, for two minutes."""
        waiting = {fact.name for fact in facts if not fact.terminating}
        limit = self.registry.clock.now() - timedelta(seconds=DISRUPTION_TIMEOUT_SECONDS)
        disrupted: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
        return {name: at for name, at in disrupted.items() if name in waiting and parse_timestamp(at) > limit}


def disruption_conditions(budget: JsonObject, allowed: int, timestamp: str) -> list[JsonObject]:
    """The one condition of a budget, with the time since when it is what it is."""
    status = "True" if allowed > 0 else "False"
    old = [c for c in (budget.get("status") or {}).get("conditions") or [] if c["type"] == "DisruptionAllowed"]
    since = old[0]["lastTransitionTime"] if old and old[0]["status"] == status else timestamp
    return [
        {
            "type": "DisruptionAllowed",
            "status": status,
            "observedGeneration": (budget.get("status") or {}).get("observedGeneration", 0),
            "lastTransitionTime": since,
            "reason": "SufficientPods" if allowed > 0 else "InsufficientPods",
            "message": "",
        }
    ]


def _desired(spec: JsonObject, found: int, scale: int) -> tuple[int, int]:
    """Healthy pods wanted, and pods expected at all."""
    if spec.get("maxUnavailable") is not None:
        return max(0, scale - scaled(spec["maxUnavailable"], scale)), scale
    minimum = spec.get("minAvailable", 1)
    return scaled(minimum, scale), found if isinstance(minimum, int) else scale
