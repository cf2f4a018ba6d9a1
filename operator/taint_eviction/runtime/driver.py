"""The one waiting loop: wakes at the next deadline or at a nudge, and keeps a bounded number of workers busy.

No task and no timer a pod: a task exists only while its eviction is in flight. Every wait is bounded, so a stepped or
suspended clock is noticed, and so that ``last_beat_at`` tells whether the loop still turns.

Whatever comes after a pause is begun by a few workers; each eviction that ends lets one more take part, and a moment
later all do. So an API server that is short of CPU ends the first pods, instead of marking twenty before any of them
goes.

Invariant: never two pieces of work for one pod at a time (the brain hands out none that is in flight), never more than
``workers``, and retries never hold more than half of them.
"""

import asyncio
import contextlib

from taint_eviction.core.effects import CutOff, Eviction, Outcome, Work
from taint_eviction.runtime.evictor import Evictor
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.ports import Gate

# The longest wait: how late a stepped clock, or a gate that has opened by itself, can be noticed.
_LONGEST_WAIT_SECONDS = 0.5

# So many workers begin after a pause; so many seconds later all take part: calls that hang must not hold up the rest.
_FIRST_WORKERS = 4
_ALL_AFTER_SECONDS = 0.2


class Driver:
    """Starts evictions when they are due."""

    def __init__(self, live: LiveController, evictor: Evictor, gate: Gate, workers: int) -> None:
        self._live = live
        self._evictor = evictor
        self._gate = gate
        self._workers = workers
        self._running: dict[asyncio.Task[None], bool] = {}
        # When work began after the last pause, None in one; and how much of it has ended since.
        self._began_at: float | None = None
        self._ended_since = 0
        self._stopping = False
        self._bug: BaseException | None = None
        self.last_beat_at = live.clock.now().at

    @property
    def in_flight(self) -> int:
        """Count the pieces of work that are being carried out."""
        return len(self._running)

    @property
    def saturated(self) -> bool:
        """Tell whether all workers that may take part are busy; retries alone never make them."""
        return len(self._running) >= self._taking_part(self._live.clock.now().at)

    async def run(self) -> None:
        """Run until stopped or cancelled; a bug in an eviction ends it with that exception."""
        try:
            while not self._stopping and self._bug is None:
                self.last_beat_at = self._live.clock.now().at
                self._live.changed.clear()
                await self._wait(self._start_due())
            if self._bug is not None:
                raise self._bug
        finally:
            if not self._stopping:
                await self._cancel_all()

    async def stop(self, grace_seconds: float) -> bool:
        """Start nothing any more, let what is in flight end; False if some had to be cut off after the grace."""
        self._stopping = True
        self._live.changed.set()
        if self._running:
            await asyncio.wait(self._running, timeout=grace_seconds)
        cut_off = bool(self._running)
        await self._cancel_all()
        if self._bug is not None:
            raise self._bug
        return not cut_off

    def _start_due(self) -> float:
        """Begin what is due as far as workers are free; return how many seconds may pass until the next look."""
        if not self._gate.may_act():
            if not self._running:
                self._began_at = None
            return _LONGEST_WAIT_SECONDS
        # Also while all workers are busy: what they are about to send can still be held.
        self._live.look()
        now = self._live.clock.now().at
        taking_part = self._taking_part(now)
        free = taking_part - len(self._running)
        if free <= 0:
            return self._next_look(now)
        free_for_retries = max(0, taking_part // 2 - sum(self._running.values()))
        begun = self._live.take_due(free, free_for_retries)
        for work in begun:
            is_retry = not isinstance(work, Eviction) or work.tries > 0
            task = asyncio.create_task(self._carry_out(work), name=f"evict {work.ref}")
            self._running[task] = is_retry
            free_for_retries -= is_retry
            task.add_done_callback(self._ended)
        if not self._running:
            self._began_at = None
        elif self._began_at is None:
            self._began_at, self._ended_since = now, 0
        if len(begun) == free:
            return self._next_look(now)
        next_at = self._live.controller.next_at(now, retries=free_for_retries > 0)
        if next_at is None:
            return self._next_look(now)
        return min(max(0.0, next_at - now), self._next_look(now))

    def _taking_part(self, now: float) -> int:
        """Count the workers that may be busy now."""
        if self._began_at is None:
            return min(self._workers, _FIRST_WORKERS)
        if now >= self._began_at + _ALL_AFTER_SECONDS:
            return self._workers
        return min(self._workers, _FIRST_WORKERS + self._ended_since)

    def _next_look(self, now: float) -> float:
        """Return how many seconds may pass until the next look, whatever is due: more workers may take part then."""
        if self._began_at is None:
            return _LONGEST_WAIT_SECONDS
        left = self._began_at + _ALL_AFTER_SECONDS - now
        return left if left > 0 else _LONGEST_WAIT_SECONDS

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._live.changed.wait()

    async def _carry_out(self, work: Work) -> None:
        outcome: Outcome = CutOff()
        try:
            outcome = await self._evictor.carry_out(work)
        finally:
            self._live.settle(work, outcome)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._ended_since += 1
        self._live.changed.set()
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bug = bug

    async def _cancel_all(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
