"""Slow start: work that follows a pause begins with a few pieces at a time, and grows from there.

If all lists or evictions begin together, the API server answers the first one only when it is done with nearly all. So
a few begin, and each one that ends allows one more: each round is twice as large as the one before. A moment after the
first began all may run, so that a call that hangs does not delay the rest.
This module does not start work itself. Reference: ``slowStartBatch`` in Kubernetes' replica set controller.
"""

import asyncio
from collections.abc import Callable

_ALL_AFTER_SECONDS = 0.2


class SlowStart:
    """How many pieces of work may run at a time: ``first`` after a pause, ``max_running`` a moment later.

    ``allowed`` is the current number; ``on_more`` is called whenever it may have grown.
    """

    def __init__(self, first: int, max_running: int, on_more: Callable[[], None] = lambda: None) -> None:
        self._first = min(first, max_running)
        self._max = max_running
        self._on_more = on_more
        self.allowed = self._first
        self._timer: asyncio.TimerHandle | None = None

    @property
    def few(self) -> int:
        """How many pieces may run right after a pause."""
        return self._first

    def begin(self) -> None:
        """Note that work begins; the first piece after a pause starts the moment after which all may run."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_ALL_AFTER_SECONDS, self.let_more, self._max)

    def let_more(self, number: int = 1) -> None:
        """Let ``number`` more pieces run at a time, up to the maximum."""
        self.allowed = min(self.allowed + number, self._max)
        self._on_more()

    def pause(self) -> None:
        """Note that there is no work; the next piece begins a slow start of its own."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.allowed = self._first
