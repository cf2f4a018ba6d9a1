"""Slow start: work that follows a pause begins with a few pieces at a time, and grows from there.

If all lists or evictions begin together, the API server answers the first one only when it is done with nearly all. So
a few begin, and each one that ends allows one more: each round is twice as large as the one before. A moment after the
first began all may run, so that a call that hangs does not delay the rest.
This module does not start work itself. Reference: ``slowStartBatch`` in Kubernetes' replica set controller.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

_ALL_AFTER_SECONDS = 0.2


class SlowStart:
    """How many pieces of work may run at a time: ``first`` after a pause, ``max_running`` a moment later.

    A caller that chooses its own work reads ``allowed``; ``on_more`` is called whenever that has grown. A caller that
    waits for its turn uses ``turn``, which serves first come, first served.
    """

    def __init__(self, first: int, max_running: int, on_more: Callable[[], None] = lambda: None) -> None:
        self._first = min(first, max_running)
        self._max = max_running
        self._on_more = on_more
        self._wanted = 0
        self._timer: asyncio.TimerHandle | None = None
        self.pause()

    @property
    def few(self) -> int:
        """How many pieces may run right after a pause."""
        return self._first

    @property
    def crowded(self) -> bool:
        """Return whether more turns are wanted than there can be at a time."""
        return self._wanted > self._max

    def begin(self) -> None:
        """Note that work begins; the first piece after a pause starts the moment after which all may run."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_ALL_AFTER_SECONDS, self.let_more, self._max)

    def let_more(self, number: int = 1) -> None:
        """Let ``number`` more pieces run at a time, up to the maximum."""
        more = min(number, self._max - self.allowed)
        self.allowed += more
        for _ in range(more):
            self._turns.release()
        self._on_more()

    def pause(self) -> None:
        """Note that there is no work; the next piece begins a slow start of its own."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.allowed = self._first
        self._turns = asyncio.Semaphore(self._first)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and keep it as long as the block lasts; it is a pause when no caller has or wants a turn."""
        self.begin()
        self._wanted += 1
        try:
            async with self._turns:
                yield
        finally:
            self._wanted -= 1
            if self._wanted:
                self.let_more()
            else:
                self.pause()
