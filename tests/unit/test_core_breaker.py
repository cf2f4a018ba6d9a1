"""The circuit breaker: what counts as a wave, when it opens, and how it closes."""

import math
from dataclasses import replace

import pytest
from tests.unit.builders import epoch, moment, node, since, taint

from taint_eviction.core.breaker import Breaker, TaintSurge
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import Latch
from taint_eviction.core.facts import NodeSeen, PodsSwept
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.objects import NOT_READY, UNREACHABLE, Taint

# More than 2 nodes within 100 s.
TWO = BreakerPolicy(enabled=True, nodes=NodeThreshold(number=2), lifecycle_nodes=None, window_seconds=100.0)


class Watched:
    """A breaker and a cluster of ten nodes, and short ways to taint them."""

    def __init__(self, policy: BreakerPolicy = TWO, nodes: int = 10) -> None:
        self.breaker = Breaker(policy)
        self.nodes = {f"n{number}": KnownNode(node(name=f"n{number}"), 0.0) for number in range(nodes)}
        for known in self.nodes.values():
            self.breaker.unready.see(NodeSeen(known.node), moment(0))

    def taint(self, *numbers: int, at: float, key: str = "k1", evicts: bool = True) -> None:
        """Let nodes be tainted since ``at``, and a pod of each have to go."""
        for number in numbers:
            known = self.nodes[f"n{number}"]
            known.sightings[taint(key)] = since(at)
            self.changed(number)
            if evicts:
                self.breaker.evicts(known.node.name, taint(key))

    def untaint(self, *numbers: int) -> None:
        """Let nodes be clean."""
        for number in numbers:
            self.nodes[f"n{number}"].sightings.clear()
            self.changed(number)

    def changed(self, number: int) -> None:
        """Tell how a node is."""
        self.breaker.node_changed(f"n{number}", self.nodes[f"n{number}"].sightings)

    def delete(self, number: int) -> None:
        """Let a node be gone."""
        del self.nodes[f"n{number}"]
        self.breaker.node_changed(f"n{number}", ())
        self.breaker.unready.forget(f"n{number}")

    def surge(self, now: float, due: int = 0) -> tuple[int, int]:
        """Say how many nodes are newly tainted by people, and by the node lifecycle controller."""
        surge = self.breaker.surge(self.nodes, due, moment(now))
        assert (surge.total, surge.due) == (len(self.nodes), due)
        return surge.nodes, surge.lifecycle_nodes

    def evaluate(self, now: float, due: int = 0) -> str | None:
        """Let it look; say why it is open."""
        self.breaker.evaluate(self.nodes, due, moment(now))
        return None if self.breaker.latch is None else self.breaker.latch.cause


# Thresholds


@pytest.mark.parametrize(
    ("threshold", "count", "total", "exceeded"),
    [
        (NodeThreshold(number=2), 2, 10, False),
        (NodeThreshold(number=2), 3, 10, True),
        (NodeThreshold(number=0), 0, 10, False),
        (NodeThreshold(number=0), 1, 1, True),
        (NodeThreshold(percent=30.0), 3, 10, False),
        (NodeThreshold(percent=30.0), 4, 10, True),
        (NodeThreshold(percent=30.0), 4, 11, True),
        (NodeThreshold(percent=30.0), 2, 3, False),
        (NodeThreshold(percent=30.0), 3, 3, True),
        (NodeThreshold(percent=30.0, min_nodes=1), 1, 3, True),
        (NodeThreshold(percent=0.0, min_nodes=1), 0, 3, False),
        (NodeThreshold(number=5, percent=30.0), 4, 10, True),
        (NodeThreshold(number=5, percent=90.0), 6, 100, True),
        (NodeThreshold(number=5, percent=90.0), 5, 100, False),
        (NodeThreshold(), 10, 10, False),
    ],
)
def test_a_threshold_is_exceeded_by_more_than_it_says(
    threshold: NodeThreshold, count: int, total: int, exceeded: bool
) -> None:
    """A number, a share from its least number of nodes on, or whichever comes first."""
    assert threshold.exceeded_by(count, total) is exceeded


def test_two_of_three_nodes_are_no_wave_by_default() -> None:
    """A share counts from 3 nodes on."""
    assert not NodeThreshold(percent=25.0).exceeded_by(2, 3)
    assert NodeThreshold(percent=25.0).exceeded_by(3, 11)


@pytest.mark.parametrize(
    ("threshold", "text"),
    [
        (NodeThreshold(number=2), "2"),
        (NodeThreshold(percent=12.5), "12.5 %"),
        (NodeThreshold(number=2, percent=25.0), "2 or 25 %"),
        (NodeThreshold(), "any number"),
    ],
)
def test_a_threshold_says_what_it_allows(threshold: NodeThreshold, text: str) -> None:
    """In the words of the cause."""
    assert str(threshold) == text


def test_the_defaults_have_no_problems_and_are_off() -> None:
    """25 % by people, 55 % by the node lifecycle controller, in 5 minutes; each eviction 2 s later, 10 s for lists."""
    policy = BreakerPolicy()
    assert policy.problems() == []
    assert not policy.enabled
    assert (policy.window_seconds, policy.settle_seconds, policy.list_wait_seconds) == (300.0, 2.0, 10.0)
    assert policy.max_due is None
    assert (policy.nodes, policy.lifecycle_nodes) == (NodeThreshold(percent=25.0), NodeThreshold(percent=55.0))
    assert not policy.closes_by_itself
    assert (policy.zone, policy.without_control_plane) == (None, False)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (BreakerPolicy(nodes=NodeThreshold(number=-1)), "breaker: a number of nodes is not negative, as -1 is"),
        (BreakerPolicy(nodes=NodeThreshold(percent=100.0)), "breaker: more than 100 % of the nodes can never be"),
        (BreakerPolicy(nodes=NodeThreshold(percent=-0.5)), "breaker: more than -0.5 % of the nodes can never be"),
        (
            BreakerPolicy(lifecycle_nodes=NodeThreshold(percent=1.0, min_nodes=0)),
            "breaker, not-ready and unreachable nodes: a share counts from 1 node on at the earliest, not 0",
        ),
        (
            BreakerPolicy(zone=NodeThreshold(percent=100.0)),
            "breaker, nodes of a zone (--breaker-zone): more than 100 % of the nodes can never be",
        ),
        (BreakerPolicy(window_seconds=0.0), "the breaker's window must be more than 0 seconds, not 0"),
        (BreakerPolicy(window_seconds=math.inf), "the breaker's window must be more than 0 seconds, not inf"),
        (BreakerPolicy(settle_seconds=-1.0), "the breaker's settling must not be negative, as -1 s is"),
        (BreakerPolicy(settle_seconds=math.inf), "the breaker's settling must not be negative, as inf s is"),
        (BreakerPolicy(list_wait_seconds=-1.0), "the breaker's wait for lists must not be negative, as -1 s is"),
        (BreakerPolicy(list_wait_seconds=math.inf), "the breaker's wait for lists must not be negative, as inf s is"),
        (BreakerPolicy(max_due=-1), "the breaker's number of due pods must not be negative, as -1 is"),
    ],
)
def test_each_problem_is_said(policy: BreakerPolicy, words: str) -> None:
    """One sentence each."""
    [problem] = policy.problems()
    assert problem.startswith(words)


@pytest.mark.parametrize(
    "policy",
    [
        BreakerPolicy(lifecycle_nodes=None),
        BreakerPolicy(nodes=NodeThreshold(number=0, percent=0.0, min_nodes=1)),
        BreakerPolicy(nodes=NodeThreshold(percent=99.9)),
        BreakerPolicy(window_seconds=0.1, settle_seconds=0.0, list_wait_seconds=0.0, max_due=0),
    ],
)
def test_what_is_strict_or_mild_is_no_problem(policy: BreakerPolicy) -> None:
    """The bounds themselves are fine."""
    assert policy.problems() == []


# What counts


def test_nodes_count_that_were_tainted_within_the_window() -> None:
    """By the taint's own time: what began just at its edge is old."""
    it = Watched()
    it.taint(0, at=0.0)
    it.taint(1, at=0.5)
    it.taint(2, at=60)
    assert it.surge(100) == (2, 0)
    assert it.surge(100.5) == (1, 0)
    assert it.surge(160) == (0, 0)


def test_it_does_not_matter_when_this_process_saw_them() -> None:
    """A wave of ten minutes ago that a restart finds is none; one of a minute ago that was seen only now is one."""
    it = Watched()
    it.taint(0, 1, 2, at=1000 - 600)
    assert it.evaluate(1000) is None
    it.taint(3, 4, 5, at=1000 - 60)
    assert it.surge(1000) == (3, 0)
    assert it.evaluate(1000) is not None


def test_only_nodes_with_a_pod_that_would_go_count() -> None:
    """Tainting empty nodes is no wave."""
    it = Watched()
    it.taint(0, 1, 2, 3, at=5, evicts=False)
    assert it.surge(10) == (0, 0)
    assert it.evaluate(10) is None


def test_a_node_whose_taints_are_new_and_old_counts_by_the_new_one() -> None:
    """And if only the old one makes pods go, not at all."""
    it = Watched()
    it.taint(0, at=0)
    it.taint(0, at=150, key="k2", evicts=False)
    it.taint(1, at=0)
    it.taint(1, at=150, key="k2")
    assert it.surge(160) == (1, 0)


def test_a_node_counts_once() -> None:
    """However many taints and pods."""
    it = Watched()
    it.taint(0, at=1)
    it.taint(0, at=1)
    it.taint(0, at=2, key="k2")
    assert it.surge(10) == (1, 0)


def test_a_taint_that_is_removed_no_longer_counts() -> None:
    """Nor does a node that is gone; the others still do."""
    it = Watched()
    it.taint(0, 1, 2, at=1)
    it.untaint(0)
    it.delete(1)
    assert it.surge(10) == (1, 0)
    assert it.breaker._evicting == {"n2": {taint()}}


def test_one_of_two_taints_removed_leaves_the_other() -> None:
    """What evicts is remembered by taint."""
    it = Watched()
    it.taint(0, at=1)
    it.taint(0, at=1, key="k2")
    del it.nodes["n0"].sightings[taint()]
    it.changed(0)
    assert it.breaker._evicting == {"n0": {taint("k2")}}


def test_a_taint_that_comes_back_counts_once_a_pod_goes_because_of_it() -> None:
    """What was before it was removed is forgotten."""
    it = Watched()
    it.taint(0, at=1)
    it.untaint(0)
    it.taint(0, at=5, evicts=False)
    assert it.surge(10) == (0, 0)
    it.taint(0, at=5)
    assert it.surge(10) == (1, 0)


@pytest.mark.parametrize("keys", [(NOT_READY,), (UNREACHABLE,), (NOT_READY, UNREACHABLE)])
def test_what_the_node_lifecycle_controller_taints_is_counted_apart(keys: tuple[str, ...]) -> None:
    """Its nodes have a threshold of their own."""
    it = Watched()
    for key in keys:
        it.taint(0, at=1, key=key)
    assert it.surge(10) == (0, 1)


def test_a_node_that_people_have_tainted_too_is_theirs() -> None:
    """Whatever else is on it; unless theirs is old."""
    it = Watched()
    it.taint(0, at=60)
    it.taint(0, at=60, key=NOT_READY)
    it.taint(1, at=1)
    it.taint(1, at=60, key=NOT_READY)
    assert it.surge(110) == (1, 1)


# What is not listed


def listed(*numbers: int, asked_at: float) -> list[PodsSwept]:
    """The ends of lists of some nodes' pods."""
    return [PodsSwept(f"n{number}", frozenset(), asked_at, None) for number in numbers]


def unlisted(*numbers: int, at: float = 1, key: str = "k1", evicts: bool = False) -> Watched:
    """Nodes that were tainted at ``at``, of which no pods have been listed since."""
    it = Watched()
    it.taint(*numbers, at=at, key=key, evicts=evicts)
    it.breaker.unlisted |= {f"n{number}": at for number in numbers}
    return it


def test_the_first_unlisted_node_says_since_when_there_is_one() -> None:
    """Until it has been listed, or is clean, or gone."""
    it = Watched()
    for number in range(4):
        it.taint(number, at=number)
        it.breaker.unlisted[f"n{number}"] = number
    seen = [it.breaker.unlisted_since(it.nodes, moment(5))]
    [end] = listed(0, asked_at=5)
    it.breaker.listed(end)
    seen.append(it.breaker.unlisted_since(it.nodes, moment(5)))
    it.untaint(1)
    seen.append(it.breaker.unlisted_since(it.nodes, moment(5)))
    it.delete(2)
    seen.append(it.breaker.unlisted_since(it.nodes, moment(5)))
    it.breaker.listed(PodsSwept(None, frozenset(), 5, None))
    assert [*seen, it.breaker.unlisted_since(it.nodes, moment(5))] == [0, 1, 2, 3, math.inf]
    assert it.breaker.unlisted == {}


@pytest.mark.parametrize("node_name", ["n0", None])
@pytest.mark.parametrize(("asked_at", "since"), [(0.9, 1), (1, math.inf), (2, math.inf)])
def test_a_list_that_was_asked_for_before_the_taint_says_nothing(
    node_name: str | None, asked_at: float, since: float
) -> None:
    """Pods of that node were not kept until then."""
    it = unlisted(0)
    it.breaker.listed(PodsSwept(node_name, frozenset(), asked_at, None))
    assert it.breaker.unlisted_since(it.nodes, moment(5)) == since


def test_only_newly_tainted_nodes_are_waited_for() -> None:
    """Within the window, after the last reset, and with the breaker on."""
    assert unlisted(0).breaker.unlisted_since(unlisted(0).nodes, moment(100.5)) == 1
    assert unlisted(0).breaker.unlisted_since(unlisted(0).nodes, moment(101)) == math.inf
    it = unlisted(0)
    it.breaker.reset(epoch(2))
    assert it.breaker.unlisted_since(it.nodes, moment(5)) == math.inf
    assert Breaker(BreakerPolicy()).unlisted_since(it.nodes, moment(5)) == math.inf


def test_what_is_not_listed_is_counted() -> None:
    """Not as affected: that is not known."""
    it = unlisted(0, 1, 2)
    assert it.breaker.surge(it.nodes, 0, moment(5)) == TaintSurge(0, 0, 10, 0, 3)


def test_what_was_waited_for_in_vain_counts_as_affected() -> None:
    """Those that were tainted by then, until they are listed."""
    it = unlisted(0, 1, at=1)
    it.taint(2, at=7, evicts=False)
    it.breaker.unlisted["n2"] = 7
    it.evaluate(8)
    it.breaker.presume(6)
    assert it.surge(10) == (2, 0)
    it.breaker.presume(7)
    assert it.evaluate(11) == "3 of 10 nodes newly tainted within 100 s, more than 2"
    for end in listed(0, 1, 2, asked_at=12):
        it.breaker.listed(end)
    assert it.surge(13) == (0, 0)


def test_it_has_to_look_once_lists_were_waited_for_in_vain() -> None:
    """As whenever something may have raised a count; where it is off it never has to."""
    it = unlisted(0, 1)
    it.evaluate(5)
    assert not it.breaker.has_news
    it.breaker.presume(6)
    assert it.breaker.has_news
    it.evaluate(7)
    it.breaker.presume(6)
    assert not it.breaker.has_news
    off = Breaker(BreakerPolicy())
    off.presume(6)
    assert not off.has_news


def test_a_taint_that_all_listed_pods_tolerate_is_presumed_to_evict_nobody() -> None:
    """Once one node with it is listed, and until a pod of any goes because of it."""
    it = unlisted(0, 1)
    it.breaker.presume(5)
    assert it.surge(10) == (2, 0)
    it.taint(2, at=1, evicts=False)
    assert it.surge(10) == (0, 0)
    it.taint(3, at=-500)
    assert it.surge(10) == (2, 0)


def test_another_value_is_another_taint() -> None:
    """Whoever tolerates that may not tolerate this; when each was set does not matter."""
    it = unlisted(0)
    it.breaker.presume(5)
    it.nodes["n1"].sightings[taint(value="other")] = since(1)
    assert it.surge(10) == (1, 0)
    it.nodes["n1"].sightings[taint(added_at=-50)] = since(-49)
    assert it.surge(10) == (0, 0)


def test_what_is_presumed_of_a_node_adds_to_what_is_known_of_it() -> None:
    """One of its taints makes a pod go that was seen before the list; the other is the node lifecycle controller's."""
    it = unlisted(0)
    it.taint(0, at=1, key=NOT_READY)
    it.breaker.presume(5)
    assert it.surge(10) == (1, 0)
    it.taint(1, at=1, evicts=False)
    assert it.surge(10) == (0, 1)


# What was there before this process


def found(at: float, which: Taint | None = None) -> Watched:
    """A node that this process has found tainted since ``at``, as far as it can tell."""
    it = Watched()
    it.taint(0, at=at, evicts=False)
    it.breaker.node_found("n0", {which or taint(): since(at)})
    return it


@pytest.mark.parametrize(("since", "count"), [(math.inf, 0), (62, 0), (61, 1), (60, 1), (-500, 1)])
def test_a_taint_that_was_found_is_new_if_somebody_would_be_gone(since: float, count: int) -> None:
    """A pod that does not tolerate it and came before its date, or in the same second."""
    it = found(60)
    it.breaker.evicts("n0", taint(), since)
    assert it.surge(100) == (count, 0)


def test_a_taint_that_says_since_when_it_has_been_there_needs_no_proof() -> None:
    """The node lifecycle controller's do."""
    it = Watched()
    dated = taint(NOT_READY, added_at=59)
    it.nodes["n0"].sightings[dated] = since(60)
    it.breaker.node_found("n0", it.nodes["n0"].sightings)
    it.breaker.evicts("n0", dated)
    assert it.surge(100) == (0, 1)


def test_a_taint_that_was_found_and_comes_back_is_new() -> None:
    """It was seen absent, and then to appear; nothing of what was found is kept."""
    it = found(60)
    it.untaint(0)
    assert it.breaker._found == {}
    it.taint(0, at=70)
    assert it.surge(100) == (1, 0)


def test_a_second_taint_leaves_the_first_as_it_was_found() -> None:
    """Only what goes is forgotten."""
    it = found(60)
    it.taint(0, at=70, key="k2")
    it.breaker.evicts("n0", taint())
    assert it.breaker._evicting == {"n0": {taint("k2")}}


# Opening


def test_off_it_never_opens() -> None:
    """Kubernetes knows no such thing."""
    it = Watched(BreakerPolicy(nodes=NodeThreshold(number=0), max_due=0))
    it.taint(0, 1, 2, 3, at=1)
    assert it.evaluate(2, due=1000) is None


def test_more_nodes_than_allowed_open_it() -> None:
    """With the figures, and since when by the API server's time."""
    it = Watched()
    it.taint(0, 1, at=1)
    assert it.evaluate(2) is None
    it.taint(2, at=3)
    assert it.evaluate(4) == "3 of 10 nodes newly tainted within 100 s, more than 2"
    assert it.breaker.latch == Latch(epoch(4), "3 of 10 nodes newly tainted within 100 s, more than 2")


def test_once_open_it_stays_open() -> None:
    """Cause, time and all, whatever becomes of the nodes, for as long as nobody resets it."""
    it = Watched()
    it.taint(0, 1, 2, at=1)
    opened = it.evaluate(2)
    latch = it.breaker.latch
    it.untaint(0, 1, 2)
    it.taint(5, 6, 7, 8, at=9)
    assert it.evaluate(10) == opened
    assert it.evaluate(1e6) == opened
    assert it.breaker.latch is latch


def test_a_taint_that_is_set_anew_counts_anew() -> None:
    """Removed and set again in a gap of the watch: the same taint, since later; that is news."""
    it = Watched()
    it.taint(0, 1, 2, at=-500)
    assert it.evaluate(0) is None
    it.taint(0, 1, 2, at=50)
    assert it.evaluate(60) == "3 of 10 nodes newly tainted within 100 s, more than 2"


def test_a_share_rises_when_nodes_go() -> None:
    """Four of sixteen are a quarter; four of fifteen are more."""
    it = Watched(BreakerPolicy(enabled=True), nodes=16)
    it.taint(0, 1, 2, 3, at=1)
    assert it.evaluate(2) is None
    it.delete(15)
    assert it.evaluate(3) == "4 of 15 nodes newly tainted within 300 s, more than 25 %"


@pytest.mark.parametrize("key", [NOT_READY, UNREACHABLE])
def test_lifecycle_nodes_open_it_by_their_own_threshold(key: str) -> None:
    """More than 55 % by default; those that people have tainted do not count there."""
    it = Watched(BreakerPolicy(enabled=True), nodes=20)
    it.taint(*range(11), at=1, key=key)
    it.taint(11, 12, 13, 14, 15, at=1)
    assert it.surge(2) == (5, 11)
    assert it.evaluate(2) is None
    it.taint(16, at=2, key=key)
    words = "12 of 20 nodes not ready or unreachable, newly tainted within 300 s, more than 55 %"
    assert it.evaluate(3) == words


def test_lifecycle_nodes_may_be_exempt() -> None:
    """Then all of them may go."""
    it = Watched()
    it.taint(*range(10), at=1, key=NOT_READY)
    assert it.surge(2) == (0, 10)
    assert it.evaluate(2) is None


def test_more_due_pods_than_allowed_open_it() -> None:
    """Whatever the nodes."""
    it = Watched(BreakerPolicy(enabled=True, max_due=5))
    assert it.evaluate(1, due=5) is None
    assert it.evaluate(2, due=6) == "6 pods due at once, more than 5"


def test_nodes_are_told_before_pods() -> None:
    """Of several causes the first is named."""
    it = Watched(BreakerPolicy(enabled=True, nodes=NodeThreshold(number=0), max_due=0))
    it.taint(0, at=1)
    assert it.evaluate(2, due=6) == "1 of 10 nodes newly tainted within 300 s, more than 0"
    both = Watched(
        BreakerPolicy(enabled=True, lifecycle_nodes=NodeThreshold(number=0), nodes=NodeThreshold(number=0), max_due=0)
    )
    both.taint(0, at=1, key=NOT_READY)
    assert both.evaluate(2, due=6) == "1 of 10 nodes not ready or unreachable, newly tainted within 300 s, more than 0"


def test_it_counts_only_when_there_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at a cluster in which nothing has happened since the last one costs nothing."""
    it = Watched()
    counted: list[float] = []
    surge = Breaker.surge

    def counting(self: Breaker, nodes: dict[str, KnownNode], due: int, now: Moment) -> TaintSurge:
        counted.append(now.at)
        return surge(self, nodes, due, now)

    monkeypatch.setattr(Breaker, "surge", counting)
    it.taint(0, at=1)
    for now in (1, 2, 3):
        it.evaluate(now)
    it.breaker.evicts("n0", taint())
    it.evaluate(4)
    it.breaker.evicts("n0", Taint("k9", "NoExecute"))
    it.nodes["n0"].sightings[Taint("k9", "NoExecute")] = since(4)
    it.evaluate(5)
    it.evaluate(6)
    it.changed(3)
    it.evaluate(7)
    it.evaluate(8)
    assert counted == [1, 5, 7]


# Closing


def test_a_reset_closes_it_and_takes_what_was_there_for_known() -> None:
    """What is tainted after it counts; what was tainted up to it does not, even within the window."""
    it = Watched()
    it.taint(0, 1, 2, at=1)
    it.evaluate(2)
    it.breaker.reset(epoch(10))
    assert it.breaker.latch is None
    it.taint(3, at=10)
    it.taint(4, 5, at=10.5)
    assert it.surge(11) == (2, 0)
    assert it.evaluate(11) is None
    it.taint(6, at=11)
    assert it.evaluate(12) == "3 of 10 nodes newly tainted within 100 s, more than 2"


def test_a_reset_of_long_ago_makes_nothing_new_again() -> None:
    """The window is what bounds then."""
    it = Watched()
    it.breaker.reset(epoch(1))
    it.taint(0, 1, 2, at=2)
    assert it.surge(200) == (0, 0)


def test_while_it_is_open_the_window_stands_still() -> None:
    """What opened it does not grow old: it is gone when it is removed."""
    it = Watched()
    it.taint(0, 1, 2, at=1)
    it.taint(3, at=-99)
    it.evaluate(50)
    assert it.surge(1e6) == (3, 0)
    it.untaint(0)
    assert it.surge(1e6) == (2, 0)


def test_the_window_of_a_latch_that_is_not_ours_is_its_own() -> None:
    """A replica opened it earlier: counted since a window before that."""
    it = Watched()
    it.taint(0, at=-350)
    it.taint(1, at=-250)
    it.breaker.latch = Latch(epoch(-200), "elsewhere")
    assert it.surge(0) == (1, 0)
    it.breaker.latch = Latch(epoch(500), "ahead of us")
    assert it.surge(0) == (0, 0)


def test_without_being_told_to_it_does_not_close_by_itself() -> None:
    """Gone or not, somebody has to look."""
    it = Watched()
    it.taint(0, 1, 2, at=1)
    it.evaluate(2)
    it.untaint(0, 1, 2)
    assert it.evaluate(3) is not None


BY_ITSELF = BreakerPolicy(
    enabled=True, nodes=NodeThreshold(number=2), lifecycle_nodes=None, max_due=5, closes_by_itself=True
)


def test_it_closes_by_itself_once_the_cause_is_gone() -> None:
    """Not by waiting: only by what is removed. Then what is left is known."""
    it = Watched(BY_ITSELF)
    it.taint(0, 1, 2, at=1)
    assert it.evaluate(2) is not None
    assert it.evaluate(1e4) is not None
    it.untaint(2)
    assert it.evaluate(1e4 + 1) is None
    assert it.breaker.reset_epoch == epoch(1e4 + 1)
    it.taint(3, 4, at=1e4 + 2)
    assert it.evaluate(1e4 + 3) is None


def test_of_two_causes_both_must_be_gone() -> None:
    """Nodes and due pods."""
    it = Watched(BY_ITSELF)
    it.taint(0, 1, 2, at=1)
    it.evaluate(2, due=9)
    it.untaint(0, 1, 2)
    assert it.evaluate(3, due=6) is not None
    assert it.evaluate(4, due=5) is None


def test_it_closes_by_itself_at_the_first_look_at_which_the_cause_is_gone() -> None:
    """Though it was there at no other look than the one that opened it."""
    it = Watched(BY_ITSELF)
    it.taint(0, 1, 2, at=1)
    assert it.evaluate(2) is not None
    it.untaint(2)
    assert it.evaluate(3) is None


def test_a_cause_that_this_process_has_not_seen_is_not_gone() -> None:
    """Another replica opened it, and the nodes are not listed yet: it closes once they were there and are not."""
    it = Watched(BY_ITSELF)
    it.breaker.latch = Latch(epoch(0), "elsewhere")
    assert it.evaluate(5) == "elsewhere"
    it.taint(0, 1, 2, at=1)
    assert it.evaluate(6) == "elsewhere"
    it.untaint(0)
    assert it.evaluate(7) is None


def test_a_cause_that_was_seen_before_says_nothing_of_another_latch() -> None:
    """Opened, reset, and opened elsewhere."""
    it = Watched(BY_ITSELF)
    it.taint(0, 1, 2, at=1)
    it.evaluate(2)
    it.breaker.reset(epoch(3))
    it.breaker.latch = Latch(epoch(4), "elsewhere")
    assert it.evaluate(5) == "elsewhere"


# Backlogs that somebody knows of


def open_by_due(due: int) -> Watched:
    """A breaker that so many due pods have opened."""
    it = Watched(BreakerPolicy(enabled=True, max_due=5))
    assert it.evaluate(1, due=due) is not None
    return it


def test_the_backlog_that_was_there_at_a_reset_may_be_worked_off() -> None:
    """However large it is; what is added to it counts."""
    it = open_by_due(100)
    it.breaker.reset(epoch(2))
    assert it.evaluate(3, due=100) is None
    assert it.evaluate(4, due=50) is None
    assert it.evaluate(5, due=55) is None
    assert it.evaluate(6, due=56) == "56 pods due at once, more than 5"


def test_a_backlog_that_was_worked_off_is_known_no_more() -> None:
    """The next one is a new one."""
    it = open_by_due(100)
    it.breaker.reset(epoch(2))
    it.breaker.count_due(100)
    it.breaker.count_due(0)
    assert it.evaluate(4, due=6) is not None


def test_a_backlog_is_worked_off_elsewhere_too() -> None:
    """A replica that does not lead counts, but does not look; when it leads, it knows what is left of the backlog."""
    it = open_by_due(100)
    it.breaker.reset(epoch(2))
    for due in (100, 60, 20):
        it.breaker.count_due(due)
    assert it.evaluate(9, due=25) is None
    assert it.evaluate(9, due=26) is not None


def test_an_old_reset_that_closes_nothing_makes_no_backlog_known() -> None:
    """After a restart, that somebody reset the breaker yesterday says nothing of what is due today."""
    it = Watched(BreakerPolicy(enabled=True, max_due=5))
    it.breaker.reset(epoch(-86_400))
    assert it.evaluate(1, due=6) is not None


def test_a_backlog_of_which_a_human_knows_is_counted_when_it_is_next() -> None:
    """A resumed pause."""
    it = Watched(BreakerPolicy(enabled=True, max_due=5))
    it.breaker.know_backlog()
    assert it.evaluate(1, due=1000) is None
    assert it.evaluate(2, due=1005) is None
    assert it.evaluate(3, due=1006) is not None


def found_open(latch: Latch) -> Watched:
    """A breaker that may close by itself, in a process that found it open and has listed no pod yet."""
    it = Watched(replace(TWO, closes_by_itself=True))
    it.breaker.latch = latch
    return it


def test_a_breaker_found_open_closes_by_itself_only_after_a_whole_window_without_a_cause() -> None:
    """Before that the cause may not have been listed yet; after it, there is none."""
    it = found_open(Latch(epoch(-5), "before"))
    for now in (1, 50, 100.9):
        assert it.evaluate(now) == "before"
    assert it.evaluate(101) is None


def test_a_breaker_found_open_closes_by_itself_once_its_cause_was_seen_and_is_gone() -> None:
    """No window is waited for then."""
    it = found_open(Latch(epoch(-5), "before"))
    assert it.evaluate(1) == "before"
    it.taint(0, 1, 2, at=-6)
    assert it.evaluate(2) == "before"
    it.untaint(0)
    assert it.evaluate(3) is None


def test_what_is_kept_but_unreadable_is_closed_by_a_human_alone() -> None:
    """Whatever is seen, and however long that lasts."""
    it = found_open(Latch(0.0, "nonsense", unreadable=True))
    it.taint(0, 1, 2, at=1)
    assert it.evaluate(2) == "nonsense"
    it.untaint(0, 1, 2)
    for now in (3, 1000):
        assert it.evaluate(now) == "nonsense"
    it.breaker.reset(epoch(1001))
    assert it.evaluate(1002) is None


def test_what_is_dated_ahead_is_moved_back_to_now() -> None:
    """Somebody's clock was ahead when the latch, or the reset, was written."""
    it = Watched()
    it.breaker.latch, it.breaker.reset_epoch = Latch(epoch(500), "too many"), epoch(400)
    it.breaker.date_back(epoch(100))
    assert (it.breaker.latch.since_epoch, it.breaker.reset_epoch) == (epoch(100), epoch(100))
    it.breaker.date_back(epoch(200))
    assert (it.breaker.latch.since_epoch, it.breaker.reset_epoch) == (epoch(100), epoch(100))
