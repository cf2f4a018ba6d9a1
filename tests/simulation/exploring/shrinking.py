"""Shrinks a failing document: removes steps, pods, nodes and settings as long as it breaks the same rule."""

import copy
from collections.abc import Callable
from typing import Any

from tests.simulation.exploring.playing import play
from tests.simulation.exploring.restraining import JsonObject

from taint_eviction.files.marked_yaml import Malformed

_MAX_PLAYS = 400

Fails = Callable[[JsonObject], bool]


def shrunk(document: JsonObject, rule: str, max_plays: int = _MAX_PLAYS) -> JsonObject:
    """Return the smallest document found that still breaks ``rule`` first, after at most ``max_plays`` runs."""
    plays = 0

    def fails(candidate: JsonObject) -> bool:
        nonlocal plays
        plays += 1
        if plays > max_plays:
            return False
        try:
            return play(candidate, enough=bool).rule == rule
        except Malformed:
            return False

    return shrunk_by(document, fails)


def shrunk_by(document: JsonObject, fails: Fails) -> JsonObject:
    """Return a document from which no single item or field can be removed without ``fails`` becoming false."""
    while True:
        before = copy.deepcopy(document)
        document = _shorter_list(document, ("timeline",), fails)
        document = _shorter_list(document, ("given", "pods"), fails)
        document = _shorter_list(document, ("given", "nodes"), fails)
        document = _fewer_fields(document, ("given",), fails)
        document = _fewer_fields(document, ("settings", "breaker"), fails)
        document = _simpler_settings(document, fails)
        if document == before:
            return document


def _shorter_list(document: JsonObject, path: tuple[str, ...], fails: Fails) -> JsonObject:
    """Remove runs of items, long ones first."""
    size = max(1, len(_at(document, path) or ()) // 2)
    while size:
        begin = 0
        while begin < len(_at(document, path) or ()):
            candidate = copy.deepcopy(document)
            del _at(candidate, path)[begin : begin + size]
            if fails(candidate):
                document = candidate
            else:
                begin += size
        size //= 2
    return document


def _fewer_fields(document: JsonObject, path: tuple[str, ...], fails: Fails) -> JsonObject:
    """Remove the fields of a mapping one by one, if the mapping is there."""
    for name in list(_at(document, path) or ()):
        candidate = copy.deepcopy(document)
        del _at(candidate, path)[name]
        if fails(candidate):
            document = candidate
    return document


def _simpler_settings(document: JsonObject, fails: Fails) -> JsonObject:
    document = _fewer_fields(document, ("settings",), fails)
    while (replicas := document["settings"].get("replicas", 1)) > 1:
        candidate = copy.deepcopy(document)
        candidate["settings"]["replicas"] = replicas - 1
        if not fails(candidate):
            break
        document = candidate
    return document


def _at(document: JsonObject, path: tuple[str, ...]) -> list[Any]:
    found: Any = document
    for name in path:
        found = found.get(name)
    return found  # type: ignore[no-any-return]
