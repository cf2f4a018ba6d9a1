"""Taking the DisruptionTarget condition back, and that nothing of a pod is left when it is gone."""

import pytest
from tests.unit.builders import Stage, node, pod, ref, taint, tolerates
from tests.unit.hints import hints

from taint_eviction.core.decision import StayReason
from taint_eviction.core.effects import (
    CalledOff,
    Cancelled,
    Done,
    Eviction,
    Failed,
    PodIsGone,
    Suspended,
    TakeBack,
    WorkOutcome,
)
from taint_eviction.core.facts import NodeGone, PodGone, PodsReleased


def marked_and_called_off() -> Stage:
    """A stage at 10 s with a pod that was marked, whose node was cleaned before the deletion."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(tolerates(10), marked=True), node())
    told = stage.settle(work, CalledOff())
    assert told == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]
    return stage


def marked_and_put_off(until: int = 15) -> Stage:
    """A stage at 10 s with a pod that was marked, and then tolerated for longer."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(tolerates(until), marked=True))
    stage.settle(work, CalledOff())
    assert stage.deadlines() == {"a": until}
    return stage


# Called off: taken back


def test_a_condition_is_taken_back_when_the_eviction_is_called_off() -> None:
    """W10: at once, once."""
    stage = marked_and_called_off()
    work = stage.take_take_back()
    assert (work.ref, work.tries) == (ref(), 0)
    assert stage.decide_again(work)
    stage.sees(pod(tolerates(10)))
    assert stage.settle(work, Done()) == []
    assert stage.at(1000).take() == []


def test_a_condition_whose_answer_never_came_is_taken_back_too() -> None:
    """W10: from the moment it is about to be written it may be there."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(node())
    stage.settle(work, Failed("timeout", 20))
    assert stage.take_take_back().ref == ref()


def test_a_condition_seen_on_a_pod_of_a_clean_node_is_taken_back() -> None:
    """W10: our reason on a pod that is not to leave, whoever of us wrote it."""
    stage = Stage()
    stage.sees(node(taint("k2")), pod(tolerates(None, "k2"), marked=True))
    assert isinstance(stage.take_take_back(), TakeBack)


def test_a_condition_stays_while_the_eviction_is_wanted() -> None:
    """W10: a try that failed is tried again, and the condition is right all the time."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(tolerates(10), marked=True))
    stage.settle(work, Failed("denied", 20))
    assert stage.at(19).take() == []
    assert stage.at(20).take_eviction().marked


def test_a_condition_that_somebody_reset_is_set_again() -> None:
    """W10: the disruption controller does so after 2 min; the next try says that it is not there."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(tolerates(10), marked=True))
    stage.settle(work, Failed("denied", 200))
    stage.at(130).sees(pod(tolerates(10), marked=False))
    assert not stage.at(200).take_eviction().marked


def test_a_pod_that_was_deleted_keeps_its_condition() -> None:
    """W10: a deletion that was accepted is not called off by a taint that goes."""
    stage = Stage()
    stage.sees(node(taint()), pod())
    work = stage.take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(marked=True))
    stage.settle(work, Done())
    stage.at(1).sees(node(), pod(marked=True, terminating=True))
    assert stage.at(1000).take() == []


def test_a_pod_that_somebody_else_deletes_keeps_its_condition() -> None:
    """W10: on a terminating pod nothing is taken back."""
    stage = marked_and_called_off()
    stage.sees(pod(tolerates(10), marked=True, terminating=True))
    assert stage.at(1000).take() == []


def test_a_take_back_that_fails_is_tried_again_later() -> None:
    """W10: with its own count, not before its time, however often the pod is seen meanwhile."""
    stage = marked_and_called_off()
    stage.settle(stage.take_take_back(), Failed("busy", 20))
    stage.at(15).sees(pod(tolerates(10), marked=True))
    assert stage.take() == []
    assert stage.at(20).take_take_back().tries == 1


def test_a_take_back_is_called_off_when_the_pod_is_to_leave_after_all() -> None:
    """W10: the taint is back before the condition was reset."""
    stage = marked_and_called_off()
    work = stage.take_take_back()
    stage.at(11).sees(node(taint("k2")))
    assert not stage.decide_again(work)
    stage.settle(work, CalledOff())
    eviction = stage.take_eviction()
    assert eviction.marked
    assert eviction.decision.fire_at == 11


def test_a_take_back_that_waits_is_cancelled_when_the_pod_is_to_leave_after_all() -> None:
    """W10: the same before it began."""
    stage = marked_and_called_off()
    stage.at(11).sees(node(taint("k2")))
    assert isinstance(stage.take_eviction(), Eviction)


def test_a_take_back_outlives_the_watch_of_its_pod() -> None:
    """W10: pods of a clean node are let go of, the debt is not."""
    stage = marked_and_called_off()
    stage.observe(PodsReleased("n1"))
    work = stage.take_take_back()
    assert stage.decide_again(work)
    stage.settle(work, Failed("busy", 20))
    assert stage.at(20).take_take_back().tries == 1


def test_a_take_back_that_was_held_outlives_the_watch_of_its_pod() -> None:
    """W10: not leading just now is no reason to forget it."""
    stage = marked_and_called_off()
    stage.observe(PodsReleased("n1"))
    stage.settle(stage.take_take_back(), Suspended())
    assert stage.at(11).take_take_back().ref == ref()


@pytest.mark.parametrize("outcome", [CalledOff(), Suspended(), Failed("cut off", 99)])
def test_a_condition_written_while_its_pod_is_released_is_taken_back(outcome: WorkOutcome) -> None:
    """W10: a slow call whose node was cleaned and let go of meanwhile."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.at(11).sees(node())
    stage.at(71).observe(PodsReleased("n1"))
    stage.at(80).settle(work, outcome)
    assert stage.at(100).take_take_back().ref == ref()


def test_nothing_is_taken_back_from_a_released_pod_whose_name_has_another_pod() -> None:
    """W10: the condition went with its pod; its record ends, and its successor's take-back is the only one."""
    stage = marked_and_called_off()
    stage.observe(PodsReleased("n1"))
    assert [record.ref.uid for record in stage.brain.pods] == ["a"]
    stage.at(11).sees(node(taint("k2")), pod(tolerates(None, "k2"), uid="b", marked=True))
    assert [record.ref.uid for record in stage.brain.pods] == ["b"]
    assert stage.take_take_back().ref == ref(uid="b")
    assert stage.at(1000).take() == []


def test_a_released_pod_that_is_seen_again_has_the_record_it_had() -> None:
    """W10: its node is tainted again before its condition was taken back, for longer than it tolerates."""
    stage = marked_and_called_off()
    record = stage.brain.pods.find(ref())
    stage.observe(PodsReleased("n1"))
    assert stage.brain.pods.find(ref()) is record
    assert stage.brain.pods.known == {}
    stage.at(20).sees(node(taint()), pod(tolerates(10), marked=True))
    assert stage.brain.pods.known[ref().key] is record
    assert stage.deadlines() == {"a": 30}
    assert stage.take_take_back().ref == ref()


# Put off: taken back, and evicted in its time


def test_a_condition_is_taken_back_while_the_deadline_is_far() -> None:
    """W10: put off is called off for now; the eviction comes when it is due, with the condition set anew."""
    stage = marked_and_put_off(100)
    work = stage.take_take_back()
    stage.sees(pod(tolerates(100)))
    stage.settle(work, Done())
    eviction = stage.at(100).take_eviction()
    assert not eviction.marked


def test_an_eviction_that_comes_due_waits_for_the_take_back_in_flight() -> None:
    """Of one pod only one piece of work is in flight, also when its deadline comes during a slow take-back."""
    stage = marked_and_put_off(15)
    work = stage.take_take_back()
    assert stage.at(15).take() == []
    assert not stage.decide_again(work)
    stage.settle(work, CalledOff())
    assert stage.take_eviction().decision.fire_at == 15


def test_an_eviction_that_comes_due_goes_before_the_take_back_that_waits() -> None:
    """W14: nobody had a worker for the take-back until the deadline came; one piece of work is begun, not two."""
    stage = marked_and_put_off(15)
    work = stage.at(15).take_eviction()
    stage.settle(work, Done())
    assert stage.at(1000).take() == []


@pytest.mark.parametrize("replaced", [False, True])
def test_a_pod_that_goes_during_its_take_back_leaves_no_eviction_behind(replaced: bool) -> None:
    """A slow take-back and a deadline to come, then the pod is gone or has a successor."""
    stage = marked_and_put_off(15)
    work = stage.take_take_back()
    stage.at(12)
    if replaced:
        stage.sees(pod(tolerates(1000), uid="b"))
    else:
        stage.observe(PodGone(ref()))
    assert stage.at(15).take() == []
    stage.settle(work, PodIsGone())
    assert stage.at(500).take() == []


def test_a_late_failed_take_back_leaves_its_namesakes_take_back_alone() -> None:
    """W3, W10: completion may only touch its own entry."""
    stage = marked_and_called_off()
    late = stage.take_take_back()
    stage.at(11).observe(PodGone(ref()))
    stage.sees(node(taint()), pod(uid="b"))
    work = stage.take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.at(12).sees(pod(uid="b", marked=True), node())
    stage.settle(work, CalledOff())
    stage.settle(late, Failed("busy", 50))
    assert "b" in [begun.ref.uid for begun in stage.take()]


# Nothing is left


def leftovers(stage: Stage) -> dict[str, object]:
    """List all that is left of any pod or node: records, indexes, hints, watched nodes."""
    brain = stage.brain
    kept = {
        "records": list(brain.pods),
        "known": brain.pods.known,
        "by node": brain.pods._by_node,
        "aside": brain.pods._unfinished,
        "nodes": brain.nodes.known,
        "watched": brain.watched_nodes(),
        "hints": hints(brain._queue),
        "take-backs": list(brain._deciding._take_backs._queue),
    }
    return {name: value for name, value in kept.items() if value}


def test_leftovers_are_noticed() -> None:
    """The test below can fail: it looks at what there is."""
    stage = marked_and_called_off()
    assert set(leftovers(stage)) == {"records", "known", "by node", "nodes", "watched", "take-backs"}
    stage.observe(PodsReleased("n1"))
    assert set(leftovers(stage)) == {"records", "aside", "nodes", "take-backs"}


@pytest.mark.parametrize("outcome", [Done(), PodIsGone(), CalledOff(), Suspended(), Failed("denied", 30)])
@pytest.mark.parametrize("how", ["gone", "gone in flight", "gone before marking", "replaced", "released", "kept"])
def test_nothing_is_left_of_pods_and_nodes_that_are_gone(outcome: WorkOutcome, how: str) -> None:
    """Whatever the last call's outcome and however the pod goes, all collections are empty in the end."""
    stage = Stage()
    stage.sees(node(taint()), node(name="n2"), pod(tolerates(10)))
    stage.settle(stage.at(10).take_eviction(), Failed("denied", 11))
    work = stage.at(11).take_eviction()
    if how != "gone before marking":
        stage.brain.attempts.will_mark(work.ref)
        stage.sees(pod(tolerates(10), marked=True))
    if how in {"gone in flight", "gone before marking"}:
        stage.observe(PodGone(ref()))
        stage.brain.attempts.will_mark(work.ref)
    if how == "replaced":
        stage.sees(pod(uid="b", on="n2"))
    if how == "released":
        stage.sees(node())
        stage.observe(PodsReleased("n1"))
    stage.settle(work, outcome)
    if how == "gone":
        stage.observe(PodGone(ref()))
    stage.at(1000).observe(NodeGone("n1"), NodeGone("n2"), PodsReleased("n1"), PodsReleased("n2"))
    for left in stage.take():
        assert isinstance(left, TakeBack)
        stage.settle(left, PodIsGone())
    assert leftovers(stage) == {}


def test_a_take_back_that_is_cancelled_leaves_no_count_behind() -> None:
    """W10: somebody else reset the condition of a pod that is released then."""
    stage = marked_and_called_off()
    stage.settle(stage.take_take_back(), Failed("busy", 20))
    stage.at(15).sees(pod(tolerates(10), marked=True, terminating=True))
    stage.observe(PodsReleased("n1"), NodeGone("n1"))
    assert leftovers(stage) == {}
