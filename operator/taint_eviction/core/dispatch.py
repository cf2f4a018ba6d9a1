"""How and when a due pod may be evicted: by which call, in which flow, and what holds it back.
``deciding`` says which pods are to be evicted, and when they are due. This module applies the policy, the suspension
and the breaker to them, and advances the queue. It decides on no pod and makes no call.
"""

import math
from collections.abc import Iterator

from taint_eviction.core.breaker import Breaker
from taint_eviction.core.control_state import ControlState
from taint_eviction.core.decision import Evict
from taint_eviction.core.effects import Effect, Eviction
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.failed_attempts import asks
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.known_pods import KnownPods
from taint_eviction.core.limits import Token
from taint_eviction.core.pod_record import (
    InFlight,
    PendingState,
    PodRecord,
    Queued,
    Retrying,
    Schedule,
    Settling,
    Step,
    Waiting,
    WaitingState,
    WaitReason,
)
from taint_eviction.core.policy import (
    EvictionMode,
    EvictionPolicy,
    Handling,
    by_effective_taint,
    effective_taints,
    handling_of,
)
from taint_eviction.core.suspension import Suspension


class Dispatch:
    """Answers how and when pods are evicted; see the module."""

    def __init__(
        self,
        policy: EvictionPolicy,
        queue: EvictionQueue,
        breaker: Breaker,
        suspension: Suspension,
        nodes: KnownNodes,
        pods: KnownPods,
    ) -> None:
        self.policy = policy
        self._breaker = breaker
        self._suspension = suspension
        self._nodes = nodes
        self._pods = pods
        self._queue = queue

    # How

    def by_effective_taint(self, record: PodRecord, decision: Evict, now: Moment) -> Evict:
        """Return the decision with the taint that is effective now as ``deciding``."""
        if len(decision.verdicts) == 1:
            return decision  # Whatever its rule is.
        return by_effective_taint(decision, record.pod, self._policy_for(record), now.at)

    def _policy_for(self, record: PodRecord) -> EvictionPolicy:
        known = self._nodes.known.get(record.node_name)
        return self.policy.on(None if known is None else known.live_node)

    def handling(self, record: PodRecord, decision: Evict) -> Handling:
        """Return how the policy handles a pod that is to be evicted."""
        return handling_of(decision.deciding, record.pod, self._policy_for(record))

    def flow(self, record: PodRecord, decision: Evict) -> FlowKey:
        """Return the flow in which a pod to be evicted waits."""
        return _flow(record, self.handling(record, decision))

    def begin(self, record: PodRecord, decision: Evict, now: Moment) -> bool:
        """Return whether the attempt that begins now asks the eviction API.

        A rule that deletes needs no patience with budgets: it ends the series of refusals.
        """
        handling = self.handling(record, decision)
        if record.failures is not None and handling.mode is EvictionMode.DELETE:
            record.failures = record.failures.without_refusals
        return asks(handling, record.failures, now.at)

    # When

    def announce(self, record: PodRecord, decision: Evict, now: Moment) -> Schedule:
        """Announce to the breaker the taints that evict a pod; return its schedule: the flow, and when to begin."""
        policy = self._policy_for(record)
        in_turn = list(effective_taints(decision, record.pod, policy, now.at))
        for _, then in in_turn:
            self._tell_breaker(record, then)
        handling, failures = handling_of(decision.deciding, record.pod, policy), record.failures
        anew_at = in_turn[1][0] if len(in_turn) > 1 else None
        fire_at = decision.due_at
        if failures is not None:
            fire_at = max(fire_at, failures.next_try_at(handling, now.at))
        unanswered = failures is not None and failures.unanswered
        later = decision.deciding.came_later
        return Schedule(_flow(record, handling), fire_at, failures is not None, anew_at, unanswered, later)

    def _tell_breaker(self, record: PodRecord, decision: Evict) -> None:
        verdict = decision.deciding
        untolerated = verdict.toleration is None and not decision.held_seconds
        untolerated_since = record.bound.start_at if untolerated and record.bound is not None else math.inf
        self._breaker.evicts(record.node_name, verdict.taint, untolerated_since)

    def advance(self, now: Moment) -> None:
        """Advance the pods that are due by now."""
        if self._queue.advance(now.at, self._breaker.unlisted_since(self._nodes.known, now)):
            self._breaker.unready.news = True
        self._breaker.presume(self._queue.waited_until)

    def take(self, now: Moment, retry: bool, only_exempt: bool = False) -> tuple[PodRecord, tuple[Token, ...]] | None:
        """Take the next eviction, of first tries or of retries, with its tokens; None if none may begin.
        None may begin before the circuit breaker has evaluated what is new; while it is open, exempt ones may.
        """
        if self._stopped(exempt=True) or (self._breaker.has_news and not self._stopped()):
            return None
        return self._queue.take(now.at, retry, only_exempt or self._stopped())

    def next_at(self, now: float, retries: bool) -> float | None:
        """Return when an eviction next advances or may begin, None if none. ``retries`` False: first tries only."""
        stopped, only_exempt = self._stopped(exempt=True), self._stopped()
        return self._queue.next_at(now, retries, stopped=stopped, only_exempt=only_exempt)

    def _stopped(self, exempt: bool = False) -> bool:
        return self._suspension.of_cluster(exempt) is not None

    # What holds it back

    def wait_reason(self, record: PodRecord, decision: Evict) -> WaitReason | None:
        """Return why a pod to be evicted is held back: by people, a rule or the breaker; None if it is not."""
        return self._wait_reason_of(self.flow(record, decision))

    def _wait_reason_of(self, flow: FlowKey) -> WaitReason | None:
        return self._suspension.of_cluster(flow.exempt) or self._suspension.of_flow(flow)

    def may_go_on(self, record: PodRecord, decision: Evict, begun: InFlight, now: Moment) -> bool:
        """Return whether an eviction that was begun may still be sent: nothing holds it, and its rule still applies.
        A change of policy also stops it: the limits of the new policy have not let it through. A pod that was held
        meanwhile is not deleted because budgets had refused it for long enough before.
        """
        schedule, work = begun.schedule, begun.work
        handling = self.handling(record, decision)
        if schedule is None or begun.tokens is None or schedule.flow != _flow(record, handling):
            return False
        is_same_call = isinstance(work, Eviction) and work.by_eviction_api >= asks(handling, record.failures, now.at)
        return is_same_call and self._wait_reason_of(schedule.flow) is None

    def order(self, control_state: ControlState, now: Moment) -> list[Effect]:
        """Apply what people have ordered."""
        self.advance(now)  # A pause that ends now has held what is due by now, and people know of that.
        before, effects = self._suspension.control_state, self._suspension.order(control_state, now)
        if control_state != before:
            self._breaker.know_more(self._queue.reconsider())
            self._breaker.unready.news = True
        self._breaker.count_due(self._queue.due_together())
        return effects

    def evaluate(self, now: Moment) -> list[Effect]:
        """Let the circuit breaker evaluate the cluster; call this before taking work."""
        self.advance(now)
        return self._suspension.evaluate(self._nodes.known, self._queue.due_together(), now, self.evictions)

    def change_policy(self, policy: EvictionPolicy, now: Moment) -> None:
        """Apply another policy; the caller then schedules all wanted evictions again."""
        self.policy = policy
        self._suspension.change_policy(policy)
        self._queue.change_policy(policy, now.at)
        self._breaker.unready.news = True

    # Questions

    def evictions(self, node_name: str, due: bool) -> Iterator[PodRecord]:
        """Yield a node's pods that are to be evicted; ``due``: those that are about to be.

        These are due and their flow is not held, or they are in flight and their deletion has not been requested.
        """
        for record in self._pods.on_node(node_name):
            match record.state:
                case Settling(schedule=schedule) | Queued(schedule=schedule):
                    is_due = self._suspension.of_flow(schedule.flow) is None
                case InFlight(schedule=schedule, step=step):
                    is_due = schedule is not None and step is not Step.ENDING
                case _:
                    is_due = False
            if record.decision is not None and (is_due or not due):
                yield record

    def state(self, record: PodRecord, decision: Evict, now: Moment) -> PendingState:
        """Return the state of a pod that is to be evicted by this decision.
        This is the state in its record, brought up to now: a queue advances a pod only on request, and a standby seldom
        requests it. The reason that holds a flow is not in the records, because thousands of pods share it.
        """
        state = record.state
        if isinstance(state, InFlight):
            return state
        assert isinstance(state, WaitingState), state
        if decision.fire_at > now.at:
            return Waiting(decision.fire_at, state.schedule)
        if (wait_reason := self.wait_reason(record, decision)) is not None:
            return Queued(state.schedule, wait_reason)
        if isinstance(state, Waiting) or (isinstance(state, Retrying) and state.at <= now.at):
            state = self._queue.after(state)
        if isinstance(state, Settling) and state.until <= now.at:
            return Queued(state.schedule, WaitReason.UNLISTED)
        return state


def _flow(record: PodRecord, handling: Handling) -> FlowKey:
    rule = "" if handling.rule is None else handling.rule.name
    return FlowKey(record.node_name, record.ref.key.namespace, rule, handling.exempt)
