"""One outage, one countdown: which start a lifecycle taint has that was removed and set again."""

from dataclasses import dataclass, field, replace

import pytest
from tests.unit.builders import EPOCH, Stage, moment, node, pod, taint, tolerates

from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.effects import Scheduled
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, NodesHeard, NodesSwept
from taint_eviction.core.instants import Sighting, TimeSource
from taint_eviction.core.objects import NOT_READY, UNREACHABLE, Node, Readiness, Taint
from taint_eviction.core.outages import Outages
from taint_eviction.core.sentences import began

DOWN, UP = Readiness("Unknown", EPOCH - 100), Readiness("True", EPOCH - 3600)
FIRST, AGAIN = taint(UNREACHABLE, added_at=10), taint(UNREACHABLE, added_at=40)


@dataclass
class OutagePlay:
    """A stage on which the node n1, with a pod that tolerates its taints for 100 s, is down; n2 is ready."""

    stage: Stage = field(default_factory=Stage)
    version: int = 0

    def __post_init__(self) -> None:
        self.see(0, ready=UP, name="n2")
        self.see(0)

    def node(self, *taints: Taint, ready: Readiness | None = DOWN, name: str = "n1", uid: str | None = None) -> Node:
        """The node's next version."""
        self.version += 1
        return replace(node(*taints, name=name, uid=uid, version=self.version), ready=ready)

    def see(self, at: float, *taints: Taint, ready: Readiness | None = DOWN, name: str = "n1") -> None:
        """Let the watch bring a node."""
        self.tell(at, NodeSeen(self.node(*taints, ready=ready, name=name)), NodesHeard(self.version))

    def tell(self, at: float, *facts: Fact) -> None:
        """Tell facts; the pod is listed as soon as its node is tainted."""
        self.stage.at(at).observe(*facts)
        self.stage.sees(pod(tolerates(100, ""), bound_at=-10))

    @property
    def due_at(self) -> float | None:
        """When the pod is due."""
        return self.stage.deadlines().get("a")


@pytest.fixture
def play() -> OutagePlay:
    """A node whose taint is there from 10 to 30."""
    started = OutagePlay()
    started.see(10, FIRST)
    started.see(30)
    return started


def test_a_taint_that_is_set_again_keeps_its_start(play: OutagePlay) -> None:
    """While it is absent nothing is due; then the first start counts, and is named as what it is."""
    assert play.due_at is None
    play.see(40, AGAIN)
    assert play.due_at == 110
    known = play.stage.brain.nodes.known["n1"]
    assert known.sightings[AGAIN].source is TimeSource.OUTAGE


def test_people_read_from_which_outage_a_start_comes() -> None:
    """In logs, in explanations and in pictures."""
    said = began("14:00", TimeSource.OUTAGE.value)
    assert said == "14:00 (the start of the outage: the taint was taken back and set again)"


def test_a_taint_that_is_set_again_and_again_keeps_its_start(play: OutagePlay) -> None:
    """Each time the gap is counted from when the taint was last seen."""
    play.see(40, AGAIN)
    play.tell(1799, NodesHeard(play.version))
    play.see(1800)
    play.see(3599, taint(UNREACHABLE, added_at=3599))
    assert play.due_at == 110


def test_a_taint_whose_date_changes_in_one_write_keeps_its_start() -> None:
    """A watch may bring removal and return as one change."""
    play = OutagePlay()
    play.see(10, FIRST)
    play.see(40, AGAIN)
    assert play.due_at == 110


@pytest.mark.parametrize(("at", "due_at"), [(1829.5, 110), (1830.5, 1930.5)])
def test_the_gap_is_bounded(at: float, due_at: float) -> None:
    """Up to half an hour after the taint was last known to be there it goes on."""
    play = OutagePlay()
    play.see(10, FIRST)
    play.tell(30, NodesHeard(play.version))
    play.see(31)
    play.see(at, taint(UNREACHABLE, added_at=at))
    assert play.due_at == due_at


def test_no_gap_at_all_can_be_allowed() -> None:
    """With 0 a taint that is set again always starts anew."""
    play = OutagePlay(Stage(DecisionPolicy(outage_gap_seconds=0.0)))
    play.see(10, FIRST)
    play.see(40, AGAIN)
    assert play.due_at == 140


@pytest.mark.parametrize("ready", [Readiness("True", EPOCH + 35), None], ids=["ready", "no condition"])
def test_a_node_that_was_ready_in_between_starts_anew(play: OutagePlay, ready: Readiness | None) -> None:
    """Nor does a node go on that had no condition for a while."""
    play.see(35, ready=ready)
    play.see(38)
    play.see(40, AGAIN)
    assert play.due_at == 140


def test_a_node_that_fails_in_another_way_goes_on(play: OutagePlay) -> None:
    """False instead of Unknown is not ready either."""
    play.see(35, ready=Readiness("False", EPOCH + 35))
    play.see(38, ready=Readiness("Unknown", EPOCH + 38))
    play.see(40, AGAIN, ready=Readiness("Unknown", EPOCH + 38))
    assert play.due_at == 110


def test_a_new_node_of_the_name_starts_anew(play: OutagePlay) -> None:
    """Another UID owes nothing to the old one, with or without news of its end."""
    play.tell(40, NodeSeen(play.node(AGAIN, uid="another")))
    assert play.due_at == 140


def test_a_node_that_was_deleted_is_forgotten(play: OutagePlay) -> None:
    """Nothing is remembered of nodes that are gone."""
    play.tell(35, NodeGone("n1"), NodeGone("n2"))
    outages = play.stage.brain.nodes._outages
    assert (outages._ready_since, outages._removed, outages._undecided) == ({}, {}, {})


@pytest.mark.parametrize("key", ["k1", NOT_READY])
def test_only_the_same_lifecycle_taint_goes_on(key: str) -> None:
    """What people set is a new taint when it is set again; a swap starts the other taint's own window."""
    play = OutagePlay()
    play.see(10, taint(key))
    play.see(30)
    play.see(40, taint("k1") if key == "k1" else AGAIN)
    assert play.due_at == 140


def test_another_value_starts_anew(play: OutagePlay) -> None:
    """The node lifecycle controller sets none."""
    play.see(40, replace(AGAIN, value="by-hand"))
    assert play.due_at == 140


# Who was ready throughout


def test_where_nobody_else_is_ready_the_taint_starts_anew(play: OutagePlay) -> None:
    """The node lifecycle controller took its taints back on purpose."""
    play.see(35, ready=DOWN, name="n2")
    play.see(38, ready=Readiness("True", EPOCH + 38), name="n2")
    play.see(40, AGAIN)
    assert play.due_at == 140


def test_a_witness_must_have_been_ready_before_the_taint_was_removed(play: OutagePlay) -> None:
    """One that came later proves nothing, whatever its condition is dated."""
    play.tell(35, NodeGone("n2"), NodeSeen(play.node(ready=UP, name="n3")))
    play.see(40, AGAIN)
    assert play.due_at == 140


def test_a_witness_that_was_ready_again_at_the_instant_of_the_removal_is_none(play: OutagePlay) -> None:
    """A watch that was behind brings everything at once: the witness was not ready in between."""
    there, gone = play.node(taint(UNREACHABLE, added_at=32)), play.node()
    down, up = play.node(ready=DOWN, name="n2"), play.node(ready=Readiness("True", EPOCH + 36), name="n2")
    play.tell(40, *(NodeSeen(each) for each in (there, gone, down, up, play.node(AGAIN))))
    assert play.due_at == 140


def test_a_witness_that_was_listed_is_one_by_its_date() -> None:
    """A process that has just started knows by lastTransitionTime who has long been ready."""
    stage = Stage()
    dark, bright = (replace(node(name=name, version=1), ready=one) for name, one in (("n1", DOWN), ("n2", UP)))
    tainted = replace(dark, taints=(taint(UNREACHABLE, added_at=-50),))
    stage.at(1).observe(NodeSeen(tainted, after_gap=True, asked_at=0.0), NodeSeen(bright, after_gap=True, asked_at=0.0))
    stage.sees(pod(tolerates(100, ""), bound_at=-80))
    assert stage.deadlines() == {"a": 51}
    stage.at(2).sees(replace(dark, resource_version=3))
    stage.at(3).sees(replace(tainted, taints=(taint(UNREACHABLE, added_at=3),), resource_version=4))
    assert stage.deadlines() == {"a": 51}


def test_an_exempt_node_is_no_witness(play: OutagePlay) -> None:
    """The node lifecycle controller does not count it either."""
    play.tell(31, NodeSeen(replace(play.node(ready=UP, name="n2"), exempt=True)))
    play.see(40, AGAIN)
    assert play.due_at == 140


# Gaps of the watch


def after_gap(play: OutagePlay, at: float, *nodes: Node) -> None:
    """Tell a list of all nodes after a gap."""
    uids = frozenset(each.uid for each in nodes)
    play.tell(at, *(NodeSeen(each, after_gap=True, asked_at=at) for each in nodes), NodesSwept(uids, at, play.version))


def test_what_a_gap_hides_goes_on_with_the_same_transition() -> None:
    """Both removal and return are in the gap; the witness is listed last."""
    play = OutagePlay()
    play.see(10, FIRST)
    after_gap(play, 40, play.node(AGAIN), play.node(ready=UP, name="n2"))
    assert play.due_at == 110


def test_what_a_gap_hides_waits_for_the_end_of_the_list() -> None:
    """Before that nobody knows who was ready; the countdown moves when it has ended."""
    play = OutagePlay()
    play.see(10, FIRST)
    play.tell(40, NodeSeen(play.node(AGAIN), after_gap=True, asked_at=40))
    assert play.due_at == 140
    effects = play.stage.observe(NodesSwept(frozenset({"uid-n1", "uid-n2"}), 40, 9))
    assert [effect.decision.fire_at for effect in effects if isinstance(effect, Scheduled)] == [110]


def test_a_gap_in_which_a_taint_without_a_date_was_written_goes_on() -> None:
    """Who sets taints without timeAdded writes a later time of its fields."""
    play = OutagePlay()
    play.see(10, taint(UNREACHABLE))
    written = replace(play.node(taint(UNREACHABLE)), taints_written_at=EPOCH + 30)
    after_gap(play, 40, written, play.node(ready=UP, name="n2"))
    assert play.due_at == 110


@pytest.mark.parametrize(
    "ready", [Readiness("Unknown", EPOCH + 20), Readiness("False", DOWN.since), Readiness("Unknown"), None, UP]
)
def test_another_condition_after_a_gap_starts_anew(ready: Readiness | None) -> None:
    """The node may have been ready in the gap."""
    play = OutagePlay()
    play.see(10, FIRST)
    after_gap(play, 40, play.node(AGAIN, ready=ready), play.node(ready=UP, name="n2"))
    assert play.due_at == 140


@pytest.mark.parametrize("since", [EPOCH + 20, EPOCH + 9.5, EPOCH + 99999, None])
def test_a_witness_after_a_gap_must_be_dated_before_the_removal(since: float | None) -> None:
    """Later, in the future, or not at all: nobody is known to have been ready throughout. The second is cut off."""
    play = OutagePlay()
    play.see(10, FIRST)
    after_gap(play, 40, play.node(AGAIN), play.node(ready=Readiness("True", since), name="n2"))
    assert play.due_at == 140


def test_a_witness_that_the_list_lacks_is_none() -> None:
    """It may have been down in the gap before it was deleted."""
    play = OutagePlay()
    play.see(10, FIRST)
    after_gap(play, 40, play.node(AGAIN))
    assert play.due_at == 140


# Answers


def test_a_resync_is_no_gap(play: OutagePlay) -> None:
    """It needs no lastTransitionTime, neither of the node nor of the witness."""
    play = OutagePlay()
    for at, taints in ((5, ()), (10, (FIRST,)), (30, ())):
        play.see(at, *taints, ready=Readiness("Unknown"))
        play.see(at, ready=Readiness("True"), name="n2")
        known = [known.node for known in play.stage.brain.nodes.known.values()]
        play.tell(at, *(NodeSeen(each, asked_at=at) for each in known))
    play.see(40, AGAIN, ready=Readiness("Unknown"))
    assert play.due_at == 110


def test_an_answer_ahead_of_the_watch_waits_for_the_watch() -> None:
    """It shows the taint that is set again, but not who was ready meanwhile: nothing is due until then."""
    play = OutagePlay()
    play.see(10, FIRST)
    gone, back = play.node(), play.node(AGAIN)
    play.tell(41, NodeSeen(back, asked_at=40.5))
    assert play.due_at is None
    play.tell(42, NodeSeen(gone), NodesHeard(gone.resource_version), NodeSeen(back))
    assert play.due_at == 110


def test_an_answer_ahead_of_the_watch_does_not_hide_a_node_that_was_ready() -> None:
    """What the watch brings afterwards counts."""
    play = OutagePlay()
    play.see(10, FIRST)
    facts = [play.node(ready=Readiness("True", EPOCH + 20)), play.node(), play.node(AGAIN)]
    play.tell(41, NodeSeen(facts[-1], asked_at=40.5))
    play.tell(42, *(NodeSeen(fact) for fact in facts))
    assert play.due_at == 141  # By timeAdded: nobody saw it absent later than that.


def test_a_heartbeat_looks_at_no_other_node() -> None:
    """Whether somebody was ready is asked only when a taint comes back."""
    outages = Outages(60.0)
    witnesses = outages._ready_since = _Counted({f"n{number}": 0.0 for number in range(10)})
    up = replace(node(name="n5"), ready=UP)
    outages.observe(NodeSeen(up), up, moment(1))
    assert outages.resume(NodeSeen(up), {}, moment(1)) == {}
    assert witnesses.walks == 0


class _Counted(dict[str, float]):
    walks = 0

    def items(self):  # type: ignore[no-untyped-def]
        self.walks += 1
        return super().items()


def test_other_taints_beside_it_change_nothing() -> None:
    """Neither where one write shows removal and return, nor where a gap hides them."""
    play = OutagePlay()
    play.see(10, FIRST, taint("maintenance"))
    play.see(40, taint("maintenance"), AGAIN)
    assert play.due_at == 110
    gap = OutagePlay()
    gap.see(10, FIRST)
    gap.see(30, taint("maintenance"))
    gap.tell(40, NodeSeen(gap.node(AGAIN, taint("maintenance")), after_gap=True, asked_at=40))
    assert gap.stage.brain.nodes.known["n1"].sightings[AGAIN].start_at == 40
    gap.tell(41, NodeSeen(gap.node(ready=UP, name="n2"), after_gap=True, asked_at=40))
    gap.stage.observe(NodesSwept(frozenset({"uid-n1", "uid-n2"}), 40, 9))
    assert gap.stage.brain.nodes.known["n1"].sightings[AGAIN].start_at == 10


@pytest.mark.parametrize(("after_gap", "asked_at"), [(True, None), (False, 1.0)])
def test_a_node_of_a_list_may_have_been_ready_for_long(after_gap: bool, asked_at: float | None) -> None:
    """Whether the list came at the start, or after a gap; a node that a watch brings is new."""
    outages = Outages(1800)
    outages.observe(NodeSeen(node(name="n1")), None, moment(0))
    listed = replace(node(name="n2"), ready=UP)
    outages.observe(NodeSeen(listed, after_gap=after_gap, asked_at=asked_at), None, moment(20))
    before = {FIRST: Sighting(10, TimeSource.FIRST_SIGHT, None)}
    outages.note_removed("n1", before, {}, 15)
    resumed = outages.resume(NodeSeen(node(AGAIN)), {AGAIN: Sighting(40, TimeSource.FIRST_SIGHT, None)}, moment(40))
    assert resumed[AGAIN].start_at == 10


def test_a_taint_may_go_on_whatever_else_was_on_its_node() -> None:
    """One that is like it suffices."""
    since = Sighting(0, TimeSource.FIRST_SIGHT, None)
    before = {taint("maintenance"): since, FIRST: since}
    assert Outages(1800).may_go_on("n1", AGAIN, before)
    assert not Outages(1800).may_go_on("n1", AGAIN, {taint("maintenance"): since})
