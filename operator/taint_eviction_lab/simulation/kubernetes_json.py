"""Nodes and pods as Kubernetes JSON: pure functions from an object to a new one.

An object that a scenario gives verbatim may be malformed anywhere except in its metadata: malformed parts count as
empty.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from taint_eviction.core.objects import MARK_SECONDS, ZONE_LABEL
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.condition_patches import CONDITION_TYPE


def part_of(body: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return metadata, spec or status; empty if it is absent or no mapping."""
    found = body.get(part)
    return found if isinstance(found, Mapping) else {}


def list_in(part: Mapping[str, Any], name: str) -> list[Any]:
    """Return the mappings in a field that should be a list of mappings; other entries are left out."""
    found = part.get(name)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def with_metadata(body: Mapping[str, Any], **changes: Any) -> JsonObject:
    """Return the object with these fields of its metadata changed; None removes a field."""
    return _with_part(body, "metadata", changes)


def with_spec(body: Mapping[str, Any], **changes: Any) -> JsonObject:
    """Return the object with these fields of its spec changed; None removes a field."""
    return _with_part(body, "spec", changes)


def with_status(body: Mapping[str, Any], **changes: Any) -> JsonObject:
    """Return the object with these fields of its status changed; None removes a field."""
    return _with_part(body, "status", changes)


def _with_part(body: Mapping[str, Any], part: str, changes: Mapping[str, Any]) -> JsonObject:
    fields = {**part_of(body, part), **changes}
    return {**body, part: {name: value for name, value in fields.items() if value is not None}}


_SHAPES: Mapping[str, Mapping[str, type]] = {
    "metadata": {"annotations": dict, "labels": dict, "finalizers": list, "managedFields": list},
    "spec": {"taints": list, "nodeName": str, "terminationGracePeriodSeconds": int},
    "status": {"conditions": list, "phase": str},
}
# Fields that are lists of mappings, each with what a mapping must have.
_MAPPINGS = {"taints": ("key", str), "conditions": ("type", str), "managedFields": ("fieldsV1", dict)}


def sound(body: Mapping[str, Any]) -> JsonObject:
    """Return a node or pod without malformed parts in the fields that the API server's rules use."""
    kept = dict(body)
    for part, shapes in _SHAPES.items():
        if part not in body:
            continue
        fields = {**part_of(body, part)}
        for name in [name for name, shape in shapes.items() if name in fields and not isinstance(fields[name], shape)]:
            del fields[name]
        for name in _MAPPINGS.keys() & fields.keys():
            needed, shape = _MAPPINGS[name]
            fields[name] = [item for item in list_in(fields, name) if isinstance(item.get(needed), shape)]
        kept[part] = fields
    return kept


# Nodes


def taints_of(node: Mapping[str, Any]) -> list[JsonObject]:
    """Return the node's taints."""
    return list_in(part_of(node, "spec"), "taints")


def with_zone(node: Mapping[str, Any], zone: str) -> JsonObject:
    """Return the node with the label for its zone."""
    return with_metadata(node, labels={**part_of(part_of(node, "metadata"), "labels"), ZONE_LABEL: zone})


def add_taints(present: Sequence[JsonObject], added: Sequence[JsonObject]) -> list[JsonObject]:
    """Add taints as ``kubectl taint --overwrite`` does: one of the same key and effect is replaced."""
    keys = {_taint_identity(taint) for taint in added}
    return [taint for taint in present if _taint_identity(taint) not in keys] + list(added)


def remove_taints(present: Sequence[JsonObject], key: str, effect: str) -> list[JsonObject]:
    """Remove the taints of this key, and of this effect unless that is empty."""
    return [taint for taint in present if taint.get("key") != key or (effect and taint.get("effect") != effect)]


def _taint_identity(taint: Mapping[str, Any]) -> tuple[Any, Any]:
    return taint.get("key"), taint.get("effect")


def with_readiness(node: Mapping[str, Any], status: str, message: str, time: str) -> JsonObject:
    """Return the node with this condition Ready; ``time``: that of the transition, if ``status`` changes."""
    conditions = list_in(part_of(node, "status"), "conditions")
    before: Mapping[str, Any] = next((each for each in conditions if each.get("type") == "Ready"), {})
    since = before.get("lastTransitionTime", time) if before.get("status") == status else time
    ready = {"type": "Ready", "status": status, "lastTransitionTime": since, "lastHeartbeatTime": time}
    if message:
        ready["message"] = message
    return with_status(node, conditions=[*(each for each in conditions if each.get("type") != "Ready"), ready])


# Pods


def annotations_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pod's annotations."""
    return part_of(part_of(pod, "metadata"), "annotations")


def with_annotations(pod: Mapping[str, Any], written: Mapping[str, str | None]) -> JsonObject:
    """Return the pod with these annotations added to its own; None removes one."""
    annotations = {**annotations_of(pod), **written}
    return with_metadata(pod, annotations={name: value for name, value in annotations.items() if value is not None})


def with_condition(pod: Mapping[str, Any], kind: str, status: str, time: str) -> JsonObject:
    """Return the pod with this condition, which replaces one of the same type; ``time``: that of the transition."""
    condition = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": time}
    others = [one for one in list_in(part_of(pod, "status"), "conditions") if one.get("type") != kind]
    return with_status(pod, conditions=[*others, condition])


def condition_status(pod: Mapping[str, Any], kind: str = CONDITION_TYPE) -> str | None:
    """Return the status of the pod's condition of this type, None if it has none."""
    for condition in list_in(part_of(pod, "status"), "conditions"):
        if condition.get("type") == kind:
            return str(condition.get("status"))
    return None


def toleration_seconds(pod: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return the seconds of the pod's tolerations, in their order; None for a toleration without seconds."""
    return tuple(each.get("tolerationSeconds") for each in list_in(part_of(pod, "spec"), "tolerations"))


def seconds_text(seconds: int | None) -> str:
    """Return a toleration's seconds for people: ``none``, or ``mark`` for MaxInt64."""
    return "none" if seconds is None else "mark" if seconds == MARK_SECONDS else str(seconds)


def tells_when_bound(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod already says when it was bound, or that it is not bound."""
    status = pod.get("status", {})
    return not isinstance(status, Mapping) or "conditions" in status or "startTime" in status


def node_name_of(pod: Mapping[str, Any]) -> str | None:
    """Return the node that the pod is bound to, None if it is not."""
    node_name = part_of(pod, "spec").get("nodeName")
    return node_name if isinstance(node_name, str) and node_name else None


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))
