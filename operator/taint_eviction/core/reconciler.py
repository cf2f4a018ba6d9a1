"""Brings each pod's record in line with what is known: evict the pod, how and when, keep it, or end its record.
Level-triggered: whatever has happened, ``reconcile`` decides from what is known now, to evict or to stay, also when a
deadline has passed. While work for a pod is in flight, nothing else is scheduled for the pod: finishing that work
decides again. This module carries nothing out (``attempts``).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from taint_eviction.core.breaker import Breaker
from taint_eviction.core.decision import Decision, DecisionPolicy, Evict, Stay, StayReason, decide, no_ceiling
from taint_eviction.core.events import Cancelled, Event, Evicted, EvictionLoop, Scheduled
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.guards import Guards, WaitReason
from taint_eviction.core.instants import BEHIND_SECONDS, Moment, Sighting
from taint_eviction.core.known_nodes import KnownNode, KnownNodes
from taint_eviction.core.leaving_order import PAST_GRACE_SECONDS, Leaving
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.core.pods import (
    Deleted,
    InFlight,
    KnownPods,
    PodRecord,
    Queued,
    Schedule,
    Stabilizing,
    Stays,
    Step,
)
from taint_eviction.core.policy import (
    EffectiveTaint,
    EvictionPolicy,
    Handling,
    effective_taint,
    effective_taints,
    first_unpaused,
    handling_of,
    tier_in,
)
from taint_eviction.core.sentences import stabilized
from taint_eviction.core.take_backs import TakeBacks
from taint_eviction.core.tiers import Order, Tier, tier_of
from taint_eviction.core.warnings import EvictionLoops

# An eviction that is so late was held by something.
_LATE_SECONDS = 1.0


class Reconciler:
    """Decides on pods; see the module.

    ``dry_run``: finished work has changed nothing. So a pod that was "evicted" is left alone until its eviction is
    cancelled, and no condition is ever taken back.
    """

    def __init__(
        self,
        policy: DecisionPolicy,
        eviction_policy: EvictionPolicy,
        nodes: KnownNodes,
        pods: KnownPods,
        queue: EvictionQueue,
        *,
        breaker: Breaker,
        guards: Guards,
        take_backs: TakeBacks,
        dry_run: bool,
    ) -> None:
        self.dry_run = dry_run
        self.eviction_policy = eviction_policy
        self.loops = EvictionLoops()
        self._policy = policy
        self._nodes = nodes
        self._pods = pods
        self._queue = queue
        self._breaker = breaker
        self._guards = guards
        self._take_backs = take_backs

    # Questions

    def decide(self, record: PodRecord, now: Moment) -> Decision:
        """Return when and why a pod is to be evicted, or why it stays, from what is known now. Changes nothing."""
        found = self.decide_how(record, now)
        return found if isinstance(found, Stay) else found.decision

    def decide_how(self, record: PodRecord, now: Moment) -> Stay | EffectiveTaint:
        """Return why a pod stays, or how it is to be evicted, from what is known now. Changes nothing."""
        decision, policy = self._decide(record)
        return decision if isinstance(decision, Stay) else effective_taint(decision, record.pod, policy, now.at)

    def _decide(self, record: PodRecord) -> tuple[Decision, EvictionPolicy]:
        """Decide on a pod by what is known of its node; return the policy that applies there, too."""
        known = self._nodes.known.get(record.node_name)
        policy = policy_on(known, self.eviction_policy)
        return decide_on(record.pod, record.bound, known, self._policy, policy), policy

    def effective_taint(self, record: PodRecord, decision: Evict, now: Moment) -> EffectiveTaint:
        """Return the taint that is effective now, of those because of which a pod is to be evicted."""
        return effective_taint(decision, record.pod, self._policy_for(record), now.at)

    def _policy_for(self, record: PodRecord) -> EvictionPolicy:
        return policy_on(self._nodes.known.get(record.node_name), self.eviction_policy)

    def handling(self, record: PodRecord, decision: Evict, now: Moment) -> Handling:
        """Return how the policy handles a pod that is to be evicted: now, or at its deadline."""
        return handling_of(decision.deciding, record.pod, self._policy_for(record), max(now.at, decision.fire_at))

    def deletes_at(self, record: PodRecord, decision: Evict, now: Moment) -> float:
        """Return from when on a pod that is to be evicted is deleted because its node is lost; infinite: never."""
        policy, at = self._policy_for(record), max(now.at, decision.fire_at)
        if policy.lost_at == math.inf:
            return math.inf
        changes = effective_taints(decision, record.pod, policy, at)
        return next((each.at for each in changes if each.handling.node_lost), math.inf)

    def flow(self, record: PodRecord, decision: Evict, now: Moment) -> FlowKey:
        """Return the flow in which a pod to be evicted waits."""
        return flow_of(record.pod, self.handling(record, decision, now))

    def blocking(self, record: PodRecord, decision: Evict, now: Moment) -> WaitReason | None:
        """Return why a pod to be evicted is blocked; None if it is not."""
        return self._guards.blocking(self.flow(record, decision, now), now)

    def evictions(self, node_name: str, due: bool) -> Iterator[PodRecord]:
        """Yield a node's pods that are to be evicted; ``due``: those that are about to be, and may open the breaker.

        These are due and no guard blocks their flow, or they are in flight and their deletion has not been requested;
        and their owner has neither brought nor changed them after the taint.
        """
        for record in self._pods.on_node(node_name):
            match record.state:
                case Stabilizing(schedule=schedule) | Queued(schedule=schedule):
                    is_due = self._guards.blocking_flow(schedule.flow) is None
                case InFlight(step=step):
                    is_due = step is not Step.ENDING
                case _:
                    is_due = False
            decision = record.decision
            if decision is not None and (not due or (is_due and not record.is_by_owner(decision))):
                yield record

    # Pods that are known

    def reconcile(self, record: PodRecord, now: Moment) -> list[Event]:
        """Bring the schedule and the take-back of one known pod in line with what is known now."""
        effects: list[Event] = []
        if isinstance(record.state, InFlight):
            self._interrupt_patience(record, now)  # Its attempt decides again before each call, and comes back here.
        else:
            effects = self._reconcile(record, now)
        self._note_order(record, now)
        return effects

    def _reconcile(self, record: PodRecord, now: Moment) -> list[Event]:
        decision, policy = self._decide(record)
        due = isinstance(decision, Evict) and decision.fire_at <= now.at
        if self.dry_run and not due:
            record.undelete()
        reported = self.dry_run and due and _is_reported(record, decision)
        if reported and isinstance(record.state, Stays):
            record.delete(now.at)  # The taint was away for a moment and has kept its start.
        deleted = isinstance(record.state, Deleted)
        if isinstance(decision, Evict) and not deleted:
            self._want_take_back(record, not due and record.condition.may_be_there, now)
            effects = self._schedule(record, decision, policy, now)
            if reported:  # The deadline was another one for a moment.
                self._queue.cancel(record)
                record.want_nothing()
                record.delete(now.at)
            return effects
        alive = not record.pod.terminating and not deleted
        self._want_take_back(record, alive and (record.pod.marked or record.condition.may_be_there), now)
        return self._unschedule(record, decision.reason if isinstance(decision, Stay) else None, now)

    def reconcile_all(self, records: Iterable[PodRecord], now: Moment) -> list[Event]:
        """Reconcile several pods."""
        return [effect for record in records for effect in self.reconcile(record, now)]

    def reconcile_failing(self, now: Moment) -> list[Event]:
        """Reconcile the pods whose eviction has failed so far."""
        return self.reconcile_all([each for each in self._pods.known.values() if each.failures is not None], now)

    def advance(self, now: Moment) -> list[Event]:
        """Reconcile the waiting pods with another effective taint by now, and advance all that are due by now."""
        effects: list[Event] = []
        while (record := self._queue.pop_taint_change(now.at)) is not None:
            effects += self.reconcile(record, now)
        if self._queue.advance(now.at, self._breaker.unlisted_since(self._nodes.known, now)):
            self._breaker.unready.dirty = True
        self._breaker.lists_overdue(self._queue.waited_until)
        return effects

    def _schedule(self, record: PodRecord, decision: Evict, policy: EvictionPolicy, now: Moment) -> list[Event]:
        before = record.decision
        in_turn = list(effective_taints(decision, record.pod, policy, now.at))
        by_owner = [record.is_by_owner(each.decision) for each in in_turn]
        decision = in_turn[0].decision
        record.want(decision, now.at)
        self._interrupt_patience(record, now)
        self._queue.schedule(record, self._announce(record, in_turn, by_owner, now), now.at)
        if before is not None and before.fire_at == decision.fire_at:
            return []
        return [Scheduled(record.ref, record.node_name, decision, before.fire_at if before else None)]

    def _announce(
        self, record: PodRecord, in_turn: Sequence[EffectiveTaint], by_owner: Sequence[bool], now: Moment
    ) -> Schedule:
        """Announce to the breaker the taints that evict a pod in turn; return its schedule: the flow, and when to
        begin. ``by_owner``: of each taint, see ``PodRecord.is_by_owner``.
        """
        for each, is_by_owner in zip(in_turn, by_owner, strict=True):
            if not is_by_owner:
                self._tell_breaker(record, each.decision)
        _, decision, handling = in_turn[0]
        flow, failures = flow_of(record.pod, handling), record.failures
        next_taint_at = in_turn[1].at if len(in_turn) > 1 else None
        fire_at = decision.due_at
        if failures is not None:
            fire_at = max(fire_at, failures.next_try_at(handling, now.at))
        unanswered = failures is not None and failures.unanswered
        return Schedule(flow, fire_at, failures is not None, next_taint_at, unanswered, came_later=by_owner[0])

    def _tell_breaker(self, record: PodRecord, decision: Evict) -> None:
        verdict = decision.deciding
        untolerated = verdict.toleration is None and not decision.held_seconds
        untolerated_since = record.bound.start_at if untolerated and record.bound is not None else math.inf
        self._breaker.evicts(record.node_name, verdict.taint, untolerated_since)

    def _interrupt_patience(self, record: PodRecord, now: Moment) -> None:
        """Restart the patience with budgets if a pod is blocked: no budget refuses it meanwhile."""
        decision = record.decision
        if record.failures is not None and decision is not None and self.blocking(record, decision, now) is not None:
            record.restart_patience()

    def _unschedule(self, record: PodRecord, reason: StayReason | None, now: Moment) -> list[Event]:
        self._queue.cancel(record)
        decision, deletion_requested = record.decision, record.deletion_requested
        record.want_nothing()
        record.stay(reason)
        if decision is None:
            return []
        if deletion_requested and reason is StayReason.TERMINATING:
            return self.evicted(record, record.node_name, decision, now)
        late_seconds, controller = now.at - decision.fire_at, record.pod.controller
        return [Cancelled(record.ref, record.node_name, reason, late_seconds, decision, controller)]

    def evicted(self, record: PodRecord, node_name: str, decision: Evict, now: Moment) -> list[Event]:
        """Return the effects of an eviction from this node that has just succeeded, and of an eviction loop if it shows
        one.
        """
        record.report(decision)
        self._note_order(record, now)
        controller, late_seconds = record.pod.controller, max(0.0, now.at - decision.due_at)
        held_by: tuple[str, ...] = ()
        if late_seconds >= _LATE_SECONDS:
            flow, waited = self.flow(record, decision, now), self._queue.stabilizing_seconds
            held_by = self._guards.blocked_by(flow, decision.due_at, now.at)
            if not held_by and 0 < waited <= late_seconds < waited + _LATE_SECONDS and not flow.bypasses_limits:
                held_by = (stabilized(waited),)
        effects: list[Event] = [Evicted(record.ref, node_name, decision, late_seconds, controller, held_by)]
        # In a dry run no pod is recreated: the same pod would be counted.
        loops = not self.dry_run and self.loops.evicted(record.ref.key.namespace, controller, node_name, now)
        if loops and controller is not None:
            effects.append(EvictionLoop(record.ref, node_name, controller, decision.deciding.taint))
        return effects

    def _note_order(self, record: PodRecord, now: Moment) -> None:
        """Note for whom other pods of the node wait; a pod that is not there any more has been forgotten."""
        order = self._queue.order
        if not order.enabled:
            return
        pod, decision = record.pod, record.decision
        accepted = record.deleted and not self.dry_run
        if not self._pods.knows(record) or not (decision is not None or pod.terminating or accepted):
            order.forget(record.ref)
            return
        due_at, ends_at, flow = -math.inf, math.inf, None
        created_at = -math.inf
        if pod.created_at is not None and now.dates_objects:
            # The server's time may be ahead of what is known of it: then the pod is older than it seems.
            created_at = now.instant_of(pod.created_at) - BEHIND_SECONDS
        if decision is not None:
            handling = self.handling(record, decision, now)
            due_at, tier = self._waits_from(record, decision, now), tier_in(pod, handling)
            flow = flow_of(pod, handling) if handling.order is Order.TIERS else None
        else:
            tier = self._tier_of_ending(record, now)
            if pod.terminating:
                ends_at = _grace_ends_at(pod, now) + PAST_GRACE_SECONDS
        leaving = Leaving(record.ref, record.node_name, tier, due_at, created_at, ends_at, flow)
        order.note(leaving, pod.grace_seconds, now.at)

    def _waits_from(self, record: PodRecord, decision: Evict, now: Moment) -> float:
        """Return since when a pod has been due by a taint whose rule does not pause it; its deadline if by none yet."""
        unpaused_at = first_unpaused(decision, record.pod, self._policy_for(record)).fire_at
        return unpaused_at if unpaused_at <= now.at else decision.fire_at

    def _tier_of_ending(self, record: PodRecord, now: Moment) -> Tier:
        """Return the tier of a pod that is being deleted: no taint decides, so any rule for a taint of its node may
        name it.
        """
        for seen in self._nodes.taints_on(record.node_name) or ():
            handling = self._policy_for(record).handling(seen.taint.key, record.pod, now.at)
            if handling.rule is not None and handling.rule.tier is not None:
                return handling.rule.tier
        return tier_of(record.pod)

    def _want_take_back(self, record: PodRecord, wanted: bool, now: Moment) -> None:
        if wanted and not self.dry_run:
            self._take_backs.want(record, now.at)
            if record.pod.marked:
                self._take_backs.hasten(record, now.at)
        elif record.condition.take_back_at is not None:
            self._take_backs.cancel(record)

    # Pods that are no longer known

    def mark_gone(self, ref: PodRef, now: Moment) -> list[Event]:
        """Note that a pod no longer exists."""
        record = self._pods.mark_gone(ref, now)
        return [] if record is None else self.replace(record, now)

    def replace(self, record: PodRecord, now: Moment) -> list[Event]:
        """Note that a pod's name belongs to another pod."""
        self._take_backs.forget(record)
        return self.release(record, now)

    def release(self, record: PodRecord, now: Moment) -> list[Event]:
        """Forget a pod and cancel its schedule; while work for it is in flight, finishing that work cancels the
        schedule.
        """
        self._pods.detach(record)
        self._queue.order.forget(record.ref)
        if record.in_flight:
            return []
        record.undelete()
        effects = self._unschedule(record, None, now)
        self._pods.forget(record)
        return effects


def decide_on(
    pod: Pod, bound: Sighting | None, known: KnownNode | None, policy: DecisionPolicy, of_node: EvictionPolicy
) -> Decision:
    """Decide on a pod that has been bound to this node since ``bound``; None: the node is not known.

    ``of_node``: the policy that applies to its pods (``policy_on``).
    """
    if known is None:
        return decide(pod, bound, None, policy)

    off, ceiling_of = of_node.out_of_service, partial(of_node.ceiling, pod) if of_node.rules else no_ceiling
    return decide(pod, bound, known.taints, policy, ceiling_of, shutting_down=known.shutting_down, out_of_service=off)


def policy_on(known: KnownNode | None, policy: EvictionPolicy) -> EvictionPolicy:
    """Return the policy that applies to the pods of a node; None: the node is not known."""
    return policy.on({}) if known is None else policy.on(known.live_node.labels, known.out_of_service, known.lost_at)


def _is_reported(record: PodRecord, decision: Decision) -> bool:
    """Return whether a dry run has reported this eviction: the pod is still there, and one deadline is one report."""
    return isinstance(decision, Evict) and decision.fire_at == record.reported_fire_at and not record.in_flight


def _grace_ends_at(pod: Pod, now: Moment) -> float:
    """Return when the grace period of a pod that is being deleted ends; now, if that cannot be read."""
    if pod.deletion_ends_at is None:
        return now.at
    return now.instant_of(pod.deletion_ends_at) if now.dates_objects else now.at + pod.grace_seconds


def flow_of(pod: Pod, handling: Handling) -> FlowKey:
    """Return the flow in which a pod that is handled so waits."""
    rule = "" if handling.rule is None else handling.rule.name
    return FlowKey(pod.node_name or "", pod.ref.key.namespace, rule, handling.bypasses_limits)
