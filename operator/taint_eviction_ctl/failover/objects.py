"""Decoded Kubernetes objects → the few fields that show why a pod stays Terminating.
Tolerant: a field of another type counts as absent, because help for people in trouble must not fail for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taint_eviction.core.objects import OUT_OF_SERVICE, ControllerRef
from taint_eviction.core.text import one_line
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.kube.json_fields import NOTHING

# Set by the cloud's node lifecycle controller while the provider says that a node's machine is shut down.
SHUT_DOWN = "node.cloudprovider.kubernetes.io/shutdown"
# The duration that the kubelet sets, which also counts if a Lease has none.
_LEASE_SECONDS = 40.0
# Clocks of nodes differ a little. A Lease that is dated further ahead says nothing about when it was renewed.
_TOLERATED_AHEAD_SECONDS = 5.0

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FinalizerEntry:
    """A finalizer, and the field manager that set it ("" where that is not recorded)."""

    name: str
    manager: str


@dataclass(frozen=True, slots=True)
class PodObject:
    """A pod; times are seconds since the epoch, None where absent.

    ``deletion_epoch`` is the end of its grace period, None: its deletion was not requested. ``grace_seconds`` is 0 once
    the kubelet has ended its containers, and also if somebody forced its deletion. ``waiting`` and ``running`` are
    containers, the former with the reason; ``unscheduled`` is the scheduler's message; ``ready`` is its condition.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    created_epoch: float | None
    deletion_epoch: float | None
    grace_seconds: float | None
    finalizers: tuple[FinalizerEntry, ...]
    owner: ControllerRef | None
    template_hash: str
    claims: tuple[str, ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    unscheduled: str
    ready: bool

    @property
    def asked_epoch(self) -> float | None:
        """When its deletion was requested."""
        return None if self.deletion_epoch is None else self.deletion_epoch - (self.grace_seconds or 0.0)


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A node; ``ready`` is the status of its condition Ready, "" if it has none.

    ``out_of_service`` has the effects of its taints with that key. ``shut_down``: the cloud's controller, which asks
    the provider about each node that is not ready, says that the machine is shut down.
    """

    name: str
    ready: str
    ready_since_epoch: float | None
    ready_message: str
    out_of_service: tuple[str, ...]
    shut_down: bool

    @property
    def is_ready(self) -> bool:
        """Return whether PodGC considers the node ready."""
        return self.ready == "True"

    @property
    def ready_by_kubelet(self) -> bool:
        """Return whether the kubelet wrote the condition Ready; the node lifecycle controller writes Unknown."""
        return self.ready in ("True", "False")


@dataclass(frozen=True, slots=True)
class NodeLease:
    """The Lease that a kubelet renews while it lives."""

    renewed_epoch: float
    duration_seconds: float

    def proves(self, now_epoch: float) -> bool:
        """Return whether its date says anything: not if the node's clock is ahead."""
        return self.renewed_epoch <= now_epoch + _TOLERATED_AHEAD_SECONDS

    def expired(self, now_epoch: float) -> bool:
        """Return whether the kubelet should have renewed the Lease by now."""
        return now_epoch > self.renewed_epoch + self.duration_seconds


@dataclass(frozen=True, slots=True)
class ClaimObject:
    """A PersistentVolumeClaim and the volume that it is bound to, "" if none. ``shared``: many nodes may attach it."""

    name: str
    volume: str
    shared: bool


@dataclass(frozen=True, slots=True)
class AttachmentObject:
    """A VolumeAttachment; the errors are the driver's own words, "" if it reports none."""

    name: str
    attacher: str
    node: str
    volume: str
    attached: bool
    attach_error: str
    detach_error: str


def read_pod_object(body: Body) -> PodObject:
    """Read a pod."""
    metadata, spec, status = _part(body, "metadata"), _part(body, "spec"), _part(body, "status")
    grace = metadata.get("deletionGracePeriodSeconds")
    containers = [*_objects(status.get("initContainerStatuses")), *_objects(status.get("containerStatuses"))]
    return PodObject(
        _text(metadata, "namespace"),
        _text(metadata, "name"),
        _text(metadata, "uid"),
        _text(spec, "nodeName"),
        _text(status, "phase"),
        parse_rfc3339(metadata.get("creationTimestamp")),
        parse_rfc3339(metadata.get("deletionTimestamp")),
        float(grace) if isinstance(grace, int) else None,
        _finalizers(metadata),
        _owner(metadata),
        _text(_part(metadata, "labels"), "pod-template-hash"),
        tuple(dict.fromkeys(_claims(spec))),
        tuple(_text(each, "name") for each in containers if "running" in _part(each, "state")),
        tuple(said for each in containers if (said := _waiting(each))),
        _unscheduled(status),
        _text(_condition(status, "Ready"), "status") == "True",
    )


def read_node_object(body: Body) -> NodeObject:
    """Read a node."""
    ready = _condition(_part(body, "status"), "Ready")
    taints = _objects(_part(body, "spec").get("taints"))
    return NodeObject(
        _text(_part(body, "metadata"), "name"),
        _text(ready, "status"),
        parse_rfc3339(ready.get("lastTransitionTime")),
        one_line(_text(ready, "message")),
        tuple(_text(taint, "effect") for taint in taints if taint.get("key") == OUT_OF_SERVICE),
        any(taint.get("key") == SHUT_DOWN for taint in taints),
    )


def read_node_lease(body: Body) -> NodeLease | None:
    """Read a node's Lease; None if it was never renewed."""
    spec = _part(body, "spec")
    renewed, duration = parse_rfc3339(spec.get("renewTime")), spec.get("leaseDurationSeconds")
    if renewed is None:
        return None
    return NodeLease(renewed, float(duration) if isinstance(duration, int) else _LEASE_SECONDS)


def read_claim_object(body: Body) -> ClaimObject:
    """Read a PersistentVolumeClaim."""
    spec = _part(body, "spec")
    modes = spec.get("accessModes")
    shared = isinstance(modes, list) and any(mode in ("ReadWriteMany", "ReadOnlyMany") for mode in modes)
    return ClaimObject(_text(_part(body, "metadata"), "name"), _text(spec, "volumeName"), shared)


def read_attachment_object(body: Body) -> AttachmentObject:
    """Read a VolumeAttachment."""
    spec, status = _part(body, "spec"), _part(body, "status")
    return AttachmentObject(
        _text(_part(body, "metadata"), "name"),
        _text(spec, "attacher"),
        _text(spec, "nodeName"),
        _text(_part(spec, "source"), "persistentVolumeName"),
        status.get("attached") is True,
        one_line(_text(_part(status, "attachError"), "message")),
        one_line(_text(_part(status, "detachError"), "message")),
    )


# Parts of a pod


def _finalizers(metadata: Body) -> tuple[FinalizerEntry, ...]:
    names = metadata.get("finalizers")
    return tuple(
        FinalizerEntry(name, _manager_of(name, metadata))
        for name in (names if isinstance(names, list) else ())
        if isinstance(name, str)
    )


def _manager_of(finalizer: str, metadata: Body) -> str:
    for entry in _objects(metadata.get("managedFields")):
        owned = _part(_part(_part(entry, "fieldsV1"), "f:metadata"), "f:finalizers")
        if f'v:"{finalizer}"' in owned:
            return _text(entry, "manager")
    return ""


def _owner(metadata: Body) -> ControllerRef | None:
    for each in _objects(metadata.get("ownerReferences")):
        if each.get("controller") is True:
            return ControllerRef(_text(each, "kind"), _text(each, "name"), _text(each, "uid"))
    return None


def _claims(spec: Body) -> list[str]:
    """Return the claims that a replacement may also use, so not those that belong to the pod itself."""
    named = [_text(_part(each, "persistentVolumeClaim"), "claimName") for each in _objects(spec.get("volumes"))]
    return [name for name in named if name]


def _waiting(container: Body) -> str:
    waiting = _part(_part(container, "state"), "waiting")
    reason, message = _text(waiting, "reason"), _text(waiting, "message")
    return one_line(f"{_text(container, 'name')}: {': '.join(filter(None, (reason, message)))}") if reason else ""


def _unscheduled(status: Body) -> str:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") != "False":
        return ""
    return one_line(_text(scheduled, "message") or _text(scheduled, "reason"))


# Fields


def _condition(status: Body, kind: str) -> Body:
    return next((each for each in _objects(status.get("conditions")) if each.get("type") == kind), NOTHING)


def _part(body: Body, name: str) -> Body:
    part = body.get(name)
    return part if isinstance(part, Mapping) else NOTHING


def _objects(value: object) -> list[Body]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _text(body: Body, name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""
