"""Keeps the control state (pauses, the breaker's latch) in the core and in the cluster in sync.

It reads every few seconds, even while an earlier read is slow, so that a pause soon takes effect in every replica. The
last known control state stays in force while it cannot read. A date ahead of the API server's time, from a wrong clock,
counts as the moment at which it was first read. A pause with an end ends then, whether or not the cluster can be read
and whatever becomes of the API server's clock meanwhile (``core.control_state``).
It writes only what the breaker of the acting process did, corrects such dates and the format, and removes pauses that
have ended. If somebody deletes the object, all that was known stays in force, and the acting process writes it again
after a while; also if somebody else creates the object meanwhile. It decides nothing.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from taint_eviction.core.control_state import ControlState, Pause, PauseEnds, PauseScope
from taint_eviction.core.instants import Moment
from taint_eviction.runtime.lasting_failure import LastingFailure
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.ports import CallFailed, ControlStateStore, Gate

logger = logging.getLogger(__name__)

# A smaller difference between clocks is not logged.
_TOLERATED_AHEAD_SECONDS = 2.0

# Of pauses that have ended, so many are named in the log.
_MAX_TOLD = 3

# The log announces the end of a pause this long before it ends by itself.
_TOLD_BEFORE_SECONDS = 60.0

# An object that was deleted is created again after this many intervals: people who remove the controller delete its
# ConfigMap as well, and it must not come back.
_POLLS_BEFORE_KEEPING = 5

# How often the clock is asked whether it knows the API server's time, until it does: then pauses can end.
_LOOK_AT_CLOCK_SECONDS = 0.05

# How many reads may be under way that have not waited for so long: while some hang, others are made, which see what
# people have paused meanwhile.
_MAX_READS, _LONG_SECONDS = 2, 10.0


@dataclass(frozen=True, slots=True)
class _Date:
    """When the breaker was opened or closed, by the API server's clock: as the cluster has it, and as it counts."""

    stated_epoch: float
    epoch: float


class ControlStateSync:
    """Reads and writes for one controller; ``writes`` False: a dry run, which keeps its latch to itself.

    ``ending`` returns whether the process is being ended: then it creates no object again.
    """

    def __init__(
        self,
        store: ControlStateStore,
        live: Live,
        gate: Gate,
        *,
        poll_seconds: float,
        writes: bool,
        ending: Callable[[], bool],
    ) -> None:
        self._store = store
        self._live = live
        self._clock = live.clock
        self._breaker = live.controller.breaker
        self._gate = gate
        self._poll_seconds = poll_seconds
        self._writes = writes
        self._ending = ending
        self._read_at: float | None = None
        self._written_at = -math.inf
        self._began_at = live.clock.now().at
        self._unread, self._unwritten, self._unended, self._unfitted, self._unkept = (
            LastingFailure() for _ in range(5)
        )
        # As the cluster has it, or had it before its object was deleted.
        self._kept = ControlState()
        # When the object that a leader has taken over was last found, or taken over here; infinite: there is none.
        self._exists_from = math.inf
        # What was known when the object was deleted, until a leader has written it again.
        self._lost: ControlState | None = None
        # Whether the last read found an object that somebody has created since, and no leader has taken over.
        self._recreated = False
        # When the acting process creates the object, or takes it over; None: that was done.
        self._keep_at: float | None = self._began_at
        self._ends = PauseEnds()
        self._date: _Date | None = None
        self._kept_anew = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_reading(), name="read control state")
            group.create_task(self._keep_ending(), name="end pauses")
            if self._writes:
                group.create_task(self._keep_writing(), name="write breaker")

    @property
    def known(self) -> bool:
        """Return whether the control state has ever been read."""
        return self._read_at is not None

    @property
    def read_at(self) -> float | None:
        """When the read of the control state in force was sent, None: it has never been read."""
        return self._read_at

    def age_seconds(self) -> float:
        """Return how many seconds ago the control state was last read; if never, the seconds since the start."""
        return self._clock.now().at - (self._began_at if self._read_at is None else self._read_at)

    def unwritten_seconds(self) -> float:
        """Return for how long the breaker's state, or what was lost with a deleted ConfigMap, could not be written; 0
        if it is written, or another process writes it.
        """
        since = [self._unwritten.since_at, None if self._lost is None else self._unkept.since_at]
        return max((self._clock.now().at - each for each in since if each is not None), default=0.0)

    async def _keep_reading(self) -> None:
        room = asyncio.Semaphore(_MAX_READS)
        async with asyncio.TaskGroup() as group:
            while True:
                await room.acquire()
                asked_at = self._clock.now().at
                reading = group.create_task(self._read(asked_at), name="read")
                group.create_task(_leave(room, reading), name="leave room for other reads")
                await asyncio.wait([reading], timeout=self._poll_seconds)
                # Until it is known, no pod is evicted.
                every = self._poll_seconds if self.known else self._poll_seconds / 8
                if asked_at < self._written_at and reading.done():
                    continue  # What others have ordered meanwhile was in an answer that no longer counts.
                await asyncio.sleep(max(0.0, asked_at + every - self._clock.now().at))

    async def _read(self, asked_at: float) -> None:
        try:
            control_state = await self._store.read()
        except CallFailed as failure:
            if not self._is_overtaken(asked_at) and self._unread.goes_on(asked_at):
                meanwhile = "what was last read stays in force" if self.known else "nothing is evicted until it can be"
                logger.error("the control state (pauses, breaker) cannot be read, %s: %s", meanwhile, failure)
            return
        if self._is_overtaken(asked_at):
            self._take_new_orders(control_state, asked_at)
            return
        if self._unread.ends():
            logger.info("the control state (pauses, breaker) can be read again")
        self._kept = self._dated(self._with_lost(control_state, asked_at))
        self._read_at = asked_at
        self._live.order(self._as_counted(self._clock.now()))
        self._kept_anew.set()

    def _take_new_orders(self, control_state: ControlState | None, asked_at: float) -> None:
        """Let begin what an answer shows that people have paused, or paused for longer, or a breaker that they have
        opened, although it may lack a later write of this process, which does none of that: until the next answer,
        which may be slow, pods would be evicted that are known to be held.
        """
        if control_state is None or self._read_at is None or asked_at < self._read_at:
            return
        kept, now, latch = self._kept, self._clock.now(), control_state.latch
        known, seen = kept.pauses(), control_state.pauses().items()
        longer = {scope: pause for scope, pause in seen if scope not in known or pause.outlasts(known[scope])}
        if new := {scope: pause for scope, pause in longer.items() if not pause.has_ended(now.passed_epoch)}:
            kept = kept.with_pauses(new)
        if kept.latch is None and latch is not None and not latch.controller:
            kept = self._dated(replace(kept, latch=latch, reset_epoch=None, closed_by=""))
        if kept is not self._kept:
            self._kept = kept
            self._live.order(self._as_counted(now))
            self._kept_anew.set()

    def _with_lost(self, control_state: ControlState | None, asked_at: float) -> ControlState:
        """Return what counts after a read, with what was known of an object that has been deleted."""
        before, self._recreated = self._recreated, control_state is not None and control_state.recreated
        if control_state is not None and not control_state.recreated:
            self._exists_from, self._lost = asked_at, None
            return control_state
        # What people have ordered in an object of their own is lost with it, too.
        if asked_at >= self._exists_from or (before and control_state is None):
            self._exists_from, self._lost = math.inf, self._kept
            self._keep_at = asked_at + _POLLS_BEFORE_KEEPING * self._poll_seconds
            # All replicas know it; only the leader reports it.
            level = logging.WARNING if self._gate.may_act() else logging.DEBUG
            logger.log(
                level, "the ConfigMap with pauses and breaker was deleted or replaced: they stay in force as known"
            )
        known = self._kept if self._lost is None else self._lost
        return known if control_state is None else control_state.with_lost(known)

    async def _keep_ending(self) -> None:
        """Let pauses end at their time; the core compares the times."""
        # The clock has no event; it is asked for a second at a start, and on while no API server answers.
        while not self._clock.now().dates_objects:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AT_CLOCK_SECONDS)
        if self.known:
            self._kept = self._dated(self._kept)
            self._live.order(self._as_counted(self._clock.now()))
        told: set[tuple[PauseScope, Pause]] = set()
        while True:
            self._kept_anew.clear()
            now, kept = self._clock.now(), self._kept.pauses()
            left = {
                (scope, kept[scope]): pause.until_epoch - now.server_epoch
                for scope, pause in self._as_counted(now).pauses().items()
                if pause.until_epoch is not None and not pause.has_ended(now.passed_epoch)
            }
            told &= left.keys()
            for scope, pause in [each for each, seconds in left.items() if seconds <= _TOLD_BEFORE_SECONDS]:
                if (scope, pause) not in told:
                    # All replicas know it; only the leader reports it.
                    level = logging.WARNING if self._gate.may_act() else logging.DEBUG
                    logger.log(level, "%s: the pause ends by itself in %.0f s", scope, left[scope, pause])
                    told.add((scope, pause))
            spans = [seconds if each in told else seconds - _TOLD_BEFORE_SECONDS for each, seconds in left.items()]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kept_anew.wait(), min(spans, default=None))
                continue
            self._live.order(self._as_counted(self._clock.now()))

    def _as_counted(self, now: Moment) -> ControlState:
        return self._ends.as_counted(self._kept, now)

    def _dated(self, control_state: ControlState) -> ControlState:
        """Let a date ahead of now count as the moment at which it was first read."""
        stated, (_, now, dates_objects) = control_state.breaker_epoch, self._clock.now()
        if stated is None or not dates_objects:
            self._date = None
            return control_state
        before = self._date
        if before is not None and before.stated_epoch == stated:
            self._date = _Date(stated, min(before.epoch, now))
        else:
            self._date = _Date(stated, min(stated, now))
            if (ahead := stated - now) > _TOLERATED_AHEAD_SECONDS:
                logger.warning("the state of the breaker is dated %.0f s ahead: it counts from now", ahead)
        return control_state.with_breaker_epoch(self._date.epoch)

    def _is_overtaken(self, asked_at: float) -> bool:
        """Return whether a later read was already answered, or this one may lack a later write."""
        return asked_at < self._written_at or (self._read_at is not None and asked_at < self._read_at)

    async def _keep_writing(self) -> None:
        while True:
            began_at = self._clock.now().at
            try:
                await self._write()
            except CallFailed as failure:
                if self._unwritten.goes_on(began_at):
                    what = "the state of the breaker cannot be written, and is lost when this process ends"
                    logger.error("%s: %s", what, failure)
            else:
                if self._unwritten.ends():
                    logger.info("the state of the breaker has been written")
            await self._remove_ended()
            await self._fit_format()
            await self._keep()
            await asyncio.sleep(self._poll_seconds / 4)

    async def _write(self) -> None:
        """Write the changes of this process's breaker that the last read did not contain."""
        breaker, kept = self._breaker, self._kept
        if self._read_at is None or not self._gate.may_act() or (self._lost is not None and self._ending()):
            return
        if (date := self._date) is not None and date.epoch < date.stated_epoch:
            await self._store.redate(date.stated_epoch, date.epoch)
            self._note_written()
            if self._date is date:
                self._date = _Date(date.epoch, date.epoch)
        # A latch of an earlier leadership is judged again before it is written.
        is_judged = self._live.controller.term == self._gate.term
        if breaker.latch is not None and is_judged and (latch := breaker.latch.added_to(kept.latch)) != kept.latch:
            await self._store.write_latch(breaker.latch)
            self._note_written()
            if self._kept is kept:  # Else a read has shown what somebody else has written meanwhile.
                self._kept = replace(kept, latch=latch)
        elif breaker.closed is not None and kept.latch is not None:
            closed, closed_epoch = breaker.closed
            await self._store.close_latch(closed, closed_epoch, breaker.controller)
            self._note_written()
            breaker.closing_written(closed)
            if self._kept is kept:
                self._kept = replace(kept, latch=None)

    async def _remove_ended(self) -> None:
        """Remove pauses that have ended. They hold nothing, so a failure does no harm."""
        now, kept = self._clock.now(), self._kept.pauses()
        counted = self._as_counted(now).pauses()
        ended = {scope: kept[scope] for scope, pause in counted.items() if pause.has_ended(now.passed_epoch)}
        # What was lost is written again without them.
        if not ended or self._lost is not None or not self._gate.may_act():
            return
        try:
            await self._store.end_pauses(ended)
        except CallFailed as failure:
            if self._unended.goes_on(now.at):
                logger.warning("pauses that have ended by themselves cannot be removed: %s", failure)
            return
        self._unended.ends()
        # An end may have passed when it was written, for example in local time. Nothing else tells of such a pause.
        some = ", ".join(str(scope) for scope in list(ended)[:_MAX_TOLD])
        more = f" and {len(ended) - _MAX_TOLD} others" if len(ended) > _MAX_TOLD else ""
        logger.info("pauses that have ended were removed: %s%s", some, more)
        self._note_written()
        self._kept = self._kept.without_pauses(ended)

    async def _fit_format(self) -> None:
        """Write the format that the keys need: an older version that takes over must not ignore any of them."""
        if not self._kept.unfit or self._lost is not None or self._ending() or not self._gate.may_act():
            return
        try:
            await self._store.fit_format()
        except CallFailed as failure:
            if self._unfitted.goes_on(self._clock.now().at):
                logger.warning("the format of the ConfigMap with pauses cannot be corrected: %s", failure)
            return
        self._unfitted.ends()
        self._note_written()
        self._kept = replace(self._kept, unfit=False)

    async def _keep(self) -> None:
        """Create the object, or take it over, with all that was lost with an earlier one."""
        now = self._clock.now()
        if self._keep_at is None or now.at < self._keep_at or not self.known:
            return
        if self._ending() or not self._gate.may_act():
            self._unkept.ends()
            return
        counted, lost = self._as_counted(now).pauses(), self._lost or ControlState()
        lost = lost.without([scope for scope, pause in counted.items() if pause.has_ended(now.passed_epoch)])
        try:
            await self._store.keep(lost)
        except CallFailed as failure:
            self._keep_at = now.at + _POLLS_BEFORE_KEEPING * self._poll_seconds
            if self._unkept.goes_on(now.at):
                logger.warning("the ConfigMap with pauses and breaker cannot be created: %s", failure)
            return
        if self._lost is not None:
            logger.info("the ConfigMap with pauses and breaker has been written again")
        self._unkept.ends()
        self._keep_at, self._exists_from = None, self._clock.now().at

    def _note_written(self) -> None:
        self._written_at = self._clock.now().at


async def _leave(room: asyncio.Semaphore, reading: asyncio.Task[None]) -> None:
    """Leave room for others once a read has ended, or has waited for long."""
    await asyncio.wait([reading], timeout=_LONG_SECONDS)
    room.release()
