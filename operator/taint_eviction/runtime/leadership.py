"""Who acts: leader election on a Lease, as client-go does it, and the fence that makes it safe.

A lease has expired when *this* process has not seen it change for its whole duration, by its own monotonic clock; the
timestamps in it are for people. The remaining renew deadline bounds every attempt. Writes compare and swap by
resourceVersion. The fence: ``may_act`` is true only within the renew deadline of the last renewal, counted from just
before its write was sent. The lease lasts longer, and other replicas count from when they saw that write, so the next
leader acts later.

Losing the lease does not end the process: it keeps watching as a standby.

Reference: k8s.io/client-go/tools/leaderelection.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from taint_eviction.core.breaker import TriedBefore
from taint_eviction.core.instants import Moment
from taint_eviction.core.text import one_line
from taint_eviction.runtime.lasting_failure import LastingFailure
from taint_eviction.runtime.ports import CallFailed, Clock, FailureReason
from taint_eviction.settings import ElectionSettings

logger = logging.getLogger(__name__)

# How much longer than the retry period a candidate waits at most, at random, so that candidates do not try in step.
_JITTER = 1.2

# The duration of a released lease, for electors that ignore the empty holder.
_RELEASED_SECONDS = 1

# A lease that seems to last longer is a mistake, and would leave the cluster without a leader.
_LONGEST_LEASE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease. ``holder`` is "" if it has no holder; times are Unix times by the API server's clock.

    ``version`` is the resourceVersion to swap against, "" for a lease that does not exist yet. ``tried_in_vain``: how
    many pods its holder had tried to evict in vain when it was last renewed, or let through for another reason although
    they were due, for the next one's circuit breaker.
    """

    holder: str
    duration_seconds: int
    acquired_epoch: float
    renewed_epoch: float
    transitions: int
    version: str = ""
    tried_in_vain: int = 0


class LeaseStore(Protocol):
    """Where the Lease is kept. Raises ``CallFailed``, with reason CONFLICT if another process was faster."""

    async def read(self) -> LeaseRecord | None:
        """Read the lease; None if it does not exist yet."""
        ...

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create the lease or swap it against ``record.version``; return it as stored."""
        ...


class NoElection:
    """The gate of a process that runs alone: always open."""

    def may_act(self) -> bool:
        """Return True."""
        return True

    @property
    def term(self) -> int:
        """Return 0: nobody else ever leads."""
        return 0

    @property
    def tried_before(self) -> None:
        """Return None: nobody has led before."""
        return


class Elector:
    """One candidate; a ``Gate``.

    ``term`` counts how often another holder was seen: a leader that renews late, and finds nobody else, leads on.
    ``tried_in_vain`` returns how many such pods (``LeaseRecord``) this process has; ``tried_before``: the same of the
    holder before this process, when that last renewed the Lease; None: there was none.
    """

    def __init__(
        self, identity: str, store: LeaseStore, clock: Clock, settings: ElectionSettings, *, rng: random.Random
    ) -> None:
        self.identity = identity
        self.leading = False
        self.term = 0
        self.tried_before: TriedBefore | None = None
        self.tried_in_vain: Callable[[], int] = lambda: 0
        self._store = store
        self._clock = clock
        self._settings = settings
        self._rng = rng
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0
        self._renewed_at = float("-inf")
        self._failing = LastingFailure()
        # The leader as last logged by this process as a standby.
        self._logged_leader = ""

    def may_act(self) -> bool:
        """Return whether this process leads, and is at this moment within the renew deadline of its last renewal."""
        return self.leading and self._clock.now().at < self._renewed_at + self._settings.renew_deadline_seconds

    def expired_seconds(self) -> float:
        """Return for how long this process has believed that it leads with an expired lease; 0 if it does not."""
        if not self.leading:
            return 0.0
        return max(0.0, self._clock.now().at - self._renewed_at - self._settings.lease_duration_seconds)

    @property
    def holder(self) -> str:
        """Return the holder as last seen, "" if there is none."""
        return self._seen.holder if self._seen is not None else ""

    async def observe(self) -> None:
        """Read the lease once before standing for election, so that a dead leader's begins to run out."""
        with contextlib.suppress(CallFailed):
            await self._read()

    async def run(self) -> None:
        """Stand for election, lead, and stand again, until cancelled."""
        while True:
            await self._acquire()
            self._turn(True)
            try:
                await self._keep()
            finally:
                self._turn(False)

    async def release(self) -> None:
        """Release the lease, so that another replica need not wait for its expiry; call this after all work has
        stopped. This takes at most one retry period (2 s). After that, or if a call fails, the lease expires by itself.
        """
        self.leading = False
        if self.holder != self.identity:
            return
        with contextlib.suppress(CallFailed, TimeoutError):
            async with asyncio.timeout(self._settings.retry_period_seconds):
                record = await self._store.read()
                if record is None or record.holder != self.identity:
                    return
                now = self._clock.now()
                free = replace(
                    record,
                    holder="",
                    duration_seconds=_RELEASED_SECONDS,
                    acquired_epoch=now.server_epoch,
                    renewed_epoch=now.server_epoch,
                )
                self._note(await self._store.write(free))
                logger.info("the lease has been released")

    def _turn(self, leading: bool) -> None:
        self.leading = leading
        logger.info("%s %s", self.identity, "leads now" if leading else "no longer leads")

    async def _acquire(self) -> None:
        self._logged_leader = ""
        while not await self._attempt(self._settings.renew_deadline_seconds):
            self._log_leader()
            await asyncio.sleep(self._settings.retry_period_seconds * (1 + _JITTER * self._rng.random()))

    def _log_leader(self) -> None:
        if self.holder not in ("", self.identity, self._logged_leader):
            self._logged_leader = self.holder
            logger.info("%s is a standby: %s leads", self.identity, one_line(self.holder))

    async def _keep(self) -> None:
        """Renew every retry period; return once the lease is lost or could not be renewed in time.

        The period counts from request to request: if an answer takes longer, the next attempt follows at once.
        """
        sent_at = self._renewed_at
        while True:
            await asyncio.sleep(max(0.0, sent_at + self._settings.retry_period_seconds - self._clock.now().at))
            sent_at = self._clock.now().at
            left = self._renewed_at + self._settings.renew_deadline_seconds - sent_at
            if left <= 0:
                logger.warning("the lease could not be renewed in time")
                return
            # At most half of the deadline, as in client-go: after a dead connection, time remains for another try.
            held = await self._attempt(min(left, self._settings.renew_deadline_seconds / 2))
            if not held and self.holder != self.identity:
                return

    async def _attempt(self, max_seconds: float) -> bool:
        """Try once to acquire or renew the lease, in at most ``max_seconds``; return whether it is held now."""
        began_at = self._clock.now().at
        try:
            async with asyncio.timeout(max_seconds):
                held = await self._acquire_or_renew()
        except TimeoutError:
            self._log_failure(began_at, f"no answer within {max_seconds:.1f} s")
            return False
        except CallFailed as failure:
            if failure.reason is FailureReason.CONFLICT:
                logger.info("the lease: %s", failure)
            else:
                self._log_failure(began_at, str(failure))
            return False
        if self._failing.ends():
            logger.info("the lease can be read and written again")
        return held

    def _log_failure(self, at: float, why: str) -> None:
        if self._failing.goes_on(at):
            logger.warning("the lease: %s", why)

    async def _acquire_or_renew(self) -> bool:
        if self.leading and self._seen is not None and self._seen.holder == self.identity:
            try:
                return await self._write(self._seen)
            except CallFailed as failure:
                if failure.reason not in (FailureReason.NOT_FOUND, FailureReason.CONFLICT):
                    raise
        record = await self._read()
        # A lease that somebody has deleted is still running: its holder knows nothing of that before its next renewal.
        held = self._seen if record is None else record
        if held is not None and held.holder not in ("", self.identity) and self._is_running(held):
            return False
        return await self._write(record)

    async def _read(self) -> LeaseRecord | None:
        record = await self._store.read()
        if record is not None and (self._seen is None or record.version != self._seen.version):
            self._note(record)
        return record

    def _is_running(self, record: LeaseRecord) -> bool:
        longest = max(_LONGEST_LEASE_SECONDS, self._settings.lease_duration_seconds)
        return self._clock.now().at < self._seen_at + min(record.duration_seconds, longest)

    async def _write(self, before: LeaseRecord | None) -> bool:
        sent = self._clock.now()
        stored = await self._store.write(self._renewed(before, sent))
        self._note(stored)
        if stored.holder != self.identity:
            return False
        if before is not None and before.holder != self.identity:
            self.tried_before = TriedBefore(before.tried_in_vain, before.renewed_epoch)
        self._renewed_at = sent.at
        return True

    def _renewed(self, before: LeaseRecord | None, now: Moment) -> LeaseRecord:
        duration, in_vain = round(self._settings.lease_duration_seconds), self.tried_in_vain()
        if before is not None and before.holder == self.identity:
            return replace(before, duration_seconds=duration, renewed_epoch=now.server_epoch, tried_in_vain=in_vain)
        transitions, version = (0, "") if before is None else (before.transitions + 1, before.version)
        if before is not None:
            in_vain = max(in_vain, before.tried_in_vain)  # It has tried none yet, and may end before it renews.
        return LeaseRecord(self.identity, duration, now.server_epoch, now.server_epoch, transitions, version, in_vain)

    def _note(self, record: LeaseRecord) -> None:
        self.term += record.holder != self.identity
        self._seen = record
        self._seen_at = self._clock.now().at
