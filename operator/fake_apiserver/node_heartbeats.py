"""What kubelets report about their nodes: the condition Ready, and a Lease in kube-node-lease that they renew.
Renewals are computed rather than written: a thousand nodes cost nothing as long as no client reads Leases. The Lease
objects are written when a client reads Leases, so a watch shows renewals only then. A kubelet posts Ready=True when its
node is registered without that condition, and when it is no longer silent. Other writers post later changes, such as
Ready=False.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from .clock import CallLater, WallClock
from .eviction import set_condition
from .kubelet import Kubelets
from .records import Change, Selection, StoredObject
from .registry import Registry, WriteOptions
from .resources import RESOURCES
from .selectors import FieldTerm
from .status import JsonObject, StatusError

LEASE_NAMESPACE = "kube-node-lease"
# How many renewals fit into a Lease.
_RENEWALS = 4
_NODES, _PODS, _LEASES = RESOURCES["nodes"], RESOURCES["pods"], RESOURCES["leases"]
_STATUS = WriteOptions(manager="kubelet", subresource="status")
_ROUNDING = 1e-3


@dataclass(slots=True)
class _Heart:
    """Beats periodically since `since`, until `silent_at`."""

    since: float
    every_seconds: float
    silent_at: float | None = None

    def beat_at(self, now: float) -> float:
        """The last beat."""
        end = now if self.silent_at is None else self.silent_at
        return self.since + (end - self.since + _ROUNDING) // self.every_seconds * self.every_seconds


@dataclass(slots=True)
class NodeHeartbeats:
    """Those of all nodes. `clock` is that of the kubelets: dates and spans are taken from it."""

    registry: Registry
    kubelets: Kubelets
    clock: WallClock
    call_later: CallLater
    renew_seconds: float = 10.0
    silent_nodes: set[str] = field(default_factory=set)
    _hearts: dict[str, _Heart] = field(default_factory=dict)
    _ready_pods: dict[str, set[str]] = field(default_factory=dict)
    """Of silent nodes: the uids of the pods that were ready when the kubelet was last heard."""
    _suspended: bool = True

    def now(self) -> float:
        """Unix time of the kubelets' clock."""
        return self.clock.now().timestamp()

    def renewed_at(self, node: str) -> float | None:
        """When the node's Lease was last renewed, as Unix time; None if never."""
        heart = self._hearts.get(node)
        return None if heart is None else heart.beat_at(self.now())

    def silence(self, node: str) -> None:
        """From now on the kubelet cannot reach the API server: no renewals, and none of its pods ends or starts."""
        self.silent_nodes.add(node)
        self.kubelets.freeze(node)
        if (heart := self._hearts.get(node)) is not None and heart.silent_at is None:
            heart.silent_at = self.now()
            ready = [record.uid for record in self._pods_on(node) if _is_ready(record.decode())]
            self._ready_pods[node] = set(ready)

    def speak(self, node: str) -> None:
        """The kubelet is back: renews, posts Ready=True, of its pods too, and takes up what it missed."""
        self.silent_nodes.discard(node)
        self.kubelets.thaw(node)
        record = self.registry.store.get("nodes", "", node)
        if self._suspended or record is None:
            return
        self._hearts[node] = _Heart(self.now(), self.renew_seconds)
        self._post_ready(record)
        ready = self._ready_pods.pop(node, set())
        for pod in [pod for pod in self._pods_on(node) if pod.uid in ready]:
            self._write(pod, {"type": "Ready", "status": "True", "lastProbeTime": None})

    def notice(self, change: Change) -> None:
        """Subscribed to the store."""
        if self._suspended or change.new.resource.plural != "nodes":
            return
        node = change.new.name
        if change.type == "ADDED":
            # Not within the write: others are still to hear of the node as it was created.
            self.call_later(0.0, lambda: self._register([node]))
        elif change.type == "DELETED":
            self._hearts.pop(node, None)
            if (lease := self.registry.store.get("leases", LEASE_NAMESPACE, node)) is not None:
                self.registry.store.remove(lease)

    def resume(self) -> None:
        """With the server up: all that are not silent renew now, and nodes without Ready get it."""
        self._suspended = False
        self._hearts = {name: heart for name, heart in self._hearts.items() if name in self.silent_nodes}
        self._register([record.name for record in self.registry.store.select(Selection(_NODES))])

    def suspend(self) -> None:
        """With the server down: nothing is posted."""
        self._suspended = True

    def write_leases(self) -> None:
        """Brings the Lease objects up to date, before a client reads them."""
        for node in self._hearts:
            renewed_at = self.renewed_at(node)
            assert renewed_at is not None
            stored = self.registry.store.get("leases", LEASE_NAMESPACE, node)
            lease = self._lease(node, renewed_at)
            if stored is None:
                self.registry.create(_LEASES, LEASE_NAMESPACE, lease, WriteOptions(manager="kubelet"))
            elif (current := stored.decode())["spec"] != lease["spec"]:
                self.registry.replace(stored, {**current, "spec": lease["spec"]}, WriteOptions(manager="kubelet"))

    def _register(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            record = self.registry.store.get("nodes", "", node)
            if self._suspended or record is None or node in self.silent_nodes:
                continue
            self._hearts[node] = _Heart(self.now(), self.renew_seconds)
            if ready_condition(record.decode()) is None:
                self._post_ready(record)

    def _post_ready(self, node: StoredObject) -> None:
        now, message = self.clock.timestamp(), "kubelet is posting ready status"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": message}
        self._write(node, {**ready, "lastHeartbeatTime": now})

    def _write(self, record: StoredObject, condition: JsonObject) -> None:
        obj = record.decode()
        set_condition(obj, {**condition, "lastTransitionTime": self.clock.timestamp()})
        try:
            self.registry.replace(record, obj, _STATUS)
        except StatusError:
            # The API server would not accept this object, so it cannot be written.
            return

    def _lease(self, node: str, renewed_at: float) -> JsonObject:
        spec = {
            "holderIdentity": node,
            "leaseDurationSeconds": round(_RENEWALS * self.renew_seconds),
            "renewTime": datetime.fromtimestamp(renewed_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        return {"metadata": {"name": node, "namespace": LEASE_NAMESPACE}, "spec": spec}

    def _pods_on(self, node: str) -> list[StoredObject]:
        return self.registry.store.select(Selection(_PODS, fields=(FieldTerm("spec.nodeName", True, node),)))


def ready_condition(obj: JsonObject) -> JsonObject | None:
    """The condition Ready of a node or pod, None where it has none."""
    conditions: list[JsonObject] = (obj.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == "Ready"), None)


def _is_ready(obj: JsonObject) -> bool:
    condition = ready_condition(obj)
    return condition is not None and condition.get("status") == "True"
