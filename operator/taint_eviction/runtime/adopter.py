"""Adopts countdowns from a built-in controller that cannot be switched off, and gives them back.

To adopt a countdown is to take the seconds of a pod's tolerations and note them on the pod: the built-in controller
cancels its timer, and the deadline is this controller's alone. Level-triggered: effects are hints, and what is known is
looked through every few seconds. Only the leader changes pods, only after it has read the control state as leader, and
not while people have ordered ``hand-back``; that order is confirmed once no change is under way.

Does not say which countdowns (``core.adopting``), nor how a pod is changed (``ports.AdoptionDoor``).
"""

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from taint_eviction.core.adopting import adoptable_until, adoption_matters, noted_tolerations, places_to_adopt
from taint_eviction.core.control_state import Pause
from taint_eviction.core.decision import SeenTaint
from taint_eviction.core.effects import (
    AdoptionRefused,
    Cancelled,
    CountdownAdopted,
    Effect,
    GivenBack,
    NodeCleared,
    Scheduled,
)
from taint_eviction.core.facts import PodSeen
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.core.pod_record import PodRecord
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import AdoptionDoor, CallFailed, Gate
from taint_eviction.settings import AdoptionSettings

logger = logging.getLogger(__name__)

# How often it is noticed that this process leads, or that people have ordered something.
_NOTICE_SECONDS = 0.5

# How often all that is known is looked through, and how many pods at a time.
_LOOK_SECONDS = 10.0
_AT_A_TIME = 500

# How often the adopted pods are listed, and how soon again when a countdown has ended or a call failed.
_LIST_SECONDS = 600.0
_LIST_AGAIN_SECONDS = 5.0

_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 60.0

_PUT_BACK = "its tolerationSeconds are there again: an admission plugin or a webhook has put them back"


class AdoptionHints:
    """What effects say about where to look: a ``Reporter``.

    ``scheduled``: pods that have a new deadline. ``ended``: some countdown may have lost its reason.
    """

    def __init__(self) -> None:
        self.scheduled: set[PodRef] = set()
        self.ended = False
        self.changed = asyncio.Event()

    def report(self, effect: Effect, now: Moment) -> None:
        """Take a hint."""
        match effect:
            case Scheduled():
                self.look_at(effect.ref)
            case Cancelled() | NodeCleared():
                self.ended = True
            case _:
                pass

    def look_at(self, ref: PodRef) -> None:
        """Have a pod looked at."""
        self.scheduled.add(ref)
        self.changed.set()

    def take(self) -> set[PodRef]:
        """Return the pods to look at, and forget them."""
        taken, self.scheduled = self.scheduled, set()
        self.changed.clear()
        return taken


@dataclass(slots=True)
class _Refusal:
    """That a pod could not be adopted, ``tries`` times so far; it is not tried again before ``retry_at``."""

    message: str
    tries: int
    retry_at: float


@dataclass(order=True, slots=True)
class _Turn:
    """A pod that waits to be adopted: the nearest deadline first."""

    until: float
    order: int
    ref: PodRef = field(compare=False)


class Adopter:
    """Adopts and gives back for one controller.

    ``state_read_at`` returns when the control state that is in force was asked for, None: it has never been read.
    """

    def __init__(
        self,
        live: LiveController,
        door: AdoptionDoor,
        node_reads: NodeReads,
        gate: Gate,
        hints: AdoptionHints,
        *,
        state_read_at: Callable[[], float | None],
        settings: AdoptionSettings,
    ) -> None:
        self._live = live
        self._clock = live.clock
        self._nodes, self._pods = live.controller.nodes, live.controller.pods
        self._suspension = live.controller.suspension
        self._door = door
        self._node_reads = node_reads
        self._gate = gate
        self._hints = hints
        self._state_read_at = state_read_at
        self._settings = settings
        self._leads_since: float | None = None
        self._turns: asyncio.PriorityQueue[_Turn] = asyncio.PriorityQueue()
        self._waiting: set[PodRef] = set()
        self._order = itertools.count()
        self._refusals: dict[PodRef, _Refusal] = {}
        self._changing = 0
        self._taints: dict[str, tuple[SeenTaint, ...] | None] = {}

    @property
    def enabled(self) -> bool:
        """Tell whether countdowns are adopted at all."""
        return self._settings.enabled

    @property
    def stopped_by(self) -> Pause | None:
        """The order to adopt nothing, None: there is none."""
        control_state = self._suspension.control_state
        return None if control_state is None else control_state.no_adoption

    def adopted_count(self) -> int:
        """Count the adopted pods of tainted nodes."""
        return sum(record.pod.adoption is not None for record in self._pods.known.values())

    def refused(self) -> Mapping[PodRef, str]:
        """Return why which pods could not be adopted so far."""
        return {ref: refusal.message for ref, refusal in self._refusals.items()}

    async def run(self) -> None:
        """Run until cancelled; to be begun when the nodes are known."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_confirming(), name="confirm hand-back")
            if self._settings.enabled:
                group.create_task(self._keep_looking(), name="look for countdowns")
                group.create_task(self._keep_giving_back(), name="give back")
                for _ in range(self._settings.parallelism):
                    group.create_task(self._keep_adopting(), name="adopt")

    def _may_change(self) -> bool:
        """Tell whether this process may change pods at this very moment."""
        if not self._gate.may_act():
            self._leads_since = None
            return False
        if self._leads_since is None:
            self._leads_since = self._clock.now().at
        read_at = self._state_read_at()
        return read_at is not None and read_at >= self._leads_since and self.stopped_by is None

    # Which

    async def _keep_looking(self) -> None:
        looked_at = -math.inf
        while True:
            hinted = self._hints.take()
            if not self._may_change():
                looked_at = -math.inf
            elif self._clock.now().at - looked_at >= _LOOK_SECONDS:
                looked_at = self._clock.now().at
                await self._look_through()
            else:
                self._look([record for ref in hinted if (record := self._pods.find(ref)) is not None])
                self._look_where_taints_changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NOTICE_SECONDS):
                    await self._hints.changed.wait()

    def _look_where_taints_changed(self) -> None:
        """Look at nodes that have another taint now: the earliest deadline, which effects tell, may be the same."""
        before = self._taints
        self._taints = {name: self._nodes.taints_on(name) for name in self._nodes.tainted()}
        for name in [name for name, taints in self._taints.items() if before.get(name, taints) != taints]:
            self._look(self._pods.on_node(name))

    async def _look_through(self) -> None:
        known = list(self._pods.known.values())
        refs = {record.ref for record in known}
        self._refusals = {ref: refusal for ref, refusal in self._refusals.items() if ref in refs}
        for start in range(0, len(known), _AT_A_TIME):
            self._look(known[start : start + _AT_A_TIME])
            await asyncio.sleep(0)

    def _look(self, records: Collection[PodRecord]) -> None:
        for record in records:
            until = self._adoptable_until(record)
            if until is not None and record.ref not in self._waiting:
                self._waiting.add(record.ref)
                self._turns.put_nowait(_Turn(until, next(self._order), record.ref))

    def _adoptable_until(self, record: PodRecord) -> float | None:
        """Return the deadline of a pod that is to be adopted now, None: it is not."""
        if record.in_flight or record.deleted or not self._pods.knows(record):
            return None
        refusal = self._refusals.get(record.ref)
        if refusal is not None and refusal.retry_at > self._clock.now().at:
            return None
        return self._ends_at(record, record.pod)

    def _ends_at(self, record: PodRecord, pod: Pod) -> float | None:
        earliest = self._clock.now().at + self._settings.from_seconds
        return adoptable_until(pod, record.bound, self._nodes.taints_on(record.node_name) or (), earliest)

    # Adopting

    async def _keep_adopting(self) -> None:
        while True:
            turn = await self._turns.get()
            record = self._pods.find(turn.ref)
            if record is not None and self._may_change() and self._adoptable_until(record) is not None:
                await self._adopt(record)
            self._waiting.discard(turn.ref)

    async def _adopt(self, record: PodRecord) -> None:
        ref, node_name = record.ref, record.node_name
        taken: Collection[int] = ()

        def places(pod: Pod) -> Collection[int]:
            """Decide for the last time, on the pod as it was just read."""
            nonlocal taken
            taken = self._places(record, pod) if self._may_change() and pod.node_name == node_name else ()
            return taken

        self._changing += 1
        try:
            if await self._node_reads.read(node_name) is None:
                return
            asked_at = self._clock.now().at
            pod = await self._door.adopt(ref, places)
        except CallFailed as failure:
            if self._gate.may_act():
                self._refuse(ref, node_name, str(failure))
            return
        finally:
            self._changing -= 1
        if pod is None:
            return
        self._live.observe(PodSeen(pod, asked_at=asked_at))
        if taken and self._places(record, pod):
            self._refuse(ref, node_name, _PUT_BACK)
            return
        refused = self._refusals.pop(ref, None) is not None
        if taken or (refused and pod.adoption is not None):
            self._live.tell(CountdownAdopted(ref, node_name, len(noted_tolerations(pod))))

    def _places(self, record: PodRecord, pod: Pod) -> Collection[int]:
        """Return at which places a pod, as it is now, is to lose its seconds."""
        if record.in_flight or record.deleted or self._ends_at(record, pod) is None:
            return ()
        seen = self._nodes.taints_on(record.node_name) or ()
        return places_to_adopt(pod.spec_tolerations, [each.taint for each in seen])

    def _refuse(self, ref: PodRef, node_name: str, message: str) -> None:
        before = self._refusals.get(ref)
        tries = 1 if before is None else before.tries + 1
        wait = min(_FIRST_RETRY_SECONDS * 2 ** (tries - 1), _MAX_RETRY_SECONDS)
        self._refusals[ref] = _Refusal(message, tries, self._clock.now().at + wait)
        asyncio.get_running_loop().call_later(wait, self._hints.look_at, ref)
        if before is None:
            self._live.tell(AdoptionRefused(ref, node_name, message, tries))

    # Giving back

    async def _keep_giving_back(self) -> None:
        listed_at = -math.inf
        while True:
            waited = self._clock.now().at - listed_at
            if not self._may_change():
                listed_at = -math.inf
            elif waited >= (_LIST_AGAIN_SECONDS if self._hints.ended else _LIST_SECONDS):
                listed_at, self._hints.ended = self._clock.now().at, False
                if not await self._give_back_what_may():
                    self._hints.ended = True
            await asyncio.sleep(_NOTICE_SECONDS)

    async def _give_back_what_may(self) -> bool:
        """Give back each adopted pod whose countdown matters no more; return whether all calls went well."""
        room = asyncio.Semaphore(self._settings.parallelism)

        async def give_back(ref: PodRef) -> bool:
            async with room:
                return not self._may_change() or await self._give_back(ref)

        try:
            pods = await self._door.list_adopted()
        except CallFailed as failure:
            logger.warning("the adopted pods cannot be listed, so none is given back: %s", failure)
            return False
        return all(await asyncio.gather(*(give_back(pod.ref) for pod in pods if self._may_have_back(pod))))

    def _may_have_back(self, pod: Pod) -> bool:
        """Tell whether a pod may have its seconds back. A pod of a node that is not known is left as it is."""
        if pod.node_name is None:
            return not adoption_matters(pod, ())
        taints = self._nodes.taints_that_matter(pod.node_name, self._clock.now())
        return taints is not None and not pod.terminating and not adoption_matters(pod, taints)

    async def _give_back(self, ref: PodRef) -> bool:
        given: list[Pod] = []

        def wanted(pod: Pod) -> bool:
            given[:] = [pod] if self._may_change() and self._may_have_back(pod) else []
            return bool(given)

        self._changing += 1
        try:
            asked_at = self._clock.now().at
            pod = await self._door.give_back(ref, wanted)
        except CallFailed as failure:
            logger.warning("%s keeps its adopted countdown for now, though no taint matches it: %s", ref, failure)
            return False
        finally:
            self._changing -= 1
        if pod is not None and given:
            if self._live.controller.watches(pod.node_name):
                self._live.observe(PodSeen(pod, asked_at=asked_at))
            self._live.tell(GivenBack(ref, pod.node_name or ""))
        return True

    # Hand-back

    async def _keep_confirming(self) -> None:
        """Confirm each order to adopt nothing, with adoption switched off, too: who ordered it waits for that."""
        confirmed: tuple[Pause, str] | None = None
        while True:
            await asyncio.sleep(_NOTICE_SECONDS)
            control_state = self._suspension.control_state
            if control_state is None or control_state.no_adoption is None or not self._gate.may_act():
                confirmed = None
                continue
            order = (control_state.no_adoption, control_state.no_adoption_confirmed_by)
            if order == confirmed or self._changing:
                continue
            try:
                await self._door.confirm_no_adoption()
            except CallFailed as failure:
                logger.warning("that nothing is adopted any more cannot be written: %s", failure)
            else:
                confirmed = order
