"""Nodes and pods as decoded JSON → the values of ``core.objects``.

A field that cannot be read is left out with a complaint if decisions are possible without it. Otherwise
``MalformedObject`` is raised: the last known state stays, and no pod is evicted because of a misread field. Any JSON
gives one of the two. Every field that is read is named in ``NODE_FIELDS`` or ``POD_FIELDS``, and no other: the watch
filter keeps these, and a test compares them with what is asked for.

null and absent lists are empty, null and absent strings are "".

Reference: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

import math
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from taint_eviction.core.adoption import noted_places, with_seconds
from taint_eviction.core.instants import TimeSource
from taint_eviction.core.objects import (
    SHUTTING_DOWN,
    Adoption,
    ControllerRef,
    NamespacedName,
    Node,
    Pod,
    PodDisruption,
    PodRef,
    Readiness,
    Toleration,
)
from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.core.text import one_line
from taint_eviction.files.durations import parse_seconds
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.kube.adoption_patches import NOTE_ANNOTATION, read_note
from taint_eviction.kube.bounded import Shared
from taint_eviction.kube.condition_patches import CONDITION_REASON, CONDITION_TYPE
from taint_eviction.kube.json_fields import (
    NOTHING,
    Unreadable,
    as_list,
    as_object,
    as_text,
    is_object,
    needed_text,
    refuse,
    time_or_complaint,
    version_number,
)
from taint_eviction.kube.taints_and_tolerations import read_taints, read_tolerations

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
HOLD_ANNOTATION = "taint-eviction/hold"


class ReadFields(NamedTuple):
    """The names of the fields that are read of an object, and of its conditions. A watch shows changes of no other."""

    metadata: tuple[str, ...]
    spec: tuple[str, ...]
    status: tuple[str, ...]
    condition: tuple[str, ...]
    annotations: tuple[str, ...] = ()


NODE_FIELDS = ReadFields(
    metadata=("name", "uid", "resourceVersion", "labels", "managedFields"),
    spec=("taints",),
    status=("conditions",),
    # Not lastHeartbeatTime, which changes without a change of the status.
    condition=("type", "status", "lastTransitionTime", "message"),
)
POD_FIELDS = ReadFields(
    metadata=(
        *("name", "namespace", "uid", "resourceVersion", "labels", "annotations", "managedFields", "ownerReferences"),
        *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    ),
    spec=("nodeName", "tolerations", "priority"),
    status=("phase", "startTime", "conditions"),
    condition=("type", "status", "reason", "lastTransitionTime"),
    annotations=(MIRROR_ANNOTATION, NOTE_ANNOTATION, HOLD_ANNOTATION),
)
OWNER_FIELDS = ("kind", "name", "uid", "controller")

# Of an object's kind and name, and of a condition's reason; of a UID.
_LONGEST_NAME, _LONGEST_UID = 253, 64

# The bytes of different sets of labels, and of different controllers of pods, that are kept for sharing.
_SHARED_BYTES = 1 << 23
# The bytes of one label or controller without its text.
_BYTES_EACH = 300

_NO_LABELS: Mapping[str, str] = MappingProxyType({})

# Where an entry of managedFields says that it owns the reason of the condition DisruptionTarget.
_REASON_PATH = ("fieldsV1", "f:status", "f:conditions", f'k:{{"type":"{CONDITION_TYPE}"}}', "f:reason")

ObjectT = TypeVar("ObjectT", Node, Pod)


class MalformedObject(Exception):
    """An object on which no decision is possible. The message has its kind, its name and the path of the field.
    ``uid`` is None if it cannot be read either. ``resource_version`` is the text as it was written, "" if it is
    unreadable.
    """

    def __init__(self, name: str, what: str, uid: str | None = None, resource_version: str = "") -> None:
        super().__init__(f"{name}: {what}")
        self.name = name
        self.what = what
        self.uid = uid
        self.resource_version = resource_version

    @property
    def kind(self) -> str:
        """Node or Pod."""
        return self.name.partition(" ")[0]


class Parsed(NamedTuple, Generic[ObjectT]):
    """A value, and a complaint for each part that was left out or guessed."""

    value: ObjectT
    complaints: tuple[str, ...]


def read_node(body: object) -> Parsed[Node]:
    """Read a Node; raise ``MalformedObject`` if nothing can be decided on it."""
    complaints: list[str] = []
    try:
        node = _node(as_object(body, "the object"), complaints)
    except Unreadable as unreadable:
        _raise_malformed("Node", body, str(unreadable))
    return Parsed(node, tuple(complaints))


def read_pod(body: object, parts: PodParts = ALL_PARTS) -> Parsed[Pod]:
    """Read these parts of a Pod; raise ``MalformedObject`` if nothing can be decided on it."""
    complaints: list[str] = []
    try:
        pod = _pod(as_object(body, "the object"), parts, complaints)
    except Unreadable as unreadable:
        _raise_malformed("Pod", body, str(unreadable))
    return Parsed(pod, tuple(complaints))


def readable_uid(body: object) -> str | None:
    """Return the object's UID; None if it cannot be read."""
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return uid if isinstance(uid, str) and uid else None


# Nodes


def _node(body: Mapping[str, Any], complaints: list[str]) -> Node:
    metadata = as_object(body.get("metadata"), "metadata")
    name, uid = needed_text(metadata, "name"), needed_text(metadata, "uid")
    spec = as_object(body.get("spec"), "spec")
    taints, about_taints = read_taints(as_list(spec.get("taints"), "spec.taints"))
    complaints += about_taints
    written_at = _taints_written_at(metadata.get("managedFields"), complaints) if taints else None
    return Node(
        name,
        uid,
        taints,
        written_at,
        version_number(metadata),
        _readiness(body.get("status"), complaints),
        _node_labels(metadata.get("labels"), complaints),
    )


def _node_labels(labels: object, complaints: list[str]) -> Mapping[str, str]:
    """Return the labels of a node, without unreadable ones."""
    if labels is None:
        return _NO_LABELS
    if not is_object(labels):
        complaints.append("metadata.labels is not an object: the node counts as one without labels")
        return _NO_LABELS
    # Many nodes have the same keys, and often the same values: each is kept once.
    found = {sys.intern(key): sys.intern(value) for key, value in labels.items() if isinstance(value, str)}
    if len(found) < len(labels):
        complaints.append("metadata.labels has a value that is not a string: such labels are left out")
    return found


def _readiness(status: object, complaints: list[str]) -> Readiness | None:
    """Return the condition Ready; None if there is none, or none that can be read."""
    conditions = status.get("conditions") if is_object(status) else None
    if conditions is None:
        return None
    if not isinstance(conditions, list):
        complaints.append("status.conditions is not a list: whether the node is ready is unknown")
        return None
    for condition in conditions:
        if is_object(condition) and condition.get("type") == "Ready":
            path = "status.conditions[Ready].lastTransitionTime"
            since = time_or_complaint(condition.get("lastTransitionTime"), path, complaints)
            status, message = condition.get("status"), condition.get("message")
            shutting_down = isinstance(message, str) and SHUTTING_DOWN in message
            return Readiness(status if isinstance(status, str) else "", since, shutting_down)
    return None


def _taints_written_at(managed_fields: object, complaints: list[str]) -> float | None:
    """Return the earliest write by a manager that owns the list of taints; None if no entry says so."""
    if managed_fields is None:
        return None
    if not isinstance(managed_fields, list):
        complaints.append("metadata.managedFields is not a list: the times of writes are unknown")
        return None
    earliest: float | None = None
    for entry in managed_fields:
        if not isinstance(entry, Mapping) or entry.get("subresource") or not _owns_taints(entry):
            continue
        written_at = time_or_complaint(entry.get("time"), "metadata.managedFields[f:taints].time", complaints)
        if written_at is not None and (earliest is None or written_at < earliest):
            earliest = written_at
    return earliest


def _owns_taints(entry: Mapping[str, Any]) -> bool:
    fields = entry.get("fieldsV1")
    spec = fields.get("f:spec") if isinstance(fields, Mapping) else None
    return isinstance(spec, Mapping) and "f:taints" in spec


# Pods


def _pod(body: Mapping[str, Any], parts: PodParts, complaints: list[str]) -> Pod:
    metadata = as_object(body.get("metadata"), "metadata")
    namespace, name, uid = (
        needed_text(metadata, "namespace"),
        needed_text(metadata, "name"),
        needed_text(metadata, "uid"),
    )
    spec, status = as_object(body.get("spec"), "spec"), as_object(body.get("status"), "status")
    annotations = as_object(metadata.get("annotations"), "metadata.annotations")
    tolerations, about_tolerations = read_tolerations(as_list(spec.get("tolerations"), "spec.tolerations"))
    complaints += about_tolerations
    tolerations, adoption = _with_noted(tolerations, annotations.get(NOTE_ANNOTATION), parts, complaints)
    node_name = as_text(spec.get("nodeName"), "spec.nodeName")
    scheduled, disruption = _conditions(status.get("conditions"), metadata, complaints)
    bound_at, source = None, TimeSource.CREATION
    if node_name:
        bound_at, source = _bound(scheduled, status, metadata, complaints)
    return Pod(
        # Many pods share a namespace and a node name: each is kept once.
        PodRef(NamespacedName(sys.intern(namespace), name), uid),
        sys.intern(node_name) if node_name else None,
        tolerations,
        bound_at,
        source,
        version_number(metadata),
        terminating=metadata.get("deletionTimestamp") is not None,
        finished=as_text(status.get("phase"), "status.phase") in ("Succeeded", "Failed"),
        mirror=MIRROR_ANNOTATION in annotations,
        marked=disruption is not None and disruption.reason == CONDITION_REASON,
        hold_seconds=_hold_seconds(annotations.get(HOLD_ANNOTATION), complaints) if parts.holds else None,
        labels=_labels(parts.labels(as_object(metadata.get("labels"), "metadata.labels"))),
        controller=_controller(metadata.get("ownerReferences"), complaints),
        deletion_asked_at=_deletion_asked_at(metadata),
        deletion_ends_at=parse_rfc3339(metadata.get("deletionTimestamp")),
        created_at=parse_rfc3339(metadata.get("creationTimestamp")),
        priority=_priority(spec.get("priority"), complaints),
        disruption=disruption,
        adoption=adoption,
    )


def _deletion_asked_at(metadata: Mapping[str, Any]) -> float | None:
    """Return when the deletion was requested: the deletionTimestamp is the end of the pod's grace period."""
    ends_at, grace = parse_rfc3339(metadata.get("deletionTimestamp")), metadata.get("deletionGracePeriodSeconds")
    if ends_at is None or not isinstance(grace, int) or not 0 <= grace <= ends_at:
        return None
    return ends_at - grace


def _priority(value: object, complaints: list[str]) -> int:
    """Return the priority, 0 if there is none that can be read."""
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 31:
        complaints.append("spec.priority is not a 32-bit number: it counts as 0")
        return 0
    return value


def _with_noted(
    tolerations: Sequence[Toleration], annotation: object, parts: PodParts, complaints: list[str]
) -> tuple[Sequence[Toleration], Adoption | None]:
    """Return the tolerations that count, and what is noted. A note that cannot be read counts for nothing."""
    if annotation is None:
        return tolerations, None
    try:
        note = read_note(annotation)
    except Unreadable as unreadable:
        complaints.append(f"the annotation {NOTE_ANNOTATION} is ignored: {unreadable}")
        return tolerations, Adoption(tolerations, void=True)
    noted = noted_places(tolerations, note, of_any_number=parts.long_notes)
    adoption = Adoption(tolerations, tuple(sorted(noted)), void=len(noted) < max(1, len(note)))
    return with_seconds(tolerations, noted), adoption


def _hold_seconds(annotation: object, complaints: list[str]) -> float | None:
    """Return for how long the pod's owner holds it. A value that cannot be read holds it indefinitely."""
    if annotation is None or annotation == "false":
        return None
    if annotation == "true":
        return math.inf
    try:
        seconds = parse_seconds(annotation)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        complaints.append(f"the annotation {HOLD_ANNOTATION} is not true, false or a duration (10m): it counts as true")
        return math.inf
    return seconds


def _labels(raw: Mapping[str, Any]) -> Mapping[str, str]:
    """Read labels. Pods of one owner often have equal labels, which are shared."""
    if any(not isinstance(value, str) for value in raw.values()):
        refuse("metadata.labels has a value that is not a string")
    return _shared_labels(tuple(raw.items())) if raw else _NO_LABELS


def _size(parts: tuple[Any, ...]) -> int:
    return sum(_BYTES_EACH + sum(map(len, texts)) for texts in parts)


def _labels_of(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return MappingProxyType(dict(items))


_shared_labels = Shared(_labels_of, _size, _SHARED_BYTES)


def _controller(references: object, complaints: list[str]) -> ControllerRef | None:
    """Return the owner that controls the pod; None if there is none, or none that can be read."""
    if references is None:
        return None
    if not isinstance(references, list):
        complaints.append("metadata.ownerReferences is not a list: what controls the pod is unknown")
        return None
    for reference in references:
        if is_object(reference) and reference.get("controller") is True:
            kind, name, uid = reference.get("kind"), reference.get("name"), reference.get("uid")
            if isinstance(kind, str) and isinstance(name, str) and isinstance(uid, str):
                # The API server bounds none of them.
                kind, name, uid = one_line(kind, _LONGEST_NAME), one_line(name, _LONGEST_NAME), uid[:_LONGEST_UID]
                return _shared_controller(ControllerRef(kind, name, uid))
    return None


def _itself(reference: ControllerRef) -> ControllerRef:
    return reference


_shared_controller = Shared(_itself, _size, _SHARED_BYTES)


def _conditions(
    conditions: object, metadata: Mapping[str, Any], complaints: list[str]
) -> tuple[Mapping[str, Any] | None, PodDisruption | None]:
    """Return the conditions PodScheduled and DisruptionTarget if they are True."""
    scheduled, target = None, None
    if conditions is None:
        return None, None
    if not isinstance(conditions, list):
        complaints.append("status.conditions is not a list: it is ignored")
        return None, None
    for condition in conditions:
        if not is_object(condition) or condition.get("status") != "True":
            continue
        kind = condition.get("type")
        if kind == "PodScheduled":
            scheduled = condition
        elif kind == CONDITION_TYPE and isinstance(condition.get("reason"), str):
            target = condition
    if target is None:
        return scheduled, None
    # Once, however many such conditions there are: the managers of fields may be many, too.
    written_by = _written_by(metadata.get("managedFields"))
    since = parse_rfc3339(target.get("lastTransitionTime"))
    # The API server does not bound it, and a kubelet may write it.
    reason = sys.intern(one_line(target["reason"], _LONGEST_NAME))
    return scheduled, PodDisruption(reason, written_by, since)


def _written_by(managed_fields: object) -> str:
    """Return who wrote the reason of the condition DisruptionTarget, "" if no entry says so."""
    for entry in managed_fields if isinstance(managed_fields, list) else ():
        owned: object = entry
        for name in _REASON_PATH:
            owned = owned.get(name) if is_object(owned) else None
        if owned is not None and isinstance(manager := entry.get("manager"), str):
            return sys.intern(manager)
    return ""


def _bound(
    scheduled: Mapping[str, Any] | None,
    status: Mapping[str, Any],
    metadata: Mapping[str, Any],
    complaints: list[str],
) -> tuple[float | None, TimeSource]:
    """Return when the pod was bound, by the best available field, and which field that is.

    A date before the pod was created is none: one of two clocks is wrong, and the later date evicts no pod too soon.
    """
    created_at = parse_rfc3339(metadata.get("creationTimestamp"))
    fields = (
        (
            (scheduled or NOTHING).get("lastTransitionTime"),
            "conditions[PodScheduled].lastTransitionTime",
            TimeSource.POD_SCHEDULED,
        ),
        (status.get("startTime"), "startTime", TimeSource.START_TIME),
    )
    for value, field, source in fields:
        bound_at = time_or_complaint(value, f"status.{field}", complaints)
        if bound_at is not None and (created_at is None or created_at <= bound_at):
            return bound_at, source
    return time_or_complaint(
        metadata.get("creationTimestamp"), "metadata.creationTimestamp", complaints
    ), TimeSource.CREATION


def _raise_malformed(kind: str, body: object, what: str) -> NoReturn:
    raw = body.get("metadata") if isinstance(body, Mapping) else None
    metadata = raw if isinstance(raw, Mapping) else NOTHING
    parts = [metadata.get("name")] if kind == "Node" else [metadata.get("namespace"), metadata.get("name")]
    label = "/".join(part if isinstance(part, str) and part else "?" for part in parts)
    version = metadata.get("resourceVersion")
    raise MalformedObject(f"{kind} {label}", what, readable_uid(body), version if isinstance(version, str) else "")
