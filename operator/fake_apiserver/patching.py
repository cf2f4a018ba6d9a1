"""Merge patch (RFC 7386) and JSON patch (RFC 6902): a document and a patch in, a new document out.

Strategic merge has a module of its own. Nothing is written in place and nothing is validated beyond the patch itself.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from .status import JsonObject, StatusError, bad_request


def merge_patch(target: Any, patch: Any) -> Any:
    """A null deletes, an object merges, anything else replaces."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def json_patch(target: JsonObject, operations: Any) -> JsonObject:
    """All operations or none; a failing `test` or a missing path is a 422, as the real server answers."""
    if not isinstance(operations, list):
        why = "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        raise bad_request(f"error decoding patch: {why}")
    document: Any = deepcopy(target)
    for operation in operations:
        try:
            document = _apply_operation(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise _refused() from error
    if not isinstance(document, dict):
        raise _refused()
    return document


def _refused() -> StatusError:
    """The real server does not say which operation failed either."""
    return StatusError(422, "the server rejected our request due to an error in our request", details={})


def _apply_operation(document: Any, operation: JsonObject) -> Any:
    kind, steps = operation["op"], _steps(operation["path"])
    match kind:
        case "add":
            return _add(document, steps, deepcopy(operation["value"]))
        case "remove":
            return _remove(document, steps)
        case "replace":
            # A member that is not there is added.
            parent = _read(document, steps[:-1])
            there = bool(steps) and (isinstance(parent, list) or steps[-1] in parent)
            return _add(_remove(document, steps) if there else document, steps, deepcopy(operation["value"]))
        case "move":
            source = _steps(operation["from"])
            value = _read(document, source)
            return _add(_remove(document, source), steps, value)
        case "copy":
            return _add(document, steps, deepcopy(_read(document, _steps(operation["from"]))))
        case "test":
            if _tested(document, steps) != operation.get("value"):
                raise ValueError(f"testing value {operation['path']} failed")
            return document
    raise ValueError(f"unexpected kind: {kind}")


def _steps(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _index(step: str, length: int) -> int:
    index = int(step)
    if not 0 <= index < length:
        raise IndexError(f"unable to access invalid index: {step}")
    return index


def _read(document: Any, steps: list[str]) -> Any:
    for step in steps:
        document = document[_index(step, len(document))] if isinstance(document, list) else document[step]
    return document


def _tested(document: Any, steps: list[str]) -> Any:
    """What is there; a member that an object lacks is null."""
    if not steps:
        return document
    parent = _read(document, steps[:-1])
    return parent.get(steps[-1]) if isinstance(parent, dict) else _read(parent, steps[-1:])


def _add(document: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    parent, last = _read(document, steps[:-1]), steps[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
    else:
        parent[last] = value
    return document


def _remove(document: Any, steps: list[str]) -> Any:
    parent, last = _read(document, steps[:-1]), steps[-1]
    if isinstance(parent, list):
        del parent[_index(last, len(parent))]
    else:
        del parent[last]
    return document
