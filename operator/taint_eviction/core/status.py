"""The core's answers to questions: which pods are to be evicted, in which state, and why.
Questions change nothing. ``reporting`` turns the answers into documents.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import assert_never

from taint_eviction.core.breaker import Breaker, TaintSurge
from taint_eviction.core.breaker_table import (
    Criterion,
    NotCounted,
    ZoneRow,
    counted_nodes,
    criteria,
    uncounted_nodes,
    zone_rows,
)
from taint_eviction.core.control_state import ControlState, Pause, PauseScope, Release
from taint_eviction.core.decision import Decision, Evict, Stay, StayReason
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.guards import GuardList, Guards, WaitReason
from taint_eviction.core.instants import Moment, sight
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.leaving_order import TierWait
from taint_eviction.core.objects import NamespacedName, Pod
from taint_eviction.core.out_of_service import OutOfServiceNodes
from taint_eviction.core.pods import (
    FailedAttempts,
    Following,
    InFlight,
    KnownPods,
    PendingState,
    PodRecord,
    Queued,
    Retrying,
    Schedule,
    Stabilizing,
    Waiting,
    WaitingState,
    eviction_api_until,
)
from taint_eviction.core.policy import EvictionPolicy, Handling
from taint_eviction.core.reconciler import Reconciler, flow_of
from taint_eviction.core.sentences import out_of_service_note, shutting_down_note

# Of more nodes than these, people need no line each.
_MAX_SHUTTING_DOWN = 5


@dataclass(frozen=True, slots=True)
class Pending:
    """A pod that has a deadline or is being evicted.

    ``state``: that of its record. ``wait_reason``: why the due pod is not evicted now, None: it is not due, is being
    evicted, or waits for its next try. ``eviction_api_until``: until when the eviction API is used, as far as is known
    now (infinite: indefinitely). ``tier_wait``: for whom it waits, None: for no pod of an earlier tier.
    """

    record: PodRecord
    decision: Evict
    handling: Handling
    state: PendingState
    wait_reason: WaitReason | None
    failures: FailedAttempts | None
    eviction_api_until: float
    tier_wait: TierWait | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything known about one pod and its decision.
    ``pending`` None: the pod stays, or its deletion was already accepted. ``held_later``: what would block it if it
    were due now, None: nothing, or it is due.
    """

    record: PodRecord
    decision: Decision
    pending: Pending | None
    held_later: WaitReason | None = None


class Status:
    """Answers questions about the pods, and about what blocks their evictions."""

    def __init__(
        self,
        nodes: KnownNodes,
        pods: KnownPods,
        reconciler: Reconciler,
        queue: EvictionQueue,
        *,
        breaker: Breaker,
        guards: Guards,
        out_of_service: OutOfServiceNodes,
    ) -> None:
        self.nodes = nodes
        self.breaker = breaker
        self._pods = pods
        self._reconciler = reconciler
        self._queue = queue
        self._guards = guards
        self._out_of_service = out_of_service

    @property
    def policy(self) -> EvictionPolicy:
        """The eviction policy in force."""
        return self._reconciler.eviction_policy

    @property
    def control_state(self) -> ControlState | None:
        """What people have ordered, None while it is not known."""
        return self._guards.control_state

    def surge(self, now: Moment) -> TaintSurge:
        """Return what the circuit breaker counts; only outages that cause evictions count."""
        surge = self.breaker.surge(self.nodes.known, self._queue.due_together(), now)
        counted = counted_nodes(self.breaker, self.nodes.known, self._reconciler.evictions, now)
        return replace(surge, lifecycle_nodes=len(counted))

    def zones(self, now: Moment) -> list[ZoneRow]:
        """Return the breaker's counts by zone."""
        return zone_rows(self.breaker, self.nodes.known, self._reconciler.evictions, now)

    def uncounted(self, now: Moment) -> dict[NotCounted, list[str]]:
        """Return, by reason, the nodes that are tainted or not ready and that the breaker does not count."""
        counted = counted_nodes(self.breaker, self.nodes.known, self._reconciler.evictions, now)
        return uncounted_nodes(self.breaker, self.nodes.known, counted, self._reconciler.evictions, now)

    def criteria(self, now: Moment) -> list[Criterion]:
        """Return what opens the breaker, each as it is now."""
        return criteria(self.breaker, self.surge(now), self.zones(now), self.uncounted(now), self.nodes.known)

    def out_of_service_notes(self) -> dict[str, str]:
        """Return what people should know about nodes with the taint out-of-service, if anything, by node name."""
        known = self.nodes.known
        notes = ((name, out_of_service_note(known[name].node)) for name in self._out_of_service.names())
        return {name: note for name, note in notes if note}

    def shutting_down_notes(self, now: Moment) -> dict[str, str]:
        """Return what becomes of the pods of tainted nodes that shut down gracefully, by node name; some of these."""
        names = (name for name in self.nodes.tainted() if self.nodes.known[name].shutting_down)
        return {
            name: shutting_down_note(self._left_to_kubelet(name, now)) for name in islice(names, _MAX_SHUTTING_DOWN)
        }

    def _left_to_kubelet(self, name: str, now: Moment) -> int:
        decisions = (self._reconciler.decide(record, now) for record in self._pods.on_node(name))
        return sum(isinstance(each, Stay) and each.reason is StayReason.SHUTTING_DOWN for each in decisions)

    def ready_out_of_service_count(self) -> int:
        """Count the nodes that are ready although they have the taint out-of-service."""
        return sum(self.nodes.known[name].node.is_ready for name in self._out_of_service.names())

    def due_count(self) -> int:
        """Count the due pods that have not been attempted, without those that are held."""
        return self._queue.due()

    def waiting_counts(self, now: Moment) -> Counter[WaitReason]:
        """Count the due pods that wait, retries included, by the reason they wait for; looks at each pod."""
        states = [record.state for record in self._pods]
        counts = Counter({WaitReason.SETTLING: sum(isinstance(state, Stabilizing) for state in states)})
        for places, reason in ((Queued, WaitReason.LIMITED), (Following, WaitReason.EARLIER_TIER)):
            flows = Counter(state.schedule.flow for state in states if isinstance(state, places))
            for flow, count in flows.items():
                counts[self._guards.blocking(flow, now) or reason] += count
        return counts

    def failures(self, *, unblocked_at: Moment | None = None) -> list[FailedAttempts]:
        """Return the failed attempts of all pods still to be evicted; only of those that no guard blocks at a moment,
        and that do not wait for pods of earlier tiers, if one is given.
        """
        return [
            record.failures
            for record in self._pods
            if record.failures is not None and (unblocked_at is None or not self._is_blocked(record, unblocked_at))
        ]

    def _is_blocked(self, record: PodRecord, now: Moment) -> bool:
        if isinstance(record.state, Following):
            return True
        return record.decision is not None and self._reconciler.blocking(record, record.decision, now) is not None

    def says(self, reason: WaitReason, pending: Pending, now: Moment) -> tuple[str, Pause]:
        """Return as a sentence why a pod waits, and since and until when, why, and by whom it is blocked, if known."""
        guard, flow = self._guards.of(reason), flow_of(pending.record.pod, pending.handling)
        return (reason.value, Pause()) if guard is None else (guard.text(flow), guard.says(flow, now) or Pause())

    def loop_count(self, now: Moment) -> int:
        """Count the pairs of a DaemonSet and a node where this process evicts its pods again and again."""
        return self._reconciler.loops.count(now)

    def pending_count(self) -> int:
        """Count the pods that have a deadline or are being evicted."""
        return sum(record.decision is not None for record in self._pods)

    def known_keys(self) -> tuple[NamespacedName, ...]:
        """Return the names of all known pods."""
        return tuple(self._pods.known)

    def pending(self, now: Moment, keys: Iterable[NamespacedName] | None = None) -> Iterator[Pending]:
        """Yield the pods with these names (None: all) that have a deadline or are being evicted."""
        for key in self._pods.known if keys is None else keys:
            record = self._pods.known.get(key)
            if record is not None and record.decision is not None:
                yield self._pending(record, record.decision, now)

    def _pending(self, record: PodRecord, wanted: Evict, now: Moment) -> Pending:
        _, decision, handling = self._reconciler.effective_taint(record, wanted, now)
        state, wait_reason = self._state(record, decision, now)
        tier_wait = None
        if wait_reason is WaitReason.LIMITED and (tier_wait := self._queue.order.wait(record.ref, now.at)) is not None:
            wait_reason = WaitReason.EARLIER_TIER
        until = min(eviction_api_until(handling, record.failures), self._reconciler.deletes_at(record, decision, now))
        return Pending(record, decision, handling, state, wait_reason, record.failures, until, tier_wait)

    def _state(self, record: PodRecord, decision: Evict, now: Moment) -> tuple[PendingState, WaitReason | None]:
        """Return the state of a pod that is to be evicted by this decision, and why it waits though it is due.
        This is the state in its record, brought up to now: a queue advances a pod only on request, and a standby seldom
        requests it.
        """
        state = record.state
        if isinstance(state, InFlight):
            return state, None
        assert isinstance(state, WaitingState), state
        if decision.fire_at > now.at:
            return Waiting(decision.fire_at, state.schedule), None
        if (wait_reason := self._reconciler.blocking(record, decision, now)) is not None:
            return Queued(state.schedule), wait_reason
        if isinstance(state, Waiting) or (isinstance(state, Retrying) and state.at <= now.at):
            state = self._queue.after(state)
        match state:
            case Stabilizing() if state.until <= now.at:
                return Queued(state.schedule), WaitReason.UNLISTED
            case Stabilizing():
                return state, WaitReason.SETTLING
            case Queued() | Following():
                return Queued(state.schedule), WaitReason.LIMITED
            case Retrying():
                return state, None
            case _:
                assert_never(state)

    def supposing(self, release: Release) -> GuardList:
        """Return the guards as they would be if people released evictions in this way."""
        kinds = {scope.kind for scope in release.only}
        existing = {PauseScope("node", name) for name in self.nodes.known} if "node" in kinds else set()
        if "namespace" in kinds:
            existing |= {PauseScope("namespace", key.namespace) for key in self._pods.known}
        return self._guards.supposing(lambda state: release.after(state, existing))

    def is_released(self, pending: Pending, guards: GuardList, now: Moment) -> bool | None:
        """Return whether these guards would let a pod go that is due and blocked; None: it is not due and blocked."""
        if pending.wait_reason is None or pending.wait_reason.is_place:
            return None
        return guards.blocking(flow_of(pending.record.pod, pending.handling), now) is None

    def explain(self, key: NamespacedName, now: Moment) -> Explanation | None:
        """Return the explanation of the pod with this name; None if it is not known."""
        record = self._pods.known.get(key)
        if record is None:
            return None
        pending = None if record.decision is None else self._pending(record, record.decision, now)
        held_later = None
        if pending is not None and isinstance(pending.state, Waiting):
            held_later = self._reconciler.blocking(record, pending.decision, now)
        return Explanation(record, self._reconciler.decide(record, now), pending, held_later)

    def as_if_alive(self, pod: Pod, now: Moment) -> Explanation:
        """Return the explanation for a pod as if it were first seen now and were not terminating."""
        bound = None if pod.node_name is None else sight(now, pod.bound_at, pod.bound_time_source)
        record = PodRecord(replace(pod, terminating=False), now.at, bound)
        decision = self._reconciler.decide(record, now)
        if isinstance(decision, Stay):
            return Explanation(record, decision, None)
        flow, is_due = self._reconciler.flow(record, decision, now), decision.fire_at <= now.at
        schedule = Schedule(flow, decision.fire_at, False, None)
        state: PendingState = Waiting(decision.fire_at, schedule)
        wait_reason = self._guards.blocking(flow, now) if is_due else None
        if wait_reason is not None:
            state = Queued(schedule)
        elif is_due and self.breaker.policy.enabled:
            state, wait_reason = Stabilizing(math.inf, schedule), WaitReason.SETTLING
        handling = self._reconciler.handling(record, decision, now)
        return Explanation(record, decision, Pending(record, decision, handling, state, wait_reason, None, math.inf))
