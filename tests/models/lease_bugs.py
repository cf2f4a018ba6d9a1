"""The mistakes of the models ``elections`` and ``control_state``, put into the code one at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.around import around

from taint_eviction.core.control_state import Latch, Pause, PauseScope
from taint_eviction.core.events import Work
from taint_eviction.core.instants import Moment
from taint_eviction.runtime.driver import Driver
from taint_eviction.runtime.evictor import Evictor
from taint_eviction.runtime.leadership import Elector, LeaseRecord, NoElection
from taint_eviction.runtime.ports import Clock
from taint_eviction_lab.simulation.control_state import SimulatedControlState
from taint_eviction_lab.simulation.lease import SimulatedLease
from taint_eviction_lab.simulation.process import SimulatedProcess
from taint_eviction_lab.simulation.replica import SimulatedReplica

Patch = Callable[[pytest.MonkeyPatch], None]


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Whether a process leads is checked when an eviction begins, and not again before its requests."""

    @around(patch, Evictor, "_recheck")
    def without_the_gate(recheck: Callable[..., None], self: Evictor, work: Work) -> None:
        gate, self._gate = self._gate, NoElection()
        try:
            recheck(self, work)
        finally:
            self._gate = gate


def clock_stops(patch: pytest.MonkeyPatch) -> None:
    """The elector's clock stands still while its process is suspended."""
    clocks: dict[str, _Standing] = {}

    @around(patch, Elector, "__init__")
    def with_its_own(
        begin: Callable[..., None], self: Elector, name: str, store: object, clock: Clock, *about: Any, **options: Any
    ) -> None:
        clocks[name] = _Standing(clock)
        begin(self, name, store, clocks[name], *about, **options)

    @around(patch, SimulatedReplica, "freeze")
    def freeze_with_its_clock(freeze: Callable[..., None], self: SimulatedReplica, for_seconds: float) -> None:
        if isinstance(self.process, SimulatedProcess):
            asyncio.get_running_loop().call_later(for_seconds - 0.001, clocks[self.process.name].lose, for_seconds)
        freeze(self, for_seconds)


class _Standing:
    """A clock that has stood still now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost_seconds = 0.0

    def lose(self, seconds: float) -> None:
        """Note that it has stood still for so long."""
        self._lost_seconds += seconds

    def now(self) -> Moment:
        """Return the time without what was lost."""
        now = self._clock.now()
        return now._replace(at=now.at - self._lost_seconds)


def counted_from_answer(patch: pytest.MonkeyPatch) -> None:
    """The renew deadline counts from when the answer of a renewal arrives."""

    @around(patch, Elector, "_write")
    async def counting(write: Callable[..., Awaitable[bool]], self: Elector, before: LeaseRecord | None) -> bool:
        held = await write(self, before)
        self._renewed_at = self._clock.now().at
        return held


def lease_no_longer(patch: pytest.MonkeyPatch) -> None:
    """A standby takes the Lease half a renew deadline after it last saw a change, though the leader may act longer."""

    def is_running(self: Elector, record: LeaseRecord) -> bool:
        return self._clock.now().at < self._seen_at + self._settings.renew_deadline_seconds / 2

    patch.setattr(Elector, "_is_running", is_running)


def times_believed(patch: pytest.MonkeyPatch) -> None:
    """A standby believes the times in the Lease, by a wall clock that is ten seconds ahead."""

    def is_running(self: Elector, record: LeaseRecord) -> bool:
        return self._clock.now().server_epoch + 10 < record.renewed_epoch + record.duration_seconds

    patch.setattr(Elector, "_is_running", is_running)


def untested(patch: pytest.MonkeyPatch) -> None:
    """Writes of the Lease do not name the version that was read."""
    swap = SimulatedLease.swap

    def blindly(self: SimulatedLease, record: LeaseRecord) -> LeaseRecord:
        return swap(self, replace(record, version="" if self.record is None else self.record.version))

    patch.setattr(SimulatedLease, "swap", blindly)


def released_at_work(patch: pytest.MonkeyPatch) -> None:
    """A process that is ended releases the Lease before its work has ended, and completes that within its deadline."""

    @around(patch, Elector, "release")
    async def release_and_act(release: Callable[..., Awaitable[None]], self: Elector) -> None:
        until, term = self._renewed_at + self._settings.renew_deadline_seconds, self.term
        await release(self)
        patch.setattr(self, "term", term)
        patch.setattr(self, "may_act", lambda: self._clock.now().at < until)
        patch.setattr(self, "_attempt", _never)

    @around(patch, Driver, "stop")
    async def release_and_stop(stop: Callable[..., Awaitable[bool]], self: Driver, grace_seconds: float) -> bool:
        assert isinstance(self._gate, Elector)
        await self._gate.release()
        return await stop(self, grace_seconds)


async def _never(_max_seconds: float) -> bool:
    return False


def late_latch(patch: pytest.MonkeyPatch) -> None:
    """The state of the breaker is written without a look at whether somebody reset it since."""
    latch = SimulatedControlState.latch

    def blindly(self: SimulatedControlState, opened: Latch, by: str) -> None:
        if self.control_state is not None:
            self.control_state = replace(self.control_state, reset_epoch=None)
        latch(self, opened, by)

    patch.setattr(SimulatedControlState, "latch", blindly)


def any_pause(patch: pytest.MonkeyPatch) -> None:
    """A pause that has ended is removed by what it covers, also where another one has replaced it."""

    def blindly(self: SimulatedControlState, ended: Mapping[PauseScope, Pause]) -> None:
        if self.control_state is not None:
            self.control_state = self.control_state.without(ended)

    patch.setattr(SimulatedControlState, "end_pauses", blindly)


def never_taken_over(patch: pytest.MonkeyPatch) -> None:
    """A standby never takes the Lease of a process that does not renew it: the properties about order say nothing."""
    patch.setattr(Elector, "_is_running", lambda *_: True)


LEASE_BUGS: Mapping[str, Patch] = {
    "NO_FENCE": no_fence,
    "CLOCK_STOPS": clock_stops,
    "COUNTED_FROM_ANSWER": counted_from_answer,
    "LEASE_NO_LONGER": lease_no_longer,
    "TIMES_BELIEVED": times_believed,
    "RELEASED_AT_WORK": released_at_work,
    "UNTESTED": untested,
    "LATE_LATCH": late_latch,
    "ANY_PAUSE": any_pause,
}
