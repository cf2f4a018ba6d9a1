"""One outage has one countdown: which start a lifecycle taint has that was removed and set again."""

from dataclasses import dataclass, field, replace

import pytest
from tests.memory import kept
from tests.unit.builders import EPOCH, Stage, moment, node, pod, taint, tolerates

from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.events import Scheduled
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, NodesHeard, NodesSwept
from taint_eviction.core.instants import Sighting, TimeSource
from taint_eviction.core.objects import EXEMPT_LABEL, NOT_READY, UNREACHABLE, Node, Readiness, Taint
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
        """Observe a node as the watch shows it."""
        self.tell(at, NodeSeen(self.node(*taints, ready=ready, name=name)), NodesHeard(self.version))

    def tell(self, at: float, *facts: Fact) -> None:
        """Observe facts; the pod is listed as soon as its node is tainted."""
        self.stage.at(at).observe(*facts)
        self.stage.sees(pod(tolerates(100, ""), bound_at=-10))

    @property
    def due_at(self) -> float | None:
        """When the pod is due."""
        return self.stage.deadlines().get("a")


@pytest.fixture
def play() -> OutagePlay:
    """A node that has its taint from 10 to 30."""
    started = OutagePlay()
    started.see(10, FIRST)
    started.see(30)
    return started


def test_a_taint_that_is_set_again_keeps_its_start(play: OutagePlay) -> None:
    """While the taint is absent, nothing is due; then the first start counts, with the outage as its source."""
    assert play.due_at is None
    play.see(40, AGAIN)
    assert play.due_at == 110
    known = play.stage.brain.nodes.known["n1"]
    assert known.sightings[AGAIN].source is TimeSource.OUTAGE


def test_the_text_of_a_start_says_that_it_is_the_outages() -> None:
    """Logs, explanations and pictures use this text."""
    said = began("14:00", TimeSource.OUTAGE.value)
    assert said == "14:00 (the start of the outage: the taint was taken back and set again)"


def test_a_taint_that_is_set_again_and_again_keeps_its_start(play: OutagePlay) -> None:
    """Each gap is measured from the last instant at which the taint was known to be there."""
    play.see(40, AGAIN)
    play.tell(1799, NodesHeard(play.version))
    play.see(1800)
    play.see(3599, taint(UNREACHABLE, added_at=3599))
    assert play.due_at == 110


def test_a_taint_whose_date_changes_in_one_write_keeps_its_start() -> None:
    """A watch may show removal and return as one change."""
    play = OutagePlay()
    play.see(10, FIRST)
    play.see(40, AGAIN)
    assert play.due_at == 110


@pytest.mark.parametrize(("at", "due_at"), [(1829.5, 110), (1830.5, 1930.5)])
def test_the_gap_is_limited(at: float, due_at: float) -> None:
    """The outage continues up to half an hour after the taint was last known to be there."""
    play = OutagePlay()
    play.see(10, FIRST)
    play.tell(30, NodesHeard(play.version))
    play.see(31)
    play.see(at, taint(UNREACHABLE, added_at=at))
    assert play.due_at == due_at


def test_the_gap_may_be_set_to_zero() -> None:
    """With 0, a taint that is set again always starts anew."""
    play = OutagePlay(Stage(DecisionPolicy(outage_gap_seconds=0.0)))
    play.see(10, FIRST)
    play.see(40, AGAIN)
    assert play.due_at == 140


@pytest.mark.parametrize("ready", [Readiness("True", EPOCH + 35), None], ids=["ready", "no condition"])
def test_a_node_that_may_have_been_ready_in_between_starts_anew(play: OutagePlay, ready: Readiness | None) -> None:
    """A node whose condition was missing for a while may have been ready."""
    play.see(35, ready=ready)
    play.see(38)
    play.see(40, AGAIN)
    assert play.due_at == 140


def test_a_node_whose_condition_becomes_false_continues_its_outage(play: OutagePlay) -> None:
    """False instead of Unknown is not ready either."""
    play.see(35, ready=Readiness("False", EPOCH + 35))
    play.see(38, ready=Readiness("Unknown", EPOCH + 38))
    play.see(40, AGAIN, ready=Readiness("Unknown", EPOCH + 38))
    assert play.due_at == 110


def test_a_new_node_with_the_same_name_starts_anew(play: OutagePlay) -> None:
    """The old node's end need not have been seen."""
    play.tell(40, NodeSeen(play.node(AGAIN, uid="another")))
    assert play.due_at == 140


def test_deleted_nodes_are_forgotten(play: OutagePlay) -> None:
    """Neither a tainted node nor a ready one leaves anything behind."""
    play.tell(35, NodeGone("n1"), NodeGone("n2"))
    assert not {"n1", "n2"} & set(kept(play.stage.brain.nodes, str))


@pytest.mark.parametrize("key", ["k1", NOT_READY])
def test_only_the_same_lifecycle_taint_continues_an_outage(key: str) -> None:
    """A taint that people set again is a new taint, and a swap starts the other taint's own window."""
    play = OutagePlay()
    play.see(10, taint(key))
    play.see(30)
    play.see(40, taint("k1") if key == "k1" else AGAIN)
    assert play.due_at == 140


def test_another_value_starts_anew(play: OutagePlay) -> None:
    """The node lifecycle controller sets no values."""
    play.see(40, replace(AGAIN, value="by-hand"))
    assert play.due_at == 140


# Which nodes were ready throughout


def test_if_no_other_node_was_ready_the_taint_starts_anew(play: OutagePlay) -> None:
    """In this case the node lifecycle controller removed its taints on purpose."""
    play.see(35, ready=DOWN, name="n2")
    play.see(38, ready=Readiness("True", EPOCH + 38), name="n2")
    play.see(40, AGAIN)
    assert play.due_at == 140


def test_a_witness_must_have_been_ready_before_the_taint_was_removed(play: OutagePlay) -> None:
    """A node that is seen first after the removal proves nothing, whatever the date of its condition."""
    play.tell(35, NodeGone("n2"), NodeSeen(play.node(ready=UP, name="n3")))
    play.see(40, AGAIN)
    assert play.due_at == 140


def test_a_node_that_became_ready_again_in_between_is_no_witness(play: OutagePlay) -> None:
    """A watch that is behind shows everything at once: the node was not ready for a while after the removal."""
    there, gone = play.node(taint(UNREACHABLE, added_at=32)), play.node()
    down, up = play.node(ready=DOWN, name="n2"), play.node(ready=Readiness("True", EPOCH + 36), name="n2")
    play.tell(40, *(NodeSeen(each) for each in (there, gone, down, up, play.node(AGAIN))))
    assert play.due_at == 140


def test_a_listed_witness_counts_by_its_date() -> None:
    """A process that has just started knows from lastTransitionTime which nodes have been ready for long."""
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
    """The node lifecycle controller does not count this node either."""
    play.tell(31, NodeSeen(replace(play.node(ready=UP, name="n2"), labels={EXEMPT_LABEL: ""})))
    play.see(40, AGAIN)
    assert play.due_at == 140


# Gaps of the watch


def after_gap(play: OutagePlay, at: float, *nodes: Node) -> None:
    """Observe a list of all nodes after a gap."""
    uids = frozenset(each.uid for each in nodes)
    play.tell(at, *(NodeSeen(each, after_gap=True, asked_at=at) for each in nodes), NodesSwept(uids, at, play.version))


def test_an_outage_continues_over_a_gap_if_the_transition_time_is_the_same() -> None:
    """Both the removal and the return are in the gap, and the witness is listed last."""
    play = OutagePlay()
    play.see(10, FIRST)
    after_gap(play, 40, play.node(AGAIN), play.node(ready=UP, name="n2"))
    assert play.due_at == 110


def test_an_outage_over_a_gap_is_judged_at_the_end_of_the_list() -> None:
    """Before that, it is unknown which nodes were ready; then the deadline moves."""
    play = OutagePlay()
    play.see(10, FIRST)
    play.tell(40, NodeSeen(play.node(AGAIN), after_gap=True, asked_at=40))
    assert play.due_at == 140
    effects = play.stage.observe(NodesSwept(frozenset({"uid-n1", "uid-n2"}), 40, 9))
    assert [effect.decision.fire_at for effect in effects if isinstance(effect, Scheduled)] == [110]


def test_an_outage_continues_over_a_gap_with_an_undated_taint() -> None:
    """The taint has no timeAdded, but managedFields has a later time."""
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
    """A later, future or missing date proves nothing. Dates are truncated to the second."""
    play = OutagePlay()
    play.see(10, FIRST)
    after_gap(play, 40, play.node(AGAIN), play.node(ready=Readiness("True", since), name="n2"))
    assert play.due_at == 140


def test_a_node_that_the_list_lacks_is_no_witness() -> None:
    """The node may not have been ready in the gap before it was deleted."""
    play = OutagePlay()
    play.see(10, FIRST)
    after_gap(play, 40, play.node(AGAIN))
    assert play.due_at == 140


# Answers


def test_a_resync_is_no_gap(play: OutagePlay) -> None:
    """It needs the lastTransitionTime neither of the node nor of the witness."""
    play = OutagePlay()
    for at, taints in ((5, ()), (10, (FIRST,)), (30, ())):
        play.see(at, *taints, ready=Readiness("Unknown"))
        play.see(at, ready=Readiness("True"), name="n2")
        known = [known.node for known in play.stage.brain.nodes.known.values()]
        play.tell(at, *(NodeSeen(each, asked_at=at) for each in known))
    play.see(40, AGAIN, ready=Readiness("Unknown"))
    assert play.due_at == 110


def test_an_answer_ahead_of_the_watch_waits_for_the_watch() -> None:
    """The answer does not show which nodes were ready meanwhile, so nothing is due before the watch does."""
    play = OutagePlay()
    play.see(10, FIRST)
    gone, back = play.node(), play.node(AGAIN)
    play.tell(41, NodeSeen(back, asked_at=40.5))
    assert play.due_at is None
    play.tell(42, NodeSeen(gone), NodesHeard(gone.resource_version), NodeSeen(back))
    assert play.due_at == 110


def test_an_answer_ahead_of_the_watch_does_not_hide_a_node_that_was_ready() -> None:
    """What the watch shows afterwards counts."""
    play = OutagePlay()
    play.see(10, FIRST)
    facts = [play.node(ready=Readiness("True", EPOCH + 20)), play.node(), play.node(AGAIN)]
    play.tell(41, NodeSeen(facts[-1], asked_at=40.5))
    play.tell(42, *(NodeSeen(fact) for fact in facts))
    assert play.due_at == 141  # By timeAdded: the taint was not seen absent later than that.


def test_a_heartbeat_checks_no_other_node() -> None:
    """Which nodes were ready is checked only when a taint comes back."""
    outages, compared = Outages(60.0), list[str]()

    class Name(str):
        """Notes that it is compared with another name."""

        def __ne__(self, other: object) -> bool:
            compared.append(self)
            return str.__ne__(self, other)

        __hash__ = str.__hash__

    ups = [replace(node(name=Name(f"n{number}")), ready=UP) for number in range(10)]
    for up in ups:
        outages.observe(NodeSeen(up), None, moment(0))
    outages.observe(NodeSeen(ups[5]), ups[5], moment(1))
    assert outages.resume(NodeSeen(ups[5]), {}, moment(1)) == {}
    assert compared == []


def test_other_taints_do_not_affect_an_outage() -> None:
    """In one case a single write shows removal and return, in the other a gap hides them."""
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
def test_a_listed_node_may_have_been_ready_for_long(after_gap: bool, asked_at: float | None) -> None:
    """The list may be the first one, or one after a gap; a node that the watch shows is new."""
    outages = Outages(1800)
    outages.observe(NodeSeen(node(name="n1")), None, moment(0))
    listed = replace(node(name="n2"), ready=UP)
    outages.observe(NodeSeen(listed, after_gap=after_gap, asked_at=asked_at), None, moment(20))
    before = {FIRST: Sighting(10, TimeSource.FIRST_SIGHT, None)}
    outages.note_removed("n1", before, {}, 15)
    resumed = outages.resume(NodeSeen(node(AGAIN)), {AGAIN: Sighting(40, TimeSource.FIRST_SIGHT, None)}, moment(40))
    assert resumed[AGAIN].start_at == 10


def test_an_outage_may_continue_whatever_other_taints_were_on_the_node() -> None:
    """One taint with the same key and value is enough."""
    since = Sighting(0, TimeSource.FIRST_SIGHT, None)
    before = {taint("maintenance"): since, FIRST: since}
    assert Outages(1800).may_go_on("n1", AGAIN, before)
    assert not Outages(1800).may_go_on("n1", AGAIN, {taint("maintenance"): since})
