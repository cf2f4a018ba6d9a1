"""One eviction, from the first read to the outcome: read node, decide, mark, read node, decide, delete.

To mark a pod is to set its condition DisruptionTarget; the answer is the live pod. If budgets are to be respected, the
live pod is read instead of marked, and evicted by the eviction API instead of deleted.

The evictor raises no errors of the outside world: each becomes a ``WorkOutcome``. Nothing is awaited between the
decision, the check of the gate (whether this process leads) and the start of the call that makes a change. The PATCH
may then still wait for a connection; the call that ends the pod has one already.

Does not choose what to evict or when to retry (``core``), nor how a call is made (``kube``).
"""

import asyncio
import random

from taint_eviction.core.events import (
    CalledOff,
    Done,
    Eviction,
    Failed,
    PodIsGone,
    Suspended,
    TakeBack,
    Work,
    WorkOutcome,
)
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.runtime.backoff import backoff_seconds, blocked_seconds
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import CallFailed, ClusterReader, ClusterWriter, FailureReason, Gate
from taint_eviction.runtime.workers import Worker
from taint_eviction.settings import Settings

# If a node's read was sent longer ago than this when its call can be sent, it is repeated, once.
_FRESH_SECONDS = 3.0
_MAX_READS = 2

# How often and for how long the condition is sent at most. A call without an answer is abandoned early enough for
# another call; the last one may take the same time again.
_MAX_MARKS = 3
_MAX_MARKING_SECONDS = 5.0
_ROOM_FOR_ANOTHER_SECONDS = 0.3

# For so long the answer to a request that ends a pod is waited for at most, where earlier ones had none. Whoever stops
# waiting ends the request: with a webhook that hangs, which the API server waits for (10 s by default, perhaps for
# several), no pod would ever go. An API server gives up by itself after 60 s.
_LONGEST_SECONDS = 65.0

# A failed attempt that took longer keeps others waiting, where a limit lets few be under way, as one without an answer
# does: the API server answers by itself for a webhook that hangs, after 10 s by default.
_LATE_SECONDS = 3.0


class _Stopped(Exception):
    """The next call must not be made; the attempt ends with this outcome."""

    def __init__(self, outcome: WorkOutcome) -> None:
        super().__init__()
        self.outcome = outcome


class Evictor:
    """Carries out pieces of work, any number at a time."""

    def __init__(
        self,
        live: Live,
        reader: ClusterReader,
        writer: ClusterWriter,
        node_reads: NodeReads,
        gate: Gate,
        *,
        settings: Settings,
        rng: random.Random,
    ) -> None:
        self._live = live
        self._attempts, self._clock = live.controller.attempts, live.clock
        self._reader = reader
        self._writer = writer
        self._node_reads = node_reads
        self._gate = gate
        self._call_timeout_seconds = settings.call_timeout_seconds
        self._retry = settings.retry
        self._rng = rng

    async def carry_out(self, work: Work, worker: Worker) -> WorkOutcome:
        """Do one piece of work and return its outcome; only bugs of the controller are raised.
        The attempt takes ``worker`` again before each step; after a long wait it may have to wait for the worker.
        """
        began_at = self._clock.now().at
        try:
            if isinstance(work, TakeBack):
                return await self._take_back(work, worker)
            return await self._evict(work, worker)
        except _Stopped as stopped:
            return stopped.outcome
        except CallFailed as failure:
            if not self._gate.may_act():
                return Suspended()
            if failure.block is not None:
                wait = blocked_seconds(work.tries, failure.retry_after_seconds, self._retry, self._rng)
            else:
                wait = backoff_seconds(work.tries, failure.retry_after_seconds, self._retry, self._rng)
            unanswered = failure.reason is FailureReason.NO_ANSWER
            now = self._clock.now().at
            return Failed(
                str(failure),
                now + wait,
                failure.block,
                failure.denied,
                unanswered,
                failure.evacuates,
                failure.certain,
                late=now - began_at > _LATE_SECONDS,
            )

    async def _evict(self, work: Eviction, worker: Worker) -> WorkOutcome:
        await self._decide_again(work, worker)
        # The eviction API sets a condition of its own once it accepts.
        pod = await (self._read_pod(work.ref) if work.by_eviction_api else self._mark(work, worker))
        if pod is None:
            return PodIsGone()
        await worker.take()
        end = self._writer.evict if work.by_eviction_api else self._writer.delete
        ended = await end(work.ref, lambda: self._ready_to_end(work, worker), self._max_seconds(work))
        return Done() if ended else PodIsGone()

    def _max_seconds(self, work: Eviction) -> float:
        """Return for how long an answer to the request that ends the pod is waited for: twice as long after each that
        had none.
        """
        timeout = self._call_timeout_seconds
        return min(timeout * 2.0 ** min(work.hung, 30), max(timeout, _LONGEST_SECONDS))

    async def _ready_to_end(self, work: Eviction, worker: Worker) -> None:
        """Decide for the last time, when only the request remains to be sent (see ``Ready``)."""
        await self._decide_again(work, worker)
        self._attempts.will_delete(work.ref, self._clock.now())

    async def _decide_again(self, work: Eviction, worker: Worker) -> None:
        """Decide on a live node; raise ``_Stopped`` unless the next call may be made right now.

        The result of a slow read may be outdated, so the read is repeated. If the second is slow as well, it counts.
        """
        for _ in range(_MAX_READS):
            await worker.take()
            sent_at = await self._node_reads.read(work.node_name, awaits_watch=work.decision.runs_from_start)
            if sent_at is None:
                raise _Stopped(CalledOff())
            await worker.take()
            if self._clock.now().at - sent_at <= _FRESH_SECONDS:
                break
        self._recheck(work)

    def _recheck(self, work: Work) -> None:
        """Raise ``_Stopped`` unless the next call may be made right now, as far as is known."""
        outcome = self._attempts.recheck(work, self._clock.now()) or (None if self._gate.may_act() else Suspended())
        if outcome is not None:
            raise _Stopped(outcome)

    async def _mark(self, work: Eviction, worker: Worker) -> Pod | None:
        """Set the condition and return the live pod; if that is refused, read the pod instead.

        A temporary refusal is retried for a few seconds. A condition that cannot be set never blocks the eviction.
        """
        tries, last_at = 0, self._clock.now().at + _MAX_MARKING_SECONDS
        while True:
            try:
                return await self._mark_once(work, self._mark_timeout(tries, last_at))
            except CallFailed as failure:
                wait = backoff_seconds(tries, failure.retry_after_seconds, self._retry, self._rng)
                tries += 1
                if not failure.may_pass or tries == _MAX_MARKS or self._clock.now().at + wait > last_at:
                    break
            await asyncio.sleep(wait)
            await self._decide_again(work, worker)
        await worker.take()
        return await self._read_pod(work.ref)

    def _mark_timeout(self, tries: int, last_at: float) -> float:
        """Return how many seconds to wait for an answer to the condition, after ``tries`` that failed."""
        left = last_at - self._clock.now().at
        room = left - _ROOM_FOR_ANOTHER_SECONDS
        return room if room > 0 and tries < _MAX_MARKS - 1 else left + _MAX_MARKING_SECONDS

    async def _mark_once(self, work: Eviction, max_seconds: float) -> Pod | None:
        now = self._clock.now()
        self._attempts.will_mark(work.ref)
        is_decided = False
        try:
            async with asyncio.timeout(max_seconds):
                pod = await self._writer.mark(work.ref, work.marked, now)
            is_decided = True
        except CallFailed as failure:
            is_decided = failure.certain
            raise
        except TimeoutError:
            raise CallFailed(f"no answer within {max_seconds:.1f} s", may_pass=True) from None
        finally:
            if not is_decided:
                self._attempts.may_be_marked_late(work.ref, self._clock.now())
        if pod is not None:
            self._live.observe(PodSeen(pod, asked_at=now.at))
        return pod

    async def _take_back(self, work: TakeBack, worker: Worker) -> WorkOutcome:
        pod = await self._read_pod(work.ref)
        if pod is None:
            return PodIsGone()
        if pod.terminating or not pod.marked:
            return Done()
        await worker.take()
        self._recheck(work)
        asked_at = self._clock.now().at
        unmarked = await self._writer.unmark(pod, self._clock.now())
        if unmarked is None:
            return PodIsGone()
        self._live.observe(PodSeen(unmarked, asked_at=asked_at))
        return Done()

    async def _read_pod(self, ref: PodRef) -> Pod | None:
        asked_at = self._clock.now().at
        pod = await self._reader.read_pod(ref)
        if pod is not None:
            self._live.observe(PodSeen(pod, asked_at=asked_at))
        return pod
