"""The brain's own loop, without the loop: observe(fact) → effects; take_due → work; settle(outcome) → effects.

Level-triggered: whatever a fact says, the pods it touches are decided from the state that is known then, in both
directions, also when overdue. A timer is only a hint; ``take_due`` and ``obstacle`` ask the decision once more.

Pods matter only on nodes that carry NoExecute taints: those of other nodes are not kept. So whoever feeds it tells a
node's pods again when the node becomes tainted (``NodeTainted``), and says when it stops telling (``PodsReleased``).

Does not wait, call, log, or read a clock. Invariants: of one pod at most one piece of work is in flight, and while it
is, nothing else of it is scheduled; everything belongs to a UID, so what ends late can only touch what is its own.

Errors: what the world does wrong arrives as an ``Outcome``; an exception in here is our own bug.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from taint_eviction.core.breaker import BreakerPolicy, Wave
from taint_eviction.core.cluster import Cluster, KnownPod
from taint_eviction.core.conditions import ConditionLedger
from taint_eviction.core.decision import Decision, DecisionPolicy, Evict, Stay, StayReason, decide
from taint_eviction.core.dispatch import Dispatch, Pending, Trouble
from taint_eviction.core.effects import (
    CalledOff,
    Cancelled,
    CutOff,
    Done,
    Effect,
    Evicted,
    Eviction,
    Failed,
    Held,
    NodeCleared,
    NodeTainted,
    Outcome,
    PodIsGone,
    Refused,
    Scheduled,
    TaintRewritten,
    TakeBack,
    Work,
)
from taint_eviction.core.facts import (
    Fact,
    NodeGone,
    NodeSeen,
    NodesSwept,
    PodGone,
    PodSeen,
    PodsReleased,
    PodsSwept,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.orders import Orders
from taint_eviction.core.policy import EvictionPolicy

# An answer asked so long after a deletion was accepted, and that still does not show it, says that it was undone.
_DELETION_SHOWS_SECONDS = 60.0

_NO_ORDERS = Orders()


@dataclass(frozen=True, slots=True)
class Explanation:
    """All there is to say about one known pod.

    ``pending`` None: it stays, or its deletion was accepted already (``deleted``).
    """

    known: KnownPod
    decision: Decision
    deleted: bool
    pending: Pending | None


class Controller:
    """Decides what to do about the pods it is told of; see the module.

    ``dry_run``: work that is done has changed nothing. So a pod that was "evicted" is left alone until its eviction is
    called off, and no condition is ever taken back. ``orders`` None: not known yet, so that everything is held.
    """

    def __init__(
        self,
        policy: DecisionPolicy | None = None,
        dry_run: bool = False,
        *,
        eviction_policy: EvictionPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        orders: Orders | None = _NO_ORDERS,
    ) -> None:
        self.cluster = Cluster()
        self.dispatch = Dispatch(eviction_policy or EvictionPolicy(), breaker or BreakerPolicy(), orders)
        self._policy = policy or DecisionPolicy()
        self._dry_run = dry_run
        self._conditions = ConditionLedger()
        # By UID: the decision by which a pod is scheduled or in flight.
        self._wanted: dict[str, Evict] = {}
        self._in_flight: dict[str, Work] = {}
        self._trouble: dict[str, Trouble] = {}
        # UIDs whose deletion the API server has accepted, and when: not asked for again.
        self._deleted: dict[str, float] = {}
        # UIDs whose deletion was asked for: if they are seen terminating, it was done even if no answer came.
        self._asked: set[str] = set()
        # Names of the nodes whose pods matter: tainted now, or tainted lately and not yet released.
        self._attended: set[str] = set()

    # What was seen

    def observe(self, fact: Fact, now: Moment) -> list[Effect]:
        """Take in a fact and decide anew on every pod it touches."""
        match fact:
            case NodeSeen():
                return self._node_seen(fact, now)
            case NodeGone():
                return self._node_gone(fact, now)
            case NodesSwept():
                absent = [NodeGone(known.node.name, known.node.uid) for known in self.cluster.absent_nodes(fact)]
                return [effect for gone in absent for effect in self._node_gone(gone, now)]
            case PodSeen():
                return self._pod_seen(fact, now)
            case PodGone():
                return self._pod_gone(fact.ref, now)
            case PodsSwept():
                refs = [known.pod.ref for known in self.cluster.absent_pods(fact)]
                return [effect for ref in refs for effect in self._pod_gone(ref, now)]
            case PodsReleased():
                return self._pods_released(fact, now)
            case _:
                assert_never(fact)

    def _node_seen(self, fact: NodeSeen, now: Moment) -> list[Effect]:
        change = self.cluster.put_node(fact, now)
        if change is None:
            return []
        name = fact.node.name
        self.dispatch.brakes.breaker.node_changed(name, self.cluster.nodes[name].sightings)
        effects: list[Effect] = [TaintRewritten(name, taint) for taint in change.rewritten]
        if change.is_tainted and not change.was_tainted:
            self._attended.add(name)
            effects.append(NodeTainted(name))
        if change.was_tainted and not change.is_tainted:
            effects.append(NodeCleared(name))
        return effects + self._redecide_all(self.cluster.pods_on(name), now)

    def _node_gone(self, fact: NodeGone, now: Moment) -> list[Effect]:
        known = self.cluster.drop_node(fact, now)
        if known is None:
            return []
        self.dispatch.brakes.breaker.node_changed(fact.name, ())
        effects: list[Effect] = [NodeCleared(fact.name)] if known.sightings else []
        return effects + self._redecide_all(self.cluster.pods_on(fact.name), now)

    def _pod_seen(self, fact: PodSeen, now: Moment) -> list[Effect]:
        change = self.cluster.put_pod(fact, now)
        if change is None:
            return []
        known, before = change
        effects: list[Effect] = []
        if before is not None and before.pod.ref.uid != known.pod.ref.uid:
            self._conditions.write_off(before.pod.ref)
            effects += self._forget(before, now)
        if not self.attends(known.pod.node_name):
            self.cluster.release_pod(known.pod.ref)
            return effects + self._forget(known, now)
        deleted_at = self._deleted.get(known.pod.ref.uid)
        asked_long_after = deleted_at is not None and (fact.asked_at or 0.0) > deleted_at + _DELETION_SHOWS_SECONDS
        if asked_long_after and not known.pod.terminating:
            del self._deleted[known.pod.ref.uid]  # The API server forgot it: its storage was restored.
        return effects + self._redecide(known, now)

    def _pod_gone(self, ref: PodRef, now: Moment) -> list[Effect]:
        known = self.cluster.drop_pod(ref, now)
        self._conditions.write_off(ref)
        return [] if known is None else self._forget(known, now)

    def _pods_released(self, fact: PodsReleased, now: Moment) -> list[Effect]:
        if self.cluster.taints_on(fact.node_name):
            return []
        self._attended.discard(fact.node_name)
        effects: list[Effect] = []
        for known in self.cluster.pods_on(fact.node_name):
            self.cluster.release_pod(known.pod.ref)
            effects += self._forget(known, now)
        return effects

    # What follows

    def _redecide_all(self, pods: Iterable[KnownPod], now: Moment) -> list[Effect]:
        return [effect for known in pods for effect in self._redecide(known, now)]

    def _redecide(self, known: KnownPod, now: Moment) -> list[Effect]:
        """Bring schedule and take-back of one pod in line with what is known now."""
        ref = known.pod.ref
        if ref.uid in self._in_flight:
            return []  # Its attempt decides again before each call, and settling it comes back here.
        decision = self._decide(known)
        due = isinstance(decision, Evict) and decision.fire_at <= now.at
        if self._dry_run and not due:
            self._deleted.pop(ref.uid, None)
        if isinstance(decision, Evict) and ref.uid not in self._deleted:
            if not due and not self._is_blocked(ref, decision):
                self._trouble.pop(ref.uid, None)  # What failed so far was another eviction.
            self._owe_condition(ref, not due and self._conditions.may_carry(ref), now)
            return self._schedule(known, decision, now)
        alive = not known.pod.terminating and ref.uid not in self._deleted
        self._owe_condition(ref, alive and (known.pod.marked or self._conditions.may_carry(ref)), now)
        return self._unschedule(known, decision.reason if isinstance(decision, Stay) else None, now)

    def _is_blocked(self, ref: PodRef, decision: Evict) -> bool:
        """Tell whether a budget's no outlasts the deadline: a taint that is swapped is no reason to ask anew."""
        trouble = self._trouble.get(ref.uid)
        return trouble is not None and trouble.block is not None and decision.fire_at < trouble.retry_at

    def _decide(self, known: KnownPod) -> Decision:
        taints = self.cluster.taints_on(known.pod.node_name)
        return decide(known.pod, known.bound, taints, self._policy)

    def _schedule(self, known: KnownPod, decision: Evict, now: Moment) -> list[Effect]:
        ref, before = known.pod.ref, self._wanted.get(known.pod.ref.uid)
        self._wanted[ref.uid] = decision
        self.dispatch.schedule(known, decision, self._trouble.get(ref.uid), now)
        if before is not None and before.fire_at == decision.fire_at:
            return []
        return [Scheduled(ref, known.pod.node_name or "", decision, before.fire_at if before else None)]

    def _unschedule(self, known: KnownPod, reason: StayReason | None, now: Moment) -> list[Effect]:
        ref = known.pod.ref
        self.dispatch.agenda.forget(ref)
        self._trouble.pop(ref.uid, None)
        decision, asked = self._wanted.pop(ref.uid, None), ref.uid in self._asked
        self._asked.discard(ref.uid)
        if decision is None:
            return []
        if asked and reason is StayReason.TERMINATING:
            return [self._evicted(ref, known.pod.node_name or "", decision, now)]
        return [Cancelled(ref, known.pod.node_name or "", reason)]

    def _evicted(self, ref: PodRef, node_name: str, decision: Evict, now: Moment) -> Evicted:
        return Evicted(ref, node_name, decision, max(0.0, now.at - decision.fire_at))

    def _owe_condition(self, ref: PodRef, owed: bool, now: Moment) -> None:
        if owed and not self._dry_run:
            self._conditions.owe(ref, now.at)
        else:
            self._conditions.owe_nothing(ref)

    def _forget(self, known: KnownPod, now: Moment) -> list[Effect]:
        """Let go of a pod that is no longer known; while it is in flight, settling does that."""
        ref = known.pod.ref
        if ref.uid in self._in_flight:
            return []
        self._deleted.pop(ref.uid, None)
        if ref not in self._conditions.owed:
            self._conditions.write_off(ref)
        return self._unschedule(known, None, now)

    # What holds it back

    def order(self, orders: Orders, now: Moment) -> list[Effect]:
        """Take in what people have ordered."""
        return self.dispatch.order(orders, now)

    def look(self, now: Moment) -> list[Effect]:
        """Let the circuit breaker look at what is going on; to be asked before work is taken."""
        return self.dispatch.look(self.cluster.nodes, now)

    def change_policy(self, policy: EvictionPolicy, now: Moment) -> list[Effect]:
        """Go on with another policy of evicting."""
        self.dispatch.change_policy(policy, now)
        return self._redecide_all(list(self.cluster.pods.values()), now)

    # What is to be done

    def next_at(self, now: float, retries: bool = True) -> float | None:
        """Say when something is due next, None if nothing is; ``retries`` False: of first tries alone."""
        instants = [self.dispatch.next_at(now, retries)]
        if retries:
            instants.append(self._conditions.owed.next_fire_at())
        return min((instant for instant in instants if instant is not None), default=None)

    def take_due(self, now: Moment, most: int, most_retries: int) -> list[Work]:
        """Begin what is due: at most ``most`` pieces of work, first tries before retries, as ``lanes`` orders them.

        At most ``most_retries`` of them are retries or take-backs. Each is in flight until it is settled.
        """
        taken: list[Work] = []
        self.dispatch.agenda.advance(now.at)
        while len(taken) < most and (ref := self.dispatch.take(now, retry=False)) is not None:
            self._begin(self._eviction(ref, now), taken)
        room = min(most, len(taken) + most_retries)
        while len(taken) < room and (entry := self._conditions.owed.pop_due(now.at)) is not None:
            known = self.cluster.pod(entry.ref)
            node_name = known.pod.node_name if known is not None else None
            self._begin(TakeBack(entry.ref, node_name or "", self._conditions.tries(entry.ref)), taken)
        while len(taken) < room and (ref := self.dispatch.take(now, retry=True)) is not None:
            self._begin(self._eviction(ref, now), taken)
        return taken

    def _eviction(self, ref: PodRef, now: Moment) -> Eviction:
        known, decision, trouble = self.cluster.pods[ref.key], self._wanted[ref.uid], self._trouble.get(ref.uid)
        return Eviction(
            ref,
            known.pod.node_name or "",
            decision,
            known.pod.marked,
            trouble.tries if trouble else 0,
            self.dispatch.asks_eviction_api(known, decision, trouble, now),
        )

    def _begin(self, work: Work, taken: list[Work]) -> None:
        # Whatever else is scheduled for the pod waits: settling decides anew and schedules it again.
        self.dispatch.agenda.cancel(work.ref)
        self._conditions.owed.cancel(work.ref)
        self._in_flight[work.ref.uid] = work
        taken.append(work)

    def obstacle(self, work: Work, now: Moment) -> CalledOff | Held | None:
        """Say what keeps ``work``, in flight, from going on by what is known now; to be asked just before each call."""
        known = self.cluster.pod(work.ref)
        decision = None if known is None else self._decide(known)
        due = isinstance(decision, Evict) and decision.fire_at <= now.at
        if isinstance(work, TakeBack):
            return CalledOff() if due else None
        if known is None or not isinstance(decision, Evict) or not due:
            return CalledOff()
        self._wanted[work.ref.uid] = decision  # The reason may have changed; what is told at the end is the last.
        return None if self.dispatch.may_go_on(known, decision) else Held()

    def will_delete(self, ref: PodRef, now: Moment) -> None:
        """Note that a pod's deletion is about to be asked for: from here on it may be done, whatever the answer is."""
        self._asked.add(ref.uid)
        self.dispatch.agenda.send(ref, now.at)

    def will_mark(self, ref: PodRef) -> None:
        """Note that a condition is about to be written: from here on it may be there, whatever the answer is."""
        self._conditions.will_mark(ref)

    # How it ended

    def settle(self, work: Work, outcome: Outcome, now: Moment) -> list[Effect]:
        """Take in how a piece of work that ``take_due`` began has ended, and decide anew on its pod."""
        ref = work.ref
        if self._in_flight.get(ref.uid) is not work:
            raise ValueError(f"{ref} ({ref.uid}) is settled but not in flight")
        del self._in_flight[ref.uid]
        if isinstance(work, Eviction):
            blocked = isinstance(outcome, Failed) and outcome.block is not None
            self.dispatch.agenda.end(ref, ended_pod=not (blocked or isinstance(outcome, PodIsGone)))
        match outcome:
            case Done():
                return self._settle_done(work, now)
            case PodIsGone():
                return self._settle_gone(work, now)
            case CalledOff() | CutOff() | Held():
                return self._resume(work, now)
            case Failed():
                return self._settle_failed(work, outcome, now)
            case _:
                assert_never(outcome)

    def _settle_done(self, work: Work, now: Moment) -> list[Effect]:
        uid = work.ref.uid
        self._conditions.write_off(work.ref)
        if isinstance(work, TakeBack):
            return self._resume(work, now, owed=False)
        self._trouble.pop(uid, None)
        self._asked.discard(uid)
        self.dispatch.agenda.forget(work.ref)
        decision = self._wanted.pop(uid, work.decision)
        if self.cluster.pod(work.ref) is not None:
            self._deleted[uid] = now.at
        return [self._evicted(work.ref, work.node_name, decision, now)]

    def _settle_gone(self, work: Work, now: Moment) -> list[Effect]:
        return self._pod_gone(work.ref, now) or self._end(work, now, owed=False)

    def _settle_failed(self, work: Work, outcome: Failed, now: Moment) -> list[Effect]:
        uid = work.ref.uid
        if isinstance(work, TakeBack):
            if not self.cluster.is_gone(work.ref):
                self._conditions.try_again(work.ref, work.tries + 1, outcome.retry_at)
            return self._resume(work, now)
        before = self._trouble.get(uid, Trouble(now.at, 0, now.at, ""))
        asked_now = work.by_eviction_api and uid in self._asked
        trouble = self._trouble[uid] = Trouble(
            since_at=before.since_at,
            tries=work.tries + 1,
            retry_at=outcome.retry_at,
            message=outcome.message,
            block=outcome.block,
            asked=asked_now or before.asked,
            refused_by_eviction_api=asked_now,
            ask_again_at=before.ask_again_at if outcome.block is None else outcome.retry_at,
        )
        if outcome.block is not None:
            self._asked.discard(uid)  # It was not done: whoever ends the pod now is somebody else.
        effects = self._resume(work, now)
        known, decision = self.cluster.pod(work.ref), self._wanted.get(uid)
        if known is not None and decision is not None:
            refused = Refused(
                work.ref,
                work.node_name,
                message=trouble.message,
                tries=trouble.tries,
                since_at=trouble.since_at,
                retry_at=max(now.at, self.dispatch.retry_at(known, decision, trouble)),
                block=trouble.block,
            )
            effects.append(refused)
        return effects

    def _resume(self, work: Work, now: Moment, owed: bool = True) -> list[Effect]:
        """Decide anew on the pod of a piece of work that has ended; if it is no longer known, let go of it."""
        known = self.cluster.pod(work.ref)
        return self._end(work, now, owed) if known is None else self._redecide(known, now)

    def _end(self, work: Work, now: Moment, owed: bool) -> list[Effect]:
        """Let go of a pod that is no longer known; a condition is still ``owed`` to it unless it is gone for good."""
        uid = work.ref.uid
        if self.cluster.is_gone(work.ref):
            self._conditions.write_off(work.ref)
        elif owed and (isinstance(work, TakeBack) or self._conditions.may_carry(work.ref)):
            self._conditions.owe(work.ref, now.at)
        self._trouble.pop(uid, None)
        self._deleted.pop(uid, None)
        self._asked.discard(uid)
        self.dispatch.agenda.forget(work.ref)
        if self._wanted.pop(uid, None) is None:
            return []
        return [Cancelled(work.ref, work.node_name, None)]

    # What there is to tell

    def tainted_nodes(self) -> frozenset[str]:
        """Name the nodes whose pods matter now."""
        return frozenset(self.cluster.tainted_nodes())

    def attended_nodes(self) -> frozenset[str]:
        """Name the nodes whose pods matter: those tainted now, or lately and not yet released."""
        return frozenset(self._attended)

    def attends(self, node_name: str | None) -> bool:
        """Tell whether the pods of a node matter: it is tainted, or was lately and has not been released."""
        return node_name in self._attended

    def knows_node(self, name: str, uid: str, version: int) -> bool:
        """Tell whether this version of a node, or a later one, has been seen: to see it again would say nothing."""
        known = self.cluster.nodes.get(name)
        return known is not None and known.node.uid == uid and (known.node.resource_version or 0) >= version

    def knows_pod(self, ref: PodRef, version: int, terminating: bool) -> bool:
        """Tell the same of a pod; one that is known to be going has nothing more to say until it is gone."""
        known = self.cluster.pod(ref)
        if known is None:
            return False
        going = known.pod.terminating or (ref.uid in self._deleted and not self._dry_run)
        return (known.pod.resource_version or 0) >= version or (terminating and going)

    def pending(self, now: Moment) -> Iterator[Pending]:
        """Go through the pods that have a deadline or are being evicted, in no particular order."""
        for known in self.cluster.pods.values():
            if known.pod.ref.uid in self._wanted:
                yield self._pending(known, now)

    def pending_count(self) -> int:
        """Count them."""
        return len(self._wanted)

    def wave(self, now: Moment) -> Wave:
        """Say what the circuit breaker sees."""
        return self.dispatch.wave(self.cluster.nodes, now)

    def due_count(self) -> int:
        """Count those of them that are due and have not been attempted, held ones left out."""
        return self.dispatch.agenda.due()

    def troubles(self) -> Collection[Trouble]:
        """Return the failed attempts at all pods that are still to go."""
        return self._trouble.values()

    def _pending(self, known: KnownPod, now: Moment) -> Pending:
        uid = known.pod.ref.uid
        return self.dispatch.pending(known, self._wanted[uid], self._trouble.get(uid), uid in self._in_flight, now)

    def explain(self, key: NamespacedName, now: Moment) -> Explanation | None:
        """Say all there is to say about the pod of this name; None if it is not known."""
        known = self.cluster.pods.get(key)
        if known is None:
            return None
        uid = known.pod.ref.uid
        pending = self._pending(known, now) if uid in self._wanted else None
        return Explanation(known, self._decide(known), uid in self._deleted, pending)
