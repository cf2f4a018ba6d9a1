"""The controller on a virtual clock: facts in, deadlines and effects out, exact instants."""

import pytest
from tests.unit.builders import Stage, moment, no_schedule, node, pod, ref, taint, tolerates

from taint_eviction.core.decision import DecisionPolicy, StayReason
from taint_eviction.core.effects import Cancelled, Done, NodeCleared, NodeTainted, Scheduled, TaintRewritten
from taint_eviction.core.facts import NodeGone, NodeSeen, NodesSwept, PodGone, PodSeen, PodsReleased, PodsSwept
from taint_eviction.core.objects import Node, Pod

FOREVER = 1e9

# Upstream's own tests, as sequences


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param([node(taint()), pod(on=None)], [], id="not scheduled"),
        pytest.param([node(), pod()], [], id="on an untainted node"),
        pytest.param([node(no_schedule()), pod()], [], id="on a node that only takes no new pods"),
        pytest.param([node(taint()), pod()], [(0, "a")], id="on a tainted node"),
        pytest.param([node(taint()), pod(tolerates(100))], [(100, "a")], id="tolerated for 100 s"),
        pytest.param([node(taint()), pod(tolerates())], [], id="tolerated indefinitely"),
        pytest.param([node(taint()), pod(tolerates(None, "other"))], [(0, "a")], id="tolerates another taint"),
        pytest.param([node(taint()), pod(on=None), pod()], [(0, "a")], id="unbound, then bound"),
        pytest.param([node(taint()), pod(tolerates(100)), pod()], [(0, "a")], id="no longer tolerated"),
        pytest.param([node(taint("k1"), taint("k2")), pod(tolerates())], [(0, "a")], id="one of two tolerated"),
        pytest.param(
            [node(taint("k1"), taint("k2")), pod(tolerates(1), tolerates(100, "k2"))],
            [(1, "a")],
            id="the shorter of two",
        ),
        pytest.param(
            [
                node(taint()),
                pod(name="p1", uid="1"),
                pod(tolerates(1), name="p2", uid="2"),
                pod(tolerates(), name="p3", uid="3"),
            ],
            [(0, "1"), (1, "2")],
            id="three pods",
        ),
        pytest.param(
            [
                node(taint("k1"), taint("k2")),
                pod(name="p1", uid="1"),
                pod(tolerates(1), name="p2", uid="2"),
                pod(tolerates(), name="p3", uid="3"),
            ],
            [(0, "1"), (0, "2"), (0, "3")],
            id="three pods, two taints that none tolerates both",
        ),
    ],
)
def test_what_upstream_tests(told: list[Node | Pod], expected: list[tuple[float, str]]) -> None:
    """Upstream's table of single situations holds, at exact instants."""
    stage = Stage()
    stage.sees(*told)
    assert stage.play(FOREVER) == expected


def test_a_taint_that_is_added_evicts() -> None:
    """The node's pods are told when it says that it is tainted, and leave at once."""
    stage = Stage()
    stage.sees(node())
    assert stage.sees(pod()) == []
    assert stage.at(5).sees(node(taint())) == [NodeTainted("n1")]
    stage.sees(pod())
    assert stage.play(FOREVER) == [(5, "a")]


def test_a_tolerated_taint_that_is_added_arms() -> None:
    """The deadline is told once, with the node and what decided."""
    stage = Stage()
    stage.at(5).sees(node(taint()))
    [effect] = stage.sees(pod(tolerates(100), bound_at=0))
    assert isinstance(effect, Scheduled)
    assert (effect.ref, effect.node_name, effect.decision.fire_at, effect.before_at) == (ref(), "n1", 105, None)
    assert stage.sees(pod(tolerates(100), bound_at=0)) == []


def test_a_taint_that_is_removed_in_time_cancels() -> None:
    """Nothing is left to do, and it is told why."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(1)))
    assert stage.at(0.5).sees(node()) == [NodeCleared("n1"), Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]
    assert stage.brain.attempts.next_at(stage.now) is None
    assert stage.play(FOREVER) == []


def test_a_second_taint_that_comes_and_goes_leaves_nothing_behind() -> None:
    """Taints [1], [1, 2], [1], where 1 is tolerated indefinitely and 2 for 60 s: never evicted."""
    stage, shop = Stage(), pod(tolerates(None, "k1"), tolerates(60, "k2"))
    stage.sees(node(taint("k1")), shop)
    stage.at(10).sees(node(taint("k1"), taint("k2")))
    assert stage.deadlines() == {"a": 70}
    stage.at(20).sees(node(taint("k1")))
    assert stage.deadlines() == {}
    assert stage.play(FOREVER) == []


def test_pods_with_two_windows_leave_in_order() -> None:
    """5 s and 25 s on one node."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(25), name="p2", uid="25"), pod(tolerates(5), name="p1", uid="5"))
    assert stage.play(FOREVER) == [(5, "5"), (25, "25")]


def test_a_deleted_node_leaves_nothing_behind() -> None:
    """W12: timers go with the node, and when its pods are released so does all that was known."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.at(5).observe(NodeGone("n1", "uid-n1")) == [
        NodeCleared("n1"),
        Cancelled(ref(), "n1", StayReason.NODE_UNKNOWN),
    ]
    assert stage.observe(PodsReleased("n1")) == []
    assert stage.brain.status.explain(ref().key, moment(stage.now)) is None
    assert stage.play(FOREVER) == []


def test_a_node_recreated_under_its_name_starts_clean() -> None:
    """W12: the new node's taint has a start of its own, though nobody saw the old one go."""
    stage = Stage()
    stage.sees(node(taint(), uid="old"), pod(tolerates(10)))
    stage.at(5).sees(node(taint(), uid="new"))
    assert stage.deadlines() == {"a": 15}
    stage.at(6).sees(node(uid="newer"))
    assert stage.play(FOREVER) == []


def test_the_late_deletion_of_a_node_leaves_its_successor_alone() -> None:
    """W12: gone is a UID, not a name."""
    stage = Stage()
    stage.sees(node(taint(), uid="new"), pod(tolerates(10)))
    assert stage.at(5).observe(NodeGone("n1", "old")) == []
    assert stage.deadlines() == {"a": 10}


def test_a_list_of_nodes_takes_the_absent_ones_away() -> None:
    """W21: a node that vanished in a gap of the watch no longer evicts."""
    stage = Stage()
    stage.sees(node(taint(), version=1), pod(tolerates(10)))
    stage.at(5).observe(NodesSwept(frozenset({"other"}), 4, 9))
    assert stage.play(FOREVER) == []


# A name and its bearers


def test_a_pod_recreated_under_its_name_gets_a_deadline_of_its_own() -> None:
    """W1: evicted at 10, recreated at 12 on the same tainted node, evicted again at 22, and again."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10), uid="a"))
    assert stage.play(10) == [(10, "a")]
    stage.at(12).sees(pod(tolerates(10), uid="b"))
    assert stage.play(30) == [(22, "b")]
    stage.at(31).sees(pod(tolerates(10), uid="c"))
    assert stage.play(FOREVER) == [(41, "c")]


def test_the_timer_of_a_pod_does_not_hit_its_namesake() -> None:
    """W2: a pod recreated on a clean node is not touched when the first one's time comes."""
    stage = Stage()
    stage.sees(node(taint()), node(name="n2"), pod(tolerates(10), uid="a"))
    stage.at(5).observe(PodGone(ref(uid="a")))
    stage.at(6).sees(pod(tolerates(10), uid="b", on="n2"))
    assert stage.play(FOREVER) == []


def test_a_namesake_on_a_clean_node_takes_the_timer_away_by_itself() -> None:
    """W2: the new UID says that the old pod is gone, even if nobody saw its deletion."""
    stage = Stage()
    stage.sees(node(taint()), node(name="n2"), pod(tolerates(10), uid="a"))
    assert stage.at(6).sees(pod(tolerates(10), uid="b", on="n2")) == [Cancelled(ref(), "n1", None)]
    assert stage.play(FOREVER) == []


def test_a_late_fact_does_not_bring_back_a_pod_that_was_replaced() -> None:
    """W2: once its name has a younger bearer, a pod is gone for good."""
    stage = Stage()
    stage.sees(node(taint()), node(name="n2"), pod(tolerates(10), uid="a", version=5))
    stage.at(6).sees(pod(uid="b", on="n2", version=8))
    stage.at(7).sees(pod(tolerates(10), uid="a", version=6))
    assert stage.deadlines() == {}


def test_delete_and_create_seen_as_one_update_is_a_new_pod() -> None:
    """W4: equal node and tolerations, another UID: the old timer is told off, the new one is told."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10), uid="a"))
    cancelled, scheduled = stage.at(6).sees(pod(tolerates(10), uid="b"))
    assert cancelled == Cancelled(ref(uid="a"), "n1", None)
    assert isinstance(scheduled, Scheduled)
    assert (scheduled.ref.uid, scheduled.decision.fire_at) == ("b", 16)
    assert stage.play(FOREVER) == [(16, "b")]


def test_the_late_deletion_of_its_predecessor_leaves_a_pod_armed() -> None:
    """W3: a deletion touches its own UID only."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10), uid="a"))
    stage.at(1).sees(pod(tolerates(10), uid="b"))
    assert stage.at(2).observe(PodGone(ref(uid="a"))) == []
    assert stage.deadlines() == {"b": 11}


# Deadlines that move


@pytest.mark.parametrize(("seconds", "expected"), [(30, 30), (7, 7), (2, 5), (0, 5)])
def test_changed_toleration_seconds_count_from_the_same_start(seconds: int, expected: float) -> None:
    """W5: up or down, from the start that it always had; overdue means now."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    [effect] = stage.at(5).sees(pod(tolerates(seconds)))
    assert isinstance(effect, Scheduled)
    assert (effect.before_at, effect.decision.fire_at) == (10, seconds)
    assert stage.play(FOREVER) == [(expected, "a")]


def test_seconds_that_are_removed_tolerate_for_ever() -> None:
    """W5: without seconds nothing is armed any more."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.at(5).sees(pod(tolerates())) == [Cancelled(ref(), "n1", StayReason.TOLERATED)]
    assert stage.play(FOREVER) == []


def test_a_toleration_that_is_added_in_time_saves() -> None:
    """W5: an armed pod that comes to tolerate all its taints stays."""
    stage = Stage()
    stage.sees(node(taint("k1"), taint("k2")), pod(tolerates(10, "k1"), tolerates(None, "k2")))
    stage.at(9).sees(pod(tolerates(10, "k1"), tolerates(None, "k2"), tolerates(99, "k1")))
    assert stage.deadlines() == {"a": 10}


def test_a_second_shorter_taint_hastens_and_its_removal_extends() -> None:
    """W6: each change of the node's taints is decided from scratch."""
    stage, shop = Stage(), pod(tolerates(100, "k1"), tolerates(10, "k2"))
    stage.sees(node(taint("k1")), shop)
    stage.at(20).sees(node(taint("k1"), taint("k2")))
    assert stage.deadlines() == {"a": 30}
    stage.at(25).sees(node(taint("k1")))
    assert stage.deadlines() == {"a": 100}


def test_swapping_one_taint_for_another_starts_the_new_ones_window() -> None:
    """W6: not-ready becomes unreachable in one write."""
    stage, shop = Stage(), pod(tolerates(300, "not-ready"), tolerates(300, "unreachable"))
    stage.sees(node(taint("not-ready", added_at=0)), shop)
    assert stage.at(200).sees(node(taint("unreachable", added_at=200)))[0:1] != [NodeTainted("n1")]
    assert stage.play(FOREVER) == [(500, "a")]


def test_a_taint_that_is_removed_and_set_again_opens_a_new_window() -> None:
    """While watching, the second taint has a start of its own."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    stage.at(5).sees(node())
    assert stage.at(8).sees(node(taint()))[0] == NodeTainted("n1")
    assert stage.play(FOREVER) == [(18, "a")]


def test_a_rewritten_value_is_warned_about_and_never_early() -> None:
    """A changed value is a new taint, and it is told that the window starts anew."""
    stage = Stage()
    stage.sees(node(taint(value="v1")), pod(tolerates(10)))
    effects = stage.at(9).sees(node(taint(value="v2")))
    assert effects[0] == TaintRewritten("n1", taint(value="v2"))
    assert stage.play(FOREVER) == [(19, "a")]


def test_a_restart_goes_on_with_the_countdown() -> None:
    """W7: a process that starts 8 s after taint and pod have met evicts at most the cut-off second late."""
    stage = Stage()
    stage.sees(node(taint(added_at=-8)), pod(tolerates(10), bound_at=-1000))
    assert stage.play(FOREVER) == [(3, "a")]


def test_a_restart_long_after_the_deadline_evicts_at_once() -> None:
    """W7: overdue is due."""
    stage = Stage()
    stage.sees(node(taint(), written_at=-800), pod(tolerates(10), bound_at=-1000))
    assert stage.play(FOREVER) == [(0, "a")]


def test_a_pod_that_lands_on_an_old_taint_has_its_whole_window() -> None:
    """Otherwise it would die on arrival, indefinitely."""
    stage = Stage()
    stage.sees(node(taint(added_at=-3600)), pod(tolerates(300), bound_at=-10))
    assert stage.play(FOREVER) == [(291, "a")]


def test_an_observation_that_is_older_than_the_last_changes_nothing() -> None:
    """Facts come twice and out of order; for one UID a lower version is dropped."""
    stage = Stage()
    stage.sees(node(taint(), version=10), pod(tolerates(10), version=20))
    assert stage.at(1).sees(pod(version=19), node(version=9)) == []
    assert stage.play(FOREVER) == [(10, "a")]


# Pods that are left alone


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        pytest.param(pod(terminating=True), StayReason.TERMINATING, id="W13"),
        pytest.param(pod(mirror=True), StayReason.MIRROR, id="W15"),
    ],
)
def test_terminating_and_mirror_pods_are_never_evicted(which: Pod, reason: StayReason) -> None:
    """W13, W15: not when they are seen, and not on any later change of taints."""
    stage = Stage()
    stage.sees(node(taint()), which)
    stage.at(1).sees(node(taint(), taint("k2")))
    explanation = stage.brain.status.explain(ref().key, moment(stage.now))
    assert explanation is not None
    assert getattr(explanation.decision, "reason", None) is reason
    assert stage.play(FOREVER) == []


def test_a_pod_that_begins_to_terminate_is_cancelled() -> None:
    """W13: somebody else deleted it while it was armed."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    told = stage.at(5).sees(pod(tolerates(10), terminating=True))
    assert told == [Cancelled(ref(), "n1", StayReason.TERMINATING)]
    assert stage.play(FOREVER) == []


@pytest.mark.parametrize(("at", "late_seconds"), [(4.0, -6.0), (10.0, 0.0), (12.5, 2.5)])
def test_how_far_from_its_deadline_a_pod_was_deleted_by_somebody_else_is_told(at: float, late_seconds: float) -> None:
    """Whoever lets it run beside another controller sees whether the two agree."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    [told] = stage.at(at).sees(pod(tolerates(10), terminating=True))
    assert isinstance(told, Cancelled)
    assert told.late_seconds == pytest.approx(late_seconds)


@pytest.mark.parametrize(("evict_finished", "expected"), [(True, [(0, "a")]), (False, [])])
def test_finished_pods_follow_the_policy(evict_finished: bool, expected: list[tuple[float, str]]) -> None:
    """W16: deleted as upstream does, or kept with their logs."""
    stage = Stage(DecisionPolicy(evict_finished))
    stage.sees(node(taint()), pod(finished=True))
    assert stage.play(FOREVER) == expected


# Which pods matter


def test_a_pod_bound_before_its_node_is_known_is_told_again() -> None:
    """A pod seen before its node says that it is tainted is not kept, and counts when it is told again."""
    stage = Stage()
    assert stage.sees(pod(bound_at=0)) == []
    assert stage.brain.status.explain(ref().key, moment(stage.now)) is None
    assert stage.at(3).sees(node(taint(), written_at=-60)) == [NodeTainted("n1")]
    stage.observe(PodSeen(pod(bound_at=-9), asked_at=3))
    assert stage.play(FOREVER) == [(3, "a")]


def test_pods_stay_known_while_a_taint_flaps() -> None:
    """Until they are released, pods of a node that was cleared count at once when it is tainted again."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    stage.at(1).sees(node())
    stage.at(2).sees(node(taint()))
    assert stage.deadlines() == {"a": 12}


def test_releasing_pods_of_a_tainted_node_is_refused() -> None:
    """A release that a new taint has overtaken lets go of nothing."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.observe(PodsReleased("n1")) == []
    assert stage.play(FOREVER) == [(10, "a")]


def test_a_list_of_pods_takes_the_absent_ones_away() -> None:
    """W21: what vanished in a gap is cancelled, what came since the question stays."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10), name="p1", uid="1", version=3))
    stage.at(5).sees(pod(tolerates(10), name="p2", uid="2", version=9))
    effects = stage.observe(PodsSwept("n1", frozenset(), 4, 8))
    assert effects == [Cancelled(ref("p1", "1"), "n1", None)]
    assert stage.deadlines() == {"2": 15}


def test_what_has_just_been_evicted_is_not_swept_into_a_second_eviction() -> None:
    """A pod that a list still shows alive after its deletion was accepted is not asked for again."""
    stage = Stage()
    stage.sees(node(taint()), pod(version=3))
    stage.settle(stage.take_eviction(), Done())
    stage.at(1).observe(PodSeen(pod(version=3), asked_at=0.5), NodeSeen(node(taint(), taint("k2"))))
    assert stage.play(FOREVER) == []
