"""The timed-worker queue: which entry is due when."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory
from tests.unit.builders import Stage, node, pod, ref, taint, tolerates

from taint_eviction.core import eviction_queue
from taint_eviction.core.objects import PodRef
from taint_eviction.core.timed_queue import Entry, TimedWorkerQueue

A, B = ref(uid="a"), ref(uid="b")


def frozen_now() -> float:
    """Read the frozen clock."""
    return time.time()  # noqa: TID251 - the frozen clock of these replays; the code under test reads none


class KeepsKeyQueue(TimedWorkerQueue):
    """The mistake of W1, on purpose: a key stays taken once its work has begun, even for another pod with that name."""

    def __init__(self) -> None:
        super().__init__()
        self._done: set[tuple[str, str]] = set()

    def schedule(self, ref: PodRef, fire_at: float) -> None:
        """Ignore a key whose entry was popped before."""
        if ref.key not in self._done:
            super().schedule(ref, fire_at)

    def pop_due(self, now: float) -> Entry | None:
        """Pop an entry, but never release its key."""
        entry = super().pop_due(now)
        if entry is not None:
            self._done.add(entry.ref.key)
        return entry


def popped(queue: TimedWorkerQueue, now: float) -> list[str]:
    """Pop all entries that are due, and list their UIDs."""
    uids = []
    while (entry := queue.pop_due(now)) is not None:
        uids.append(entry.ref.uid)
    return uids


def test_an_empty_queue_has_nothing_due() -> None:
    """The queue reports no next instant either."""
    queue = TimedWorkerQueue()
    assert queue.pop_due(1e12) is None
    assert queue.next_fire_at() is None
    queue.cancel(A)
    assert len(queue) == 0


def test_entries_are_due_at_their_instant_and_not_before() -> None:
    """An entry is due at exactly its instant."""
    queue = TimedWorkerQueue()
    queue.schedule(A, 10)
    assert queue.pop_due(9.999) is None
    assert queue.next_fire_at() == 10
    entry = queue.pop_due(10)
    assert entry is not None
    assert (entry.ref, entry.fire_at) == (A, 10)
    assert queue.pop_due(1e12) is None


def test_the_most_overdue_entry_is_first_and_ties_keep_their_order() -> None:
    """Entries with equal times come in the order in which they were scheduled."""
    queue = TimedWorkerQueue()
    for uid, fire_at in [("late", 30), ("tie-1", 20), ("early", 10), ("tie-2", 20)]:
        queue.schedule(ref(uid, uid), fire_at)
    assert popped(queue, 100) == ["early", "tie-1", "tie-2", "late"]


def test_within_one_second_the_order_is_by_time_too() -> None:
    """An entry that is added after the next instant was read is in order too."""
    queue = TimedWorkerQueue()
    for uid, fire_at in [("d", 10.9), ("b", 10.2), ("e", 10.95), ("c", 10.5)]:
        queue.schedule(ref(uid, uid), fire_at)
    assert queue.next_fire_at() == 10.2
    queue.schedule(ref("a", "a"), 10.1)
    assert popped(queue, 100) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("second", [5.0, 20.0])
def test_scheduling_again_moves_an_entry_in_both_directions(second: float) -> None:
    """W5: the new time counts, whether it is earlier or later, and there is one entry."""
    queue = TimedWorkerQueue()
    queue.schedule(A, 10)
    queue.schedule(A, second)
    assert queue.next_fire_at() == second
    assert [(entry.ref, entry.fire_at) for entry in queue] == [(A, second)]
    assert popped(queue, 100) == ["a"]


def test_scheduling_the_same_again_keeps_the_turn() -> None:
    """An entry that does not change does not move behind its equals."""
    queue = TimedWorkerQueue()
    queue.schedule(ref("x", "x"), 10)
    queue.schedule(ref("y", "y"), 10)
    queue.schedule(ref("x", "x"), 10)
    assert popped(queue, 10) == ["x", "y"]


def test_a_new_uid_replaces_the_entry_of_the_old_one() -> None:
    """W1: a key has one entry, that of the UID that was scheduled last, even for the same instant."""
    queue = TimedWorkerQueue()
    queue.schedule(A, 10)
    queue.schedule(B, 10)
    assert len(queue) == 1
    assert popped(queue, 100) == ["b"]


def test_an_entry_is_cancelled_only_by_its_own_uid() -> None:
    """W3: a late cancellation does not affect another UID's entry."""
    queue = TimedWorkerQueue()
    queue.schedule(B, 10)
    queue.cancel(A)
    assert [entry.ref for entry in queue] == [B]
    queue.cancel(B)
    assert len(queue) == 0
    assert queue.next_fire_at() is None


def test_the_same_name_in_another_namespace_is_another_key() -> None:
    """A key consists of namespace and name."""
    queue = TimedWorkerQueue()
    queue.schedule(ref(namespace="x", uid="1"), 1)
    queue.schedule(ref(namespace="y", uid="2"), 2)
    assert popped(queue, 2) == ["1", "2"]


def stale_key_sequence(queue: TimedWorkerQueue) -> list[str]:
    """A pod is evicted and recreated by its StatefulSet under the same name, and its node is still tainted."""
    queue.schedule(A, 10)
    gone = popped(queue, 10)
    queue.cancel(A)
    queue.schedule(B, 20)
    return gone + popped(queue, 100)


def test_a_pod_recreated_under_its_name_gets_an_entry_of_its_own() -> None:
    """W1: nothing is left of the first pod's entry once it was popped."""
    assert stale_key_sequence(TimedWorkerQueue()) == ["a", "b"]


def test_a_queue_that_keeps_the_key_never_evicts_the_recreated_pod() -> None:
    """W1: the same sequence finds the mistake in a queue that has it."""
    assert stale_key_sequence(KeepsKeyQueue()) == ["a"]


def stale_key_story(make: Callable[[], TimedWorkerQueue]) -> list[tuple[float, str]]:
    """Play W1 on a whole controller with queues of this kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eviction_queue, "TimedWorkerQueue", make)
        stage = Stage()
    stage.sees(node(taint()), pod(tolerates(10), uid="a"))
    gone = stage.play(10)
    stage.at(12).sees(pod(tolerates(10), uid="b"))
    return gone + stage.play(1000)


def test_the_whole_controller_shows_a_stale_key() -> None:
    """W1: with a queue that keeps keys, the recreated pod is never evicted; with the real one, at its own deadline."""
    assert stale_key_story(KeepsKeyQueue) == [(10, "a")]
    assert stale_key_story(TimedWorkerQueue) == [(10, "a"), (22, "b")]


def test_a_replay_by_a_frozen_wall_clock_pops_at_the_exact_second() -> None:
    """The queue reads no clock: the caller passes the time, here from a frozen clock that the test moves."""
    queue = TimedWorkerQueue()
    with freeze_time("2026-03-01 12:00:00") as clock:
        start = frozen_now()
        queue.schedule(ref("quick", "quick"), start + 5)
        queue.schedule(ref("slow", "slow"), start + 25)
        timeline = []
        for second in range(30):
            timeline += [(second, uid) for uid in popped(queue, frozen_now())]
            clock.tick(timedelta(seconds=1))
    assert timeline == [(5, "quick"), (25, "slow")]


def test_a_replay_of_the_stale_key_by_a_frozen_wall_clock() -> None:
    """W1: the pod is evicted at 10 s, recreated at 15 s, and evicted again at 25 s, once each."""
    queue = TimedWorkerQueue()
    timeline = []
    with freeze_time("2026-03-01 12:00:00") as clock:
        start = frozen_now()
        queue.schedule(A, start + 10)
        for second in range(60):
            if second == 15:
                queue.schedule(B, frozen_now() + 10)
            timeline += [(second, uid) for uid in popped(queue, frozen_now())]
            clock.tick(timedelta(seconds=1))
    assert timeline == [(10, "a"), (25, "b")]


def test_a_wall_clock_that_steps_back_delays_entries_and_repeats_none() -> None:
    """A clock that moves back by an hour makes no entry due twice, and loses none."""
    queue = TimedWorkerQueue()
    with freeze_time("2026-03-01 12:00:00") as clock:
        assert isinstance(clock, FrozenDateTimeFactory)
        start = frozen_now()
        queue.schedule(ref("first", "first"), start + 10)
        queue.schedule(ref("second", "second"), start + 20)
        clock.tick(timedelta(seconds=15))
        assert popped(queue, frozen_now()) == ["first"]
        clock.move_to("2026-03-01 11:00:00")
        assert popped(queue, frozen_now()) == []
        clock.move_to("2026-03-01 12:00:20")
        assert popped(queue, frozen_now()) == ["second"]


@freeze_time("2026-03-01 12:00:00", auto_tick_seconds=1)
def test_a_replay_by_a_clock_that_ticks_with_each_reading() -> None:
    """An entry is due at the first reading at or after its instant."""
    queue = TimedWorkerQueue()
    start = frozen_now()
    queue.schedule(A, start + 2.5)
    looks = [queue.pop_due(frozen_now()) for _ in range(4)]
    assert [entry is not None for entry in looks] == [False, False, True, False]
