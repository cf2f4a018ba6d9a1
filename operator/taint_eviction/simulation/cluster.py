"""The simulated cluster: nodes and pods as JSON, with versions, UIDs, times and deletion as an API server has them.

Every write makes a new object with the next resourceVersion (one sequence for all kinds) and tells it to subscribers,
at once and in order. Objects are never changed in place. UIDs are deterministic: name and a serial number. Times are
the server's, cut off to whole seconds.

Not here: faults, delays and the doors of the runtime (``api``, ``watches``), kubelets (``kubelets``).
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction.simulation import kubernetes_json as kube
from taint_eviction.simulation.kubernetes_json import JsonObject
from taint_eviction.simulation.timeline import Entry, Timeline, What
from taint_eviction.simulation.virtual_clock import timestamp, virtual_now

# What admission gives to pods that lack them (plugin DefaultTolerationSeconds).
_DEFAULT_TOLERATION_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Impossible(Exception):
    """A step asks for something that the cluster, as it is at that moment, cannot do."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write. ``event_type`` is ADDED, MODIFIED or DELETED; ``body`` the object as it was written, ``at`` when."""

    event_type: str
    body: JsonObject
    is_pod: bool
    at: float


class Deletion(Enum):
    """How a DELETE of a pod ended."""

    ACCEPTED = "accepted"
    ALREADY_TERMINATING = "it is terminating already"
    NOT_FOUND = "no such pod"
    OTHER_UID = "the name belongs to another UID"


class SimulatedCluster:
    """Nodes and pods, and who is told of their changes."""

    def __init__(self, timeline: Timeline, default_toleration_seconds: int | None = 300) -> None:
        self.nodes: dict[str, JsonObject] = {}
        self.pods: dict[NamespacedName, JsonObject] = {}
        self.resource_version = 100
        self._timeline = timeline
        self._default_toleration_seconds = default_toleration_seconds
        self._subscribers: list[Callable[[Change], None]] = []
        self._changes: list[Change] = []
        self._serials: dict[str, int] = {}
        self._last_pods: dict[NamespacedName, JsonObject] = {}
        self._last_nodes: dict[str, JsonObject] = {}

    def subscribe(self, subscriber: Callable[[Change], None]) -> Callable[[], None]:
        """Tell this subscriber of every change from now on; call what is returned to stop that."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def changes_since(self, version: int) -> list[Change]:
        """Return all changes after a version, oldest first."""
        first = bisect_right(self._changes, version, key=lambda change: int(change.body["metadata"]["resourceVersion"]))
        return self._changes[first:]

    def pods_at(self, at: float) -> list[JsonObject]:
        """List the pods as they were at an instant; those that were there from the beginning were there before it."""
        pods: dict[str, JsonObject] = {}
        for change in self._changes:
            if change.is_pod and change.at <= max(at, 0.0):
                uid = change.body["metadata"]["uid"]
                pods.pop(uid, None)
                if change.event_type != "DELETED":
                    pods[uid] = change.body
        return list(pods.values())

    # Nodes

    def node(self, name: str) -> JsonObject:
        """Return a node; raise ``Impossible`` if there is none of this name."""
        if name not in self.nodes:
            raise Impossible(f"there is no node {name!r} at this moment")
        return self.nodes[name]

    def create_node(self, body: Mapping[str, Any]) -> None:
        """Create a node from what its author wrote."""
        name = body["metadata"]["name"]
        if name in self.nodes:
            raise Impossible(f"there is a node {name!r} already")
        node = self._with_identity(body, name)
        if kube.taints_of(node) and "managedFields" not in node["metadata"]:
            node = kube.with_owner_of_taints(node, "kubectl-taint", timestamp(virtual_now()))
        self._commit("ADDED", node)

    def delete_node(self, name: str) -> None:
        """Delete a node; its pods stay, as they do until PodGC comes."""
        node = self.node(name)
        del self.nodes[name]
        self._commit("DELETED", node)

    def recreate_node(self, name: str, taints: list[JsonObject]) -> None:
        """Create a node of the same name: another UID, clean but for ``taints``; delete the old one if it is there."""
        last = self._last_nodes.get(name)
        if last is None:
            raise Impossible(f"there has never been a node {name!r}")
        if name in self.nodes:
            self.delete_node(name)
        metadata = {key: value for key, value in last["metadata"].items() if key in ("name", "labels", "annotations")}
        self.create_node({"metadata": metadata, "spec": {"taints": taints} if taints else {}})

    def set_taints(self, name: str, taints: list[JsonObject], manager: str = "kubectl-taint") -> None:
        """Write a node's whole list of taints, in one write; no write where nothing changes."""
        node = self.node(name)
        if taints != kube.taints_of(node):
            self._commit("MODIFIED", kube.with_taints(node, taints, manager, timestamp(virtual_now())))

    def write_node(self, name: str, manager: str) -> None:
        """Write anything but taints on a node."""
        self._commit("MODIFIED", kube.with_write_by(self.node(name), manager, timestamp(virtual_now())))

    # Pods

    def pod(self, key: NamespacedName) -> JsonObject:
        """Return a pod; raise ``Impossible`` if there is none of this name."""
        if key not in self.pods:
            raise Impossible(f"there is no pod {str(key)!r} at this moment")
        return self.pods[key]

    def create_pod(self, body: Mapping[str, Any]) -> None:
        """Create a pod from what its author wrote; with a nodeName it is bound in the same moment."""
        key = _key_of(body)
        if key in self.pods:
            raise Impossible(f"there is a pod {str(key)!r} already")
        pod = self.with_default_tolerations(self._with_identity(body, "-".join(key)))
        node_name = kube.node_name_of(pod)
        if node_name is not None and not kube.tells_when_bound(pod):
            pod = kube.bound(pod, node_name, pod["metadata"]["creationTimestamp"])
        self._commit("ADDED", pod)

    def recreate_pod(self, key: NamespacedName, node_name: str | None) -> None:
        """Create a pod of the same name with another UID, bound to ``node_name``; the old one goes at once."""
        last = self._last_pods.get(key)
        if last is None:
            raise Impossible(f"there has never been a pod {str(key)!r}")
        if key in self.pods:
            self.remove_pod(key)
        pod = kube.fresh_pod(last)
        self.create_pod(pod if node_name is None else kube.with_spec(pod, nodeName=node_name))

    def last_node_of(self, key: NamespacedName) -> str | None:
        """Return the node that the latest bearer of this name is or was bound to."""
        last = self._last_pods.get(key)
        return None if last is None else kube.node_name_of(last)

    def bind(self, key: NamespacedName, node_name: str) -> None:
        """Bind a pod to a node."""
        pod = self.pod(key)
        if kube.node_name_of(pod) is not None:
            raise Impossible(f"the pod {str(key)!r} is bound to {kube.node_name_of(pod)!r} already")
        self._commit("MODIFIED", kube.bound(pod, node_name, timestamp(virtual_now())))

    def change_pod(self, key: NamespacedName, change: Callable[[JsonObject], JsonObject]) -> None:
        """Write a pod as ``change`` returns it."""
        self._commit("MODIFIED", change(self.pod(key)))

    def delete_pod(self, key: NamespacedName, uid: str | None = None) -> Deletion:
        """Begin a pod's deletion, or end it where nobody has to; ``uid`` is the precondition, None for none."""
        pod = self.pods.get(key)
        if pod is None:
            return Deletion.NOT_FOUND
        if uid is not None and pod["metadata"]["uid"] != uid:
            return Deletion.OTHER_UID
        if kube.is_terminating(pod):
            return Deletion.ALREADY_TERMINATING
        grace = kube.part_of(pod, "spec").get("terminationGracePeriodSeconds")
        grace = grace if isinstance(grace, int) else 30
        ends_at = timestamp(virtual_now() + grace)
        self._commit("MODIFIED", kube.with_metadata(pod, deletionTimestamp=ends_at, deletionGracePeriodSeconds=grace))
        if kube.node_name_of(pod) is None and not pod["metadata"].get("finalizers"):
            self.remove_pod(key)
        return Deletion.ACCEPTED

    def remove_pod(self, key: NamespacedName) -> None:
        """Let a pod vanish."""
        pod = self.pod(key)
        del self.pods[key]
        self._commit("DELETED", pod)
        self._timeline.add(Entry(virtual_now(), What.GONE, str(key), pod["metadata"]["uid"]))

    # All

    def _with_identity(self, body: Mapping[str, Any], name: str) -> JsonObject:
        self._serials[name] = self._serials.get(name, 0) + 1
        created = {"uid": f"{name}-{self._serials[name]}", "creationTimestamp": timestamp(virtual_now())}
        return {**body, "metadata": {**created, **body["metadata"]}}

    def with_default_tolerations(self, pod: JsonObject) -> JsonObject:
        """Return the pod with the tolerations that admission gives to those that lack them."""
        spec = pod.get("spec", {})
        tolerations = (spec.get("tolerations") or []) if isinstance(spec, Mapping) else None
        if self._default_toleration_seconds is None or not isinstance(tolerations, list):
            return pod
        added = [
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": self._default_toleration_seconds,
            }
            for key in _DEFAULT_TOLERATION_KEYS
            if not any(_covers(toleration, key) for toleration in tolerations)
        ]
        return kube.with_spec(pod, tolerations=[*tolerations, *added]) if added else pod

    def _commit(self, event_type: str, body: JsonObject) -> None:
        self.resource_version += 1
        body = kube.with_metadata(body, resourceVersion=str(self.resource_version))
        is_pod = "namespace" in body["metadata"]
        if is_pod:
            key = _key_of(body)
            self._last_pods[key] = body
            if event_type != "DELETED":
                self.pods[key] = body
        else:
            self._last_nodes[body["metadata"]["name"]] = body
            if event_type != "DELETED":
                self.nodes[body["metadata"]["name"]] = body
        change = Change(event_type, body, is_pod, virtual_now())
        self._changes.append(change)
        for subscriber in list(self._subscribers):
            subscriber(change)


def _key_of(pod: Mapping[str, Any]) -> NamespacedName:
    return NamespacedName(pod["metadata"]["namespace"], pod["metadata"]["name"])


def _covers(toleration: Any, key: str) -> bool:
    """Tell whether admission takes the toleration for one of this taint: by key and effect, no more."""
    if not isinstance(toleration, Mapping):
        return False
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")
