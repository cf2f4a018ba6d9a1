"""What the server refuses in pods and nodes, as far as taints, tolerations and immutability go.

Each function returns the refused fields, empty where all is well. Texts and (odd) paths are those of
kubernetes/pkg/apis/core/validation; most other rules of that file are not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from .status import FieldError, JsonObject

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
POD_UPDATE_REFUSED = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
TOLERATION_REFUSED = "Forbidden: existing toleration can not be modified except its tolerationSeconds"

BAD_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
BAD_LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
BAD_CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_QUALIFIED_NAME = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LONGEST_NAME = 253
_LONGEST_ANNOTATIONS = 256 * 1024
_COMPARISONS = ("Gt", "Lt")
_INT64 = range(-(2**63), 2**63)
_JSON_KINDS = {str: "string", bool: "bool", list: "array"}
_CANONICAL_INT = re.compile(r"^(0|-?[1-9][0-9]*)$")


def _quoted(value: object) -> str:
    return orjson.dumps(value).decode()


def refused(field: str, value: object, why: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {_quoted(value)}: {why}")


def required(field: str, why: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, f"Required value{': ' if why else ''}{why}")


def forbidden_field(field: str, message: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, message)


def not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
    listed = ", ".join(_quoted(word) for word in supported)
    message = f"Unsupported value: {_quoted(value)}: supported values: {listed}"
    return FieldError("FieldValueNotSupported", field, message)


def name_errors(name: str) -> list[FieldError]:
    """Of metadata.name, an RFC 1123 subdomain for all kinds served here."""
    if len(name) <= _LONGEST_NAME and _SUBDOMAIN.match(name):
        return []
    why = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )
    return [refused("metadata.name", name, why)]


def metadata_update_errors(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    """Of the parts of metadata that never change, where the new object says something else about them."""
    return [
        refused(f"metadata.{name}", new[name], "field is immutable")
        for name in ("name", "namespace", "uid", "creationTimestamp")
        if new.get(name) and new[name] != old.get(name)
    ]


def _effect_errors(effect: str, field: str) -> list[FieldError]:
    if not effect:
        return [required(field)]
    return [] if effect in EFFECTS else [not_supported(field, effect, EFFECTS)]


def node_errors(node: JsonObject) -> list[FieldError]:
    """Of spec.taints, which must be unique by key and effect; the path really says `metadata.taints`."""
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node.get("spec", {}).get("taints") or []):
        field = f"metadata.taints[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        if not _QUALIFIED_NAME.match(key):
            errors.append(refused(f"{field}.key", key, BAD_NAME))
        if not _LABEL_VALUE.match(taint.get("value") or ""):
            errors.append(refused(f"{field}.value", taint["value"], BAD_LABEL))
        errors += _effect_errors(effect, f"{field}.effect")
        if (key, effect) in seen:
            unique = "taints must be unique by key and effect pair"
            value, added = taint.get("value") or "", taint.get("timeAdded")
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": added}
            errors.append(FieldError("FieldValueDuplicate", field, f"Duplicate value: {_quoted(shown)}: {unique}"))
        seen.add((key, effect))
    return errors


def config_map_errors(config_map: JsonObject) -> list[FieldError]:
    """Of the keys: what they are made of, how long they are, and that none is in both maps."""
    errors: list[FieldError] = []
    for part, other in (("data", "binaryData"), ("binaryData", "data")):
        for key in config_map.get(part) or {}:
            field = f"{part}[{key}]"
            if len(key) > _LONGEST_NAME:
                errors.append(refused(field, key, f"must be no more than {_LONGEST_NAME} bytes"))
            if not _CONFIG_KEY.fullmatch(key):
                errors.append(refused(field, key, BAD_CONFIG_KEY))
            if key in (config_map.get(other) or {}):
                errors.append(refused(field, key, f"duplicate of key present in {other}"))
    return errors


def toleration_errors(tolerations: Sequence[Mapping[str, Any]], *, comparisons: bool) -> list[FieldError]:
    """Of spec.tolerations; `comparisons` is the feature gate for the operators Gt and Lt."""
    errors: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        errors += _one_toleration(toleration, f"spec.tolerations[{index}]", comparisons)
    return errors


def _one_toleration(toleration: Mapping[str, Any], field: str, comparisons: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    key, value = toleration.get("key") or "", toleration.get("value") or ""
    operator, effect = toleration.get("operator") or "", toleration.get("effect") or ""
    if key and not _QUALIFIED_NAME.match(key):
        errors.append(refused(f"{field}.key", key, BAD_NAME))
    if not key and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(refused(f"{field}.operator", operator, why))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        errors.append(refused(f"{field}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
    if operator == "Exists" and value:
        errors.append(refused(f"{field}.operator", value, "value must be empty when `operator` is 'Exists'"))
    elif operator in _COMPARISONS and comparisons:
        if not _CANONICAL_INT.match(value):
            errors.append(refused(f"{field}.value", value, "value must be a valid integer for numeric operators"))
    elif operator not in {"", "Equal", "Exists"}:
        # To those who ask for Lt and Gt they are listed even where the feature is off, as by the real server.
        more = ("Lt", "Gt") if comparisons or operator in _COMPARISONS else ()
        errors.append(not_supported(f"{field}.operator", operator, ("Equal", "Exists", *more)))
    if effect:
        errors += _effect_errors(effect, f"{field}.effect")
    return errors


def pod_errors(pod: JsonObject, *, comparisons: bool) -> list[FieldError]:
    """Of a pod that is being created."""
    spec = pod.get("spec") or {}
    errors = [] if spec.get("containers") else [required("spec.containers")]
    for index, container in enumerate(spec.get("containers") or []):
        errors += [] if container.get("name") else [required(f"spec.containers[{index}].name")]
        errors += [] if container.get("image") else [required(f"spec.containers[{index}].image")]
    return errors + toleration_errors(spec.get("tolerations") or [], comparisons=comparisons)


def pod_update_errors(new: JsonObject, old: JsonObject, *, comparisons: bool) -> list[FieldError]:
    """Of a pod's spec: tolerations may be added and their seconds changed; images and the deadline may change."""
    new_spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    tolerations = new_spec.get("tolerations") or []
    without_seconds = [_without_seconds(toleration) for toleration in tolerations]
    # Real servers check them as part of the spec, and again with those of before.
    errors = again = toleration_errors(tolerations, comparisons=comparisons)
    if any(_without_seconds(t) not in without_seconds for t in old_spec.get("tolerations") or []):
        again = [forbidden_field("spec.tolerations", TOLERATION_REFUSED)]
    errors = errors + again
    if _mutable_parts_removed(new_spec, old_spec) != _mutable_parts_removed(old_spec, old_spec):
        errors.append(forbidden_field("spec", POD_UPDATE_REFUSED))
    return errors


def annotation_errors(metadata: Mapping[str, Any]) -> list[FieldError]:
    """Of all annotations together: how long they are."""
    size = sum(len(f"{key}{text}".encode()) for key, text in (metadata.get("annotations") or {}).items())
    if size <= _LONGEST_ANNOTATIONS:
        return []
    why = f"Too long: may not be more than {_LONGEST_ANNOTATIONS} bytes"
    return [FieldError("FieldValueTooLong", "metadata.annotations", why)]


def misread_seconds(pod: JsonObject) -> str:
    """What a real server's decoder says of the first tolerationSeconds that is no whole number; "" if there is none."""
    tolerations = (pod.get("spec") or {}).get("tolerations")
    for toleration in tolerations if isinstance(tolerations, list) else ():
        seconds = toleration.get("tolerationSeconds") if isinstance(toleration, dict) else None
        if seconds is None or (type(seconds) is int and seconds in _INT64):
            continue
        kind = f"number {seconds}" if type(seconds) in (int, float) else _JSON_KINDS.get(type(seconds), "object")
        where = "Toleration.spec.tolerations.tolerationSeconds of type int64"
        return f"json: cannot unmarshal {kind} into Go struct field {where}"
    return ""


def _without_seconds(toleration: Mapping[str, Any]) -> JsonObject:
    return {k: v for k, v in toleration.items() if k != "tolerationSeconds" and v not in ("", None)}


def _mutable_parts_removed(spec: Mapping[str, Any], old_spec: Mapping[str, Any]) -> JsonObject:
    removed = {"tolerations", "activeDeadlineSeconds"}
    old_grace = old_spec.get("terminationGracePeriodSeconds")
    if old_grace is not None and old_grace < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        removed.add("terminationGracePeriodSeconds")
    rest = {k: v for k, v in spec.items() if k not in removed and v not in ({}, [], None)}
    for containers in ("containers", "initContainers"):
        if containers in rest:
            rest[containers] = [{k: v for k, v in c.items() if k != "image"} for c in rest[containers]]
    return rest
