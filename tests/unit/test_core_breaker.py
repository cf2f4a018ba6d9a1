"""The circuit breaker: what counts as a surge, when the breaker opens, and how it closes."""

import math
from dataclasses import replace

import pytest
from tests.unit.builders import epoch, moment, node, own_latch, since, taint

from taint_eviction.core.breaker import Breaker, TaintSurge
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import Latch
from taint_eviction.core.facts import NodeSeen, PodsSwept
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.objects import NOT_READY, UNREACHABLE, Taint
from taint_eviction.settings import Settings

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
        """Taint nodes as of ``at``, and have a pod of each that must be evicted unless ``evicts`` is False."""
        for number in numbers:
            known = self.nodes[f"n{number}"]
            known.sightings[taint(key)] = since(at)
            self.changed(number)
            if evicts:
                self.breaker.evicts(known.node.name, taint(key))

    def untaint(self, *numbers: int) -> None:
        """Remove all taints of nodes."""
        for number in numbers:
            self.nodes[f"n{number}"].sightings.clear()
            self.changed(number)

    def changed(self, number: int) -> None:
        """Pass a node's taints to the breaker."""
        self.breaker.node_changed(f"n{number}", self.nodes[f"n{number}"].sightings)

    def delete(self, number: int) -> None:
        """Delete a node."""
        del self.nodes[f"n{number}"]
        self.breaker.node_changed(f"n{number}", ())
        self.breaker.unready.forget(f"n{number}")

    def surge(self, now: float, due: int = 0) -> tuple[int, int]:
        """Return how many nodes are newly tainted by people, and by the node lifecycle controller."""
        surge = self.breaker.surge(self.nodes, due, moment(now))
        assert (surge.total, surge.due) == (len(self.nodes), due)
        return surge.nodes, surge.lifecycle_nodes

    def evaluate(self, now: float, due: int = 0) -> str | None:
        """Let the breaker evaluate; return why it is open."""
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
    """A threshold is a number, a share that counts from a minimum number of nodes on, or either of both."""
    assert threshold.exceeded_by(count, total) is exceeded


@pytest.mark.parametrize(
    ("threshold", "count", "total", "too_few"),
    [
        (NodeThreshold(percent=25.0), 2, 7, True),
        (NodeThreshold(percent=25.0), 2, 8, False),
        (NodeThreshold(percent=33.0), 2, 6, True),
        (NodeThreshold(percent=25.0), 3, 7, False),
        (NodeThreshold(number=1, percent=25.0), 2, 7, False),
        (NodeThreshold(number=5), 2, 7, False),
    ],
)
def test_a_share_of_too_few_nodes_does_not_count(
    threshold: NodeThreshold, count: int, total: int, too_few: bool
) -> None:
    """The share alone would be exceeded, and nothing else is."""
    assert threshold.too_few(count, total) is too_few


def test_two_of_three_nodes_are_no_surge_by_default() -> None:
    """By default a share counts from 3 nodes on."""
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
    """The breaker's cause contains this text."""
    assert str(threshold) == text


def test_the_default_policy_has_no_problems_and_is_off() -> None:
    """25 % by people, 55 % by the node lifecycle controller, in 5 minutes; 2 s for settling, 10 s for lists."""
    policy = BreakerPolicy()
    assert Settings(breaker=policy).problems() == []
    assert not policy.enabled
    assert (policy.window_seconds, policy.settle_seconds, policy.list_wait_seconds) == (300.0, 2.0, 10.0)
    assert policy.max_due is None
    assert (policy.nodes, policy.lifecycle_nodes) == (NodeThreshold(percent=25.0), NodeThreshold(percent=55.0))
    assert not policy.closes_by_itself
    assert (policy.zone, policy.without_control_plane) == (None, False)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (BreakerPolicy(nodes=NodeThreshold(number=-1)), "breaker: the number of nodes must not be negative, as -1 is"),
        (
            BreakerPolicy(nodes=NodeThreshold(percent=100.0)),
            "breaker: the percentage must be at least 0 and less than 100, not 100",
        ),
        (
            BreakerPolicy(nodes=NodeThreshold(percent=-0.5)),
            "breaker: the percentage must be at least 0 and less than 100, not -0.5",
        ),
        (
            BreakerPolicy(lifecycle_nodes=NodeThreshold(percent=1.0, min_nodes=0)),
            "breaker, not-ready and unreachable nodes: a percentage can count from 1 node on, not from 0",
        ),
        (
            BreakerPolicy(zone=NodeThreshold(percent=100.0)),
            "breaker, nodes of a zone (--breaker-zone): the percentage must be at least 0 and less than 100, not 100",
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
def test_each_problem_is_reported(policy: BreakerPolicy, words: str) -> None:
    """Each problem of a policy is one sentence."""
    [problem] = Settings(breaker=policy).problems()
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
def test_strict_and_lenient_policies_have_no_problems(policy: BreakerPolicy) -> None:
    """Values at the bounds are valid."""
    assert Settings(breaker=policy).problems() == []


# What counts


def test_nodes_tainted_within_the_window_count() -> None:
    """The taint's own time counts; a taint from exactly the window's start is old."""
    it = Watched()
    it.taint(0, at=0.0)
    it.taint(1, at=0.5)
    it.taint(2, at=60)
    assert it.surge(100) == (2, 0)
    assert it.surge(100.5) == (1, 0)
    assert it.surge(160) == (0, 0)


def test_it_does_not_matter_when_this_process_saw_the_taints() -> None:
    """After a restart, taints from ten minutes ago are no surge, and taints from a minute ago are one."""
    it = Watched()
    it.taint(0, 1, 2, at=1000 - 600)
    assert it.evaluate(1000) is None
    it.taint(3, 4, 5, at=1000 - 60)
    assert it.surge(1000) == (3, 0)
    assert it.evaluate(1000) is not None


def test_only_nodes_with_a_pod_to_evict_count() -> None:
    """Tainting empty nodes is no surge."""
    it = Watched()
    it.taint(0, 1, 2, 3, at=5, evicts=False)
    assert it.surge(10) == (0, 0)
    assert it.evaluate(10) is None


def test_a_node_with_an_old_and_a_new_taint_counts_by_the_new_one() -> None:
    """If only the old taint evicts pods, the node does not count at all."""
    it = Watched()
    it.taint(0, at=0)
    it.taint(0, at=150, key="k2", evicts=False)
    it.taint(1, at=0)
    it.taint(1, at=150, key="k2")
    assert it.surge(160) == (1, 0)


def test_a_node_counts_once() -> None:
    """A node counts once however many taints it has, and however many pods they evict."""
    it = Watched()
    it.taint(0, at=1)
    it.taint(0, at=1)
    it.taint(0, at=2, key="k2")
    assert it.surge(10) == (1, 0)


def test_a_taint_that_is_removed_no_longer_counts() -> None:
    """A node that is deleted does not count either; the other nodes still do."""
    it = Watched()
    it.taint(0, 1, 2, at=1)
    it.untaint(0)
    it.delete(1)
    assert it.surge(10) == (1, 0)


def test_the_removal_of_one_of_two_taints_leaves_the_other() -> None:
    """The breaker remembers for each taint whether it evicts pods."""
    it = Watched()
    it.taint(0, at=1)
    it.taint(0, at=1, key="k2")
    del it.nodes["n0"].sightings[taint()]
    it.changed(0)
    assert it.surge(10) == (1, 0)
    it.untaint(0)
    assert it.surge(10) == (0, 0)


def test_a_taint_that_comes_back_counts_once_it_evicts_a_pod() -> None:
    """The breaker forgets a taint's evictions when the taint is removed."""
    it = Watched()
    it.taint(0, at=1)
    it.untaint(0)
    it.taint(0, at=5, evicts=False)
    assert it.surge(10) == (0, 0)
    it.taint(0, at=5)
    assert it.surge(10) == (1, 0)


@pytest.mark.parametrize("keys", [(NOT_READY,), (UNREACHABLE,), (NOT_READY, UNREACHABLE)])
def test_nodes_that_the_node_lifecycle_controller_taints_are_counted_apart(keys: tuple[str, ...]) -> None:
    """These nodes have a threshold of their own."""
    it = Watched()
    for key in keys:
        it.taint(0, at=1, key=key)
    assert it.surge(10) == (0, 1)


def test_a_node_that_people_have_tainted_too_counts_as_tainted_by_people() -> None:
    """This applies only if the people's taint is new: node 1's is older than the window."""
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
    """A breaker with nodes that were tainted at ``at``, and whose pods have not been listed since."""
    it = Watched()
    it.taint(*numbers, at=at, key=key, evicts=evicts)
    it.breaker.unlisted |= {f"n{number}": at for number in numbers}
    return it


def test_the_longest_unlisted_node_gives_the_start_of_the_wait() -> None:
    """A node no longer counts once it has been listed, is clean, or is deleted."""
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
def test_a_list_requested_before_the_taint_does_not_count(node_name: str | None, asked_at: float, since: float) -> None:
    """The node's pods were not kept before it was tainted."""
    it = unlisted(0)
    it.breaker.listed(PodsSwept(node_name, frozenset(), asked_at, None))
    assert it.breaker.unlisted_since(it.nodes, moment(5)) == since


def test_the_breaker_waits_only_for_newly_tainted_nodes() -> None:
    """Newly tainted means within the window and after the last reset; a breaker that is off waits for no node."""
    assert unlisted(0).breaker.unlisted_since(unlisted(0).nodes, moment(100.5)) == 1
    assert unlisted(0).breaker.unlisted_since(unlisted(0).nodes, moment(101)) == math.inf
    it = unlisted(0)
    it.breaker.reset(epoch(2))
    assert it.breaker.unlisted_since(it.nodes, moment(5)) == math.inf
    assert Breaker(BreakerPolicy()).unlisted_since(it.nodes, moment(5)) == math.inf


def test_unlisted_nodes_are_counted_apart() -> None:
    """Unlisted nodes do not count as affected, because their pods are not known yet."""
    it = unlisted(0, 1, 2)
    assert it.breaker.surge(it.nodes, 0, moment(5)) == TaintSurge(0, 0, 10, 0, 3)


def test_a_node_whose_list_was_awaited_in_vain_counts_as_affected() -> None:
    """This applies to the nodes that were tainted by the end of the wait, until they are listed."""
    it = unlisted(0, 1, at=1)
    it.taint(2, at=7, evicts=False)
    it.breaker.unlisted["n2"] = 7
    it.evaluate(8)
    it.breaker.lists_overdue(6)
    assert it.surge(10) == (2, 0)
    it.breaker.lists_overdue(7)
    assert it.evaluate(11) == "3 of 10 nodes newly tainted within 100 s, more than 2"
    for end in listed(0, 1, 2, asked_at=12):
        it.breaker.listed(end)
    assert it.surge(13) == (0, 0)


def test_the_breaker_must_evaluate_once_lists_were_awaited_in_vain() -> None:
    """Nodes that count from then on may raise the count; a breaker that is off never has to evaluate."""
    it = unlisted(0, 1)
    it.evaluate(5)
    assert not it.breaker.needs_evaluation
    it.breaker.lists_overdue(6)
    assert it.breaker.needs_evaluation
    it.evaluate(7)
    it.breaker.lists_overdue(6)
    assert not it.breaker.needs_evaluation
    off = Breaker(BreakerPolicy())
    off.lists_overdue(6)
    assert not off.needs_evaluation


def test_a_taint_that_all_listed_pods_tolerate_is_presumed_to_evict_no_pod() -> None:
    """This applies once one node with the taint is listed, and until any pod is to be evicted because of it."""
    it = unlisted(0, 1)
    it.breaker.lists_overdue(5)
    assert it.surge(10) == (2, 0)
    it.taint(2, at=1, evicts=False)
    assert it.surge(10) == (0, 0)
    it.taint(3, at=-500)
    assert it.surge(10) == (2, 0)


def test_another_value_is_another_taint() -> None:
    """A pod may tolerate one value and not the other; when each taint was set does not matter."""
    it = unlisted(0)
    it.breaker.lists_overdue(5)
    it.nodes["n1"].sightings[taint(value="other")] = since(1)
    assert it.surge(10) == (1, 0)
    it.nodes["n1"].sightings[taint(added_at=-50)] = since(-49)
    assert it.surge(10) == (0, 0)


def test_what_is_presumed_of_a_node_adds_to_what_is_known() -> None:
    """One taint is known to evict a pod; the other is presumed to, until a listed node shows that it evicts none."""
    it = unlisted(0)
    it.taint(0, at=1, key=NOT_READY)
    it.breaker.lists_overdue(5)
    assert it.surge(10) == (1, 0)
    it.taint(1, at=1, evicts=False)
    assert it.surge(10) == (0, 1)


# What was there before this process


def found(at: float, which: Taint | None = None) -> Watched:
    """A breaker whose process found a node tainted, as far as it can tell since ``at``."""
    it = Watched()
    it.taint(0, at=at, evicts=False)
    it.breaker.node_found("n0", {which or taint(): since(at)})
    return it


@pytest.mark.parametrize(("since", "count"), [(math.inf, 0), (62, 0), (61, 1), (60, 1), (-500, 1)])
def test_a_taint_found_at_start_is_new_if_an_old_one_would_have_evicted_a_pod(since: float, count: int) -> None:
    """The pod does not tolerate the taint, and was on the node before the taint's date, or in the same second."""
    it = found(60)
    it.breaker.evicts("n0", taint(), since)
    assert it.surge(100) == (count, 0)


def test_a_taint_with_a_time_of_its_own_needs_no_proof() -> None:
    """The node lifecycle controller sets ``timeAdded`` on its taints."""
    it = Watched()
    dated = taint(NOT_READY, added_at=59)
    it.nodes["n0"].sightings[dated] = since(60)
    it.breaker.node_found("n0", it.nodes["n0"].sightings)
    it.breaker.evicts("n0", dated)
    assert it.surge(100) == (0, 1)


def test_a_taint_found_at_start_that_comes_back_is_new() -> None:
    """The taint was seen absent, and then seen to appear; the breaker forgets that it was found at the start."""
    it = found(60)
    it.untaint(0)
    it.taint(0, at=70)
    assert it.surge(100) == (1, 0)


def test_a_second_taint_leaves_the_first_as_found_at_start() -> None:
    """The breaker forgets only the taints that are removed."""
    it = found(60)
    it.taint(0, at=70, key="k2", evicts=False)
    it.breaker.evicts("n0", taint())
    assert it.surge(100) == (0, 0)
    it.breaker.evicts("n0", taint("k2"))
    assert it.surge(100) == (1, 0)


# Opening


def test_a_breaker_that_is_off_never_opens() -> None:
    """By default the breaker is off, because Kubernetes has no such feature."""
    it = Watched(BreakerPolicy(nodes=NodeThreshold(number=0), max_due=0))
    it.taint(0, 1, 2, 3, at=1)
    assert it.evaluate(2, due=1000) is None


def test_more_nodes_than_allowed_open_the_breaker() -> None:
    """The latch names the counts, and the time by the API server's clock."""
    it = Watched()
    it.taint(0, 1, at=1)
    assert it.evaluate(2) is None
    it.taint(2, at=3)
    assert it.evaluate(4) == "3 of 10 nodes newly tainted within 100 s, more than 2"
    assert it.breaker.latch == own_latch(epoch(4), "3 of 10 nodes newly tainted within 100 s, more than 2")


def test_an_open_breaker_stays_open() -> None:
    """Cause and time stay the same, whatever happens to the nodes, as long as nobody resets the breaker."""
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
    """The taint was removed and set again in a gap of the watch: the same taint with a later start counts as news."""
    it = Watched()
    it.taint(0, 1, 2, at=-500)
    assert it.evaluate(0) is None
    it.taint(0, 1, 2, at=50)
    assert it.evaluate(60) == "3 of 10 nodes newly tainted within 100 s, more than 2"


def test_a_share_rises_when_nodes_are_deleted() -> None:
    """Four of sixteen nodes are 25 %; four of fifteen are more."""
    it = Watched(BreakerPolicy(enabled=True), nodes=16)
    it.taint(0, 1, 2, 3, at=1)
    assert it.evaluate(2) is None
    it.delete(15)
    assert it.evaluate(3) == "4 of 15 nodes newly tainted within 300 s, more than 25 %"


@pytest.mark.parametrize("key", [NOT_READY, UNREACHABLE])
def test_lifecycle_nodes_open_the_breaker_by_their_own_threshold(key: str) -> None:
    """The default is more than 55 %; nodes that people have tainted do not count there."""
    it = Watched(BreakerPolicy(enabled=True), nodes=20)
    it.taint(*range(11), at=1, key=key)
    it.taint(11, 12, 13, 14, 15, at=1)
    assert it.surge(2) == (5, 11)
    assert it.evaluate(2) is None
    it.taint(16, at=2, key=key)
    words = "12 of 20 nodes not ready or unreachable, newly tainted within 300 s, more than 55 %"
    assert it.evaluate(3) == words


def test_lifecycle_nodes_may_be_exempt() -> None:
    """Without a threshold for them, all nodes may be not ready."""
    it = Watched()
    it.taint(*range(10), at=1, key=NOT_READY)
    assert it.surge(2) == (0, 10)
    assert it.evaluate(2) is None


def test_more_due_pods_than_allowed_open_the_breaker() -> None:
    """The number of due pods counts on its own, without any tainted node."""
    it = Watched(BreakerPolicy(enabled=True, max_due=5))
    assert it.evaluate(1, due=5) is None
    assert it.evaluate(2, due=6) == "6 pods due at once, more than 5"


def test_the_cause_names_nodes_before_pods() -> None:
    """If several thresholds are exceeded, the latch names only the first."""
    it = Watched(BreakerPolicy(enabled=True, nodes=NodeThreshold(number=0), max_due=0))
    it.taint(0, at=1)
    assert it.evaluate(2, due=6) == "1 of 10 nodes newly tainted within 300 s, more than 0"
    both = Watched(
        BreakerPolicy(enabled=True, lifecycle_nodes=NodeThreshold(number=0), nodes=NodeThreshold(number=0), max_due=0)
    )
    both.taint(0, at=1, key=NOT_READY)
    assert both.evaluate(2, due=6) == "1 of 10 nodes not ready or unreachable, newly tainted within 300 s, more than 0"


def test_the_breaker_counts_only_when_there_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation costs nothing if nothing has happened in the cluster since the last one."""
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


def test_a_reset_closes_the_breaker_and_starts_a_new_count() -> None:
    """Nodes that were tainted up to the reset do not count, even within the window; nodes tainted later do."""
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


def test_an_old_reset_does_not_extend_the_window() -> None:
    """Only taints within the window count, even if they are later than the reset."""
    it = Watched()
    it.breaker.reset(epoch(1))
    it.taint(0, 1, 2, at=2)
    assert it.surge(200) == (0, 0)


def test_while_the_breaker_is_open_the_window_does_not_move() -> None:
    """The taints that opened the breaker do not become old: they stop counting only when they are removed."""
    it = Watched()
    it.taint(0, 1, 2, at=1)
    it.taint(3, at=-99)
    it.evaluate(50)
    assert it.surge(1e6) == (3, 0)
    it.untaint(0)
    assert it.surge(1e6) == (2, 0)


def test_the_window_of_another_replicas_latch_begins_before_that_latch() -> None:
    """Another replica opened the breaker earlier: nodes count from one window before that time on."""
    it = Watched()
    it.taint(0, at=-350)
    it.taint(1, at=-250)
    it.breaker.latch = Latch(epoch(-200), "elsewhere")
    assert it.surge(0) == (1, 0)
    it.breaker.latch = Latch(epoch(500), "ahead of us")
    assert it.surge(0) == (0, 0)


def test_by_default_the_breaker_does_not_close_by_itself() -> None:
    """Even if the cause is gone, a person has to reset the breaker."""
    it = Watched()
    it.taint(0, 1, 2, at=1)
    it.evaluate(2)
    it.untaint(0, 1, 2)
    assert it.evaluate(3) is not None


BY_ITSELF = BreakerPolicy(
    enabled=True, nodes=NodeThreshold(number=2), lifecycle_nodes=None, max_due=5, closes_by_itself=True
)


def test_the_breaker_closes_by_itself_once_the_cause_is_gone() -> None:
    """Time alone does not close it, only the removal of taints does.

    No person knows of the taints that are left: they count until the window is over, and open it again with new ones.
    """
    it = Watched(BY_ITSELF)
    it.taint(0, 1, 2, at=1)
    assert it.evaluate(2) is not None
    assert it.evaluate(1e4) is not None
    it.taint(3, at=1e4)
    it.untaint(1, 2)
    assert it.evaluate(1e4 + 1) is None
    assert it.breaker.reset_epoch is None
    it.taint(4, at=1e4 + 2)
    assert it.evaluate(1e4 + 3) is None
    it.taint(5, at=1e4 + 4)
    assert it.evaluate(1e4 + 5) is not None


def test_pods_that_are_due_when_the_breaker_closes_by_itself_count_as_before() -> None:
    """There are no more than it allows, and nobody knows of them."""
    it = Watched(BY_ITSELF)
    assert it.evaluate(1, due=9) is not None
    assert it.evaluate(2, due=5) is None
    assert it.evaluate(3, due=6) is not None


def test_a_closing_by_another_controller_closes_the_breaker_and_acknowledges_nothing() -> None:
    """It is read once, and closes no latch that is newer than it."""
    it = Watched(BY_ITSELF)
    it.taint(0, 1, 2, at=1)
    it.breaker.latch = own_latch(epoch(2), "elsewhere")
    it.breaker.read(None, epoch(1.5), by_itself=True)
    assert it.breaker.latch is not None
    it.breaker.read(None, epoch(3), by_itself=True)
    assert it.breaker.latch is None
    assert it.evaluate(3) is not None
    it.breaker.read(None, epoch(3), by_itself=True)
    assert it.breaker.latch is not None


def test_of_two_causes_both_must_be_gone() -> None:
    """One cause is the number of nodes, the other the number of due pods."""
    it = Watched(BY_ITSELF)
    it.taint(0, 1, 2, at=1)
    it.evaluate(2, due=9)
    it.untaint(0, 1, 2)
    assert it.evaluate(3, due=6) is not None
    assert it.evaluate(4, due=5) is None


def test_the_breaker_closes_by_itself_at_the_first_evaluation_without_the_cause() -> None:
    """The only evaluation that saw the cause is the one that opened the breaker."""
    it = Watched(BY_ITSELF)
    it.taint(0, 1, 2, at=1)
    assert it.evaluate(2) is not None
    it.untaint(2)
    assert it.evaluate(3) is None


def test_a_cause_that_this_process_has_not_seen_is_not_gone() -> None:
    """Another replica opened the breaker, and the nodes are not listed yet; it closes once their taints come and go."""
    it = Watched(BY_ITSELF)
    it.breaker.latch = own_latch(epoch(0), "elsewhere")
    assert it.evaluate(5) == "elsewhere"
    it.taint(0, 1, 2, at=1)
    assert it.evaluate(6) == "elsewhere"
    it.untaint(0)
    assert it.evaluate(7) is None


def test_a_cause_seen_before_a_reset_says_nothing_about_a_later_latch() -> None:
    """The breaker opens here, is reset, and is opened by another replica."""
    it = Watched(BY_ITSELF)
    it.taint(0, 1, 2, at=1)
    it.evaluate(2)
    it.breaker.reset(epoch(3))
    it.breaker.latch = own_latch(epoch(4), "elsewhere")
    assert it.evaluate(5) == "elsewhere"


# Backlogs that somebody knows of


def open_by_due(due: int) -> Watched:
    """A breaker that ``due`` due pods have opened."""
    it = Watched(BreakerPolicy(enabled=True, max_due=5))
    assert it.evaluate(1, due=due) is not None
    return it


def test_the_backlog_at_a_reset_may_be_worked_off() -> None:
    """The backlog may have any size; more than five due pods on top of it open the breaker again."""
    it = open_by_due(100)
    it.breaker.reset(epoch(2))
    assert it.evaluate(3, due=100) is None
    assert it.evaluate(4, due=50) is None
    assert it.evaluate(5, due=55) is None
    assert it.evaluate(6, due=56) == "56 pods due at once, more than 5"


def test_a_backlog_that_was_worked_off_is_forgotten() -> None:
    """The next backlog is a new one and opens the breaker."""
    it = open_by_due(100)
    it.breaker.reset(epoch(2))
    it.breaker.count_due(100)
    it.breaker.count_due(0)
    assert it.evaluate(4, due=6) is not None


def test_a_standby_knows_what_is_left_of_a_backlog() -> None:
    """A standby counts due pods without evaluating; when it leads, it knows what the leader has left of the backlog."""
    it = open_by_due(100)
    it.breaker.reset(epoch(2))
    for due in (100, 60, 20):
        it.breaker.count_due(due)
    assert it.evaluate(9, due=25) is None
    assert it.evaluate(9, due=26) is not None


def test_an_old_reset_that_closes_nothing_makes_no_backlog_known() -> None:
    """A process that reads yesterday's reset after a restart learns nothing about the pods that are due today."""
    it = Watched(BreakerPolicy(enabled=True, max_due=5))
    it.breaker.reset(epoch(-86_400))
    assert it.evaluate(1, due=6) is not None


def test_a_backlog_that_a_person_knows_is_measured_at_the_next_count() -> None:
    """A person who ends a pause knows the backlog, whose size the breaker learns at its next evaluation."""
    it = Watched(BreakerPolicy(enabled=True, max_due=5))
    it.breaker.acknowledge_backlog()
    assert it.evaluate(1, due=1000) is None
    assert it.evaluate(2, due=1005) is None
    assert it.evaluate(3, due=1006) is not None


def found_open(latch: Latch) -> Watched:
    """A breaker that may close by itself, in a process that found it open and has listed no pod yet."""
    it = Watched(replace(TWO, closes_by_itself=True))
    it.breaker.latch = latch
    return it


def test_a_breaker_found_open_closes_by_itself_only_after_a_whole_window_without_a_cause() -> None:
    """Before that, the pods of the cause may not have been listed yet."""
    it = found_open(own_latch(epoch(-5), "before"))
    for now in (1, 50, 100.9):
        assert it.evaluate(now) == "before"
    assert it.evaluate(101) is None


def test_a_breaker_found_open_closes_by_itself_once_its_cause_was_seen_and_is_gone() -> None:
    """In this case the breaker does not wait for a whole window."""
    it = found_open(own_latch(epoch(-5), "before"))
    assert it.evaluate(1) == "before"
    it.taint(0, 1, 2, at=-6)
    assert it.evaluate(2) == "before"
    it.untaint(0)
    assert it.evaluate(3) is None


def test_an_unreadable_latch_is_closed_only_by_a_reset() -> None:
    """Neither the disappearance of the cause nor time closes it."""
    it = found_open(Latch(0.0, "nonsense", unreadable=True))
    it.taint(0, 1, 2, at=1)
    assert it.evaluate(2) == "nonsense"
    it.untaint(0, 1, 2)
    for now in (3, 1000):
        assert it.evaluate(now) == "nonsense"
    it.breaker.reset(epoch(1001))
    assert it.evaluate(1002) is None


def test_a_latch_and_a_reset_from_the_future_are_moved_back_to_now() -> None:
    """The clock was ahead when the latch, or the reset, was written."""
    it = Watched()
    it.breaker.latch, it.breaker.reset_epoch = Latch(epoch(500), "too many"), epoch(400)
    it.breaker.date_back(epoch(100))
    assert (it.breaker.latch.since_epoch, it.breaker.reset_epoch) == (epoch(100), epoch(100))
    it.breaker.date_back(epoch(200))
    assert (it.breaker.latch.since_epoch, it.breaker.reset_epoch) == (epoch(100), epoch(100))


def test_a_latch_keeps_that_too_many_nodes_were_out_of_service() -> None:
    """Another one that replaces it does not say so; neither does the stored one, when another leadership begins."""
    known, by_hand = Latch(epoch(1), "many", controller="c", out_of_service=True), Latch(epoch(2), "by hand")
    it = Breaker(BreakerPolicy(enabled=True))
    it.read(known, None)
    it.read(by_hand, None)
    assert it.latch == replace(by_hand, out_of_service=True)
    it.begin_term(by_hand)
    assert it.latch == replace(by_hand, out_of_service=True)
