"""The ConfigMap with pauses and the breaker's state in a simulated cluster, and the access of one process to it.

It is kept as values, with times to the microsecond; ``kube`` reads and writes its text. As there, a write is for
what was read just before it is sent, and begins anew if something else has been written by its arrival. The timeline
shows when the breaker opens and closes. ``runtime.control_state_sync`` acts on the ConfigMap.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from taint_eviction.core.control_state import ControlState, Latch, Pause, PauseScope
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction_lab.simulation.calls import SimulatedCalls
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.timeline import ADOPTION, BREAKER, Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import server_time, virtual_now

# How often a write is sent, in all, if others write between its read and its arrival.
_MAX_TRIES = 8


class SimulatedControlState:
    """The object as the API server keeps it; ``control_state`` None: there is none.

    ``read`` is how production reads it. ``uid`` counts the objects, one after the other; ``taken_over``: a leader has
    added its key ``format`` to this one.
    """

    def __init__(self, timeline: Timeline, read: Callable[[Mapping[str, Any]], ControlState]) -> None:
        self.control_state: ControlState | None = None
        self.uid = 0
        self.taken_over = False
        self._timeline = timeline
        self._read = read
        # What people have written to the keys of selectors, by hand.
        self._selectors: dict[str, list[PauseScope]] = {}

    # What people do

    def pause(self, scope: PauseScope, reason: str, seconds: float | None = None) -> None:
        """Pause what a scope covers for some seconds; None: until somebody resumes."""
        now = server_time(virtual_now())
        pause = Pause(now, reason, None if seconds is None else now + seconds)
        self.control_state = (self.control_state or ControlState()).with_pauses({scope: pause})

    def resume(self, scope: PauseScope | None) -> None:
        """Remove the pause of a scope; None: all pauses there are."""
        before = self.control_state or ControlState()
        if scope is not None and scope not in before.pauses():
            raise Impossible(f"{scope} are not paused at this moment")
        self.control_state = before.without(before.pauses() if scope is None else [scope])

    def scribble(self, key: str, value: str) -> None:
        """Write one key by hand, as text; the new value decides what is held back."""
        written = self._read({"data": {key: value}})
        # A selector is in the value, so another value of its key is about other nodes.
        ended = [*written.resumed, *self._selectors.pop(key, ())]
        before = (self.control_state or ControlState()).without(ended).with_pauses(written.pauses())
        if selectors := [scope for scope in written.pauses() if scope.kind == "selector"]:
            self._selectors[key] = selectors
        self.control_state = replace(before, resumed=before.resumed | written.resumed)
        if written.latch is not None:
            self._open(written.latch, "a human")
        elif written.reset_epoch is not None:
            self.reset(written.reset_epoch, "a human", written.closed_by)

    def hand_back(self, undo: bool) -> None:
        """Order the end of adoption, as the command ``hand-back`` does first; ``undo``: allow adoption again."""
        before, now = self.control_state or ControlState(), server_time(virtual_now())
        if (before.no_adoption is None) == undo:
            raise Impossible("countdowns may be adopted at this moment" if undo else "nothing is adopted already")
        order = None if undo else Pause(now)
        self.control_state = replace(before, no_adoption=order, no_adoption_confirmed_by="")
        self._timeline.add(
            TimelineEntry(virtual_now(), What.ADOPTION_ALLOWED if undo else What.ADOPTION_ENDED, ADOPTION)
        )

    def lose(self) -> None:
        """Delete the ConfigMap."""
        if self.control_state is None:
            raise Impossible("there is no ConfigMap with the control state at this moment")
        self.control_state, self.taken_over = None, False
        self._selectors.clear()
        self.uid += 1

    # Writes of either side

    def reset(self, reset_epoch: float, by: str, closed_by: str = "") -> None:
        """Close the breaker; ``closed_by``: as in ``ControlState``."""
        before = self.control_state or ControlState()
        if before.latch is not None:
            self._timeline.add(TimelineEntry(virtual_now(), What.BREAKER_CLOSED, BREAKER, why=by))
        self.control_state = replace(before, latch=None, reset_epoch=round(reset_epoch, 6), closed_by=closed_by)

    def close_latch(self, latch: Latch, closed_epoch: float, by: str, closed_by: str = "") -> None:
        """Close the breaker, if this latch is still the one that is stored."""
        stored = None if self.control_state is None else self.control_state.latch
        if stored is not None and stored.is_same(latch):
            self.reset(closed_epoch, by, closed_by)

    def latch(self, latch: Latch, by: str) -> None:
        """Open the breaker, unless it was reset since; what is stored already stays (``added_to``)."""
        before = self.control_state or ControlState()
        latch = replace(latch, since_epoch=round(latch.since_epoch, 6))
        reset_since = before.reset_epoch is not None and before.reset_epoch >= latch.since_epoch
        if not reset_since:
            self._open(latch.added_to(before.latch), by)

    def redate(self, stated_epoch: float, epoch: float) -> None:
        """Change the breaker's time of opening or closing to ``epoch``, if it is ``stated_epoch``."""
        if self.control_state is not None and self.control_state.breaker_epoch == stated_epoch:
            self.control_state = self.control_state.with_breaker_epoch(round(epoch, 6))

    def write_adopter(self, adopter: str) -> None:
        """Store who takes countdowns over, "" for nobody."""
        before = self.control_state or ControlState()
        if before.adopter != adopter:
            self.control_state = replace(before, adopter=adopter)
            what = What.ADOPTS if adopter else What.ADOPTS_NO_MORE
            self._timeline.add(TimelineEntry(virtual_now(), what, ADOPTION))

    def remove_adopter(self, seen: str) -> None:
        """Store that nobody takes countdowns over, unless somebody else does so since ``seen``."""
        if self.control_state is not None and self.control_state.adopter == seen:
            self.write_adopter("")

    def confirm_no_adoption(self, holder: str, order: Pause) -> None:
        """Store that this process adopts nothing, if it is still this order."""
        state = self.control_state
        if state is not None and state.no_adoption == order and state.no_adoption_confirmed_by != holder:
            self.control_state = replace(state, no_adoption_confirmed_by=holder)
            self._timeline.add(TimelineEntry(virtual_now(), What.ADOPTION_CONFIRMED, ADOPTION, why=f"by {holder}"))

    def end_pauses(self, ended: Mapping[PauseScope, Pause]) -> None:
        """Remove pauses that have ended by themselves."""
        if self.control_state is not None:
            self.control_state = self.control_state.without_pauses(ended)

    def keep(self, lost: ControlState, by: str) -> None:
        """Create the object, or take it over, with what was lost, unless a leader has taken it over before."""
        if self.taken_over:
            return
        before = self.control_state or ControlState()
        merged, self.taken_over = before.with_lost(lost), True
        self.control_state = replace(merged, latch=before.latch)
        if merged.latch is not None and before.latch is None:
            self._open(merged.latch, by)

    def _open(self, latch: Latch, by: str) -> None:
        before = self.control_state or ControlState()
        if before.latch is None:
            self._timeline.add(TimelineEntry(virtual_now(), What.BREAKER_OPENED, BREAKER, why=f"{by}: {latch.cause}"))
        # The latch and the reset share one key.
        self.control_state = replace(before, latch=latch, reset_epoch=None, closed_by="")


class SimulatedControlStateStore:
    """The ``ControlStateStore`` of one controller process."""

    def __init__(self, calls: SimulatedCalls, control_state: SimulatedControlState) -> None:
        self._calls = calls
        self._control_state = control_state
        self._uid: int | None = None

    async def read(self) -> ControlState | None:
        """Read the ConfigMap; None if it does not exist."""
        return await self._calls.call(CallKind.READ_CONTROL_STATE, "", self._read)

    def _read(self) -> ControlState | None:
        kept = self._control_state
        if kept.control_state is not None and self._uid not in (None, kept.uid) and not kept.taken_over:
            return replace(kept.control_state, recreated=True)
        if kept.control_state is not None:
            self._uid = kept.uid
        return kept.control_state

    async def keep(self, lost: ControlState) -> None:
        """Create the ConfigMap, or take it over, with what was lost with an earlier one."""
        await self._calls.call(
            CallKind.WRITE_CONTROL_STATE, "", lambda: self._control_state.keep(lost, self._calls.name)
        )

    async def write_latch(self, latch: Latch) -> None:
        """Store that the breaker is open, unless it was reset since."""
        await self._write(lambda: self._control_state.latch(latch, self._calls.name))

    async def close_latch(self, latch: Latch, closed_epoch: float, closed_by: str = "") -> None:
        """Store that the breaker was closed at ``closed_epoch``, if this latch is still the one that is stored."""
        await self._write(lambda: self._control_state.close_latch(latch, closed_epoch, self._calls.name, closed_by))

    async def redate(self, stated_epoch: float, epoch: float) -> None:
        """Change the breaker's stored time to ``epoch``, if it is ``stated_epoch``."""
        await self._write(lambda: self._control_state.redate(stated_epoch, epoch))

    async def fit_format(self) -> None:
        """Do nothing: values have no format."""

    async def end_pauses(self, ended: Mapping[PauseScope, Pause]) -> None:
        """Remove pauses that have ended by themselves."""
        await self._write(lambda: self._control_state.end_pauses(ended))

    async def write_adopter(self, adopter: str) -> None:
        """Store who takes countdowns over."""
        await self._write(lambda: self._control_state.write_adopter(adopter))

    async def remove_adopter(self, seen: str) -> None:
        """Store that nobody takes countdowns over, unless somebody else does so since ``seen``."""
        await self._write(lambda: self._control_state.remove_adopter(seen))

    async def confirm_no_adoption(self, holder: str, order: Pause) -> None:
        """Store that this process adopts nothing, if it is still this order."""
        await self._write(lambda: self._control_state.confirm_no_adoption(holder, order))

    async def _write(self, act: Callable[[], None]) -> None:
        """Carry out a write; after a conflict with another one, send it again."""
        for _ in range(_MAX_TRIES):
            read = self._control_state.control_state

            def swap(read: ControlState | None = read) -> None:
                if self._control_state.control_state != read:
                    raise CallFailed("the ConfigMap has been modified", reason=FailureReason.CONFLICT)
                act()

            try:
                return await self._calls.call(CallKind.WRITE_CONTROL_STATE, "", swap)
            except CallFailed as failure:
                if failure.reason is not FailureReason.CONFLICT:
                    raise
        raise CallFailed("the ConfigMap was modified again and again", reason=FailureReason.CONFLICT)
