"""Turns of the lists of pods: few lists run at a time, and a list that hangs holds up no other.

The first lists of newly tainted nodes go before all others, which never hold all turns; otherwise first come, first
served. A list that has run for longer than a second lends its turn, so that a slow API server, or nodes whose lists
hang, do not delay other nodes. At most 20 are lent at a time. After a pause the turns grow as in ``slow_start``.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from taint_eviction.runtime.slow_start import SlowStart
from taint_eviction.runtime.workers import Worker, Workers

_MAX_LENT = 20

# The share of the turns that only first lists of newly tainted nodes may take.
_RESERVED_SHARE = 0.25


class ListTurns:
    """At most ``number`` turns, beside those that are lent."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._reserved = int(_RESERVED_SHARE * number)
        self._turns = Workers(number, self._grant, max_lent=_MAX_LENT)
        self._slow_start = SlowStart(1, number, self._grant)
        self._wanted = 0
        # Those that wait; in each, the oldest is the first.
        self._urgent: dict[asyncio.Future[Worker], None] = {}
        self._others: dict[asyncio.Future[Worker], None] = {}

    @property
    def crowded(self) -> bool:
        """Return whether more turns are wanted than there can be at a time."""
        return self._wanted > self._number

    def let_more(self) -> None:
        """Let one more list run at a time."""
        self._slow_start.let_more()

    @contextlib.asynccontextmanager
    async def turn(self, *, urgent: bool) -> AsyncIterator[None]:
        """Wait for a turn, and keep it as long as the block lasts; ``urgent``: before all that are not."""
        granted: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        waiting = self._urgent if urgent else self._others
        waiting[granted] = None
        self._wanted += 1
        self._grant()
        try:
            await granted
            yield
        finally:
            self._wanted -= 1
            waiting.pop(granted, None)
            if self._wanted:
                self._slow_start.let_more()
            else:
                self._slow_start.pause()
            if not granted.cancelled():
                granted.result().leave()

    def _grant(self) -> None:
        while (waiting := self._next()) is not None:
            granted = next(iter(waiting))
            del waiting[granted]
            if not granted.cancelled():
                self._slow_start.begin()
                granted.set_result(self._turns.assign())

    def _next(self) -> dict[asyncio.Future[Worker], None] | None:
        """Return those of whom the oldest may begin now; None if none may."""
        free = self._number - self._turns.taken
        if self._slow_start.allowed <= self._turns.busy:
            return None
        if self._urgent and free > 0:
            return self._urgent
        return self._others if self._others and free > self._reserved else None
