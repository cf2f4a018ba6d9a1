"""Queues hold only hints: they can be refilled from the records at any moment without changing anything.

Two controllers observe the same facts. The queues of one of them are emptied and refilled now and then; both must
begin the same work at the same time and return the same effects.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.strategies import examples
from tests.unit.builders import moment, node, pod, taint, tolerates
from tests.unit.hints import fill_anew

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.controller import Controller
from taint_eviction.core.events import (
    Block,
    BlockReason,
    CalledOff,
    CutOff,
    Done,
    Eviction,
    Failed,
    NodeTainted,
    PodIsGone,
    Suspended,
    Work,
    WorkOutcome,
)
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, PodGone, PodSeen, PodsReleased, PodsSwept
from taint_eviction.core.objects import ControllerRef, Node, Pod, PodRef, Readiness, Taint
from taint_eviction.core.pods import Following, InFlight, PodRecord, PodState, Queued
from taint_eviction.core.policy import UNLIMITED, EvictionMode, EvictionPolicy, Limit, PolicyRule
from taint_eviction.core.tiers import Order

# Each pod may be asked about once for each tier before the refilled controller asks.
MAX_WAKES = 32
NAMES = [f"p{number}" for number in range(8)]
NODES = st.sampled_from(["n1", "n2", "n3"])
KEYS = st.sampled_from([(), ("k1",), ("k1",), ("k2",), ("k1", "k2"), ("k1", "k2")])
SECONDS = st.sampled_from([None, 0, 0, 2, 4])
LIMITS = st.sampled_from([UNLIMITED, Limit(0.5, 1), Limit(1.0, 2), Limit(at_once=1), Limit(2.0, 1, 2)])
RULES = st.lists(
    st.builds(
        lambda name, key, limit, mode, pause: PolicyRule(name, (key,), limit=limit, mode=mode, pause=pause),
        st.sampled_from(["slow", "other"]),
        st.sampled_from(["k1", "k2"]),
        LIMITS,
        st.sampled_from([None, *EvictionMode]),
        st.sampled_from([False, False, True]),
    ),
    max_size=2,
    unique_by=lambda rule: rule.name,
).map(tuple)
POLICIES = st.builds(
    lambda mode, total, node, rules, order: EvictionPolicy(
        mode, 3.0, total=total, per_node=node, rules=rules, order=order, order_wait_seconds=4.0
    ),
    st.sampled_from(list(EvictionMode)),
    LIMITS,
    LIMITS,
    RULES,
    st.sampled_from(Order),
)
BREAKERS = st.sampled_from(
    [
        BreakerPolicy(),
        BreakerPolicy(enabled=True, nodes=NodeThreshold(number=9), list_wait_seconds=4.0),
        BreakerPolicy(enabled=True, nodes=NodeThreshold(number=2), closes_by_itself=True, window_seconds=8.0),
    ]
)
BUDGET = Block(BlockReason.BUDGET, "web")

DAEMONSET, LATER_TIER = ControllerRef("DaemonSet", "logs", "d"), ("p1", "p2", "p4")


def ready(*taints: Taint, name: str) -> Node:
    """Make a node that is ready: its pods leave in order, if that is the policy."""
    return replace(node(*taints, name=name), ready=Readiness("True"))


Answer = TypeVar("Answer")


@dataclass
class TakenTwice:
    """The same piece of work of both controllers."""

    works: tuple[Work, Work]

    @property
    def ref(self) -> PodRef:
        """The pod of this work."""
        return self.works[0].ref


def plain(state: PodState) -> object:
    """Describe a state without its tokens, as each controller has its own.

    That a due pod has been found to wait for earlier tiers is a hint, too: it is asked again when its turn comes.
    """
    if isinstance(state, Following):
        return Queued(state.schedule)
    return (state.work, state.step, state.tokens is None) if isinstance(state, InFlight) else state


class HintsMachine(RuleBasedStateMachine):
    """Both controllers observe the same facts and receive the same orders."""

    @initialize(policy=POLICIES, breaker=BREAKERS)
    def begin(self, policy: EvictionPolicy, breaker: BreakerPolicy) -> None:
        """Start both controllers with two tainted nodes and pods on them."""
        self.plain, self.refilled = (Controller(eviction_policy=policy, breaker=breaker) for _ in range(2))
        self.now, self.lives, self.versions = 0.0, 0, 0
        self.pods: dict[str, Pod] = {}
        self.flying: list[TakenTwice] = []
        for name in ("n1", "n2"):
            self.tell(NodeSeen(ready(taint("k1"), name=name)))
        self.see_pods(NAMES[:3], "n1", 0, new=True, marked=False)
        self.see_pods(NAMES[3:6], "n2", 2, new=True, marked=False)

    def both(self, ask: Callable[[Controller], Answer]) -> Answer:
        """Ask both controllers, and compare their answers."""
        answer, other = ask(self.plain), ask(self.refilled)
        assert answer == other
        return answer

    def tell(self, *facts: Fact) -> None:
        """Report facts to both controllers."""
        for fact in facts:
            effects = self.both(lambda brain, fact=fact: brain.observe(fact, moment(self.now)))  # type: ignore[misc]
            for effect in effects:
                if isinstance(effect, NodeTainted):
                    here = [each for each in self.pods.values() if each.node_name == effect.node_name]
                    self.tell(*(PodSeen(each) for each in here))

    @rule()
    def fill_anew(self) -> None:
        """The queues of one controller are emptied and refilled."""
        fill_anew(self.refilled, self.now)

    @rule(max_works=st.sampled_from([1, 2, 100]))
    def fill_anew_and_take(self, max_works: int) -> None:
        """After a refill, both controllers begin the same work."""
        fill_anew(self.refilled, self.now)
        self.take(max_works, 100)

    @rule(seconds=st.sampled_from([0.5, 1, 2, 5]))
    def time_passes(self, seconds: float) -> None:
        """Time passes, and both controllers evaluate."""
        self.now += seconds
        self.both(lambda brain: brain.evaluate(moment(self.now)))

    # Observations

    @rule(name=NODES, keys=KEYS)
    def taint_node(self, name: str, keys: tuple[str, ...]) -> None:
        """A node's taints change."""
        self.tell(NodeSeen(ready(*(taint(key) for key in keys), name=name)))

    @rule(name=NODES)
    def lose_node(self, name: str) -> None:
        """A node is deleted, and its pods are no longer watched."""
        self.tell(NodeGone(name, asked_at=self.now), PodsReleased(name))

    @rule(name=NODES)
    def list_node(self, name: str) -> None:
        """The pods of a node have been listed."""
        uids = frozenset(each.ref.uid for each in self.pods.values())
        self.tell(PodsSwept(name, uids, self.now, None))

    @rule(
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True),
        on=NODES,
        seconds=SECONDS,
        new=st.booleans(),
        marked=st.booleans(),
    )
    def see_pods(self, names: list[str], on: str, seconds: int | None, new: bool, marked: bool) -> None:
        """Several pods are created, recreated or changed at once: their deadlines are the same."""
        for name in names:
            self.versions += 1
            before = self.pods.get(name)
            self.lives += before is None or new
            self.pods[name] = pod(
                tolerates(seconds),
                tolerates(3, "k2"),
                name=name,
                uid=f"{name}-{self.lives}" if before is None or new else before.ref.uid,
                on=on,
                version=self.versions,
                marked=marked,
                controller=DAEMONSET if name in LATER_TIER else None,
            )
            self.tell(PodSeen(self.pods[name]))

    @rule(name=st.sampled_from(NAMES))
    def lose_pod(self, name: str) -> None:
        """A pod is deleted."""
        if name in self.pods:
            self.tell(PodGone(self.pods.pop(name).ref))

    # Orders

    @rule(cluster=st.integers(0, 4), names=st.sets(NODES, max_size=2))
    def order(self, cluster: int, names: set[str]) -> None:
        """Pauses begin and end."""
        control_state = ControlState(Pause() if cluster == 4 else None, {name: Pause() for name in names})
        self.both(lambda brain: brain.order(control_state, moment(self.now)))

    @rule(policy=POLICIES)
    def change_policy(self, policy: EvictionPolicy) -> None:
        """Limits, rules and modes change."""
        self.both(lambda brain: brain.change_policy(policy, moment(self.now)))

    # Work

    @rule(max_works=st.sampled_from([1, 2, 100]), max_retries=st.sampled_from([0, 1, 100]))
    def take(self, max_works: int, max_retries: int) -> None:
        """Both begin the same work in the same order."""
        self.both(lambda brain: brain.evaluate(moment(self.now)))
        first, second = (
            brain.attempts.take_due(moment(self.now), max_works, max_retries) for brain in (self.plain, self.refilled)
        )
        assert first == second
        self.flying += [TakenTwice(works) for works in zip(first, second, strict=True)]

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), marks=st.booleans(), sends=st.booleans())
    def go_on(self, data: st.DataObject, marks: bool, sends: bool) -> None:
        """Work in flight makes its next call, if the recheck allows it."""
        begun = data.draw(st.sampled_from(self.flying))
        first, second = (
            brain.attempts.recheck(work, moment(self.now))
            for brain, work in zip((self.plain, self.refilled), begun.works, strict=True)
        )
        assert first == second
        if first is None and isinstance(begun.works[0], Eviction):
            if marks:
                self.both(lambda brain: brain.attempts.will_mark(begun.ref))
            if sends:
                self.both(lambda brain: brain.attempts.will_delete(begun.ref, moment(self.now)))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), how=st.sampled_from(["done", "gone", "off", "cut", "held", "failed", "blocked"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        """A piece of work ends."""
        begun = data.draw(st.sampled_from(self.flying))
        self.flying.remove(begun)
        outcomes: dict[str, WorkOutcome] = {
            "done": Done(),
            "gone": PodIsGone(),
            "off": CalledOff(),
            "cut": CutOff(),
            "held": Suspended(),
            "failed": Failed("denied", self.now + 2),
            "blocked": Failed("refused", self.now + 2, BUDGET),
        }
        outcome = outcomes[how]
        first, second = (
            brain.attempts.finish(work, outcome, moment(self.now))
            for brain, work in zip((self.plain, self.refilled), begun.works, strict=True)
        )
        assert first == second

    # What always holds

    @invariant()
    def records_are_the_same(self) -> None:
        """Both controllers have the same records, and report the same status."""
        if not hasattr(self, "plain"):
            return
        self.both(lambda brain: [(record.ref, plain(record.state), record.condition) for record in brain.pods])
        self.both(
            lambda brain: [
                (each.record.ref, plain(each.state), each.failures, each.wait_reason, each.tier_wait)
                for each in brain.status.pending(moment(self.now))
            ]
        )
        self.both(lambda brain: (brain.status.due_count(), brain.status.pending_count()))

    @invariant()
    def nothing_is_slept_through(self) -> None:
        """After a refill a controller may wake for nothing, as it asks the limits once more, but never too late.

        If nothing is to be done, either controller may wake for nothing: the hint of a limit outlives its pod. A pod
        that is blocked waits longer for earlier tiers, and only a controller that asks later knows that by then: the
        other one wakes before, and begins nothing.
        """
        if not hasattr(self, "plain") or not any(map(_is_to_be_done, self.plain.pods)):
            return
        for _ in range(MAX_WAKES):
            at, refilled_at = (brain.attempts.next_at(moment(self.now)) for brain in (self.plain, self.refilled))
            if at is None or (refilled_at is not None and refilled_at <= max(at, self.now)):
                return
            self.now = max(at, self.now)
            self.both(lambda brain: brain.evaluate(moment(self.now)))
            assert self.both(lambda brain: brain.attempts.take_due(moment(self.now), 100, 100)) == []
        raise AssertionError("the refilled controller sleeps while the other one wakes")


def _is_to_be_done(record: PodRecord) -> bool:
    return record.decision is not None or record.condition.take_back_at is not None


HintsMachine.TestCase.settings = settings(max_examples=examples(1.5), stateful_step_count=40)
TestHints = HintsMachine.TestCase
