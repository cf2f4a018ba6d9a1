"""The known pods: one record a pod, found by its key. The record is all that the core knows of that pod.

Queues hold hints only: they find the record that is next, and can be rebuilt from the records at any time
(``EvictionQueue.place``, ``TakeBacks.place``). This module alone writes records: every transition is a method of
``PodRecord``, and a test keeps other modules from assigning its fields. ``reconciler`` says what is wanted,
``attempts`` what is in flight, ``eviction_queue`` where a pod waits; each calls the transition.

    waiting -> stabilizing -> queued -> in flight -> deleted
                                     in flight -> retrying -> queued
                          queued -> following -> queued

A pod that no longer has to leave changes to ``stays`` from any of these states; if its attempt was held back, it waits
again. Without a breaker, no pod stabilizes.

A record belongs to one UID. It begins when its pod is seen, and ends in one place (``forget``): as soon as the pod is
no longer known and nothing of it is unfinished. Work in flight is unfinished, and so is a condition that is to be taken
back. Until then the record of a pod that was released, is gone, or has a successor under its name is kept aside.

What a dry run has reported of a pod, since when its virtual machine moves away, and with these since when it has been
bound, outlive the record of a pod that is no longer watched: its node may be tainted again in the same outage.

``KnownPods`` keeps order among facts that come late, twice or out of order. Nothing here decides on a pod.

Invariants: one known pod a key; a pod is listed under exactly the node to which it is bound.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, assert_never

from taint_eviction.core.decision import Evict, StayReason
from taint_eviction.core.events import Block, BlockReason, Eviction, Failed, TakeBack
from taint_eviction.core.facts import PodSeen, PodsSwept
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.gone_objects import GoneObjects, list_is_newer
from taint_eviction.core.instants import Moment, Sighting, sight
from taint_eviction.core.limits import Token
from taint_eviction.core.objects import NamespacedName, Pod, PodRef, Taint
from taint_eviction.core.policy import EvictionMode, Handling

# Of so many pods that are no longer watched something is remembered.
_MAX_UNWATCHED = 10_000

# How much longer than the pauses within it a span of patience counts at most: calls take time.
_CALLS_SECONDS = 10.0

# Sums of floating-point numbers may miss the timeout by less than this.
_ROUNDING_SECONDS = 1e-6


class Step(Enum):
    """How far work in flight has come. The last request may have taken effect, whatever the answer is."""

    BEGUN = "nothing has been sent yet"
    MARKING = "the condition is being set"
    ENDING = "the pod's deletion is being asked for"


# States


class Schedule(NamedTuple):
    """The flow in which an eviction waits, and when it is to begin.
    ``retry``: it has failed before. ``next_taint_at``: when another taint will be the effective one (``policy``), if
    the pod still waits then; None: never. ``unanswered``: the last call of a retry had no answer, or a late one.
    ``came_later``: the pod was bound to its node, or last changed by its owner, after the taint that evicts it began.
    """

    flow: FlowKey
    fire_at: float
    retry: bool
    next_taint_at: float | None
    unanswered: bool = False
    came_later: bool = False


@dataclass(frozen=True, slots=True)
class Stays:
    """The pod is left alone. ``reason`` None: nothing is decided, because it is new or no longer watched."""

    reason: StayReason | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The pod waits for its deadline; with a breaker, until the deadline became known, if that is later."""

    until: float
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Stabilizing:
    """The pod is due, and waits until ``until`` in case more nodes are tainted, then for the lists of their pods."""

    until: float
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Queued:
    """The pod is due and waits for its turn. ``guards`` say whether its flow is blocked: whole flows are."""

    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Following:
    """The pod is due and waits for pods of earlier tiers of its node (``leaving_order``)."""

    schedule: Schedule


@dataclass(frozen=True, slots=True)
class InFlight:
    """A worker is evicting the pod.
    ``schedule``: that of the eviction. ``tokens``: its tokens from the limits, None: the policy has changed since it
    began.
    """

    work: Eviction
    schedule: Schedule
    tokens: tuple[Token, ...] | None = ()
    step: Step = Step.BEGUN


@dataclass(frozen=True, slots=True)
class Retrying:
    """The last attempt failed, or was refused by a budget; the next may begin at ``at``."""

    at: float
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Deleted:
    """The API server accepted the pod's deletion at ``at``; it is not requested again."""

    at: float


WaitingState = Waiting | Stabilizing | Queued | Following | Retrying
PendingState = WaitingState | InFlight
PodState = Stays | PendingState | Deleted

UNDECIDED = Stays(None)
# There is one value for all pods that stay for the same reason.
_STAYS = {reason: Stays(reason) for reason in StayReason}


# What belongs to a record


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether a DisruptionTarget condition from this controller may be on a pod.
    ``may_be_there``: this process was about to write it, so it may be there whatever the answer was.
    ``take_back_at``: when it is to be taken back, after ``tries`` failed attempts; None: it is not. ``turn``: the order
    in which that was decided. ``late_until``: until then a request that had no answer may still set it; -inf: none may.
    """

    may_be_there: bool = False
    take_back_at: float | None = None
    tries: int = 0
    turn: int = 0
    late_until: float = -math.inf


NO_CONDITION = Condition()


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The failed attempts to evict one pod so far: how many, since when, and the answer to the last one.

    A policy may use the eviction API first, and delete the pod once budgets, or admission, have refused it for long
    enough. This patience adds up the spans from one refusal to the next; other answers between two refusals do not
    interrupt it. A span counts at most the pauses that were planned within it and a few seconds for the calls: a stall,
    or a wait for a limit or a worker, adds nothing, nor do refusals while the virtual machine in the pod moves away. A
    pause that would end the patience needs no other refusal, if no other answer has come since.

    ``block``: a budget forbids it for now. None: the attempt failed for another reason. ``asked``: the last attempt
    asked the eviction API; ``refused``: budgets or admission refused it. ``ask_again_at``: when a budget may be asked
    again. ``refused_seconds``: for how long the pod has been refused, up to the last refusal at ``refused_at`` (None:
    there is none that counts since the sum began anew). ``planned_seconds``: the pauses that were planned since then.
    ``unanswered``: the last call had no answer, or a late one. ``hung``: how many requests to end the pod had none.
    """

    since_at: float
    tries: int
    retry_at: float
    message: str
    block: Block | None = None
    asked: bool = False
    refused: bool = False
    ask_again_at: float = -math.inf
    refused_seconds: float = 0.0
    refused_at: float | None = None
    planned_seconds: float = 0.0
    unanswered: bool = False
    hung: int = 0

    def with_failure(self, work: Eviction, outcome: Failed, sent: bool, now: Moment) -> "FailedAttempts":
        """Return these attempts and one more; ``sent``: the request that ends the pod was being sent."""
        evacuates = outcome.block is not None and outcome.block.reason is BlockReason.EVACUATION
        refused = work.by_eviction_api and outcome.refuses and not evacuates
        after = self if work.by_eviction_api else self._after_deletion(now)
        return replace(
            self._after_refusal(now) if refused else replace(after, refused_at=None) if evacuates else after,
            tries=work.tries + 1,
            retry_at=outcome.retry_at,
            message=outcome.message,
            block=outcome.block,
            asked=work.by_eviction_api and sent,
            refused=refused,
            unanswered=outcome.unanswered or outcome.late,
            hung=self.hung + (outcome.unanswered and sent),
            ask_again_at=self.ask_again_at if outcome.block is None else outcome.retry_at,
        )

    def _after_refusal(self, now: Moment) -> "FailedAttempts":
        span = 0.0
        if self.refused_at is not None:
            span = min(now.at - self.refused_at, self.planned_seconds + _CALLS_SECONDS)
        return replace(self, refused_at=now.at, refused_seconds=self.refused_seconds + span, planned_seconds=0.0)

    def _after_deletion(self, now: Moment) -> "FailedAttempts":
        """Let the pause that ended the patience count for good."""
        seconds = self.refused_seconds + self._paused_seconds(now.at)
        return self if self.refused_at is None else replace(self, refused_at=now.at, refused_seconds=seconds)

    def _paused_seconds(self, now: float) -> float:
        """Return how much of a planned pause has passed since the last answer, if that was a refusal."""
        if self.refused_at is None or not self.refused:
            return 0.0
        return min(now - self.refused_at, self.planned_seconds)

    def is_outlasted(self, seconds: float, now: float) -> bool:
        """Return whether the pod has been refused for so long."""
        return self.refused_at is not None and self.refused_seconds + self._paused_seconds(now) > (
            seconds - _ROUNDING_SECONDS
        )

    @property
    def evacuates(self) -> bool:
        """Return whether the last attempt was refused because the virtual machine in the pod moves away."""
        return self.block is not None and self.block.reason is BlockReason.EVACUATION

    def after_pause(self, seconds: float) -> "FailedAttempts":
        """Return these attempts with a pause that is planned until the next one."""
        return replace(self, planned_seconds=self.planned_seconds + seconds)

    def next_try_at(self, handling: Handling, now: float) -> float:
        """Return when to try again.

        Where the retry asks the eviction API, it does not begin before a budget's refusal allows it, but when the
        patience ends. A deletion only waits if the attempt before was a deletion that failed.
        """
        until = eviction_api_until(handling, self)
        if asks(handling, self, now) and not self.refused:
            return max(self.retry_at, min(self.ask_again_at, until))
        return min(max(self.retry_at, self.ask_again_at), until) if self.asked else self.retry_at

    @property
    def without_refusals(self) -> "FailedAttempts":
        """Return these attempts after something has held the pod: its patience starts with the next refusal."""
        # After an evacuation there is a sum without a last refusal.
        if self.refused_at is None and not self.refused_seconds:
            return self
        return replace(self, refused_at=None, refused_seconds=0.0)


def asks(handling: Handling, failures: FailedAttempts | None, now: float) -> bool:
    """Return whether an attempt that begins now uses the eviction API, so that budgets apply."""
    match handling.mode:
        case EvictionMode.DELETE:
            return False
        case EvictionMode.EVICT:
            return True
        case EvictionMode.EVICT_THEN_DELETE:
            return failures is None or not failures.is_outlasted(handling.evict_timeout_seconds, now)
        case _:
            assert_never(handling.mode)


def eviction_api_until(handling: Handling, failures: FailedAttempts | None) -> float:
    """Return until when the eviction API is used if it keeps refusing; infinite: indefinitely, or not known yet."""
    match handling.mode:
        case EvictionMode.DELETE:
            return -math.inf
        case EvictionMode.EVICT:
            return math.inf
        case EvictionMode.EVICT_THEN_DELETE:
            if failures is None or failures.refused_at is None:
                return math.inf
            return failures.refused_at + handling.evict_timeout_seconds - failures.refused_seconds
        case _:
            assert_never(handling.mode)


class PodRecord:
    """What is known of one pod; ``ref`` never changes.

    ``node_name``: the name of its node, "" while it is not bound. ``seen_at``: when it was last seen. ``bound``: since
    when it has been bound to its node, None: it is not bound.
    ``changed_at``: when its owner was last seen to have changed what decisions depend on; -inf: never.
    ``decision``: the decision to evict it, None: it stays. ``turn``: its order among the pods that wait in the same
    place; ``schedule_turn``: the order in which their schedules were made. ``known_since``: its deadline, since when
    the deadline has been known, and the taint that decided then (None: not told); None: it need not stabilize.
    ``deletion_requested``: if the pod is seen terminating,
    the request took effect, even if no answer came. ``taking_back``: its condition is being taken back, beside whatever
    its state is; None: it is not. ``evacuating_since``: when this leader first heard that the virtual machine in it
    moves away, None: never. ``reported_fire_at``: the deadline of the eviction that was last reported as done.
    """

    __slots__ = (
        "bound",
        "changed_at",
        "condition",
        "decision",
        "deletion_requested",
        "evacuating_since",
        "failures",
        "known_since",
        "node_name",
        "pod",
        "ref",
        "reported_fire_at",
        "schedule_turn",
        "seen_at",
        "state",
        "taking_back",
        "turn",
    )

    def __init__(self, pod: Pod, seen_at: float, bound: Sighting | None = None) -> None:
        self.pod = pod
        self.ref = pod.ref
        self.node_name = pod.node_name or ""
        self.seen_at = seen_at
        self.bound = bound
        self.changed_at = -math.inf
        self.state: PodState = UNDECIDED
        self.decision: Evict | None = None
        self.turn = self.schedule_turn = 0
        self.known_since: tuple[float, float, Taint | None] | None = None
        self.failures: FailedAttempts | None = None
        self.evacuating_since: float | None = None
        self.deletion_requested = False
        self.reported_fire_at: float | None = None
        self.condition = NO_CONDITION
        self.taking_back: TakeBack | None = None

    @property
    def deleted(self) -> bool:
        """Return whether the API server has accepted its deletion."""
        return isinstance(self.state, Deleted)

    @property
    def in_flight(self) -> bool:
        """Return whether a worker is working on the pod."""
        return isinstance(self.state, InFlight)

    # What was seen

    def see(self, fact: PodSeen, label_keys: Collection[str], now: Moment) -> None:
        """Take in the pod as it is by now. ``label_keys``: see ``KnownPods``."""
        pod = fact.pod
        if pod.node_name is None:
            self.bound = None
        elif self.bound is None or self.pod.node_name != pod.node_name:
            self.bound = sight(now, pod.bound_at, pod.bound_time_source, fact.absent_at)
        if _changed_by_owner(self.pod, pod, label_keys):
            self.changed_at = now.at
        self.pod, self.node_name, self.seen_at = pod, pod.node_name or "", now.at

    # Where it waits

    def wait(self, state: WaitingState, turn: int) -> None:
        """Wait in another place, behind all that have a lower ``turn``."""
        self.state, self.turn = state, turn

    def begin_schedule(self) -> None:
        """Note that the place where the pod waits now is the first of a schedule."""
        self.schedule_turn = self.turn

    def stabilizes_from(self, fire_at: float, now: float) -> float:
        """Return the instant from which the eviction stabilizes: its deadline, or when that became known, if later.

        A deadline that has passed stays the one that counts while another one of the same taint has passed as well:
        the pod's owner may change its seconds again and again, and must not renew the time.
        """
        taint = None if self.decision is None else self.decision.deciding.taint
        if self.known_since is not None:
            deadline, known_at, known_taint = self.known_since
            if fire_at == deadline or (taint == known_taint and fire_at <= now and deadline <= now):
                return max(deadline, known_at)
        self.known_since = fire_at, now, taint
        return max(fire_at, now)

    def undecide(self) -> None:
        """Leave the place, the attempt, or the end that was reported: the caller decides again."""
        self.state = UNDECIDED

    # What is decided

    def is_by_owner(self, decision: Evict) -> bool:
        """Return whether the pod came to its node, or was changed by its owner, after the taint that evicts it.

        Anybody may do that to pods of their own, and must not open the breaker for others with it.
        """
        verdict = decision.deciding
        return verdict.came_later or self.changed_at > verdict.start_at

    def want(self, decision: Evict, now: float) -> None:
        """Note the decision to evict the pod. Before its deadline, failures belong to another eviction.

        But a budget's refusal that still applies after the deadline is kept: a swapped taint is no reason to ask again.
        """
        self.decision = decision
        if decision.fire_at > now:
            failures = self.failures
            if failures is not None and (failures.block is None or decision.fire_at >= failures.retry_at):
                self.failures = None
            self.restart_patience()

    def want_nothing(self) -> None:
        """Note that the pod is to be evicted no more: it stays, or has been evicted."""
        self.decision = self.failures = self.known_since = None
        self.deletion_requested = False

    def stay(self, reason: StayReason | None) -> None:
        """Stay; None: nothing is decided. A pod whose deletion was accepted remains deleted."""
        if not self.deleted:
            self.state = UNDECIDED if reason is None else _STAYS[reason]

    def delete(self, at: float) -> None:
        """Note that the API server has accepted the pod's deletion."""
        self.state = Deleted(at)

    def undelete(self) -> None:
        """Note that the deletion, if it was accepted, counts no more."""
        if self.deleted:
            self.state = UNDECIDED

    def report(self, decision: Evict) -> None:
        """Note that its eviction by this decision is reported as done."""
        self.reported_fire_at = decision.fire_at

    # What is in flight

    def begin(self, work: Eviction, schedule: Schedule, tokens: tuple[Token, ...]) -> None:
        """Be evicted by a worker. This overtakes a take-back of its condition."""
        self.state, self.taking_back = InFlight(work, schedule, tokens), None

    def will_mark(self, begun: InFlight) -> None:
        """Note that its condition is about to be written: from here on it may be there, whatever the answer is."""
        self.state = InFlight(begun.work, begun.schedule, begun.tokens, Step.MARKING)
        self.condition = replace(self.condition, may_be_there=True)

    def may_be_marked_late(self, until: float) -> None:
        """Note that a request to set its condition had no answer, and may still arrive until then."""
        self.condition = replace(self.condition, late_until=until)

    def will_delete(self, begun: InFlight) -> None:
        """Note that its deletion is about to be requested: from here on it may be done, whatever the answer is."""
        self.state = InFlight(begun.work, begun.schedule, begun.tokens, Step.ENDING)
        self.deletion_requested = True

    def outdate_tokens(self, begun: InFlight) -> None:
        """Note that the limits of another policy have not let the eviction in flight through."""
        self.state = InFlight(begun.work, begun.schedule, None, begun.step)

    # What has failed

    def fail(self, work: Eviction, outcome: Failed, now: Moment) -> FailedAttempts:
        """Note one more failed attempt; return all so far."""
        before = self.failures or FailedAttempts(now.at, 0, now.at, "")
        self.failures = before.with_failure(work, outcome, self.deletion_requested, now)
        if outcome.refuses:
            self.deletion_requested = False  # It was not done: whoever ends the pod now is somebody else.
        return self.failures

    def plan_pause(self, seconds: float) -> None:
        """Note the pause that is planned until the next attempt."""
        self.failures = self.failures and self.failures.after_pause(seconds)

    def restart_patience(self) -> None:
        """Let the patience with budgets (``FailedAttempts``) begin with the next refusal."""
        self.failures = self.failures and self.failures.without_refusals

    def evacuates(self, now: float) -> None:
        """Note that the virtual machine in the pod moves away."""
        self.evacuating_since = now if self.evacuating_since is None else self.evacuating_since

    def begin_term(self) -> None:
        """Note that another leadership begins: it has heard no refusal yet."""
        self.restart_patience()
        self.evacuating_since = None

    # Its condition

    def want_take_back(self, at: float, tries: int, turn: int) -> None:
        """Note when the condition is to be taken back."""
        self.condition = replace(self.condition, take_back_at=at, tries=tries, turn=turn)

    def leave_condition(self) -> None:
        """Note that the condition stays on the pod, for now."""
        self.condition = replace(self.condition, take_back_at=None, turn=0)

    def forget_condition(self) -> None:
        """Note that there is no such condition."""
        self.condition = NO_CONDITION

    def take_back(self, work: TakeBack | None) -> None:
        """Note the take-back in flight; None: it has ended."""
        self.taking_back = work


class KnownPods:
    """The records of the known pods by key, and of those that are unfinished; ``gone`` remembers pods that are gone.

    ``label_keys``: the labels by which rules in force select pods. Of others it depends on the rules that are about to
    come or have just gone whether they are read: that one appears is no change by its owner.
    """

    def __init__(self, gone: GoneObjects, label_keys: Collection[str] = ()) -> None:
        self.label_keys = label_keys
        self.known: dict[NamespacedName, PodRecord] = {}
        self._by_node: dict[str, dict[NamespacedName, PodRecord]] = {}
        self._unfinished: dict[NamespacedName, list[PodRecord]] = {}
        # By UID, ``reported_fire_at``, ``evacuating_since`` and ``bound`` of pods that are no longer watched.
        self._unwatched: OrderedDict[str, tuple[float | None, float | None, Sighting | None]] = OrderedDict()
        self._gone = gone

    def __iter__(self) -> Iterator[PodRecord]:
        """Go through all records, of pods that are no longer known, too."""
        yield from self.known.values()
        for records in self._unfinished.values():
            yield from records

    def find(self, ref: PodRef) -> PodRecord | None:
        """Return the record of exactly this pod (key and UID), None if there is none."""
        record = self.known.get(ref.key)
        if record is not None and record.ref.uid == ref.uid:
            return record
        return next((kept for kept in self._unfinished.get(ref.key, ()) if kept.ref.uid == ref.uid), None)

    def knows(self, record: PodRecord) -> bool:
        """Tell whether the pod of a record is still known."""
        return self.known.get(record.ref.key) is record

    def on_node(self, name: str) -> list[PodRecord]:
        """List the known pods that are bound to a node of this name."""
        return list(self._by_node.get(name, {}).values())

    def upsert(self, fact: PodSeen, now: Moment) -> tuple[PodRecord, list[PodRecord]] | None:
        """Take in a pod; return its record and those of pods that had its name before. None if the fact is old news.

        The latter are no longer known, and are to be forgotten.
        """
        pod, before = fact.pod, self.known.get(fact.pod.ref.key)
        last = None if before is None else (before.pod.resource_version, before.seen_at)
        if self._gone.is_old(pod.ref.uid, pod.resource_version, last, fact.asked_at):
            return None
        predecessors: list[PodRecord] = []
        if before is not None and before.ref.uid == pod.ref.uid:
            record = before
            self._unlist(record)
        else:
            if before is not None:
                self.detach(before)
            record = self._kept_aside(pod.ref) or self._begin(pod, now)
            predecessors = list(self._unfinished.get(pod.ref.key, ()))
            for each in predecessors:
                self._gone.remember(each.ref.uid, now)
            self.known[pod.ref.key] = record
        record.see(fact, self.label_keys, now)
        if pod.node_name is not None:
            self._by_node.setdefault(pod.node_name, {})[pod.ref.key] = record
        return record, predecessors

    def _begin(self, pod: Pod, now: Moment) -> PodRecord:
        record = PodRecord(pod, now.at)
        # With ``bound``, since a deadline that counts from the binding must stay the one that was reported.
        nothing = None, None, None
        record.reported_fire_at, record.evacuating_since, record.bound = self._unwatched.pop(pod.ref.uid, nothing)
        return record

    def _kept_aside(self, ref: PodRef) -> PodRecord | None:
        """Take the record of a pod that is seen again out of those kept aside."""
        record = self.find(ref)
        if record is not None:
            self._forget_aside(record)
        return record

    def mark_gone(self, ref: PodRef, now: Moment) -> PodRecord | None:
        """Note that a pod no longer exists; return its record, None if there is none. It is to be forgotten."""
        self._gone.remember(ref.uid, now)
        record = self.find(ref)
        if record is not None:
            self.detach(record)
        return record

    def detach(self, record: PodRecord) -> None:
        """Know a pod no more, and keep its record aside until it is forgotten."""
        if self.knows(record):
            del self.known[record.ref.key]
            self._unlist(record)
            self._unfinished.setdefault(record.ref.key, []).append(record)

    def forget(self, record: PodRecord) -> None:
        """End the record of a pod that is no longer known, unless something of it is unfinished."""
        unfinished = record.in_flight or record.taking_back or record.condition.take_back_at is not None
        if self.knows(record) or unfinished:
            return
        self._forget_aside(record)
        outlives = record.reported_fire_at, record.evacuating_since
        if outlives != (None, None) and record.ref.uid not in self._gone:
            self._unwatched[record.ref.uid] = *outlives, record.bound
            if len(self._unwatched) > _MAX_UNWATCHED:
                self._unwatched.popitem(last=False)

    def _forget_aside(self, record: PodRecord) -> None:
        aside = self._unfinished[record.ref.key]
        aside.remove(record)
        if not aside:
            del self._unfinished[record.ref.key]

    def is_gone(self, record: PodRecord) -> bool:
        """Tell whether a pod is known to be gone for good: its deletion was seen, or its name has another pod."""
        holder = self.known.get(record.ref.key)
        return record.ref.uid in self._gone or (holder is not None and holder is not record)

    def absent(self, fact: PodsSwept) -> list[PodRecord]:
        """List the known pods that a list of pods (one node's, or all bound ones) proves to be gone."""
        if fact.node_name is None:
            candidates = [record for record in self.known.values() if record.pod.node_name is not None]
        else:
            candidates = self.on_node(fact.node_name)
        return [
            record
            for record in candidates
            if record.ref.uid not in fact.present and list_is_newer(fact, record.pod.resource_version, record.seen_at)
        ]

    def _unlist(self, record: PodRecord) -> None:
        node_name = record.pod.node_name
        if node_name is None:
            return
        siblings = self._by_node[node_name]
        del siblings[record.ref.key]
        if not siblings:
            del self._by_node[node_name]


def _changed_by_owner(before: Pod, pod: Pod, label_keys: Collection[str]) -> bool:
    """Return whether the owner has changed when the pod leaves, or which rule it has. A mark keeps what it notes."""
    if (before.tolerations, before.hold_seconds) != (pod.tolerations, pod.hold_seconds):
        return True
    return any(before.labels.get(key) != pod.labels.get(key) for key in label_keys)
