"""Reads the objects of a scenario and their parts: in Kubernetes' own shape, with short forms for common fields.

Fields that decide are checked; other fields of Kubernetes are accepted as they are. Times may be seconds of the
scenario. An object under ``verbatim`` is accepted however malformed it is, to test the controller with it.
"""

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.text import JsonObject
from taint_eviction.files import short_forms
from taint_eviction.files.durations import parse_seconds
from taint_eviction.files.marked_yaml import Marked, Reading, described
from taint_eviction.kube.kubernetes_objects import HOLD_ANNOTATION
from taint_eviction_lab.simulation import kubernetes_fields as known
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.replica import BUILT_IN
from taint_eviction_lab.simulation.virtual_clock import timestamp

DEFAULT_NAMESPACE = "default"

_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_TOLERATION_OPERATORS = ("Equal", "Exists", "Gt", "Lt")
_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NUMBERS = ("minAvailable", "maxUnavailable")
_UNHEALTHY_POLICIES = ("IfHealthyBudget", "AlwaysAllow")
_BUILT_IN = "built-in"


class ObjectReading(Reading):
    """Reads objects, their parts and their names; returns an empty value, or None, if a problem leaves nothing.

    It notes which names and numbers are used, with their lines: each must exist somewhere in the scenario.
    """

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self._nodes: set[str] = set()
        self._pods: set[NamespacedName] = set()
        self._budgets: set[NamespacedName] = set()
        # By what is used: its names with their lines.
        self._used: dict[str, list[tuple[str, int]]] = {"node": [], "pod": [], "budget": []}
        self._replicas_used: list[tuple[int, int]] = []
        self._servers_used: list[tuple[int, int]] = []

    # Names and numbers

    def use_node(self, at: Marked) -> str:
        """Read the name of a node."""
        name = self.text(at, "a node")
        if name:
            self._used["node"].append((name, at.line))
        return name

    def use_pod(self, at: Marked) -> NamespacedName:
        """Read the name of a pod: ``name`` or ``namespace/name``."""
        key = named(self.text(at, "a pod"))
        if key.name:
            self._used["pod"].append((written(key), at.line))
        return key

    def use_budget(self, at: Marked) -> NamespacedName:
        """Read the name of a budget: ``name`` or ``namespace/name``."""
        key = named(self.text(at, "a budget"))
        self._used["budget"].append((written(key), at.line))
        return key

    def use_replica(self, at: Marked) -> int:
        """Read the number of a replica, or ``built-in``."""
        number = BUILT_IN if at.value == _BUILT_IN else self.whole_number(at, "replica", 1)
        self._replicas_used.append((number, at.line))
        return number

    def use_server(self, at: Marked) -> int:
        """Read the number of an API server."""
        server = self.whole_number(at, "server", 1)
        self._servers_used.append((server, at.line))
        return server

    def check_used(self, replicas: int, api_servers: int, built_in: bool) -> None:
        """Note a problem for each name and number that is used, and that the scenario does not have."""
        there_are_names = {
            "node": self._nodes,
            "pod": {written(key) for key in self._pods},
            "budget": {written(key) for key in self._budgets},
        }
        for what, names in there_are_names.items():
            for name, line in self._used[what]:
                if name not in names:
                    self.problem(line, f"no {what} of this scenario is called {name!r}{self._nearest(name, names)}")
        for what, numbers, there_are in (
            ("replica", self._replicas_used, replicas),
            ("API server", self._servers_used, api_servers),
        ):
            for number, line in numbers:
                if number > there_are:
                    self.problem(line, f"there is no {what} {number}: settings say {there_are}")
                elif number == BUILT_IN and not built_in:
                    self.problem(line, "there is no built-in controller: settings lack 'builtIn'")

    # Forms

    def words(self, at: Marked, least: int, what: str) -> list[Marked]:
        """Read a text of at least ``least`` words."""
        words = [Marked(word, at.line, {}) for word in str(at.value).split()]
        if not isinstance(at.value, str) or len(words) < least:
            self.problem(at.line, f"{what}, not {described(at)}")
            return []
        return words

    def needed(
        self, at: Marked, known: Collection[str], needed: Collection[str], what: str
    ) -> dict[str, Marked] | None:
        """Read a mapping; None if one of the ``needed`` keys is missing."""
        before = len(self.problems)
        fields = self.fields(at, known, what)
        if not isinstance(at.value, dict) or not self.only(fields, needed, at.line, what):
            return None
        return fields if len(self.problems) == before else None

    def one_or_more(self, at: Marked, what: str) -> list[Marked]:
        """Read one value, or a list of values."""
        return self.items(at, what) if isinstance(at.value, list) else [at]

    def span(self, at: Marked, what: str) -> float:
        """Read a duration in seconds, not below 0."""
        return self.seconds(at, what, 0.0)

    def expanded(self, at: Marked, name: str) -> list[str]:
        """Return all names of a range."""
        try:
            return short_forms.expand_range(name)
        except ValueError as expected:
            self.problem(at.line, f"{name!r} is not {expected}")
            return []

    # Times, taints and tolerations

    def time(self, at: Marked, what: str) -> str:
        """Read a time: as Kubernetes writes it, or a second of the scenario (negative: before its start)."""
        if isinstance(at.value, str) and "T" in at.value:
            return at.value
        try:
            return timestamp(parse_seconds(at.value))
        except ValueError:
            self.problem(at.line, f"{what} must be a time (2030-01-01T00:00:00Z, or seconds: -1h), not {described(at)}")
            return ""

    def taint(self, at: Marked) -> JsonObject:
        """Read a taint: ``key=value:Effect``, or Kubernetes' own shape; ``timeAdded: now`` is replaced by the step."""
        if isinstance(at.value, str):
            return self._short(at, short_forms.parse_taint)
        fields = self.fields(at, known.TAINT, "a taint")
        self.only(fields, ("key", "effect"), at.line, "a taint")
        taint = {name: self.text(value, name) for name, value in fields.items() if name in ("key", "value")}
        if "effect" in fields:
            taint["effect"] = self.text(fields["effect"], "effect", short_forms.EFFECTS)
        if "timeAdded" in fields:
            added = fields["timeAdded"]
            taint["timeAdded"] = "now" if added.value == "now" else self.time(added, "timeAdded")
        return taint

    def toleration(self, at: Marked) -> JsonObject:
        """Read a toleration: ``key=value:Effect for 30s``, or Kubernetes' own shape."""
        if isinstance(at.value, str):
            return self._short(at, short_forms.parse_toleration)
        fields = self.fields(at, known.TOLERATION, "a toleration")
        toleration: JsonObject = {
            name: self.text(value, name) for name, value in fields.items() if name in ("key", "value")
        }
        if "operator" in fields:
            toleration["operator"] = self.text(fields["operator"], "operator", _TOLERATION_OPERATORS)
        if "effect" in fields:
            toleration["effect"] = self.text(fields["effect"], "effect", short_forms.EFFECTS)
        if "tolerationSeconds" in fields:
            toleration["tolerationSeconds"] = self.whole_number(fields["tolerationSeconds"], "tolerationSeconds")
        return toleration

    def _short(self, at: Marked, parse: Callable[[str], JsonObject]) -> JsonObject:
        try:
            return parse(at.value)
        except ValueError as expected:
            self.problem(at.line, f"{at.value!r} is not {expected}")
            return {}

    # Objects

    def nodes(self, at: Marked) -> list[JsonObject]:
        """Read a node; several if its name has a range."""
        if isinstance(at.value, str):
            at = Marked({"name": at}, at.line, {"name": at.line})
        if (verbatim := self._verbatim(at)) is not None:
            found = [verbatim]
        else:
            parts = self._parts(at, known.NODE_SHORT, "a node", known.NODE_SPEC, known.NODE_STATUS)
            readers = {"spec": self._node_spec, "status": self._node_status}
            body = self._assemble(parts, readers)
            if (zone := body["metadata"].pop("zone", None)) is not None:
                body = kube.with_zone(body, zone)
            found = self._named(parts, body, at.line, "a node")
        self._nodes |= {body["metadata"]["name"] for body in found}
        return found

    def pods(self, at: Marked) -> list[JsonObject]:
        """Read a pod; several if its name has a range."""
        if (verbatim := self._verbatim(at)) is not None:
            found = [verbatim]
        else:
            parts = self._parts(at, known.POD_SHORT, "a pod", known.POD_SPEC, known.POD_STATUS)
            body = self._assemble(parts, {"spec": self._pod_spec, "status": self._pod_status})
            if (hold := body["metadata"].pop("hold", None)) is not None:
                body = kube.with_annotations(body, {HOLD_ANNOTATION: hold})
            found = self._bound(self._named(parts, body, at.line, "a pod"), parts)
        for body in found:
            body["metadata"].setdefault("namespace", DEFAULT_NAMESPACE)
            self._pods.add(NamespacedName(body["metadata"]["namespace"], body["metadata"]["name"]))
        return found

    def _bound(self, pods: list[JsonObject], parts: Mapping[str, Mapping[str, Marked]]) -> list[JsonObject]:
        """Bind pods in turn to the nodes of a range."""
        at = parts["spec"].get("nodeName")
        if at is None or not isinstance(at.value, str):
            return pods
        nodes = self.expanded(at, at.value)
        for node in nodes:
            self._used["node"].append((node, at.line))
        return [
            {**body, "spec": {**body["spec"], "nodeName": node}}
            for body, node in zip(pods, itertools.cycle(nodes), strict=False)
        ]

    def _verbatim(self, at: Marked) -> JsonObject | None:
        if not isinstance(at.value, dict) or "verbatim" not in at.value:
            return None
        self.fields(at, ("verbatim",), "an object that is taken verbatim")
        body = at.value["verbatim"].plain()
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
            return dict(body)
        self.problem(at.line, "an object that is taken verbatim still needs metadata.name")
        return {"metadata": {"name": "?"}}

    def _parts(
        self, at: Marked, short: Mapping[str, str], what: str, spec: Collection[str], status: Collection[str]
    ) -> dict[str, dict[str, Marked]]:
        """Sort an object's fields, wherever they are written, into metadata, spec and status."""
        long = {"metadata": known.METADATA, "spec": spec, "status": status}
        top = self.fields(at, {"apiVersion", "kind", *long, *short}, what)
        parts: dict[str, dict[str, Marked]] = {
            part: self.fields(top[part], names, f"{part} of {what}") if part in top else {}
            for part, names in long.items()
        }
        for name, part in short.items():
            if name in top:
                if name in parts[part]:
                    self.problem(at.key_lines[name], f"{name!r} is here and in {part}, too")
                parts[part][name] = top[name]
        return parts

    def _assemble(
        self,
        parts: Mapping[str, Mapping[str, Marked]],
        readers: Mapping[str, Callable[[str, Marked], Any]],
    ) -> JsonObject:
        body: JsonObject = {}
        for part, fields in parts.items():
            read = self._metadata if part == "metadata" else readers.get(part, _as_it_is)
            if fields or part == "metadata":
                body[part] = {name: read(name, value) for name, value in fields.items()}
        return body

    def _named(
        self, parts: Mapping[str, Mapping[str, Marked]], body: JsonObject, line: int, what: str
    ) -> list[JsonObject]:
        at = parts["metadata"].get("name")
        name = body["metadata"].get("name")
        if at is None or not name:
            if at is None:
                self.problem(line, f"{what} lacks 'name'")
            return []
        names = self.expanded(at, name)
        return [{**body, "metadata": {**body["metadata"], "name": each}} for each in names]

    def _metadata(self, name: str, value: Marked) -> Any:
        if name in ("name", "namespace", "uid", "zone"):
            return self.text(value, name)
        if name in ("creationTimestamp", "deletionTimestamp"):
            return self.time(value, name)
        if name in ("annotations", "labels"):
            return self.texts(value, name)
        if name == "hold":
            return self.hold(value)
        if name == "finalizers":
            return [self.text(item, "a finalizer") for item in self.items(value, name)]
        return value.plain()

    def texts(self, at: Marked, what: str) -> dict[str, str]:
        """Read a mapping of texts."""
        if not isinstance(at.value, dict):
            self.problem(at.line, f"{what} must be a mapping, not {described(at)}")
            return {}
        return {key: self.text(item, f"{what}.{key}") for key, item in at.value.items()}

    def hold(self, at: Marked) -> str:
        """Read the annotation for a hold: true, false, or a span; other values are kept as they are."""
        if isinstance(at.value, bool):
            return "true" if at.value else "false"
        return f"{at.value:g}" if isinstance(at.value, int | float) else self.text(at, "hold")

    def _node_spec(self, name: str, value: Marked) -> Any:
        if name == "taints":
            return [self.taint(item) for item in self.items(value, name)]
        return value.plain()

    def _node_status(self, name: str, value: Marked) -> Any:
        if name == "conditions":
            return [self._condition(item) for item in self.items(value, name)]
        return value.plain()

    def _pod_spec(self, name: str, value: Marked) -> Any:
        if name == "tolerations":
            return [self.toleration(item) for item in self.items(value, name)]
        if name == "nodeName":
            return self.text(value, name)
        if name == "terminationGracePeriodSeconds":
            return self.whole_number(value, name, 0)
        return value.plain()

    def _pod_status(self, name: str, value: Marked) -> Any:
        if name == "phase":
            return self.text(value, name, _PHASES)
        if name == "startTime":
            return self.time(value, name)
        if name == "conditions":
            return [self._condition(item) for item in self.items(value, name)]
        return value.plain()

    def _condition(self, at: Marked) -> JsonObject:
        fields = self.fields(at, known.CONDITION, "a condition")
        return {
            key: self.time(value, key) if key == "lastTransitionTime" else value.plain()
            for key, value in fields.items()
        }

    def budget(self, at: Marked) -> JsonObject | None:
        """Read a PodDisruptionBudget."""
        before = len(self.problems)
        parts = self._parts(at, known.BUDGET_SHORT, "a budget", known.BUDGET_SPEC, known.BUDGET_STATUS)
        metadata, spec = parts["metadata"], parts["spec"]
        if not self.only(metadata, ("name",), at.line, "a budget") or not self.only(
            spec, ("selector",), at.line, "a budget"
        ):
            return None
        if ("minAvailable" in spec) is ("maxUnavailable" in spec):
            self.problem(at.line, "a budget has either 'minAvailable' or 'maxUnavailable'")
        namespace = self.text(metadata["namespace"], "namespace") if "namespace" in metadata else DEFAULT_NAMESPACE
        key = NamespacedName(namespace, self.text(metadata["name"], "name"))
        selector, always = self._selector(spec["selector"]), self._always_allows(spec)
        numbers = {name: self._number_of_pods(spec[name], name) for name in _NUMBERS if name in spec}
        self._budgets.add(key)
        if len(self.problems) > before:
            return None
        policy = {"unhealthyPodEvictionPolicy": _UNHEALTHY_POLICIES[1]} if always else {}
        return {
            "metadata": {"namespace": key.namespace, "name": key.name},
            "spec": {"selector": selector, **numbers, **policy},
        }

    def _selector(self, at: Marked) -> JsonObject:
        """Read labels that a pod must have, or a selector in Kubernetes' own shape."""
        if not isinstance(at.value, dict) or not set(at.value) & {"matchLabels", "matchExpressions"}:
            return {"matchLabels": self.texts(at, "selector"), "matchExpressions": []}
        fields = self.fields(at, ("matchLabels", "matchExpressions"), "a selector")
        labels = self.texts(fields["matchLabels"], "matchLabels") if "matchLabels" in fields else {}
        terms: list[JsonObject] = []
        for item in self.items(fields.get("matchExpressions"), "matchExpressions"):
            term = self.needed(item, ("key", "operator", "values"), ("key", "operator"), "a match expression")
            if term is not None:
                values = [self.text(value, "a value") for value in self.items(term.get("values"), "values")]
                operator = self.text(term["operator"], "operator", _SELECTOR_OPERATORS)
                key = self.text(term["key"], "key")
                terms.append({"key": key, "operator": operator, "values": values})
        return {"matchLabels": labels, "matchExpressions": terms}

    def _number_of_pods(self, at: Marked, name: str) -> int | str:
        if isinstance(at.value, str) and at.value.endswith("%") and at.value[:-1].isascii() and at.value[:-1].isdigit():
            return at.value
        if isinstance(at.value, int) and not isinstance(at.value, bool) and at.value >= 0:
            return at.value
        self.problem(at.line, f"{name} must be a number of pods or a percentage (50%), not {described(at)}")
        return 0

    def _always_allows(self, spec: dict[str, Marked]) -> bool:
        name = "unhealthyPodEvictionPolicy"
        return name in spec and self.text(spec[name], name, _UNHEALTHY_POLICIES) == _UNHEALTHY_POLICIES[1]


def _as_it_is(_: str, value: Marked) -> Any:
    return value.plain()


def named(text: str) -> NamespacedName:
    """Split ``name`` or ``namespace/name``."""
    namespace, slash, name = text.partition("/")
    return NamespacedName(namespace, name) if slash else NamespacedName(DEFAULT_NAMESPACE, text)


def written(key: NamespacedName) -> str:
    """Return a pod's name in its shortest form."""
    return key.name if key.namespace == DEFAULT_NAMESPACE else str(key)
