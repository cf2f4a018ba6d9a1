"""The note of a countdown that was taken over, as an annotation, and the JSON patch of each change.

The annotation ``taint-eviction/seconds`` is ``[{"key":…,"operator":…,"value":…,"effect":…,"occurrence":0,"among":1,
"seconds":300}]``; empty fields of a toleration, and an only one's occurrence and among, are absent. Anybody who may
change the pod can write it, so reading bounds it and checks every field, and refuses a note with an invalid one.

A patch tests uid, resourceVersion and the list of tolerations first, so it changes exactly the pod that was read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from taint_eviction.core.adoption import CountdownChange, Note, NotedToleration, note_of
from taint_eviction.core.objects import MARK_SECONDS, NO_EXECUTE, Toleration
from taint_eviction.kube.bounded import Shared
from taint_eviction.kube.json_fields import as_list, as_object, as_text, refuse

# The key of the annotation with the note.
NOTE_ANNOTATION = "taint-eviction/seconds"

# The controller neither writes nor reads a longer note: a pod has few tolerations.
MAX_NOTE = 8192
# Nor one of more tolerations: the controller marks none of a longer list.
_MAX_NOTED = 64

_POINTER = NOTE_ANNOTATION.replace("/", "~1")
_TEXTS = ("key", "operator", "value", "effect")
_INT64 = range(-(2**63), 2**63)

JsonPatch = list[dict[str, Any]]


def read_note(text: object) -> Note:
    """Parse the annotation; raise ``Unreadable`` for anything that is not a note.

    Thousands of pods may have equal notes, and anybody may write large ones, so notes are shared and bounded.
    """
    note = as_text(text, "it")
    if len(note) > MAX_NOTE:
        refuse(f"it is longer than {MAX_NOTE} characters")
    return _shared_notes(note)


def _read(text: str) -> Note:
    try:
        decoded = orjson.loads(text)
    except ValueError:
        refuse("it is not JSON")
    entries = as_list(decoded, "it")
    if len(entries) > _MAX_NOTED:
        refuse(f"it notes more than {_MAX_NOTED} tolerations")
    note: dict[NotedToleration, int] = {}
    for index, raw in enumerate(entries):
        path = f"[{index}]"
        fields = as_object(raw, path)
        key, operator, value, effect = (as_text(fields.get(field), f"{path}.{field}") for field in _TEXTS)
        if effect != NO_EXECUTE:
            refuse(f"{path}.effect is not {NO_EXECUTE}, so the toleration has no seconds")
        occurrence, among = _integer(fields, "occurrence", path, 0), _integer(fields, "among", path, 1)
        noted = NotedToleration(Toleration(key, operator, value, effect), occurrence, among)
        if noted in note:
            refuse(f"{path} appears twice")
        note[noted] = _integer(fields, "seconds", path)
    return note


# The bytes of notes that are kept as they were read; each needs about eight times its text.
_shared_notes = Shared(_read, lambda text: 300 + 8 * len(text), 1 << 22)


def _integer(fields: Mapping[str, Any], field: str, path: str, default: int | None = None) -> int:
    value = fields.get(field, default)
    # bool is an int, too.
    return value if type(value) is int and value in _INT64 else refuse(f"{path}.{field} is not an integer")


def note_text(note: Note) -> str:
    """Return the annotation's value."""
    return orjson.dumps(
        [
            {
                **{field: text for field in _TEXTS if (text := getattr(noted.toleration, field))},
                **({} if noted.among == 1 else {"occurrence": noted.occurrence, "among": noted.among}),
                "seconds": seconds,
            }
            for noted, seconds in note.items()
        ]
    ).decode()


def change_patch(body: Mapping[str, Any], tolerations: Sequence[Toleration], change: CountdownChange) -> JsonPatch:
    """Return the patch of a change; ``body`` is the pod as it was read, ``tolerations`` those in its spec."""
    metadata = body["metadata"]
    seconds = {**dict.fromkeys(change.marks, MARK_SECONDS), **change.returns}
    return [
        *({"op": "test", "path": f"/metadata/{name}", "value": metadata[name]} for name in ("uid", "resourceVersion")),
        *([{"op": "test", "path": "/spec/tolerations", "value": body["spec"]["tolerations"]}] if seconds else []),
        *(
            {"op": "add", "path": f"/spec/tolerations/{place}/tolerationSeconds", "value": value}
            for place, value in sorted(seconds.items())
        ),
        *_noting(metadata.get("annotations") or {}, note_of(tolerations, change.noted)),
    ]


def _noting(annotations: Mapping[str, Any], note: Note) -> JsonPatch:
    if not note:
        return [{"op": "remove", "path": f"/metadata/annotations/{_POINTER}"}] if NOTE_ANNOTATION in annotations else []
    text = note_text(note)
    if not annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": {NOTE_ANNOTATION: text}}]
    return [{"op": "add", "path": f"/metadata/annotations/{_POINTER}", "value": text}]
