"""What the built-in controller does to each pod is held against what a dry run would have done, and named rightly."""

from dataclasses import replace
from typing import Any

import pytest
from tests.memory import kept
from tests.unit.builders import EPOCH, moment, node, pod, ref, taint, tolerates
from tests.unit.shadow_stage import ShadowStage

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.facts import PodGone, PodSeen, PodsReleased, PodsSwept
from taint_eviction.core.objects import NamespacedName, Pod, PodDisruption, Toleration
from taint_eviction.shadow import shadow as shadow_module
from taint_eviction.shadow.tracked_pod import TrackedPod, TrackedPods

TAINTED, CLEAN = node(taint()), node()

# Both do the same


@pytest.mark.parametrize("after", [28.1, 29.9, 30.0, 30.2, 31.9])
def test_within_two_seconds_both_did_the_same(after: float) -> None:
    """Whoever was first."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    on.at(after).evicts(web)
    on.at(700)
    assert on.results == [("same", None, None)]


def test_a_taint_that_is_removed_at_the_deadline_is_no_difference() -> None:
    """The built-in controller's delete was under way when the taint went."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    on.at(29.9).sees(CLEAN)
    on.at(30.1).evicts(web)
    assert on.results == [("same", None, None)]


def test_called_off_in_time_by_both_is_no_difference() -> None:
    """Before the deadline there is nothing to compare; two seconds after it nobody is late yet."""
    on, early, late = ShadowStage(), pod(tolerates(30)), pod(tolerates(18), name="web-1", uid="b")
    on.sees(TAINTED, early, late)
    on.at(19.5).sees(CLEAN)
    on.at(700)
    assert (on.results, on.shadow.outstanding(moment(700))) == ([("same", None, None)], 0)


def test_an_eviction_that_a_standby_sees_counts_from_its_deadline() -> None:
    """A replica that does not lead evicts nothing, and knows the deadline all the same."""
    on, prompt, late = ShadowStage(), pod(tolerates(30)), pod(tolerates(30), name="web-1", uid="b")
    on.leads = False
    on.sees(TAINTED, prompt, late)
    on.at(30.5).evicts(prompt)
    on.at(40).evicts(late)
    assert on.results == [("same", None, None), ("later", 10.0, "BEGUN_ANEW")]


# The built-in controller is later


def test_a_countdown_that_begins_anew_is_named() -> None:
    """A restart of kube-controller-manager at +7 turns 14 s into 21 s (#108268)."""
    on, web = ShadowStage(), pod(tolerates(14))
    on.sees(TAINTED, web)
    on.at(21).evicts(web)
    assert on.results == [("later", 7.0, "BEGUN_ANEW")]


def test_a_shortened_toleration_that_it_ignores_is_named() -> None:
    """It keeps its timer of 300 s when tolerationSeconds are cut to 10."""
    on, web = ShadowStage(), pod(tolerates(300), version=1)
    on.sees(TAINTED, web)
    cut = replace(web, tolerations=(tolerates(10),), resource_version=2)
    on.at(5).sees(cut)
    on.at(300).evicts(replace(cut, resource_version=3))
    assert on.results == [("later", 290.0, "OLD_DEADLINE")]


def test_what_nothing_was_to_be_waited_for_was_slow() -> None:
    """A pod without toleration has no countdown that could begin anew."""
    on, web = ShadowStage(), pod()
    on.sees(TAINTED, web)
    on.at(108).evicts(web)
    assert on.results == [("later", 108.0, "SLOW")]


def test_over_a_gap_the_time_of_the_deletion_counts() -> None:
    """A watch that brings it late makes nobody late; times of objects are cut off to seconds."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    on.at(50)
    mark = PodDisruption("DeletionByTaintManager", "kube-controller-manager", EPOCH + 30)
    on.sees(replace(web, terminating=True, marked=True, disruption=mark, deletion_asked_at=EPOCH + 30))
    assert on.results == [("same", None, None)]


# The built-in controller never comes


def test_five_refused_tries_leave_the_condition_and_the_pod() -> None:
    """It set its condition and gave up; that is said once the taint is removed (#140639)."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    marked = on.at(30).marks(web)
    on.at(50).sees(CLEAN)
    on.at(60)
    assert on.results == [("never", 20.5, "GAVE_UP")]
    assert on.found[0].detail == "until it no longer had to leave (its node has no NoExecute taint)"
    on.deletes(marked)
    assert len(on.found) == 1


def test_a_forgotten_pod_is_waited_for_as_long_as_a_new_countdown_may_take() -> None:
    """Ten minutes longer than its toleration; until then it is outstanding."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    on.at(659)
    assert (on.results, on.shadow.outstanding(moment(659))) == ([], 1)
    on.at(660)
    assert on.results == [("never", 630.0, "FORGOTTEN")]
    assert on.shadow.outstanding(moment(660)) == 0


def test_somebody_who_deletes_a_forgotten_pod_does_not_hide_that_it_was_forgotten() -> None:
    """Two minutes after its deadline a person helps."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    on.at(150).deletes(web)
    assert on.results == [("never", 120.0, "FORGOTTEN")]


def test_a_condition_from_long_ago_makes_nobody_the_built_in_controller() -> None:
    """It gave up, and ten minutes later a person deletes the pod."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    marked = on.at(30).marks(web)
    on.at(330).deletes(marked)
    assert on.results == [("never", 300.0, "GAVE_UP")]


def test_a_pod_that_has_to_go_again_is_compared_again() -> None:
    """Forgotten in the first round, evicted by both in the second."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    on.at(60).sees(CLEAN)
    on.at(70).sees(node(taint("other")))
    on.at(71).evicts(web)
    assert [result for result, *_ in on.results] == ["never", "same"]


# Only the built-in controller


def test_a_lengthened_toleration_that_it_ignores_is_named() -> None:
    """It evicts at the old deadline; here the pod had 270 s left."""
    on, web = ShadowStage(), pod(tolerates(30), version=1)
    on.sees(TAINTED, web)
    longer = replace(web, tolerations=(tolerates(300),), resource_version=2)
    on.at(5).sees(longer)
    on.at(30).evicts(replace(longer, resource_version=3))
    assert on.results == [("built_in_only", 270.0, "OLD_DEADLINE")]
    assert on.found[0].detail == "k1:NoExecute is tolerated by [k1 for 300 s], since first sight"


def test_a_timer_that_fires_on_a_clean_node_is_named() -> None:
    """The taint was gone for 20 s."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    on.at(10).sees(CLEAN)
    on.at(30).evicts(web)
    assert on.results == [("built_in_only", None, "OLD_DEADLINE")]
    assert on.found[0].detail == "its node has no NoExecute taint"


def test_an_earlier_deadline_is_named_with_the_reading_here() -> None:
    """It read something else than this controller."""
    on, web = ShadowStage(), pod(tolerates(300))
    on.sees(TAINTED, web)
    on.at(30).evicts(web)
    assert on.results == [("built_in_only", 270.0, "EARLIER")]


def test_a_pod_that_stays_here_is_named_with_the_reading() -> None:
    """Mirror pods are the kubelet's (#42753); finished ones are kept where that is wished."""
    on = ShadowStage(DecisionPolicy(evict_finished=False))
    mirror, finished = pod(mirror=True), pod(name="job", uid="b", finished=True)
    on.sees(TAINTED, mirror, finished)
    on.evicts(mirror)
    on.evicts(finished)
    assert on.results == [("built_in_only", None, "READING")] * 2
    assert [each.detail for each in on.found] == [
        "it is a mirror pod: its kubelet owns it",
        "it has finished, and finished pods are kept",
    ]


def test_a_pause_is_named() -> None:
    """People hold all evictions here; the built-in controller knows nothing of that."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.order(ControlState(Pause(EPOCH, "")))
    on.sees(TAINTED, web)
    on.at(30).evicts(web)
    assert on.results == [("built_in_only", 0.0, "GUARD")]
    assert on.found[0].text == "the eviction was held back here: all evictions are paused"


def test_an_owners_hold_is_named() -> None:
    """The annotation postpones the deadline here only."""
    on, web = ShadowStage(DecisionPolicy(max_hold_seconds=600)), pod(tolerates(30), hold_seconds=600)
    on.sees(TAINTED, web)
    on.at(30).evicts(web)
    assert on.results == [("built_in_only", 600.0, "GUARD")]
    assert "taint-eviction/hold" in on.found[0].detail


def test_pods_that_go_while_a_surge_settles_are_the_breakers() -> None:
    """Six of ten nodes are tainted at once: the built-in controller takes all pods before the breaker has judged."""
    on = ShadowStage(breaker=BreakerPolicy(enabled=True, nodes=NodeThreshold(percent=25)))
    nodes = [node(name=f"n{number}") for number in range(10)]
    pods = [pod(name=f"web-{number}", uid=str(number), on=f"n{number}") for number in range(10)]
    on.sees(*nodes)
    on.at(400)
    for each in nodes[:6]:
        on.sees(replace(each, taints=(taint(),)))
    on.sees(*pods[:6])
    for each in nodes[:6]:
        on.observe(PodsSwept(each.name, frozenset(one.ref.uid for one in pods), on.now, None))
    for one in pods[:3]:
        on.evicts(one)
    on.at(500)
    assert [result[::2] for result in on.results] == [("built_in_only", "GUARD")] * 3
    assert on.found[0].detail == "the circuit breaker is open"


def test_a_pod_that_goes_while_it_settles_is_no_difference_if_the_breaker_stays_closed() -> None:
    """A moment's wait is no guard."""
    on, web = ShadowStage(breaker=BreakerPolicy(enabled=True)), pod(on="n1")
    on.sees(CLEAN)
    on.at(400).sees(TAINTED, web)
    on.observe(PodsSwept("n1", frozenset("a"), on.now, None))
    on.at(400.1).evicts(web)
    on.at(414)
    assert on.results == []
    on.at(416)
    assert on.results == [("same", None, None)]


# Somebody else


def test_somebody_else_before_either() -> None:
    """A pod with a deadline that a person or a rollout deletes; the eviction API leaves its name."""
    on, web, drained = ShadowStage(), pod(tolerates(30)), pod(tolerates(30), name="web-1", uid="b")
    on.sees(TAINTED, web, drained)
    on.at(10).deletes(web)
    on.deletes(replace(drained, disruption=PodDisruption("EvictionByEvictionAPI", "", None)))
    assert on.results == [("somebody_else", None, None)] * 2
    assert [each.detail for each in on.found] == ["", "EvictionByEvictionAPI"]


def test_a_condition_that_was_set_long_before_the_end_names_nobody() -> None:
    """Nor does the built-in controller's, after an eviction of its own that was refused: it did not end the pod."""
    on = ShadowStage()
    old = PodDisruption("EvictionByEvictionAPI", "drain", EPOCH)
    failed = PodDisruption("DeletionByTaintManager", "kube-controller-manager", EPOCH)
    drained, marked = pod(tolerates(300)), pod(tolerates(300), name="web-1", uid="b")
    on.sees(TAINTED, drained, marked)
    on.at(200).deletes(replace(drained, disruption=old))
    on.deletes(replace(marked, disruption=failed))
    assert [(each.result.value, each.by, each.detail) for each in on.found] == [("somebody_else", "", "")] * 2


def test_this_controller_beside_its_dry_run_is_not_the_built_in_one() -> None:
    """Its condition has the built-in controller's reason; managedFields say who wrote it."""
    on, web = ShadowStage(), pod(tolerates(30))
    on.sees(TAINTED, web)
    on.at(30).evicts(web, by="taint-eviction-controller")
    assert on.results == [("somebody_else", None, None)]
    assert on.found[0].by == "taint-eviction-controller"


def test_pods_without_a_deadline_that_people_delete_are_nobodys_business() -> None:
    """Tolerating for ever, deleted by a rollout."""
    on, web = ShadowStage(), pod(tolerates(None))
    on.sees(TAINTED, web)
    on.at(10).deletes(web)
    assert on.results == []


def test_a_pod_that_was_terminating_already_is_nobodys_business() -> None:
    """The built-in controller deletes it again on every change of the taints."""
    on, web = ShadowStage(), pod(terminating=True)
    on.sees(TAINTED, web)
    on.at(10).evicts(web)
    assert on.results == []


# Evicted before the pods of a newly tainted node have been listed


def ending(at: int, *tolerations: Toleration, **more: Any) -> Pod:
    """A pod that the built-in controller has evicted."""
    mark = PodDisruption("DeletionByTaintManager", "kube-controller-manager", EPOCH + at)
    alive = pod(*tolerations, bound_at=-500, **more)
    return replace(alive, terminating=True, marked=True, disruption=mark, deletion_asked_at=EPOCH + at)


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ((), ("same", None, None)),
        ((tolerates(300),), ("built_in_only", 299.5, "EARLIER")),
        ((tolerates(None),), ("built_in_only", None, "READING")),
    ],
)
def test_a_pod_that_is_first_seen_terminating_is_judged_as_if_it_were_not(
    tolerations: tuple[Toleration, ...], expected: tuple[str, float | None, str | None]
) -> None:
    """The built-in controller needs milliseconds, and a list takes longer."""
    on, web = ShadowStage(), ending(10, *tolerations)
    on.sees(CLEAN)
    on.at(10).sees(TAINTED)
    on.at(10.5).sees(web)
    on.sees(web)
    on.observe(PodGone(web.ref))
    assert on.results == [expected]


def test_a_pod_that_is_first_seen_terminating_while_all_is_paused_would_have_stayed() -> None:
    """Guards hold it as they hold the pods that are known."""
    on = ShadowStage()
    on.order(ControlState(Pause(EPOCH, "")))
    on.sees(CLEAN)
    on.at(10).sees(TAINTED, ending(10))
    assert [(result[0], result[2]) for result in on.results] == [("built_in_only", "GUARD")]


def test_evictions_of_before_are_no_business_of_this_process_or_this_taint() -> None:
    """Terminating since before the shadow began, or since an earlier taint; and one whose taint is gone, too."""
    on = ShadowStage()
    on.sees(TAINTED, ending(-10))
    on.sees(node(name="n2"))
    on.at(100).sees(node(taint(), name="n2"), ending(20, tolerates(5), name="b", uid="b", on="n2"))
    assert (on.results, on.shadow.unseen) == ([], 0)
    on.sees(node(name="n2"), ending(100, name="c", uid="c", on="n2"))
    assert (on.results, on.shadow.unseen) == ([], 1)


# Between two sights, over restarts, and at the bound


def test_an_end_that_nobody_saw_is_counted_as_unseen() -> None:
    """Evicted here, then gone from a list after a gap, or under a name that another pod has: nobody knows by whom."""
    on, web, db = ShadowStage(), pod(version=1), pod(name="db", uid="b", version=1)
    on.sees(TAINTED, web, db)
    on.at(20).observe(PodsSwept("n1", frozenset("b"), 20.0, 9))
    on.sees(pod(name="db", uid="c", version=9))
    assert (on.results, on.shadow.unseen) == ([], 2)


def test_a_pod_that_was_marked_before_the_gap_was_evicted_then() -> None:
    """The condition tells who, and about when."""
    on, web = ShadowStage(), pod(tolerates(5), version=1)
    on.sees(TAINTED, web)
    on.at(5).marks(web)
    on.at(40).observe(PodsSwept("n1", frozenset(), 40.0, 9))
    assert on.results == [("same", None, None)]


def test_pods_of_a_node_that_is_watched_no_longer_are_let_go() -> None:
    """By then their evictions were called off."""
    on, web = ShadowStage(), pod()
    on.sees(TAINTED, web)
    on.at(10).sees(CLEAN)
    on.at(70).observe(PodsReleased("n1"))
    assert (on.results, on.shadow.unseen) == ([("never", 10.5, "FORGOTTEN")], 0)


def test_a_list_of_a_nodes_pods_says_nothing_of_those_of_other_nodes() -> None:
    """A pod counts for the node that it was seen on last."""
    on, web, db = ShadowStage(), pod(name="web", uid="w", on="n2"), pod(name="db", uid="d", on="n2", version=1)
    on.sees(TAINTED, node(taint(), name="n2"), web, db)
    on.sees(replace(db, node_name="n1", resource_version=2))
    on.at(5).observe(PodsSwept("n1", frozenset(), 5.0, 9))
    assert [tracked.pod.ref.uid for tracked in kept(on.shadow, TrackedPod)] == ["w"]


def test_a_restart_of_the_shadow_makes_nobody_look_in_time() -> None:
    """What was evicted here before counts from then; what is never seen again counts as unseen."""
    on, web = ShadowStage(evicted_epochs={"a": EPOCH - 60, "gone": EPOCH - 50}), pod(tolerates(30), bound_at=-90)
    on.sees(node(taint(added_at=-90)), web)
    on.at(0.5).evicts(web)
    assert (on.results, on.shadow.unseen) == ([("later", 60.5, "SLOW")], 1)


def test_a_comparison_is_told_before_it_is_counted() -> None:
    """A new file of the journal begins with the totals, and then has the line itself."""
    on, web = ShadowStage(), pod()
    counted: list[int] = []
    on.compared = lambda: counted.append(on.shadow.totals.counts.total())
    on.sees(TAINTED, web)
    on.at(0.5).evicts(web)
    assert (counted, on.shadow.totals.counts.total()) == ([0], 1)


def test_what_ends_before_the_next_shadow_evicts_it_is_unseen_no_longer() -> None:
    """The built-in controller was faster than the start; its lateness counts from the deadline."""
    on, web = ShadowStage(evicted_epochs={"a": EPOCH - 60}), pod(bound_at=-90)
    on.sees(node(taint(added_at=-90)), web)
    on.leads = False
    on.at(0.5).evicts(web)
    assert (on.results, on.shadow.unseen) == ([("later", 89.5, "SLOW")], 0)


def test_pods_that_are_too_many_to_remember_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first."""
    monkeypatch.setattr(shadow_module, "MAX_TRACKED", 2)
    on = ShadowStage()
    on.sees(TAINTED, *(pod(name=f"web-{number}", uid=str(number)) for number in range(2)))
    on.at(1).sees(pod(name="web-2", uid="2"))
    on.at(2)
    assert (on.shadow.unseen, on.shadow.outstanding(moment(5))) == (1, 2)


def test_nothing_is_remembered_of_pods_that_are_gone() -> None:
    """However they went."""
    on = ShadowStage()
    on.sees(TAINTED)
    for number in range(9):
        web = pod(tolerates(number), name=f"web-{number}", uid=str(number))
        on.sees(web)
        (on.evicts if number % 2 else on.deletes)(web)
    on.observe(PodGone(ref("never-seen", "z")), PodSeen(pod(name="late", uid="8", terminating=True)))
    on.at(100)
    [tracked] = kept(on.shadow, TrackedPods)
    assert (kept(on.shadow, TrackedPod), kept(tracked, NamespacedName)) == ([], [])
