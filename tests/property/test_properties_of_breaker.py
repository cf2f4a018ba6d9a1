"""The circuit breaker of a whole controller, against an oracle that counts from scratch at each evaluation."""

import math
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.memory import kept
from tests.property.strategies import examples
from tests.unit.builders import EPOCH, Stage, epoch, node, pod, taint, tolerates

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.events import BreakerClosed, BreakerOpened, Done
from taint_eviction.core.facts import NodeGone, NodeSeen, NodesSwept, PodGone, PodSeen, PodsReleased
from taint_eviction.core.objects import NOT_READY, UNREACHABLE, Pod, Taint

NODES = st.sampled_from([f"n{number}" for number in range(6)])
KEYS = st.sampled_from(["k1", "k1", NOT_READY, UNREACHABLE])
# How long a pod tolerates everything.
SECONDS = st.sampled_from([0, 0, 5, None])
THRESHOLDS = st.builds(
    NodeThreshold, st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, 20.0, 50.0]), st.integers(1, 3)
)
POLICIES = st.builds(
    BreakerPolicy,
    enabled=st.just(True),
    nodes=THRESHOLDS,
    lifecycle_nodes=st.none() | THRESHOLDS,
    window_seconds=st.sampled_from([4.0, 20.0]),
    max_due=st.none() | st.integers(0, 4),
    settle_seconds=st.sampled_from([0.0, 2.0]),
    list_wait_seconds=st.sampled_from([0.0, 3.0, 10.0]),
    closes_by_itself=st.booleans(),
)


@dataclass
class TrueNode:
    """A node. ``evicts``: since the node has had this taint, some pod had to be evicted because of the taint.

    ``found``: the taint was there before this process started, and has no ``timeAdded``.
    """

    uid: str
    taint: Taint | None = None
    since: float = 0.0
    evicts: bool = False
    found: bool = False
    pods: dict[str, Pod] = field(default_factory=dict)


class BreakerMachine(RuleBasedStateMachine):
    """Nodes are tainted and untainted, pods come and go, people pause, resume and reset, the process restarts.

    With ``lists_at_once``, the pods of a node are listed as soon as the node is reported, otherwise now and then.
    """

    @initialize(policy=POLICIES, lists_at_once=st.booleans())
    def begin(self, policy: BreakerPolicy, lists_at_once: bool) -> None:
        """Start with six clean nodes."""
        self.policy = policy
        self.lists_at_once = lists_at_once
        # By name of the node: since when a watched node has been without its list of pods; None once it is listed.
        self.unlisted: dict[str, float | None] = {}
        # The latest instant until which pods waited for a list in vain.
        self.waited_until = -math.inf
        # By UID of the pod: the deadline, and since when that deadline is known.
        self.known: dict[str, tuple[float, float]] = {}
        # UIDs of the pods that have waited for a taint surge to show and for lists, or that a pause held meanwhile.
        self.settled: set[str] = set()
        self.version = self.lives = 0
        self.stage = Stage(breaker=policy)
        self.nodes = {f"n{number}": self.new_node() for number in range(6)}
        self.control_state = ControlState()
        self.opened_at: float | None = None
        self.cause_seen_at: float | None = None
        self.first_look_at: float | None = None
        self.reset_at = -math.inf
        self.known_due = 0.0
        for name in self.nodes:
            self.report(name)
        self.stage.observe(NodesSwept(frozenset(one.uid for one in self.nodes.values()), 0, None))

    # The cluster

    def new_node(self) -> TrueNode:
        """Return a node with a UID that was never used before."""
        self.lives += 1
        return TrueNode(f"node-{self.lives}")

    def report(self, name: str) -> None:
        """Report a node and its pods to the controller."""
        self.version += 1
        one = self.nodes[name]
        taints = [] if one.taint is None else [one.taint]
        known = node(*taints, name=name, uid=one.uid, written_at=one.since - 1, version=self.version)
        self.stage.observe(NodeSeen(known))
        self.stage.observe(*(PodSeen(each) for each in one.pods.values()))
        if one.taint is not None:
            self.unlisted.setdefault(name, self.stage.now)
        self.note(name)
        if self.lists_at_once:
            self.list_pods(name)

    def note(self, name: str) -> None:
        """Note which deadlines the pods of a node have, and since when each is known."""
        one = self.nodes[name]
        for each in one.pods.values():
            fires_at = self.fires_at(one, each)
            if self.known.get(each.ref.uid, (math.inf, 0))[0] != fires_at:
                self.known[each.ref.uid] = fires_at, self.stage.now
                self.settled.discard(each.ref.uid)
        if one.taint is None:
            one.evicts = False
        elif any(self.shows_evicting(one, each) for each in one.pods.values()):
            one.evicts = True

    def shows_evicting(self, one: TrueNode, each: Pod) -> bool:
        """Return whether a pod shows that its node's taint evicts. A taint that this process found shows nothing:
        nobody knows since when the node has it.
        """
        return each.tolerations[0].toleration_seconds is not None and not one.found and self.was_there(one, each)

    @staticmethod
    def was_there(one: TrueNode, each: Pod) -> bool:
        """Return whether a pod may have been on its node before the taint: dates are cut off to whole seconds."""
        return (each.bound_at or 0.0) + 1 - EPOCH <= one.since + 1

    @rule(name=NODES)
    def list_pods(self, name: str) -> None:
        """The list of a node's pods arrives."""
        if name in self.nodes:
            self.stage.lists(name)
            if name in self.unlisted:
                self.unlisted[name] = None

    @rule(name=NODES)
    def release(self, name: str) -> None:
        """The pods of a clean or deleted node are no longer watched."""
        if name not in self.nodes or self.nodes[name].taint is None:
            self.stage.observe(PodsReleased(name))
            self.unlisted.pop(name, None)

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        """Whole seconds go by."""
        self.stage.at(self.stage.now + seconds)

    @rule(name=NODES, key=KEYS, ago=st.sampled_from([0, 0, 0, 3, 30]), dated=st.booleans())
    def taint_node(self, name: str, key: str, ago: int, dated: bool) -> None:
        """A node gets this taint instead of the one it has, now or some time ago; a deleted node is created again."""
        now, which = self.stage.now, taint(key, added_at=self.stage.now - ago - 1 if dated else None)
        if name in self.nodes and self.nodes[name].taint == which:
            return
        # A taint without ``timeAdded`` starts when it is first seen.
        ago = ago if dated else 0
        self.nodes[name] = replace(self.nodes.get(name) or self.new_node(), since=now - ago, evicts=False, found=False)
        # Object times are cut off to whole seconds: a second earlier here, so that the taint starts when really added.
        self.nodes[name].taint = which
        self.report(name)

    @rule(names=st.sets(NODES, min_size=1, max_size=3), dated=st.booleans())
    def drain(self, names: set[str], dated: bool) -> None:
        """Several nodes are tainted at once, each with a pod that is due at once."""
        for name in sorted(names):
            self.taint_node(name, "k1", 0, dated)
            self.create_pods(name, 0, 1)

    @rule(name=NODES)
    def untaint_node(self, name: str) -> None:
        """A node loses its taint."""
        if name in self.nodes:
            self.nodes[name].taint = None
            self.report(name)

    @rule(name=NODES)
    def delete_node(self, name: str) -> None:
        """A node is deleted with its pods."""
        if name in self.nodes:
            one = self.nodes.pop(name)
            self.stage.observe(*(PodGone(each.ref) for each in one.pods.values()), NodeGone(name, one.uid))

    @rule(name=NODES, seconds=SECONDS, count=st.integers(1, 3))
    def create_pods(self, name: str, seconds: int | None, count: int) -> None:
        """Pods are created and bound now."""
        for _ in range(count if name in self.nodes else 0):
            self.lives += 1
            uid = f"p{self.lives}"
            on = pod(tolerates(seconds, ""), name=uid, uid=uid, on=name, bound_at=self.stage.now - 1)
            self.nodes[name].pods[uid] = on
            self.stage.observe(PodSeen(on))
            self.note(name)

    @rule(name=NODES)
    def delete_pods(self, name: str) -> None:
        """Somebody else deletes the pods of a node."""
        if name in self.nodes:
            for each in self.nodes[name].pods.values():
                self.stage.observe(PodGone(each.ref))
            self.nodes[name].pods.clear()

    # The oracle

    def due(self) -> int:
        """Count the pods that are due and not paused, and were on their nodes before the taint."""
        if self.control_state.cluster is not None:
            return 0
        return sum(self.is_due(one, each) for one, each in self.free())

    def due_at_reset(self) -> int:
        """Count those that were due at the last reset: whoever made it knew of them."""
        return sum(self.is_due(one, each) and self.fires_at(one, each) <= self.reset_at for one, each in self.free())

    def is_due(self, one: TrueNode, each: Pod) -> bool:
        """Return whether a pod is due and was on its node before the taint."""
        return self.fires_at(one, each) <= self.stage.now and self.was_there(one, each)

    def free(self) -> list[tuple[TrueNode, Pod]]:
        """Return the pods on nodes that are not paused, each with its node."""
        free = [one for name, one in self.nodes.items() if name not in self.control_state.nodes]
        return [(one, each) for one in free for each in one.pods.values()]

    @staticmethod
    def fires_at(one: TrueNode, each: Pod) -> float:
        """Return the deadline of a pod, infinity for none."""
        seconds = each.tolerations[0].toleration_seconds
        if one.taint is None or seconds is None or each.bound_at is None:
            return math.inf
        return max(one.since, each.bound_at + 1 - EPOCH) + seconds

    def counts_from(self) -> float:
        """Return the instant after which a taint counts as new."""
        latest = self.stage.now if self.opened_at is None else min(self.stage.now, self.opened_at)
        return max(latest - self.policy.window_seconds, self.reset_at)

    def unlisted_since(self, name: str) -> float:
        """Return since when a tainted node has been without its list, infinity if it is listed."""
        one, since = self.nodes.get(name), self.unlisted.get(name)
        return math.inf if one is None or one.taint is None or since is None else since

    def settle(self) -> None:
        """Note the pods that have waited long enough, or that have nothing left to wait for."""
        new = [name for name, one in self.nodes.items() if one.since > self.counts_from()]
        unlisted_since = min((self.unlisted_since(name) for name in new), default=math.inf)
        for name, one in self.nodes.items():
            for uid in one.pods:
                due_at = max(self.known.get(uid, (math.inf, 0)))
                settled_at = due_at + self.policy.settle_seconds
                bound = max(settled_at, due_at + self.policy.list_wait_seconds)
                if uid in self.settled or due_at > self.stage.now:
                    continue
                if name in self.control_state.nodes:
                    self.settled.add(uid)
                elif settled_at <= self.stage.now and (settled_at < unlisted_since or bound <= self.stage.now):
                    self.settled.add(uid)
                    if settled_at >= unlisted_since:
                        self.waited_until = max(self.waited_until, settled_at)

    def affected(self, name: str) -> bool:
        """Return whether pods of a node must be evicted, or may have to be because its list was awaited in vain."""
        one = self.nodes[name]
        if one.evicts or one.taint is None:
            return one.evicts
        same = [other for other in self.nodes if (where := self.nodes[other].taint) and where.key == one.taint.key]
        tolerated = any(self.unlisted_since(other) == math.inf for other in same)
        presumed = not tolerated or any(self.nodes[other].evicts for other in same)
        return presumed and self.unlisted_since(name) <= self.waited_until

    def exceeded(self, due: int) -> bool:
        """Return whether a threshold of the breaker is exceeded."""
        new = [one for name, one in self.nodes.items() if self.affected(name) and one.since > self.counts_from()]
        lifecycle = sum(one.taint is not None and one.taint.key != "k1" for one in new)
        max_due = self.policy.max_due
        return (
            self.policy.nodes.exceeded_by(len(new) - lifecycle, len(self.nodes))
            or (
                self.policy.lifecycle_nodes is not None
                and self.policy.lifecycle_nodes.exceeded_by(lifecycle, len(self.nodes))
            )
            or (max_due is not None and due - self.known_due > max_due)
        )

    # People and processes

    @rule()
    def evaluate(self) -> None:
        """The breaker opens if and only if a threshold is exceeded. It may close by itself after this process has seen
        the cause and the cause has ended.

        A process that never saw the cause waits for a whole window.
        """
        effects = self.stage.evaluate()
        self.settle()
        due, now = self.due(), self.stage.now
        if self.opened_at is None and self.policy.max_due is not None and due - self.known_due > self.policy.max_due:
            self.known_due = max(self.known_due, self.due_at_reset())
        self.known_due = min(self.known_due, due)
        exceeded = self.exceeded(due)
        if self.opened_at is None:
            assert [type(effect) for effect in effects] == ([BreakerOpened] if exceeded else [])
            self.opened_at = self.cause_seen_at = now if exceeded else None
        elif self.policy.closes_by_itself and not exceeded and self.may_close():
            assert effects == [BreakerClosed()]
            self.opened_at = None
            self.cause_seen_at = self.first_look_at = None
        else:
            assert effects == []
            self.cause_seen_at = now if exceeded else self.cause_seen_at
            self.first_look_at = now if self.first_look_at is None else self.first_look_at

    def may_close(self) -> bool:
        """Return whether this process has seen the cause, or has evaluated for a whole window without it."""
        looked_at = math.inf if self.first_look_at is None else self.first_look_at
        return self.cause_seen_at is not None or self.stage.now >= looked_at + self.policy.window_seconds

    @rule(seconds=st.sampled_from([0, 0, 2, 3]))
    def evict(self, seconds: int) -> None:
        """Only pods that are due and have settled are evicted, and none while the breaker is open."""
        self.time_passes(seconds)
        self.evaluate()
        taken = self.stage.take()
        self.settle()
        assert not taken or self.opened_at is None
        for work in taken:
            one = self.nodes[work.node_name]
            assert self.fires_at(one, one.pods[work.ref.uid]) <= self.stage.now
            assert work.ref.uid in self.settled
            self.stage.send(work)
            self.stage.finish(work, Done())
            self.stage.observe(PodGone(work.ref))
            del one.pods[work.ref.uid]

    def order(self, control_state: ControlState) -> None:
        """Give a new control state to the controller and the oracle."""
        self.settle()
        before, self.control_state = self.control_state, control_state
        self.stage.order(control_state)
        resumed = [one for name, one in self.nodes.items() if name in before.nodes and name not in control_state.nodes]
        self.known_due += sum(self.is_due(one, each) for one in resumed for each in one.pods.values())
        if before.cluster and not control_state.cluster:
            self.known_due = math.inf
        reset_at = -math.inf if control_state.reset_epoch is None else control_state.reset_epoch - EPOCH
        if reset_at > self.reset_at and reset_at >= (self.opened_at or 0):
            self.known_due = math.inf if self.opened_at is not None else self.known_due
            self.opened_at, self.reset_at = None, reset_at
            self.cause_seen_at = self.first_look_at = None
        whole = control_state.cluster
        self.settle()
        self.control_state = replace(control_state, cluster=None)
        self.known_due = min(self.known_due, self.due())
        self.control_state = replace(control_state, cluster=whole)

    @rule()
    def reset(self) -> None:
        """Somebody resets the breaker."""
        self.order(replace(self.control_state, reset_epoch=epoch(self.stage.now)))

    @rule(whole=st.booleans(), names=st.sets(NODES, max_size=2))
    def pause(self, whole: bool, names: set[str]) -> None:
        """Some nodes or the whole cluster are paused; what was paused before is resumed."""
        self.order(
            replace(self.control_state, cluster=Pause() if whole else None, nodes={name: Pause() for name in names})
        )

    @rule()
    def restart(self) -> None:
        """The process restarts: it observes everything anew, and reads the control state and the breaker's latch."""
        latch = self.stage.brain.breaker.latch
        reset_epoch = None if self.reset_at == -math.inf else epoch(self.reset_at)
        now = self.stage.now
        self.stage = Stage(breaker=self.policy, control_state=None).at(now)
        self.unlisted, self.known, self.settled, self.waited_until = {}, {}, set(), -math.inf
        for name, one in self.nodes.items():
            one.evicts, one.found = False, one.taint is not None and one.taint.time_added is None
            self.report(name)
        self.stage.observe(NodesSwept(frozenset(one.uid for one in self.nodes.values()), now, None))
        assert self.stage.evaluate() == []
        assert self.stage.take() == []
        self.stage.order(replace(self.control_state, latch=latch, reset_epoch=None if latch else reset_epoch))
        self.cause_seen_at = self.first_look_at = None
        self.settle()
        # A newer latch replaces the reset in the ConfigMap, so the new process does not know the reset.
        self.reset_at = self.reset_at if latch is None else -math.inf
        self.known_due = 0.0

    # What always holds

    @invariant()
    def it_is_open_or_it_is_not(self) -> None:
        """The breaker is open if and only if the oracle says so."""
        assert (self.stage.brain.breaker.latch is not None) == (self.opened_at is not None)

    @invariant()
    def only_what_is_there_is_remembered(self) -> None:
        """The breaker remembers the taints that evict, those that were there at its start, and no others."""
        evicting = {one.taint for one in self.nodes.values() if one.evicts}
        found = {one.taint for one in self.nodes.values() if one.found}
        assert evicting <= set(kept(self.stage.brain.breaker, Taint)) <= evicting | found


BreakerMachine.TestCase.settings = settings(max_examples=examples(1), stateful_step_count=50)
TestBreakerAgainstAnOracle = BreakerMachine.TestCase
