"""Adoption notes as JSON, and the JSON patches that take a pod's seconds and give them back.

The annotation is ``{"by":"controller"|"admission","tolerations":[{"key":…,"operator":…,"value":…,"effect":…,
"occurrence":0,"seconds":300}]}``; empty fields of a toleration are absent, and a toleration whose seconds were not
taken by ``by`` has its own ``by``. Anybody who may change the pod can write the annotation,
so reading checks every field, and refuses a note with an invalid one.

Each patch tests uid and resourceVersion first, so it changes exactly the pod that was read.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import orjson

from taint_eviction.adapters.json_fields import as_list, as_object, as_text, is_object, refuse
from taint_eviction.core.adoption import AdoptedBy, AdoptionNote, TolerationKey
from taint_eviction.core.objects import NO_EXECUTE, Toleration

# The key of the annotation with the note, and of the label by which adopted pods are listed: controller or admission.
ADOPTED = "taint-eviction/adopted"

# The controller neither writes nor reads a longer note: a pod has few tolerations.
MAX_NOTE = 8192

_POINTER = ADOPTED.replace("/", "~1")
_BY = {by.value: by for by in AdoptedBy}
_TEXTS = ("key", "operator", "value", "effect")
_INT64 = range(-(2**63), 2**63)

JsonPatch = list[dict[str, Any]]


def read_note(text: object) -> AdoptionNote:
    """Parse the annotation; raise ``Unreadable`` for anything that is not a note.

    Thousands of pods may have equal notes, and anybody may write large ones, so notes are shared and bounded.
    """
    note = as_text(text, "it")
    if len(note) > MAX_NOTE:
        refuse(f"it is longer than {MAX_NOTE} characters")
    return _read(note)


@lru_cache(maxsize=1024)
def _read(note: str) -> AdoptionNote:
    try:
        decoded = orjson.loads(note)
    except ValueError:
        refuse("it is not JSON")
    body = decoded if is_object(decoded) else refuse("it is not an object")
    taken_by = _by(body, "by")
    seconds: dict[AdoptedBy, dict[TolerationKey, int]] = {by: {} for by in AdoptedBy}
    for index, raw in enumerate(as_list(body.get("tolerations"), "tolerations")):
        path = f"tolerations[{index}]"
        noted = as_object(raw, path)
        key, operator, value, effect = (as_text(noted.get(field), f"{path}.{field}") for field in _TEXTS)
        if effect != NO_EXECUTE:
            refuse(f"{path}.effect is not {NO_EXECUTE}, so the toleration has no seconds")
        identity = TolerationKey(Toleration(key, operator, value, effect), _integer(noted, "occurrence", path))
        if any(identity in known for known in seconds.values()):
            refuse(f"{path} appears twice")
        by = _by(noted, f"{path}.by") if "by" in noted else taken_by
        seconds[by][identity] = _integer(noted, "seconds", path)
    return AdoptionNote(seconds[AdoptedBy.CONTROLLER], seconds[AdoptedBy.ADMISSION])


def _by(noted: Mapping[str, Any], path: str) -> AdoptedBy:
    return _BY.get(as_text(noted.get("by"), path)) or refuse(f"{path} is neither controller nor admission")


def _integer(noted: Mapping[str, Any], field: str, path: str) -> int:
    value = noted.get(field)
    # bool is an int, too.
    return value if type(value) is int and value in _INT64 else refuse(f"{path}.{field} is not an integer")


def note_text(note: AdoptionNote) -> str:
    """Return the annotation's value."""
    tolerations = [
        {
            **{field: text for field in _TEXTS if (text := getattr(key.toleration, field))},
            "occurrence": key.occurrence,
            "seconds": seconds,
            **({} if (by is note.by) else {"by": by.value}),
        }
        for by, noted in ((AdoptedBy.CONTROLLER, note.by_controller), (AdoptedBy.ADMISSION, note.by_admission))
        for key, seconds in noted.items()
    ]
    return orjson.dumps({"by": note.by.value, "tolerations": tolerations}).decode()


def adopt_patch(body: Mapping[str, Any], places: Collection[int], note: AdoptionNote) -> JsonPatch:
    """Return the patch that takes the seconds at these positions and notes them; ``body`` is the pod as it was read."""
    return [
        *_tests(body["metadata"]),
        {"op": "test", "path": "/spec/tolerations", "value": body["spec"]["tolerations"]},
        *({"op": "remove", "path": f"/spec/tolerations/{place}/tolerationSeconds"} for place in places),
        *_noting(body["metadata"], note),
    ]


def return_patch(
    metadata: Mapping[str, Any], seconds: Mapping[int, int], left: AdoptionNote | None = None
) -> JsonPatch:
    """Return the patch that sets the seconds at these positions, and removes annotation and label if they exist.
    ``metadata`` is that of the pod as it was read. ``left``: what remains noted, None: nothing.
    """
    return [
        *_tests(metadata),
        *(
            {"op": "add", "path": f"/spec/tolerations/{place}/tolerationSeconds", "value": value}
            for place, value in seconds.items()
        ),
        *(_noting(metadata, left) if left is not None else _unnoting(metadata)),
    ]


def _tests(metadata: Mapping[str, Any]) -> JsonPatch:
    return [{"op": "test", "path": f"/metadata/{name}", "value": metadata[name]} for name in ("uid", "resourceVersion")]


def _noting(metadata: Mapping[str, Any], note: AdoptionNote) -> JsonPatch:
    noted = {"annotations": note_text(note), "labels": note.by.value}
    return [
        {"op": "add", "path": f"/metadata/{field}/{_POINTER}", "value": text}
        if metadata.get(field)
        else {"op": "add", "path": f"/metadata/{field}", "value": {ADOPTED: text}}
        for field, text in noted.items()
    ]


def _unnoting(metadata: Mapping[str, Any]) -> JsonPatch:
    return [
        {"op": "remove", "path": f"/metadata/{field}/{_POINTER}"}
        for field in ("annotations", "labels")
        if ADOPTED in (metadata.get(field) or ())
    ]
