"""What is special about each kind when it is written: what is filled in, what is ignored, what is refused.

Pure functions over one object; the order in which they are asked is `registry`'s. Reference: the `strategy.go` of
each kind in kubernetes/pkg/registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .defaults import (
    Admission,
    admit_pod,
    complete_conditions,
    complete_event,
    complete_namespace,
    complete_node,
    complete_pod,
    new_budget_status,
    taint_new_node,
)
from .resources import ResourceType
from .status import FieldError, JsonObject, bad_request
from .validation import (
    annotation_errors,
    config_map_errors,
    forbidden_field,
    node_errors,
    pod_errors,
    pod_update_errors,
)

_SYSTEM_METADATA = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "selfLink", "name", "namespace",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a write is done. `keep_status` and `track_fields=False` are for tests, which HTTP clients cannot ask for."""

    manager: str = "unknown"
    subresource: str = ""
    dry_run: bool = False
    keep_status: bool = False
    track_fields: bool = True


def check_shape(resource: ResourceType, obj: Mapping[str, object]) -> None:
    """Raises a 400 for an object of another kind, or one whose parts are no objects."""
    kind, api_version = obj.get("kind", resource.kind), obj.get("apiVersion", resource.api_version)
    if (kind, api_version) != (resource.kind, resource.api_version):
        raise bad_request(f'{kind} in version "{api_version}" cannot be handled as a {resource.kind}')
    for part in ("metadata", "spec", "status"):
        if not isinstance(obj.get(part, {}), dict | None):
            why = f"json: cannot unmarshal {type(obj[part]).__name__} into Go struct field {resource.kind}.{part}"
            raise bad_request(f'{resource.kind} in version "{api_version}" cannot be handled as a {kind}: {why}')
    if resource.plural == "configmaps":
        _check_config_map_shape(obj)


def _check_config_map_shape(config_map: Mapping[str, object]) -> None:
    for part in ("data", "binaryData"):
        values = config_map.get(part) or {}
        if not isinstance(values, dict) or not all(isinstance(value, str | None) for value in values.values()):
            why = f"json: cannot unmarshal into Go struct field ConfigMap.{part} of type map of strings"
            raise bad_request(f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {why}')


def prepare_create(resource: ResourceType, obj: JsonObject, options: WriteOptions) -> None:
    """Defaults, and a status as a new object has it."""
    drop_empty_lists(resource, obj)
    match resource.plural:
        case "pods":
            obj["spec"] = obj.get("spec") or {}
            if not options.keep_status or "status" not in obj:
                obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
            complete_pod(obj)
        case "poddisruptionbudgets" if not options.keep_status:
            obj["status"] = new_budget_status()
        case "namespaces":
            complete_namespace(obj)
    complete_conditions(obj, resource)


def admit(resource: ResourceType, obj: JsonObject, admission: Admission, *, is_new: bool) -> None:
    """What is added after the owners of fields were recorded, so that nobody owns it."""
    match resource.plural:
        case "pods":
            admit_pod(obj, admission, is_new=is_new)
        case "nodes":
            complete_node(obj)
            if is_new and admission.taint_nodes_by_condition:
                taint_new_node(obj)
        case "events":
            complete_event(obj)


def create_errors(resource: ResourceType, obj: JsonObject, admission: Admission) -> list[FieldError]:
    match resource.plural:
        case "pods":
            return annotation_errors(obj["metadata"]) + pod_errors(
                obj, comparisons=admission.toleration_comparison_operators
            )
        case "nodes":
            return node_errors(obj)
        case "configmaps":
            return config_map_errors(obj)
    return []


def update_errors(
    resource: ResourceType, obj: JsonObject, old: JsonObject, options: WriteOptions, admission: Admission
) -> list[FieldError]:
    """Real servers check metadata and nodes more than once on updates, and each finding is a cause of its own."""
    errors = 2 * _finalizer_errors(obj, old)
    if resource.plural == "nodes":
        return errors + 2 * node_errors(obj)
    if resource.plural == "configmaps":
        return errors + config_map_errors(obj)
    if resource.plural == "pods" and not options.keep_status:
        errors += 4 * annotation_errors(obj["metadata"])
    if resource.plural == "pods" and not options.subresource and not options.keep_status:
        return errors + pod_update_errors(obj, old, comparisons=admission.toleration_comparison_operators)
    return errors


def _finalizer_errors(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    if "deletionTimestamp" not in old["metadata"]:
        return []
    before = set(old["metadata"].get("finalizers") or [])
    added = sorted(set(obj["metadata"].get("finalizers") or []) - before)
    if not added:
        return []
    listed = ", ".join(f'"{name}"' for name in added)
    why = (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        f"found new finalizers []string{{{listed}}}"
    )
    return [forbidden_field("metadata.finalizers", why)]


def drop_empty_lists(resource: ResourceType, obj: JsonObject) -> None:
    """A list that is empty is no list in the real server's types, and what is null is absent."""
    if resource.plural in {"pods", "nodes"} and obj.get("spec"):
        obj["spec"] = {name: value for name, value in obj["spec"].items() if value != [] and value is not None}
        if isinstance(tolerations := obj["spec"].get("tolerations"), list):
            obj["spec"]["tolerations"] = [_without_null_seconds(each) for each in tolerations]


def _without_null_seconds(toleration: object) -> object:
    if isinstance(toleration, dict) and "tolerationSeconds" in toleration and toleration["tolerationSeconds"] is None:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}
    return toleration


def as_stored(resource: ResourceType, obj: JsonObject) -> JsonObject:
    """Gives the well-formed parts of an object, which this function may change, the form in which they are stored."""
    drop_empty_metadata(obj["metadata"])
    if isinstance(obj.get("spec"), dict):
        drop_empty_lists(resource, obj)
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    if isinstance(conditions, list) and all(isinstance(condition, dict) for condition in conditions):
        complete_conditions(obj, resource)
    return obj


def drop_empty_metadata(metadata: JsonObject) -> None:
    """Lists and maps that are empty are none."""
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not metadata.get(name):
            metadata.pop(name, None)


def restore_system_metadata(new: JsonObject, old: Mapping[str, object]) -> None:
    """What no update can change is taken from the old object."""
    for name in _SYSTEM_METADATA:
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)
    drop_empty_metadata(new)


def reset_fields(resource: ResourceType, obj: JsonObject, old: JsonObject, options: WriteOptions) -> None:
    """The object's endpoint does not touch status; the status endpoint touches nothing else but some metadata."""
    if not resource.has_status or options.keep_status:
        return
    _take(obj, old, "spec" if options.subresource == "status" else "status")
    if resource.plural != "pods":
        return
    if options.subresource == "status":
        _take(obj["metadata"], old["metadata"], "ownerReferences")
    if "qosClass" in (old.get("status") or {}):
        obj.setdefault("status", {}).setdefault("qosClass", old["status"]["qosClass"])


def _take(new: JsonObject, old: Mapping[str, object], name: str) -> None:
    """Makes one member what it was, absence included."""
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)
