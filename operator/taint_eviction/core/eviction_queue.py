"""Which pods are to be evicted and when, and which may be evicted now: deadlines, stabilizing, turns, retries.
A pod waits in one place at a time: first for its deadline, then until it has stabilized, then in its flow for its turn
and for limits and pauses. When its turn comes while pods of earlier tiers are to leave first, it is passed over, and
waits for those (``leaving_order``). A pod whose eviction has failed waits for its next try, then in flows behind all
first tries. The place is in its record (``state``), and so is its order there (``turn``). The queues hold hints only:
they say which pod is next.
If the circuit breaker is enabled, an eviction stabilizes: it waits ``settle_seconds``, so that a surge of taints is
noticed, and for the first lists of nodes that were newly tainted until then, but no longer than ``list_wait_seconds``.
Both times count from its deadline, or from when the deadline became known. An eviction that is held anyway does not
stabilize. Nor does one that bypasses limits: for these the breaker counts nodes, not pods.
The limits (``limits``) and the turns of the nodes (``fair_queue``) have state of their own.
Passive: ``reconciler`` says what is wanted and advances the queue, ``fair_queue`` says which pod is first.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from taint_eviction.core.fair_queue import FairQueue, FlowKey
from taint_eviction.core.leaving_order import LeavingOrder
from taint_eviction.core.limits import Limits, Token, TokenBucket
from taint_eviction.core.objects import PodRef, Taint
from taint_eviction.core.pods import (
    Following,
    InFlight,
    KnownPods,
    PodRecord,
    Queued,
    Retrying,
    Schedule,
    Stabilizing,
    Waiting,
    WaitingState,
)
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.core.timed_queue import TimedWorkerQueue

# The places in which pods that came later than their taint are counted.
_COUNTED = Stabilizing | Queued | Following

# The places of pods that are tried again as soon as it is their turn.
_TRIED_AGAIN = Retrying | Queued

# One of so many retries follows a call without an answer, or with a late one.
_UNANSWERED_EACH = 4

# One of so many evictions under limits, or of namespaces whose calls hang, is a retry, while retries wait: new pods may
# come without end.
_RETRY_EACH = 4

# The same where the retry's namespace hangs, and others do not: with a limit of one at a time, each may keep others
# waiting for a minute.
_HANGING_RETRY_EACH = 16

# A namespace hangs while so many of its attempts wait long for an answer, or had none the last time, or a late one:
# those of an admission webhook that does not answer do. A limit may let no more than one of them be under way.
_HANGING = 3


class EvictionQueue:
    """All evictions that are wanted and have not begun.

    ``is_blocked`` tells whether a flow is held back. ``settle_seconds`` None: nothing stabilizes. ``order``: who waits
    for pods of earlier tiers.
    """

    def __init__(
        self,
        policy: EvictionPolicy,
        settle_seconds: float | None,
        list_wait_seconds: float,
        is_blocked: Callable[[FlowKey], bool],
        pods: KnownPods,
        order: LeavingOrder,
    ) -> None:
        self.order = order
        # Up to this instant, evictions have waited long enough for newly tainted nodes that are still unlisted.
        self.waited_until = -math.inf
        self._pods = pods
        self._limits = Limits(policy)
        self._stabilizes = settle_seconds is not None
        self._stabilizing_seconds = settle_seconds or 0.0
        self._more_seconds = max(0.0, list_wait_seconds - self._stabilizing_seconds)
        self._unlisted_since = math.inf
        self._is_blocked = is_blocked
        self._has_moved = False
        self._turns = itertools.count(1)
        self._retries_taken = 0
        # How many first tries have had room in limits since a retry went, while retries waited; and how many others of
        # namespaces that come last have gone.
        self._went_before_retries = self._last_before_retries = 0
        self._last: frozenset[str] = frozenset()
        self._first_tries, self._stabilizing, self._retries = (TimedWorkerQueue() for _ in range(3))
        # First tries, retries after an answer, and retries after a call without one, or with a late one, which may hang
        # again.
        self._due_first, self._due_again, self._due_unanswered = (
            FairQueue(is_blocked, self._limits.buckets, self._pass_over) for _ in range(3)
        )
        # The first tries that wait for earlier tiers; it only counts them.
        self._following = FairQueue(is_blocked, self._limits.buckets)
        # When another taint becomes the effective one of a pod, which may then belong in another flow.
        self._taint_changes = TimedWorkerQueue()
        # By flow: how many stabilizing pods and due first tries came later than the taint that evicts them.
        self._came_later: Counter[FlowKey] = Counter()
        # By flow: how many pods that are to be tried again had no answer to their last call, or a late one.
        self._unanswered: Counter[FlowKey] = Counter()

    # What is wanted

    def schedule(self, record: PodRecord, schedule: Schedule, now: float) -> None:
        """Note that a pod's eviction is wanted; the same schedule again changes nothing."""
        if isinstance(record.state, WaitingState) and record.state.schedule == schedule:
            return
        self.cancel(record)
        if schedule.retry:
            self._enter(record, Retrying(schedule.fire_at, schedule))
        elif not self._stabilizes:
            self._enter(record, Waiting(schedule.fire_at, schedule))
        else:
            # If a deadline passes before it becomes known, the eviction stabilizes from the moment it is known.
            self._enter(record, Waiting(record.stabilizes_from(schedule.fire_at, now), schedule))
        record.begin_schedule()
        self.place_taint_change(record.ref, schedule)

    def cancel(self, record: PodRecord) -> None:
        """Remove a pod from the place where it waits: it is to be evicted, scheduled again, or left alone."""
        match record.state:
            case Waiting(schedule=schedule):
                self._first_tries.cancel(record.ref)
            case Stabilizing(schedule=schedule):
                self._stabilizing.cancel(record.ref)
            case Retrying(schedule=schedule):
                self._retries.cancel(record.ref)
            case Queued(schedule=schedule):
                self._due(schedule).discard(record.ref)
            case Following(schedule=schedule):
                self._unfollow(record.ref, schedule)
            case _:
                return
        self._count_out(record.state)
        if schedule.next_taint_at is not None:
            self._taint_changes.cancel(record.ref)
        record.undecide()

    def _enter(self, record: PodRecord, state: WaitingState, now: float = -math.inf) -> None:
        self._count_out(record.state)
        record.wait(state, next(self._turns))
        self.place(record.ref, state, now)

    def _pass_over(self, ref: PodRef, now: float) -> bool:
        """Let a pod whose turn it is wait for pods of earlier tiers, if it has to; return whether it does."""
        if self.order.wait(ref, now) is None:
            return False
        record = self._pods.known[ref.key]
        assert isinstance(record.state, Queued), record.state
        self._enter(record, Following(record.state.schedule), now)
        return True

    def _unfollow(self, ref: PodRef, schedule: Schedule) -> None:
        self.order.unfollow(ref)
        if not schedule.retry:
            self._following.discard(ref)

    def _due(self, schedule: Schedule) -> FairQueue:
        if not schedule.retry:
            return self._due_first
        return self._due_unanswered if schedule.unanswered else self._due_again

    def _count_out(self, state: object) -> None:
        if isinstance(state, _TRIED_AGAIN) and state.schedule.unanswered:
            self._unanswered[state.schedule.flow] -= 1
            if not self._unanswered[state.schedule.flow]:
                del self._unanswered[state.schedule.flow]
        if isinstance(state, _COUNTED) and state.schedule.came_later and not state.schedule.retry:
            self._came_later[state.schedule.flow] -= 1
            if not self._came_later[state.schedule.flow]:
                del self._came_later[state.schedule.flow]

    # Hints

    def place(self, ref: PodRef, state: WaitingState, now: float = -math.inf) -> None:
        """Put the hint to a pod where its state says; place several pods in the order of ``PodRecord.turn``.
        ``now`` matters for pods that wait for earlier tiers.
        """
        if isinstance(state, _TRIED_AGAIN) and state.schedule.unanswered:
            self._unanswered[state.schedule.flow] += 1
        if isinstance(state, _COUNTED) and state.schedule.came_later and not state.schedule.retry:
            self._came_later[state.schedule.flow] += 1
        match state:
            case Waiting():
                self._first_tries.schedule(ref, state.until)
            case Stabilizing():
                self._stabilizing.schedule(ref, state.until)
            case Retrying():
                self._retries.schedule(ref, state.at)
            case Queued(schedule):
                self._due(schedule).add(ref, schedule.flow, schedule.fire_at)
            case Following(schedule):
                if not schedule.retry:
                    self._following.add(ref, schedule.flow, schedule.fire_at)
                self.order.follow(ref, now)
            case _:
                assert_never(state)

    def place_taint_change(self, ref: PodRef, schedule: Schedule) -> None:
        """Put the hint to when another taint becomes effective; several in the order of ``PodRecord.schedule_turn``."""
        if schedule.next_taint_at is not None:
            self._taint_changes.schedule(ref, schedule.next_taint_at)

    # What may go

    def pop_taint_change(self, now: float) -> PodRecord | None:
        """Remove and return a pod with another effective taint by now, to be scheduled again; None: there is none."""
        entry = self._taint_changes.pop_due(now)
        return None if entry is None else self._pods.known[entry.ref.key]

    def advance(self, now: float, unlisted_since: float = math.inf) -> bool:
        """Advance the pods that are due by now; return whether any advanced.
        ``unlisted_since``: since when a newly tainted node has been unlisted.
        """
        self._unlisted_since, self._has_moved = unlisted_since, False
        while (entry := self._first_tries.pop_due(now)) is not None:
            self._move_on(entry.ref)
        while (at := self._stable_at()) is not None and at <= now and (entry := self._stabilizing.pop_due(now)):
            if entry.fire_at >= unlisted_since:
                self.waited_until = max(self.waited_until, entry.fire_at)
            self._move_on(entry.ref)
        while (entry := self._retries.pop_due(now)) is not None:
            self._move_on(entry.ref)
        self._release_followers(now)
        return self._has_moved

    def _release_followers(self, now: float) -> None:
        while (ref := self.order.next_released(now)) is not None:
            record = self._pods.known[ref.key]
            assert isinstance(record.state, Following), record.state
            self._unfollow(ref, record.state.schedule)
            self._enter(record, Queued(record.state.schedule))
            self._has_moved = True

    def _move_on(self, ref: PodRef) -> None:
        record = self._pods.known[ref.key]
        if isinstance(record.state, Waiting | Stabilizing | Retrying):
            self._enter(record, self.after(record.state))
            self._has_moved = True

    def after(self, state: Waiting | Stabilizing | Retrying) -> Stabilizing | Queued:
        """Return the state that follows when the time of this one has passed."""
        flow = state.schedule.flow
        if isinstance(state, Waiting) and self._stabilizes and not (flow.bypasses_limits or self._is_blocked(flow)):
            return Stabilizing(state.until + self._stabilizing_seconds, state.schedule)
        return Queued(state.schedule)

    def _stable_at(self) -> float | None:
        """Return when the first stabilizing pod may advance, if no list of pods ends before that."""
        at = self._stabilizing.next_fire_at()
        return at if at is None or at < self._unlisted_since else at + self._more_seconds

    def hanging(self, waiting_long: Mapping[str, int]) -> frozenset[str]:
        """Return the namespaces whose calls hang; ``waiting_long``: how many attempts of each wait long for an answer.

        A pod that is tried again after a call without an answer, or with a late one, still counts while it waits for
        that; not while it is blocked, or waits for pods of earlier tiers: nothing of it hangs for as long as that
        takes.
        """
        if not (waiting_long or self._unanswered):
            return frozenset()
        counts = Counter(waiting_long)
        for flow, count in self._unanswered.items():
            if not self._is_blocked(flow):
                counts[flow.namespace] += count
        return frozenset(namespace for namespace, count in counts.items() if count >= _HANGING)

    def put_last(self, namespaces: frozenset[str]) -> None:
        """Let the due pods of these namespaces, and of no others, come after all others of their kind."""
        self._last = namespaces
        for queue in (self._due_first, self._due_again, self._due_unanswered):
            queue.put_last(namespaces)

    @property
    def any_due(self) -> bool:
        """Return whether any pod is due and not held: else nothing can be taken."""
        return bool(self._due_first.free or self._due_again.free or self._due_unanswered.free)

    def take(self, now: float, retry: bool, only_bypassing: bool = False) -> tuple[PodRecord, tuple[Token, ...]] | None:
        """Remove and return the next pod, of first tries or of retries, with its tokens; None if none may begin.

        Retries after a call without an answer, or with a late one, come after other retries, so that calls that hang
        again hold up no others; but each fourth retry is one of them, if there is one, so that their turn comes. Where
        their namespaces hang, and those of others do not, it is each sixteenth.
        """
        if retry:
            queues = [self._due_again, self._due_unanswered]
            hangs = self._due_unanswered.next_is_last() is True and self._due_again.next_is_last() is False
            each = _HANGING_RETRY_EACH if hangs else _UNANSWERED_EACH
            if self._retries_taken % each == each - 1:
                queues.reverse()
            taken = queues[0].take(now, only_bypassing) or queues[1].take(now, only_bypassing)
            self._retries_taken += taken is not None
        else:
            taken = self._due_first.take(now, only_bypassing)
        if taken is None:
            return None
        ref, tokens = taken
        if retry or not (self._due_again.free or self._due_unanswered.free):
            self._went_before_retries = self._last_before_retries = 0
        elif tokens:
            self._went_before_retries += 1
        elif ref.key.namespace in self._last:
            self._last_before_retries += 1
        self._taint_changes.cancel(ref)
        record = self._pods.known[ref.key]
        self._count_out(record.state)
        return record, tokens

    @property
    def owes_retry(self) -> bool:
        """Return whether a retry goes before the next first try: limits have let enough first tries go before it, or
        that first try belongs to a namespace whose calls hang, and the retry does not, or enough such have gone before.
        """
        first_is_last = self._due_first.next_is_last()
        retry_is_not_last = any(each.next_is_last() is False for each in (self._due_again, self._due_unanswered))
        each = _RETRY_EACH if first_is_last or retry_is_not_last else _HANGING_RETRY_EACH
        if self._went_before_retries >= each - 1:
            return True
        return first_is_last is True and (retry_is_not_last or self._last_before_retries >= _RETRY_EACH - 1)

    # What has begun

    def send(self, tokens: Iterable[Token], now: float) -> None:
        """Note that the request that ends a pod is being sent."""
        for token in tokens:
            if not token.sent:
                token.bucket.send(token, now)
                self._freed(token.bucket)

    def end(self, tokens: Iterable[Token], ended_pod: bool) -> None:
        """Note that an eviction that was begun has ended; ``ended_pod``: if it was sent, it may have ended the pod."""
        for token in tokens:
            token.bucket.end(token, ended_pod)
            self._freed(token.bucket)

    def _freed(self, bucket: TokenBucket) -> None:
        for queue in (self._due_first, self._due_again, self._due_unanswered):
            queue.freed(bucket)

    # Questions

    @property
    def stabilizing_seconds(self) -> float:
        """For how long an eviction stabilizes; 0: it does not."""
        return self._stabilizing_seconds if self._stabilizes else 0.0

    def due(self) -> int:
        """Count due first tries that are not held, including stabilizing ones."""
        return len(self._stabilizing) + self._due_first.free + self._following.free

    def due_together(self) -> int:
        """Count those that are due together because of one cause: without those that bypass limits, and without pods
        that came to their nodes after the taint. Anybody may create such pods, and must not open the breaker for
        others.
        """
        came_later = sum(count for flow, count in self._came_later.items() if self._counts(flow))
        return self.due() - self._due_first.bypasses_limits - came_later

    def _counts(self, flow: FlowKey) -> bool:
        """Return whether due pods of a flow count as due together."""
        return not (flow.bypasses_limits or self._is_blocked(flow))

    def due_together_by(self, until: Callable[[str, Taint], float]) -> int:
        """Count those of ``due_together`` that were due by an instant; looks at each pod.

        ``until`` returns that instant for the name of a pod's node and the taint that decides.
        """
        return sum(self._was_due(record, until) for record in self._pods.known.values())

    def _was_due(self, record: PodRecord, until: Callable[[str, Taint], float]) -> bool:
        state, decision = record.state, record.decision
        if decision is None or not isinstance(state, _COUNTED):
            return False
        schedule = state.schedule
        if schedule.retry or schedule.came_later or not self._counts(schedule.flow):
            return False
        return schedule.fire_at <= until(record.node_name, decision.deciding.taint)

    def tried_in_vain(self) -> int:
        """Count those that ``due_together`` leaves out and would count in another process: they are being tried, will
        be again, or were changed by their owners since. Looks at each pod.
        """
        return sum(map(self._counts_elsewhere, self._pods.known.values()))

    def _counts_elsewhere(self, record: PodRecord) -> bool:
        state, decision = record.state, record.decision
        if decision is None or not isinstance(state, _COUNTED | _TRIED_AGAIN | InFlight):
            return False
        left_out = isinstance(state, InFlight) or state.schedule.retry or state.schedule.came_later
        # That a pod was bound later can be read from its dates; that its owner has changed it, only seen.
        return left_out and not decision.deciding.came_later and self._counts(state.schedule.flow)

    def next_at(self, now: float, retries: bool, stopped: bool, only_bypassing: bool = False) -> float | None:
        """Return when a pod next advances or may be evicted; ``retries`` False: first tries only.
        ``stopped``: none may be evicted; ``only_bypassing``: only those that bypass limits may.
        """
        instants = [self._first_tries.next_fire_at(), self._stable_at(), self._taint_changes.next_fire_at()]
        instants.append(self.order.next_at())
        if not stopped:
            instants.append(self._due_first.next_at(now, only_bypassing))
        if retries:
            instants.append(self._retries.next_fire_at())
            if not stopped:
                instants += [queue.next_at(now, only_bypassing) for queue in (self._due_again, self._due_unanswered)]
        return min((instant for instant in instants if instant is not None), default=None)

    # What else may change

    def reconsider(self) -> int:
        """Check again which flows are held; return how many first tries are held no longer, of those that count as due
        together.
        """
        for entry in list(self._stabilizing):
            record = self._pods.known[entry.ref.key]
            if isinstance(record.state, Stabilizing) and self._is_blocked(record.state.schedule.flow):
                self._stabilizing.cancel(entry.ref)
                self._enter(record, Queued(record.state.schedule))
        for queue in (self._due_again, self._due_unanswered):
            queue.reconsider()
        held = [flow for flow in self._came_later if self._holds(flow)]
        released = self._due_first.reconsider() + self._following.reconsider()
        came_later = sum(self._came_later[flow] for flow in held if not (flow.bypasses_limits or self._holds(flow)))
        return released - came_later

    def _holds(self, flow: FlowKey) -> bool:
        return self._due_first.holds(flow) or self._following.holds(flow)

    def change_policy(self, policy: EvictionPolicy, now: float) -> int:
        """Apply another policy's limits; evictions that were begun but not sent begin again under them. Return how many
        first tries are held no longer, as ``reconsider`` does.
        """
        for record in self._pods:
            if isinstance(record.state, InFlight) and not any(token.sent for token in record.state.tokens or ()):
                self.end(record.state.tokens or (), ended_pod=False)
                record.outdate_tokens(record.state)
        self._limits.change(policy, now)
        self.order.change_policy(policy)
        self._release_followers(now)
        return self.reconsider()
