"""The one waiting loop: it wakes at the next deadline or at a change, and keeps a bounded number of workers busy.

A pod has no task and no timer of its own: a task exists only while its eviction is in flight. Every wait is bounded, so
that a stepped or suspended clock is noticed, and that ``beat_age_seconds`` shows whether the loop still runs.
After a pause (no work was in flight), a few workers start and more follow (``slow_start``): an API server that is short
of CPU deletes the first pods, instead of marking twenty before it deletes any. While many calls have waited long for an
answer, few workers start as well: the API server is busy enough. Namespaces whose attempts wait long come last.
An eviction overtakes a take-back of its pod's condition, which is cancelled: a call that hangs delays no eviction.
Invariants: never two evictions of one pod at a time (the core hands out none that is in flight), never more
pieces that hold a worker than there are workers, and never more retries that hold one than half the number of workers.
"""

import asyncio
import functools

from taint_eviction.core.events import CutOff, Eviction, TakeBack, Work, WorkOutcome
from taint_eviction.core.objects import PodRef
from taint_eviction.runtime.evictor import Evictor
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.ports import Gate
from taint_eviction.runtime.slow_start import SlowStart
from taint_eviction.runtime.workers import Worker, Workers

# The longest wait: a stepped clock, or a gate that has opened by itself, is noticed after this time at the latest.
_LONGEST_WAIT_SECONDS = 0.5

# How many workers start after a pause.
_FIRST_WORKERS = 4

# The account may share its flow of API Priority and Fairness with others, as all service accounts of kube-system do.
_MAX_LENT = 100

# While this many attempts have lent their workers, only as many workers may be busy as after a pause.
_MANY_LENT = 50


class Driver:
    """Starts evictions when they are due."""

    def __init__(self, live: Live, evictor: Evictor, gate: Gate, workers: int) -> None:
        self._live = live
        self._attempts, self._clock = live.controller.attempts, live.clock
        self._evictor = evictor
        self._gate = gate
        self.workers = Workers(workers, live.changed.set, _MAX_LENT)
        self._slow_start = SlowStart(_FIRST_WORKERS, workers, live.changed.set)
        # A dict, so that they are cancelled in the same order in every process.
        self._running: dict[asyncio.Task[None], None] = {}
        self._taking_back: dict[PodRef, asyncio.Task[None]] = {}
        self._stopping = False
        self._bug: BaseException | None = None
        self._last_beat_at = live.clock.now().at

    @property
    def in_flight(self) -> int:
        """Count the pieces of work that are being carried out, waiting ones included."""
        return len(self._running)

    @property
    def stopping(self) -> bool:
        """Return whether the process is being ended."""
        return self._stopping

    @property
    def saturated(self) -> bool:
        """Return whether all workers that may be busy now are busy; retries alone never keep all of them busy."""
        return self._free() <= 0

    def beat_age_seconds(self) -> float:
        """Return how many seconds ago the loop last ran."""
        return self._clock.now().at - self._last_beat_at

    async def run(self) -> None:
        """Run until stopped or cancelled; a bug in an eviction ends it with that exception."""
        try:
            while not self._stopping and self._bug is None:
                self._last_beat_at = self._clock.now().at
                self._live.changed.clear()
                await self._wait(self._start_due())
            if self._bug is not None:
                raise self._bug
        finally:
            if not self._stopping:
                await self._cancel_all()

    async def stop(self, grace_seconds: float) -> bool:
        """Start no more work and let what is in flight end; return False if some was cut off after the grace period."""
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
        """Begin due work as far as workers are free; return how many seconds may pass until the next pass."""
        if not self._gate.may_act():
            self._note_pause()
            return _LONGEST_WAIT_SECONDS
        # Also while all workers are busy: requests that they are about to send can still be held.
        self._live.evaluate(self._gate)
        free = self._free()
        if free <= 0:
            return _LONGEST_WAIT_SECONDS
        free_for_retries = max(0, self._allowed() // 2 - self.workers.retrying)
        self._attempts.note_waiting(self.workers.waiting_long)
        begun = self._live.take_due(free, free_for_retries)
        for work in begun:
            is_retry = not isinstance(work, Eviction) or work.tries > 0
            worker = self.workers.assign(work.ref.key.namespace, is_retry=is_retry)
            task = asyncio.create_task(self._carry_out(work, worker), name=f"evict {work.ref}")
            self._running[task] = None
            if isinstance(work, TakeBack):
                self._taking_back[work.ref] = task
            elif (overtaken := self._taking_back.pop(work.ref, None)) is not None:
                overtaken.cancel()  # The core has forgotten it.
            free_for_retries -= is_retry
            task.add_done_callback(functools.partial(self._ended, worker))
            self._slow_start.begin()
        self._note_pause()
        now = self._clock.now()
        next_at = None if len(begun) == free else self._attempts.next_at(now, retries=free_for_retries > 0)
        return _LONGEST_WAIT_SECONDS if next_at is None else min(max(0.0, next_at - now.at), _LONGEST_WAIT_SECONDS)

    def _note_pause(self) -> None:
        if not self._running:
            self._slow_start.pause()

    def _free(self) -> int:
        """Count the workers that may begin work now; negative if more are busy than allowed."""
        return min(self.workers.number - self.workers.taken, self._allowed() - self.workers.busy)

    def _allowed(self) -> int:
        """Count the workers that may be busy now."""
        return self._slow_start.few if self.workers.lent >= _MANY_LENT else self._slow_start.allowed

    async def _wait(self, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._live.changed.set)
        try:
            await self._live.changed.wait()
        finally:
            timer.cancel()

    async def _carry_out(self, work: Work, worker: Worker) -> None:
        outcome: WorkOutcome = CutOff()
        try:
            outcome = await self._evictor.carry_out(work, worker)
        finally:
            if self._taking_back.get(work.ref) is asyncio.current_task():
                del self._taking_back[work.ref]
            self._live.finish(work, outcome)

    def _ended(self, worker: Worker, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._slow_start.let_more()
        worker.leave()
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bug = bug

    async def _cancel_all(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._slow_start.pause()
