"""The mistakes of the models about countdowns, put into the code one at a time."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from tests.around import around
from tests.models import handing_back
from tests.simulation import adoption_bugs

from taint_eviction.core.adoption import places_to_mark
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.countdowns import Countdowns
from taint_eviction.core.facts import NodeSeen
from taint_eviction.core.instants import Moment, Sighting
from taint_eviction.core.objects import Pod, PodRef, Taint
from taint_eviction.core.outages import Outages
from taint_eviction.kube.adoptions import Adoptions
from taint_eviction.runtime.adopter import Adopter
from taint_eviction_lab.simulation.control_state import SimulatedControlStateStore
from taint_eviction_lab.simulation.faults import CallKind

Patch = Callable[[pytest.MonkeyPatch], None]


def said_once_confirmed(patch: pytest.MonkeyPatch) -> None:
    """The command hand-back says that nothing is adopted as soon as that was confirmed."""
    patch.setattr(handing_back.command, "LATE_WRITE_SECONDS", 0.0)


def not_confirmed(patch: pytest.MonkeyPatch) -> None:
    """The command hand-back does not wait until the leader has confirmed its order."""

    async def not_waiting(*_: Any) -> float:
        return float(handing_back.command.read_monotonic())

    patch.setattr(handing_back.command, "_nobody_adopts", not_waiting)


def any_order(patch: pytest.MonkeyPatch) -> None:
    """A confirmation is stored whatever order there is by then."""

    async def blindly(self: SimulatedControlStateStore, holder: str, order: Pause) -> None:
        state = self._control_state

        def confirm() -> None:
            present = (state.control_state or ControlState()).no_adoption
            if present is not None:
                state.confirm_no_adoption(holder, present)

        await self._calls.call(CallKind.WRITE_CONTROL_STATE, "", confirm)

    patch.setattr(SimulatedControlStateStore, "confirm_no_adoption", blindly)


class _Nothing(dict[PodRef, float]):
    """Keeps nothing."""

    def __setitem__(self, ref: PodRef, at: float) -> None:
        """Forget it."""


def looks_once(patch: pytest.MonkeyPatch) -> None:
    """A leader looks for notes only when it begins to lead, also where a mark may have arrived late."""
    looked = dict[int, float | None]()

    @around(patch, Adopter, "_look")
    async def once(look: Callable[..., Awaitable[bool]], self: Adopter) -> bool:
        if id(self) in looked and looked[id(self)] == self._leads_since:
            return True
        looked[id(self)], self._look_at = self._leads_since, _Nothing()
        return await look(self)


def back_at_once(patch: pytest.MonkeyPatch) -> None:
    """A mark is given back at once when its taint is gone, though the built-in controller may not have seen it yet."""
    patch.setattr(Countdowns, "returns_at", lambda *_: -math.inf)


def due_only(patch: pytest.MonkeyPatch) -> None:
    """Only the toleration with the nearest deadline is marked."""

    def nearest(pod: Pod, taints: Sequence[Taint]) -> frozenset[int]:
        seconds = {place: pod.spec_tolerations[place].toleration_seconds or 0 for place in places_to_mark(pod, taints)}
        return frozenset(sorted(seconds, key=lambda place: seconds[place])[:1])

    patch.setattr("taint_eviction.runtime.adopter.places_to_mark", nearest)


def old_orders(patch: pytest.MonkeyPatch) -> None:
    """A new leader acts as if the control state were still what it knew before: that it may take countdowns over."""

    def may_mark(self: Adopter) -> bool:
        return self.enabled and self._gate.may_act() and self.stopped_by is None and self._policy.in_force is True

    patch.setattr(Adopter, "_may_mark", may_mark)
    patch.setattr(Adopter, "_may_return", may_mark)


def marked_first(patch: pytest.MonkeyPatch) -> None:
    """Marks are written before the state ConfigMap says that this process takes countdowns over."""
    patch.setattr(
        Adopter, "_may_mark", lambda self: self.enabled and self._may_change() and self._policy.in_force is True
    )


def entry_found(patch: pytest.MonkeyPatch) -> None:
    """A leader that finds the entry of another one does not write its own."""
    patch.setattr(Adoptions, "adopter", lambda self, term: "somebody")


def left_early(patch: pytest.MonkeyPatch) -> None:
    """A leader without the flag removes the entry after its first look."""
    patch.setattr("taint_eviction.runtime.adopter.LATE_WRITE_SECONDS", 0.0)


def paused_too(patch: pytest.MonkeyPatch) -> None:
    """Nothing is taken over while evictions are paused."""

    @around(patch, Adopter, "_may_mark")
    def may_mark_now(may_mark: Callable[..., bool], self: Adopter) -> bool:
        control_state = self._guards.control_state
        return may_mark(self) and control_state is not None and not control_state.pauses()


def counts_on(patch: pytest.MonkeyPatch) -> None:
    """A taint that is removed and set again counts from when it first came."""
    firsts = WeakKeyDictionary[Outages, dict[tuple[str, Taint], Sighting]]()

    def resume(self: Outages, fact: NodeSeen, sightings: Mapping[Taint, Sighting], _: Moment) -> dict[Taint, Sighting]:
        first = firsts.setdefault(self, {})
        return {taint: first.setdefault((fact.node.name, taint), since) for taint, since in sightings.items()}

    patch.setattr(Outages, "observe", lambda *_: True)
    patch.setattr(Outages, "resume", resume)


COUNTDOWN_BUGS: Mapping[str, Patch] = {
    "SAID_ONCE_CONFIRMED": said_once_confirmed,
    "NOT_CONFIRMED": not_confirmed,
    "ANY_ORDER": any_order,
    "OLD_ORDERS": old_orders,
    "UNTESTED": adoption_bugs.adopted_by_name,
    "MARKED_FIRST": marked_first,
    "ENTRY_FOUND": entry_found,
    "LEFT_EARLY": left_early,
    "LOOKS_ONCE": looks_once,
    "BACK_AT_ONCE": back_at_once,
    "DUE_ONLY": due_only,
    "PAUSED_TOO": paused_too,
    "COUNTS_ON": counts_on,
}
