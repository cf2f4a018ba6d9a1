"""The queue of the model: one worker for each ``namespace/name``, with a timer, or already running.

Reference: pkg/controller/tainteviction/timed_workers.go. Times are those of the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable

from taint_eviction.core.objects import NamespacedName

# Returns whether it succeeded.
WorkFunc = Callable[[NamespacedName, float], Awaitable[bool]]


class TimerQueue:
    """The queue; ``keeps_key``: work that succeeds leaves its entry, as before 1.33."""

    def __init__(self, work: WorkFunc, keeps_key: bool) -> None:
        # None: work that needed no timer, or that has succeeded.
        self._workers: dict[NamespacedName, asyncio.TimerHandle | None] = {}
        self._work = work
        self._keeps_key = keeps_key
        self._running: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Return whether a timer is set or work is running."""
        return bool(self._running) or any(worker is not None for worker in self._workers.values())

    def has_timer(self, key: NamespacedName) -> bool:
        """Return whether a timer was set for this name, even if its work has already begun."""
        return self._workers.get(key) is not None

    def add(self, key: NamespacedName, now: float, fire_at: float) -> bool:
        """Add work; return whether that has set a timer. If the name has an entry, nothing happens."""
        if key in self._workers:
            return False
        delay = fire_at - now
        if delay <= 0:
            self._workers[key] = None
            self._start(key, fire_at)
            return False
        self._workers[key] = asyncio.get_running_loop().call_later(delay, self._start, key, fire_at)
        return True

    def cancel(self, key: NamespacedName) -> bool:
        """Forget the entry of a name; return whether it had a timer, even if its work has already begun."""
        worker = self._workers.pop(key, None)
        if worker is None:
            return False
        worker.cancel()
        return True

    async def cancel_all(self) -> None:
        """Cancel all timers, and all running work."""
        for worker in self._workers.values():
            if worker is not None:
                worker.cancel()
        self._workers.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _start(self, key: NamespacedName, fire_at: float) -> None:
        task = asyncio.get_running_loop().create_task(self._run(key, fire_at), name=f"evict {key}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, key: NamespacedName, fire_at: float) -> None:
        # This removes the entry that has the name by then, which may belong to another pod.
        if await self._work(key, fire_at) and self._keeps_key:
            self._workers[key] = None
        else:
            self._workers.pop(key, None)
