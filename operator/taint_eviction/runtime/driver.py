"""The one waiting loop: wakes at the next deadline or at a nudge, and keeps a bounded number of workers busy.

No task and no timer a pod: a task exists only while its eviction is in flight. Every wait is bounded, so a stepped or
suspended clock is noticed, and so that ``last_beat_at`` tells whether the loop still turns.

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


class Driver:
    """Starts evictions when they are due."""

    def __init__(self, live: LiveController, evictor: Evictor, gate: Gate, workers: int) -> None:
        self._live = live
        self._evictor = evictor
        self._gate = gate
        self._workers = workers
        self._running: dict[asyncio.Task[None], bool] = {}
        self._stopping = False
        self._bug: BaseException | None = None
        self.last_beat_at = live.clock.now().at

    @property
    def in_flight(self) -> int:
        """Count the pieces of work that are being carried out."""
        return len(self._running)

    @property
    def saturated(self) -> bool:
        """Tell whether all workers are busy; retries alone never make them."""
        return len(self._running) >= self._workers

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
            return _LONGEST_WAIT_SECONDS
        # Also while all workers are busy: what they are about to send can still be held.
        self._live.look()
        free = self._workers - len(self._running)
        if free <= 0:
            return _LONGEST_WAIT_SECONDS
        free_for_retries = max(0, self._workers // 2 - sum(self._running.values()))
        begun = self._live.take_due(free, free_for_retries)
        for work in begun:
            is_retry = not isinstance(work, Eviction) or work.tries > 0
            task = asyncio.create_task(self._carry_out(work), name=f"evict {work.ref}")
            self._running[task] = is_retry
            free_for_retries -= is_retry
            task.add_done_callback(self._ended)
        if len(begun) == free:
            return _LONGEST_WAIT_SECONDS
        now = self._live.clock.now().at
        next_at = self._live.controller.next_at(now, retries=free_for_retries > 0)
        if next_at is None:
            return _LONGEST_WAIT_SECONDS
        return min(max(0.0, next_at - now), _LONGEST_WAIT_SECONDS)

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
        self._live.changed.set()
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bug = bug

    async def _cancel_all(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
