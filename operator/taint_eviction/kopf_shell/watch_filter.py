"""The filter before Kopf: an event costs Kopf about 1 ms of CPU, and the filter a hundredth of that.

The filter does three things with the lines of a watch:

- It cuts objects down to the fields that the controller reads (``kept_fields``).
- It drops an ADDED or MODIFIED event that tells the listener nothing: the kept fields are unchanged (heartbeats of
  nodes, readiness of pods), the listener does not want the object, or it knows this version from a list of its own or
  from the response to a call. In place of some dropped events Kopf gets a bookmark, so that it resumes from about that
  version when the stream breaks. What it then receives again is dropped again, or seen twice.
- It gives the end of an object that Kopf was never shown to the listener directly. While a whole zone is evicted,
  nearly all events are such ends.

Kopf also never sees what of an object is still long then: it decodes each line once more, and copies parts of the
result. Such an object waits here, as compressed JSON, until Kopf brings its identity (``whole``).

The listener never sees anything wrong, but it does not see the newer resourceVersion of an unchanged object.
``progress`` says how far the watch has come. Lists are shown in full except for what the listener knows, so a fresh
list repairs whatever the watch has lost.
"""

import contextlib
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b
from typing import Any, Literal

import orjson

from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.core.text import JsonObject
from taint_eviction.files.json_lists import decode
from taint_eviction.kopf_shell.kept_fields import is_ending, node_fields, pod_fields
from taint_eviction.kube.json_fields import parse_version

Kind = Literal["Node", "Pod"]

# Returns whether the listener wants to see an object (its kind and its JSON). The listener must want every object
# that it knows: otherwise it does not see its changes. Deletions are always shown. May raise AttributeError or
# TypeError for an object of another shape.
Wanted = Callable[[Kind, JsonObject], bool]

# Returns whether the listener knows this version of an object, or a later one, and need not see it.
Known = Callable[[Kind, JsonObject], bool]

_IDENTITY = ("name", "namespace", "uid", "resourceVersion")
# A field of metadata that no object of Kubernetes has.
_WAITS = "waitsInTheFilter"
_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})
_KNOWN_TYPES = _EVENTS | {"BOOKMARK", "ERROR"}
# Put before a line that is not JSON: Kopf also accepts NaN, or half of a surrogate pair.
_NO_JSON = b"no JSON: "
_LONGEST_EXCERPT = 1000
# What is left of an object is mostly below 1 kB. More than this many bytes of it wait here while Kopf orders events.
_LONG = 1 << 16
# A chunk that ends with dropped events would end with a bookmark. One of this many bookmarks is passed on.
_BOOKMARK_EVERY = 10


class WatchFilter:
    """The filter of one watch. Remembers 16 bytes of each object that was passed on or known, to recognise it.
    ``parts``: what is kept of pods. ``went_back``: an event of this stream has a lower version than an earlier one.

    An object that Kopf was shown also ends through Kopf: so the events of an object stay in order, and Kopf forgets it.
    """

    def __init__(
        self, kind: Kind, wanted: Wanted | None = None, known: Known | None = None, parts: PodParts = ALL_PARTS
    ) -> None:
        self._kind = kind
        self._fields = node_fields if kind == "Node" else partial(pod_fields, parts=parts)
        self._wanted = wanted
        self._known = known
        # By UID: the digest of what was passed on last.
        self._passed: dict[str, bytes] = {}
        # The UIDs of objects that Kopf was shown, and whose end it was not shown.
        self._shown: set[str] = set()
        # The UIDs of the list that is being received.
        self._listed: set[str] = set()
        self._bookmarks = 0
        # Whether Kopf was shown an event of an unknown type: it warns of each, and a broken proxy may send thousands.
        self._shown_unknown = False
        self._reached: str | None = None
        # The highest version of the stream, None: its versions have no order.
        self._furthest: int | None = None
        self.went_back = False
        # By UID: the version of what was passed on last and the listener has not seen yet.
        self._under_way: dict[str, str] = {}
        # By UID: the version and the JSON of an object of which Kopf was shown the identity only.
        self._waiting: dict[str, tuple[str, bytes]] = {}

    def is_known(self, event_type: str | None, body: JsonObject) -> bool:
        """Return whether the listener has learnt this version, or a later one, while the event was under way.

        It may know more of it then: more labels, where a policy has named them meanwhile.
        """
        return event_type != "DELETED" and self._known is not None and self._known(self._kind, body)

    def whole(self, body: JsonObject) -> JsonObject | None:
        """Return an object that Kopf brings, as the listener is to see it; None if a later version is under way."""
        metadata = body.get("metadata")
        if not isinstance(metadata, dict) or _WAITS not in metadata:
            return body
        version, waiting = self._waiting.get(metadata["uid"], ("", b""))
        # Some aggregated server or proxy may list objects without one.
        if waiting == b"" or version != metadata.get("resourceVersion"):
            return None
        del self._waiting[metadata["uid"]]
        found: JsonObject = orjson.loads(zlib.decompress(waiting))
        return found

    def _shortened(self, body: JsonObject, uid: str, version: str) -> JsonObject:
        """Return what Kopf sees of an object: itself, or where it is long its identity."""
        self._waiting.pop(uid, None)
        dumped = orjson.dumps(body)
        if len(dumped) <= _LONG:
            return body
        self._waiting[uid] = version, zlib.compress(dumped, 1)
        identity = {name: body["metadata"][name] for name in _IDENTITY if name in body["metadata"]}
        return {**_kind(body), "metadata": {**identity, _WAITS: True}}

    def seen(self, body: JsonObject) -> None:
        """Note that the listener has seen an object that was passed on. Kopf keeps the order of an object's events."""
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            uid, version = body["metadata"]["uid"], body["metadata"].get("resourceVersion")
            if self._under_way.get(uid) == version:
                del self._under_way[uid]

    def progress(self) -> str | None:
        """Return the version up to which the listener has seen everything.

        None while an object is still under way, or if nothing was received since the last call.
        """
        if self._under_way:
            return None
        reached, self._reached = self._reached, None
        return reached

    def begin_stream(self, since: int | None) -> None:
        """Note after which version a stream begins; 0 or None: with all objects, in any order."""
        self._furthest, self.went_back = since or None, False

    def begin_list(self) -> None:
        """Forget what was passed on before: it may be gone since."""
        self._passed.clear()
        self._listed.clear()
        self._under_way.clear()
        self._waiting.clear()  # The objects of a list that failed half way were never shown.
        self._reached = None  # Versions may be lower than before, if the storage was restored.

    def filter_item(self, item: Any, kept: list[Any]) -> None:
        """Add an item of a list to ``kept`` as Kopf is to see it, unless it is not to see it."""
        try:
            body = self._fields(item)
            uid, digest = _text(body["metadata"], "uid"), _digest(body)
            wanted = self._wanted is None or self._wanted(self._kind, body)
            version, shown = body["metadata"].get("resourceVersion"), None
            if wanted and (self._known is None or not self._known(self._kind, body)):
                shown = self._shortened(body, uid, version)
        except (KeyError, TypeError, AttributeError):
            kept.append(item)  # The listener has to see, and to report, that it is malformed.
            return
        self._listed.add(uid)
        if not wanted:
            return
        self._passed[uid] = digest
        if shown is not None:
            self._shown.add(uid)
            self._under_way[uid] = version
            kept.append(shown)

    def end_list(self) -> None:
        """Note that the list is complete: what it lacks ended in a gap, and Kopf is not shown that."""
        self._shown &= self._listed
        self._listed.clear()

    def filter(self, lines: Iterable[bytes]) -> tuple[list[bytes], list[JsonObject]]:
        """Return the lines for Kopf, and the events that go to the listener directly.

        The listener must have seen the latter before the next lines are filtered.
        """
        passed: list[bytes] = []
        endings: list[JsonObject] = []
        bookmark: bytes | None = None  # Only the last of several consecutive ones matters.
        for line in lines:
            kept, is_bookmark = self._filter_line(line, endings)
            if kept is None:
                continue
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

    def _filter_line(self, line: bytes, endings: list[JsonObject]) -> tuple[bytes | None, bool]:
        """Return what Kopf sees in place of a line (None: nothing), and whether that is a bookmark of this filter."""
        try:
            event = decode(line)
        except ValueError:
            # Kopf must not understand it either, and end this watch.
            return _NO_JSON + line[:_LONGEST_EXCERPT], False
        try:
            event_type, body = event["type"], event["object"]
            if event_type == "BOOKMARK":
                self._reach(_text(body["metadata"], "resourceVersion"))
            if event_type not in _KNOWN_TYPES:
                kept, self._shown_unknown = None if self._shown_unknown else line, True
                return kept, False
            if event_type not in _EVENTS:
                return line, False
            uid, version = _text(body["metadata"], "uid"), _text(body["metadata"], "resourceVersion")
            self._reach(version)
            if event_type != "DELETED" and self._tells_nothing(body, uid):
                return _bookmark(body, version), True
            body = self._fields(body)
        except (KeyError, TypeError, AttributeError):
            self._forget(event)
            return line, False  # No event of an object: Kopf sees it, and ends this watch where it must.
        try:
            return self._filter_event(event_type, body, uid, version, endings)
        except orjson.JSONEncodeError:  # It is nested too deeply to be written again.
            self._forget(event)
            return line, False

    def _reach(self, version: str) -> None:
        """Note how far the stream has come."""
        self._reached = version
        number = parse_version(version)
        if self._furthest is not None and number is not None:
            self.went_back = self.went_back or number < self._furthest
            self._furthest = max(self._furthest, number)

    def _filter_event(
        self, event_type: str, body: JsonObject, uid: str, version: str, endings: list[JsonObject]
    ) -> tuple[bytes, bool]:
        if self._is_changed(event_type, body, uid):
            if uid in self._shown or not (event_type == "DELETED" or is_ending(body)):
                self._note_shown(event_type, uid)
                self._under_way[uid] = version
                return orjson.dumps({"type": event_type, "object": self._shortened(body, uid, version)}), False
            endings.append({"type": event_type, "object": body})
        return _bookmark(body, version), True

    def _forget(self, event: Any) -> None:
        """Forget what was passed on of an object: the listener may read more of this event than the filter can."""
        with contextlib.suppress(KeyError, TypeError):
            metadata = event["object"]["metadata"]
            self._passed.pop(metadata["uid"], None)
            self._under_way[metadata["uid"]] = metadata["resourceVersion"]

    def _note_shown(self, event_type: str, uid: str) -> None:
        if event_type == "DELETED":
            self._shown.discard(uid)
        else:
            self._shown.add(uid)

    def _tells_nothing(self, body: JsonObject, uid: str) -> bool:
        """Return whether the listener does not want this object, or knows it. This cheap check comes first."""
        wanted = self._wanted is None or self._wanted(self._kind, body)
        if wanted and (self._known is None or not self._known(self._kind, body)):
            return False
        self._passed.pop(uid, None)  # What was passed on is no longer the latest that the listener knows.
        return True

    def _is_changed(self, event_type: str, body: JsonObject, uid: str) -> bool:
        """Return whether this differs from what was passed on of the object, and remember it."""
        if event_type == "DELETED":
            self._passed.pop(uid, None)
            return True
        digest = _digest(body)
        unchanged = event_type == "MODIFIED" and self._passed.get(uid) == digest
        self._passed[uid] = digest
        return not unchanged


def _text(metadata: JsonObject, name: str) -> str:
    text = metadata[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is not a string")
    return text


def _digest(body: JsonObject) -> bytes:
    """Return a digest of an object without its version; raise ``TypeError`` if it is nested too deeply."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
    parts: Any = (metadata, body.get("spec"), body.get("status"))
    return blake2b(orjson.dumps(parts), digest_size=16).digest()


def _bookmark(body: JsonObject, version: str) -> bytes:
    return orjson.dumps({"type": "BOOKMARK", "object": {**_kind(body), "metadata": {"resourceVersion": version}}})


def _kind(body: JsonObject) -> JsonObject:
    return {name: body[name] for name in ("apiVersion", "kind") if name in body}
