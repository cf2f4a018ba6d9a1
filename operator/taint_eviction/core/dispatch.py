"""When a wanted eviction may go, and how: by which call, in which order, after which waits, held back by what.

``controller`` decides who goes and when that is due; from there on it is this module's business until work begins.
Puts together policy, agenda and brakes; decides on no pod and makes no call.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from taint_eviction.core.agenda import Agenda
from taint_eviction.core.brakes import Brakes, Hold
from taint_eviction.core.breaker import BreakerPolicy, Wave
from taint_eviction.core.cluster import KnownNode, KnownPod
from taint_eviction.core.decision import Evict
from taint_eviction.core.effects import Block, Effect
from taint_eviction.core.instants import Moment
from taint_eviction.core.lanes import LaneKey
from taint_eviction.core.objects import PodRef
from taint_eviction.core.orders import Orders
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Handling

Nodes = Mapping[str, KnownNode]


@dataclass(frozen=True, slots=True)
class Trouble:
    """The failed attempts at one pod so far: how many, since when, and what the last one was told.

    ``block``: a budget forbids it for now, None: something is wrong. ``asked``: the eviction API was asked for it, and
    ``refused_by_eviction_api``: the last attempt ended there. ``ask_again_at``: when a budget may be asked again.
    """

    since_at: float
    tries: int
    retry_at: float
    message: str
    block: Block | None = None
    asked: bool = False
    refused_by_eviction_api: bool = False
    ask_again_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class Pending:
    """A pod that has a deadline or is being evicted. ``hold``: what holds it back though it is due, None: nothing."""

    known: KnownPod
    decision: Evict
    handling: Handling
    in_flight: bool
    trouble: Trouble | None
    hold: Hold | None


class Dispatch:
    """All evictions that are wanted; see the module. ``orders`` None: not known yet, so that everything is held."""

    def __init__(self, policy: EvictionPolicy, breaker: BreakerPolicy, orders: Orders | None) -> None:
        self._set(policy)
        self.brakes = Brakes(breaker, orders)
        self.agenda = Agenda(policy, breaker.settle_seconds if breaker.enabled else 0.0, self._is_held)

    def _set(self, policy: EvictionPolicy) -> None:
        self.policy = policy
        self._paused_rules = frozenset(rule.name for rule in policy.rules if rule.pause)

    # How

    def handling(self, known: KnownPod, decision: Evict) -> Handling:
        """Say what the policy says of a pod that goes."""
        pod = known.pod
        return self.policy.handling(decision.deciding.taint.key, pod.ref.key.namespace, pod.labels)

    def asks_eviction_api(self, known: KnownPod, decision: Evict, trouble: Trouble | None, now: Moment) -> bool:
        """Tell whether budgets hold. However late it is, the eviction API is asked once before they do not."""
        handling = self.handling(known, decision)
        if handling.mode is not EvictionMode.EVICT_THEN_DELETE:
            return handling.mode is EvictionMode.EVICT
        return trouble is None or not trouble.asked or now.at < decision.fire_at + handling.evict_timeout_seconds

    def retry_at(self, known: KnownPod, decision: Evict, trouble: Trouble) -> float:
        """Say when to try again: as was said then.

        Where that asks the eviction API, not before a budget's no allows it. Once that has had its time nothing more is
        waited for than what a deletion was told.
        """
        handling, asks_until = self.handling(known, decision), math.inf
        if handling.mode is EvictionMode.DELETE:
            return trouble.retry_at
        if handling.mode is EvictionMode.EVICT_THEN_DELETE and trouble.asked:
            asks_until = decision.fire_at + handling.evict_timeout_seconds
        if not trouble.refused_by_eviction_api and trouble.retry_at >= asks_until:
            return trouble.retry_at
        return min(max(trouble.retry_at, trouble.ask_again_at), asks_until)

    # When

    def schedule(self, known: KnownPod, decision: Evict, trouble: Trouble | None, now: Moment) -> None:
        """Want a pod's eviction, as a retry after ``trouble``; again for the same changes nothing."""
        self.brakes.breaker.evicts(known.pod.node_name or "", decision.deciding.taint)
        lane = _lane(known, self.handling(known, decision))
        if trouble is None:
            self.agenda.schedule(known.pod.ref, lane, decision.fire_at, now.at)
        else:
            fire_at = max(decision.fire_at, self.retry_at(known, decision, trouble))
            self.agenda.schedule(known.pod.ref, lane, fire_at, now.at, retry=True)

    def take(self, now: Moment, retry: bool) -> PodRef | None:
        """Begin the eviction whose turn it is, of first tries or of retries; None if none may go."""
        return None if self.brakes.whole() is not None else self.agenda.take(now.at, retry)

    def next_at(self, now: float, retries: bool) -> float | None:
        """Say when something moves on or may go next, None if nothing does; ``retries`` False: of first tries alone."""
        return self.agenda.next_at(now, retries, stopped=self.brakes.whole() is not None)

    # What holds it back

    def may_go_on(self, known: KnownPod, decision: Evict) -> bool:
        """Tell whether an eviction that was begun may still be sent: nothing holds it, no limit was taken from it."""
        held = self.brakes.whole() or self._held_lane(_lane(known, self.handling(known, decision)))
        return held is None and self.agenda.may_send(known.pod.ref)

    def _is_held(self, key: LaneKey) -> bool:
        return self._held_lane(key) is not None

    def _held_lane(self, key: LaneKey) -> Hold | None:
        return Hold.RULE_PAUSED if key.rule in self._paused_rules else self.brakes.lane(key)

    def order(self, orders: Orders, now: Moment) -> list[Effect]:
        """Take in what people have ordered."""
        before, effects = self.brakes.orders, self.brakes.order(orders, now)
        if orders != before:
            self.agenda.reconsider()
        self.agenda.advance(now.at)
        self.brakes.breaker.count_due(self.agenda.due())
        return effects

    def look(self, nodes: Nodes, now: Moment) -> list[Effect]:
        """Let the circuit breaker look at what is going on; to be asked before work is taken."""
        self.agenda.advance(now.at)
        return self.brakes.look(nodes, self.agenda.due(), now)

    def change_policy(self, policy: EvictionPolicy, now: Moment) -> None:
        """Go on with another policy; what is wanted is to be scheduled again after that."""
        self._set(policy)
        self.agenda.change_policy(policy, now.at)

    # What there is to tell

    def wave(self, nodes: Nodes, now: Moment) -> Wave:
        """Say what the circuit breaker sees."""
        return self.brakes.breaker.wave(nodes, self.agenda.due(), now)

    def pending(
        self, known: KnownPod, decision: Evict, trouble: Trouble | None, in_flight: bool, now: Moment
    ) -> Pending:
        """Say how far a pod that is wanted has come."""
        handling, hold = self.handling(known, decision), None
        if decision.fire_at <= now.at and not in_flight:
            hold = self.brakes.whole() or self._held_lane(_lane(known, handling))
            if hold is None and (trouble is None or trouble.retry_at <= now.at):
                hold = Hold.SETTLING if self.agenda.is_settling(known.pod.ref) else Hold.LIMITED
        return Pending(known, decision, handling, in_flight, trouble, hold)


def _lane(known: KnownPod, handling: Handling) -> LaneKey:
    rule = "" if handling.rule is None else handling.rule.name
    return LaneKey(known.pod.node_name or "", known.pod.ref.key.namespace, rule)
