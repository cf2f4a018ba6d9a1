"""`metadata.managedFields`: who owns which field, as far as Update operations go.

The rule, read from apimachinery/pkg/util/managedfields: what a write changes or adds becomes its manager's, the others
lose it; removed fields are lost by all; the manager's entry takes the time of the write if it took any field; and an
object whose managedFields are empty is not tracked any more. Server-side apply is not served, so nothing conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from .status import JsonObject

Path = tuple[str, ...]
"""Steps as they stand in fieldsV1: `f:spec`, `k:{"type":"Ready"}`, and `.` for the map or item itself."""

LIST_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "protocol"),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Lists that are maps by these keys; `taints` and `tolerations` are owned as a whole, like all others."""

_SETS = frozenset({"finalizers", "podCIDRs"})
_MAPS = frozenset(
    {"labels", "annotations", "data", "binaryData", "nodeSelector", "capacity", "allocatable", "limits", "requests",
     "disruptedPods"}
)  # fmt: skip
_ATOMIC = frozenset({"selector", "nodeSelectorTerms", "involvedObject"})
_REQUIRED = frozenset({"containers"})
"""Lists that exist, if empty, in every object of their type, so that nobody owns the list itself."""
_STRIPPED = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
     "deletionTimestamp", "deletionGracePeriodSeconds"}
)  # fmt: skip


def leaves(obj: Mapping[str, Any]) -> dict[Path, Any]:
    """Every ownable field of an object with its value; a map or keyed item itself is a path that ends in `.`."""
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k not in _STRIPPED}
    body = {k: v for k, v in obj.items() if k not in {"kind", "apiVersion", "metadata"} and v != {}}
    return dict(_leaves({"metadata": metadata, **body}, ()))


def _leaves(node: Mapping[str, Any], at: Path) -> Iterator[tuple[Path, Any]]:
    for name, value in node.items():
        if value == []:
            continue
        here = (*at, f"f:{name}")
        if isinstance(value, dict) and value and name not in _ATOMIC:
            if name in _MAPS:
                yield (*here, "."), None
            yield from _leaves(value, here)
        elif isinstance(value, list) and value and name in LIST_KEYS:
            if name not in _REQUIRED:
                yield (*here, "."), None
            yield from _items(value, LIST_KEYS[name], here)
        elif isinstance(value, list) and name in _SETS:
            yield (*here, "."), None
            yield from (((*here, f"v:{orjson.dumps(item).decode()}"), None) for item in value)
        elif here != ("f:metadata",):
            yield here, value


def _items(items: list[Any], keys: tuple[str, ...], at: Path) -> Iterator[tuple[Path, Any]]:
    for item in items:
        identity = {key: item[key] for key in keys if key in item}
        if "protocol" in keys:
            identity.setdefault("protocol", "TCP")
        here = (*at, f"k:{orjson.dumps(identity, option=orjson.OPT_SORT_KEYS).decode()}")
        yield (*here, "."), None
        yield from _leaves(item, here)


def to_fields(paths: set[Path]) -> JsonObject:
    """Paths as fieldsV1; `.` steps become the `.` members of their parents."""
    fields: JsonObject = {}
    for path in sorted(paths):
        node = fields
        for step in path:
            node = node.setdefault(step, {})
    return fields


def from_fields(fields: Mapping[str, Any], at: Path = ()) -> set[Path]:
    """The reverse of `to_fields`."""
    found: set[Path] = set()
    for step, below in fields.items():
        here = (*at, step)
        found |= from_fields(below, here) if below else {here}
    return found


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes: `name` from fieldManager or the User-Agent; `subresource` is "" for the object itself."""

    name: str
    api_version: str
    subresource: str = ""
    operation: str = "Update"

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self.name, self.operation, self.api_version, self.subresource


def track(
    old: Mapping[str, Any] | None, new: JsonObject, manager: Manager, timestamp: str, *, status_is_reset: bool = False
) -> None:
    """Brings `new`'s managedFields up to date with what this write changes; `old` is None for creations.

    `status_is_reset`: status belongs to a subresource, so that the creator of the object owns nothing of it.
    """
    entries = _entries_to_start_from(old, new, manager)
    if entries is None:
        new["metadata"].pop("managedFields", None)
        return
    before, after = leaves(_differing(old, new)) if old is not None else {}, leaves(_differing(new, old or {}))
    taken = {path for path, value in after.items() if path not in before or before[path] != value}
    if old is None and status_is_reset:
        taken = {path for path in taken if path[0] != "f:status"}
    removed = before.keys() - after.keys()
    kept: list[JsonObject] = []
    mine: JsonObject | None = None
    for entry in entries:
        fields = entry.get("fieldsV1") or {}
        owned = from_fields(fields)
        is_mine = _identity(entry) == manager.identity
        paths = (owned - removed) | taken if is_mine else owned - removed - taken
        if not paths:
            continue
        changed = {**entry, "fieldsV1": fields if paths == owned else to_fields(paths)}
        if is_mine:
            mine = changed
            if taken:
                changed["time"] = timestamp
        kept.append(changed)
    if taken and mine is None:
        kept.append(_new_entry(manager, timestamp, taken))
    kept.sort(key=lambda e: (e.get("operation", ""), e.get("time", ""), e.get("manager", "")))
    new["metadata"].pop("managedFields", None)
    if kept:
        new["metadata"]["managedFields"] = kept


def _differing(obj: Mapping[str, Any], other: Mapping[str, Any]) -> JsonObject:
    """Without the parts that are the same in both, which no write changes: most of a large object."""
    parts = {name: part for name, part in obj.items() if name == "metadata" or name not in other or other[name] != part}
    metadata, others = obj["metadata"], other.get("metadata", {})
    same = {name for name, part in metadata.items() if name in others and others[name] == part}
    return {**parts, "metadata": {name: part for name, part in metadata.items() if name not in same}}


def _entries_to_start_from(
    old: Mapping[str, Any] | None, new: Mapping[str, Any], manager: Manager
) -> list[JsonObject] | None:
    """The entries before the write; None where the object is not tracked."""
    if old is None:
        return []
    live: list[JsonObject] = old["metadata"].get("managedFields") or []
    given: list[JsonObject] = new["metadata"].get("managedFields") or []
    if manager.subresource or not given:
        return live or None
    if given == [{}]:
        # An explicit reset: from now on this object is not tracked.
        return None
    return given


def _identity(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return (
        entry.get("manager", ""), entry.get("operation", ""), entry.get("apiVersion", ""), entry.get("subresource", "")
    )  # fmt: skip


def _new_entry(manager: Manager, timestamp: str, paths: set[Path]) -> JsonObject:
    entry: JsonObject = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": timestamp,
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields(paths),
    }
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry
