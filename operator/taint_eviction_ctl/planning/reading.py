"""Decoded Kubernetes objects → the inventory: nodes, pods and budgets; other kinds are counted.

Nodes and pods are read as the controller reads them. Files may be written by hand, so what only a cluster fills in
(UID, namespace) may be missing.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from taint_eviction.core.label_selectors import IN, LabelSelector, requirement
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.core.text import one_line
from taint_eviction.files.short_forms import EFFECTS
from taint_eviction.kube.kubernetes_objects import MalformedObject, read_node, read_pod
from taint_eviction_ctl.planning.disruption_budgets import Budget, BudgetStatus
from taint_eviction_ctl.planning.inventory import Inventory, NodeFacts, PodFacts

_MAX_PROBLEMS = 100
# Kubernetes allows any number of zeros before a percentage; Python refuses to read a number of so many digits.
_PERCENTAGE = re.compile(r"0*(?P<without_zeros>[0-9]{1,9}%)", re.ASCII)
_GROUPS = {"Node": "", "Pod": "", "PodDisruptionBudget": "policy"}
_TAINT_FORM = "a taint is written {{key: maintenance, value: now, effect: NoExecute}}, with an effect of {}".format(
    ", ".join(EFFECTS)
)
_JSON_WORDS = {"NoneType": "null", "list": "a list", "bool": "true or false"}
_JSON_WORDS["str"] = "text (kubectl prints objects with -o json)"

Body = Mapping[str, Any]
# Adds to the inventory what was read.
Putting = Callable[[], None]
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class InventoryReader:
    """Puts objects into an inventory, one after the other; ``place`` is the file and line of each.

    ``parts``: which parts of pods are read.
    """

    def __init__(self, inventory: Inventory, parts: PodParts = ALL_PARTS) -> None:
        self.inventory = inventory
        self._parts = parts

    def put(self, body: Any, place: str) -> None:
        """Add an object, or the items of a List; a malformed one becomes a problem, the others count."""
        for each in _unpacked(body):
            if isinstance(each, Mapping):
                self.read(each, place)()
            else:
                name = type(each).__name__
                self.problem(place, f"an object was expected, not {_JSON_WORDS.get(name, 'a number')}")

    def read(self, body: Body, place: str) -> Putting:
        """Read one object, and return what adds it; until then nothing changes, and nothing of ``body`` is kept."""
        try:
            match _kind(body):
                case "Node":
                    return self._read_node(body, place)
                case "Pod":
                    return self._read_pod(body, place)
                case "PodDisruptionBudget":
                    budget = _read_budget(body)
                    return partial(self._keep, self.inventory.budgets, budget.key, budget)
                case kind:
                    return partial(self.inventory.skipped.update, [kind])
        except (MalformedObject, ValueError) as error:
            text = str(error)
            return partial(self.problem, place, f"{text}; {_TAINT_FORM}" if "spec.taints" in text else text)

    def problem(self, place: str, what: str) -> None:
        """Note what could not be read."""
        self.inventory.unread += 1
        if len(self.inventory.problems) < _MAX_PROBLEMS:
            self.inventory.problems.append(f"{place}: {what}")

    def _read_node(self, body: Body, place: str) -> Putting:
        node, complaints = read_node(_completed(body, namespaced=False))
        facts = NodeFacts(node)
        lacks_taint = len((body.get("spec") or {}).get("taints") or ()) > len(node.taints)

        def put() -> None:
            self._keep(self.inventory.nodes, node.name, facts)
            if lacks_taint:
                # If a taint is missing, the plan may be wrong.
                self.problem(place, f"Node {node.name}: {'; '.join(complaints)}; {_TAINT_FORM}")
            else:
                self._complain(place, f"Node {node.name}", complaints)

        return put

    def _read_pod(self, body: Body, place: str) -> Putting:
        pod, complaints = read_pod(_completed(body, namespaced=True), self._parts)
        if body.get("spec") is None:
            raise ValueError(f"Pod {pod.ref}: spec is missing: has the text been cut?")
        status = body.get("status")
        phase = status.get("phase") if isinstance(status, Mapping) else None
        facts = PodFacts(pod, _is_ready(status, pod.finished), phase == "Pending")

        def put() -> None:
            self._complain(place, f"Pod {pod.ref}", complaints)
            self._keep(self.inventory.pods, pod.ref.key, facts)

        return put

    def _keep(self, kept: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> None:
        self.inventory.repeated += key in kept
        kept[key] = value

    def _complain(self, place: str, name: str, complaints: tuple[str, ...]) -> None:
        self.inventory.complained += bool(complaints)
        if complaints and len(self.inventory.complaints) < _MAX_PROBLEMS:
            self.inventory.complaints.append(f"{place}: {name}: {'; '.join(complaints)}")


def _unpacked(body: Any) -> Iterator[Any]:
    """Yield the items of a List and of Lists in it; other values are yielded themselves."""
    waiting = [body]
    while waiting:
        found = waiting.pop()
        kind = str(found.get("kind", "List")) if isinstance(found, Mapping) and "items" in found else ""
        if not kind.endswith("List"):
            yield found
            continue
        items = [] if found["items"] is None else found["items"]
        if not isinstance(items, list):
            items = [items]
        inner = {"kind": kind.removesuffix("List")} if kind != "List" else {}
        waiting += [{**inner, **item} if isinstance(item, Mapping) else item for item in reversed(items)]


def _kind(body: Body) -> str:
    """Return the kind, with the API group if it is not Kubernetes' own: other groups have kinds of the same name."""
    kind, version = body.get("kind"), body.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        return "without a kind"
    group = version.rpartition("/")[0] if isinstance(version, str) else _GROUPS.get(kind, "")
    return f"{kind}.{group}" if group != _GROUPS.get(kind, group) else kind


def _completed(body: Body, namespaced: bool) -> Body:
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        return body
    owners = metadata.get("ownerReferences")
    owners = [each for each in owners if isinstance(each, Mapping)] if isinstance(owners, list) else []
    has_uids = metadata.get("uid") and all(each.get("uid") for each in owners)
    if has_uids and (not namespaced or metadata.get("namespace")):
        return body
    filled = dict(metadata)
    if owners:
        filled["ownerReferences"] = [{**each, "uid": each.get("uid") or ""} for each in owners]
    if namespaced and not filled.get("namespace"):
        filled["namespace"] = "default"
    filled["uid"] = filled.get("uid") or f"written by hand: {filled.get('namespace', '')}/{filled['name']}"
    return {**body, "metadata": filled}


def _is_ready(status: object, finished: bool) -> bool:
    """Return whether a pod counts as healthy; one without conditions, written by hand, does unless it has finished."""
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    if not isinstance(conditions, list):
        return not finished
    return any(
        isinstance(condition, Mapping) and condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    )


# Budgets


def _read_budget(body: Body) -> Budget:
    """Read a PodDisruptionBudget; raise ``ValueError`` if it is malformed."""
    metadata = _mapping(body.get("metadata"), "metadata")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("PodDisruptionBudget ?: metadata.name is missing")
    namespace = metadata.get("namespace") or "default"
    key = NamespacedName(str(namespace), name)
    try:
        spec = _mapping(body.get("spec"), "spec")
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            raise ValueError("spec.minAvailable and spec.maxUnavailable exclude each other")
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
    percentage = _PERCENTAGE.fullmatch(value) if isinstance(value, str) else None
    if percentage is not None:
        return percentage["without_zeros"]
    raise ValueError(f"{path} is {one_line(repr(value))}, neither a number of pods nor a percentage")


def _selector(value: object) -> LabelSelector | None:
    """Read a selector; None: it is absent and matches no pod. An empty one matches all."""
    if value is None:
        return None
    spec = _mapping(value, "spec.selector")
    labels = _mapping(spec.get("matchLabels"), "spec.selector.matchLabels")
    terms = [requirement(str(key), IN, [str(label)]) for key, label in labels.items()]
    expressions = spec.get("matchExpressions") or []
    if not isinstance(expressions, list):
        raise ValueError("spec.selector.matchExpressions is not a list")
    for index, expression in enumerate(expressions):
        path = f"spec.selector.matchExpressions[{index}]"
        term = _mapping(expression, path)
        values = term.get("values") or []
        if not isinstance(values, list):
            raise ValueError(f"{path}.values is not a list")
        try:
            terms.append(requirement(str(term.get("key")), str(term.get("operator")), [str(each) for each in values]))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return tuple(terms)


def _status(metadata: Mapping[str, Any], value: object) -> BudgetStatus | None:
    status = value if isinstance(value, Mapping) else {}
    numbers = [status.get(name) for name in ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")]
    generation, observed = metadata.get("generation") or 0, status.get("observedGeneration") or 0
    if not all(type(number) is int for number in numbers) or not observed or observed < generation:
        return None
    return BudgetStatus(*(number for number in numbers if number is not None))
