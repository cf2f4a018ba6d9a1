"""Nodes and pods as Kubernetes JSON: how the API server completes and changes them.

Pure functions from an object to a new one; whoever gets an object may keep it, nothing changes it afterwards. What a
scenario gives verbatim may be malformed anywhere but in its metadata: parts that are none are taken for empty.
Not here: names, versions and deletion (``cluster``).

Reference: apimachinery/pkg/util/managedfields for who owns ``f:taints``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

JsonObject = dict[str, Any]

HOLD_ANNOTATION = "taint-eviction/hold"

CONDITION_TYPE = "DisruptionTarget"
CONDITION_REASON = "DeletionByTaintManager"
CONDITION_MESSAGE = "Taint manager: deleting due to NoExecute taint"


def part_of(body: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return metadata, spec or status; empty where it is absent or no mapping."""
    found = body.get(part)
    return found if isinstance(found, Mapping) else {}


def list_in(part: Mapping[str, Any], name: str) -> list[Any]:
    """Return the mappings in a field that is a list of mappings; without what is not."""
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


# Nodes


def taints_of(node: Mapping[str, Any]) -> list[JsonObject]:
    """Return the node's taints."""
    return list_in(part_of(node, "spec"), "taints")


def with_taints(node: Mapping[str, Any], taints: Sequence[JsonObject], manager: str, time: str) -> JsonObject:
    """Return the node with these taints, written by ``manager``; the times of untouched ones stay."""
    written = with_spec(node, taints=list(taints) or None)
    return with_owner_of_taints(written, manager, time)


def add_taints(present: Sequence[JsonObject], added: Sequence[JsonObject]) -> list[JsonObject]:
    """Add taints as ``kubectl taint --overwrite`` does: one of the same key and effect is replaced."""
    keys = {_taint_identity(taint) for taint in added}
    return [taint for taint in present if _taint_identity(taint) not in keys] + list(added)


def remove_taints(present: Sequence[JsonObject], key: str, effect: str) -> list[JsonObject]:
    """Remove the taints of this key, and of this effect unless that is empty."""
    return [taint for taint in present if taint.get("key") != key or (effect and taint.get("effect") != effect)]


def _taint_identity(taint: Mapping[str, Any]) -> tuple[Any, Any]:
    return taint.get("key"), taint.get("effect")


def with_owner_of_taints(node: JsonObject, manager: str, time: str) -> JsonObject:
    """Give ``f:taints`` to ``manager``; an object without managedFields is not tracked and stays so."""
    before = node["metadata"].get("managedFields")
    if before == []:
        return node
    entries = list_in(node["metadata"], "managedFields")
    others = [entry for entry in entries if "f:taints" not in part_of(part_of(entry, "fieldsV1"), "f:spec")]
    if not taints_of(node):
        return with_metadata(node, managedFields=others or None)
    owner = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:taints": {}}},
    }
    return with_metadata(node, managedFields=[*others, owner])


def with_write_by(node: Mapping[str, Any], manager: str, time: str) -> JsonObject:
    """Return the node after ``manager`` wrote anything else than taints on it: its entry's time moves."""
    entries = [
        {**entry, "time": time} if entry.get("manager") == manager else entry
        for entry in list_in(node["metadata"], "managedFields")
    ]
    # None at all is not the same as an empty list, which says that nobody keeps account.
    return with_metadata(node, managedFields=entries) if entries else dict(node)


# Pods


def bound(pod: Mapping[str, Any], node_name: str, time: str) -> JsonObject:
    """Return the pod as the scheduler's binding leaves it."""
    return with_condition(
        with_spec(pod, nodeName=node_name), {"type": "PodScheduled", "status": "True", "lastTransitionTime": time}
    )


def tells_when_bound(pod: Mapping[str, Any]) -> bool:
    """Tell whether somebody has already written when the pod was bound, or that nobody did."""
    status = pod.get("status", {})
    return not isinstance(status, Mapping) or "conditions" in status or "startTime" in status


def with_hold(pod: Mapping[str, Any], hold: str | None) -> JsonObject:
    """Return the pod with the annotation by which its owner holds its eviction; None removes it."""
    annotations = {**part_of(part_of(pod, "metadata"), "annotations"), HOLD_ANNOTATION: hold}
    return with_metadata(pod, annotations={name: value for name, value in annotations.items() if value is not None})


def with_condition(pod: Mapping[str, Any], condition: Mapping[str, Any]) -> JsonObject:
    """Return the pod with the condition merged by its type, as a strategic merge patch does."""
    conditions = list_in(part_of(pod, "status"), "conditions")
    for index, present in enumerate(conditions):
        if present.get("type") == condition["type"]:
            conditions[index] = {**present, **condition}
            break
    else:
        conditions.append(dict(condition))
    return with_status(pod, conditions=conditions)


def disruption_target(status: str, time: str | None) -> JsonObject:
    """Make the DisruptionTarget condition of this controller; ``time`` None leaves the transition time as it is."""
    condition: JsonObject = {
        "type": CONDITION_TYPE,
        "status": status,
        "reason": CONDITION_REASON,
        "message": CONDITION_MESSAGE,
    }
    return condition if time is None else {**condition, "lastTransitionTime": time}


def eviction_target(time: str | None) -> JsonObject:
    """Make the DisruptionTarget condition that the eviction API sets; ``time`` as in ``disruption_target``."""
    condition = {**disruption_target("True", time), "reason": "EvictionByEvictionAPI"}
    return {**condition, "message": "Eviction API: evicting"}


def condition_status(pod: Mapping[str, Any]) -> str | None:
    """Return the status of the pod's DisruptionTarget condition, None if it has none."""
    for condition in list_in(part_of(pod, "status"), "conditions"):
        if condition.get("type") == CONDITION_TYPE:
            return str(condition.get("status"))
    return None


def node_name_of(pod: Mapping[str, Any]) -> str | None:
    """Return the node that the pod is bound to, None if it is not."""
    node_name = part_of(pod, "spec").get("nodeName")
    return node_name if isinstance(node_name, str) and node_name else None


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """Tell whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def fresh_pod(pod: Mapping[str, Any]) -> JsonObject:
    """Return what is created in place of a pod that went: what server, scheduler and kubelet set is left out."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
    metadata = {name: value for name, value in pod["metadata"].items() if name in kept}
    spec = {name: value for name, value in part_of(pod, "spec").items() if name != "nodeName"}
    return {"metadata": metadata, "spec": spec}
