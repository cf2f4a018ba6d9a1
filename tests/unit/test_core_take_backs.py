"""Whether a condition of this controller may be on a pod, and when it is to be taken back."""

import pytest
from tests.unit.builders import decided, pod

from taint_eviction.core.events import Eviction
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.pods import NO_CONDITION, Condition, InFlight, PodRecord, Schedule
from taint_eviction.core.take_backs import TakeBacks


def record(uid: str = "a", name: str = "web-0") -> PodRecord:
    """The record of a pod."""
    return PodRecord(pod(name=name, uid=uid), 0.0)


def marked(record: PodRecord) -> None:
    """Let the condition of a pod be about to be written."""
    schedule = Schedule(FlowKey("n1", "shop", ""), 0, False, None)
    record.will_mark(InFlight(Eviction(record.ref, "n1", decided(), False, 0), schedule))


def test_a_take_back_keeps_its_time_and_can_be_cancelled() -> None:
    """To want it again for a later time changes nothing; after the cancellation nothing is due."""
    take_backs, a = TakeBacks(), record()
    take_backs.want(a, 5.0)
    take_backs.want(a, 9.0)
    assert (take_backs.next_at(), a.condition.take_back_at) == (5.0, 5.0)
    take_backs.cancel(a)
    assert (take_backs.next_at(), a.condition.take_back_at) == (None, None)


def test_failed_attempts_are_counted_until_the_condition_is_forgotten() -> None:
    """The next attempt replaces the one that was wanted."""
    take_backs, a = TakeBacks(), record()
    assert a.condition == NO_CONDITION
    marked(a)
    take_backs.want(a, 5.0)
    take_backs.want_again(a, 7.0, 2)
    assert (a.condition.tries, a.condition.may_be_there, take_backs.next_at()) == (2, True, 7.0)
    take_backs.forget(a)
    assert (a.condition, take_backs.next_at()) == (Condition(False, None, 0, 0), None)


def test_the_count_of_attempts_outlives_a_cancelled_take_back() -> None:
    """The condition is still on the pod, and the next attempt is not the first."""
    take_backs, a = TakeBacks(), record()
    take_backs.want_again(a, 7.0, 2)
    take_backs.cancel(a)
    take_backs.want(a, 9.0)
    assert (a.condition.tries, a.condition.take_back_at) == (2, 9.0)


@pytest.mark.parametrize("anew", [False, True])
def test_the_most_overdue_take_back_is_first_and_ties_keep_their_order(anew: bool) -> None:
    """The order is the same if the hints are placed anew from the records."""
    take_backs = TakeBacks()
    records = [record(uid, uid) for uid in ("c", "b", "a", "late")]
    for each, at in zip(records, (2.0, 2.0, 1.0, 9.0), strict=True):
        take_backs.want(each, at)
    if anew:
        take_backs = TakeBacks()
        for each in sorted(records, key=lambda each: each.condition.turn):
            take_backs.place(each)
    popped = [popped.uid for popped in iter(lambda: take_backs.pop_due(2.0), None) if popped is not None]
    assert popped == ["a", "c", "b"]
    assert take_backs.next_at() == 9.0


def test_a_record_without_a_take_back_places_no_hint() -> None:
    """A condition may be on the pod nevertheless."""
    take_backs, a = TakeBacks(), record()
    marked(a)
    take_backs.place(a)
    assert take_backs.next_at() is None


def test_after_a_request_without_an_answer_one_more_take_back_ends_it() -> None:
    """The request may arrive for 75 s: what ends before may be written again, what ends then may not."""
    take_backs, a = TakeBacks(), record()
    marked(a)
    take_backs.may_come_late(a, 10.0)
    take_backs.want(a, 12.0)
    assert not take_backs.ended(a, 13.0)
    assert (take_backs.next_at(), a.condition.may_be_there) == (85.0, True)
    assert take_backs.ended(a, 85.0)
    assert (take_backs.next_at(), a.condition) == (None, NO_CONDITION)


def test_only_a_take_back_that_waits_for_a_late_request_is_hastened() -> None:
    """One that failed keeps its pause."""
    take_backs, late, failed = TakeBacks(), record("a"), record("b", "web-1")
    for each in (late, failed):
        marked(each)
        take_backs.may_come_late(each, 10.0)
    take_backs.ended(late, 13.0)
    take_backs.want_again(failed, 40.0, 3)
    for each in (late, failed):
        take_backs.hasten(each, 20.0)
    assert (late.condition.take_back_at, failed.condition.take_back_at) == (20.0, 40.0)
