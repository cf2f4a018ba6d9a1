"""What the controller gives out to be done, and what becomes of it: first tries, retries, late completions."""

from typing import get_args

import pytest
from tests.unit.builders import Stage, moment, node, pod, ref, taint, tolerates

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.decision import Evict, StayReason
from taint_eviction.core.effects import (
    CalledOff,
    Cancelled,
    CutOff,
    Done,
    Evicted,
    Eviction,
    Failed,
    PodIsGone,
    Refused,
    Suspended,
    Work,
    WorkOutcome,
)
from taint_eviction.core.facts import NodeGone, NodeSeen, PodGone, PodSeen, PodsReleased
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.pod_record import (
    Deleted,
    InFlight,
    PodState,
    Queued,
    Retrying,
    Schedule,
    Settling,
    Stays,
    Step,
    Waiting,
)


def failed(retry_at: float) -> Failed:
    """A refusal with a time to come back."""
    return Failed("denied", retry_at)


def armed(seconds: int = 10, uid: str = "a") -> Stage:
    """A stage with one pod on a tainted node."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(seconds), uid=uid))
    return stage


def uids(works: list[Work]) -> list[str]:
    """List whose work it is."""
    return [work.ref.uid for work in works]


# Begun, decided again, done


def test_an_eviction_says_whom_where_and_why() -> None:
    """A first try carries its decision, the node to read again, and whether the condition is there already."""
    work = armed().at(10).take_eviction()
    assert (work.ref, work.node_name, work.marked, work.tries) == (ref(), "n1", False, 0)
    assert (work.decision.fire_at, work.decision.deciding.taint) == (10, taint())


def test_nothing_is_taken_before_it_is_due() -> None:
    """The next instant is told exactly, so there is nothing to poll."""
    stage = armed()
    assert stage.brain.attempts.next_at(stage.now) == 10
    assert stage.at(9.999).take() == []


def test_what_is_in_flight_is_not_taken_again() -> None:
    """Never two pieces of work for one pod, whatever is seen meanwhile."""
    stage = armed()
    stage.at(10).take_eviction()
    stage.sees(pod(tolerates(1)), node(taint(), taint("k2")))
    assert stage.brain.attempts.next_at(stage.now) is None
    assert stage.at(1000).take() == []


def test_done_is_told_once_with_how_late_it_was() -> None:
    """W18: from the deadline to the accepted deletion, in seconds."""
    stage = armed()
    work = stage.at(10.5).take_eviction()
    assert stage.at(12).settle(work, Done()) == [Evicted(ref(), "n1", work.decision, 2.0)]
    assert stage.deadlines() == {}


def test_a_pod_whose_deletion_was_accepted_is_never_asked_for_again() -> None:
    """W13: neither by a lagging watch nor by another taint, until it is gone."""
    stage = armed()
    stage.settle(stage.at(10).take_eviction(), Done())
    stage.sees(pod(tolerates(1)), node(taint(), taint("k2")), pod(terminating=True))
    explanation = stage.brain.status.explain(ref().key, moment(stage.now))
    assert explanation is not None
    assert explanation.record.deleted
    assert stage.at(1e6).take() == []


@pytest.mark.parametrize("outcome", [Done(), PodIsGone(), CalledOff(), CutOff(), Suspended(), failed(99.0)])
def test_settling_twice_is_our_own_bug(outcome: WorkOutcome) -> None:
    """What is not in flight can't end."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.settle(work, CalledOff())
    with pytest.raises(ValueError, match="not in flight"):
        stage.settle(work, outcome)


def test_only_the_work_that_was_begun_can_be_settled() -> None:
    """An earlier piece of work for the same pod does not end the one in flight."""
    stage = armed()
    first = stage.at(10).take_eviction()
    stage.settle(first, failed(11))
    stage.at(11).take_eviction()
    with pytest.raises(ValueError, match="not in flight"):
        stage.settle(first, Done())


def test_every_outcome_is_known_here() -> None:
    """The union of outcomes is closed; whoever adds one adds it to these tests too."""
    assert set(get_args(WorkOutcome)) == {Done, PodIsGone, CalledOff, CutOff, Suspended, Failed}


def test_work_is_no_longer_wanted_when_the_taint_is_gone() -> None:
    """W11: between two calls the node is read again; a clean one calls the eviction off."""
    stage = armed()
    work = stage.at(10).take_eviction()
    assert stage.decide_again(work)
    stage.observe(NodeSeen(node(), asked_at=10))
    assert not stage.decide_again(work)
    assert stage.settle(work, CalledOff()) == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(NodeGone("n1", asked_at=11), id="node gone"),
        pytest.param(NodeSeen(node(uid="new")), id="node recreated"),
        pytest.param(PodGone(ref()), id="pod gone"),
        pytest.param(PodSeen(pod(uid="b")), id="pod recreated"),
        pytest.param(PodSeen(pod(tolerates(), version=2)), id="tolerated indefinitely"),
        pytest.param(PodSeen(pod(tolerates(99))), id="tolerated for longer"),
        pytest.param(PodSeen(pod(tolerates(10), terminating=True)), id="terminating"),
        pytest.param(PodSeen(pod(on="n2")), id="elsewhere"),
    ],
)
def test_work_is_no_longer_wanted_when(told: NodeGone | NodeSeen | PodGone | PodSeen) -> None:
    """W2, W5, W11, W12, W13: whatever makes it wrong is noticed just before the next call."""
    stage = armed()
    work = stage.at(12).take_eviction()
    stage.observe(told)
    assert not stage.decide_again(work)
    stage.settle(work, CalledOff())
    assert "a" not in uids(stage.take())


def test_called_off_because_it_is_due_later_is_armed_again() -> None:
    """W5: a longer tolerance that is seen in flight costs nothing."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.sees(pod(tolerates(30)))
    stage.settle(work, CalledOff())
    assert stage.deadlines() == {"a": 30}
    assert stage.play(1000) == [(30, "a")]


def test_held_work_is_taken_up_again_as_if_it_had_not_begun() -> None:
    """Not leading just now: due as before, no trouble, and nothing told."""
    stage = armed()
    work = stage.at(10).take_eviction()
    assert stage.settle(work, Suspended()) == []
    assert stage.at(20).take_eviction() == work


def test_a_pod_that_is_gone_is_forgotten() -> None:
    """W8: 404 and a conflict of UIDs are an end; its deadline is called off and nothing is counted."""
    stage = armed()
    work = stage.at(10).take_eviction()
    assert stage.settle(work, PodIsGone()) == [Cancelled(ref(), "n1", None)]
    assert stage.brain.status.explain(ref().key, moment(stage.now)) is None
    assert stage.sees(pod(tolerates(10), version=5)) == []
    assert stage.at(1000).take() == []


# Late completions


@pytest.mark.parametrize("outcome", [Done(), PodIsGone(), CalledOff(), CutOff(), Suspended(), failed(500.0)])
def test_a_late_completion_leaves_the_namesake_armed(outcome: WorkOutcome) -> None:
    """W3: whatever becomes of the first pod's slow call, its successor's deadline stands and can be cancelled."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.at(11).sees(pod(tolerates(10), uid="b"))
    stage.at(15).settle(work, outcome)
    assert stage.deadlines() == {"b": 21}
    assert stage.at(20).sees(node())[-1] == Cancelled(ref(uid="b"), "n1", StayReason.NODE_CLEAN)
    assert stage.play(1000) == []


def test_both_bearers_of_a_name_may_be_in_flight() -> None:
    """W3: a slow call for the first never holds up the second, and each settles its own."""
    stage = armed()
    first = stage.at(10).take_eviction()
    stage.sees(pod(uid="b"))
    second = stage.take_eviction()
    assert [first.ref.uid, second.ref.uid] == ["a", "b"]
    assert isinstance(stage.settle(second, Done())[0], Evicted)
    assert isinstance(stage.settle(first, Done())[0], Evicted)
    assert stage.play(1000) == []


def test_a_pod_that_goes_while_it_is_in_flight_is_evicted_all_the_same() -> None:
    """A deletion that the watch tells before the call's own answer counts as ours, once."""
    stage = armed()
    work = stage.at(10).take_eviction()
    assert stage.observe(PodGone(ref())) == []
    assert stage.settle(work, Done()) == [Evicted(ref(), "n1", work.decision, 0.0)]


@pytest.mark.parametrize("outcome", [CalledOff(), failed(40)])
def test_an_attempt_that_outlives_the_watch_of_its_pod_was_for_a_taint_that_is_gone(outcome: WorkOutcome) -> None:
    """Nobody said that the pod is gone, so it must not be reported as gone."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.sees(node())
    assert stage.observe(PodsReleased("n1")) == []
    assert not stage.decide_again(work)
    assert stage.settle(work, outcome) == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]


def test_an_attempt_that_outlives_its_node_is_cancelled_because_the_node_is_gone() -> None:
    """The pods of a deleted node are released as well."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.observe(NodeGone("n1"), PodsReleased("n1"))
    assert stage.settle(work, CalledOff()) == [Cancelled(ref(), "n1", StayReason.NODE_UNKNOWN)]


def test_an_attempt_whose_node_is_tainted_again_after_its_pods_were_released_was_for_the_first_taint() -> None:
    """The new taint's countdown begins when its pods are listed."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.sees(node())
    stage.observe(PodsReleased("n1"))
    stage.sees(node(taint(), version=3))
    assert stage.settle(work, CalledOff()) == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]


# Retries


def test_a_failure_is_tried_again_until_it_works() -> None:
    """W8: however often it fails, with the number of tries and since when told each time."""
    stage = armed()
    for tries in range(50):
        work = stage.at(10 + tries).take_eviction()
        assert work.tries == tries
        told = stage.settle(work, failed(11.0 + tries))
        assert told == [Refused(ref(), "n1", "denied", tries + 1, 10, 11 + tries)]
        assert stage.take() == []
    assert stage.play(1000) == [(60, "a")]


def test_a_retry_never_opens_a_new_window() -> None:
    """W8: the deadline it missed is still its deadline."""
    stage = armed()
    stage.settle(stage.at(10).take_eviction(), failed(40))
    stage.at(20).sees(pod(tolerates(10), marked=True), node(taint(), taint("k2")))
    assert stage.brain.attempts.next_at(stage.now) == 40
    work = stage.at(40).take_eviction()
    assert work.marked
    assert stage.settle(work, Done()) == [Evicted(ref(), "n1", work.decision, 30.0)]


def test_a_longer_tolerance_outlasts_a_retry() -> None:
    """W5: between two tries the deadline may still move; neither is too early."""
    stage = armed()
    stage.settle(stage.at(10).take_eviction(), failed(20))
    stage.sees(pod(tolerates(30)))
    assert stage.play(1000) == [(30, "a")]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(NodeSeen(node()), id="taint removed"),
        pytest.param(NodeGone("n1", "uid-n1"), id="node gone"),
        pytest.param(PodGone(ref()), id="pod gone"),
        pytest.param(PodSeen(pod(tolerates())), id="tolerated"),
    ],
)
def test_a_retry_is_cancelled_like_a_first_try(told: NodeSeen | NodeGone | PodGone | PodSeen) -> None:
    """W8: done means no longer wanted, too."""
    stage = armed()
    stage.settle(stage.at(10).take_eviction(), failed(40))
    [effect] = [effect for effect in stage.at(20).observe(told) if isinstance(effect, Cancelled)]
    assert effect.ref == ref()
    assert stage.at(1000).take() == []


def test_trouble_ends_with_the_eviction_it_belongs_to() -> None:
    """A pod that was saved and is tainted again begins with a first try."""
    stage = armed()
    stage.settle(stage.at(10).take_eviction(), failed(40))
    stage.at(20).sees(node())
    stage.at(21).sees(node(taint("k2")))
    assert stage.take_eviction().tries == 0


def test_a_failure_that_is_no_longer_wanted_is_not_told_as_refused() -> None:
    """W17: the cancelling is what happened."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.sees(node())
    assert stage.settle(work, failed(40)) == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]
    assert stage.at(1000).take() == []


# Who comes first


def crowd(stage: Stage, count: int, prefix: str, seconds: int) -> None:
    """Add pods of one tolerance."""
    for number in range(count):
        stage.sees(pod(tolerates(seconds), name=f"{prefix}{number}", uid=f"{prefix}{number}"))


def test_first_tries_go_before_retries_each_most_overdue_first() -> None:
    """W14: and no more than there is room for."""
    stage = Stage()
    stage.sees(node(taint()))
    crowd(stage, 2, "old-", 1)
    for work, retry_at in zip(stage.at(1).take(), [3.0, 2.0], strict=True):
        stage.settle(work, failed(retry_at))
    crowd(stage, 2, "late-", 5)
    crowd(stage, 1, "early-", 4)
    stage.at(10)
    assert uids(stage.take(most=2)) == ["early-0", "late-0"]
    assert uids(stage.take(most=2)) == ["late-1", "old-1"]
    assert uids(stage.take(most=2)) == ["old-0"]


def test_retries_take_no_more_than_their_share() -> None:
    """W14: with first tries absent, too; what is left stays due."""
    stage = Stage()
    stage.sees(node(taint()))
    crowd(stage, 6, "p", 1)
    for work in stage.at(1).take():
        stage.settle(work, failed(2))
    stage.at(5)
    assert len(stage.take(most=10, max_retries=0)) == 0
    assert len(stage.take(most=10, max_retries=4)) == 4
    assert len(stage.take(most=1, max_retries=4)) == 1
    assert stage.brain.attempts.next_at(stage.now) == 5
    assert stage.brain.attempts.next_at(stage.now, retries=False) is None


def test_two_thousand_pods_are_begun_no_faster_than_there_are_workers() -> None:
    """W14: untainting calls off all that has not been sent yet."""
    stage = Stage()
    stage.sees(node(taint()))
    crowd(stage, 2_000, "p", 0)
    begun = stage.take(most=10)
    assert len(begun) == 10
    stage.sees(node())
    assert not any(stage.decide_again(work) for work in begun)
    assert stage.take() == []


# Explanations


def test_explaining_says_all_there_is_to_say() -> None:
    """The decision, whether it is in flight, and what went wrong so far."""
    stage = armed()
    stage.settle(stage.at(10).take_eviction(), failed(12))
    stage.at(12).take_eviction()
    explanation = stage.brain.status.explain(ref().key, moment(stage.now))
    assert explanation is not None
    assert isinstance(explanation.decision, Evict)
    assert explanation.pending is not None
    assert isinstance(explanation.pending.state, InFlight)
    assert not explanation.record.deleted
    assert explanation.pending.failures is not None
    assert (explanation.pending.failures.tries, explanation.pending.failures.message) == (1, "denied")
    assert stage.brain.status.explain(NamespacedName("shop", "unknown"), moment(stage.now)) is None


def test_what_is_pending_is_told_with_its_trouble() -> None:
    """Pods that are armed, in flight or tried again; none else."""
    stage = armed(5)
    stage.sees(pod(tolerates(), name="kept", uid="kept"), pod(tolerates(50), name="p2", uid="armed"))
    stage.settle(stage.at(5).take_eviction(), failed(9))
    told = {one.record.pod.ref.uid: one.failures for one in stage.brain.status.pending(moment(stage.now))}
    assert told["armed"] is None
    assert told["a"] is not None
    assert set(told) == {"a", "armed"}
    assert stage.brain.tainted_nodes() == frozenset({"n1"})


def test_asking_changes_nothing() -> None:
    """Decisions are asked for as often as anybody likes."""
    stage = armed()
    work = stage.at(10).take_eviction()
    answers = {stage.brain.attempts.recheck(work, moment(at)) for at in (10, 11, 12)}
    assert answers == {None}
    assert isinstance(work, Eviction)
    assert isinstance(stage.brain.attempts.recheck(work, moment(9)), CalledOff)


# States


def state_of(stage: Stage) -> PodState:
    """Return the state of the one pod that is known."""
    [record] = stage.brain.pods.known.values()
    return record.state


def test_a_record_says_in_which_state_its_pod_is() -> None:
    """From its deadline to the accepted deletion, and why it stays before and after."""
    stage = Stage(breaker=BreakerPolicy(enabled=True, settle_seconds=2.0))
    stage.sees(node(taint("k2")), pod(tolerates(10), tolerates(None, "k2")))
    assert state_of(stage) == Stays(StayReason.TOLERATED)
    stage.sees(node(taint()))
    plan = Schedule(FlowKey("n1", "shop", ""), 10.0, False, None)
    assert state_of(stage) == Waiting(10.0, plan)
    stage.at(10).evaluate()
    assert state_of(stage) == Settling(12.0, plan)
    stage.lists("n1")
    stage.at(12).evaluate()
    assert state_of(stage) == Queued(plan)
    work = stage.take_eviction()
    assert state_of(stage) == InFlight(work, plan, (), Step.BEGUN)
    stage.brain.attempts.will_mark(work.ref)
    assert state_of(stage) == InFlight(work, plan, (), Step.MARKING)
    stage.send(work)
    assert state_of(stage) == InFlight(work, plan, (), Step.ENDING)
    stage.settle(work, failed(15))
    assert state_of(stage) == Retrying(15.0, plan._replace(fire_at=15.0, retry=True))
    stage.settle(stage.at(15).take_eviction(), Done())
    assert state_of(stage) == Deleted(15.0)


def test_a_pod_that_is_called_off_says_why_it_stays() -> None:
    """The reason is in its record."""
    stage = armed()
    stage.sees(node())
    assert state_of(stage) == Stays(StayReason.NODE_CLEAN)
