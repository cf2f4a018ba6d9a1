"""Reads a scenario's nodes and pods: in Kubernetes' own shape, with short forms for common fields.

Fields that decide are checked; other fields of Kubernetes are accepted as they are. Times may be seconds of the
scenario. An object under ``verbatim`` is accepted however malformed it is, to test the controller with it.
"""

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction.files import short_forms
from taint_eviction.files.marked_yaml import Marked, described
from taint_eviction_lab.simulation import kubernetes_fields as known
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.kubernetes_json import JsonObject
from taint_eviction_lab.simulation.taint_file import TaintReading

DEFAULT_NAMESPACE = "default"

_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


class ObjectReading(TaintReading):
    """Reads objects and their parts, and notes the names of all objects."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.node_names: set[str] = set()
        self.pod_names: set[NamespacedName] = set()
        # Names that are used, with their line: each must exist somewhere in the scenario.
        self._nodes_used: list[tuple[str, int]] = []
        self._pods_used: list[tuple[NamespacedName, int]] = []

    # Names

    def use_node(self, at: Marked, what: str = "a node") -> str:
        """Read the name of a node."""
        name = self.text(at, what)
        if name:
            self._nodes_used.append((name, at.line))
        return name

    def use_pod(self, at: Marked, what: str = "a pod") -> NamespacedName:
        """Read the name of a pod: ``name`` or ``namespace/name``."""
        key = named(self.text(at, what))
        if key.name:
            self._pods_used.append((key, at.line))
        return key

    def check_names(self) -> None:
        """Note a problem for every name that no object of the scenario has."""
        nodes = {name: name for name in self.node_names}
        for node, line in self._nodes_used:
            if node not in nodes:
                self.problem(line, f"no node of this scenario is called {node!r}{self._nearest(node, nodes)}")
        pods = {written(key) for key in self.pod_names}
        for pod, line in self._pods_used:
            if pod not in self.pod_names:
                name = written(pod)
                self.problem(line, f"no pod of this scenario is called {name!r}{self._nearest(name, pods)}")

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
        self.node_names |= {body["metadata"]["name"] for body in found}
        return found

    def pods(self, at: Marked) -> list[JsonObject]:
        """Read a pod; several if its name has a range."""
        if (verbatim := self._verbatim(at)) is not None:
            found = [verbatim]
        else:
            parts = self._parts(at, known.POD_SHORT, "a pod", known.POD_SPEC, known.POD_STATUS)
            body = self._assemble(parts, {"spec": self._pod_spec, "status": self._pod_status})
            if (hold := body["metadata"].pop("hold", None)) is not None:
                body = kube.with_annotations(body, {kube.HOLD_ANNOTATION: hold})
            found = self._bound(self._named(parts, body, at.line, "a pod"), parts)
        for body in found:
            body["metadata"].setdefault("namespace", DEFAULT_NAMESPACE)
            self.pod_names.add(NamespacedName(body["metadata"]["namespace"], body["metadata"]["name"]))
        return found

    def _bound(self, pods: list[JsonObject], parts: Mapping[str, Mapping[str, Marked]]) -> list[JsonObject]:
        """Bind pods in turn to the nodes of a range."""
        at = parts["spec"].get("nodeName")
        if at is None or not isinstance(at.value, str):
            return pods
        nodes = self._expanded(at, at.value)
        for node in nodes:
            self._nodes_used.append((node, at.line))
        return [
            {**body, "spec": {**body["spec"], "nodeName": node}}
            for body, node in zip(pods, itertools.cycle(nodes), strict=False)
        ]

    def _expanded(self, at: Marked, name: str) -> list[str]:
        try:
            return short_forms.expand_range(name)
        except ValueError as expected:
            self.problem(at.line, f"{name!r} is not {expected}")
            return []

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
        names = self._expanded(at, name)
        return [{**body, "metadata": {**body["metadata"], "name": each}} for each in names]

    def _metadata(self, name: str, value: Marked) -> Any:
        if name in ("name", "namespace", "uid", "zone"):
            return self.text(value, name)
        if name in ("creationTimestamp", "deletionTimestamp"):
            return self.time(value, name)
        if name in ("annotations", "labels"):
            return self._texts(value, name)
        if name == "hold":
            return self._hold(value)
        if name == "finalizers":
            return [self.text(item, "a finalizer") for item in self.items(value, name)]
        return value.plain()

    def _texts(self, at: Marked, what: str) -> dict[str, str]:
        if not isinstance(at.value, dict):
            self.problem(at.line, f"{what} must be a mapping, not {described(at)}")
            return {}
        return {key: self.text(item, f"{what}.{key}") for key, item in at.value.items()}

    def _hold(self, at: Marked) -> str:
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


def _as_it_is(_: str, value: Marked) -> Any:
    return value.plain()


def named(text: str) -> NamespacedName:
    """Split ``name`` or ``namespace/name``."""
    namespace, slash, name = text.partition("/")
    return NamespacedName(namespace, name) if slash else NamespacedName(DEFAULT_NAMESPACE, text)


def written(key: NamespacedName) -> str:
    """Return a pod's name in its shortest form."""
    return key.name if key.namespace == DEFAULT_NAMESPACE else str(key)
