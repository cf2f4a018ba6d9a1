"""The circuit breaker on a whole controller, against an oracle that counts everything anew at every look."""

import math
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.strategies import examples
from tests.unit.builders import EPOCH, Stage, epoch, node, pod, taint, tolerates

from taint_eviction.core.breaker import BreakerPolicy, NodeThreshold
from taint_eviction.core.effects import BreakerClosed, BreakerOpened, Done
from taint_eviction.core.facts import NodeGone, NodeSeen, PodGone, PodSeen
from taint_eviction.core.objects import NOT_READY, UNREACHABLE, Pod, Taint
from taint_eviction.core.orders import Orders, Pause

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
    most_due=st.none() | st.integers(0, 4),
    settle_seconds=st.sampled_from([0.0, 2.0]),
    closes_by_itself=st.booleans(),
)


@dataclass
class TrueNode:
    """A node; ``evicts``: while it has had this taint, a pod had to go because of it."""

    uid: str
    taint: Taint | None = None
    since: float = 0.0
    evicts: bool = False
    pods: dict[str, Pod] = field(default_factory=dict)


class BreakerMachine(RuleBasedStateMachine):
    """Nodes are tainted and untainted, pods come and go, people pause, resume and reset, processes restart."""

    @initialize(policy=POLICIES)
    def begin(self, policy: BreakerPolicy) -> None:
        """Start with six clean nodes."""
        self.policy = policy
        self.version = self.lives = 0
        self.stage = Stage(breaker=policy)
        self.nodes = {f"n{number}": self.new_node() for number in range(6)}
        self.orders = Orders()
        self.opened_at: float | None = None
        self.cause_seen_at: float | None = None
        self.first_look_at: float | None = None
        self.reset_at = -math.inf
        self.known_due = 0.0
        for name in self.nodes:
            self.tell(name)

    # The cluster

    def new_node(self) -> TrueNode:
        """No UID is used twice."""
        self.lives += 1
        return TrueNode(f"node-{self.lives}")

    def tell(self, name: str) -> None:
        """Tell how a node is, and its pods."""
        self.version += 1
        one = self.nodes[name]
        taints = [] if one.taint is None else [one.taint]
        self.stage.observe(NodeSeen(node(*taints, name=name, uid=one.uid, version=self.version)))
        self.stage.observe(*(PodSeen(each) for each in one.pods.values()))
        self.note(name)

    def note(self, name: str) -> None:
        """Remember whether any pod has to go."""
        one = self.nodes[name]
        if one.taint is None:
            one.evicts = False
        elif any(each.tolerations[0].toleration_seconds is not None for each in one.pods.values()):
            one.evicts = True

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        """Whole seconds go by."""
        self.stage.at(self.stage.now + seconds)

    @rule(name=NODES, key=KEYS, ago=st.sampled_from([0, 0, 0, 3, 30]))
    def taint_node(self, name: str, key: str, ago: int) -> None:
        """Some time ago, or right now, in place of what was there; a node that was gone is created."""
        now = self.stage.now
        self.nodes[name] = replace(self.nodes.get(name) or self.new_node(), since=now - ago, evicts=False)
        # Object times are a second early, as they are cut off; so a taint begins when it was really added.
        self.nodes[name].taint = taint(key, added_at=now - ago - 1)
        self.tell(name)

    @rule(name=NODES)
    def untaint_node(self, name: str) -> None:
        """Clean."""
        if name in self.nodes:
            self.nodes[name].taint = None
            self.tell(name)

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
        if self.orders.whole is not None:
            return 0
        return sum(self.fires_at(one, each) <= self.stage.now for one, each in self.free())

    def free(self) -> list[tuple[TrueNode, Pod]]:
        """List the pods on nodes that are not paused."""
        free = [one for name, one in self.nodes.items() if name not in self.orders.nodes]
        return [(one, each) for one in free for each in one.pods.values()]

    @staticmethod
    def fires_at(one: TrueNode, each: Pod) -> float:
        """Say when a pod has to go."""
        seconds = each.tolerations[0].toleration_seconds
        if one.taint is None or seconds is None or each.bound_at is None:
            return math.inf
        return max(one.since, each.bound_at + 1 - EPOCH) + seconds

    def exceeded(self, due: int) -> bool:
        """Say whether it is too much."""
        newest_old = max(min(self.stage.now, self.opened_at or math.inf) - self.policy.window_seconds, self.reset_at)
        new = [one for one in self.nodes.values() if one.evicts and one.since > newest_old]
        lifecycle = sum(one.taint is not None and one.taint.key != "k1" for one in new)
        most_due = self.policy.most_due
        return (
            self.policy.nodes.exceeded_by(len(new) - lifecycle, len(self.nodes))
            or (
                self.policy.lifecycle_nodes is not None
                and self.policy.lifecycle_nodes.exceeded_by(lifecycle, len(self.nodes))
            )
            or (most_due is not None and due - self.known_due > most_due)
        )

    # What people and processes do

    @rule()
    def look(self) -> None:
        """It opens if and only if it is too much, and may close by itself once that was seen and is no longer so.

        Whoever has never seen it waits for a window.
        """
        effects = self.stage.look()
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

    @rule()
    def evict(self) -> None:
        """Only what is due goes, and nothing while it is open."""
        self.look()
        taken = self.stage.take()
        assert not taken or self.opened_at is None
        for work in taken:
            one = self.nodes[work.node_name]
            assert self.fires_at(one, one.pods[work.ref.uid]) <= self.stage.now
            self.stage.send(work)
            self.stage.settle(work, Done())
            self.stage.observe(PodGone(work.ref))
            del one.pods[work.ref.uid]

    def order(self, orders: Orders) -> None:
        """Order, on both sides."""
        before, self.orders = self.orders, orders
        self.stage.order(orders)
        if (before.whole and not orders.whole) or set(before.nodes) - set(orders.nodes):
            self.known_due = math.inf
        reset_at = -math.inf if orders.reset_epoch is None else orders.reset_epoch - EPOCH
        if reset_at > self.reset_at and reset_at >= (self.opened_at or 0):
            self.known_due = math.inf if self.opened_at is not None else self.known_due
            self.opened_at, self.reset_at = None, reset_at
            self.cause_seen_at = self.first_look_at = None
        whole = orders.whole
        self.orders = replace(orders, whole=None)
        self.known_due = min(self.known_due, self.due())
        self.orders = replace(orders, whole=whole)

    @rule()
    def reset(self) -> None:
        """A human closes it."""
        self.order(replace(self.orders, reset_epoch=epoch(self.stage.now)))

    @rule(whole=st.booleans(), names=st.sets(NODES, max_size=2))
    def pause(self, whole: bool, names: set[str]) -> None:
        """And resume what was paused."""
        self.order(replace(self.orders, whole=Pause() if whole else None, nodes={name: Pause() for name in names}))

    @rule()
    def restart(self) -> None:
        """Everything is seen anew; what stands in the cluster is known, also of the breaker."""
        latch = self.stage.brain.dispatch.brakes.breaker.latch
        reset_epoch = None if self.reset_at == -math.inf else epoch(self.reset_at)
        now = self.stage.now
        self.stage = Stage(breaker=self.policy, orders=None).at(now)
        for name, one in self.nodes.items():
            one.evicts = False
            self.tell(name)
        assert self.stage.look() == []
        assert self.stage.take() == []
        self.stage.order(replace(self.orders, latch=latch, reset_epoch=None if latch else reset_epoch))
        self.cause_seen_at = self.first_look_at = None
        # What was reset is forgotten with the process where a newer latch stands in its place.
        self.reset_at = self.reset_at if latch is None else -math.inf
        self.known_due = 0.0

    # What always holds

    @invariant()
    def it_is_open_or_it_is_not(self) -> None:
        """As the oracle says."""
        assert (self.stage.brain.dispatch.brakes.breaker.latch is not None) == (self.opened_at is not None)

    @invariant()
    def only_what_is_there_is_remembered(self) -> None:
        """The nodes with a taint that evicts, and that taint."""
        kept = self.stage.brain.dispatch.brakes.breaker._evicting
        assert kept == {name: {one.taint} for name, one in self.nodes.items() if one.evicts}


BreakerMachine.TestCase.settings = settings(max_examples=examples(1), stateful_step_count=50)
TestBreakerAgainstAnOracle = BreakerMachine.TestCase
