"""Deleting: preconditions, grace periods and finalizers, in the real server's order.

Reference: apiserver/pkg/registry/rest/delete.go and kubernetes/pkg/registry/core/pod/strategy.go. The kubelet ends a
graceful deletion, see `kubelet`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any

from .clock import parse_timestamp
from .records import StoredObject
from .registry import Registry
from .status import JsonObject, bad_request, conflict, success

_FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """`grace_period_seconds` None means the pod's own; negative counts as 1."""

    grace_period_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


def delete_options(body: Mapping[str, Any] | None, query: Mapping[str, str]) -> DeleteOptions:
    """Of a DELETE; a body that is present wins over the query, as in the real server."""
    if body:
        preconditions = body.get("preconditions") or {}
        dry_run = body.get("dryRun") or []
        grace = body.get("gracePeriodSeconds")
    else:
        preconditions, dry_run = {}, [query["dryRun"]] if query.get("dryRun") else []
        grace = int(query["gracePeriodSeconds"]) if query.get("gracePeriodSeconds") else None
    if dry_run not in ([], ["All"]):
        raise bad_request(f"Invalid value: {dry_run}: supported values: All")
    return DeleteOptions(grace, preconditions.get("uid"), preconditions.get("resourceVersion"), bool(dry_run))


def check_preconditions(record: StoredObject, options: DeleteOptions) -> None:
    """Raises the 409 that tells which precondition failed; it names the kind, not the plural, as the real one."""
    resource = record.resource
    if options.uid and options.uid != record.uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({record.uid}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource.group, resource.kind, record.name, why)
    if options.resource_version and options.resource_version != str(record.resource_version):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({record.resource_version}). The object might have been modified"
        )
        raise conflict(resource.group, resource.kind, record.name, why)


def delete(registry: Registry, record: StoredObject, options: DeleteOptions) -> JsonObject:
    """Deletes or marks for deletion; returns what the server answers: the object, or a Status where it is gone."""
    check_preconditions(record, options)
    obj = record.decode()
    if record.resource.plural == "pods":
        return _delete_pod(registry, record, obj, options)
    if obj["metadata"].get("finalizers"):
        if "deletionTimestamp" not in obj["metadata"]:
            _mark(registry, obj, 0)
            _commit(registry, record, obj, options)
        return obj
    return _remove(registry, record, obj, options)


def _delete_pod(registry: Registry, record: StoredObject, obj: JsonObject, options: DeleteOptions) -> JsonObject:
    metadata = obj["metadata"]
    current = metadata.get("deletionGracePeriodSeconds")
    grace = options.grace_period_seconds
    if grace is not None and grace < 0:
        grace = 1
    if "deletionTimestamp" not in metadata:
        _mark(registry, obj, _grace_of(obj, grace))
        _commit(registry, record, obj, options)
    elif current:
        if grace is None or grace >= current:
            return obj
        _shorten(obj, current, grace)
        _commit(registry, record, obj, options)
    if metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers"):
        return obj
    latest = registry.store.get("pods", record.namespace, record.name)
    return _remove(registry, latest or record, obj, options)


def _grace_of(pod: JsonObject, asked: int | None) -> int:
    """Seconds: what was asked for or the pod's own; none for pods that no kubelet runs (any more)."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    period = asked if asked is not None else int(spec.get("terminationGracePeriodSeconds") or 0)
    return 1 if period < 0 else period


def _mark(registry: Registry, obj: JsonObject, grace_seconds: int) -> None:
    metadata = obj["metadata"]
    metadata["deletionTimestamp"] = registry.clock.timestamp(plus_seconds=grace_seconds)
    metadata["deletionGracePeriodSeconds"] = grace_seconds
    if metadata.get("generation"):
        metadata["generation"] += 1


def _shorten(obj: JsonObject, current: int, grace: int) -> None:
    metadata = obj["metadata"]
    earlier = parse_timestamp(metadata["deletionTimestamp"]) - timedelta(seconds=current - grace)
    metadata["deletionTimestamp"] = earlier.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata["deletionGracePeriodSeconds"] = grace


def _commit(registry: Registry, record: StoredObject, obj: JsonObject, options: DeleteOptions) -> None:
    if not options.dry_run:
        registry.store.commit(record.resource, obj)


def _remove(registry: Registry, record: StoredObject, obj: JsonObject, options: DeleteOptions) -> JsonObject:
    resource = record.resource
    if not options.dry_run:
        last = registry.store.remove(record)
        obj["metadata"]["resourceVersion"] = str(last.resource_version)
    if resource.returns_deleted_object:
        return obj
    details = {"name": record.name, "kind": resource.plural, "uid": record.uid}
    return success({"group": resource.group, **details} if resource.group else details)
