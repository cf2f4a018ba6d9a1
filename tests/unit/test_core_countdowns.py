"""The built-in controller's timer as it can be known from here, and when a countdown is late."""

import math
from dataclasses import dataclass, field, replace

import pytest
from tests.unit.builders import epoch, moment, node, pod, ref, taint, tolerates

from taint_eviction.core.controller import Controller
from taint_eviction.core.countdowns import Countdowns, MarkRate
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, NodesHeard, PodGone, PodSeen, PodsReleased
from taint_eviction.core.objects import MARK_SECONDS, Pod, Toleration

SHORT, LONG = tolerates(25, "short"), tolerates(1000, "long")
FOR_EVER = replace(SHORT, toleration_seconds=None)


@dataclass
class FollowedCore:
    """A controller and the countdowns that follow it."""

    controller: Controller = field(default_factory=Controller)
    before_seconds: float = 60.0
    from_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Follow."""
        self.countdowns = Countdowns(
            self.controller.nodes, self.controller.pods, self.before_seconds, self.from_seconds
        )

    def sees(self, at: float, *facts: Fact) -> None:
        """Let facts be observed."""
        for fact in facts:
            self.controller.observe(fact, moment(at))
            self.countdowns.observed(fact, moment(at))

    def taints(self, at: float, *keys: str, after_gap: bool = False) -> None:
        """Let the node have these taints."""
        fact = NodeSeen(node(*(taint(key) for key in keys), version=int(at * 10) + 1), after_gap)
        self.sees(at, replace(fact, asked_at=at) if after_gap else fact)

    def shows(self, at: float, *tolerations: Toleration, uid: str = "a") -> None:
        """Let the watch show the pod."""
        self.sees(at, PodSeen(pod(*tolerations, uid=uid)))

    def late(self, at: float, rate: float = 20.0) -> list[tuple[float, str]]:
        """Return the timers that are late, with the pods' UIDs."""
        return [(round(each.timer_at, 3), each.ref.uid) for each in self.countdowns.late(at, rate, ())[0]]

    def begins_at(self, at: float) -> float:
        """Return when the next countdown is to be taken over."""
        return round(self.countdowns.late(at, 20.0, ())[1], 3)


def stage() -> FollowedCore:
    """Return a stage whose node is known as clean since 0."""
    made = FollowedCore()
    made.taints(0)
    return made


# Its timer


def test_a_pod_that_is_released_with_its_node_has_none() -> None:
    """A write for it may still be under way when nobody watches the pod any more."""
    it = stage()
    it.taints(10, "short")
    it.shows(10, SHORT)
    it.sees(20, NodeGone("n1", "uid-n1"), PodsReleased("n1"))
    assert it.countdowns.timer_at(ref()) == math.inf


@pytest.mark.parametrize(
    ("after_gap", "bound_at", "late"), [(True, 19.0, [(1020.0, "a")]), (True, 20.0, []), (False, 19.0, [])]
)
def test_only_a_gap_hides_the_countdowns_of_pods_that_were_bound_before_it_ended(
    after_gap: bool, bound_at: float, late: list[tuple[float, str]]
) -> None:
    """A list that a resync asks for is no gap."""
    it = FollowedCore()
    it.taints(0, after_gap=True)
    it.taints(15, "long")
    it.sees(20, NodeSeen(node(taint("long"), version=999), after_gap, asked_at=20.0))
    it.sees(20, PodSeen(pod(LONG, bound_at=bound_at)))
    assert it.late(20) == late


def test_a_node_that_a_list_shows_first_may_have_been_tainted_otherwise_before() -> None:
    """The watch had not brought it, so a pod that was bound before has a countdown whose beginning nobody saw."""
    it = FollowedCore()
    it.sees(0, NodeSeen(node(name="n2"), True, asked_at=0.0))
    it.sees(20, NodeSeen(node(taint("long"), version=1), asked_at=20.0), PodSeen(pod(LONG, bound_at=19.0)))
    assert it.late(20) == [(1020, "a")]


def test_a_pod_that_has_finished_has_no_timer_to_be_taken_over() -> None:
    """The built-in controller deletes it in time, and nothing is lost with it."""
    it = stage()
    it.taints(10, "short")
    it.shows(10, SHORT)
    it.sees(12, PodSeen(pod(SHORT, finished=True)))
    assert it.countdowns.timer_at(ref()) == math.inf


def test_marks_are_not_removed_while_a_timer_from_before_a_blip_may_run() -> None:
    """The taint was gone for four seconds, which the built-in controller may have missed."""
    it = stage()
    it.taints(20, "long")
    it.shows(20, LONG)
    it.taints(30)
    it.taints(45, "long")
    it.late(45)
    assert it.countdowns.returns_at(ref(), 46, 0) == 10
    it.taints(50)
    it.taints(54, "long")
    it.late(54)
    assert it.countdowns.returns_at(ref(), 55, 0) == math.inf


def test_a_change_that_a_list_shows_may_have_been_missed() -> None:
    """Between two states of the list, others may have armed a timer: the countdown is taken over at once."""
    it = FollowedCore()
    it.taints(0, after_gap=True)
    it.taints(20, "long")
    it.shows(20, LONG)
    changed = PodSeen(pod(replace(LONG, toleration_seconds=900)))
    it.sees(30, changed)
    assert it.late(30) == []
    it.sees(40, replace(changed, pod=pod(replace(LONG, toleration_seconds=800)), asked_at=40.0))
    assert it.late(40) == [(840, "a")]


def test_the_earliest_moment_counts_whatever_changes() -> None:
    """Tolerations of 25 and 1,000 s: the shorter one's timer stays when its taint goes, and when its seconds grow."""
    it = stage()
    it.taints(10, "short", "long")
    it.shows(10, SHORT, LONG)
    assert it.countdowns.timer_at(ref()) == 35
    it.taints(12, "long")
    assert it.countdowns.timer_at(ref()) == 35
    it.shows(13, replace(SHORT, toleration_seconds=500), LONG)
    assert it.countdowns.timer_at(ref()) == 35
    it.shows(14, SHORT, replace(LONG, toleration_seconds=15))
    assert it.countdowns.timer_at(ref()) == 29


def test_a_rewritten_value_does_not_move_the_timer() -> None:
    """For this controller it is a new taint, and its deadline starts again; the built-in one keeps its timer."""
    it = stage()
    it.sees(10, NodeSeen(node(taint("short", "a"), version=100)))
    it.shows(10, SHORT)
    it.sees(24, NodeSeen(node(taint("short", "b"), version=240)))
    assert it.countdowns.timer_at(ref()) == 35


@pytest.mark.parametrize(("back_at", "timer_at"), [(29.9, 35), (30, 55)])
def test_ten_seconds_without_a_finite_first_match_end_a_timer(back_at: float, timer_at: float) -> None:
    """The built-in controller may miss a moment that is shorter."""
    it = stage()
    it.taints(10, "short")
    it.shows(10, SHORT)
    it.taints(20)
    it.taints(back_at, "short")
    assert it.countdowns.timer_at(ref()) == timer_at


@pytest.mark.parametrize("seconds", [None, MARK_SECONDS])
def test_a_mark_and_no_seconds_end_a_timer_alike(seconds: int | None) -> None:
    """Seconds that are set again later have a timer of their own."""
    it = stage()
    it.taints(10, "short")
    it.shows(10, SHORT)
    it.shows(15, replace(SHORT, toleration_seconds=seconds))
    assert it.late(100) == []
    it.shows(100, SHORT)
    assert it.countdowns.timer_at(ref()) == 125


def test_a_successor_under_the_name_inherits_the_timer() -> None:
    """Timers go by names: a pod that is recreated at once may be deleted by its predecessor's timer."""
    it = stage()
    it.taints(10, "short")
    it.shows(10, SHORT)
    it.sees(20, PodGone(ref()))
    it.shows(20, SHORT, uid="b")
    assert it.countdowns.timer_at(ref(uid="b")) == 35
    it.sees(21, PodGone(ref(uid="b")))
    it.shows(40, SHORT, uid="c")
    assert it.countdowns.timer_at(ref(uid="c")) == 65


# When


def test_a_countdown_is_late_a_third_of_its_tolerance_before_its_timer() -> None:
    """At most a minute, at least 10 s; and a little for each that has no later timer."""
    for seconds, before in ((30, 10), (90, 30), (300, 60), (9000, 60)):
        it = stage()
        it.taints(100, "k1")
        it.shows(100, tolerates(seconds))
        assert it.late(100) == []
        assert it.begins_at(100) == round(100 + seconds - before - 0.1, 3)
        assert it.late(100 + seconds - before) == [(100 + seconds, "a")]


def test_the_more_wait_the_earlier_it_begins() -> None:
    """Nearest timer first: twice what those with no later timer need at the rate of the marks so far."""
    it = stage()
    it.taints(100, "k1")
    for number in range(100):
        it.sees(100, PodSeen(pod(tolerates(300), name=f"web-{number}", uid=f"u{number}")))
    it.sees(100, PodSeen(pod(tolerates(290), name="sooner", uid="sooner")))
    assert it.begins_at(100) == 400 - 60 - 2 * 101 / 20
    late = it.late(330, rate=5)
    assert (late[0], len(late)) == ((390, "sooner"), 101)


def test_what_began_before_this_process_saw_it_is_late_at_once() -> None:
    """In the order of object time plus seconds; there may have been an earlier moment."""
    it = FollowedCore()
    it.sees(50, NodeSeen(node(taint("k1", added_at=20), version=500), after_gap=True, asked_at=50))
    it.sees(50, PodSeen(replace(pod(tolerates(300)), bound_at=epoch(0)), asked_at=50))
    assert it.late(50) == [(321, "a")]


def test_a_gap_makes_a_countdown_late_and_a_resync_does_not() -> None:
    """Another taint may have come and gone during a gap that the watch could not resume over."""
    it = stage()
    it.taints(10, "k1")
    it.shows(10, tolerates(300))
    it.sees(20, NodeSeen(node(taint(), version=200), asked_at=20))
    assert it.late(20) == []
    it.taints(30, "k1", after_gap=True)
    assert it.late(30) == [(310, "a")]


def test_a_timer_counts_from_the_taints_date_where_the_watch_lags() -> None:
    """The built-in controller has seen the taint in time; this one has seen the node without it until 30."""
    it = FollowedCore()
    it.taints(0, after_gap=True)
    it.sees(30, NodesHeard(299), NodeSeen(node(taint(), written_at=18, version=300)))
    it.sees(30, PodSeen(pod(tolerates(30), bound_at=0), asked_at=30))
    assert it.late(30) == [(49, "a")]


def test_the_timer_of_a_second_taint_counts_from_its_date_where_the_watch_lags() -> None:
    """It stood already when the mark of the first one was written, so that one's timer may still run."""
    it = FollowedCore()
    it.taints(0, after_gap=True)
    it.taints(20, "short")
    it.shows(20, SHORT, LONG)
    it.shows(30, replace(SHORT, toleration_seconds=MARK_SECONDS), LONG)
    it.sees(42, NodeSeen(node(taint("short"), taint("long"), written_at=28, version=430)))
    assert it.late(42) == [(1029, "a")]


@pytest.mark.parametrize(("taints_at", "late"), [(59.9, [(359.9, "a")]), (60, [])])
def test_a_taint_that_appears_soon_after_a_start_is_late_at_once(
    taints_at: float, late: list[tuple[float, str]]
) -> None:
    """The built-in controller may have missed that it was away for less than 10 s."""
    it = FollowedCore()
    it.taints(50, after_gap=True)
    it.taints(taints_at, "k1")
    it.sees(taints_at, PodSeen(replace(pod(tolerates(300)), bound_at=epoch(0)), asked_at=taints_at))
    assert it.late(taints_at) == late


@pytest.mark.parametrize(("back_at", "late"), [(33, [(310, "a")]), (39, [(310, "a")]), (41, [])])
def test_a_gap_while_a_node_is_clean_counts_though_its_pods_are_not_watched(
    back_at: float, late: list[tuple[float, str]]
) -> None:
    """Only 10 s after it the earlier timer is certainly over, and no other one can have been armed."""
    it = stage()
    it.taints(10, "k1")
    it.shows(10, tolerates(300))
    it.taints(25)
    it.sees(25, PodsReleased("n1"))
    it.taints(30, after_gap=True)
    it.taints(back_at, "k1")
    it.shows(back_at, tolerates(300))
    assert it.late(back_at) == late


def test_a_pod_that_was_bound_after_the_start_has_missed_nothing() -> None:
    """The pod had no moment before: neither by a taint that was found nor by one that appears soon after."""
    it = FollowedCore()
    it.taints(50, "k1", after_gap=True)
    it.taints(55, "k1", "k2")
    it.sees(56, PodSeen(replace(pod(tolerates(300)), bound_at=epoch(50)), asked_at=56))
    assert it.late(56) == []


def test_a_binding_that_cannot_be_dated_may_be_older_than_the_start() -> None:
    """While the API server's time is not known, the date of a binding says nothing."""
    it = FollowedCore()
    it.taints(50, "k1", after_gap=True)
    fact = PodSeen(replace(pod(tolerates(300)), bound_at=epoch(0)), asked_at=51)
    undated = moment(51)._replace(dates_objects=False)
    it.controller.observe(fact, undated)
    it.countdowns.observed(fact, undated)
    assert it.late(51) == [(351, "a")]


# When marks may go


MARKED = replace(SHORT, toleration_seconds=MARK_SECONDS)


@pytest.mark.parametrize(("joins_at", "may"), [(29, False), (30, True)])
def test_marks_may_go_while_a_countdown_runs_if_it_began_when_nothing_had_run_for_ten_seconds(
    joins_at: int, may: bool
) -> None:
    """Else the built-in controller may not have seen the mark, and keep the timer from before it."""
    it = stage()
    it.taints(10, "short")
    it.shows(10, SHORT, LONG)
    it.shows(20, MARKED, LONG)
    it.taints(joins_at, "short", "long")
    it.taints(31, "long")
    it.late(31)
    assert (it.countdowns.returns_at(ref(), 31, 20) <= 31) is may


def test_no_mark_goes_while_a_countdown_is_late() -> None:
    """It is taken over first."""
    it = stage()
    it.taints(10, "short")
    it.shows(10, SHORT, LONG)
    it.shows(20, MARKED, LONG)
    it.taints(40, "long")
    it.late(40)
    assert it.countdowns.returns_at(ref(), 979.8, 20) <= 979.8
    assert it.late(980) == [(1040, "a")]
    assert it.countdowns.returns_at(ref(), 980, 20) == math.inf


# What is never taken over


def test_shorter_tolerances_are_left_alone() -> None:
    """So is a taint that nothing tolerates: no countdown runs."""
    it = stage()
    it.taints(10, "k1")
    it.shows(10, tolerates(9))
    it.sees(10, PodSeen(pod(name="other", uid="b")))
    assert it.late(18) == []


def test_pods_that_are_gone_are_forgotten() -> None:
    """Nothing waits for them."""
    it = stage()
    it.taints(10, "k1")
    it.shows(10, tolerates(30))
    it.sees(12, PodGone(ref()))
    assert it.late(39) == []


# The rate


def test_a_removed_node_has_no_countdowns() -> None:
    """Nothing on it can be marked, and nobody else has to wait for the tries."""
    it = stage()
    it.taints(1, "long")
    it.shows(1, LONG)
    assert it.late(950) == [(1001, "a")]
    it.sees(950, NodeGone("n1"))
    assert it.late(950) == []


def test_the_rate_is_that_of_the_last_ten_seconds_of_marking() -> None:
    """20 until there is a figure, never less than 5; time without marks under way does not count."""
    rate = MarkRate()
    assert rate.per_second == 20
    for number in range(100):
        rate.begins(number * 1.0)
        rate.ends(number * 1.0 + 0.1, done=True)
    assert rate.per_second == pytest.approx(10, rel=0.02)
    rate.begins(1000)
    rate.ends(1010, done=False)
    assert rate.per_second == 5


def test_a_pod_that_ends_anyway_is_not_late() -> None:
    """Terminating pods are not taken over."""
    it = stage()
    it.taints(10, "k1")
    going: Pod = replace(pod(tolerates(30)), terminating=True)
    it.sees(10, PodSeen(going))
    assert it.late(39) == []
