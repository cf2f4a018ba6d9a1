"""What the core says of itself when it is asked: which pods are to be evicted, in which state, and why.

Asking changes nothing. Not here: how it is written (``adapters``).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from taint_eviction.core.breaker import Breaker, TaintSurge
from taint_eviction.core.breaker_table import ZoneRow, counted_nodes, zone_rows
from taint_eviction.core.control_state import ControlState
from taint_eviction.core.deciding import Deciding
from taint_eviction.core.decision import Decision, Evict, Stay
from taint_eviction.core.dispatch import Dispatch
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.failed_attempts import FailedAttempts, asks_until
from taint_eviction.core.instants import Moment, sight
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.known_pods import KnownPods
from taint_eviction.core.objects import NamespacedName, Pod
from taint_eviction.core.out_of_service import OutOfServiceNodes
from taint_eviction.core.pod_record import (
    InFlight,
    PendingState,
    PodRecord,
    Queued,
    Retrying,
    Schedule,
    Settling,
    Waiting,
    WaitReason,
)
from taint_eviction.core.policy import EvictionPolicy, Handling
from taint_eviction.core.sentences import out_of_service_note
from taint_eviction.core.suspension import Suspension
from taint_eviction.core.uncounted_nodes import NotCounted, uncounted_nodes


@dataclass(frozen=True, slots=True)
class Pending:
    """A pod that has a deadline or is being evicted.

    ``state``: that of its record, with what holds it back now. ``asks_until``: until when the eviction API is asked, as
    far as is known now (infinite: indefinitely).
    """

    record: PodRecord
    decision: Evict
    handling: Handling
    state: PendingState
    failures: FailedAttempts | None
    asks_until: float

    @property
    def wait_reason(self) -> WaitReason | None:
        """What holds it back though it is due, None if nothing does."""
        match self.state:
            case Queued(wait_reason=wait_reason):
                return wait_reason
            case Settling():
                return WaitReason.SETTLING
            case Waiting() | Retrying() | InFlight():
                return None
            case _:
                assert_never(self.state)


@dataclass(frozen=True, slots=True)
class Explanation:
    """All there is to say about one known pod.

    ``pending`` None: it stays, or its deletion was accepted already.
    """

    record: PodRecord
    decision: Decision
    pending: Pending | None


class Status:
    """Answers questions about the pods, and about what holds their evictions back."""

    def __init__(
        self,
        nodes: KnownNodes,
        pods: KnownPods,
        deciding: Deciding,
        queue: EvictionQueue,
        *,
        dispatch: Dispatch,
        breaker: Breaker,
        suspension: Suspension,
        out_of_service: OutOfServiceNodes,
    ) -> None:
        self.nodes = nodes
        self.breaker = breaker
        self._pods = pods
        self._deciding = deciding
        self._queue = queue
        self._dispatch = dispatch
        self._suspension = suspension
        self._out_of_service = out_of_service

    @property
    def policy(self) -> EvictionPolicy:
        """The policy of evicting that holds now."""
        return self._dispatch.policy

    @property
    def control_state(self) -> ControlState | None:
        """What people have ordered, None while that is not known."""
        return self._suspension.control_state

    def surge(self, now: Moment) -> TaintSurge:
        """Say what the circuit breaker sees; of outages those because of which pods are to be evicted."""
        surge = self.breaker.surge(self.nodes.known, self._queue.due(exempt=False), now)
        counted = counted_nodes(self.breaker, self.nodes.known, self._dispatch.evictions, now)
        return replace(surge, lifecycle_nodes=len(counted))

    def zones(self, now: Moment) -> list[ZoneRow]:
        """Say the same by zone."""
        return zone_rows(self.breaker, self.nodes.known, self._dispatch.evictions, now)

    def uncounted(self, now: Moment) -> dict[NotCounted, list[str]]:
        """Name by reason the nodes that are tainted or not ready and that the breaker does not count."""
        counted = counted_nodes(self.breaker, self.nodes.known, self._dispatch.evictions, now)
        return uncounted_nodes(self.breaker, self.nodes.known, counted, self._dispatch.evictions, now)

    def out_of_service_notes(self) -> dict[str, str]:
        """Say by the name of each node with the taint out-of-service what somebody should know of it, if anything."""
        known = self.nodes.known
        notes = ((name, out_of_service_note(known[name].node)) for name in self._out_of_service.names())
        return {name: note for name, note in notes if note}

    def ready_out_of_service_count(self) -> int:
        """Count the nodes that are ready though they have the taint out-of-service."""
        return sum(self.nodes.known[name].node.is_ready for name in self._out_of_service.names())

    def due_count(self) -> int:
        """Count the pods that are due and have not been attempted, held ones left out."""
        return self._queue.due()

    def waiting_counts(self) -> Counter[WaitReason]:
        """Count the pods that are due and wait, retries included, by what they wait for; costs a look at each pod."""
        states = [record.state for record in self._pods]
        flows = Counter(state.schedule.flow for state in states if isinstance(state, Queued))
        counts = Counter({WaitReason.SETTLING: sum(isinstance(state, Settling) for state in states)})
        for flow, count in flows.items():
            held = self._suspension.of_cluster(flow.exempt) or self._suspension.of_flow(flow)
            counts[held or WaitReason.LIMITED] += count
        return counts

    def failures(self, *, held: bool = True) -> list[FailedAttempts]:
        """List the failed attempts at all pods that are still to be evicted, those included that are held, or not."""
        return [each.failures for each in self._pods if each.failures is not None and (held or not self._is_held(each))]

    def _is_held(self, record: PodRecord) -> bool:
        return record.decision is not None and self._dispatch.wait_reason(record, record.decision) is not None

    def loop_count(self, now: Moment) -> int:
        """Count the DaemonSets, once for each node, whose pods this process evicts there again and again."""
        return self._deciding.loops.count(now)

    def pending_count(self) -> int:
        """Count the pods that have a deadline or are being evicted."""
        return sum(record.decision is not None for record in self._pods)

    def known_keys(self) -> tuple[NamespacedName, ...]:
        """List the names of all known pods."""
        return tuple(self._pods.known)

    def pending(self, now: Moment, keys: Iterable[NamespacedName] | None = None) -> Iterator[Pending]:
        """Go through the pods of these names, None: all, that have a deadline or are being evicted."""
        for key in self._pods.known if keys is None else keys:
            record = self._pods.known.get(key)
            if record is not None and record.decision is not None:
                yield self._pending(record, record.decision, now)

    def _pending(self, record: PodRecord, wanted: Evict, now: Moment) -> Pending:
        decision = self._dispatch.governed(record, wanted, now)
        handling = self._dispatch.handling(record, decision)
        state = self._dispatch.state(record, decision, now)
        return Pending(record, decision, handling, state, record.failures, asks_until(handling, record.failures))

    def explain(self, key: NamespacedName, now: Moment) -> Explanation | None:
        """Say all there is to say about the pod of this name; None if it is not known."""
        record = self._pods.known.get(key)
        if record is None:
            return None
        pending = None if record.decision is None else self._pending(record, record.decision, now)
        return Explanation(record, self._deciding.decide(record, now), pending)

    def as_if_alive(self, pod: Pod, now: Moment) -> Explanation:
        """Say what there would be to say about a pod that is seen for the first time, if it were not terminating."""
        bound = None if pod.node_name is None else sight(now, pod.bound_at, pod.bound_time_source)
        record = PodRecord(replace(pod, terminating=False), now.at, bound)
        decision = self._deciding.decide(record, now)
        if isinstance(decision, Stay):
            return Explanation(record, decision, None)
        schedule = Schedule(self._dispatch.flow(record, decision), decision.fire_at, False, None)
        settles = self.breaker.policy.enabled and decision.fire_at <= now.at
        record.state = Settling(math.inf, schedule) if settles else Waiting(decision.fire_at, schedule)
        handling, held = self._dispatch.handling(record, decision), self._dispatch.wait_reason(record, decision)
        state = Queued(schedule, held) if held is not None and decision.fire_at <= now.at else record.state
        return Explanation(record, decision, Pending(record, decision, handling, state, None, math.inf))
