"""The journal: a file of bounded size with what the controller observed and did, one JSON object per line.

``history`` draws an incident from it, and turns it into a scenario. Only changes are written: a list or a heartbeat
without news leaves no line. Each file begins with everything that is known at that time, so that it can be read alone.

Reads no clock: the callers pass the moment.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, assert_never

from taint_eviction import __version__
from taint_eviction.core.control_state import PauseScope
from taint_eviction.core.events import BreakerClosed, BreakerOpened, Event, Paused, Resumed
from taint_eviction.core.facts import (
    Fact,
    NodeGone,
    NodeSeen,
    NodesHeard,
    NodesSwept,
    PodGone,
    PodSeen,
    PodsReleased,
    PodsSwept,
)
from taint_eviction.core.gone_objects import GoneObjects, list_is_newer
from taint_eviction.core.instants import Moment
from taint_eviction.reporting.journal_lines import (
    DEFAULT_SETTINGS,
    changed_settings,
    encoded,
    event_line,
    node_line,
    pod_line,
)
from taint_eviction.reporting.rotating_lines import DEFAULT_MAX_BYTES, RotatingLines
from taint_eviction.settings import Settings

JOURNAL_VERSION = 1

# The journal's clock follows the API server's only once the two differ by more than this.
_FOLLOWED_FROM_SECONDS = 1.0


class _Known(NamedTuple):
    """The last line about an object, without its time; when the object was seen last, and in which version."""

    line: dict[str, Any]
    seen_at: float
    version: int | None


class Journal:
    """A ``Reporter`` that also takes facts. ``max_bytes`` bounds each of its two files.

    The head of each file has the ``settings`` that influence decisions, unless they are the defaults.
    """

    def __init__(self, path: Path, max_bytes: int = DEFAULT_MAX_BYTES, settings: Settings = DEFAULT_SETTINGS) -> None:
        dry_run = {"dry_run": True} if settings.dry_run else {}
        self._head = {
            "what": "journal",
            "version": JOURNAL_VERSION,
            "by": __version__,
            **dry_run,
            **changed_settings(settings),
        }
        self._lines = RotatingLines(path, max_bytes, "the journal", self._begin)
        self._now = Moment(0.0, 0.0)
        # The server's time minus the monotonic clock, as the journal uses it: see ``_steadied``.
        self._anchor = -math.inf
        # By UID.
        self._known: dict[str, _Known] = {}
        # What ended: the core takes no late fact about it either.
        self._ended = GoneObjects()
        # By scope, None for the breaker: the line about the pause or the open breaker that is in force.
        self._held: dict[PauseScope | None, dict[str, Any]] = {}
        # Further first lines of a file that continues another one.
        self.carried: Callable[[], list[dict[str, Any]]] = list

    # Input

    def observed(self, fact: Fact, now: Moment) -> None:
        """Write what a fact changes."""
        now = self._steadied(now)
        match fact:
            case NodeSeen():
                self._seen(fact.node.uid, node_line(fact.node), fact.node.resource_version, fact.asked_at, now)
            case PodSeen():
                self._seen(fact.pod.ref.uid, pod_line(fact.pod), fact.pod.resource_version, fact.asked_at, now)
            case NodesHeard():
                pass  # It is about no object.
            case NodeGone():
                self._node_gone(fact, now)
            case PodGone():
                self._gone(fact.ref.uid, now)
            case NodesSwept():
                self._swept({"what": "node"}, fact, now)
            case PodsSwept():
                on = {} if fact.node_name is None else {"on": fact.node_name}
                self._swept({"what": "pod", **on}, fact, now)
            case PodsReleased():
                for uid in [uid for uid, known in self._known.items() if known.line.get("on") == fact.node_name]:
                    del self._known[uid]
            case _:
                assert_never(fact)

    def report(self, event: Event, now: Moment) -> None:
        """Write an event."""
        now = self._steadied(now)
        line = event_line(event, now)
        self._write(line, now)
        match event:
            case Paused(scope):
                self._held[scope] = line
            case Resumed(scope):
                self._held.pop(scope, None)
            case BreakerOpened():
                self._held[None] = line
            case BreakerClosed():
                self._held.pop(None, None)
            case _:
                pass

    def write(self, line: dict[str, Any], now: Moment) -> None:
        """Write a line about something that is neither a fact nor an event."""
        self._write(line, self._steadied(now))

    @property
    def ended(self) -> str:
        """Return why no more lines are written, "" while they are."""
        return self._lines.ended

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    # Objects

    def _seen(self, uid: str, line: dict[str, Any], version: int | None, asked_at: float | None, now: Moment) -> None:
        before = self._known.get(uid)
        if self._ended.is_old(uid, version, None if before is None else (before.version, before.seen_at), asked_at):
            return
        self._known[uid] = _Known(line, now.at, version)
        if before is None or before.line != line:
            self._write(line, now)

    def _node_gone(self, fact: NodeGone, now: Moment) -> None:
        known = [uid for uid, known in self._known.items() if known.line.get("node") == fact.name]
        for uid in known if fact.uid is None else [fact.uid]:
            self._gone(uid, now)

    def _gone(self, uid: str, now: Moment) -> None:
        known = self._known.pop(uid, None)
        self._ended.remember(uid, now)
        if known is not None:
            named: dict[str, Any] = {key: known.line[key] for key in ("node", "pod", "uid") if key in known.line}
            self._write({"what": f"{known.line['what']} gone", **named}, now)

    def _swept(self, like: dict[str, str], fact: NodesSwept | PodsSwept, now: Moment) -> None:
        for uid, known in list(self._known.items()):
            absent = uid not in fact.present and list_is_newer(fact, known.version, known.seen_at)
            if absent and all(known.line.get(key) == value for key, value in like.items()):
                self._gone(uid, now)

    # The file

    def _steadied(self, now: Moment) -> Moment:
        """Return the moment by the journal's clock: the API server's as first known, until it is off by a second.

        The estimate of the API server's clock moves by parts of a second while it settles. A later line must not have
        an earlier time.
        """
        if abs(now.server_epoch - (self._anchor + now.at)) > _FOLLOWED_FROM_SECONDS:
            self._anchor = now.server_epoch - now.at
        return Moment(now.at, self._anchor + now.at)

    def _write(self, line: dict[str, Any], now: Moment) -> None:
        self._now = now
        self._lines.write(encoded(line, now))

    def _begin(self, continues: bool) -> bytes:
        """Return the head of a file and, if it continues another one, everything that is known."""
        if not continues:
            return encoded(self._head, self._now)
        known = (each.line for each in self._known.values())
        lines = ({**self._head, "continues": True}, *self.carried(), *known, *self._held.values())
        return b"".join(encoded(line, self._now) for line in lines)
