"""The same pods are evicted whether facts arrive late, twice, out of order, or only with a fresh list."""

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.strategies import examples
from tests.unit.builders import Stage, node, pod, taint, tolerates

from taint_eviction.core.events import Event, NodeTainted
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, NodesSwept, PodGone, PodSeen, PodsSwept
from taint_eviction.core.objects import Node, Pod

NODES = ("n1", "n2")
NAMES = ("p1", "p2", "p3")

# All times lie long before the first fact is reported, so that the instant of the report does not matter.
long_ago = st.integers(-900, -800).map(float)
taint_sets = st.lists(
    st.builds(lambda key, at: taint(key, added_at=at), st.sampled_from(["k1", "k2"]), long_ago),
    max_size=2,
    unique_by=lambda one: one.key,
)
toleration_lists = st.lists(
    st.builds(
        lambda key, seconds: tolerates(seconds, key),
        st.sampled_from(["k1", "k2", ""]),
        st.sampled_from([None, 0, 50, 5000]),
    ),
    max_size=3,
)


@dataclass
class TrueHistory:
    """All facts in true order, and the nodes and pods that exist at the end."""

    facts: list[Fact] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    version: int = 0

    def next_version(self) -> int:
        """Return the next resource version; versions grow with time across all objects."""
        self.version += 1
        return self.version

    def leaving(self) -> dict[str, float]:
        """Compute from the final objects alone which pods are evicted and when."""
        deadlines = {}
        for one in self.pods.values():
            home = self.nodes.get(one.node_name or "")
            if home is None or one.terminating:
                continue
            ends = []
            for mark in home.taints:
                fitting = [t for t in one.tolerations if t.key in {"", mark.key}]
                seconds = fitting[0].toleration_seconds if fitting else 0
                start = max(mark.time_added or 0.0, one.bound_at or 0.0) + 1 - EPOCH_OF_ZERO
                ends += [] if seconds is None else [start + seconds]
            if ends:
                deadlines[one.ref.uid] = min(ends)
        return deadlines


EPOCH_OF_ZERO = taint(added_at=0.0).time_added or 0.0


def live_nodes(draw: st.DrawFn, history: TrueHistory, name: str) -> None:
    """Let a node be tainted, cleared, deleted and created again."""
    for life in range(draw(st.integers(1, 2))):
        if name in history.nodes:
            history.facts.append(NodeGone(name, history.nodes.pop(name).uid))
        for taints in draw(st.lists(taint_sets, min_size=1, max_size=3)):
            history.nodes[name] = node(*taints, name=name, uid=f"{name}-{life}", version=history.next_version())
            history.facts.append(NodeSeen(history.nodes[name]))
    if draw(st.integers(0, 4)) == 4:
        history.facts.append(NodeGone(name, history.nodes.pop(name).uid))


def live_pods(draw: st.DrawFn, history: TrueHistory, name: str) -> None:
    """Let a pod be changed, deleted and created again."""
    for life in range(draw(st.integers(1, 2))):
        if name in history.pods:
            history.facts.append(PodGone(history.pods.pop(name).ref))
        on, bound_at, uid = draw(st.sampled_from(NODES)), draw(long_ago), f"{name}-{life}"
        for tolerations in draw(st.lists(toleration_lists, min_size=1, max_size=3)):
            version, terminating = history.next_version(), draw(st.integers(0, 7)) == 7
            history.pods[name] = pod(
                *tolerations, name=name, uid=uid, on=on, bound_at=bound_at, version=version, terminating=terminating
            )
            history.facts.append(PodSeen(history.pods[name]))
    if draw(st.integers(0, 4)) == 4:
        history.facts.append(PodGone(history.pods.pop(name).ref))


@st.composite
def histories(draw: st.DrawFn) -> TrueHistory:
    """Draw nodes and pods that are each created once or twice."""
    history = TrueHistory()
    for name in NODES:
        live_nodes(draw, history, name)
    for name in NAMES:
        live_pods(draw, history, name)
    return history


# Each example draws one seed: shuffling by drawn numbers would take most of the time.
rngs = st.integers(0, 2**32).map(Random)


def report(stage: Stage, fact: Fact, history: TrueHistory) -> None:
    """Report a fact; if a node becomes tainted by it, report that node's pods, too, as they are at the end."""
    effects: list[Event] = stage.observe(fact)
    for effect in effects:
        if isinstance(effect, NodeTainted):
            here = [one for one in history.pods.values() if one.node_name == effect.node_name]
            stage.observe(*(PodSeen(one, asked_at=stage.now) for one in here))


def resync(stage: Stage, history: TrueHistory) -> None:
    """List all nodes, then all bound pods; objects that are missing from the lists are gone."""
    asked_at = stage.now
    for one in history.nodes.values():
        report(stage, NodeSeen(one, after_gap=True, asked_at=asked_at), history)
    uids = frozenset(one.uid for one in history.nodes.values())
    stage.observe(NodesSwept(uids, asked_at, history.version))
    stage.observe(*(PodSeen(one, asked_at=asked_at) for one in history.pods.values()))
    uids = frozenset(one.ref.uid for one in history.pods.values())
    stage.observe(PodsSwept(None, uids, asked_at, history.version))


def in_some_order(facts: list[Fact], rng: Random, twice: int) -> list[Fact]:
    """Shuffle facts, and repeat some of them anywhere."""
    told = facts + (rng.choices(facts, k=twice) if twice else [])
    rng.shuffle(told)
    return told


@settings(max_examples=examples(0.75))
@given(histories())
def test_facts_in_true_order_lead_to_the_deadlines_of_the_end(history: TrueHistory) -> None:
    """If no fact is lost, late or repeated, the deadlines are those of the final objects."""
    stage = Stage()
    for step, fact in enumerate(history.facts):
        stage.at(step / 8)  # eighths are exact in binary
        report(stage, fact, history)
    assert stage.deadlines() == history.leaving()


@settings(max_examples=examples(0.75))
@given(histories(), rngs, st.integers(0, 12))
def test_the_order_of_facts_does_not_matter(history: TrueHistory, rng: Random, twice: int) -> None:
    """Facts in any order, with repeats and with stale facts after fresh ones, lead to the same deadlines."""
    stage = Stage()
    for step, fact in enumerate(in_some_order(history.facts, rng, twice)):
        stage.at(step / 8)  # eighths are exact in binary
        report(stage, fact, history)
    assert stage.deadlines() == history.leaving()


@settings(max_examples=examples(0.75))
@given(histories(), rngs, st.data())
def test_after_a_gap_the_state_is_what_a_fresh_list_says(
    history: TrueHistory, rng: Random, data: st.DataObject
) -> None:
    """W21: whichever facts were lost, one resync corrects all deadlines, and drops objects that no longer exist."""
    kept = data.draw(st.lists(st.sampled_from(history.facts), max_size=len(history.facts)))
    stage = Stage()
    for step, fact in enumerate(in_some_order(kept, rng, 0)):
        stage.at(step / 8)  # eighths are exact in binary
        report(stage, fact, history)
    stage.at(stage.now + 1)
    resync(stage, history)
    assert stage.deadlines() == history.leaving()


@settings(max_examples=examples(0.75))
@given(histories(), rngs, st.data())
def test_stale_facts_after_a_resync_change_nothing(history: TrueHistory, rng: Random, data: st.DataObject) -> None:
    """W21: stale events that a slow watch delivers after a resync are dropped."""
    stage = Stage()
    for step, fact in enumerate(history.facts):
        stage.at(step / 8)  # eighths are exact in binary
        report(stage, fact, history)
    stage.at(stage.now + 1)
    resync(stage, history)
    late = data.draw(st.lists(st.sampled_from(history.facts), max_size=6))
    for fact in in_some_order(late, rng, 0):
        report(stage, fact, history)
    assert stage.deadlines() == history.leaving()
