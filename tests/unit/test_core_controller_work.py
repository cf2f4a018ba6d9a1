"""The work that the controller gives out, and how it ends: first tries, retries, late completions."""

from typing import get_args

import pytest
from tests.unit.builders import Stage, moment, node, pod, ref, taint, tolerates

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.decision import Evict, StayReason
from taint_eviction.core.events import (
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
from taint_eviction.core.pods import (
    Deleted,
    InFlight,
    PodState,
    Queued,
    Retrying,
    Schedule,
    Stabilizing,
    Stays,
    Step,
    Waiting,
)
from taint_eviction.core.policy import EvictionPolicy, Limit


def failed(retry_at: float) -> Failed:
    """A failure with the time of the next try."""
    return Failed("denied", retry_at)


def armed(seconds: int = 10, uid: str = "a") -> Stage:
    """A stage with one pod on a tainted node."""
    stage = Stage()
    stage.sees(node(taint()), pod(tolerates(seconds), uid=uid))
    return stage


def uids(works: list[Work]) -> list[str]:
    """List the UIDs of the pods."""
    return [work.ref.uid for work in works]


# Begun, decided again, done


def test_an_eviction_names_its_pod_its_node_and_its_decision() -> None:
    """A first try also says that the condition is not on the pod yet."""
    work = armed().at(10).take_eviction()
    assert (work.ref, work.node_name, work.marked, work.tries) == (ref(), "n1", False, 0)
    assert (work.decision.fire_at, work.decision.deciding.taint) == (10, taint())


def test_nothing_is_taken_before_it_is_due() -> None:
    """The next instant is exact, so nothing has to poll."""
    stage = armed()
    assert stage.brain.attempts.next_at(moment(stage.now)) == 10
    assert stage.at(9.999).take() == []


def test_an_eviction_in_flight_is_not_taken_again() -> None:
    """A pod never has two pieces of work in flight, whatever is seen meanwhile."""
    stage = armed()
    stage.at(10).take_eviction()
    stage.sees(pod(tolerates(1)), node(taint(), taint("k2")))
    assert stage.brain.attempts.next_at(moment(stage.now)) is None
    assert stage.at(1000).take() == []


def test_an_eviction_is_reported_with_its_lateness() -> None:
    """W18: the lateness is the time from the deadline to the accepted deletion, in seconds."""
    stage = armed()
    work = stage.at(10.5).take_eviction()
    assert stage.at(12).finish(work, Done()) == [Evicted(ref(), "n1", work.decision, 2.0)]
    assert stage.deadlines() == {}


def test_a_pod_whose_deletion_was_accepted_is_not_evicted_again() -> None:
    """W13: until the pod is gone, neither a lagging watch nor another taint causes another eviction."""
    stage = armed()
    stage.finish(stage.at(10).take_eviction(), Done())
    stage.sees(pod(tolerates(1)), node(taint(), taint("k2")), pod(terminating=True))
    explanation = stage.brain.status.explain(ref().key, moment(stage.now))
    assert explanation is not None
    assert explanation.record.deleted
    assert stage.at(1e6).take() == []


@pytest.mark.parametrize("outcome", [Done(), PodIsGone(), CalledOff(), CutOff(), Suspended(), failed(99.0)])
def test_settling_twice_is_an_error(outcome: WorkOutcome) -> None:
    """Work that is not in flight can't end."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.finish(work, CalledOff())
    with pytest.raises(ValueError, match="not in flight"):
        stage.finish(work, outcome)


def test_only_the_work_in_flight_can_be_settled() -> None:
    """An earlier piece of work for the same pod does not end the one in flight."""
    stage = armed()
    first = stage.at(10).take_eviction()
    stage.finish(first, failed(11))
    stage.at(11).take_eviction()
    with pytest.raises(ValueError, match="not in flight"):
        stage.finish(first, Done())


def test_these_tests_know_every_outcome() -> None:
    """The union of outcomes is closed; a new outcome has to be added to these tests too."""
    assert set(get_args(WorkOutcome)) == {Done, PodIsGone, CalledOff, CutOff, Suspended, Failed}


def test_an_eviction_is_called_off_when_the_taint_is_gone() -> None:
    """W11: the node is read again between two calls, and has become clean."""
    stage = armed()
    work = stage.at(10).take_eviction()
    assert stage.decide_again(work)
    stage.observe(NodeSeen(node(), asked_at=10))
    assert not stage.decide_again(work)
    assert stage.finish(work, CalledOff()) == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]


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
def test_an_eviction_is_called_off_when(told: NodeGone | NodeSeen | PodGone | PodSeen) -> None:
    """W2, W5, W11, W12, W13: the recheck before the next call notices each of these changes."""
    stage = armed()
    work = stage.at(12).take_eviction()
    stage.observe(told)
    assert not stage.decide_again(work)
    stage.finish(work, CalledOff())
    assert "a" not in uids(stage.take())


def test_an_eviction_that_is_called_off_because_it_is_due_later_waits_again() -> None:
    """W5: the pod's toleration is extended while its eviction is in flight."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.sees(pod(tolerates(30)))
    stage.finish(work, CalledOff())
    assert stage.deadlines() == {"a": 30}
    assert stage.play(1000) == [(30, "a")]


def test_suspended_work_begins_again_as_if_it_had_not_begun() -> None:
    """For example, this replica does not lead at this moment: no failure is counted, and nothing is reported."""
    stage = armed()
    work = stage.at(10).take_eviction()
    assert stage.finish(work, Suspended()) == []
    assert stage.at(20).take_eviction() == work


def test_a_pod_that_is_gone_is_forgotten() -> None:
    """W8: 404 and a UID conflict end the eviction; the deadline is cancelled, and no failure is counted."""
    stage = armed()
    work = stage.at(10).take_eviction()
    assert stage.finish(work, PodIsGone()) == [Cancelled(ref(), "n1", None)]
    assert stage.brain.status.explain(ref().key, moment(stage.now)) is None
    assert stage.sees(pod(tolerates(10), version=5)) == []
    assert stage.at(1000).take() == []


# Late completions


@pytest.mark.parametrize("outcome", [Done(), PodIsGone(), CalledOff(), CutOff(), Suspended(), failed(500.0)])
def test_a_late_completion_keeps_the_successors_deadline(outcome: WorkOutcome) -> None:
    """W3: whatever the first pod's slow call returns, its successor's deadline stays and can be cancelled."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.at(11).sees(pod(tolerates(10), uid="b"))
    stage.at(15).finish(work, outcome)
    assert stage.deadlines() == {"b": 21}
    assert stage.at(20).sees(node())[-1] == Cancelled(ref(uid="b"), "n1", StayReason.NODE_CLEAN)
    assert stage.play(1000) == []


def test_two_pods_with_one_name_may_be_in_flight() -> None:
    """W3: a slow call for the first pod does not delay the second, and each is settled on its own."""
    stage = armed()
    first = stage.at(10).take_eviction()
    stage.sees(pod(uid="b"))
    second = stage.take_eviction()
    assert [first.ref.uid, second.ref.uid] == ["a", "b"]
    assert isinstance(stage.finish(second, Done())[0], Evicted)
    assert isinstance(stage.finish(first, Done())[0], Evicted)
    assert stage.play(1000) == []


def test_a_pod_that_is_gone_before_the_calls_answer_counts_as_evicted() -> None:
    """The watch shows the deletion before the call's own answer; the eviction is reported once."""
    stage = armed()
    work = stage.at(10).take_eviction()
    assert stage.observe(PodGone(ref())) == []
    assert stage.finish(work, Done()) == [Evicted(ref(), "n1", work.decision, 0.0)]


@pytest.mark.parametrize("outcome", [CalledOff(), failed(40)])
def test_an_attempt_that_outlives_the_watch_of_its_pod_was_for_a_taint_that_is_gone(outcome: WorkOutcome) -> None:
    """Nobody said that the pod is gone, so it must not be reported as gone."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.sees(node())
    assert stage.observe(PodsReleased("n1")) == []
    assert not stage.decide_again(work)
    assert stage.finish(work, outcome) == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]


def test_an_attempt_that_outlives_its_node_is_cancelled_because_the_node_is_gone() -> None:
    """The pods of a deleted node are released as well."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.observe(NodeGone("n1"), PodsReleased("n1"))
    assert stage.finish(work, CalledOff()) == [Cancelled(ref(), "n1", StayReason.NODE_UNKNOWN)]


def test_an_attempt_whose_node_is_tainted_again_after_its_pods_were_released_was_for_the_first_taint() -> None:
    """The new taint's countdown begins when its pods are listed."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.sees(node())
    stage.observe(PodsReleased("n1"))
    stage.sees(node(taint(), version=3))
    assert stage.finish(work, CalledOff()) == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]


# Retries


def test_a_failed_eviction_is_retried_until_it_succeeds() -> None:
    """W8: each failure is reported, with the number of tries and the first try's time."""
    stage = armed()
    for tries in range(50):
        work = stage.at(10 + tries).take_eviction()
        assert work.tries == tries
        told = stage.finish(work, failed(11.0 + tries))
        assert told == [Refused(ref(), "n1", "denied", tries + 1, 10, 11 + tries)]
        assert stage.take() == []
    assert stage.play(1000) == [(60, "a")]


def test_a_retry_never_opens_a_new_window() -> None:
    """W8: the original deadline stays, and the lateness counts from it."""
    stage = armed()
    stage.finish(stage.at(10).take_eviction(), failed(40))
    stage.at(20).sees(pod(tolerates(10), marked=True), node(taint(), taint("k2")))
    assert stage.brain.attempts.next_at(moment(stage.now)) == 40
    work = stage.at(40).take_eviction()
    assert work.marked
    assert stage.finish(work, Done()) == [Evicted(ref(), "n1", work.decision, 30.0)]


def test_a_longer_tolerance_outlasts_a_retry() -> None:
    """W5: the deadline may still move between two tries, and the pod is not evicted before the new one."""
    stage = armed()
    stage.finish(stage.at(10).take_eviction(), failed(20))
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
    """W8: a failed eviction is retried only while it is wanted."""
    stage = armed()
    stage.finish(stage.at(10).take_eviction(), failed(40))
    [effect] = [effect for effect in stage.at(20).observe(told) if isinstance(effect, Cancelled)]
    assert effect.ref == ref()
    assert stage.at(1000).take() == []


def test_failed_attempts_end_with_their_eviction() -> None:
    """The node becomes clean and is tainted again: the new eviction begins with a first try."""
    stage = armed()
    stage.finish(stage.at(10).take_eviction(), failed(40))
    stage.at(20).sees(node())
    stage.at(21).sees(node(taint("k2")))
    assert stage.take_eviction().tries == 0


def test_a_failure_of_an_unwanted_eviction_is_reported_as_cancelled() -> None:
    """W17: the effect says what happened, which is the cancellation."""
    stage = armed()
    work = stage.at(10).take_eviction()
    stage.sees(node())
    assert stage.finish(work, failed(40)) == [Cancelled(ref(), "n1", StayReason.NODE_CLEAN)]
    assert stage.at(1000).take() == []


# Order


def crowd(stage: Stage, count: int, prefix: str, seconds: int) -> None:
    """Add pods with the same tolerance."""
    for number in range(count):
        stage.sees(pod(tolerates(seconds), name=f"{prefix}{number}", uid=f"{prefix}{number}"))


def test_first_tries_come_before_retries_each_most_overdue_first() -> None:
    """W14: no more begin than there is room for."""
    stage = Stage()
    stage.sees(node(taint()))
    crowd(stage, 2, "old-", 1)
    for work, retry_at in zip(stage.at(1).take(), [3.0, 2.0], strict=True):
        stage.finish(work, failed(retry_at))
    crowd(stage, 2, "late-", 5)
    crowd(stage, 1, "early-", 4)
    stage.at(10)
    assert uids(stage.take(most=2)) == ["early-0", "late-0"]
    assert uids(stage.take(most=2)) == ["late-1", "old-1"]
    assert uids(stage.take(most=2)) == ["old-0"]


def test_retries_take_no_more_than_their_share() -> None:
    """W14: this applies without first tries too; the retries that are left stay due."""
    stage = Stage()
    stage.sees(node(taint()))
    crowd(stage, 6, "p", 1)
    for work in stage.at(1).take():
        stage.finish(work, failed(2))
    stage.at(5)
    assert len(stage.take(most=10, max_retries=0)) == 0
    assert len(stage.take(most=10, max_retries=4)) == 4
    assert len(stage.take(most=1, max_retries=4)) == 1
    assert stage.brain.attempts.next_at(moment(stage.now)) == 5
    assert stage.brain.attempts.next_at(moment(stage.now), retries=False) is None


def test_while_limits_let_first_tries_go_each_fourth_is_a_retry() -> None:
    """New pods may come for ever; the retries that are owed stay within their share of the workers."""
    stage = Stage(eviction=EvictionPolicy(total=Limit(1.0, 100)))
    stage.sees(node(taint()))
    crowd(stage, 3, "old-", 1)
    for work in stage.at(1).take():
        stage.finish(work, failed(2))
    crowd(stage, 9, "new-", 3)
    assert uids(stage.at(5).take(most=3)) == ["new-0", "new-1", "new-2"]
    assert uids(stage.take(most=1, max_retries=0)) == ["new-3"]
    assert uids(stage.take(most=8, max_retries=1)) == ["old-0", "new-4", "new-5", "new-6", "new-7", "new-8"]
    assert uids(stage.take(most=8)) == ["old-1", "old-2"]


def test_retries_that_a_limit_holds_up_are_owed_until_they_go() -> None:
    """A limit of the retry's own has no room when it is owed; first tries go on meanwhile."""
    stage = Stage(eviction=EvictionPolicy(per_node=Limit(1.0, 1)))
    stage.sees(node(taint()), node(taint(), name="n2"))
    crowd(stage, 1, "old-", 1)
    stage.finish(stage.at(1).take_eviction(), failed(2))
    for number in range(8):
        stage.sees(pod(tolerates(3), name=f"new-{number}", uid=f"new-{number}", on="n1" if number < 4 else "n2"))
    begun: dict[int, list[str]] = {}
    for at in (5, 6, 7):
        works = stage.at(at).take()
        begun[at] = uids(works)
        for work in works:
            stage.send(work)
            stage.finish(work, Done())
    assert begun == {5: ["new-0", "new-4"], 6: ["new-1", "new-5"], 7: ["old-0", "new-6"]}


def test_no_more_of_two_thousand_evictions_begin_than_there_are_workers() -> None:
    """W14: removing the taint calls off all evictions that have not been sent yet."""
    stage = Stage()
    stage.sees(node(taint()))
    crowd(stage, 2_000, "p", 0)
    begun = stage.take(most=10)
    assert len(begun) == 10
    stage.sees(node())
    assert not any(stage.decide_again(work) for work in begun)
    assert stage.take() == []


# Explanations


def test_an_explanation_says_everything_about_a_pod() -> None:
    """It contains the decision, the state, and the failed attempts so far; an unknown pod has none."""
    stage = armed()
    stage.finish(stage.at(10).take_eviction(), failed(12))
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


def test_pending_evictions_are_listed_with_their_failed_attempts() -> None:
    """A pod that tolerates its taint indefinitely is not among them."""
    stage = armed(5)
    stage.sees(pod(tolerates(), name="kept", uid="kept"), pod(tolerates(50), name="p2", uid="armed"))
    stage.finish(stage.at(5).take_eviction(), failed(9))
    told = {one.record.pod.ref.uid: one.failures for one in stage.brain.status.pending(moment(stage.now))}
    assert told["armed"] is None
    assert told["a"] is not None
    assert set(told) == {"a", "armed"}
    assert stage.brain.tainted_nodes() == frozenset({"n1"})


def test_a_recheck_changes_nothing() -> None:
    """The same work may be rechecked any number of times."""
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
    """The test follows a pod from its stay over its deadline and a retry to the accepted deletion."""
    stage = Stage(breaker=BreakerPolicy(enabled=True, settle_seconds=2.0))
    stage.sees(node(taint("k2")), pod(tolerates(10), tolerates(None, "k2")))
    assert state_of(stage) == Stays(StayReason.TOLERATED)
    stage.sees(node(taint()))
    plan = Schedule(FlowKey("n1", "shop", ""), 10.0, False, None)
    assert state_of(stage) == Waiting(10.0, plan)
    stage.at(10).evaluate()
    assert state_of(stage) == Stabilizing(12.0, plan)
    stage.lists("n1")
    stage.at(12).evaluate()
    assert state_of(stage) == Queued(plan)
    work = stage.take_eviction()
    assert state_of(stage) == InFlight(work, plan, (), Step.BEGUN)
    stage.brain.attempts.will_mark(work.ref)
    assert state_of(stage) == InFlight(work, plan, (), Step.MARKING)
    stage.send(work)
    assert state_of(stage) == InFlight(work, plan, (), Step.ENDING)
    stage.finish(work, failed(15))
    assert state_of(stage) == Retrying(15.0, plan._replace(fire_at=15.0, retry=True))
    stage.finish(stage.at(15).take_eviction(), Done())
    assert state_of(stage) == Deleted(15.0)


def test_a_pod_whose_eviction_is_called_off_has_a_reason_to_stay() -> None:
    """The reason is in its record."""
    stage = armed()
    stage.sees(node())
    assert state_of(stage) == Stays(StayReason.NODE_CLEAN)
