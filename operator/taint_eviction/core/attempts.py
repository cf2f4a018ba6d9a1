"""What is in flight: work that begins, what is asked and noted before each of its calls, and how it ends.

Invariants: of one pod at most one eviction is in flight, and while it is, nothing else of it is scheduled. A take-back
of its condition runs beside whatever the pod waits for, and is overtaken by the pod's eviction: what it brings then
changes nothing. Work belongs to a record, and so to a UID, so what ends late touches only what is its own.

Errors: what the world does wrong arrives as a ``WorkOutcome``; finishing what is not in flight is a ``ValueError``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from taint_eviction.core.breaker import Breaker
from taint_eviction.core.decision import Stay, StayReason
from taint_eviction.core.events import (
    Block,
    BlockReason,
    CalledOff,
    Cancelled,
    CutOff,
    Done,
    Event,
    Eviction,
    Failed,
    PodIsGone,
    Refused,
    Suspended,
    TakeBack,
    Work,
    WorkOutcome,
)
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.guards import Guards
from taint_eviction.core.instants import Moment
from taint_eviction.core.limits import Token
from taint_eviction.core.objects import PodRef
from taint_eviction.core.pods import InFlight, KnownPods, PodRecord, Queued, asks
from taint_eviction.core.policy import EffectiveTaint, EvictionMode, Handling
from taint_eviction.core.reconciler import Reconciler, flow_of
from taint_eviction.core.take_backs import TakeBacks

# How often the eviction API is asked for a pod whose virtual machine moves away, at most.
_EVACUATION_SECONDS = 30.0


class Attempts:
    """Gives out work and takes in how it ended; see the module."""

    def __init__(
        self,
        pods: KnownPods,
        queue: EvictionQueue,
        breaker: Breaker,
        guards: Guards,
        reconciler: Reconciler,
        take_backs: TakeBacks,
    ) -> None:
        self._pods = pods
        self._queue = queue
        self._breaker = breaker
        self._guards = guards
        self._reconciler = reconciler
        self._take_backs = take_backs
        self._waiting_long: Mapping[str, int] = {}
        # Whether the last of retries and take-backs that was begun in turn, or looked for, was a take-back.
        self._takes_back = False

    # How it begins

    def next_at(self, now: Moment, retries: bool = True) -> float | None:
        """Say when something is due next, None if nothing is; ``retries`` False: of first tries alone."""
        stopped = not self._queue.any_due or self._stopped(now, bypasses_limits=True)
        only_bypassing = not stopped and self._stopped(now)
        instants = [self._queue.next_at(now.at, retries, stopped, only_bypassing)]
        if retries:
            instants.append(self._take_backs.next_at())
        return min((instant for instant in instants if instant is not None), default=None)

    def note_waiting(self, waiting_long: Mapping[str, int]) -> None:
        """Note how many attempts of each namespace wait long for an answer. The evictions of namespaces that hang come
        after all others of their kind; not while an open breaker blocks all but those that bypass limits.
        """
        self._waiting_long = waiting_long

    def take_due(self, now: Moment, max_works: int, max_retries: int) -> list[Work]:
        """Begin what is due, at most ``max_works``: first tries, then take-backs and retries in turn.

        Those that bypass limits go before all of these, their first tries before their retries. Evictions of one kind
        go in the order of ``fair_queue``. While limits let first tries go, and retries wait, each fourth is a retry; so
        it is in namespaces whose calls hang, and retries of others go before first tries there. At most ``max_retries``
        of all are retries or take-backs. Each is in flight until it is finished.
        """
        self._reconciler.advance(now)  # Moves no deadline, so there is no effect to report.
        only_bypassing = self._stopped(now)
        self._queue.put_last(frozenset() if only_bypassing else self._queue.hanging(self._waiting_long))
        # None may begin before the circuit breaker has evaluated what is new; while it is open, those that bypass
        # limits may.
        none = self._stopped(now, bypasses_limits=True) or (self._breaker.needs_evaluation and not only_bypassing)
        most = max_works if self._queue.any_due and not none else 0
        taken = self._begin_evictions(now, most, only_bypassing=True)
        retries = self._begin_evictions(now, min(most - len(taken), max_retries), only_bypassing=True, retry=True)
        taken += retries
        while len(taken) < most:
            begun: list[Work] = []
            if self._queue.owes_retry and len(retries) < max_retries:
                begun = self._begin_evictions(now, 1, only_bypassing, retry=True)
                retries += begun
            if not (begun := begun or self._begin_evictions(now, 1, only_bypassing)):
                break
            taken += begun
        room = min(max_works, len(taken) + max_retries - len(retries))
        while len(taken) < room:
            if not (begun := self._begin_in_turn(now, only_bypassing, may_retry=len(taken) < most)):
                break
            taken += begun
        return taken

    def _begin_in_turn(self, now: Moment, only_bypassing: bool, *, may_retry: bool) -> list[Work]:
        """Begin a take-back or a retry, in turn while both wait: many of one kind, which may hang, hold up none of the
        other.
        """
        for _ in range(2):
            self._takes_back = not self._takes_back
            if not self._takes_back:
                begun = self._begin_evictions(now, int(may_retry), only_bypassing, retry=True)
            else:
                ref = self._take_backs.pop_due(now.at)
                begun = [] if ref is None else [self._begin_take_back(ref)]
            if begun:
                return begun
        return []

    def _begin_evictions(self, now: Moment, most: int, only_bypassing: bool, *, retry: bool = False) -> list[Work]:
        """Begin first tries, or retries, at most this many."""
        begun: list[Work] = []
        while len(begun) < most and (taken := self._queue.take(now.at, retry, only_bypassing)) is not None:
            begun.append(self._begin_eviction(*taken, now))
        return begun

    def _stopped(self, now: Moment, bypasses_limits: bool = False) -> bool:
        return self._guards.blocking_all(now, bypasses_limits) is not None

    def _begin_eviction(self, record: PodRecord, tokens: tuple[Token, ...], now: Moment) -> Eviction:
        state, decision = record.state, record.decision
        assert isinstance(state, Queued), state
        assert decision is not None
        handling = self._reconciler.handling(record, decision, now)
        if handling.mode is EvictionMode.DELETE:
            record.restart_patience()  # A rule that deletes needs no patience with budgets.
        by_eviction_api = asks(handling, record.failures, now.at)
        tries, hung = (record.failures.tries, record.failures.hung) if record.failures else (0, 0)
        work = Eviction(record.ref, record.node_name, decision, record.pod.marked, tries, by_eviction_api, hung)
        self._take_backs.cancel(record)
        record.begin(work, state.schedule, tokens)
        return work

    def _begin_take_back(self, ref: PodRef) -> TakeBack:
        record = self._pods.find(ref)
        assert record is not None, ref
        known = self._pods.knows(record)
        work = TakeBack(ref, record.node_name if known else "", record.condition.tries)
        self._take_backs.cancel(record)
        record.take_back(work)
        return work

    # Before each call

    def recheck(self, work: Work, now: Moment) -> CalledOff | Suspended | None:
        """Say what keeps ``work``, in flight, from going on by what is known now; to be asked just before each call."""
        if isinstance(work, TakeBack):
            return None if self._goes_on(work) and self._due(self._record(work.ref), now) is None else CalledOff()
        record, state = self._in_flight(work.ref)
        found = self._due(record, now)
        # With another deadline it is another eviction: the breaker must count its taint, and it must stabilize.
        if found is None or found.decision.fire_at != work.decision.fire_at:
            return CalledOff()
        if found.decision.runs_from_start and not work.decision.runs_from_start:
            return CalledOff()  # Another taint decides now, and the reads did not show since when it has been there.
        record.want(found.decision, now.at)  # The reason may have changed; the last one is reported at the end.
        return None if self._may_go_on(record, found.handling, state, now) else Suspended()

    def _due(self, record: PodRecord, now: Moment) -> EffectiveTaint | None:
        """Return how a pod is to be evicted; None if it is not known, or not due now."""
        found = self._reconciler.decide_how(record, now) if self._pods.knows(record) else None
        return found if isinstance(found, EffectiveTaint) and found.decision.fire_at <= now.at else None

    def _may_go_on(self, record: PodRecord, handling: Handling, begun: InFlight, now: Moment) -> bool:
        """Return whether an eviction that was begun may still be sent: no guard blocks it, its rule still applies, and
        no pod of an earlier tier has to leave first.
        A change of policy also stops it: the limits of the new policy have not let it through. A pod that was blocked
        meanwhile is not deleted because budgets had refused it for long enough before.
        """
        flow = begun.schedule.flow
        if begun.tokens is None or flow != flow_of(record.pod, handling):
            return False
        is_same_call = begun.work.by_eviction_api >= asks(handling, record.failures, now.at)
        if self._queue.order.wait(record.ref, now.at) is not None:
            return False
        return is_same_call and self._guards.blocking(flow, now) is None

    def will_mark(self, ref: PodRef) -> None:
        """Note that a condition is about to be written: from here on it may be there, whatever the answer is."""
        record, state = self._in_flight(ref)
        record.will_mark(state)

    def may_be_marked_late(self, ref: PodRef, now: Moment) -> None:
        """Note that a request to set a condition had no answer: it may still arrive, also after a take-back."""
        record, _ = self._in_flight(ref)
        self._take_backs.may_come_late(record, now.at)

    def will_delete(self, ref: PodRef, now: Moment) -> None:
        """Note that a pod's deletion is about to be asked for: from here on it may be done, whatever the answer is."""
        record, state = self._in_flight(ref)
        record.will_delete(state)
        self._queue.send(state.tokens or (), now.at)

    def _in_flight(self, ref: PodRef) -> tuple[PodRecord, InFlight]:
        record = self._record(ref)
        if not isinstance(record.state, InFlight):
            raise ValueError(f"{ref} ({ref.uid}) is not in flight")
        return record, record.state

    def _record(self, ref: PodRef) -> PodRecord:
        record = self._pods.find(ref)
        if record is None:
            raise ValueError(f"{ref} ({ref.uid}) is not in flight")
        return record

    def _goes_on(self, work: TakeBack) -> bool:
        """Return whether a take-back was not overtaken."""
        record = self._pods.find(work.ref)
        return record is not None and record.taking_back is work

    # How it ended

    def finish(self, work: Work, outcome: WorkOutcome, now: Moment) -> list[Event]:
        """Take in how a piece of work that ``take_due`` began has ended, and decide anew on its pod."""
        if isinstance(work, TakeBack):
            if not self._goes_on(work):
                return []
            record = self._record(work.ref)
            record.take_back(None)
        else:
            record = self._end_eviction(work, outcome)
        match outcome:
            case Done():
                return self._done(record, work, now)
            case PodIsGone() if self._pods.knows(record):
                return self._reconciler.mark_gone(work.ref, now)
            case PodIsGone():
                return self._release(record, work, now, has_condition=False)
            case CalledOff() | CutOff() | Suspended():
                return self._resume(record, work, now)
            case Failed():
                return self._failed(record, work, outcome, now)
            case _:
                assert_never(outcome)

    def _end_eviction(self, work: Eviction, outcome: WorkOutcome) -> PodRecord:
        record, state = self._in_flight(work.ref)
        if state.work is not work:
            raise ValueError(f"{work.ref} ({work.ref.uid}) is finished but not in flight")
        record.undecide()
        refused = isinstance(outcome, Failed) and (outcome.refuses or outcome.certain)
        self._queue.end(state.tokens or (), ended_pod=not (refused or isinstance(outcome, PodIsGone)))
        return record

    def _done(self, record: PodRecord, work: Work, now: Moment) -> list[Event]:
        if isinstance(work, TakeBack):
            return self._resume(record, work, now, has_condition=not self._take_backs.ended(record, now.at))
        self._take_backs.forget(record)
        decision = record.decision or work.decision
        record.want_nothing()
        if self._pods.knows(record):
            record.delete(now.at)
        self._pods.forget(record)
        return self._reconciler.evicted(record, work.node_name, decision, now)

    def _failed(self, record: PodRecord, work: Work, outcome: Failed, now: Moment) -> list[Event]:
        if isinstance(work, TakeBack):
            if not self._pods.is_gone(record):
                self._take_backs.want_again(record, outcome.retry_at, work.tries + 1)
            return self._resume(record, work, now)
        failures = record.fail(work, self._unless_evacuating(record, work, outcome, now), now)
        effects = self._resume(record, work, now)
        if record.decision is not None:
            handling = self._reconciler.handling(record, record.decision, now)
            next_try_at = max(now.at, failures.next_try_at(handling, now.at))
            record.plan_pause(next_try_at - now.at)
            refused = Refused(
                work.ref,
                work.node_name,
                message=failures.message,
                tries=failures.tries,
                since_at=failures.since_at,
                retry_at=next_try_at,
                block=failures.block,
                decision=record.decision,
                controller=record.pod.controller,
            )
            effects.append(refused)
        return effects

    def _unless_evacuating(self, record: PodRecord, work: Eviction, outcome: Failed, now: Moment) -> Failed:
        """Return the outcome of an attempt, but no failure as long as the virtual machine in the pod moves away.

        Its budget refuses the pod meanwhile, too. Asking more often does not hasten that.
        """
        if not (work.by_eviction_api and outcome.refuses):
            return outcome
        if outcome.evacuates:
            record.evacuates(now.at)
        since, seconds = record.evacuating_since, self._reconciler.eviction_policy.background_timeout_seconds
        if since is None or now.at >= since + seconds:
            return outcome
        budget = outcome.block.budget if outcome.block is not None else ""
        retry_at = max(outcome.retry_at, now.at + _EVACUATION_SECONDS)
        return replace(outcome, block=Block(BlockReason.EVACUATION, budget), retry_at=retry_at)

    def _resume(self, record: PodRecord, work: Work, now: Moment, has_condition: bool = True) -> list[Event]:
        """Decide anew on the pod of a piece of work that has ended; release it if it is no longer known."""
        if self._pods.knows(record):
            return self._reconciler.reconcile(record, now)
        return self._release(record, work, now, has_condition)

    def _release(self, record: PodRecord, work: Work, now: Moment, has_condition: bool) -> list[Event]:
        """Release a pod that is no longer known, but for a condition that may still be on it."""
        gone = self._pods.is_gone(record) or not has_condition
        if gone:
            self._take_backs.forget(record)
        elif isinstance(work, TakeBack) or record.condition.may_be_there:
            self._take_backs.want(record, now.at)
        decision, controller = record.decision, record.pod.controller
        wanted = self._reconciler.release(record, now) != []
        if not wanted:
            return []
        reason = None if gone else self._why_released(record, now)
        return [Cancelled(work.ref, work.node_name, reason, None, decision, controller)]

    def _why_released(self, record: PodRecord, now: Moment) -> StayReason:
        """Return why a pod that may still exist is not watched: if not for itself, its node was clean at that time."""
        decision = self._reconciler.decide(record, now)
        return decision.reason if isinstance(decision, Stay) else StayReason.NODE_CLEAN
