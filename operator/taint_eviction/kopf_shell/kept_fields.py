"""Cuts nodes and pods down to the fields that are read (``kube.kubernetes_objects``), before Kopf sees them.

A field that is kept without a reader makes its changes cost an event. So a cordon, a heartbeat or a pod's readiness
changes nothing here. A part of the wrong shape stays as it is: reading the kept fields gives the same value, or the
same error, as reading the whole object (``tests/property/test_properties_of_kept_fields.py``).
"""

from collections.abc import Iterable
from typing import Any

from taint_eviction.core.objects import SHUTTING_DOWN
from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.adoption_patches import MAX_NOTE
from taint_eviction.kube.condition_patches import CONDITION_TYPE
from taint_eviction.kube.kubernetes_objects import HOLD_ANNOTATION, NODE_FIELDS, OWNER_FIELDS, POD_FIELDS

_OBJECT = ("apiVersion", "kind", "metadata", "spec", "status")
# The reader takes a name or a reason of 253 characters from so many.
_LONGEST_TEXT = 4 * 253
_OWNED_CONDITION = f'k:{{"type":"{CONDITION_TYPE}"}}'
_OWNED_BY_KUBELETS = tuple(f'k:{{"type":"{kind}"}}' for kind in ("Ready", "ContainersReady"))


def node_fields(body: JsonObject) -> JsonObject:
    """Return what the controller reads of a node: identity, labels, taints and their writes, condition Ready."""
    kept = _picked(body, _OBJECT)
    metadata = _narrow(kept, "metadata", NODE_FIELDS.metadata)
    if metadata.get("labels") == {}:
        del metadata["labels"]
    spec, status = _narrow(kept, "spec", NODE_FIELDS.spec), _narrow(kept, "status", NODE_FIELDS.status)
    if spec.get("taints"):
        _filter_list(metadata, "managedFields", _taints_write)
    else:
        metadata.pop("managedFields", None)
    _filter_list(status, "conditions", _readiness)
    return kept


def pod_fields(body: JsonObject, parts: PodParts = ALL_PARTS) -> JsonObject:
    """Return what the controller reads of a pod: identity, node, tolerations, priority, phase, times, owner,
    conditions, and these ``parts``.
    """
    kept = _picked(body, _OBJECT)
    metadata = _narrow(kept, "metadata", POD_FIELDS.metadata)
    names = [name for name in POD_FIELDS.annotations if parts.holds or name != HOLD_ANNOTATION]
    for key, text in _narrow(metadata, "annotations", names).items():
        if isinstance(text, str) and len(text) > MAX_NOTE:
            # The reader refuses longer annotations, also what is left of them here.
            metadata["annotations"][key] = text[: MAX_NOTE + 1]
    if isinstance(labels := metadata.get("labels"), dict):
        metadata["labels"] = parts.labels(labels)
    for emptied in ("annotations", "labels"):
        if metadata.get(emptied) == {}:
            del metadata[emptied]
    _filter_list(metadata, "managedFields", _disruption_target_write)
    _filter_list(metadata, "ownerReferences", _controller)
    _narrow(kept, "spec", POD_FIELDS.spec)
    status = _narrow(kept, "status", POD_FIELDS.status)
    _filter_list(status, "conditions", _pod_condition)
    return kept


def is_ending(pod: JsonObject) -> bool:
    """Return whether a pod is being deleted or has the condition DisruptionTarget. ``pod``: the kept fields."""
    status = pod.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return pod["metadata"].get("deletionTimestamp") is not None or (
        isinstance(conditions, list) and any(condition["type"] == CONDITION_TYPE for condition in conditions)
    )


def _picked(part: JsonObject, names: Iterable[str]) -> JsonObject:
    return {name: part[name] for name in names if name in part}


def _narrow(body: JsonObject, name: str, names: Iterable[str]) -> JsonObject:
    """Cut an object in ``body`` down and return it.

    A value of another type stays; then the returned object is unused.
    """
    part = body.get(name)
    if not isinstance(part, dict):
        return {}
    body[name] = narrowed = _picked(part, names)
    return narrowed


def _filter_list(part: JsonObject, name: str, keep: Any) -> None:
    """Replace a list by the results of ``keep`` for its entries, without None. A value of another type stays.

    An empty list is removed: absent means the same. So the first entry that is not kept is no change.
    """
    entries = part.get(name)
    if isinstance(entries, list):
        part[name] = [kept for entry in entries if (kept := keep(entry)) is not None]
        if not part[name]:
            del part[name]


def _condition(condition: Any, types: tuple[str, ...], names: tuple[str, ...]) -> JsonObject | None:
    return _picked(condition, names) if isinstance(condition, dict) and condition.get("type") in types else None


def _pod_condition(condition: Any) -> JsonObject | None:
    """Return a condition that says when the pod was bound, or that it is to end."""
    kept = _condition(condition, ("PodScheduled", CONDITION_TYPE), POD_FIELDS.condition)
    return None if kept is None else _cut_off(kept)


def _readiness(condition: Any) -> JsonObject | None:
    """Return the condition Ready; with its message only where that says that the node is shutting down."""
    kept = _condition(condition, ("Ready",), NODE_FIELDS.condition)
    if kept is not None and not (isinstance(message := kept.get("message"), str) and SHUTTING_DOWN in message):
        kept.pop("message", None)
    return kept


def _controller(reference: Any) -> JsonObject | None:
    """Return the reference to the owner that controls the object."""
    if not isinstance(reference, dict) or reference.get("controller") is not True:
        return None
    return _cut_off(_picked(reference, OWNER_FIELDS))


def _cut_off(part: JsonObject) -> JsonObject:
    """Return an object with texts of at most the length that is read."""
    return {name: value[:_LONGEST_TEXT] if isinstance(value, str) else value for name, value in part.items()}


def _taints_write(entry: Any) -> JsonObject | None:
    """Return the time at which the manager of this entry of managedFields wrote, if it owns the list of taints."""
    if not isinstance(entry, dict) or entry.get("subresource") or "f:taints" not in _at(entry, "fieldsV1", "f:spec"):
        return None
    return {**_picked(entry, ("time",)), "fieldsV1": {"f:spec": {"f:taints": {}}}}


def _disruption_target_write(entry: Any) -> JsonObject | None:
    """Return who wrote the reason of DisruptionTarget, and whether it is a kubelet, which owns other conditions, too;
    not when, since that changes with other conditions.
    """
    owned = _at(entry, "fieldsV1", "f:status", "f:conditions")
    if "f:reason" not in _at(owned, _OWNED_CONDITION):
        return None
    kept: JsonObject = {name: {} for name in _OWNED_BY_KUBELETS if name in owned}
    fields: JsonObject = {"f:status": {"f:conditions": {_OWNED_CONDITION: {"f:reason": {}}, **kept}}}
    return {**_picked(entry, ("manager",)), "fieldsV1": fields}


def _at(value: Any, *path: str) -> JsonObject:
    """Return the object at this path; an empty one where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
