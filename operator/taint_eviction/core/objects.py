"""Kubernetes objects as frozen values, with only the fields that decisions need. This module does not read JSON
(``kube.kubernetes_objects``) and does not decide (``decision``). Times in objects are seconds since the epoch by
the API server's clock (``float``), truncated to whole seconds by Kubernetes. They differ from the instants of this
process: see ``instants``.

Reference: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from taint_eviction.core.instants import TimeSource

NO_EXECUTE = "NoExecute"
NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"

# The seconds that Kubernetes takes for "for ever": a countdown that was taken over is marked by them.
MARK_SECONDS = 2**63 - 1

# The NoExecute taints that the node lifecycle controller sets by itself.
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
LIFECYCLE_KEYS = frozenset({NOT_READY, UNREACHABLE})

# Set by a person or a remediator that knows that the machine is off.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

# The labels of nodes that mean something by themselves.
ZONE_LABEL = "topology.kubernetes.io/zone"
EXEMPT_LABEL = "node.kubernetes.io/exclude-disruption"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"

# A kubelet that shuts its node down gracefully says so in the message of its condition Ready
# (pkg/kubelet/nodestatus/setters.go).
SHUTTING_DOWN = "node is shutting down"


class NamespacedName(NamedTuple):
    """The key of a pod: unique at any moment, but reused by a pod that is recreated under the same name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodRef(NamedTuple):
    """One particular pod: its key, and its UID, which no other pod ever has."""

    key: NamespacedName
    uid: str

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True)
class Taint:
    """One entry of a node's ``spec.taints``; unique on its node by key and effect.

    ``time_added`` is ``timeAdded``, None if it is not set: only the node lifecycle controller sets it.
    """

    key: str
    effect: str
    value: str = ""
    time_added: float | None = None

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """One entry of a pod's ``spec.tolerations``.

    An empty ``key`` (with ``Exists``) means every key, an empty ``effect`` every effect. ``operator`` is kept as it was
    written; an unknown one matches nothing. ``toleration_seconds`` None: indefinitely.
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def __str__(self) -> str:
        key = self.key or "*"
        value = "" if self.operator == "Exists" else f" {self.operator or 'Equal'} {self.value!r}"
        effect = f":{self.effect}" if self.effect else ""
        for_ever = self.toleration_seconds in (None, MARK_SECONDS)
        return f"{key}{value}{effect} {'indefinitely' if for_ever else f'for {self.toleration_seconds} s'}"


@dataclass(frozen=True, slots=True)
class Readiness:
    """A node's condition Ready.

    ``status``: True, False or Unknown, as written. ``since``: its lastTransitionTime; None if it has none, or none
    that can be read. ``shutting_down``: the kubelet says that it shuts the node down gracefully.
    """

    status: str
    since: float | None = None
    shutting_down: bool = False

    @property
    def is_true(self) -> bool:
        """Return whether the node is ready."""
        return self.status == "True"


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    ``taints`` has all effects, in the object's order: those other than NoExecute serve explanations only.
    ``taints_written_at`` is the earliest ``time`` among the managedFields entries that own ``f:spec.f:taints``: the
    last write of anything by a manager that set the list, so never too early; None if no entry owns it.
    ``resource_version`` is None if it is not a number: then no order is known. ``ready`` is None if the node has no
    condition Ready. ``labels``: all of its labels.
    """

    name: str
    uid: str
    taints: tuple[Taint, ...] = ()
    taints_written_at: float | None = None
    resource_version: int | None = None
    ready: Readiness | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def zone(self) -> str:
        """Return the label topology.kubernetes.io/zone, "" where there is none."""
        return self.labels.get(ZONE_LABEL, "")

    @property
    def excluded_from_disruption(self) -> bool:
        """Return whether disruptions of the node do not count, by the label node.kubernetes.io/exclude-disruption."""
        return EXEMPT_LABEL in self.labels

    @property
    def control_plane(self) -> bool:
        """Return whether the node belongs to the control plane, by its role's label."""
        return CONTROL_PLANE_LABEL in self.labels

    @property
    def is_ready(self) -> bool:
        """Return whether the node says that it is ready."""
        return self.ready is not None and self.ready.is_true

    @property
    def is_shutting_down(self) -> bool:
        """Return whether the kubelet shuts the node down gracefully; once Ready is Unknown, the kubelet is gone."""
        return self.ready is not None and self.ready.shutting_down and self.ready.status == "False"

    def carries(self, key: str, effect: str) -> bool:
        """Return whether it has a taint with this key and effect."""
        return any(taint.key == key and taint.effect == effect for taint in self.taints)

    @property
    def is_out_of_service(self) -> bool:
        """Return whether a NoExecute taint says that the machine is off, and the node is not ready."""
        return not self.is_ready and self.carries(OUT_OF_SERVICE, NO_EXECUTE)


class ControllerRef(NamedTuple):
    """The object that controls a pod, and recreates it: the owner reference with ``controller: true``."""

    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def argument(self) -> str:
        """How kubectl takes it."""
        return f"{self.kind}/{self.name}"


class PodDisruption(NamedTuple):
    """A pod's condition DisruptionTarget with status True: its writer was about to end the pod.
    ``reason`` as written. ``by``: the field manager that wrote it, "" if managedFields do not say. ``since``: its
    lastTransitionTime, None if there is none that can be read.
    """

    reason: str
    by: str
    since: float | None


class Adoption(NamedTuple):
    """The note on a pod whose countdown was taken over. ``spec_tolerations`` are those in its spec now.
    ``noted``: the positions of the marks that have a note; their seconds are in the pod's ``tolerations``. ``void``:
    the annotation notes something else, too, or cannot be read.
    """

    spec_tolerations: Sequence[Toleration]
    noted: tuple[int, ...] = ()
    void: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod.

    ``node_name`` None: not bound. ``bound_at`` with ``bound_time_source``: when it was bound, by the best available
    field; None if no field says so. ``terminating``: it has a deletionTimestamp. ``finished``: phase Succeeded or
    Failed. ``mirror``: it stands for a static pod of its kubelet. ``marked``: it has the condition DisruptionTarget,
    status True, with the reason this controller writes. ``hold_seconds``: for how long past its deadline its owner asks
    to hold its eviction (annotation taint-eviction/hold), None: not at all, infinite: indefinitely. ``controller``: the
    owner that recreates it, None: there is none. ``deletion_asked_at``: when its deletion was requested, None if
    that is unknown; ``disruption``: who was about to end it, None: nobody. No decision depends on these two.
    ``deletion_ends_at``: its deletionTimestamp, the end of its grace period; None if it has none that can be read.
    ``created_at``: its creationTimestamp, None if there is none that can be read. ``priority``: spec.priority.
    ``tolerations`` are those that count: a mark with a note has the noted seconds. ``adoption`` None: there is no note.
    """

    ref: PodRef
    node_name: str | None = None
    tolerations: Sequence[Toleration] = ()
    bound_at: float | None = None
    bound_time_source: TimeSource = TimeSource.CREATION
    resource_version: int | None = None
    terminating: bool = False
    finished: bool = False
    mirror: bool = False
    marked: bool = False
    hold_seconds: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    controller: ControllerRef | None = None
    deletion_asked_at: float | None = None
    disruption: PodDisruption | None = None
    adoption: Adoption | None = None
    deletion_ends_at: float | None = None
    created_at: float | None = None
    priority: int = 0

    @property
    def grace_seconds(self) -> float:
        """Return the grace period of its deletion, 0 as long as that is not known."""
        if self.deletion_ends_at is None or self.deletion_asked_at is None:
            return 0.0
        return self.deletion_ends_at - self.deletion_asked_at

    @property
    def spec_tolerations(self) -> Sequence[Toleration]:
        """Return the tolerations as the pod's spec has them."""
        return self.tolerations if self.adoption is None else self.adoption.spec_tolerations
