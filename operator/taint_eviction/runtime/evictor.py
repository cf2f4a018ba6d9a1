"""One eviction from the first look to the last word: read again, decide again, mark, decide again, delete.

Where budgets are to hold, the live pod is read instead of marked, and the eviction API asked instead of a deletion.

Never raises the world's errors: whatever happens becomes an ``Outcome``. The decision, the gate and the call that
changes something stand together without an await between them.

Does not choose what to evict or when to try again next (``core.controller``), nor how a call is made (``adapters``).
"""

import random

from taint_eviction.core.effects import CalledOff, Done, Eviction, Failed, Held, Outcome, PodIsGone, TakeBack, Work
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import CallFailed, ClusterReader, ClusterWriter, Gate
from taint_eviction.settings import RetrySettings

# No server means to be left alone for longer; what a proxy says must not silence an eviction for a day.
_LONGEST_ADVICE_SECONDS = 600.0

_FIRST_BLOCKED_SECONDS = 5.0


class Evictor:
    """Carries out pieces of work, any number at a time."""

    def __init__(
        self,
        live: LiveController,
        reader: ClusterReader,
        writer: ClusterWriter,
        node_reads: NodeReads,
        gate: Gate,
        *,
        retry: RetrySettings,
        chance: random.Random,
    ) -> None:
        self._live = live
        self._reader = reader
        self._writer = writer
        self._node_reads = node_reads
        self._gate = gate
        self._retry = retry
        self._chance = chance

    async def carry_out(self, work: Work) -> Outcome:
        """Do one piece of work and say how it ended; only our own bugs are raised."""
        try:
            if isinstance(work, TakeBack):
                return await self._take_back(work)
            return await self._evict(work)
        except CallFailed as failure:
            if not self._gate.may_act():
                return Held()
            if failure.block is not None:
                wait = blocked_seconds(work.tries, failure.retry_after_seconds, self._retry, self._chance)
            else:
                wait = backoff_seconds(work.tries, failure.retry_after_seconds, self._retry, self._chance)
            return Failed(str(failure), self._live.clock.now().at + wait, failure.block)

    async def _evict(self, work: Eviction) -> Outcome:
        if (obstacle := await self._obstacle(work)) is not None:
            return obstacle
        # The eviction API sets a condition of its own, once it has agreed.
        pod = await (self._read_pod(work.ref) if work.by_eviction_api else self._mark(work))
        if pod is None:
            return PodIsGone()
        if (obstacle := await self._obstacle(work)) is not None:
            return obstacle
        self._live.will_delete(work.ref)
        end = self._writer.evict if work.by_eviction_api else self._writer.delete
        return Done() if await end(work.ref) else PodIsGone()

    async def _obstacle(self, work: Eviction) -> Outcome | None:
        """Decide again on a live node: None if the next call may be made right now."""
        if not await self._node_reads.fresh(work.node_name):
            return CalledOff()
        return self._live.obstacle(work) or (None if self._gate.may_act() else Held())

    async def _mark(self, work: Eviction) -> Pod | None:
        """Set the condition and take in the live pod; where that is refused, read the pod instead.

        A condition that can't be set never blocks the eviction.
        """
        asked_at = self._live.clock.now().at
        self._live.will_mark(work.ref)
        try:
            pod = await self._writer.mark(work.ref, work.marked, self._live.clock.now())
        except CallFailed:
            return await self._read_pod(work.ref)
        if pod is not None:
            self._live.observe(PodSeen(pod, asked_at=asked_at))
        return pod

    async def _take_back(self, work: TakeBack) -> Outcome:
        pod = await self._read_pod(work.ref)
        if pod is None:
            return PodIsGone()
        if pod.terminating or not pod.marked:
            return Done()
        if (obstacle := self._live.obstacle(work)) is not None:
            return obstacle
        if not self._gate.may_act():
            return Held()
        asked_at = self._live.clock.now().at
        unmarked = await self._writer.unmark(pod, self._live.clock.now())
        if unmarked is None:
            return PodIsGone()
        self._live.observe(PodSeen(unmarked, asked_at=asked_at))
        return Done()

    async def _read_pod(self, ref: PodRef) -> Pod | None:
        asked_at = self._live.clock.now().at
        pod = await self._reader.read_pod(ref)
        if pod is not None:
            self._live.observe(PodSeen(pod, asked_at=asked_at))
        return pod


def backoff_seconds(tries: int, advised_seconds: float | None, retry: RetrySettings, chance: random.Random) -> float:
    """Say how long to wait after the failure that follows ``tries`` earlier ones.

    Doubles up to the cap, minus up to half of it at random; never less than the server advised, and then up to half of
    the first wait more, so that those who were told the same don't come back together.
    """
    doubled = min(retry.most_seconds, retry.first_seconds * 2.0 ** min(tries, 30))
    own = doubled * chance.uniform(0.5, 1.0)
    if advised_seconds is None or advised_seconds <= own:
        return own
    return min(advised_seconds, _LONGEST_ADVICE_SECONDS) + retry.first_seconds * chance.uniform(0.0, 0.5)


def blocked_seconds(tries: int, advised_seconds: float | None, retry: RetrySettings, chance: random.Random) -> float:
    """Say how long to wait after a budget's no that follows ``tries`` earlier failures.

    What the server advises; else 5 s, doubled up to the cap: budgets free up when other pods become ready, and asking
    more often does not hasten that. Up to a fifth more at random, so that those who were told the same don't come back
    together.
    """
    if advised_seconds is None or advised_seconds <= 0:
        most = max(retry.most_seconds, _FIRST_BLOCKED_SECONDS)
        advised_seconds = min(most, _FIRST_BLOCKED_SECONDS * 2.0 ** min(tries, 30))
    return min(advised_seconds, _LONGEST_ADVICE_SECONDS) * chance.uniform(1.0, 1.2)
