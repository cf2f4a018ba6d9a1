"""Adoption notes as JSON, and the JSON patches that take a pod's seconds and give them back.

The annotation is ``{"by":"controller"|"admission","tolerations":[{"key":…,"operator":…,"value":…,"effect":…,
"occurrence":0,"seconds":300}]}``; empty fields of a toleration are absent. Anybody who may change the pod can write it,
so reading checks every field, and refuses a note in which one is wrong.

Each patch tests uid and resourceVersion first, so it changes exactly the pod that was read.
"""

from collections.abc import Collection, Mapping
from typing import Any

import orjson

from taint_eviction.adapters.json_fields import as_list, as_object, as_text, is_object, refuse
from taint_eviction.core.adoption import AdoptedBy, AdoptionNote, TolerationKey
from taint_eviction.core.objects import Toleration

# The key of the annotation with the note, and of the label, "true", by which adopted pods are listed.
ADOPTED = "taint-eviction/adopted"

_POINTER = ADOPTED.replace("/", "~1")
_BY = {by.value: by for by in AdoptedBy}
_TEXTS = ("key", "operator", "value", "effect")
_INT64 = range(-(2**63), 2**63)

JsonPatch = list[dict[str, Any]]


def read_note(text: object) -> AdoptionNote:
    """Read the annotation; raise ``Unreadable`` for anything that is no note."""
    try:
        decoded = orjson.loads(as_text(text, "it"))
    except ValueError:
        refuse("it is not JSON")
    body = decoded if is_object(decoded) else refuse("it is not an object")
    by = _BY.get(as_text(body.get("by"), "by")) or refuse("by is neither controller nor admission")
    seconds: dict[TolerationKey, int] = {}
    for index, raw in enumerate(as_list(body.get("tolerations"), "tolerations")):
        path = f"tolerations[{index}]"
        noted = as_object(raw, path)
        key, operator, value, effect = (as_text(noted.get(field), f"{path}.{field}") for field in _TEXTS)
        identity = TolerationKey(Toleration(key, operator, value, effect), _integer(noted, "occurrence", path))
        if identity in seconds:
            refuse(f"{path} is there twice")
        seconds[identity] = _integer(noted, "seconds", path)
    return AdoptionNote(by, seconds)


def _integer(noted: Mapping[str, Any], field: str, path: str) -> int:
    value = noted.get(field)
    # bool is an int, too.
    return value if type(value) is int and value in _INT64 else refuse(f"{path}.{field} is not an integer")


def note_text(note: AdoptionNote) -> str:
    """Return the annotation."""
    tolerations = [
        {
            **{field: text for field in _TEXTS if (text := getattr(key.toleration, field))},
            "occurrence": key.occurrence,
            "seconds": seconds,
        }
        for key, seconds in note.seconds.items()
    ]
    return orjson.dumps({"by": note.by.value, "tolerations": tolerations}).decode()


def adopt_patch(body: Mapping[str, Any], places: Collection[int], note: AdoptionNote) -> JsonPatch:
    """Take the seconds of the tolerations at these places, and note them; ``body`` is the pod as it was read."""
    metadata = body["metadata"]
    noted = {"annotations": note_text(note), "labels": "true"}
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "test", "path": "/spec/tolerations", "value": body["spec"]["tolerations"]},
        *({"op": "remove", "path": f"/spec/tolerations/{place}/tolerationSeconds"} for place in places),
        *(
            {"op": "add", "path": f"/metadata/{field}/{_POINTER}", "value": text}
            if metadata.get(field)
            else {"op": "add", "path": f"/metadata/{field}", "value": {ADOPTED: text}}
            for field, text in noted.items()
        ),
    ]


def return_patch(metadata: Mapping[str, Any], seconds: Mapping[int, int]) -> JsonPatch:
    """Give seconds to the tolerations at these places, and remove annotation and label, as far as they are there.

    ``metadata`` is that of the pod as it was read.
    """
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        *(
            {"op": "add", "path": f"/spec/tolerations/{place}/tolerationSeconds", "value": value}
            for place, value in seconds.items()
        ),
        *(
            {"op": "remove", "path": f"/metadata/{field}/{_POINTER}"}
            for field in ("annotations", "labels")
            if ADOPTED in (metadata.get(field) or ())
        ),
    ]
