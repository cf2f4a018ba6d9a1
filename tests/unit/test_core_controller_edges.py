"""Rare cases of the controller's rules: a restored storage, a dry run, a pod that is replaced."""

import pytest
from tests.unit.builders import Stage, moment, node, pod, ref, taint, tolerates
from tests.unit.test_core_controller_conditions import leftovers, marked_and_called_off

from taint_eviction.core.control_state import ControlState
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import StayReason
from taint_eviction.core.events import CalledOff, Cancelled, Done, Evicted, Failed, NodeCleared, NodeTainted, PodIsGone
from taint_eviction.core.facts import NodeSeen, PodGone, PodSeen, PodsReleased


def dry_stage() -> Stage:
    """A stage with a controller in dry-run mode."""
    stage = Stage()
    stage.brain = Controller(dry_run=True, control_state=ControlState())
    return stage


# Nodes


def test_a_node_is_reported_as_tainted_or_clean_when_that_changes() -> None:
    """Further observations of the same state report nothing."""
    stage = Stage()
    assert stage.sees(node(version=1)) == []
    assert stage.sees(node(version=2)) == []
    assert stage.sees(node(taint(), version=3)) == [NodeTainted("n1")]
    assert stage.sees(node(taint(), version=4)) == []
    assert stage.sees(node(version=5)) == [NodeCleared("n1")]
    assert stage.sees(node(version=6)) == []


def test_a_version_is_known_from_the_same_object_only() -> None:
    """An object whose version could not be read makes no version known."""
    stage = Stage()
    assert not stage.brain.nodes.knows("n1", "uid-n1", 1)
    stage.sees(node(taint()), pod())
    assert not stage.brain.nodes.knows("n1", "uid-n1", 1)
    assert not stage.brain.knows_pod(ref(), 1, False)
    stage.sees(node(taint(), version=5), pod(version=5))
    assert [stage.brain.nodes.knows("n1", "uid-n1", version) for version in (4, 5, 6)] == [True, True, False]
    assert [stage.brain.knows_pod(ref(), version, False) for version in (4, 5, 6)] == [True, True, False]
    assert not stage.brain.nodes.knows("n1", "another", 5)
    assert not stage.brain.knows_pod(ref(uid="another"), 5, False)


# Deleted, and there again


@pytest.mark.parametrize(("asked_at", "again"), [(11.0, False), (70.0, False), (70.1, True)])
def test_a_pod_that_is_still_there_long_after_its_deletion_was_accepted_is_evicted_again(
    asked_at: float, again: bool
) -> None:
    """The API server lost the deletion, because its storage was restored; an answer within a minute may be outdated."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    stage.finish(stage.at(10).take_eviction(), Done())
    stage.at(100).observe(PodSeen(pod(tolerates(10)), asked_at=asked_at))
    assert bool(stage.take()) is again


def test_a_pod_seen_terminating_long_after_its_deletion_is_not_evicted_again() -> None:
    """The pod takes its time to terminate; a later answer that does not show this yet is older."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    stage.finish(stage.at(10).take_eviction(), Done())
    stage.at(100).observe(PodSeen(pod(tolerates(10), terminating=True), asked_at=99))
    stage.at(101).observe(PodSeen(pod(tolerates(10)), asked_at=20))
    assert stage.take() == []


def test_a_dry_run_reports_each_eviction_once() -> None:
    """The pod stays in a dry run, so a new deadline is another eviction."""
    stage = dry_stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    [told] = stage.finish(stage.at(10).take_eviction(), Done())
    assert isinstance(told, Evicted)
    stage.sees(pod(tolerates(10)))
    assert stage.at(20).take() == []
    stage.sees(node())
    stage.sees(node(taint()))
    stage.at(30)
    assert stage.take_eviction().ref == ref()


def test_a_deleted_pod_is_not_evicted_again_when_its_taint_comes_back() -> None:
    """In this it differs from a dry run."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    stage.finish(stage.at(10).take_eviction(), Done())
    stage.sees(node())
    stage.sees(node(taint()))
    assert stage.at(30).take() == []


def test_an_eviction_is_reported_with_its_latest_reason() -> None:
    """The node's taints may change between two calls."""
    stage = Stage()
    stage.sees(node(taint()), pod())
    work = stage.take_eviction()
    stage.sees(node(taint("k2")))
    assert stage.decide_again(work)
    stage.send(work)
    [told] = stage.finish(work, Done())
    assert isinstance(told, Evicted)
    assert told.decision.deciding.taint == taint("k2")


def test_a_failure_before_a_deadline_was_extended_does_not_delay_the_new_one() -> None:
    """The new deadline belongs to another eviction, with a first try of its own."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10)))
    stage.finish(stage.at(10).take_eviction(), Failed("denied", 100))
    stage.at(11).sees(pod(tolerates(50)))
    assert stage.next_at() == 50
    assert stage.at(50).take_eviction().tries == 0


def test_a_pod_that_terminates_after_its_eviction_was_called_off_is_not_reported_as_evicted() -> None:
    """The controller's request had failed before the node became clean."""
    stage = Stage()
    stage.sees(node(taint()), pod())
    work = stage.take_eviction()
    stage.send(work)
    stage.finish(work, Failed("denied", 30))
    assert stage.sees(node()) == [NodeCleared("n1"), Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]
    stage.sees(node(taint()))
    assert stage.sees(pod(terminating=True)) == [Cancelled(ref(), "n1", StayReason.TERMINATING)]


def test_nothing_is_left_of_a_pod_whose_deletion_was_accepted_once_it_is_gone() -> None:
    """The controller forgets the request, and that it was accepted."""
    stage = Stage()
    stage.sees(node(taint()), pod())
    work = stage.take_eviction()
    stage.send(work)
    stage.finish(work, Done())
    stage.observe(PodGone(ref()))
    assert leftovers(stage).keys() <= {"nodes", "watched"}


# Take-backs


def test_the_next_instant_is_that_of_a_deadline_or_a_take_back() -> None:
    """The earlier of both counts; where no retries may begin, take-backs do not count."""
    stage = marked_and_called_off()
    stage.finish(stage.take_take_back(), Failed("busy", 20))
    assert (stage.next_at(), stage.brain.attempts.next_at(moment(10), retries=False)) == (20, None)
    stage.sees(node(taint(), name="n2"), pod(tolerates(40), name="other", uid="o", on="n2"))
    assert (stage.next_at(), stage.brain.attempts.next_at(moment(10), retries=False)) == (20, 50)
    stage.sees(pod(tolerates(5), name="other", uid="o", on="n2"))
    assert (stage.next_at(), stage.brain.attempts.next_at(moment(10), retries=False)) == (15, 15)


@pytest.mark.parametrize(("most", "max_retries", "begun"), [(9, 9, 2), (9, 1, 1), (1, 9, 1), (9, 0, 0), (0, 9, 0)])
def test_no_more_take_backs_begin_than_there_is_room_for(most: int, max_retries: int, begun: int) -> None:
    """Take-backs count against the number of all works, and of retries."""
    stage = Stage()
    stage.sees(node(taint()), pod(), pod(name="web-1", uid="b"))
    works = stage.take()
    for work in works:
        stage.brain.attempts.will_mark(work.ref)
    stage.sees(node())
    for work in works:
        stage.finish(work, CalledOff())
    assert len(stage.take(most, max_retries)) == begun


def test_a_take_back_names_the_node_of_its_pod() -> None:
    """The name is empty once the pod is no longer known."""
    stage = marked_and_called_off()
    work = stage.take_take_back()
    assert work.node_name == "n1"
    stage.finish(work, Failed("busy", 20))
    stage.observe(PodsReleased("n1"))
    assert stage.at(20).take_take_back().node_name == ""


def test_the_condition_of_a_pod_that_was_replaced_is_not_taken_back() -> None:
    """The condition is gone with the pod, and its successor has none."""
    stage = marked_and_called_off()
    stage.finish(stage.take_take_back(), Failed("busy", 20))
    stage.sees(pod(tolerates(10), uid="b"))
    assert stage.at(1000).take() == []


def test_the_condition_of_a_pod_that_is_gone_is_not_taken_back() -> None:
    """There is no pod left to patch."""
    stage = marked_and_called_off()
    stage.finish(stage.take_take_back(), Failed("busy", 20))
    stage.observe(PodGone(ref()))
    assert stage.at(1000).take() == []
    assert stage.brain.attempts.next_at(moment(1000)) is None


def test_a_condition_that_was_found_and_then_reset_by_somebody_else_is_not_taken_back() -> None:
    """The pod is seen without its condition before the take-back begins."""
    stage = Stage()
    stage.sees(node(taint()), node(), pod(marked=True))
    stage.sees(pod())
    assert stage.take() == []


def test_a_condition_of_this_process_is_taken_back_although_the_pod_was_seen_without_it() -> None:
    """The observation may be older than the patch."""
    stage = marked_and_called_off()
    stage.sees(pod(tolerates(10)))
    assert stage.take_take_back().ref == ref()


def test_a_finished_take_back_of_a_released_pod_is_not_repeated() -> None:
    """Nothing is kept of the pod."""
    stage = marked_and_called_off()
    work = stage.take_take_back()
    stage.observe(PodsReleased("n1"))
    assert stage.finish(work, Done()) == []
    assert stage.at(1000).take() == []


def test_nothing_is_taken_back_from_a_pod_that_turns_out_to_be_gone() -> None:
    """The API server answers that the pod is gone, so nothing is kept of it."""
    stage = Stage()
    stage.sees(node(taint()), pod())
    work = stage.take_eviction()
    stage.brain.attempts.will_mark(work.ref)
    stage.send(work)
    stage.sees(node())
    stage.observe(PodsReleased("n1"))
    assert stage.finish(work, PodIsGone()) == [Cancelled(ref(), "n1", None)]
    assert stage.at(1000).take() == []
    assert leftovers(stage).keys() <= {"nodes"}


@pytest.mark.parametrize("outcome", [CalledOff(), Failed("denied", 30)])
def test_a_request_that_ends_after_its_pod_is_gone_leaves_nothing(outcome: CalledOff | Failed) -> None:
    """This applies to an eviction that is called off, and to one that fails."""
    stage = Stage()
    stage.observe(NodeSeen(node(taint())), PodSeen(pod()))
    work = stage.take_eviction()
    stage.send(work)
    stage.observe(PodGone(ref()))
    assert stage.finish(work, outcome) == [Cancelled(ref(), "n1", None)]
    assert leftovers(stage).keys() <= {"nodes", "watched"}
    assert stage.brain.status.pending_count() == 0
    assert not list(stage.brain.status.pending(moment(stage.now)))
