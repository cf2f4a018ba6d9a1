"""Kubernetes JSON, as decoded, → the values of ``core.objects``.

Decides nothing and calls nobody. What is unusable for a part of a value only is left out with a complaint; where the
object cannot be decided on without it, ``MalformedObject`` is raised, so that the last known state stays and nothing
is evicted because of something misread. Any JSON at all gives one of the two.

null and absent lists are empty, null and absent strings are "". Equal tuples of taints and of tolerations are shared:
they repeat massively, and memory per pod matters.

Reference: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

import math
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from taint_eviction.adapters.condition_patches import CONDITION_REASON, CONDITION_TYPE
from taint_eviction.adapters.json_fields import (
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
from taint_eviction.core.instants import TimeSource
from taint_eviction.core.objects import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    NamespacedName,
    Node,
    Pod,
    PodRef,
    Taint,
    Toleration,
)
from taint_eviction.files.durations import parse_seconds

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
HOLD_ANNOTATION = "taint-eviction/hold"

_EFFECTS = frozenset({NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE})
_OPERATORS = frozenset({"", "Equal", "Exists", "Gt", "Lt"})
# Different tuples of taints and of tolerations that are kept for sharing.
_SHARED_TUPLES = 8192

_NO_LABELS: Mapping[str, str] = MappingProxyType({})

ObjectT = TypeVar("ObjectT", Node, Pod)


class MalformedObject(Exception):
    """An object that cannot be decided on. The message names kind, object and the field's path.

    ``uid`` is None where it cannot be read either; ``resource_version`` is as it was written, "" where unreadable.
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
    """A value, and what had to be left out or guessed to get it, a sentence each."""

    value: ObjectT
    complaints: tuple[str, ...]


def read_node(body: object) -> Parsed[Node]:
    """Read a Node; raise ``MalformedObject`` if it cannot be decided on."""
    complaints: list[str] = []
    try:
        node = _node(as_object(body, "the object"), complaints)
    except Unreadable as unreadable:
        _raise_malformed("Node", body, str(unreadable))
    return Parsed(node, tuple(complaints))


def read_pod(body: object) -> Parsed[Pod]:
    """Read a Pod; raise ``MalformedObject`` if it cannot be decided on."""
    complaints: list[str] = []
    try:
        pod = _pod(as_object(body, "the object"), complaints)
    except Unreadable as unreadable:
        _raise_malformed("Pod", body, str(unreadable))
    return Parsed(pod, tuple(complaints))


def readable_uid(body: object) -> str | None:
    """Return the object's UID if that much of it can be read."""
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return uid if isinstance(uid, str) and uid else None


# Nodes


def _node(body: Mapping[str, Any], complaints: list[str]) -> Node:
    metadata = as_object(body.get("metadata"), "metadata")
    name, uid = needed_text(metadata, "name"), needed_text(metadata, "uid")
    spec = as_object(body.get("spec"), "spec")
    taints, about_taints = _shared(_taints, _taint_parts(as_list(spec.get("taints"), "spec.taints")))
    complaints += about_taints
    written_at = _taints_written_at(metadata.get("managedFields"), complaints) if taints else None
    return Node(name, uid, taints, written_at, version_number(metadata))


def _taint_parts(raw: list[Any]) -> tuple[Any, ...]:
    return tuple(
        [
            (taint.get("key"), taint.get("value"), taint.get("effect"), taint.get("timeAdded"))
            if is_object(taint)
            else refuse(f"spec.taints[{index}] is not an object")
            for index, taint in enumerate(raw)
        ]
    )


@lru_cache(_SHARED_TUPLES)
def _taints(parts: tuple[Any, ...]) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
    taints: list[Taint] = []
    complaints: list[str] = []
    for index, (key, value, effect, time_added) in enumerate(parts):
        path = f"spec.taints[{index}]"
        told_effect = as_text(effect, f"{path}.effect")
        if told_effect not in _EFFECTS:
            complaints.append(f"{path}.effect is {told_effect!r}, which is no effect known: the taint is ignored")
            continue
        try:
            told_key = as_text(key, f"{path}.key") or refuse(f"{path}.key is missing")
            told_value = as_text(value, f"{path}.value")
        except Unreadable as unreadable:
            if told_effect == NO_EXECUTE:
                raise
            complaints.append(f"{unreadable}: the taint is ignored, its effect is only {told_effect}")
            continue
        added_at = time_or_complaint(time_added, f"{path}.timeAdded", complaints)
        taints.append(Taint(told_key, told_effect, told_value, added_at))
    return tuple(taints), tuple(complaints)


def _taints_written_at(managed_fields: object, complaints: list[str]) -> float | None:
    """Find the earliest write by a manager that owns the list of taints."""
    if managed_fields is None:
        return None
    if not isinstance(managed_fields, list):
        complaints.append("metadata.managedFields is not a list: it does not tell when taints were written")
        return None
    earliest: float | None = None
    for index, entry in enumerate(managed_fields):
        if not isinstance(entry, Mapping) or entry.get("subresource") or not _owns_taints(entry):
            continue
        written_at = time_or_complaint(entry.get("time"), f"metadata.managedFields[{index}].time", complaints)
        if written_at is not None and (earliest is None or written_at < earliest):
            earliest = written_at
    return earliest


def _owns_taints(entry: Mapping[str, Any]) -> bool:
    fields = entry.get("fieldsV1")
    spec = fields.get("f:spec") if isinstance(fields, Mapping) else None
    return isinstance(spec, Mapping) and "f:taints" in spec


# Pods


def _pod(body: Mapping[str, Any], complaints: list[str]) -> Pod:
    metadata = as_object(body.get("metadata"), "metadata")
    namespace, name, uid = (
        needed_text(metadata, "namespace"),
        needed_text(metadata, "name"),
        needed_text(metadata, "uid"),
    )
    spec, status = as_object(body.get("spec"), "spec"), as_object(body.get("status"), "status")
    annotations = as_object(metadata.get("annotations"), "metadata.annotations")
    raw_tolerations = as_list(spec.get("tolerations"), "spec.tolerations")
    tolerations, about_tolerations = _shared(_tolerations, _toleration_parts(raw_tolerations))
    complaints += about_tolerations
    node_name = as_text(spec.get("nodeName"), "spec.nodeName")
    scheduled, marked = _conditions(status.get("conditions"), complaints)
    bound_at, source = None, TimeSource.CREATION
    if node_name:
        bound_at, source = _bound(scheduled, status, metadata, complaints)
    return Pod(
        # Namespaces and node names repeat in every pod: one string each.
        PodRef(NamespacedName(sys.intern(namespace), name), uid),
        sys.intern(node_name) if node_name else None,
        tolerations,
        bound_at,
        source,
        version_number(metadata),
        terminating=metadata.get("deletionTimestamp") is not None,
        finished=as_text(status.get("phase"), "status.phase") in ("Succeeded", "Failed"),
        mirror=MIRROR_ANNOTATION in annotations,
        marked=marked,
        hold_seconds=_hold_seconds(annotations.get(HOLD_ANNOTATION), complaints),
        labels=_labels(as_object(metadata.get("labels"), "metadata.labels")),
    )


def _hold_seconds(told: object, complaints: list[str]) -> float | None:
    """Read for how long the pod's owner holds it; what cannot be read was meant to hold it, too."""
    if told is None or told == "false":
        return None
    if told == "true":
        return math.inf
    try:
        seconds = parse_seconds(told)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        complaints.append(f"the annotation {HOLD_ANNOTATION} is neither true, false nor a duration (10m): as if true")
        return math.inf
    return seconds


def _labels(raw: Mapping[str, Any]) -> Mapping[str, str]:
    """Share equal labels: the pods of one owner have most of theirs in common."""
    if any(not isinstance(value, str) for value in raw.values()):
        refuse("metadata.labels has a value that is no text")
    return _shared_labels(tuple(raw.items())) if raw else _NO_LABELS


@lru_cache(_SHARED_TUPLES)
def _shared_labels(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return MappingProxyType(dict(items))


def _toleration_parts(raw: list[Any]) -> tuple[Any, ...]:
    # The type of the seconds is part of it: 1, 1.0 and true are equal, but only the first is legal.
    return tuple(
        [
            (
                toleration.get("key"),
                toleration.get("operator"),
                toleration.get("value"),
                toleration.get("effect"),
                seconds := toleration.get("tolerationSeconds"),
                type(seconds),
            )
            if is_object(toleration)
            else refuse(f"spec.tolerations[{index}] is not an object")
            for index, toleration in enumerate(raw)
        ]
    )


@lru_cache(_SHARED_TUPLES)
def _tolerations(parts: tuple[Any, ...]) -> tuple[tuple[Toleration, ...], tuple[str, ...]]:
    tolerations: list[Toleration] = []
    complaints: list[str] = []
    for index, (key, operator, value, effect, seconds, _) in enumerate(parts):
        path = f"spec.tolerations[{index}]"
        if seconds is not None and type(seconds) is not int:
            refuse(f"{path}.tolerationSeconds is not a whole number")
        toleration = Toleration(
            as_text(key, f"{path}.key"),
            as_text(operator, f"{path}.operator"),
            as_text(value, f"{path}.value"),
            as_text(effect, f"{path}.effect"),
            seconds,
        )
        if toleration.operator not in _OPERATORS:
            complaints.append(f"{path}.operator is {toleration.operator!r}, which is unknown: it matches nothing")
        tolerations.append(toleration)
    return tuple(tolerations), tuple(complaints)


def _conditions(conditions: object, complaints: list[str]) -> tuple[Mapping[str, Any] | None, bool]:
    """Find the condition that says the pod is bound, and whether it carries this controller's own."""
    scheduled, marked = None, False
    if conditions is None:
        return None, False
    if not isinstance(conditions, list):
        complaints.append("status.conditions is not a list: it is ignored")
        return None, False
    for condition in conditions:
        if not is_object(condition):
            continue
        kind = condition.get("type")
        if kind == "PodScheduled" and condition.get("status") == "True":
            scheduled = condition
        elif kind == CONDITION_TYPE and condition.get("reason") == CONDITION_REASON:
            marked = marked or condition.get("status") == "True"
    return scheduled, marked


def _bound(
    scheduled: Mapping[str, Any] | None,
    status: Mapping[str, Any],
    metadata: Mapping[str, Any],
    complaints: list[str],
) -> tuple[float | None, TimeSource]:
    """Say when the pod was bound, by the best of the fields that tell."""
    if scheduled is not None:
        path = "status.conditions[PodScheduled].lastTransitionTime"
        bound_at = time_or_complaint(scheduled.get("lastTransitionTime"), path, complaints)
        if bound_at is not None:
            return bound_at, TimeSource.POD_SCHEDULED
    started_at = time_or_complaint(status.get("startTime"), "status.startTime", complaints)
    if started_at is not None:
        return started_at, TimeSource.START_TIME
    return time_or_complaint(
        metadata.get("creationTimestamp"), "metadata.creationTimestamp", complaints
    ), TimeSource.CREATION


# Sharing and refusing


def _shared(read: Any, parts: tuple[Any, ...]) -> Any:
    """Read ``parts`` through the cache of equal ones; unhashable parts are ill-typed, and read without it to say so."""
    if not parts:
        return (), ()
    try:
        return read(parts)
    except TypeError:
        return read.__wrapped__(parts)


def _raise_malformed(kind: str, body: object, what: str) -> NoReturn:
    raw = body.get("metadata") if isinstance(body, Mapping) else None
    metadata = raw if isinstance(raw, Mapping) else NOTHING
    parts = [metadata.get("name")] if kind == "Node" else [metadata.get("namespace"), metadata.get("name")]
    label = "/".join(part if isinstance(part, str) and part else "?" for part in parts)
    version = metadata.get("resourceVersion")
    raise MalformedObject(f"{kind} {label}", what, readable_uid(body), version if isinstance(version, str) else "")
