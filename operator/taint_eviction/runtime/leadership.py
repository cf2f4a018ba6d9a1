"""Who acts: leader election on a Lease, as client-go does it, and the fence that makes it safe.

A lease has expired when *this* process has not seen it change for as long as it lasts, by its own monotonic clock; the
timestamps in it are for people. Every attempt is bounded by what is left of the renew deadline, writes compare and swap
by resourceVersion. The fence: ``may_act`` holds only inside the renew deadline of the last renewal, counted from before
that renewal was sent; the lease outlasts it, so whoever takes over does so later.

Losing the lease does not end the process: it goes on watching as a standby.

Reference: k8s.io/client-go/tools/leaderelection.
"""

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass, replace
from typing import Protocol

from taint_eviction.core.instants import Moment
from taint_eviction.runtime.ports import CallFailed, Clock
from taint_eviction.settings import ElectionSettings

logger = logging.getLogger(__name__)

# How much longer than the retry period a candidate waits at most, at random: candidates don't come in step.
_JITTER = 1.2

# A released lease runs out after this, for electors that look at the duration alone.
_RELEASED_SECONDS = 1


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease. ``holder`` "" means that nobody holds it; times are epoch seconds by the API server's clock.

    ``version`` is the resourceVersion to swap against, "" for a lease that does not exist yet.
    """

    holder: str
    duration_seconds: int
    acquired_epoch: float
    renewed_epoch: float
    transitions: int
    version: str = ""


class LeaseStore(Protocol):
    """Where the Lease is kept. Raises ``CallFailed``, with status 409 where somebody else was faster."""

    async def read(self) -> LeaseRecord | None:
        """Read the lease; None if there is none yet."""
        ...

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create the lease or swap it against ``record.version``; return it as stored."""
        ...


class NoElection:
    """The gate of a process that runs alone: always open."""

    def may_act(self) -> bool:
        """Answer yes."""
        return True


class Elector:
    """One candidate; a ``Gate``."""

    def __init__(
        self, identity: str, store: LeaseStore, clock: Clock, settings: ElectionSettings, *, chance: random.Random
    ) -> None:
        self.identity = identity
        self.leading = False
        self._store = store
        self._clock = clock
        self._settings = settings
        self._chance = chance
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0
        self._renewed_at = float("-inf")

    def may_act(self) -> bool:
        """Tell whether this process leads and is inside the renew deadline of its last renewal, at this very moment."""
        return self.leading and self._clock.now().at < self._renewed_at + self._settings.renew_deadline_seconds

    def expired_seconds(self) -> float:
        """Return for how long this process has believed to lead with an expired lease; 0 if it has not."""
        if not self.leading:
            return 0.0
        return max(0.0, self._clock.now().at - self._renewed_at - self._settings.lease_duration_seconds)

    @property
    def holder(self) -> str:
        """Name the holder as last seen, "" if nobody."""
        return self._seen.holder if self._seen is not None else ""

    async def run(self) -> None:
        """Stand for election and lead, by turns, until cancelled."""
        while True:
            await self._acquire()
            self._turn(True)
            try:
                await self._hold()
            finally:
                self._turn(False)

    async def release(self) -> None:
        """Give the lease back, so that another need not wait for its end. To be called after all work has stopped."""
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
        logger.info("%s %s", self.identity, "leads now" if leading else "does not lead any more")

    async def _acquire(self) -> None:
        held = await self._attempt(self._settings.renew_deadline_seconds)
        while not held:
            await asyncio.sleep(self._settings.retry_period_seconds * (1 + _JITTER * self._chance.random()))
            held = await self._attempt(self._settings.renew_deadline_seconds)

    async def _hold(self) -> None:
        """Renew every retry period; return once the lease is lost or could not be renewed in time."""
        while True:
            await asyncio.sleep(self._settings.retry_period_seconds)
            left = self._renewed_at + self._settings.renew_deadline_seconds - self._clock.now().at
            if left <= 0:
                logger.warning("the lease could not be renewed in time")
                return
            # Half of the deadline at most, as client-go's clients do: one dead connection leaves time for another try.
            held = await self._attempt(min(left, self._settings.renew_deadline_seconds / 2))
            if not held and self.holder != self.identity:
                return

    async def _attempt(self, most_seconds: float) -> bool:
        """Try once to get or renew the lease, in at most so many seconds; tell whether it is held now."""
        started_at = self._clock.now().at
        try:
            async with asyncio.timeout(most_seconds):
                held = await self._get_or_renew()
        except TimeoutError:
            logger.warning("the lease did not answer within %.1f s", most_seconds)
            return False
        except CallFailed as failure:
            logger.log(logging.INFO if failure.status == 409 else logging.WARNING, "the lease: %s", failure)
            return False
        if held:
            self._renewed_at = started_at
        return held

    async def _get_or_renew(self) -> bool:
        if self.leading and self._seen is not None and self._seen.holder == self.identity:
            try:
                return await self._write(self._seen)
            except CallFailed as failure:
                if failure.status not in (404, 409):
                    raise
        record = await self._store.read()
        if record is not None and (self._seen is None or record.version != self._seen.version):
            self._note(record)
        if record is not None and record.holder not in ("", self.identity) and self._is_running(record):
            return False
        return await self._write(record)

    def _is_running(self, record: LeaseRecord) -> bool:
        return self._clock.now().at < self._seen_at + record.duration_seconds

    async def _write(self, before: LeaseRecord | None) -> bool:
        self._note(await self._store.write(self._renewed(before, self._clock.now())))
        return True

    def _renewed(self, before: LeaseRecord | None, now: Moment) -> LeaseRecord:
        duration = round(self._settings.lease_duration_seconds)
        if before is None:
            return LeaseRecord(self.identity, duration, now.server_epoch, now.server_epoch, 0)
        if before.holder == self.identity:
            return replace(before, duration_seconds=duration, renewed_epoch=now.server_epoch)
        return LeaseRecord(
            self.identity, duration, now.server_epoch, now.server_epoch, before.transitions + 1, before.version
        )

    def _note(self, record: LeaseRecord) -> None:
        self._seen = record
        self._seen_at = self._clock.now().at
