"""The requests to the server and their answers: bounded, counted, and with a way to wait for them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(slots=True, eq=False)
class LoggedRequest:
    """One request. `code` is None while it is unanswered, and stays so for those that never get an answer."""

    number: int
    at: datetime
    """Arrival by the server's clock."""
    arrived_at: float
    """Arrival by the monotonic clock."""
    verb: str
    resource: str
    """Plural with subresource (`pods/status`), or the path for what is no resource."""
    namespace: str
    name: str
    query: dict[str, str]
    user_agent: str
    path: str
    body: Any = None
    """Decoded body of a write, None where there was none."""
    content_type: str = ""
    code: int | None = None
    faulty: bool = False
    """Whether a fault answered, delayed or dropped it."""


Predicate = Callable[[LoggedRequest], bool]


@dataclass(slots=True)
class RequestLog:
    """The newest `limit` requests in order of arrival; `counts` is by verb, resource and code, unbounded in time."""

    limit: int = 20_000
    counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    entries: deque[LoggedRequest] = field(default_factory=deque)
    total: int = 0
    _subscribers: list[Callable[[LoggedRequest], None]] = field(default_factory=list)
    _arrived: list[asyncio.Event] = field(default_factory=list)

    def arrive(self, entry: LoggedRequest) -> None:
        self.total += 1
        entry.number = self.total
        self.entries.append(entry)
        while len(self.entries) > self.limit:
            self.entries.popleft()
        self._ring()

    def answer(self, entry: LoggedRequest, code: int) -> None:
        """Says with which status a request was answered; watches are answered when they start."""
        entry.code = code
        self.counts[entry.verb, entry.resource, code] += 1
        for subscriber in tuple(self._subscribers):
            subscriber(entry)
        self._ring()

    def _ring(self) -> None:
        for event in self._arrived:
            event.set()

    def subscribe(self, subscriber: Callable[[LoggedRequest], None]) -> Callable[[], None]:
        """Calls with each request when it is answered; returns what ends it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def select(self, predicate: Predicate | None = None, /, **criteria: str) -> list[LoggedRequest]:
        """Entries for which the predicate holds and whose attributes equal the criteria."""
        return [
            entry
            for entry in self.entries
            if (predicate is None or predicate(entry))
            and all(getattr(entry, name) == value for name, value in criteria.items())
        ]

    def clear(self) -> None:
        """Forgets entries and counts."""
        self.entries.clear()
        self.counts.clear()

    async def wait_for(
        self, predicate: Predicate | None = None, /, *, timeout_seconds: float = 60.0, count: int = 1, **criteria: str
    ) -> list[LoggedRequest]:
        """Waits until `count` entries are selected (old ones count too); raises TimeoutError."""
        event = asyncio.Event()
        self._arrived.append(event)
        try:
            async with asyncio.timeout(timeout_seconds):
                while len(found := self.select(predicate, **criteria)) < count:
                    event.clear()
                    await event.wait()
            return found
        finally:
            self._arrived.remove(event)
