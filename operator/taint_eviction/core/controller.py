"""The core: it observes facts, control states and policies, and returns what follows; ``attempts`` hands out work.

    observe(fact) -> effects;  attempts.take_due() -> work;  attempts.finish(outcome) -> effects

Level-triggered: for each fact, the core decides on the pods concerned from the state known at that moment, to evict or
to stay, also when a deadline has passed. A timer is only a hint: before each call ``Attempts.recheck`` decides again.

The core knows only the pods of nodes with NoExecute taints. So the caller reports a node's pods again when the node
becomes tainted (``NodeTainted``), and reports when it stops watching them (``PodsReleased``).
This module does not wait, call, log, or read a clock. An exception raised here is a bug of the controller.
"""

from functools import partial
from typing import assert_never

from taint_eviction.core.attempts import Attempts
from taint_eviction.core.breaker import Breaker, TriedBefore
from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.control_state import ControlState
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.events import Event, NodeCleared, NodeTainted, TaintRewritten
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.facts import (
    Fact,
    NodeGone,
    NodeSeen,
    NodesHeard,
    NodesSwept,
    PodGone,
    PodSeen,
    PodsReleased,
    PodsSwept,
)
from taint_eviction.core.gone_objects import GoneObjects
from taint_eviction.core.guards import Guards
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.leaving_order import LeavingOrder
from taint_eviction.core.objects import PodRef
from taint_eviction.core.out_of_service import OutOfServiceNodes
from taint_eviction.core.pods import Deleted, KnownPods
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.core.reconciler import Reconciler
from taint_eviction.core.status import Status
from taint_eviction.core.take_backs import TakeBacks
from taint_eviction.core.warnings import StrayTaints

# If a request sent this long after an accepted deletion still shows the pod without it, the deletion was undone.
_DELETION_SHOWS_SECONDS = 60.0

_NOTHING_ORDERED = ControlState()


class Controller:
    """Observes the cluster and what people order; see the module.
    ``dry_run``: finished work has changed nothing (see ``Reconciler``). ``control_state`` None: it is not known yet, so
    all evictions are held. ``identity``: this process, as others know it; not "".
    """

    def __init__(
        self,
        policy: DecisionPolicy | None = None,
        dry_run: bool = False,
        *,
        eviction_policy: EvictionPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        control_state: ControlState | None = _NOTHING_ORDERED,
        identity: str = "this controller",
    ) -> None:
        gone, eviction_policy, breaker = GoneObjects(), eviction_policy or EvictionPolicy(), breaker or BreakerPolicy()
        policy = policy or DecisionPolicy()
        self.nodes = KnownNodes(gone, policy.outage_gap_seconds)
        self.pods = KnownPods(gone, eviction_policy.label_keys)
        self.out_of_service = OutOfServiceNodes()
        self.breaker = Breaker(breaker, self.out_of_service, identity)
        self.guards = Guards(eviction_policy, self.breaker, control_state, self.nodes)
        self._queue = EvictionQueue(
            eviction_policy,
            breaker.settle_seconds if breaker.enabled else None,
            breaker.list_wait_seconds,
            lambda flow: self.guards.blocking_flow(flow) is not None,
            self.pods,
            LeavingOrder(eviction_policy, self.nodes, self.breaker.unlisted, self.guards.blocked_seconds),
        )
        take_backs = TakeBacks()
        self._reconciler = Reconciler(
            policy,
            eviction_policy,
            self.nodes,
            self.pods,
            self._queue,
            breaker=self.breaker,
            guards=self.guards,
            take_backs=take_backs,
            dry_run=dry_run,
        )
        self.attempts = Attempts(self.pods, self._queue, self.breaker, self.guards, self._reconciler, take_backs)
        self.status = Status(
            self.nodes,
            self.pods,
            self._reconciler,
            self._queue,
            breaker=self.breaker,
            guards=self.guards,
            out_of_service=self.out_of_service,
        )
        # The nodes whose pods are watched: tainted now, or tainted recently and not yet released.
        self._watched: set[str] = set()
        # Whether all nodes have been listed once: taints found until then are older than this process.
        self._listed = False
        self._stray_taints = StrayTaints()
        self._term = 0

    @property
    def term(self) -> int:
        """The leadership in which it has evaluated last; 0: none yet."""
        return self._term

    # What was seen

    def observe(self, fact: Fact, now: Moment) -> list[Event]:
        """Observe a fact, and decide again on every pod it concerns."""
        match fact:
            case NodeSeen():
                return self._node_seen(fact, now)
            case NodesHeard():
                return self._nodes_heard(fact, now)
            case NodeGone():
                return self._node_gone(fact, now)
            case NodesSwept():
                return self._nodes_swept(fact, now)
            case PodSeen():
                return self._pod_seen(fact, now)
            case PodGone():
                return self._reconciler.mark_gone(fact.ref, now)
            case PodsSwept():
                for name in self.breaker.listed(fact):
                    self._queue.order.node_changed(name)
                refs = [record.ref for record in self.pods.absent(fact)]
                return [effect for ref in refs for effect in self._reconciler.mark_gone(ref, now)]
            case PodsReleased():
                return self._pods_released(fact, now)
            case _:
                assert_never(fact)

    def _node_seen(self, fact: NodeSeen, now: Moment) -> list[Event]:
        """Observe a node."""
        name, breaker = fact.node.name, self.breaker
        found = not self._listed and name not in self.nodes.known
        paused_by = self.guards.selecting(name)
        # If a pause of the node ends now, it has held what is due, and people know of that.
        effects = self._reconciler.advance(now) if paused_by else []
        change, known = self.nodes.upsert(fact, now), self.nodes.known.get(name)
        self._queue.order.node_changed(name)
        self.out_of_service.observe(name, known)
        if known is not None:
            self._stray_taints.node_seen(known.node, known.sightings, now)
            if known.node is fact.node:
                breaker.unready.see(fact, now)
        if change is None:
            return effects
        taints = self.nodes.known[name].sightings
        breaker.node_changed(name, taints)
        if found:
            breaker.node_found(name, taints)
        effects += [TaintRewritten(name, taint) for taint in change.rewritten]
        is_otherwise_paused = paused_by != self.guards.selecting(name)
        self.guards.note_node(name, now, is_otherwise_paused)
        if is_otherwise_paused:
            self._reconsider()
        if change.is_tainted and not change.was_tainted:
            if name not in self._watched:
                breaker.unlisted[name] = now.at
            self._watched.add(name)
            effects.append(NodeTainted(name))
        if change.was_tainted and not change.is_tainted:
            effects.append(NodeCleared(name))
        return effects + self._reconciler.reconcile_all(self.pods.on_node(name), now)

    def _node_gone(self, fact: NodeGone, now: Moment) -> list[Event]:
        """Forget a node that no longer exists."""
        known = self.nodes.drop(fact, now)
        if known is None:
            return []
        self._stray_taints.node_gone(fact.name)
        self.out_of_service.observe(fact.name, None)
        self.breaker.node_changed(fact.name, ())
        self.breaker.unready.forget(fact.name)
        self.guards.note_node(fact.name, now)
        effects: list[Event] = [NodeCleared(fact.name)] if known.sightings else []
        return effects + self._reconciler.reconcile_all(self.pods.on_node(fact.name), now)

    def _nodes_heard(self, fact: NodesHeard, now: Moment) -> list[Event]:
        """Note how far the watch of nodes has come."""
        self.nodes.hear(fact, now)
        self.breaker.unready.hear(now)
        return self._resume_outages(now)

    def _nodes_swept(self, fact: NodesSwept, now: Moment) -> list[Event]:
        """Observe the end of a list of all nodes."""
        self._listed = True
        absent = [NodeGone(known.node.name, known.node.uid) for known in self.nodes.absent(fact)]
        effects = [effect for gone in absent for effect in self._node_gone(gone, now)]
        return effects + self._resume_outages(now)

    def lacks(self, fact: NodesSwept | PodsSwept) -> bool:
        """Return whether a list lacks an object that is known, and that did not seem to end. Changes nothing."""
        if isinstance(fact, NodesSwept):
            return bool(self.nodes.absent(fact))
        absent = self.pods.absent(fact)
        return any(not (record.pod.terminating or isinstance(record.state, Deleted)) for record in absent)

    def _resume_outages(self, now: Moment) -> list[Event]:
        """Let countdowns continue, now that the watch, or a list, has brought all nodes after a gap."""
        effects: list[Event] = []
        for name in self.nodes.resume_outages():
            self.breaker.node_changed(name, self.nodes.known[name].sightings)
            effects += self._reconciler.reconcile_all(self.pods.on_node(name), now)
        return effects

    def _pod_seen(self, fact: PodSeen, now: Moment) -> list[Event]:
        change = self.pods.upsert(fact, now)
        if change is None:
            return []
        record, predecessors = change
        effects: list[Event] = []
        for each in predecessors:
            effects += self._reconciler.replace(each, now)
        if record.pod.node_name not in self._watched:
            return effects + self._reconciler.release(record, now)
        if (
            isinstance(record.state, Deleted)
            and not self._reconciler.dry_run
            and (fact.asked_at or 0.0) > record.state.at + _DELETION_SHOWS_SECONDS
            and not record.pod.terminating
        ):
            record.undecide()  # The API server forgot the deletion: its storage was restored.
        return effects + self._reconciler.reconcile(record, now)

    def _pods_released(self, fact: PodsReleased, now: Moment) -> list[Event]:
        if self.nodes.taints_on(fact.node_name):
            return []
        self._watched.discard(fact.node_name)
        self.breaker.unlisted.pop(fact.node_name, None)
        records = self.pods.on_node(fact.node_name)
        return [effect for record in records for effect in self._reconciler.release(record, now)]

    # What blocks evictions

    def order(self, control_state: ControlState, now: Moment) -> list[Event]:
        """Apply what people have ordered. Pauses that have ended hold nothing; the caller calls again when one ends.

        While the API server's time is not known, none has ended.
        """
        control_state, before = control_state.at(now.passed_epoch), self.guards.control_state
        effects = self._reconciler.advance(now)  # A pause that ends now has held what is due, and people know of that.
        effects += self.guards.order(control_state, now)
        if control_state != before:
            self._reconsider()
        else:
            self.breaker.count_due(self._queue.due_together())
        return effects if control_state == before else effects + self._reconciler.reconcile_failing(now)

    def _reconsider(self) -> None:
        """Check again which flows are blocked; people know of what is released."""
        self.breaker.acknowledge(self._queue.reconsider())
        self.breaker.unready.dirty = True
        self.breaker.count_due(self._queue.due_together())

    def tried_in_vain(self) -> int:
        """Count the due pods that the breaker of the next leader need not count: they were tried in vain, people know
        of them, or their owners have changed them. This one lets them through if it counts due pods and is closed;
        otherwise return 0.
        """
        if self.breaker.policy.max_due is None or self.breaker.latch is not None:
            return 0
        known = min(self.breaker.known_due, self._queue.due_together())
        return self._queue.tried_in_vain() + int(known)

    def evaluate(self, now: Moment, term: int = 0, tried_before: TriedBefore | None = None) -> list[Event]:
        """Let the circuit breaker evaluate the cluster; the leader calls this often, and before it takes work.
        Also reports taints that stay although their node is ready.
        ``term``: this leadership (``Gate.term``); under another one the patience with budgets begins again, and what
        the breaker did without writing it is judged again. ``tried_before``: as far as that is known.
        """
        is_new, self._term = term != self._term, term
        if is_new:
            for record in self.pods:
                record.begin_term()
        anew = (self.guards.begin_term() if is_new else []) + self._reconciler.advance(now)
        if changed := self.guards.note(now):
            self.breaker.unready.dirty = True
        due, evictions = self._queue.due_together(), self._reconciler.evictions
        if self.breaker.latch is None and self.breaker.too_many_due(due):
            # The person who reset it knew what was due then; a new process has no other sign of that.
            acknowledged_at = self.breaker.acknowledged_at(now)
            self.breaker.know(self._queue.due_together_by(lambda *_: acknowledged_at))
            if tried_before is not None:
                pods, epoch = tried_before
                due_before = self._queue.due_together_by(partial(self.breaker.old_until, epoch=epoch, now=now))
                self.breaker.know(min(pods, due_before))
        effects = self.guards.evaluate(self.nodes.known, due, now, evictions)
        if is_new or changed or effects:
            anew += self._reconciler.reconcile_failing(now)
        return [*anew, *effects, *self._stray_taints.tell(now), *self.out_of_service.report()]

    def change_policy(self, policy: EvictionPolicy, now: Moment) -> list[Event]:
        """Apply another eviction policy."""
        self._reconciler.eviction_policy, self.pods.label_keys = policy, policy.label_keys
        self.guards.change_policy(policy, now.at)
        self.breaker.acknowledge(self._queue.change_policy(policy, now.at))
        self.breaker.unready.dirty = True
        effects = self._reconciler.reconcile_all(list(self.pods.known.values()), now)
        # Pods that a rule has held move to their new places before the breaker counts what is due.
        return effects + self._reconciler.advance(now)

    # What is known

    def tainted_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that have a NoExecute taint."""
        return frozenset(self.nodes.tainted())

    def watched_nodes(self) -> frozenset[str]:
        """Return the nodes whose pods are watched: nodes that are tainted now, or were recently and are not yet
        released.
        """
        return frozenset(self._watched)

    def watches(self, node_name: str | None) -> bool:
        """Return whether the pods of a node are watched."""
        return node_name in self._watched

    def knows_pod(self, ref: PodRef, version: int, terminating: bool) -> bool:
        """Return whether this version of a pod adds nothing to what is known; without an order (``leaving_order``), a
        pod that is being deleted adds nothing more.

        ``terminating``: this version shows that it is being deleted.
        """
        record = self.pods.find(ref)
        if record is None or not self.pods.knows(record):
            return False
        going = record.pod.terminating or (record.deleted and not self._reconciler.dry_run)
        # With an order, other pods need to know when its grace period ends, which may be shortened.
        adds_nothing = terminating and going and not self._queue.order.enabled
        return (record.pod.resource_version or 0) >= version or adds_nothing
