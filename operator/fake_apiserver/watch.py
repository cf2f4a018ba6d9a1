"""Watches: which watch receives which change, in what order, and how to disturb that on purpose.

A `Watcher` is a queue of encoded lines with a few taps on it; `WatchHub` fills the queues. The writing to a
connection is the HTTP edge's job. An event is encoded once, however many watchers get it, and a watcher that does not
read only fills its own queue, until it is cut like a slow watcher of a real server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from .clock import monotonic
from .records import Change, ChangeType, Selection, StoredObject
from .status import JsonObject, StatusError

Renderer = Callable[[str, StoredObject], bytes]
"""Encodes an event as one line; the default is plain JSON, kubectl asks for tables."""

MALFORMED_LINE = b'{"type":"MODIFIED","object":{"kind":\n'


def plain_line(event_type: str, record: StoredObject) -> bytes:
    return b'{"type":"' + event_type.encode() + b'","object":' + record.encoded() + b"}\n"


@dataclass(frozen=True, slots=True)
class WatchMatch:
    """Which watches a disturbance is for; None matches all. `user_agent` is a part of the header."""

    resource: str | None = None
    namespace: str | None = None
    node: str | None = None
    user_agent: str | None = None

    def covers(self, watcher: OpenWatch) -> bool:
        selection = watcher.selection
        return (
            self.resource in {None, selection.resource.plural}
            and self.namespace in {None, selection.namespace}
            and self.node in {None, selection.node}
            and (self.user_agent is None or self.user_agent in watcher.user_agent)
        )


@dataclass(slots=True)
class Taps:
    """How a watch is disturbed at the moment; `drop_next` and `duplicate_next` count down with each event."""

    held: bool = False
    frozen: bool = False
    lag_seconds: float = 0.0
    drop_next: int = 0
    duplicate_next: int = 0


@dataclass(slots=True, eq=False)
class OpenWatch:
    """One open watch. `ended` says how it ends: "" while it runs, then "clean" or "reset"."""

    selection: Selection
    user_agent: str = ""
    render: Renderer = plain_line
    limit: int = 100_000
    taps: Taps = field(default_factory=Taps)
    ended: str = ""
    after: int = 0
    """This watch does not receive changes up to this version."""
    delivered: int = 0
    _queue: deque[tuple[float, bytes]] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, line: bytes) -> None:
        """Queues one event, subject to the taps; a watch that was ended gets no more."""
        if self.ended:
            return
        if self.taps.drop_next > 0:
            self.taps.drop_next -= 1
            return
        self._put(line)
        if self.taps.duplicate_next > 0:
            self.taps.duplicate_next -= 1
            self._put(line)

    def _put(self, line: bytes) -> None:
        if len(self._queue) >= self.limit:
            self.end("clean")
            return
        self._queue.append((monotonic() + self.taps.lag_seconds, line))
        self._wake.set()

    def end(self, how: str) -> None:
        """Ends the stream once what can be delivered was; "reset" does not even wait for that."""
        self.ended = self.ended or how
        self._wake.set()

    def poke(self) -> None:
        """Makes the writer look at the taps again."""
        self._wake.set()

    def take(self) -> list[bytes]:
        """Lines that may be written now, in order."""
        if self.taps.frozen or self.taps.held:
            return []
        now, ready = monotonic(), []
        while self._queue and self._queue[0][0] <= now:
            ready.append(self._queue.popleft()[1])
        self.delivered += len(ready)
        return ready

    @property
    def is_level(self) -> bool:
        """Whether nothing is withheld, so that a bookmark is correct."""
        return not (self._queue or self.taps.frozen or self.taps.held)

    async def wait(self, at_most_seconds: float) -> None:
        """Until there may be something to write, at most that long."""
        if self._queue and not (self.taps.frozen or self.taps.held):
            at_most_seconds = min(at_most_seconds, max(0.0, self._queue[0][0] - monotonic()))
        try:
            async with asyncio.timeout(at_most_seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()


class WatchHub:
    """All open watches; a change looks only at those that can see it."""

    def __init__(self, queue_limit: int = 100_000) -> None:
        self.queue_limit = queue_limit
        self._open: dict[str, dict[str | None, set[OpenWatch]]] = {}
        self._standing: list[tuple[WatchMatch, Callable[[Taps], None]]] = []

    def register(self, watcher: OpenWatch) -> None:
        watcher.limit = self.queue_limit
        for match, disturb in self._standing:
            if match.covers(watcher):
                disturb(watcher.taps)
        selection = watcher.selection
        self._open.setdefault(selection.resource.plural, {}).setdefault(selection.node, set()).add(watcher)

    def unregister(self, watcher: OpenWatch) -> None:
        selection = watcher.selection
        by_node = self._open[selection.resource.plural]
        by_node[selection.node].discard(watcher)
        if not by_node[selection.node]:
            del by_node[selection.node]

    def select(self, match: WatchMatch | None = None, /, **criteria: str) -> list[OpenWatch]:
        """Open watches, by a match or by its fields as keywords."""
        wanted = match or WatchMatch(**criteria)
        return [watcher for watcher in self._all() if wanted.covers(watcher)]

    def _all(self) -> Iterator[OpenWatch]:
        for by_node in self._open.values():
            for watchers in by_node.values():
                yield from watchers

    def publish(self, change: Change) -> None:
        """Offers a change to the watches that it concerns; subscribed to the store."""
        by_node = self._open.get(change.new.resource.plural)
        if not by_node:
            return
        lines: dict[tuple[Renderer, ChangeType, int], bytes] = {}
        for watcher in self._concerned(by_node, change):
            seen = watcher.selection.seen_change(change)
            if seen is None or change.resource_version <= watcher.after:
                continue
            event_type, record = seen
            # A record that left a selection is the old one with a new version: equal for all who lose it.
            line_key = (watcher.render, event_type, 0 if record is change.new else 1)
            if line_key not in lines:
                lines[line_key] = watcher.render(event_type, record)
            watcher.offer(lines[line_key])

    @staticmethod
    def _concerned(by_node: dict[str | None, set[OpenWatch]], change: Change) -> Iterable[OpenWatch]:
        nodes: set[str | None] = {None}
        if change.new.resource.plural == "pods":
            nodes |= {record.node_name for record in (change.old, change.new) if record is not None}
        return [watcher for node in nodes for watcher in by_node.get(node, ())]

    def disturb(self, match: WatchMatch, change: Callable[[Taps], None], *, standing: bool = False) -> int:
        """Changes the taps of the open watches that match, and with `standing` of later ones too; returns how many."""
        if standing:
            self._standing.append((match, change))
        watchers = self.select(match)
        for watcher in watchers:
            change(watcher.taps)
            watcher.poke()
        return len(watchers)

    def hold(self, match: WatchMatch | None = None) -> int:
        """Withholds events and bookmarks from these watches and later ones like them, until `calm` releases all."""
        return self.disturb(match or WatchMatch(), _tap("held", True), standing=True)

    def freeze(self, match: WatchMatch | None = None) -> int:
        """Silences the watches that are open now; their connections stay open."""
        return self.disturb(match or WatchMatch(), _tap("frozen", True))

    def lag(self, seconds: float, match: WatchMatch | None = None) -> int:
        """Delays each event from now on by so much, for these watches and later ones like them."""
        return self.disturb(match or WatchMatch(), _tap("lag_seconds", seconds), standing=True)

    def drop_next(self, count: int, match: WatchMatch | None = None) -> int:
        """Loses the next events of each watch that is open now."""
        return self.disturb(match or WatchMatch(), _tap("drop_next", count))

    def duplicate_next(self, count: int, match: WatchMatch | None = None) -> int:
        """Sends the next events of each watch that is open now twice."""
        return self.disturb(match or WatchMatch(), _tap("duplicate_next", count))

    def calm(self, match: WatchMatch | None = None) -> None:
        """Opens all taps of the watches that match (all of them by default) and drops the standing orders for them."""
        wanted = match or WatchMatch()
        self._standing = [(m, change) for m, change in self._standing if match is not None and m != match]
        for watcher in self.select(wanted):
            watcher.taps = Taps()
            watcher.poke()

    def cut(self, match: WatchMatch | None = None, *, reset: bool = False) -> int:
        """Ends the watches that match now, cleanly or by resetting their connections; returns how many."""
        watchers = self.select(match or WatchMatch())
        for watcher in watchers:
            watcher.end("reset" if reset else "clean")
        return len(watchers)

    def send_error(self, error: StatusError, match: WatchMatch | None = None) -> int:
        """Sends an ERROR event to the watches that match and ends them, as a real server does."""
        watchers = self.select(match or WatchMatch())
        for watcher in watchers:
            watcher.offer(error_line(error.body()))
            watcher.end("clean")
        return len(watchers)

    def send_line(self, line: bytes, match: WatchMatch | None = None) -> int:
        """Sends any line at all, `MALFORMED_LINE` for one that is no JSON."""
        watchers = self.select(match or WatchMatch())
        for watcher in watchers:
            watcher.offer(line)
        return len(watchers)


def _tap(name: str, value: object) -> Callable[[Taps], None]:
    return lambda taps: setattr(taps, name, value)


def error_line(status: JsonObject) -> bytes:
    return b'{"type":"ERROR","object":' + orjson.dumps(status) + b"}\n"
