"""A release ↔ the text of the query parameter ``release`` of /status, which commands write and a controller reads.

It is a JSON object with ``pauses`` (null: all pauses), ``only`` and ``reset``; a scope is ``[kind, name]``.
"""

from typing import Any

import orjson

from taint_eviction.core.control_state import PauseScope, Release, selector_scope
from taint_eviction.kube.json_fields import Unreadable, as_list, is_object, refuse


def release_text(release: Release) -> str:
    """Return the text of a release."""
    return orjson.dumps(release_document(release)).decode()


def release_document(release: Release) -> dict[str, Any]:
    """Return a release as a JSON object."""
    pauses = None if release.pauses is None else _listed(release.pauses)
    return {"pauses": pauses, "only": _listed(release.only), "reset": release.reset}


def _listed(scopes: frozenset[PauseScope]) -> list[list[str]]:
    return [list(scope) for scope in sorted(scopes)]


def read_release(text: str) -> Release:
    """Read a release; raise ``ValueError`` if the text is not one."""
    try:
        found = orjson.loads(text)
        if not is_object(found) or not isinstance(found.get("reset", False), bool):
            refuse("it is not an object in which reset is true or false")
        only = _scopes(found.get("only"), "only")
        if len({scope.kind for scope in only}) > 1:
            refuse("only has scopes of several kinds")
        pauses = None if found.get("pauses") is None else _scopes(found["pauses"], "pauses")
        release = Release(pauses, only, found.get("reset", False))
        release.others(())
        return release
    except (ValueError, Unreadable) as error:
        raise ValueError(f"release is malformed: {error}") from error


def _scopes(value: object, path: str) -> frozenset[PauseScope]:
    return frozenset(_scope(each, path) for each in as_list(value, path))


def _scope(value: object, path: str) -> PauseScope:
    match value:
        case ["selector", str() as text]:
            return selector_scope(text)
        case [("all" | "node" | "namespace") as kind, str() as name]:
            return PauseScope(kind, name)
        case _:
            refuse(f"{path} has something other than [kind, name], where kind is all, selector, node or namespace")
