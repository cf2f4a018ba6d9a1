"""Turns a watch event (its type and an object as JSON) into a fact for the core.

An object that cannot be read gives no fact: its last known state stays. A deletion counts as soon as the object can be
identified. It also says which objects a watch need not bring, because the core knows them or does not need them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from taint_eviction.core.controller import Controller
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, PodGone, PodSeen
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.kube.json_fields import version_number
from taint_eviction.kube.kubernetes_objects import MalformedObject, read_node, read_pod
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.runtime.ports import NodesScope, WatchScope


class Observations:
    """Reads watch events and reports malformed objects.

    ``look_at_pod`` is called with the JSON of every pod, to see whether another controller evicts. ``parts`` of pods
    are read.
    """

    def __init__(
        self,
        malformed: MalformedObjects,
        look_at_pod: Callable[[Mapping[str, Any]], None] = lambda _: None,
        parts: PodParts = ALL_PARTS,
    ) -> None:
        self._malformed = malformed
        self._look_at_pod = look_at_pod
        self._read_pod = partial(read_pod, parts=parts)

    def interpret(self, scope: WatchScope, event_type: str | None, body: Mapping[str, Any]) -> Fact | None:
        """Return the fact; None if the event contains none."""
        if not isinstance(scope, NodesScope):
            self._look_at_pod(body)
        try:
            if event_type == "DELETED":
                return _gone(scope, body)
            if isinstance(scope, NodesScope):
                return NodeSeen(self._malformed.read(read_node, body), after_gap=event_type is None)
            return PodSeen(self._malformed.read(self._read_pod, body))
        except MalformedObject:
            return None

    def known_to(self, controller: Controller) -> Callable[[str, Mapping[str, Any]], bool]:
        """Return a function that returns whether the core knows this version of an object (kind and JSON), or a later
        one. The core knows objects that were listed before the watch began, and objects that an eviction has read or
        written. For a pod that is known to be terminating, no later version matters, unless other pods wait for its
        end.
        """

        def is_known(kind: str, body: Mapping[str, Any]) -> bool:
            if kind == "Pod":
                self._look_at_pod(body)
            identity = _identity(body)
            version = None if identity is None else version_number(body["metadata"])
            if identity is None or version is None:
                return False
            namespace, name, uid = identity
            if kind == "Node":
                return controller.nodes.knows(name, uid, version)
            terminating = body["metadata"].get("deletionTimestamp") is not None
            return controller.knows_pod(PodRef(NamespacedName(namespace, name), uid), version, terminating)

        return is_known


def matters_to(controller: Controller) -> Callable[[str, Mapping[str, Any]], bool]:
    """Return a function that returns whether the core needs an object (kind and JSON): nodes, and pods of watched
    nodes. Only the watch of all bound pods brings others. A pod whose node cannot be read is needed, to be reported as
    malformed.
    """

    def matters(kind: str, body: Mapping[str, Any]) -> bool:
        if kind != "Pod":
            return True
        node_name = (body.get("spec") or {}).get("nodeName")
        return not isinstance(node_name, str | None) or controller.watches(node_name)

    return matters


def _gone(scope: WatchScope, body: Mapping[str, Any]) -> Fact | None:
    identity = _identity(body)
    if identity is None:
        return None
    namespace, name, uid = identity
    if isinstance(scope, NodesScope):
        return NodeGone(name, uid)
    return PodGone(PodRef(NamespacedName(namespace, name), uid)) if namespace else None


def _identity(body: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return namespace ("" for none), name and UID; None if they cannot be read."""
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping):
        return None
    namespace, name, uid = metadata.get("namespace") or "", metadata.get("name"), metadata.get("uid")
    if isinstance(namespace, str) and isinstance(name, str) and isinstance(uid, str):
        return namespace, name, uid
    return None
