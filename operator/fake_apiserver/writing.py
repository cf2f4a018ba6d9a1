"""Answers to everything that writes: bodies in, rules applied through the registry, status code and body out.

Each operation is synchronous: once the body is read, a write happens as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from .deletion import DeleteOptions, delete, delete_options
from .eviction import bind, evict
from .patching import json_patch, merge_patch
from .reading import selection_of
from .records import StoredObject
from .registry import Registry, WriteOptions
from .request_info import RequestInfo
from .resources import ResourceType
from .status import (
    JsonObject,
    StatusError,
    bad_request,
    method_not_allowed,
    no_such_path,
    success,
    unsupported_media_type,
)
from .strategic import strategic_merge_patch
from .validation import misread_seconds

MERGE, STRATEGIC, JSON_PATCH = (
    "application/merge-patch+json", "application/strategic-merge-patch+json", "application/json-patch+json",
)  # fmt: skip
_LONGEST_MANAGER = 128


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A status code and a body that is encoded already."""

    code: int
    body: bytes


def _of(code: int, obj: JsonObject) -> EncodedResponse:
    return EncodedResponse(code, orjson.dumps(obj) + b"\n")


def _of_record(code: int, record: StoredObject) -> EncodedResponse:
    return EncodedResponse(code, record.encoded() + b"\n")


def decode_body(raw: bytes, content_type: str, *, is_patch: bool = False) -> Any:
    """A request's JSON, None where there is none; raises 400 for what is no JSON and 415 for what does not say so."""
    if not raw:
        return None
    if content_type and "json" not in content_type:
        if is_patch:
            raise StatusError(415, "415: Unsupported Media Type", details={})
        raise unsupported_media_type(("application/json",))
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the object provided is unrecognized ({content_type}): {error}") from error


def manager_of(query: Mapping[str, str], user_agent: str) -> str:
    """Who owns the fields of a write: the parameter, or the User-Agent up to its slash."""
    return (query.get("fieldManager") or user_agent.partition("/")[0] or "unknown")[:_LONGEST_MANAGER]


def write(registry: Registry, info: RequestInfo, body: Any, content_type: str, user_agent: str) -> EncodedResponse:
    """Carries out one writing request; raises what the server answers otherwise."""
    resource = info.resource
    assert resource is not None
    manager = manager_of(info.query, user_agent)
    options = WriteOptions(manager, info.subresource, info.dry_run)
    if info.subresource in {"binding", "eviction"} and info.verb != "create":
        raise method_not_allowed()
    if resource.namespaced and not info.namespace:
        raise method_not_allowed()
    match info.verb:
        case "create":
            return _create(registry, info, resource, _decoded(resource, body), options)
        case "update":
            decoded = _decoded(resource, body)
            record, created = registry.update(resource, info.namespace, info.name, decoded, options)
            return _of_record(201 if created else 200, record)
        case "patch":
            change = patch_function(body, content_type, resource)
            record = registry.get(resource, info.namespace, info.name)
            return _of_record(200, registry.patch(record, change, options))
        case "delete":
            record = registry.get(resource, info.namespace, info.name)
            return _of(200, delete(registry, record, delete_options(_optional(body), info.query)))
        case "deletecollection":
            return _delete_collection(registry, info, delete_options(_optional(body), info.query))
    raise method_not_allowed()


def _object(body: Any) -> JsonObject:
    if not isinstance(body, dict):
        raise bad_request("the body of the request must be an object")
    return body


def _decoded(resource: ResourceType, body: Any) -> JsonObject:
    """The object in a body; raises 400 for what does not fit the kind."""
    obj = _object(body)
    if resource.plural == "pods" and (why := misread_seconds(obj)):
        raise bad_request(f'Pod in version "v1" cannot be handled as a Pod: {why}')
    return obj


def _patched(resource: ResourceType, obj: JsonObject) -> JsonObject:
    """What a patch made of an object; raises 422 for what does not fit the kind."""
    if resource.plural == "pods" and (why := misread_seconds(obj)):
        raise StatusError(422, f' "" is invalid: patch: Invalid value: {why}', details={})
    return obj


def _optional(body: Any) -> JsonObject | None:
    return None if body is None else _object(body)


def _create(
    registry: Registry, info: RequestInfo, resource: ResourceType, body: JsonObject, options: WriteOptions
) -> EncodedResponse:
    match info.subresource:
        case "":
            return _of_record(201, registry.create(resource, info.namespace, body, options))
        case "eviction" | "binding":
            if (body.get("metadata") or {}).get("name") != info.name:
                raise bad_request(f"name in URL does not match name in {info.subresource.capitalize()} object")
            record = registry.get(resource, info.namespace, info.name)
            if info.subresource == "eviction":
                return _of(201, evict(registry, record, body, info.query))
            bind(registry, record, body, dry_run=info.dry_run)
            return _of(201, success(code=201))
    raise no_such_path() if info.subresource != "status" else method_not_allowed()


def patch_function(body: Any, content_type: str, resource: ResourceType) -> Callable[[JsonObject], JsonObject]:
    """What a patch does to an object, by its content type; raises 415 for other types, apply among them."""
    kind = content_type.partition(";")[0].strip()
    if kind == JSON_PATCH:
        return lambda obj: _patched(resource, json_patch(obj, body))
    if kind not in {MERGE, STRATEGIC} or (resource.custom and kind == STRATEGIC):
        raise StatusError(415, "415: Unsupported Media Type", details={})
    patch = _object(body)
    if kind == STRATEGIC:
        return lambda obj: _patched(resource, strategic_merge_patch(obj, patch))
    return lambda obj: _patched(resource, _object(merge_patch(obj, patch)))


def _delete_collection(registry: Registry, info: RequestInfo, options: DeleteOptions) -> EncodedResponse:
    """Deletes what a list with these selectors shows, and answers with that list."""
    resource = info.resource
    assert resource is not None
    records = registry.store.select(selection_of(info))
    for record in records:
        try:
            delete(registry, record, options)
        except StatusError as error:
            if error.code != 404:
                raise
    head: JsonObject = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
    metadata = {"resourceVersion": str(registry.store.resource_version)}
    return _of(200, {**head, "metadata": metadata, "items": [orjson.Fragment(r.item()) for r in records]})
