"""The cheap filter before Kopf: an event costs Kopf about a millisecond, and a hundredth of that here.

Two things are done to what the API server sends. Objects are cut down to the fields that anybody reads. And a
MODIFIED event after which these fields are what they were is swallowed: heartbeats of nodes, readiness of pods. In
place of some of them Kopf gets a bookmark with the event's version, so that it goes on from about there when the stream
breaks; what it is sent again then is known, and swallowed or told twice.

What the listener knows already, from a list of its own or as the answer to a call, is swallowed as well: of a watch
that begins behind such a list nothing is left to tell.

And of an object that Kopf has never been shown, the ending is not brought to Kopf only to be forgotten again: the
listener is told at once. When a whole zone is evicted, that is nearly all there is.

What is told is never wrong, but it may be silent about a newer resourceVersion of an unchanged object. Lists are always
told in full but for what the listener says it knows, so a fresh list repairs whatever it has lost.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import orjson

from taint_eviction.kopf_shell.answers import JsonObject

# Says of an object ("Node" or "Pod", and its JSON) whether the listener cares to hear of it. It must care for every
# object that it knows, or it would not hear of its changes. Deletions are always told. May raise AttributeError or
# TypeError where the object does not have the shape of one.
Wanted = Callable[[str, JsonObject], bool]

# Says of the same whether the listener knows this version of the object, or a later one, and need not be told.
Known = Callable[[str, JsonObject], bool]

_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "ownerReferences",
    "finalizers",
)
_SPEC = ("taints", "tolerations", "nodeName", "unschedulable", "priority", "terminationGracePeriodSeconds")
_STATUS = ("phase", "startTime")
_CONDITIONS = frozenset({"PodScheduled", "DisruptionTarget"})
_MARK = 'k:{"type":"DisruptionTarget"}'
_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})
# Before what is no JSON, as Kopf reads a little more than JSON: NaN, or half of a surrogate pair.
_NO_JSON = b"no JSON: "
# What comes at a time and ends with swallowed events would end with a bookmark: one in so many of these is passed on.
_BOOKMARK_EVERY = 10
_ANNOTATIONS = frozenset({"kubernetes.io/config.mirror", "taint-eviction/hold"})


def cut_down(body: JsonObject) -> JsonObject:
    """Return the part of a node or pod that anybody here reads, in the shape it had. The conditions of nodes go.

    Raises AttributeError or TypeError where the object does not have the shape of one.
    """
    metadata, spec, status = _part(body, "metadata"), _part(body, "spec"), _part(body, "status")
    kept: JsonObject = {name: body[name] for name in ("apiVersion", "kind") if name in body}
    kept["metadata"] = _picked(metadata, _METADATA)
    annotations = _part(metadata, "annotations")
    kept["metadata"]["annotations"] = {name: annotations[name] for name in _ANNOTATIONS & annotations.keys()}
    entries = metadata.get("managedFields") or ()
    kept["metadata"]["managedFields"] = [*_owners_of_taints(entries), *_owners_of_marks(entries)]
    kept["spec"] = _picked(spec, _SPEC)
    kept["status"] = _picked(status, _STATUS)
    kept["status"]["conditions"] = [
        condition for condition in status.get("conditions") or () if condition.get("type") in _CONDITIONS
    ]
    return kept


def _part(body: JsonObject, name: str) -> JsonObject:
    """Return an object in an object; what is none must not pass for an empty one: a node without taints."""
    part = body.get(name)
    if part is not None and not isinstance(part, dict):
        raise TypeError(f"{name} is not an object")
    return part or {}


def _text(metadata: JsonObject, name: str) -> str:
    text = metadata[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is not a string")
    return text


def _picked(part: JsonObject, names: tuple[str, ...]) -> JsonObject:
    return {name: part[name] for name in names if name in part}


def _owners_of_taints(entries: Iterable[JsonObject]) -> Iterator[JsonObject]:
    for entry in entries:
        owned_spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if "f:taints" in owned_spec:
            yield {**entry, "fieldsV1": {"f:spec": {"f:taints": owned_spec["f:taints"]}}}


def _owners_of_marks(entries: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Who has given the reason of a pod's DisruptionTarget condition; not when, which changes with other conditions."""
    for entry in entries:
        owned_conditions = ((entry.get("fieldsV1") or {}).get("f:status") or {}).get("f:conditions") or {}
        if "f:reason" in owned_conditions.get(_MARK, ()):
            fields: JsonObject = {"f:status": {"f:conditions": {_MARK: {"f:reason": {}}}}}
            yield {"manager": entry.get("manager"), "subresource": entry.get("subresource"), "fieldsV1": fields}


class Sieve:
    """One watch's filter. Remembers of each object that was told or known, 16 bytes by which to know it again.

    What Kopf has been shown of, it is shown the end of, too: so its events stay in order, and Kopf lets go of it.
    """

    def __init__(self, wanted: Wanted | None = None, known: Known | None = None) -> None:
        self._wanted = wanted
        self._known = known
        self._told: dict[str, bytes] = {}
        self._shown: set[str] = set()
        self._bookmarks = 0
        self.swallowed = 0

    def list_page(self, answer: JsonObject, *, first: bool) -> JsonObject:
        """Cut down a page of a list; ``first`` forgets what was told before: it may have vanished since."""
        if first:
            self._told.clear()
        items = answer.get("items")
        if not isinstance(items, list):
            return answer
        kind = str(answer.get("kind", "")).removesuffix("List")
        kept = []
        for item in items:
            try:
                body = cut_down(item)
                uid, digest = _text(body["metadata"], "uid"), _digest(body)
            except (KeyError, TypeError, AttributeError):
                kept.append(item)  # the listener shall see, and say, that it is malformed
                continue
            if self._wanted is None or self._wanted(kind, body):
                self._told[uid] = digest
                if self._known is None or not self._known(kind, body):
                    self._shown.add(uid)
                    kept.append(body)
        return {**answer, "items": kept}

    def strain(self, lines: Iterable[bytes]) -> tuple[list[bytes], list[JsonObject]]:
        """Return what Kopf shall see of these lines of a watch, and the events that the listener shall be told at once.

        The listener must have been told before the next lines are strained.
        """
        passed: list[bytes] = []
        endings: list[JsonObject] = []
        bookmark: bytes | None = None  # only the last of several has anything to say
        for line in lines:
            kept, is_bookmark = self._strain_one(line, endings)
            if is_bookmark:
                bookmark = kept
            else:
                passed.append(kept)
                bookmark = None
        if bookmark is not None:
            if self._bookmarks % _BOOKMARK_EVERY == 0:
                passed.append(bookmark)
            self._bookmarks += 1
        return passed, endings

    def _strain_one(self, line: bytes, endings: list[JsonObject]) -> tuple[bytes, bool]:
        try:
            event = orjson.loads(line)
        except ValueError:
            return _NO_JSON + line, False  # nor shall Kopf make anything of it, but end by it
        try:
            event_type, body = event["type"], event["object"]
            if event_type not in _EVENTS:
                return line, False
            uid, version = _text(body["metadata"], "uid"), _text(body["metadata"], "resourceVersion")
            if event_type != "DELETED" and self._is_no_news(body, uid):
                self.swallowed += 1
                return _bookmark(body, version), True
            body = cut_down(body)
        except (KeyError, TypeError, AttributeError):
            self._forget(event)
            return line, False  # not what it should be: Kopf shall see it, and end by it where it must
        try:
            return self._sift(event_type, body, uid, version, endings)
        except orjson.JSONEncodeError:  # nested too deeply to be written again
            self._forget(event)
            return line, False

    def _sift(
        self, event_type: str, body: JsonObject, uid: str, version: str, endings: list[JsonObject]
    ) -> tuple[bytes, bool]:
        changed = self._is_changed(event_type, body, uid)
        if changed and (uid in self._shown or not _is_ending(event_type, body)):
            self._note_shown(event_type, uid)
            return orjson.dumps({"type": event_type, "object": body}), False
        if changed:
            endings.append({"type": event_type, "object": body})
        else:
            self.swallowed += 1
        return _bookmark(body, version), True

    def _forget(self, event: Any) -> None:
        """Forget what was told of an object: the listener may read more of this event than can be cut down."""
        with contextlib.suppress(KeyError, TypeError):
            self._told.pop(event["object"]["metadata"]["uid"], None)

    def _note_shown(self, event_type: str, uid: str) -> None:
        if event_type == "DELETED":
            self._shown.discard(uid)
        else:
            self._shown.add(uid)

    def _is_no_news(self, body: JsonObject, uid: str) -> bool:
        """Tell whether the listener does not care for this, or knows it; asked first, since that is soon answered."""
        kind = str(body.get("kind", ""))
        wanted = self._wanted is None or self._wanted(kind, body)
        if wanted and (self._known is None or not self._known(kind, body)):
            return False
        self._told.pop(uid, None)  # What was told is no longer the last that the listener knows.
        return True

    def _is_changed(self, event_type: str, body: JsonObject, uid: str) -> bool:
        """Tell whether the listener has been told anything else of this object, and remember what it is told now."""
        if event_type == "DELETED":
            self._told.pop(uid, None)
            return True
        digest = _digest(body)
        unchanged = event_type == "MODIFIED" and self._told.get(uid) == digest
        self._told[uid] = digest
        return not unchanged


def _is_ending(event_type: str, body: JsonObject) -> bool:
    """Tell whether an object is gone, is going, or has been marked for it."""
    return (
        event_type == "DELETED"
        or "deletionTimestamp" in body["metadata"]
        or any(condition["type"] == "DisruptionTarget" for condition in body["status"]["conditions"])
    )


def _digest(body: JsonObject) -> bytes:
    """Return what to know it by, its version aside; raise TypeError where it is nested too deeply to be written."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
    parts: Any = (metadata, body["spec"], body["status"])
    return blake2b(orjson.dumps(parts), digest_size=16).digest()


def _bookmark(body: JsonObject, version: str) -> bytes:
    kept = {name: body[name] for name in ("apiVersion", "kind") if name in body}
    return orjson.dumps({"type": "BOOKMARK", "object": {**kept, "metadata": {"resourceVersion": version}}})
