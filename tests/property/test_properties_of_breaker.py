"""The circuit breaker on a whole controller, against an oracle that counts everything anew at every look."""

import math
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.strategies import examples
from tests.unit.builders import EPOCH, Stage, epoch, node, pod, taint, tolerates

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.effects import BreakerClosed, BreakerOpened, Done
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
    """A node; ``evicts``: while it has had this taint, a pod had to go because of it.

    ``found``: the taint was there before this process, and does not say since when.
    """

    uid: str
    taint: Taint | None = None
    since: float = 0.0
    evicts: bool = False
    found: bool = False
    pods: dict[str, Pod] = field(default_factory=dict)


class BreakerMachine(RuleBasedStateMachine):
    """Nodes are tainted and untainted, pods come and go, people pause, resume and reset, processes restart.

    The pods of nodes are listed at once where ``lists_at_once``, else now and then.
    """

    @initialize(policy=POLICIES, lists_at_once=st.booleans())
    def begin(self, policy: BreakerPolicy, lists_at_once: bool) -> None:
        """Start with six clean nodes."""
        self.policy = policy
        self.lists_at_once = lists_at_once
        # By name of its node: since when one whose pods matter has been unlisted, None once it is listed.
        self.unlisted: dict[str, float | None] = {}
        # Until when lists were waited for in vain.
        self.waited_until = -math.inf
        # By UID of each pod that will have to go: when, and since when that is known.
        self.known: dict[str, tuple[float, float]] = {}
        # UIDs of those that have waited for a wave to show itself, and for lists, or were held back anyway.
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
        """No UID is used twice."""
        self.lives += 1
        return TrueNode(f"node-{self.lives}")

    def report(self, name: str) -> None:
        """Tell how a node is, and its pods."""
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
        """Remember which pods have to go, and since when that is known."""
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

    @staticmethod
    def shows_evicting(one: TrueNode, each: Pod) -> bool:
        """Say whether a pod has to go because of a taint that is new; that it tolerates what may be old is no proof."""
        return each.tolerations[0].toleration_seconds is not None and not one.found

    @rule(name=NODES)
    def list_pods(self, name: str) -> None:
        """The list of a node's pods is there."""
        if name in self.nodes:
            self.stage.lists(name)
            if name in self.unlisted:
                self.unlisted[name] = None

    @rule(name=NODES)
    def release(self, name: str) -> None:
        """Its pods are watched no longer."""
        if name not in self.nodes or self.nodes[name].taint is None:
            self.stage.observe(PodsReleased(name))
            self.unlisted.pop(name, None)

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        """Whole seconds go by."""
        self.stage.at(self.stage.now + seconds)

    @rule(name=NODES, key=KEYS, ago=st.sampled_from([0, 0, 0, 3, 30]), dated=st.booleans())
    def taint_node(self, name: str, key: str, ago: int, dated: bool) -> None:
        """Some time ago, or right now, in place of what was there; a node that was gone is created."""
        now, which = self.stage.now, taint(key, added_at=self.stage.now - ago - 1 if dated else None)
        if name in self.nodes and self.nodes[name].taint == which:
            return
        # What says not since when it has been there begins as it is seen.
        ago = ago if dated else 0
        self.nodes[name] = replace(self.nodes.get(name) or self.new_node(), since=now - ago, evicts=False, found=False)
        # Object times are a second early, as they are cut off; so a taint begins when it was really added.
        self.nodes[name].taint = which
        self.report(name)

    @rule(names=st.sets(NODES, min_size=1, max_size=3), dated=st.booleans())
    def drain(self, names: set[str], dated: bool) -> None:
        """Several nodes at once, each with a pod that has to go at once."""
        for name in sorted(names):
            self.taint_node(name, "k1", 0, dated)
            self.create_pods(name, 0, 1)

    @rule(name=NODES)
    def untaint_node(self, name: str) -> None:
        """Clean."""
        if name in self.nodes:
            self.nodes[name].taint = None
            self.report(name)

    @rule(name=NODES)
    def delete_node(self, name: str) -> None:
        """Gone with its pods."""
        if name in self.nodes:
            one = self.nodes.pop(name)
            self.stage.observe(*(PodGone(each.ref) for each in one.pods.values()), NodeGone(name, one.uid))

    @rule(name=NODES, seconds=SECONDS, count=st.integers(1, 3))
    def create_pods(self, name: str, seconds: int | None, count: int) -> None:
        """Bound right now."""
        for _ in range(count if name in self.nodes else 0):
            self.lives += 1
            uid = f"p{self.lives}"
            on = pod(tolerates(seconds, ""), name=uid, uid=uid, on=name, bound_at=self.stage.now - 1)
            self.nodes[name].pods[uid] = on
            self.stage.observe(PodSeen(on))
            self.note(name)

    @rule(name=NODES)
    def delete_pods(self, name: str) -> None:
        """By somebody else."""
        if name in self.nodes:
            for each in self.nodes[name].pods.values():
                self.stage.observe(PodGone(each.ref))
            self.nodes[name].pods.clear()

    # What follows from scratch

    def due(self) -> int:
        """Count the pods that are due and not paused."""
        if self.control_state.cluster is not None:
            return 0
        return sum(self.fires_at(one, each) <= self.stage.now for one, each in self.free())

    def free(self) -> list[tuple[TrueNode, Pod]]:
        """List the pods on nodes that are not paused."""
        free = [one for name, one in self.nodes.items() if name not in self.control_state.nodes]
        return [(one, each) for one in free for each in one.pods.values()]

    @staticmethod
    def fires_at(one: TrueNode, each: Pod) -> float:
        """Say when a pod has to go."""
        seconds = each.tolerations[0].toleration_seconds
        if one.taint is None or seconds is None or each.bound_at is None:
            return math.inf
        return max(one.since, each.bound_at + 1 - EPOCH) + seconds

    def newest_old(self) -> float:
        """Say which taints are new: later ones."""
        latest = self.stage.now if self.opened_at is None else min(self.stage.now, self.opened_at)
        return max(latest - self.policy.window_seconds, self.reset_at)

    def unlisted_since(self, name: str) -> float:
        """Say since when a tainted node has not been listed."""
        one, since = self.nodes.get(name), self.unlisted.get(name)
        return math.inf if one is None or one.taint is None or since is None else since

    def settle(self) -> None:
        """Let those go on that have waited long enough, or for whom there is nothing left to wait for."""
        new = [name for name, one in self.nodes.items() if one.since > self.newest_old()]
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
        """Say whether pods of a node have to go, or may have to, since its list was waited for in vain."""
        one = self.nodes[name]
        if one.evicts or one.taint is None:
            return one.evicts
        same = [other for other in self.nodes if (where := self.nodes[other].taint) and where.key == one.taint.key]
        tolerated = any(self.unlisted_since(other) == math.inf for other in same)
        presumed = not tolerated or any(self.nodes[other].evicts for other in same)
        return presumed and self.unlisted_since(name) <= self.waited_until

    def exceeded(self, due: int) -> bool:
        """Say whether it is too much."""
        new = [one for name, one in self.nodes.items() if self.affected(name) and one.since > self.newest_old()]
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

    # What people and processes do

    @rule()
    def evaluate(self) -> None:
        """It opens if and only if it is too much, and may close by itself once that was seen and is no longer so.

        Whoever has never seen it waits for a window.
        """
        effects = self.stage.evaluate()
        self.settle()
        due, now = self.due(), self.stage.now
        self.known_due = min(self.known_due, due)
        exceeded = self.exceeded(due)
        if self.opened_at is None:
            assert [type(effect) for effect in effects] == ([BreakerOpened] if exceeded else [])
            self.opened_at = self.cause_seen_at = now if exceeded else None
        elif self.policy.closes_by_itself and not exceeded and self.may_close():
            assert effects == [BreakerClosed()]
            self.opened_at, self.reset_at, self.known_due = None, now, math.inf
            self.cause_seen_at = self.first_look_at = None
        else:
            assert effects == []
            self.cause_seen_at = now if exceeded else self.cause_seen_at
            self.first_look_at = now if self.first_look_at is None else self.first_look_at

    def may_close(self) -> bool:
        """The cause was seen, or would have been."""
        looked_at = math.inf if self.first_look_at is None else self.first_look_at
        return self.cause_seen_at is not None or self.stage.now >= looked_at + self.policy.window_seconds

    @rule(seconds=st.sampled_from([0, 0, 2, 3]))
    def evict(self, seconds: int) -> None:
        """Only what is due and has settled goes, and nothing while it is open."""
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
            self.stage.settle(work, Done())
            self.stage.observe(PodGone(work.ref))
            del one.pods[work.ref.uid]

    def order(self, control_state: ControlState) -> None:
        """Order, on both sides."""
        before, self.control_state = self.control_state, control_state
        self.stage.order(control_state)
        if (before.cluster and not control_state.cluster) or set(before.nodes) - set(control_state.nodes):
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
        """A human closes it."""
        self.order(replace(self.control_state, reset_epoch=epoch(self.stage.now)))

    @rule(whole=st.booleans(), names=st.sets(NODES, max_size=2))
    def pause(self, whole: bool, names: set[str]) -> None:
        """And resume what was paused."""
        self.order(
            replace(self.control_state, cluster=Pause() if whole else None, nodes={name: Pause() for name in names})
        )

    @rule()
    def restart(self) -> None:
        """Everything is seen anew; what stands in the cluster is known, also of the breaker."""
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
        # What was reset is forgotten with the process where a newer latch stands in its place.
        self.reset_at = self.reset_at if latch is None else -math.inf
        self.known_due = 0.0

    # What always holds

    @invariant()
    def it_is_open_or_it_is_not(self) -> None:
        """As the oracle says."""
        assert (self.stage.brain.breaker.latch is not None) == (self.opened_at is not None)

    @invariant()
    def only_what_is_there_is_remembered(self) -> None:
        """The nodes with a taint that evicts, and that taint."""
        kept = self.stage.brain.breaker._evicting
        assert kept == {name: {one.taint} for name, one in self.nodes.items() if one.evicts}


BreakerMachine.TestCase.settings = settings(max_examples=examples(1), stateful_step_count=50)
TestBreakerAgainstAnOracle = BreakerMachine.TestCase
