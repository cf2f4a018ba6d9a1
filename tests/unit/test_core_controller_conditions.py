"""Taking back the DisruptionTarget condition, and that nothing is kept of a pod that is gone."""

import pytest
from tests.unit.builders import Stage, moment, node, pod, ref, taint, tolerates
from tests.unit.hints import hints

from taint_eviction.core.decision import StayReason
from taint_eviction.core.events import (
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
    """A stage at 10 s with a pod that was marked, and whose node became clean before the deletion."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(tolerates(10), marked=True), node())
    told = stage.finish(work, CalledOff())
    assert told == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]
    return stage


def marked_and_put_off(until: int = 15) -> Stage:
    """A stage at 10 s with a pod that was marked, and whose toleration was then extended."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(tolerates(until), marked=True))
    stage.finish(work, CalledOff())
    assert stage.deadlines() == {"a": until}
    return stage


# Called off: taken back


def test_a_condition_is_taken_back_when_the_eviction_is_called_off() -> None:
    """W10: the take-back begins at once, and only once."""
    stage = marked_and_called_off()
    work = stage.take_take_back()
    assert (work.ref, work.tries) == (ref(), 0)
    assert stage.decide_again(work)
    stage.sees(pod(tolerates(10)))
    assert stage.finish(work, Done()) == []
    assert stage.at(1000).take() == []


def test_a_condition_whose_patch_got_no_answer_is_taken_back_too() -> None:
    """W10: the condition may be on the pod from the moment at which it is about to be written."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(node())
    stage.finish(work, Failed("timeout", 20))
    assert stage.take_take_back().ref == ref()


def test_a_condition_seen_on_a_pod_that_stays_is_taken_back() -> None:
    """W10: the condition has this controller's reason, and the pod tolerates its taint indefinitely."""
    stage = Stage()
    stage.sees(node(taint("k2")), pod(tolerates(None, "k2"), marked=True))
    assert isinstance(stage.take_take_back(), TakeBack)


def test_a_condition_stays_while_the_eviction_is_wanted() -> None:
    """W10: a failed eviction is retried, and the condition is right all the time."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(tolerates(10), marked=True))
    stage.finish(work, Failed("denied", 20))
    assert stage.at(19).take() == []
    assert stage.at(20).take_eviction().marked


def test_a_condition_that_somebody_reset_is_set_again() -> None:
    """W10: the disruption controller does so after 2 min; the next try knows that the condition is not there."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(tolerates(10), marked=True))
    stage.finish(work, Failed("denied", 200))
    stage.at(130).sees(pod(tolerates(10), marked=False))
    assert not stage.at(200).take_eviction().marked


def test_a_pod_that_was_deleted_keeps_its_condition() -> None:
    """W10: removing the taint does not call off a deletion that was accepted."""
    stage = Stage()
    stage.sees(node(taint()), pod())
    work = stage.take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.sees(pod(marked=True))
    stage.finish(work, Done())
    stage.at(1).sees(node(), pod(marked=True, terminating=True))
    assert stage.at(1000).take() == []


def test_a_pod_that_somebody_else_deletes_keeps_its_condition() -> None:
    """W10: no condition of a terminating pod is taken back."""
    stage = marked_and_called_off()
    stage.sees(pod(tolerates(10), marked=True, terminating=True))
    assert stage.at(1000).take() == []


def test_a_take_back_that_fails_is_tried_again_later() -> None:
    """W10: a take-back has its own count and retry time, however often the pod is seen meanwhile."""
    stage = marked_and_called_off()
    stage.finish(stage.take_take_back(), Failed("busy", 20))
    stage.at(15).sees(pod(tolerates(10), marked=True))
    assert stage.take() == []
    assert stage.at(20).take_take_back().tries == 1


def test_a_take_back_in_flight_is_called_off_when_the_pod_is_to_be_evicted_after_all() -> None:
    """W10: the node is tainted again before the condition is reset."""
    stage = marked_and_called_off()
    work = stage.take_take_back()
    stage.at(11).sees(node(taint("k2")))
    assert not stage.decide_again(work)
    stage.finish(work, CalledOff())
    eviction = stage.take_eviction()
    assert eviction.marked
    assert eviction.decision.fire_at == 11


def test_a_waiting_take_back_is_cancelled_when_the_pod_is_to_be_evicted_after_all() -> None:
    """W10: the node is tainted again before the take-back begins."""
    stage = marked_and_called_off()
    stage.at(11).sees(node(taint("k2")))
    assert isinstance(stage.take_eviction(), Eviction)


def test_a_take_back_outlives_the_watch_of_its_pod() -> None:
    """W10: the pods of a clean node are released, but the condition must still be taken back."""
    stage = marked_and_called_off()
    stage.observe(PodsReleased("n1"))
    work = stage.take_take_back()
    assert stage.decide_again(work)
    stage.finish(work, Failed("busy", 20))
    assert stage.at(20).take_take_back().tries == 1


def test_a_suspended_take_back_outlives_the_watch_of_its_pod() -> None:
    """W10: for example, a replica that does not lead at this moment must not forget it."""
    stage = marked_and_called_off()
    stage.observe(PodsReleased("n1"))
    stage.finish(stage.take_take_back(), Suspended())
    assert stage.at(11).take_take_back().ref == ref()


@pytest.mark.parametrize("outcome", [CalledOff(), Suspended(), Failed("cut off", 99)])
def test_a_condition_written_while_its_pod_is_released_is_taken_back(outcome: WorkOutcome) -> None:
    """W10: during a slow call, the node becomes clean and its pods are released."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    work = stage.at(10).take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.at(11).sees(node())
    stage.at(71).observe(PodsReleased("n1"))
    stage.at(80).finish(work, outcome)
    assert stage.at(100).take_take_back().ref == ref()


def test_nothing_is_taken_back_from_a_released_pod_whose_name_has_another_pod() -> None:
    """W10: the pod's condition and record are gone with it, and only its successor's condition is taken back."""
    stage = marked_and_called_off()
    stage.observe(PodsReleased("n1"))
    assert [record.ref.uid for record in stage.brain.pods] == ["a"]
    stage.at(11).sees(node(taint("k2")), pod(tolerates(None, "k2"), uid="b", marked=True))
    assert [record.ref.uid for record in stage.brain.pods] == ["b"]
    assert stage.take_take_back().ref == ref(uid="b")
    assert stage.at(1000).take() == []


def test_a_released_pod_that_is_seen_again_keeps_its_record() -> None:
    """W10: its node is tainted again before the take-back, which still begins before the pod's new deadline."""
    stage = marked_and_called_off()
    record = stage.brain.pods.find(ref())
    stage.observe(PodsReleased("n1"))
    assert stage.brain.pods.find(ref()) is record
    assert stage.brain.pods.known == {}
    stage.at(20).sees(node(taint()), pod(tolerates(10), marked=True))
    assert stage.brain.pods.known[ref().key] is record
    assert stage.deadlines() == {"a": 30}
    assert stage.take_take_back().ref == ref()


# Put off: taken back, and evicted when due


def test_a_condition_is_taken_back_while_the_deadline_is_far() -> None:
    """W10: an extended toleration calls the eviction off for now; when it is due, the condition has to be set again."""
    stage = marked_and_put_off(100)
    work = stage.take_take_back()
    stage.sees(pod(tolerates(100)))
    stage.finish(work, Done())
    eviction = stage.at(100).take_eviction()
    assert not eviction.marked


def test_an_eviction_that_comes_due_overtakes_the_take_back_in_flight() -> None:
    """A call that hangs delays no eviction; whatever it brings later changes nothing."""
    stage = marked_and_put_off(15)
    overtaken = stage.take_take_back()
    eviction = stage.at(15).take_eviction()
    assert eviction.decision.fire_at == 15
    assert not stage.decide_again(overtaken)
    stage.finish(overtaken, CalledOff())
    assert stage.decide_again(eviction)
    stage.finish(eviction, Done())
    assert stage.at(1000).take() == []


def test_a_due_eviction_replaces_the_take_back_that_waits() -> None:
    """W14: no worker took the take-back before the deadline came; only the eviction begins."""
    stage = marked_and_put_off(15)
    work = stage.at(15).take_eviction()
    stage.finish(work, Done())
    assert stage.at(1000).take() == []


@pytest.mark.parametrize("replaced", [False, True])
def test_a_pod_that_is_gone_during_its_take_back_leaves_no_eviction_behind(replaced: bool) -> None:
    """During a slow take-back and before its deadline, the pod is deleted or replaced."""
    stage = marked_and_put_off(15)
    work = stage.take_take_back()
    stage.at(12)
    if replaced:
        stage.sees(pod(tolerates(1000), uid="b"))
    else:
        stage.observe(PodGone(ref()))
    assert stage.at(15).take() == []
    stage.finish(work, PodIsGone())
    assert stage.at(500).take() == []


def test_a_late_failure_of_a_take_back_does_not_affect_its_successors_take_back() -> None:
    """W3, W10: the end of a piece of work affects only its own pod."""
    stage = marked_and_called_off()
    late = stage.take_take_back()
    stage.at(11).observe(PodGone(ref()))
    stage.sees(node(taint()), pod(uid="b"))
    work = stage.take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.at(12).sees(pod(uid="b", marked=True), node())
    stage.finish(work, CalledOff())
    stage.finish(late, Failed("busy", 50))
    assert "b" in [begun.ref.uid for begun in stage.take()]


# Nothing is left


def leftovers(stage: Stage) -> dict[str, object]:
    """List everything that is kept of any pod or node: records, indexes, hints, watched nodes."""
    brain = stage.brain
    kept = {
        "records": list(brain.pods),
        "known": brain.pods.known,
        "by node": brain.pods.on_node("n1") + brain.pods.on_node("n2"),
        "aside": [record for record in brain.pods if not brain.pods.knows(record)],
        "nodes": brain.nodes.known,
        "watched": brain.watched_nodes(),
        "hints": hints(brain),
        "what is next": brain.attempts.next_at(moment(stage.now)) is not None,
    }
    return {name: value for name, value in kept.items() if value}


def test_leftovers_are_found() -> None:
    """The next test can fail, because ``leftovers`` finds what is kept."""
    stage = marked_and_called_off()
    assert set(leftovers(stage)) == {"records", "known", "by node", "nodes", "watched", "hints", "what is next"}
    stage.observe(PodsReleased("n1"))
    assert set(leftovers(stage)) == {"records", "aside", "nodes", "hints", "what is next"}


@pytest.mark.parametrize("outcome", [Done(), PodIsGone(), CalledOff(), Suspended(), Failed("denied", 30)])
@pytest.mark.parametrize("how", ["gone", "gone in flight", "gone before marking", "replaced", "released", "kept"])
def test_nothing_is_left_of_pods_and_nodes_that_are_gone(outcome: WorkOutcome, how: str) -> None:
    """Whatever the last call returns, and however the pod disappears, all collections are empty in the end."""
    stage = Stage()
    stage.sees(node(taint()), node(name="n2"), pod(tolerates(10)))
    stage.finish(stage.at(10).take_eviction(), Failed("denied", 11))
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
    stage.finish(work, outcome)
    if how == "gone":
        stage.observe(PodGone(ref()))
    stage.at(1000).observe(NodeGone("n1"), NodeGone("n2"), PodsReleased("n1"), PodsReleased("n2"))
    for left in stage.take():
        assert isinstance(left, TakeBack)
        stage.finish(left, PodIsGone())
    assert leftovers(stage) == {}


def test_a_cancelled_take_back_leaves_nothing_behind() -> None:
    """W10: a take-back has failed once when its pod terminates and is released."""
    stage = marked_and_called_off()
    stage.finish(stage.take_take_back(), Failed("busy", 20))
    stage.at(15).sees(pod(tolerates(10), marked=True, terminating=True))
    stage.observe(PodsReleased("n1"), NodeGone("n1"))
    assert leftovers(stage) == {}
