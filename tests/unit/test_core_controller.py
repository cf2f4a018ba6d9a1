"""The controller on a virtual clock: observations lead to deadlines and effects at exact instants."""

import pytest
from tests.unit.builders import Stage, moment, no_schedule, node, pod, ref, taint, tolerates

from taint_eviction.core.decision import DecisionPolicy, StayReason
from taint_eviction.core.events import Cancelled, Done, NodeCleared, NodeTainted, Scheduled, TaintRewritten
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
def test_situations_from_upstreams_own_tests(told: list[Node | Pod], expected: list[tuple[float, str]]) -> None:
    """Upstream's table of single situations holds here too, at exact instants."""
    stage = Stage()
    stage.sees(*told)
    assert stage.play(FOREVER) == expected


def test_an_added_taint_evicts_pods() -> None:
    """The node's pods are observed once the node is known to be tainted, and are evicted at once."""
    stage = Stage()
    stage.sees(node())
    assert stage.sees(pod()) == []
    assert stage.at(5).sees(node(taint())) == [NodeTainted("n1")]
    stage.sees(pod())
    assert stage.play(FOREVER) == [(5, "a")]


def test_a_pod_that_tolerates_a_taint_for_a_time_gets_a_deadline() -> None:
    """The deadline is reported once, with the node and the decision."""
    stage = Stage()
    stage.at(5).sees(node(taint()))
    [effect] = stage.sees(pod(tolerates(100), bound_at=0))
    assert isinstance(effect, Scheduled)
    assert (effect.ref, effect.node_name, effect.decision.fire_at, effect.before_at) == (ref(), "n1", 105, None)
    assert stage.sees(pod(tolerates(100), bound_at=0)) == []


def test_removing_the_taint_in_time_cancels_the_eviction() -> None:
    """The effect says why, and nothing is due afterwards."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(1)))
    assert stage.at(0.5).sees(node()) == [NodeCleared("n1"), Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]
    assert stage.brain.attempts.next_at(moment(stage.now)) is None
    assert stage.play(FOREVER) == []


def test_a_second_taint_that_comes_and_goes_leaves_nothing_behind() -> None:
    """The taints are [1], [1, 2], [1]; the pod tolerates 1 indefinitely and 2 for 60 s, and is never evicted."""
    stage, shop = Stage(), pod(tolerates(None, "k1"), tolerates(60, "k2"))
    stage.sees(node(taint("k1")), shop)
    stage.at(10).sees(node(taint("k1"), taint("k2")))
    assert stage.deadlines() == {"a": 70}
    stage.at(20).sees(node(taint("k1")))
    assert stage.deadlines() == {}
    assert stage.play(FOREVER) == []


def test_pods_with_different_tolerances_are_evicted_in_order() -> None:
    """Two pods on one node tolerate the taint for 5 s and 25 s."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(25), name="p2", uid="25"), pod(tolerates(5), name="p1", uid="5"))
    assert stage.play(FOREVER) == [(5, "5"), (25, "25")]


def test_a_deleted_node_leaves_nothing_behind() -> None:
    """W12: deadlines are cancelled with the node, and its pods are forgotten when they are released."""
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
    """W12: the new node's taint has a start of its own, although the old node's deletion was not seen."""
    stage = Stage()
    stage.sees(node(taint(), uid="old"), pod(tolerates(10)))
    stage.at(5).sees(node(taint(), uid="new"))
    assert stage.deadlines() == {"a": 15}
    stage.at(6).sees(node(uid="newer"))
    assert stage.play(FOREVER) == []


def test_the_late_deletion_of_a_node_does_not_affect_its_successor() -> None:
    """W12: a deletion applies to a UID, not to a name."""
    stage = Stage()
    stage.sees(node(taint(), uid="new"), pod(tolerates(10)))
    assert stage.at(5).observe(NodeGone("n1", "old")) == []
    assert stage.deadlines() == {"a": 10}


def test_a_list_of_nodes_removes_absent_nodes() -> None:
    """W21: a node that was deleted in a gap of the watch no longer evicts pods."""
    stage = Stage()
    stage.sees(node(taint(), version=1), pod(tolerates(10)))
    stage.at(5).observe(NodesSwept(frozenset({"other"}), 4, 9))
    assert stage.play(FOREVER) == []


# Several pods with one name


def test_a_pod_recreated_under_its_name_gets_a_deadline_of_its_own() -> None:
    """W1: the pod is evicted at 10, recreated at 12 on the same tainted node, evicted at 22, and once more at 41."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10), uid="a"))
    assert stage.play(10) == [(10, "a")]
    stage.at(12).sees(pod(tolerates(10), uid="b"))
    assert stage.play(30) == [(22, "b")]
    stage.at(31).sees(pod(tolerates(10), uid="c"))
    assert stage.play(FOREVER) == [(41, "c")]


def test_the_deadline_of_a_pod_does_not_evict_its_successor() -> None:
    """W2: a pod recreated on a clean node stays when the first pod's deadline comes."""
    stage = Stage()
    stage.sees(node(taint()), node(name="n2"), pod(tolerates(10), uid="a"))
    stage.at(5).observe(PodGone(ref(uid="a")))
    stage.at(6).sees(pod(tolerates(10), uid="b", on="n2"))
    assert stage.play(FOREVER) == []


def test_a_successor_on_a_clean_node_cancels_the_deadline() -> None:
    """W2: the new UID shows that the old pod is gone, even if its deletion was not seen."""
    stage = Stage()
    stage.sees(node(taint()), node(name="n2"), pod(tolerates(10), uid="a"))
    assert stage.at(6).sees(pod(tolerates(10), uid="b", on="n2")) == [Cancelled(ref(), "n1", None)]
    assert stage.play(FOREVER) == []


def test_a_late_observation_does_not_bring_back_a_pod_that_was_replaced() -> None:
    """W2: once another pod has its name, a pod is gone for good."""
    stage = Stage()
    stage.sees(node(taint()), node(name="n2"), pod(tolerates(10), uid="a", version=5))
    stage.at(6).sees(pod(uid="b", on="n2", version=8))
    stage.at(7).sees(pod(tolerates(10), uid="a", version=6))
    assert stage.deadlines() == {}


def test_delete_and_create_seen_as_one_update_is_a_new_pod() -> None:
    """W4: node and tolerations are equal, but the UID differs: the old deadline is cancelled, a new one reported."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10), uid="a"))
    cancelled, scheduled = stage.at(6).sees(pod(tolerates(10), uid="b"))
    assert cancelled == Cancelled(ref(uid="a"), "n1", None)
    assert isinstance(scheduled, Scheduled)
    assert (scheduled.ref.uid, scheduled.decision.fire_at) == ("b", 16)
    assert stage.play(FOREVER) == [(16, "b")]


def test_the_late_deletion_of_its_predecessor_keeps_a_pods_deadline() -> None:
    """W3: a deletion affects only its own UID."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10), uid="a"))
    stage.at(1).sees(pod(tolerates(10), uid="b"))
    assert stage.at(2).observe(PodGone(ref(uid="a"))) == []
    assert stage.deadlines() == {"b": 11}


# Deadlines that move


@pytest.mark.parametrize(("seconds", "expected"), [(30, 30), (7, 7), (2, 5), (0, 5)])
def test_changed_toleration_seconds_count_from_the_same_start(seconds: int, expected: float) -> None:
    """W5: the seconds may become more or fewer; a pod that is overdue is evicted at once."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    [effect] = stage.at(5).sees(pod(tolerates(seconds)))
    assert isinstance(effect, Scheduled)
    assert (effect.before_at, effect.decision.fire_at) == (10, seconds)
    assert stage.play(FOREVER) == [(expected, "a")]


def test_a_toleration_that_loses_its_seconds_tolerates_indefinitely() -> None:
    """W5: the deadline is cancelled."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.at(5).sees(pod(tolerates())) == [Cancelled(ref(), "n1", StayReason.TOLERATED)]
    assert stage.play(FOREVER) == []


def test_a_toleration_added_before_one_that_matches_cancels_the_deadline() -> None:
    """W5: the first matching toleration counts, and the new one has no seconds."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.at(9).sees(pod(tolerates(), tolerates(10))) == [Cancelled(ref(), "n1", StayReason.TOLERATED)]


def test_a_toleration_added_after_one_that_matches_changes_nothing() -> None:
    """W5: for each taint the first matching toleration counts, so the deadline stays."""
    stage = Stage()
    stage.sees(node(taint("k1"), taint("k2")), pod(tolerates(10, "k1"), tolerates(None, "k2")))
    stage.at(9).sees(pod(tolerates(10, "k1"), tolerates(None, "k2"), tolerates(99, "k1")))
    assert stage.deadlines() == {"a": 10}


def test_a_taint_with_a_shorter_tolerance_brings_the_deadline_forward_until_it_is_removed() -> None:
    """W6: each change of the node's taints leads to a new decision."""
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


def test_a_rewritten_value_is_reported_and_starts_a_new_window() -> None:
    """A changed value is a new taint, so no pod is evicted too early."""
    stage = Stage()
    stage.sees(node(taint(value="v1")), pod(tolerates(10)))
    effects = stage.at(9).sees(node(taint(value="v2")))
    assert effects[0] == TaintRewritten("n1", taint(value="v2"))
    assert stage.play(FOREVER) == [(19, "a")]


def test_a_restart_continues_the_countdown() -> None:
    """W7: a process that starts 8 s after the taint was set evicts at most the truncated second late."""
    stage = Stage()
    stage.sees(node(taint(added_at=-8)), pod(tolerates(10), bound_at=-1000))
    assert stage.play(FOREVER) == [(3, "a")]


def test_a_restart_long_after_the_deadline_evicts_at_once() -> None:
    """W7: a deadline in the past is due."""
    stage = Stage()
    stage.sees(node(taint(), written_at=-800), pod(tolerates(10), bound_at=-1000))
    assert stage.play(FOREVER) == [(0, "a")]


def test_a_pod_bound_to_a_node_with_an_old_taint_has_its_whole_window() -> None:
    """Otherwise each pod bound to this node would be evicted on arrival, indefinitely."""
    stage = Stage()
    stage.sees(node(taint(added_at=-3600)), pod(tolerates(300), bound_at=-10))
    assert stage.play(FOREVER) == [(291, "a")]


def test_an_observation_that_is_older_than_the_last_changes_nothing() -> None:
    """Observations may arrive twice and out of order; for one UID, a lower version is dropped."""
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
    """W13, W15: they stay when they are first seen, and after any later change of taints."""
    stage = Stage()
    stage.sees(node(taint()), which)
    stage.at(1).sees(node(taint(), taint("k2")))
    explanation = stage.brain.status.explain(ref().key, moment(stage.now))
    assert explanation is not None
    assert getattr(explanation.decision, "reason", None) is reason
    assert stage.play(FOREVER) == []


def test_a_pod_that_begins_to_terminate_loses_its_deadline() -> None:
    """W13: somebody else deleted the pod before its deadline."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    told = stage.at(5).sees(pod(tolerates(10), terminating=True))
    assert told == [Cancelled(ref(), "n1", StayReason.TERMINATING)]
    assert stage.play(FOREVER) == []


@pytest.mark.parametrize(("at", "late_seconds"), [(4.0, -6.0), (10.0, 0.0), (12.5, 2.5)])
def test_a_deletion_by_somebody_else_is_reported_with_its_distance_from_the_deadline(
    at: float, late_seconds: float
) -> None:
    """A person who runs this controller beside another one sees whether both agree."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    [told] = stage.at(at).sees(pod(tolerates(10), terminating=True))
    assert isinstance(told, Cancelled)
    assert told.late_seconds == pytest.approx(late_seconds)


@pytest.mark.parametrize(("evict_finished", "expected"), [(True, [(0, "a")]), (False, [])])
def test_finished_pods_follow_the_policy(evict_finished: bool, expected: list[tuple[float, str]]) -> None:
    """W16: finished pods are deleted as upstream does, or kept with their logs."""
    stage = Stage(DecisionPolicy(evict_finished))
    stage.sees(node(taint()), pod(finished=True))
    assert stage.play(FOREVER) == expected


# Which pods matter


def test_a_pod_seen_before_its_node_is_known_counts_when_it_is_seen_again() -> None:
    """A pod is not kept before its node is known to be tainted."""
    stage = Stage()
    assert stage.sees(pod(bound_at=0)) == []
    assert stage.brain.status.explain(ref().key, moment(stage.now)) is None
    assert stage.at(3).sees(node(taint(), written_at=-60)) == [NodeTainted("n1")]
    stage.observe(PodSeen(pod(bound_at=-9), asked_at=3))
    assert stage.play(FOREVER) == [(3, "a")]


def test_pods_stay_known_while_a_taint_flaps() -> None:
    """Until they are released, the pods of a clean node get a deadline as soon as the node is tainted again."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    stage.at(1).sees(node())
    stage.at(2).sees(node(taint()))
    assert stage.deadlines() == {"a": 12}


def test_releasing_pods_of_a_tainted_node_is_refused() -> None:
    """A new taint came before the release, so the pods stay known."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    assert stage.observe(PodsReleased("n1")) == []
    assert stage.play(FOREVER) == [(10, "a")]


def test_a_list_of_pods_cancels_the_absent_ones() -> None:
    """W21: a pod that is gone since a gap is cancelled; a pod that was seen after the list was requested stays."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10), name="p1", uid="1", version=3))
    stage.at(5).sees(pod(tolerates(10), name="p2", uid="2", version=9))
    effects = stage.observe(PodsSwept("n1", frozenset(), 4, 8))
    assert effects == [Cancelled(ref("p1", "1"), "n1", None)]
    assert stage.deadlines() == {"2": 15}


def test_a_list_does_not_cause_a_second_eviction() -> None:
    """The list still shows the pod alive after its deletion was accepted."""
    stage = Stage()
    stage.sees(node(taint()), pod(version=3))
    stage.finish(stage.take_eviction(), Done())
    stage.at(1).observe(PodSeen(pod(version=3), asked_at=0.5), NodeSeen(node(taint(), taint("k2"))))
    assert stage.play(FOREVER) == []
