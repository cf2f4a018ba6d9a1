"""Takes countdowns over from a built-in controller that cannot be switched off, and gives them back.

    countdown runs --(late: core.countdowns)--> mark and note --(no taint needs it: core.adoption)--> as before

Level-triggered: each pass asks the core which countdowns are late and which marks are not needed any more, and begins
as many writes as there is room for. What a write does is decided on the pod as it was just read. Only the leader
changes pods, only after it has read the control state as leader. When people have ordered ``hand-back``, it marks no
pod; it confirms that once no change is under way, and goes on to give back. The state ConfigMap says that somebody
adopts before the first mark is written, so that a leader that does not adopt knows that it has to give everything back.

This module decides neither (``core``), and does not make the writes (``ports.AdoptionPort``).
"""

import asyncio
import contextlib
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from taint_eviction.core.adoption import (
    CountdownChange,
    Note,
    known_note,
    lost_notes,
    may_be_marked,
    note_of,
    places_to_mark,
    places_to_return,
    unexplained_marks,
    wanted_change,
)
from taint_eviction.core.control_state import Pause
from taint_eviction.core.countdowns import Countdowns, Late, MarkRate
from taint_eviction.core.events import AdoptionRefused, CountdownAdopted, GivenBack
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, PodGone, PodSeen
from taint_eviction.core.instants import LATE_WRITE_SECONDS, Moment
from taint_eviction.core.objects import LIFECYCLE_KEYS, MARK_SECONDS, NO_EXECUTE, Pod, PodRef, Taint
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.policy_check import PolicyCheck
from taint_eviction.runtime.ports import AdoptionPort, CallFailed, Clock, FailureReason, Gate, WantedChange
from taint_eviction.settings import AdoptionSettings

logger = logging.getLogger(__name__)

# How often this process checks whether it leads, whether people have ordered something, and what is late.
_PASS_SECONDS = 0.5
# A pass that something has caused comes this much later: the pods of one list come one by one.
_GATHER_SECONDS = 0.02

# A write that waits longer than this for an answer does not delay others; at most this many writes are under way.
_LENDS_SECONDS = 1.0
_MAX_UNDER_WAY = 50

# A pod that was marked is not marked again sooner: somebody may set its seconds again and again.
_AGAIN_SECONDS = 2.0
# One that was marked more often than this, since its seconds are set again and again, shares half of the places.
_OFTEN = 3
# Nor sooner than this while the watch has not brought what the answer showed, so that others have their turn.
_UNSEEN_SECONDS = 10.0

# How soon a refused mark is tried again: at most, and in the last seconds before its timer.
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 30.0
_LAST_SECONDS, _LAST_RETRY_SECONDS = 30.0, 2.0
# A mark without an answer is given up after this share of the time to its timer, so that there is time for another one.
_PATIENCE, _LEAST_PATIENCE_SECONDS = 0.5, 1.0

# The same for what is given back, and how often all marks are checked, whatever was seen.
_FIRST_RETURN_SECONDS, _MAX_RETURN_SECONDS = 5.0, 300.0
_CHECK_ALL_SECONDS = 30.0
_AT_A_TIME = 500

_LOOK_SECONDS = 3600.0
_LOOK_AGAIN_SECONDS = 5.0
# The pod garbage collector removes the pods of a removed node within a minute.
_ORPHANS_GONE_SECONDS = 90.0

_MAX_CONFIRM_SECONDS = 30.0
# Until the entry is there, no countdown is taken over.
_MAX_ENTER_SECONDS = 4.0

_PUT_BACK = "its tolerationSeconds are there again: an admission plugin or a webhook has put them back"
_TOO_MANY = "it has more tolerations than a note may name"
_NOT_NOTED = "an admission plugin or a webhook has removed the note"
# Admission plugins refuse with any status; these words are theirs.
_OF_ADMISSION = ("toleration", "plugin", "denied")


@dataclass(slots=True)
class _Refusal:
    """A write failed, ``tries`` times so far; it is not tried again before ``retry_at``.

    ``too_late_at``: the built-in one's timer, if the write was a mark; ``told``: that it is too late was told.
    """

    message: str
    tries: int
    retry_at: float
    too_late_at: float = math.inf
    told: bool = False


@dataclass(frozen=True, slots=True)
class _Carrier:
    """A pod that has a note, or had one: as it was last seen, the note as far as it is known, and since when."""

    pod: Pod
    note: Note
    known_at: float


class _Carriers:
    """All pods that are known to have a note, on clean nodes, too."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.known: dict[PodRef, _Carrier] = {}
        self._by_node: dict[str, dict[PodRef, None]] = {}

    def on_node(self, name: str) -> Collection[PodRef]:
        """Return those that are bound to a node of this name."""
        return self._by_node.get(name, ())

    def upsert(self, pod: Pod, written: Note | None = None) -> bool:
        """Note a pod as it is; return whether it has a note, or a mark whose note is known.

        ``written``: the note that this process has just written, though the pod does not have it.
        """
        before = self.known.get(pod.ref)
        known = {**({} if before is None else before.note), **(written or {})}
        if before is None and not known and pod.adoption is None:
            return False
        if before is not None and (pod.resource_version or 0) < (before.pod.resource_version or 0):
            if not written:
                return False
            pod = before.pod
        note = {**note_of(pod.spec_tolerations, lost_notes(pod, known)), **known_note(pod)}
        if not note and pod.adoption is None:
            self.drop(pod.ref)
            return False
        known_at = self._clock.now().at if before is None else before.known_at
        self.drop(pod.ref)  # It may have been bound since.
        self.known[pod.ref] = _Carrier(pod, note, known_at)
        self._by_node.setdefault(pod.node_name or "", {})[pod.ref] = None
        return True

    def drop(self, ref: PodRef) -> None:
        """Forget a pod that is gone, or has no note any more."""
        carrier = self.known.pop(ref, None)
        if carrier is not None:
            name = carrier.pod.node_name or ""
            self._by_node[name].pop(ref, None)
            if not self._by_node[name]:
                del self._by_node[name]


class Adopter:
    """Takes over and gives back for one controller.

    ``policy``: nothing is marked unless it says that the admission policy is in force.
    ``state_read_at`` returns when the read of the control state in force was sent, None: it has never been read.
    ``outage_gap_seconds``: for how long a lifecycle taint may be absent within one outage.
    """

    def __init__(
        self,
        live: Live,
        door: AdoptionPort,
        node_reads: NodeReads,
        gate: Gate,
        *,
        policy: PolicyCheck,
        state_read_at: Callable[[], float | None],
        settings: AdoptionSettings,
        outage_gap_seconds: float,
    ) -> None:
        self._live = live
        self._clock = live.clock
        self._nodes, self._pods = live.controller.nodes, live.controller.pods
        self._guards = live.controller.guards
        self._door = door
        self._node_reads = node_reads
        self._gate = gate
        self._policy = policy
        self._state_read_at = state_read_at
        self._settings = settings
        self._outage_gap_seconds = outage_gap_seconds
        self._leads_since: float | None = None
        self._term = 0  # How often this process has begun to lead.
        self._changed = asyncio.Event()
        # Countdowns that run.
        self._countdowns = Countdowns(self._nodes, self._pods, settings.before_seconds, settings.from_seconds)
        self._rate = MarkRate()
        # What is late, by namespace, each nearest timer first.
        self._queue: dict[str, deque[Late]] = {}
        self._asked_at = self._next_at = -math.inf
        self._rests_until: dict[PodRef, float] = {}
        # How often this leader has marked each pod, as long as that is watched, and was not given back.
        self._times: Counter[PodRef] = Counter()
        # Until when a pod is not marked again, unless the watch brings this version of it.
        self._unseen: dict[PodRef, tuple[float, int]] = {}
        self._refusals: dict[PodRef, _Refusal] = {}
        self._told_namespaces: set[str] = set()
        self._unanswered = False
        # Where a mark has failed, which may still arrive, or a node was removed.
        self._look_at: dict[PodRef, float] = {}
        # Marks with notes.
        self._carriers = _Carriers(self._clock)
        # A dict, so that calls are made in the same order in every process.
        self._to_check: dict[PodRef, None] = {}
        # When to check again the pods whose marks the built-in controller may not have seen: in a wave there are many.
        self._check_at: dict[PodRef, float] = {}
        self._kept: dict[PodRef, _Refusal] = {}
        self._under_way: dict[PodRef, float] = {}  # Since when.
        self._left_told = ""
        # The order to take nothing over that this process has confirmed, and who had confirmed it before.
        self._confirmed: tuple[Pause, str] | None = None
        live.follow(self._observed)

    # For people

    @property
    def enabled(self) -> bool:
        """Return whether countdowns are taken over at all."""
        return self._settings.enabled

    @property
    def stopped_by(self) -> Pause | None:
        """The order to take nothing over, None: there is none."""
        control_state = self._guards.control_state
        return None if control_state is None else control_state.no_adoption

    @property
    def gives_all_back(self) -> bool:
        """Return whether somebody took countdowns over, and this process does not: it gives all of them back."""
        control_state = self._guards.control_state
        return not self.enabled and control_state is not None and bool(control_state.adopter)

    @property
    def policy_problem(self) -> str:
        """Why nothing is taken over although it should be: the admission policy; "" if it is in force."""
        return self._policy.problem if self.enabled else ""

    def adopted_count(self) -> int:
        """Count the pods that have a mark with a note."""
        return sum(bool(each.note) for each in self._carriers.known.values())

    def refused(self) -> Mapping[PodRef, str]:
        """Return the pods whose countdown could not be taken over so far, and why."""
        return {ref: refusal.message for ref, refusal in self._refusals.items()}

    def not_given_back(self) -> Mapping[PodRef, str]:
        """Return the pods that could not be given back so far, and why."""
        return {ref: refusal.message for ref, refusal in self._kept.items()}

    def lost_notes(self) -> list[PodRef]:
        """Return the pods that have a mark whose note is gone, though this process knows it."""
        return [ref for ref, each in self._carriers.known.items() if lost_notes(each.pod, each.note)]

    def unexplained(self) -> list[PodRef]:
        """Return the pods that are watched and have marks of unknown origin."""
        known = self._carriers.known
        return [
            record.ref
            for record in self._pods.known.values()
            if unexplained_marks(record.pod) and not (record.ref in known and known[record.ref].note)
        ]

    # What was seen

    def _observed(self, fact: Fact, now: Moment) -> None:
        """Follow a fact that the core has observed."""
        match fact:
            case PodSeen():
                if self._carriers.upsert(fact.pod):
                    self._check(fact.pod.ref)
                _, version = self._unseen.get(fact.pod.ref, (0.0, math.inf))
                if (fact.pod.resource_version or 0) >= version:
                    del self._unseen[fact.pod.ref]
            case PodGone():
                self._carriers.drop(fact.ref)
                self._unseen.pop(fact.ref, None)
            case NodeSeen():
                self._check(*self._carriers.on_node(fact.node.name))
            case NodeGone():
                # Its pods go with it, and when they do, nobody may watch them any more.
                gone_by = now.at + _ORPHANS_GONE_SECONDS
                self._look_at |= dict.fromkeys(self._carriers.on_node(fact.name), gone_by)
        if self.enabled and self._countdowns.observed(fact, now):
            self._next_at = -math.inf

    def _check(self, *refs: PodRef) -> None:
        if refs:
            self._to_check.update(dict.fromkeys(refs))
            self._changed.set()

    # What may be done

    def _may_change(self) -> bool:
        """Return whether this process may change pods at this very moment."""
        if not self._gate.may_act():
            self._leads_since = None
            return False
        if self._leads_since is None:
            self._leads_since, self._term = self._clock.now().at, self._term + 1
        read_at = self._state_read_at()
        return read_at is not None and read_at >= self._leads_since

    def _may_mark(self) -> bool:
        control_state = self._guards.control_state
        entered = control_state is not None and control_state.adopter == self._door.adopter(self._term)
        return self._may_begin_marks() and self._policy.in_force is True and entered

    def _may_begin_marks(self) -> bool:
        return self.enabled and self._may_change() and self.stopped_by is None

    def _may_return(self) -> bool:
        """Return whether marks may be given back: also after an order to take nothing over, once it is confirmed.

        Somebody may have ordered ``hand-back`` and interrupted it.
        """
        return self._may_change() and self._has_confirmed() and (self.enabled or self.gives_all_back)

    def _has_confirmed(self) -> bool:
        """Return whether no order waits for this process's confirmation. An unusable ConfigMap can have none."""
        control_state = self._guards.control_state
        if control_state is None or control_state.no_adoption is None:
            return True
        confirmed = self._confirmed is not None and self._confirmed[0] == control_state.no_adoption
        return confirmed and control_state.no_adoption_confirmed_by != ""

    async def run(self) -> None:
        """Run until cancelled; start this when the nodes are known."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_confirming(), name="confirm hand-back")
            group.create_task(self._keep_changing(group), name="take over and give back")
            group.create_task(self._keep_looking(), name="look for notes")
            if self.enabled:
                group.create_task(self._keep_entering(), name="say that countdowns are taken over")

    async def _keep_changing(self, group: asyncio.TaskGroup) -> None:
        checked_all_at = -math.inf
        while True:
            self._changed.clear()
            if not self._may_return():
                checked_all_at = -math.inf
                self._next_at = -math.inf
                self._queue.clear()
                for memory in (self._refusals, self._kept, self._rests_until, self._unseen, self._told_namespaces):
                    memory.clear()
                self._times.clear()
                self._check_at.clear()
            else:
                self._begin_marks(group)
                if self._clock.now().at - checked_all_at >= _CHECK_ALL_SECONDS:
                    checked_all_at = self._clock.now().at
                    self._to_check.update(dict.fromkeys(self._carriers.known))
                    for ref in [ref for ref in self._times if self._pods.find(ref) is None]:
                        del self._times[ref]
                await self._begin_returns(group)
            left = self._next_at - self._clock.now().at
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_PASS_SECONDS, left) if left > 0 else _PASS_SECONDS):
                    await self._changed.wait()
                    await asyncio.sleep(_GATHER_SECONDS)

    def _young(self) -> list[PodRef]:
        """List the writes that have not waited long for an answer."""
        now = self._clock.now().at
        return [ref for ref, since in self._under_way.items() if now - since < _LENDS_SECONDS]

    def _room(self) -> int:
        """Return how many writes may begin now."""
        return min(self._settings.parallelism - len(self._young()), _MAX_UNDER_WAY - len(self._under_way))

    def _has_place(self, namespace: str) -> bool:
        """Return whether a write may begin: fewer for this namespace are under way than places are free.

        So writes that hang, in whatever namespaces, leave a place for the next one.
        """
        of_namespace = sum(each.key.namespace == namespace for each in self._under_way)
        return self._room() > 0 and of_namespace < _MAX_UNDER_WAY - len(self._under_way)

    # Taking over

    def _begin_marks(self, group: asyncio.TaskGroup) -> None:
        """Begin to mark what is late, nearest timer first."""
        now = self._clock.now().at
        self._tell_too_late(now)
        if not self._may_mark():
            self._queue.clear()
            self._next_at = -math.inf
            if self.stopped_by is not None:
                self._refusals.clear()
            return
        if now >= max(self._next_at, self._asked_at + _PASS_SECONDS):
            self._asked_at = now
            passed_over = {ref for ref, until in self._rests_until.items() if until > now} | self._under_way.keys()
            passed_over |= {ref for ref, (until, _) in self._unseen.items() if until > now}
            passed_over |= {ref for ref, refusal in self._refusals.items() if refusal.retry_at > now}
            late, next_at = self._countdowns.late(now, self._rate.per_second, passed_over)
            self._queue.clear()
            for each in late:
                self._queue.setdefault(each.ref.key.namespace, deque()).append(each)
            # Those that were passed over come again; more facts and marks make it sooner.
            self._next_at = -math.inf if late or passed_over else next_at
        while self._queue and self._room() > 0:
            namespace = self._next_namespace()
            queue = self._queue[namespace]
            if not self._has_place(namespace):
                queue.clear()  # They come again with the next pass.
            else:
                self._begin_mark(queue.popleft().ref, group, now)
            if not queue:
                del self._queue[namespace]

    def _next_namespace(self) -> str:
        """Return the namespace with the nearest timer; one that has half of the places only if no other one waits.

        So a namespace whose webhook answers slowly does not keep others waiting until their timers have passed. Nor do
        owners, of however many namespaces, who create pods or set seconds again and again: theirs are the nearest.
        """
        young, half = self._young(), self._settings.parallelism / 2
        of_namespaces = Counter(ref.key.namespace for ref in young)
        by_owners = sum(map(self._is_by_owner, young))

        def last_and_timer(namespace: str) -> tuple[bool, float]:
            timer_at, ref = self._queue[namespace][0]
            has_half = of_namespaces[namespace] >= half or (by_owners >= half and self._is_by_owner(ref))
            return has_half, timer_at

        return min(self._queue, key=last_and_timer)

    def _is_by_owner(self, ref: PodRef) -> bool:
        """Return whether an owner can bring such countdowns about without end. That is so if the pod came to its node
        after the taint, was changed after it, is held for ever, has been marked again and again, or is gone.
        """
        record = self._pods.find(ref)
        if record is None or self._times[ref] > _OFTEN:
            return True
        if record.decision is None:
            return record.pod.hold_seconds is not None
        return record.is_by_owner(record.decision)

    def _begin_mark(self, ref: PodRef, group: asyncio.TaskGroup, now: float) -> None:
        record = self._pods.find(ref)
        if record is not None and not may_be_marked(record.pod):
            self._refuse(ref, CallFailed(_TOO_MANY, reason=FailureReason.FORBIDDEN))
        elif ref not in self._under_way:
            self._under_way[ref] = now
            group.create_task(self._mark(ref), name=f"mark {ref}")

    async def _mark(self, ref: PodRef) -> None:
        marked: list[CountdownChange] = []

        def wanted(pod: Pod) -> CountdownChange | None:
            """Decide for the last time, on the pod as it was just read."""
            marked[:] = []
            record = self._pods.find(ref)
            self._carriers.upsert(pod)
            if not self._may_mark() or record is None or record.in_flight or record.deleted or not may_be_marked(pod):
                return None
            taints = [seen.taint for seen in self._nodes.taints_on(pod.node_name) or ()]
            change = wanted_change(pod, places_to_mark(pod, taints), (), self._note_of(ref))
            marked[:] = [] if change is None else [change]
            return change

        self._rate.begins(self._clock.now().at)
        pod = None
        try:
            pod = await self._change_in_time(ref, wanted)
        except CallFailed as failure:
            if marked:
                self._look_at[ref] = self._clock.now().at + LATE_WRITE_SECONDS
            if self._gate.may_act():
                self._refuse(ref, failure)
        else:
            if pod is not None:
                self._marked(pod, marked)
        finally:
            del self._under_way[ref]
            self._rate.ends(self._clock.now().at, done=pod is not None and bool(marked))
            self._next_at = -math.inf
            self._changed.set()

    async def _change_in_time(self, ref: PodRef, wanted: WantedChange) -> Pod | None:
        left = self._countdowns.timer_at(ref) - self._clock.now().at
        patience = max(left * _PATIENCE, _LEAST_PATIENCE_SECONDS) if 0 < left < math.inf else None
        try:
            async with asyncio.timeout(patience):
                return await self._door.change(ref, wanted)
        except TimeoutError:
            raise CallFailed(f"no answer within {patience:.1f} s", reason=FailureReason.NO_ANSWER) from None

    def _note_of(self, ref: PodRef) -> Note:
        carrier = self._carriers.known.get(ref)
        return {} if carrier is None else carrier.note

    def _marked(self, pod: Pod, marked: Collection[CountdownChange]) -> None:
        """Note what a write, or its decision to write nothing, has shown."""
        ref, tolerations = pod.ref, pod.spec_tolerations
        self._rests_until[ref] = self._clock.now().at + _AGAIN_SECONDS
        for change in marked:
            if any(tolerations[place].toleration_seconds != MARK_SECONDS for place in change.marks):
                self._refuse(ref, CallFailed(_PUT_BACK, reason=FailureReason.FORBIDDEN))
                return
            if pod.adoption is None or not change.noted.keys() <= {*pod.adoption.noted}:
                # The mark stands: from now on only this process knows what the seconds were.
                self._carriers.upsert(pod, note_of(tolerations, change.noted))
                self._check(ref)
                self._refuse(ref, CallFailed(_NOT_NOTED, reason=FailureReason.FORBIDDEN))
                return
        self._carriers.upsert(pod)
        self._check(ref)
        record = self._pods.find(ref)
        if record is not None and (record.pod.resource_version or 0) < (pod.resource_version or 0):
            self._unseen[ref] = self._clock.now().at + _UNSEEN_SECONDS, pod.resource_version or 0
        refused = self._refusals.pop(ref, None)
        self._unanswered = False
        self._told_namespaces.discard(ref.key.namespace)
        if marked:
            self._times[ref] += 1
        # After a lost answer, the read shows that the write was made.
        if marked or (refused is not None and pod.adoption is not None):
            noted = () if pod.adoption is None else pod.adoption.noted
            self._live.tell(CountdownAdopted(ref, pod.node_name or "", len(noted)))

    def _refuse(self, ref: PodRef, failure: CallFailed) -> None:
        before, now = self._refusals.get(ref), self._clock.now().at
        tries = 1 if before is None else before.tries + 1
        timer_at = self._countdowns.timer_at(ref)
        left = timer_at - now
        wait = min(_FIRST_RETRY_SECONDS * 2 ** min(tries - 1, 30), _MAX_RETRY_SECONDS)
        if left > 0:
            # In the last seconds it is tried often, and a longer wait ends when they begin.
            wait = min(wait, max(_LAST_RETRY_SECONDS, left - _LAST_SECONDS))
        told = before is not None and before.told and left <= 0
        self._refusals[ref] = _Refusal(str(failure), tries, now + wait, timer_at, told)
        self._tell_refused(ref, failure)

    def _tell_refused(self, ref: PodRef, failure: CallFailed) -> None:
        """Log a refusal: what admission refuses once per namespace, that the API server does not answer once."""
        text = str(failure)
        busy = failure.may_pass or failure.reason in (
            FailureReason.NO_ANSWER,
            FailureReason.UNAUTHORIZED,
            FailureReason.CONFLICT,
        )
        if busy and not any(word in text.lower() for word in _OF_ADMISSION):
            if not self._unanswered:
                logger.warning("the API server does not let countdowns be taken over at present (%s): %s", ref, text)
            self._unanswered = True
        elif ref.key.namespace not in self._told_namespaces:
            self._told_namespaces.add(ref.key.namespace)
            logger.warning(
                "countdowns in namespace %s cannot be taken over (%s, and perhaps others): %s",
                ref.key.namespace,
                ref,
                text,
            )

    def _tell_too_late(self, now: float) -> None:
        """Tell once of each pod that could not be taken over before its timer."""
        for ref, refusal in list(self._refusals.items()):
            record = self._pods.find(ref)
            waits = record is not None and not record.deleted and self._countdowns.timer_at(ref) < math.inf
            # The built-in one's clock may be a little ahead of this one's sight.
            if now >= refusal.too_late_at - (0.0 if waits else _PASS_SECONDS) and not refusal.told:
                refusal.told = True
                node_name = "" if record is None else record.node_name
                self._live.tell(AdoptionRefused(ref, node_name, refusal.message, refusal.tries))
            if not waits:
                del self._refusals[ref]
        for ref in [ref for ref, until in self._rests_until.items() if until <= now]:
            del self._rests_until[ref]

    # Giving back

    async def _begin_returns(self, group: asyncio.TaskGroup) -> None:
        """Begin to give back the marks that are not needed any more, and to mend notes."""
        now = self._clock.now().at
        retried = [ref for ref, refusal in self._kept.items() if refusal.retry_at <= now]
        unseen = [ref for ref, at in self._check_at.items() if at <= now]
        for ref in unseen:
            del self._check_at[ref]
        to_check, self._to_check = dict.fromkeys(unseen) | self._to_check | dict.fromkeys(retried), {}
        # Namespaces without a place in this pass: each write that ends begins another pass, and thousands may wait.
        full: set[str] = set()
        for number, ref in enumerate(to_check):
            if number % _AT_A_TIME == _AT_A_TIME - 1:
                await asyncio.sleep(0)
            if ref.key.namespace in full:
                self._to_check[ref] = None
                continue
            carrier, kept = self._carriers.known.get(ref), self._kept.get(ref)
            rests = ref in self._under_way or self._rests_until.get(ref, now) > now
            if carrier is None or not self._returns(carrier.pod):
                self._kept.pop(ref, None)
                if carrier is not None and (at := self._returns_at(ref)) > now:
                    # It is decided when the built-in controller has seen the mark.
                    self._check_at[ref] = at if at < math.inf else now + _PASS_SECONDS
            elif kept is not None and kept.retry_at > now:
                pass
            elif rests:
                self._to_check[ref] = None
            elif not self._has_place(ref.key.namespace):
                full.add(ref.key.namespace)
                self._to_check[ref] = None
            else:
                self._under_way[ref] = now
                group.create_task(self._return(ref), name=f"give back {ref}")

    def _returns(self, pod: Pod) -> CountdownChange | None:
        """Return what is to be given back of a pod, or mended of its note; None: nothing."""
        taints = self._taints_that_matter(pod)
        if taints is None or pod.terminating:
            return None
        # Who has ordered that nothing is taken over must see no new note.
        known: Note = self._note_of(pod.ref) if self.stopped_by is None else {}
        if self._returns_at(pod.ref) > self._clock.now().at:
            return wanted_change(pod, (), (), known)
        return wanted_change(pod, (), places_to_return(pod, taints), known)

    def _returns_at(self, ref: PodRef) -> float:
        """Return the earliest instant at which the marks of a pod may be removed; infinite: this is not known yet."""
        carrier, now = self._carriers.known.get(ref), self._clock.now().at
        marked_at = now if carrier is None else carrier.known_at
        return self._countdowns.returns_at(ref, now, marked_at) if self.enabled else -math.inf

    def _taints_that_matter(self, pod: Pod) -> list[Taint] | None:
        """Return the taints of a pod's node, and those that may come back within one outage; None: leave the pod."""
        if self.gives_all_back or pod.node_name is None:
            return []
        now, known = self._clock.now(), self._nodes.known.get(pod.node_name)
        if known is None:
            return None
        taints = [*known.sightings, *self._nodes.recently_removed(pod.node_name, now)]
        since = now.at if self._leads_since is None else self._leads_since
        if not known.live_node.is_ready and now.at - since < self._outage_gap_seconds:
            # One may have been removed before this process could see it.
            taints += [Taint(key, NO_EXECUTE) for key in LIFECYCLE_KEYS]
        return taints

    async def _return(self, ref: PodRef) -> None:
        given: list[CountdownChange] = []

        def wanted(pod: Pod) -> CountdownChange | None:
            self._carriers.upsert(pod)
            change = self._returns(pod) if self._may_return() else None
            given[:] = [] if change is None else [change]
            return change

        try:
            carrier = self._carriers.known.get(ref)
            if carrier is None:
                return  # It has gone since this was begun.
            if not self.gives_all_back and carrier.pod.node_name is not None:
                await self._node_reads.read(carrier.pod.node_name)
            pod = await self._change_in_time(ref, wanted)
        except CallFailed as failure:
            self._keep(ref, failure)
        else:
            self._kept.pop(ref, None)
            if pod is None:
                self._carriers.drop(ref)
            else:
                self._returned(pod, given)
        finally:
            del self._under_way[ref]
            self._changed.set()

    def _returned(self, pod: Pod, given: Collection[CountdownChange]) -> None:
        lost = any(lost_notes(pod, note_of(pod.spec_tolerations, change.noted)) for change in given)
        if pod.adoption is None and not lost:
            self._carriers.drop(pod.ref)
        else:
            self._carriers.upsert(pod)
            self._to_check[pod.ref] = None
            if lost:
                self._keep(pod.ref, CallFailed(_NOT_NOTED, reason=FailureReason.FORBIDDEN))
        if any(change.returns for change in given):
            del self._times[pod.ref]
            self._live.tell(GivenBack(pod.ref, pod.node_name or ""))

    def _keep(self, ref: PodRef, failure: CallFailed) -> None:
        now, before = self._clock.now().at, self._kept.get(ref)
        tries = 1 if before is None else before.tries + 1
        wait = min(_FIRST_RETURN_SECONDS * 2 ** min(tries - 1, 30), _MAX_RETURN_SECONDS)
        self._kept[ref] = _Refusal(str(failure), tries, now + wait)
        level = logging.WARNING if before is None else logging.DEBUG
        logger.log(level, "%s cannot be given back to the built-in controller: %s", ref, failure)

    # Looking for notes

    async def _keep_looking(self) -> None:
        """Look when this process begins to lead, once more when no late write can follow, and then every hour.

        A pod whose mark has failed is read again when that can no longer arrive: its node may be clean since, and its
        pods may not be watched any more. So are the pods of a node that was removed, once they are gone.
        """
        led_since: float | None = None
        look_at = -math.inf
        while True:
            await asyncio.sleep(_PASS_SECONDS)
            if not self._may_return():
                led_since = None
                self._look_at.clear()
                continue
            now, since = self._clock.now().at, self._leads_since
            for ref in [ref for ref, at in self._look_at.items() if at <= now]:
                del self._look_at[ref]
                if not await self._see(ref):
                    self._look_at.setdefault(ref, now + _LOOK_AGAIN_SECONDS)
            if since != led_since:
                led_since, look_at = since, -math.inf
            if since is None or now < look_at:
                continue
            control_state = self._guards.control_state
            adopter = "" if control_state is None else control_state.adopter
            try:
                found = await self._look()
            except CallFailed as failure:
                logger.warning("the pods with a note cannot be listed: %s", failure)
                look_at = now + _LOOK_AGAIN_SECONDS
                continue
            no_late_write = now >= since + LATE_WRITE_SECONDS
            if no_late_write and not found and self.gives_all_back:
                await self._leave(adopter)
            every = LATE_WRITE_SECONDS if self.gives_all_back else _LOOK_SECONDS
            look_at = now + every if no_late_write else since + LATE_WRITE_SECONDS

    async def _look(self) -> bool:
        """Find the pods that have a note, on all nodes; return whether there is one."""
        began_at = self._clock.now().at
        found = dict.fromkeys(await self._door.list_noted())
        for ref in [ref for ref in self._carriers.known if ref not in found]:
            record = self._pods.find(ref)
            if record is None or record.seen_at < began_at:
                await self._see(ref)
        for ref in found:
            if ref not in self._carriers.known:
                await self._see(ref)
        return bool(found)

    async def _see(self, ref: PodRef) -> bool:
        """Read a pod that no watch brings; return whether that has succeeded."""
        try:
            pod = await self._door.change(ref, lambda _: None)
        except CallFailed:
            return False
        if pod is None:
            self._carriers.drop(ref)
        elif self._carriers.upsert(pod):
            self._check(ref)
        return True

    async def _leave(self, adopter: str) -> None:
        try:
            await self._door.remove_adopter(adopter)
        except CallFailed as failure:
            level = logging.DEBUG if str(failure) == self._left_told else logging.WARNING
            self._left_told = str(failure)
            logger.log(level, "that nothing is taken over any more cannot be written: %s", failure)
        else:
            logger.info("all countdowns that were taken over have been given back")

    # What the ConfigMap says

    async def _keep_entering(self) -> None:
        """Say in the state ConfigMap that countdowns are taken over, before the first one is."""
        wait = _PASS_SECONDS
        while True:
            await asyncio.sleep(wait)
            control_state = self._guards.control_state
            may = self._may_begin_marks() and control_state is not None
            if not may or (control_state is not None and control_state.adopter == self._door.adopter(self._term)):
                wait = _PASS_SECONDS
                continue
            try:
                await self._door.write_adopter(self._term)
            except CallFailed as failure:
                level = logging.WARNING if wait == _PASS_SECONDS else logging.DEBUG
                logger.log(level, "no countdown is taken over, since that cannot be written: %s", failure)
            wait = min(2 * wait, _MAX_ENTER_SECONDS)

    async def _keep_confirming(self) -> None:
        """Confirm each order to take nothing over, even if that is disabled: ``hand-back`` waits for that."""
        wait = _PASS_SECONDS
        while True:
            await asyncio.sleep(wait)
            control_state = self._guards.control_state
            if control_state is None or control_state.no_adoption is None or not self._gate.may_act():
                self._confirmed, wait = None, _PASS_SECONDS
                continue
            order = (control_state.no_adoption, control_state.no_adoption_confirmed_by)
            if order == self._confirmed or self._under_way:
                continue
            try:
                await self._door.confirm_no_adoption(control_state.no_adoption)
            except CallFailed as failure:
                level = logging.WARNING if wait == _PASS_SECONDS else logging.DEBUG
                logger.log(level, "that nothing is adopted any more cannot be written: %s", failure)
                wait = min(2 * wait, _MAX_CONFIRM_SECONDS)
            else:
                self._confirmed, wait = order, _PASS_SECONDS
