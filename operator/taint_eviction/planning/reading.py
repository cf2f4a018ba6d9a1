"""Kubernetes JSON, as decoded, → the inventory: nodes, pods and budgets; other kinds are counted.

Nodes and pods are read as the controller reads them. Files are often written by hand, so what only a cluster fills in
(UID, namespace) may be missing there.
"""

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from taint_eviction.adapters.kubernetes_objects import MalformedObject, read_node, read_pod
from taint_eviction.core import label_selectors as selectors
from taint_eviction.core.disruption_budgets import Budget, BudgetStatus
from taint_eviction.core.label_selectors import LabelSelector, Requirement
from taint_eviction.core.objects import NamespacedName
from taint_eviction.planning.inventory import Inventory, Labels, NodeFacts, Owner, PodFacts

_MOST_PROBLEMS = 100


class InventoryReader:
    """Puts objects into an inventory, one after the other; ``place`` says where each stands."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory

    def put(self, body: Any, place: str) -> None:
        """Take in an object; whatever is wrong with it becomes a problem, and the others are not affected."""
        if not isinstance(body, Mapping):
            self.problem(place, f"an object was expected, not {type(body).__name__}")
            return
        kind = body.get("kind")
        try:
            match kind:
                case "Node":
                    self._put_node(body, place)
                case "Pod":
                    self._put_pod(body, place)
                case "PodDisruptionBudget":
                    budget = read_budget(body)
                    self.inventory.budgets[budget.key] = budget
                case _:
                    self.inventory.skipped[kind if isinstance(kind, str) and kind else "objects without a kind"] += 1
        except (MalformedObject, ValueError) as error:
            self.problem(place, str(error))

    def problem(self, place: str, what: str) -> None:
        """Note what could not be read; beyond a hundred only that there are more."""
        if len(self.inventory.problems) < _MOST_PROBLEMS:
            self.inventory.problems.append(f"{place}: {what}")
        elif len(self.inventory.problems) == _MOST_PROBLEMS:
            self.inventory.problems.append(f"{place}: and more like these")

    def _put_node(self, body: Mapping[str, Any], place: str) -> None:
        node, complaints = read_node(_completed(body, namespaced=False))
        self._complain(place, f"Node {node.name}", complaints)
        self.inventory.nodes[node.name] = NodeFacts(node, _labels(body))

    def _put_pod(self, body: Mapping[str, Any], place: str) -> None:
        pod, complaints = read_pod(_completed(body, namespaced=True))
        self._complain(place, f"Pod {pod.ref}", complaints)
        status = body.get("status")
        phase = status.get("phase") if isinstance(status, Mapping) else None
        facts = PodFacts(pod, _labels(body), _owner(body), _is_ready(status, pod.finished), phase == "Pending")
        self.inventory.pods[pod.ref.key] = facts

    def _complain(self, place: str, name: str, complaints: tuple[str, ...]) -> None:
        if complaints and len(self.inventory.complaints) < _MOST_PROBLEMS:
            self.inventory.complaints.append(f"{place}: {name}: {'; '.join(complaints)}")


def _completed(body: Mapping[str, Any], namespaced: bool) -> Mapping[str, Any]:
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        return body
    if metadata.get("uid") and (not namespaced or metadata.get("namespace")):
        return body
    filled = dict(metadata)
    if namespaced and not filled.get("namespace"):
        filled["namespace"] = "default"
    filled["uid"] = filled.get("uid") or f"written by hand: {filled.get('namespace', '')}/{filled['name']}"
    return {**body, "metadata": filled}


def _labels(body: Mapping[str, Any]) -> Labels:
    labels = (body.get("metadata") or {}).get("labels")
    if not isinstance(labels, Mapping):
        return {}
    return _shared_labels(tuple((str(key), str(value)) for key, value in labels.items()))


@lru_cache(8192)
def _shared_labels(items: tuple[tuple[str, str], ...]) -> Labels:
    return {sys.intern(key): sys.intern(value) for key, value in items}


def _owner(body: Mapping[str, Any]) -> Owner | None:
    """Return the owner that controls the pod: others (a Node for mirror pods, a custom resource) create nothing."""
    references = (body.get("metadata") or {}).get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, Mapping) and reference.get("controller") is True:
            return _shared_owner(str(reference.get("kind")), str(reference.get("name")))
    return None


@lru_cache(8192)
def _shared_owner(kind: str, name: str) -> Owner:
    return Owner(kind, name)


def _is_ready(status: object, finished: bool) -> bool:
    """Tell whether a pod counts as healthy; one written by hand, without conditions, is taken as ready."""
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    if not isinstance(conditions, list):
        return not finished
    return any(
        isinstance(condition, Mapping) and condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    )


# Budgets


def read_budget(body: Mapping[str, Any]) -> Budget:
    """Read a PodDisruptionBudget; raise ``ValueError`` if it cannot be used."""
    metadata = _mapping(body.get("metadata"), "metadata")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("PodDisruptionBudget ?: metadata.name is missing")
    namespace = metadata.get("namespace") or "default"
    key = NamespacedName(str(namespace), name)
    try:
        spec = _mapping(body.get("spec"), "spec")
        return Budget(
            key,
            _selector(spec.get("selector")),
            _amount(spec.get("minAvailable"), "spec.minAvailable"),
            _amount(spec.get("maxUnavailable"), "spec.maxUnavailable"),
            spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
            _status(metadata, body.get("status")),
        )
    except ValueError as error:
        raise ValueError(f"PodDisruptionBudget {key}: {error}") from None


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{path} is not an object")
    return value


def _amount(value: object, path: str) -> int | str | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.endswith("%") and value[:-1].isascii() and value[:-1].isdigit():
        return value
    raise ValueError(f"{path} is {value!r}, neither a number of pods nor a percentage")


def _selector(value: object) -> LabelSelector | None:
    """Read a selector: an absent one chooses no pod, an empty one all."""
    if value is None:
        return None
    spec = _mapping(value, "spec.selector")
    labels = _mapping(spec.get("matchLabels"), "spec.selector.matchLabels")
    terms = [Requirement(str(key), selectors.IN, frozenset([str(label)])) for key, label in labels.items()]
    expressions = spec.get("matchExpressions") or []
    if not isinstance(expressions, list):
        raise ValueError("spec.selector.matchExpressions is not a list")
    for index, expression in enumerate(expressions):
        path = f"spec.selector.matchExpressions[{index}]"
        term = _mapping(expression, path)
        values = term.get("values") or []
        if term.get("operator") not in selectors.OPERATORS or not isinstance(values, list):
            raise ValueError(f"{path} has no operator among {', '.join(selectors.OPERATORS)}")
        terms.append(Requirement(str(term.get("key")), term["operator"], frozenset(str(each) for each in values)))
    return tuple(terms)


def _status(metadata: Mapping[str, Any], value: object) -> BudgetStatus | None:
    status = value if isinstance(value, Mapping) else {}
    numbers = [status.get(name) for name in ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")]
    generation, observed = metadata.get("generation") or 0, status.get("observedGeneration") or 0
    if not all(type(number) is int for number in numbers) or not observed or observed < generation:
        return None
    return BudgetStatus(*(number for number in numbers if number is not None))
