"""Turns what a watch brings (an event type and an object as JSON) into a fact for the brain.

An object that can't be read gives no fact: what was last known of it stays. But that something is gone is believed as
soon as it says who it was. What the brain knows already need not be brought at all.
"""

from collections.abc import Callable, Mapping
from typing import Any

from taint_eviction.adapters.json_fields import version_number
from taint_eviction.adapters.kubernetes_objects import MalformedObject, read_node, read_pod
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.core.controller import Controller
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, PodGone, PodSeen
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.runtime.ports import NodesScope, WatchScope


class Observations:
    """Reads watch events; tells and counts what is malformed. ``look_at_pod`` is shown every pod, as JSON."""

    def __init__(
        self, malformed: MalformedObjects, look_at_pod: Callable[[Mapping[str, Any]], None] = lambda _: None
    ) -> None:
        self._malformed = malformed
        self._look_at_pod = look_at_pod

    def interpret(self, scope: WatchScope, event_type: str | None, body: Mapping[str, Any]) -> Fact | None:
        """Return the fact, None if there is none in it."""
        if not isinstance(scope, NodesScope):
            self._look_at_pod(body)
        try:
            if event_type == "DELETED":
                return _gone(scope, body)
            if isinstance(scope, NodesScope):
                node, complaints = read_node(body)
                if complaints:
                    self._malformed.complained(node, complaints)
                return NodeSeen(node, continuous=event_type is not None)
            pod, complaints = read_pod(body)
            if complaints:
                self._malformed.complained(pod, complaints)
            return PodSeen(pod)
        except MalformedObject as error:
            self._malformed.malformed(error)
            return None

    def known_to(self, controller: Controller) -> Callable[[str, Mapping[str, Any]], bool]:
        """Return what tells of an object (its kind and JSON) whether the brain knows this version of it or a later one.

        It does of what was listed before the watch began, and of what was written or read during an eviction; and once
        a pod is known to be going, what else changes of it does not matter.
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
                return controller.knows_node(name, uid, version)
            terminating = body["metadata"].get("deletionTimestamp") is not None
            return controller.knows_pod(PodRef(NamespacedName(namespace, name), uid), version, terminating)

        return is_known


def matters_to(controller: Controller) -> Callable[[str, Mapping[str, Any]], bool]:
    """Return what tells which objects (kind and JSON) to bring: all nodes, and pods of nodes that are or were tainted.

    That is for the watch of all bound pods. What names no node in a way that can be read is brought, to be told of.
    """

    def matters(kind: str, body: Mapping[str, Any]) -> bool:
        if kind != "Pod":
            return True
        node_name = (body.get("spec") or {}).get("nodeName")
        return not isinstance(node_name, str | None) or controller.attends(node_name)

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
    """Return namespace ("" for none), name and UID; None where they cannot be read."""
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping):
        return None
    namespace, name, uid = metadata.get("namespace") or "", metadata.get("name"), metadata.get("uid")
    if isinstance(namespace, str) and isinstance(name, str) and isinstance(uid, str):
        return namespace, name, uid
    return None
