"""Adopts countdowns from a built-in controller that cannot be switched off, and gives them back.

To adopt a countdown means to take ``tolerationSeconds`` from a pod's tolerations and to note them on the pod: the
built-in controller cancels its timer, and this controller alone evicts the pod. Level-triggered: facts are hints, and
all known pods are checked every few seconds. Only the leader changes pods, only after it has read the control state as
leader, and not while people have ordered ``hand-back``; that order is confirmed once no change is under way.
This module does not choose countdowns (``core.adopting``), nor make the changes (``ports.AdoptionDoor``).
"""

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from taint_eviction.core.adopting import adoptable_until, may_have_back, places_to_adopt
from taint_eviction.core.control_state import Pause
from taint_eviction.core.decision import SeenTaint
from taint_eviction.core.effects import AdoptionRefused, Cancelled, CountdownAdopted, Effect, GivenBack, NodeCleared
from taint_eviction.core.facts import Fact, PodSeen
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.core.pod_record import PodRecord
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import AdoptionDoor, CallFailed, Gate
from taint_eviction.settings import AdoptionSettings

logger = logging.getLogger(__name__)

# How often this process checks whether it leads, and whether people have ordered something.
_NOTICE_SECONDS = 0.5

# How long hints are gathered: the pods of one list come one by one, and the nearest deadline of all goes first.
_GATHER_SECONDS = 0.02

# How often all known pods are checked, and how many pods at a time.
_LOOK_SECONDS = 10.0
_AT_A_TIME = 500

# A change that waits longer than this for an answer does not delay others; at most this many changes are under way,
# half of them retries.
_LENDS_SECONDS = 1.0
_MAX_UNDER_WAY = 50

# How often the adopted pods are listed, and how soon they are listed again after a countdown ended or a call failed.
_LIST_SECONDS = 600.0
_LIST_AGAIN_SECONDS = 5.0

_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 60.0
_MAX_CONFIRM_SECONDS = 30.0

# How many further countdowns of one pod are adopted at once: more taints on one node are rare.
_MAX_AGAIN = 5
_SET_AGAIN = "its tolerationSeconds are set again and again, by whom its managedFields say"


class AdoptionHints:
    """Collects hints from facts and effects about pods to check: a ``Reporter``.
    ``seen``: pods whose spec has seconds. ``ended``: the taint of some countdown may be gone.
    """

    def __init__(self) -> None:
        self.seen: set[PodRef] = set()
        self.ended = False
        self.changed = asyncio.Event()

    def heard(self, fact: Fact) -> None:
        """Take a hint from a fact."""
        if isinstance(fact, PodSeen) and any(each.toleration_seconds is not None for each in fact.pod.spec_tolerations):
            self.look_at(fact.pod.ref)

    def report(self, effect: Effect, now: Moment) -> None:
        """Take a hint from an effect."""
        if isinstance(effect, Cancelled | NodeCleared):
            self.ended = True

    def look_at(self, ref: PodRef) -> None:
        """Have a pod checked."""
        self.seen.add(ref)
        self.changed.set()

    def take(self) -> set[PodRef]:
        """Return the pods to check, and forget them."""
        taken, self.seen = self.seen, set()
        self.changed.clear()
        return taken


@dataclass(slots=True)
class _Refusal:
    """A pod could not be changed, ``tries`` times so far; it is not tried again before ``retry_at``."""

    message: str
    tries: int
    retry_at: float

    @classmethod
    def after(cls, before: "_Refusal | None", message: str, now: float, first: float, longest: float) -> "_Refusal":
        """Return the next refusal after one more failure: each wait is twice as long as the one before."""
        tries = 1 if before is None else before.tries + 1
        return cls(message, tries, now + min(first * 2 ** min(tries - 1, 30), longest))


@dataclass(order=True, slots=True)
class _Turn:
    """A pod that waits to be adopted: first tries before retries, then the nearest deadline first."""

    retry: bool
    until: float
    order: int
    ref: PodRef = field(compare=False)


class Adopter:
    """Adopts and gives back for one controller.

    ``state_read_at`` returns when the read of the control state in force was sent, None: it has never been read.
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
        self._taints: dict[str, tuple[SeenTaint, ...] | None] = {}
        self._turns: asyncio.PriorityQueue[_Turn] = asyncio.PriorityQueue()
        # The nearest deadline of each waiting pod, by which it waits for its turn, and the pods whose turn it is.
        self._waiting: dict[PodRef, float] = {}
        self._under_way: dict[PodRef, bool] = {}  # Whether each is a retry.
        self._order = itertools.count()
        self._refusals: dict[PodRef, _Refusal] = {}
        self._kept: dict[PodRef, _Refusal] = {}  # Pods that could not be given back.
        self._adoptions: dict[PodRef, int] = {}
        self._changing = 0

    @property
    def enabled(self) -> bool:
        """Return whether countdowns are adopted at all."""
        return self._settings.enabled

    @property
    def stopped_by(self) -> Pause | None:
        """The order to stop adoption, None: there is none."""
        control_state = self._suspension.control_state
        return None if control_state is None else control_state.no_adoption

    def adopted_count(self) -> int:
        """Count the adopted pods of tainted nodes."""
        adoptions = (record.pod.adoption for record in self._pods.known.values())
        return sum(each is not None and bool(each.by_controller or each.by_admission) for each in adoptions)

    def refused(self) -> Mapping[PodRef, str]:
        """Return the pods that could not be adopted so far, and why."""
        return {ref: refusal.message for ref, refusal in self._refusals.items()}

    async def run(self) -> None:
        """Run until cancelled; start this when the nodes are known."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_confirming(), name="confirm hand-back")
            if self._settings.enabled:
                group.create_task(self._keep_looking(), name="look for countdowns")
                group.create_task(self._keep_giving_back(), name="give back")
                for _ in range(self._settings.parallelism):
                    group.create_task(self._keep_adopting(group), name="adopt")

    def _may_change(self) -> bool:
        """Return whether this process may change pods at this very moment."""
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
                for memory in (self._refusals, self._kept, self._adoptions):
                    memory.clear()
            elif self._clock.now().at - looked_at >= _LOOK_SECONDS:
                looked_at = self._clock.now().at
                await self._look_through()
            else:
                self._look([record for ref in hinted if (record := self._pods.find(ref)) is not None])
                self._look_where_taints_changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NOTICE_SECONDS):
                    await self._hints.changed.wait()
                    await asyncio.sleep(_GATHER_SECONDS)

    def _look_where_taints_changed(self) -> None:
        before = self._taints
        self._taints = {name: self._nodes.taints_on(name) for name in self._nodes.tainted()}
        for name in [name for name, taints in self._taints.items() if before.get(name) != taints]:
            self._look(self._pods.on_node(name))

    async def _look_through(self) -> None:
        known = list(self._pods.known.values())
        refs = {record.ref for record in known}
        counting = {each.ref for each in known if each.ref in self._refusals and self._counts_down(each)}
        self._refusals = {ref: refusal for ref, refusal in self._refusals.items() if ref in counting}
        self._adoptions = {ref: count for ref, count in self._adoptions.items() if ref in refs}
        for start in range(0, len(known), _AT_A_TIME):
            self._look(known[start : start + _AT_A_TIME])
            await asyncio.sleep(0)

    def _counts_down(self, record: PodRecord) -> bool:
        """Return whether a countdown of the pod is adopted, or is there to be adopted."""
        return record.pod.adoption is not None or bool(self._to_adopt(record, record.pod))

    def _look(self, records: Collection[PodRecord]) -> None:
        for record in records:
            ref, until = record.ref, self._adoptable_until(record)
            if until is not None and ref not in self._under_way and until < self._waiting.get(ref, math.inf):
                self._waiting[ref] = until
                self._turns.put_nowait(_Turn(ref in self._refusals, until, next(self._order), ref))

    def _adoptable_until(self, record: PodRecord) -> float | None:
        """Return the deadline of a pod that is to be adopted now, None: it is not to be adopted."""
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

    async def _keep_adopting(self, group: asyncio.TaskGroup) -> None:
        """Adopt one pod after the other; a change that waits long for an answer continues beside the next."""
        while True:
            turn = await self._turns.get()
            if self._waiting.get(turn.ref) != turn.until:
                continue  # It has had another turn since, or has one with a nearer deadline.
            del self._waiting[turn.ref]
            record = self._pods.find(turn.ref)
            if record is None or not self._may_change() or self._adoptable_until(record) is None:
                continue
            if turn.retry and sum(self._under_way.values()) >= _MAX_UNDER_WAY // 2:
                self._look_later(turn.ref, _NOTICE_SECONDS)
                continue
            self._under_way[turn.ref] = turn.retry
            task = group.create_task(self._adopt(record), name=f"adopt {turn.ref}")
            await asyncio.wait([task], timeout=_LENDS_SECONDS)
            while len(self._under_way) >= _MAX_UNDER_WAY:  # noqa: ASYNC110 - rare, and simpler than a condition
                await asyncio.sleep(_NOTICE_SECONDS)

    async def _adopt(self, record: PodRecord) -> None:
        try:
            await self._try_to_adopt(record)
        finally:
            del self._under_way[record.ref]

    async def _try_to_adopt(self, record: PodRecord) -> None:
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
            # The request may have taken effect.
            self._hints.ended = self._hints.ended or bool(taken)
            if self._gate.may_act():
                self._refuse(ref, node_name, str(failure), failure.retry_after_seconds)
            return
        finally:
            self._changing -= 1
        if pod is None:
            return
        self._live.observe(PodSeen(pod, asked_at=asked_at))
        refused = self._refusals.pop(ref, None)
        if taken or (refused is not None and pod.adoption is not None):
            self._adopted(ref, node_name, pod, refused)
        if self._may_have_back(pod):
            self._hints.ended = True  # Its taint has gone meanwhile.
        else:
            self._hints.look_at(ref)  # Another taint may have come meanwhile.

    def _adopted(self, ref: PodRef, node_name: str, pod: Pod, refused: _Refusal | None) -> None:
        self._live.tell(
            CountdownAdopted(ref, node_name, 0 if pod.adoption is None else len(pod.adoption.by_controller))
        )
        again = self._adoptions[ref] = self._adoptions.get(ref, 0) + 1
        if again > _MAX_AGAIN:
            if refused is not None:
                self._refusals[ref] = refused
            self._refuse(ref, node_name, _SET_AGAIN)

    def _places(self, record: PodRecord, pod: Pod) -> Collection[int]:
        """Return the positions of the tolerations that lose their seconds, for the pod as it is now."""
        if record.in_flight or record.deleted or self._ends_at(record, pod) is None:
            return ()
        return self._to_adopt(record, pod)

    def _to_adopt(self, record: PodRecord, pod: Pod) -> Collection[int]:
        seen = self._nodes.taints_on(record.node_name) or ()
        return places_to_adopt(pod.spec_tolerations, [each.taint for each in seen])

    def _refuse(self, ref: PodRef, node_name: str, message: str, retry_after_seconds: float | None = None) -> None:
        before, now = self._refusals.get(ref), self._clock.now().at
        refusal = _Refusal.after(before, message, now, _FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS)
        refusal.retry_at = max(refusal.retry_at, now + min(retry_after_seconds or 0.0, _MAX_RETRY_SECONDS))
        self._refusals[ref] = refusal
        self._look_later(ref, refusal.retry_at - now)
        if before is None:
            self._live.tell(AdoptionRefused(ref, node_name, message, refusal.tries))

    def _look_later(self, ref: PodRef, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._hints.look_at, ref)

    # Giving back

    async def _keep_giving_back(self) -> None:
        listed_at, again_at = -math.inf, -math.inf
        while True:
            now = self._clock.now().at
            if not self._may_change():
                listed_at = again_at = -math.inf
            elif now >= again_at or (self._hints.ended and now >= listed_at + _LIST_AGAIN_SECONDS):
                listed_at, self._hints.ended = now, False
                again_at = await self._give_back_what_may()
            await asyncio.sleep(_NOTICE_SECONDS)

    async def _give_back_what_may(self) -> float:
        """Give back each adopted pod whose countdown is no longer needed; return when to do so again at the latest."""
        room, now = asyncio.Semaphore(self._settings.parallelism), self._clock.now().at

        async def give_back(ref: PodRef) -> None:
            async with room:
                if self._may_change():
                    await self._give_back(ref)

        try:
            pods = {pod.ref: pod for pod in await self._door.list_adopted()}
        except CallFailed as failure:
            logger.warning("the adopted pods cannot be listed, so none is given back: %s", failure)
            return now + _LIST_AGAIN_SECONDS
        may = [ref for ref, pod in pods.items() if self._may_have_back(pod)]
        self._kept = {ref: self._kept[ref] for ref in may if ref in self._kept}
        due = [ref for ref in may if ref not in self._kept or self._kept[ref].retry_at <= now]
        await asyncio.gather(*(give_back(ref) for ref in due))
        return min(
            [now + _LIST_SECONDS, *(max(each.retry_at, now + _LIST_AGAIN_SECONDS) for each in self._kept.values())]
        )

    def _may_have_back(self, pod: Pod) -> bool:
        """Return whether the seconds of a pod may be given back. A pod on an unknown node is left as it is."""
        if pod.node_name is None:
            return may_have_back(pod, ())
        taints = self._nodes.taints_that_matter(pod.node_name, self._clock.now())
        return taints is not None and not pod.terminating and may_have_back(pod, taints)

    async def _give_back(self, ref: PodRef) -> None:
        given: list[Pod] = []

        def wanted(pod: Pod) -> bool:
            given[:] = [pod] if self._may_change() and self._may_have_back(pod) else []
            return bool(given)

        self._changing += 1
        try:
            asked_at = self._clock.now().at
            pod = await self._door.give_back(ref, wanted)
        except CallFailed as failure:
            now, before = self._clock.now().at, self._kept.get(ref)
            self._kept[ref] = _Refusal.after(before, str(failure), now, _LIST_AGAIN_SECONDS, _LIST_SECONDS)
            level = logging.WARNING if before is None else logging.DEBUG
            logger.log(level, "%s keeps its adopted countdown, though no taint matches it: %s", ref, failure)
            return
        finally:
            self._changing -= 1
        self._kept.pop(ref, None)
        self._adoptions.pop(ref, None)
        if pod is not None and given:
            if self._live.controller.watches(pod.node_name):
                self._live.observe(PodSeen(pod, asked_at=asked_at))
            self._live.tell(GivenBack(ref, pod.node_name or ""))

    # Hand-back

    async def _keep_confirming(self) -> None:
        """Confirm each order to stop adoption, even if adoption is disabled: ``hand-back`` waits for that."""
        confirmed: tuple[Pause, str] | None = None
        wait = _NOTICE_SECONDS
        while True:
            await asyncio.sleep(wait)
            control_state = self._suspension.control_state
            if control_state is None or control_state.no_adoption is None or not self._gate.may_act():
                confirmed, wait = None, _NOTICE_SECONDS
                continue
            order = (control_state.no_adoption, control_state.no_adoption_confirmed_by)
            if order == confirmed or self._changing:
                continue
            try:
                await self._door.confirm_no_adoption()
            except CallFailed as failure:
                level = logging.WARNING if wait == _NOTICE_SECONDS else logging.DEBUG
                logger.log(level, "that nothing is adopted any more cannot be written: %s", failure)
                wait = min(2 * wait, _MAX_CONFIRM_SECONDS)
            else:
                confirmed, wait = order, _NOTICE_SECONDS
