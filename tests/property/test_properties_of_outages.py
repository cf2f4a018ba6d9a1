"""Lifecycle taints of nodes that change in any way: no countdown starts before its outage (W22), and no pod is due
while the taint is absent.
"""

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.strategies import examples
from tests.unit.builders import EPOCH, Stage, node, pod, taint, tolerates

from taint_eviction.core.facts import NodeSeen, NodesHeard, NodesSwept
from taint_eviction.core.objects import NOT_READY, UNREACHABLE, Node, Readiness

SECONDS = 20
NAMES = ("n1", "n2", "n3")
KEYS = (UNREACHABLE, NOT_READY)


@dataclass(frozen=True)
class OutageTurn:
    """A change of a node ``after`` this many seconds, and how the controller learns of the change, if it does."""

    after: int
    name: str
    status: str | None
    keys: tuple[str, ...]
    learns: str


turns = st.lists(
    st.builds(
        OutageTurn,
        st.integers(1, 15),
        st.sampled_from(("n1", "n1", *NAMES)),
        st.sampled_from(("True", "False", "Unknown", "Unknown", "Unknown", None)),
        st.sampled_from(((), (), (UNREACHABLE,), (UNREACHABLE,), (NOT_READY,), KEYS)),
        st.sampled_from(("watch", "watch", "watch", "list", "resync", "read", "not")),
    ),
    min_size=3,
    max_size=14,
)


class TrueOutages:
    """The true nodes, and for each lifecycle taint of n1 the instant at which its outage began."""

    def __init__(self) -> None:
        self.nodes = {name: replace(node(name=name, version=1), ready=Readiness("True", EPOCH - 99)) for name in NAMES}
        self.version = 1
        self.began_at: dict[str, float] = {}
        self.unseen: list[Node] = []

    def take(self, turn: OutageTurn, at: float) -> None:
        """Change a node."""
        before, self.version = self.nodes[turn.name], self.version + 1
        old = before.ready
        ready = None if turn.status is None else Readiness(turn.status, EPOCH + at)
        if old is not None and ready is not None and old.status == ready.status:
            ready = old
        kept = {one.key: one for one in before.taints}
        taints = tuple(kept.get(key, taint(key, added_at=at)) for key in turn.keys)
        after = self.nodes[turn.name] = replace(before, taints=taints, ready=ready, resource_version=self.version)
        self.unseen.append(after)
        if turn.name == "n1":
            if ready is None or ready.is_true:
                self.began_at = {key: began for key, began in self.began_at.items() if key in turn.keys and key in kept}
            for key in turn.keys:
                self.began_at.setdefault(key, at)


def learn(stage: Stage, truth: TrueOutages, how: str) -> None:
    """Report the true state by a watch, a list after a gap, a list beside the watch, or a live read."""
    match how:
        case "watch":
            stage.observe(*(NodeSeen(one) for one in truth.unseen), NodesHeard(truth.version))
        case "list":
            uids = frozenset(one.uid for one in truth.nodes.values())
            listed = [NodeSeen(one, after_gap=True, asked_at=stage.now) for one in truth.nodes.values()]
            stage.observe(*listed, NodesSwept(uids, stage.now, truth.version))
        case "resync":
            stage.observe(*(NodeSeen(one, asked_at=stage.now) for one in truth.nodes.values()))
            return  # The watch still has to deliver these changes.
        case "read":
            stage.observe(NodeSeen(truth.nodes["n1"], asked_at=stage.now))
            return
        case _:
            return
    truth.unseen.clear()


@settings(max_examples=examples(1))
@given(turns)
def test_no_countdown_starts_before_its_outage_and_no_pod_is_due_without_its_taint(story: list[OutageTurn]) -> None:
    """W22: a start that is carried over belongs to the same outage; while the taint is absent, its pods stay."""
    stage, truth = Stage(), TrueOutages()
    learn(stage, truth, "list")
    for turn in story:
        stage.at(stage.now + turn.after)
        truth.take(turn, stage.now)
        learn(stage, truth, turn.learns)
        stage.sees(pod(tolerates(SECONDS, ""), bound_at=-50))
        if turn.learns == "not":
            continue
        shown = {one.key for one in truth.nodes["n1"].taints}
        known = stage.brain.nodes.known["n1"].sightings
        assert {one.key for one in known} <= shown
        for one, since in known.items():
            assert since.start_at >= truth.began_at[one.key]
        if not shown:
            assert stage.deadlines() == {}
