"""Turns for what takes the API server much work: few at a time, and after a pause not all of those few at once.

Lists of eight nodes' pods that are begun together keep an API server from answering the first eviction until it is done
with them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

# So many seconds after the first began all take part: one that hangs must not hold up the rest.
_ALL_AFTER_SECONDS = 0.2


class Turns:
    """At most ``most`` take part at a time; the others wait, first come, first served.

    After a pause one begins. Each that ends lets one more take part, as does who is told to (``let_more``), and a
    moment later all do.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._wanted = 0
        self._all: asyncio.TimerHandle | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._turn, self._left = asyncio.Semaphore(1), self._most - 1

    @property
    def crowded(self) -> bool:
        """Tell whether more want to take part than ever may at a time."""
        return self._wanted > self._most

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it as long as the block lasts."""
        if self._all is None:
            self._all = asyncio.get_running_loop().call_later(_ALL_AFTER_SECONDS, self.let_more, self._most)
        self._wanted += 1
        try:
            async with self._turn:
                yield
        finally:
            self._wanted -= 1
            if self._wanted:
                self.let_more()
            else:
                self._all.cancel()
                self._all = None
                self._begin_anew()

    def let_more(self, number: int = 1) -> None:
        """Let so many more take part, as far as there are turns left."""
        for _ in range(min(number, self._left)):
            self._left -= 1
            self._turn.release()
