"""The server's clocks and timers: the only module here that reads any.

The wall clock can be offset from the host's, as that of a real control plane may be; the monotonic clock serves waiting
only. For virtual time, the cluster gets another source of the wall clock and other timers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Protocol

_host_time = time.time  # noqa: TID251 - stand-alone: it has a clock module of its own


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; idempotent."""


CallLater = Callable[[float, Callable[[], object]], Timer]
"""Calls a function once, after this many seconds. Raises ``RuntimeError`` if no event loop runs."""


def call_later(seconds: float, act: Callable[[], object]) -> Timer:
    """The timer of the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, act)


class WallClock:
    """Wall clock of the server: a source of Unix seconds (the host's unless given) plus `offset_seconds`."""

    def __init__(self, offset_seconds: float = 0.0, source: Callable[[], float] = _host_time) -> None:
        self.offset_seconds = offset_seconds
        self._source = source

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._source() + self.offset_seconds, UTC)

    def timestamp(self, plus_seconds: float = 0.0) -> str:
        """RFC 3339 in whole seconds, cut off, as `metav1.Time` is written."""
        moment = datetime.fromtimestamp(int(self._source() + self.offset_seconds + plus_seconds), UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def http_date(self, plus_seconds: float = 0.0) -> str:
        """For the `Date` header: whole seconds, cut off."""
        return format_datetime(self.now() + timedelta(seconds=plus_seconds), usegmt=True)


def parse_timestamp(text: str) -> datetime:
    """Instant of an RFC 3339 string, with or without a fraction."""
    return datetime.fromisoformat(text)


def monotonic() -> float:
    """Seconds for measuring durations; independent of any wall clock."""
    return time.monotonic()  # noqa: TID251 - stand-alone: it has a clock module of its own
