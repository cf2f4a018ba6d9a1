"""Strategic merge patch: a merge patch that knows which lists are maps or sets.

Directives: `$patch: delete|replace|merge` in objects and list items, `$retainKeys`, `$setElementOrder/<list>` and
`$deleteFromPrimitiveList/<list>`. Reference: apimachinery/pkg/util/strategicpatch and the patchMergeKey tags
of k8s.io/api. `taints` and `tolerations` have no such tag, so they are replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from .status import JsonObject, StatusError, bad_request

MERGE_KEYS: Mapping[str, str] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "hostIPs": "ip",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists of objects that merge by a key; the values are the patchMergeKey tags."""

MERGED_PRIMITIVES = frozenset({"finalizers", "podCIDRs"})

_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"


def strategic_merge_patch(target: JsonObject, patch: JsonObject) -> JsonObject:
    """A new document; raises 400 for directives that are none, 500 for items without their merge key."""
    return _merge(target, patch)


def _merge(target: JsonObject, patch: JsonObject) -> JsonObject:
    match patch.get("$patch"):
        case "replace":
            return {k: deepcopy(v) for k, v in patch.items() if k != "$patch"}
        case "delete":
            return {}
        case None | "merge":
            pass
        case unknown:
            raise bad_request(f"unknown patch type: {unknown}")
    merged = dict(target)
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            below = merged.get(name)
            merged[name] = _merge(below if isinstance(below, dict) else {}, value)
        elif isinstance(value, list):
            merged[name] = _merge_list(name, merged.get(name) or [], value, patch)
        else:
            merged[name] = value
    _delete_primitives(merged, patch)
    _order_untouched(merged, patch, target)
    return _retain(merged, patch)


def _delete_primitives(merged: JsonObject, patch: JsonObject) -> None:
    for directive, gone in patch.items():
        if directive.startswith(_DELETE):
            name = directive.removeprefix(_DELETE)
            added = patch.get(name) or []
            merged[name] = [item for item in merged.get(name) or [] if item not in gone or item in added]


def _order_untouched(merged: JsonObject, patch: JsonObject, old: JsonObject) -> None:
    """An order may come without a change of its list."""
    for directive, order in patch.items():
        name = directive.removeprefix(_ORDER)
        if directive.startswith(_ORDER) and name not in patch and isinstance(merged.get(name), list):
            merged[name] = _ordered(merged[name], order, old.get(name) or [], _identify(name))


def _retain(merged: JsonObject, patch: JsonObject) -> JsonObject:
    if "$retainKeys" not in patch:
        return merged
    retained = set(patch["$retainKeys"])
    return {name: value for name, value in merged.items() if name in retained}


def _merge_list(name: str, old: list[Any], changes: list[Any], patch: JsonObject) -> list[Any]:
    if name in MERGED_PRIMITIVES:
        merged = [*old, *(item for item in changes if item not in old)]
    elif name in MERGE_KEYS and all(isinstance(item, dict) for item in changes):
        merged = _merge_items(MERGE_KEYS[name], old, changes)
    else:
        return deepcopy(changes)
    order = patch.get(_ORDER + name, changes)
    return _ordered(merged, order, old, _identify(name))


def _merge_items(key: str, old: list[Any], changes: list[Any]) -> list[Any]:
    """Items by their key: changed where they are, new ones appended, deleted ones gone."""
    if any(change.get("$patch") == "replace" for change in changes):
        return [deepcopy(change) for change in changes if change.get("$patch") != "replace"]
    merged = list(old)
    for change in changes:
        if key not in change:
            raise StatusError(500, f"map: {change} does not contain declared merge key: {key}", details={})
        places = [index for index, item in enumerate(merged) if item.get(key) == change[key]]
        if change.get("$patch") == "delete":
            merged = [item for item in merged if item.get(key) != change[key]]
        elif places:
            merged[places[0]] = _merge(merged[places[0]], change)
        else:
            merged.append(_merge({}, change))
    return merged


def _identify(name: str) -> Callable[[Any], Any]:
    key = MERGE_KEYS.get(name)
    return lambda item: item.get(key) if key and isinstance(item, dict) else item


def _ordered(items: list[Any], order: list[Any], old: list[Any], identify: Callable[[Any], Any]) -> list[Any]:
    """Items that the order names come in that order; the others stay before what they stood before in the old list.

    Without an explicit order the patch's own is meant, so that new items come first.
    """
    wanted = [identify(item) for item in order]
    before = [identify(item) for item in old]
    named = sorted((i for i in items if identify(i) in wanted), key=lambda item: wanted.index(identify(item)))
    others = [item for item in items if identify(item) not in wanted]
    merged: list[Any] = []
    while named and others:
        one, other = identify(named[0]), identify(others[0])
        stays_before = one in before and other in before and before.index(other) < before.index(one)
        merged.append((others if stays_before else named).pop(0))
    return merged + named + others
