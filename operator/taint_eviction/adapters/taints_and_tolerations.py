"""Taints and tolerations as JSON → the values of ``core.objects``, with equal ones shared.

Thousands of pods have equal tolerations, and thousands of nodes equal taints: one tuple for all of them saves memory,
and most of the time to read them. Raises ``Unreadable`` if an eviction could depend on a field that cannot be read.
"""

from functools import lru_cache
from typing import Any

from taint_eviction.adapters.json_fields import Unreadable, as_text, is_object, refuse, time_or_complaint
from taint_eviction.core.objects import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration

_EFFECTS = frozenset({NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE})
_OPERATORS = frozenset({"", "Equal", "Exists", "Gt", "Lt"})
# The number of different tuples that are kept, of taints and of tolerations each.
_SHARED_TUPLES = 8192


def read_taints(raw: list[Any]) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
    """Read ``spec.taints`` of a node; return its taints, and a complaint for each part that is left out."""
    found: tuple[tuple[Taint, ...], tuple[str, ...]] = _shared(_taints, _taint_parts(raw))
    return found


def read_tolerations(raw: list[Any]) -> tuple[tuple[Toleration, ...], tuple[str, ...]]:
    """Read ``spec.tolerations`` of a pod; return its tolerations, and a complaint for each unknown operator."""
    found: tuple[tuple[Toleration, ...], tuple[str, ...]] = _shared(_tolerations, _toleration_parts(raw))
    return found


def _taint_parts(raw: list[Any]) -> tuple[Any, ...]:
    return tuple(
        [
            (taint.get("key"), taint.get("value"), taint.get("effect"), taint.get("timeAdded"))
            if is_object(taint)
            else refuse(f"spec.taints[{index}] is not an object")
            for index, taint in enumerate(raw)
        ]
    )


@lru_cache(_SHARED_TUPLES)
def _taints(parts: tuple[Any, ...]) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
    taints: list[Taint] = []
    complaints: list[str] = []
    for index, (key, value, effect, time_added) in enumerate(parts):
        path = f"spec.taints[{index}]"
        effect_text = as_text(effect, f"{path}.effect")
        if effect_text not in _EFFECTS:
            complaints.append(f"{path}.effect is {effect_text!r}, which is an unknown effect: the taint is ignored")
            continue
        try:
            key_text = as_text(key, f"{path}.key") or refuse(f"{path}.key is missing")
            value_text = as_text(value, f"{path}.value")
        except Unreadable as unreadable:
            if effect_text == NO_EXECUTE:
                raise
            complaints.append(f"{unreadable}: the taint is ignored, its effect is only {effect_text}")
            continue
        added_at = time_or_complaint(time_added, f"{path}.timeAdded", complaints)
        taints.append(Taint(key_text, effect_text, value_text, added_at))
    return tuple(taints), tuple(complaints)


def _toleration_parts(raw: list[Any]) -> tuple[Any, ...]:
    # With the type of the seconds: 1, 1.0 and true are equal, but only the first is legal.
    return tuple(
        [
            (
                toleration.get("key"),
                toleration.get("operator"),
                toleration.get("value"),
                toleration.get("effect"),
                seconds := toleration.get("tolerationSeconds"),
                type(seconds),
            )
            if is_object(toleration)
            else refuse(f"spec.tolerations[{index}] is not an object")
            for index, toleration in enumerate(raw)
        ]
    )


@lru_cache(_SHARED_TUPLES)
def _tolerations(parts: tuple[Any, ...]) -> tuple[tuple[Toleration, ...], tuple[str, ...]]:
    tolerations: list[Toleration] = []
    complaints: list[str] = []
    for index, (key, operator, value, effect, seconds, _) in enumerate(parts):
        path = f"spec.tolerations[{index}]"
        if seconds is not None and type(seconds) is not int:
            refuse(f"{path}.tolerationSeconds is not an integer")
        toleration = Toleration(
            as_text(key, f"{path}.key"),
            as_text(operator, f"{path}.operator"),
            as_text(value, f"{path}.value"),
            as_text(effect, f"{path}.effect"),
            seconds,
        )
        if toleration.operator not in _OPERATORS:
            complaints.append(f"{path}.operator is {toleration.operator!r}, which is unknown: it matches nothing")
        tolerations.append(toleration)
    return tuple(tolerations), tuple(complaints)


def _shared(read: Any, parts: tuple[Any, ...]) -> Any:
    """Read ``parts`` through the cache. Unhashable parts have a wrong type; a read without the cache reports it."""
    if not parts:
        return (), ()
    try:
        return read(parts)
    except TypeError:
        return read.__wrapped__(parts)
