"""The hints in the brain's queues: how many there are, and how to fill the queues anew from the records."""

from collections import Counter
from collections.abc import Iterable

from tests.memory import kept

from taint_eviction.core.controller import Controller
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.fair_queue import FairQueue
from taint_eviction.core.pods import Following, PodRecord, PodState, Queued, WaitingState
from taint_eviction.core.take_backs import TakeBacks
from taint_eviction.core.timed_queue import TimedWorkerQueue


def hints(whole: object) -> int:
    """Count the hints in all queues of a controller, or of one of its parts."""
    queues: list[TimedWorkerQueue | FairQueue] = kept(whole, TimedWorkerQueue, FairQueue)
    return sum(map(len, queues))


def wanted_hints(records: Iterable[PodRecord]) -> int:
    """Count the hints that there are to be: to a pod that waits, one to its place, and one to each of its instants.

    A retry that waits for pods of earlier tiers is not counted in the queue, so there is no hint to its place.
    """
    count = 0
    for record in records:
        count += record.condition.take_back_at is not None
        if isinstance(record.state, WaitingState):
            schedule = record.state.schedule
            count += not (isinstance(record.state, Following) and schedule.retry)
            count += schedule.next_taint_at is not None
    return count


def waiting_uids(records: Iterable[PodRecord]) -> list[str]:
    """List the UIDs of the records that wait for something."""
    return sorted(record.ref.uid for record in records if isinstance(record.state, WaitingState))


def fill_anew(brain: Controller, now: float) -> None:
    """Throw each hint away and put it where the pod's record says, one after the other; whose turn it is stays.

    Due pods keep their places where only one of them may go: a queue in which none may go forgets whose turn it is.
    """
    [queue], [take_backs] = kept(brain, EvictionQueue), kept(brain, TakeBacks)
    free = Counter(_due_as(record.state) for record in brain.pods if not _is_blocked(brain, record.state))
    for record in sorted(brain.pods, key=lambda each: each.turn):
        state = record.state
        if isinstance(state, WaitingState) and (free[_due_as(state)] > 1 or not isinstance(state, Queued)):
            queue.cancel(record)
            record.state = state
            queue.place(record.ref, state, now)
    for record in sorted(brain.pods, key=lambda each: each.schedule_turn):
        if isinstance(record.state, WaitingState):
            queue.place_taint_change(record.ref, record.state.schedule)
    for record in sorted(brain.pods, key=lambda each: each.condition.turn):
        condition = record.condition
        take_backs.cancel(record)
        record.condition = condition
        take_backs.place(record)


def _due_as(state: PodState) -> tuple[bool, bool] | None:
    """Return what the turns of a due pod go by; None: it is not due."""
    return (state.schedule.retry, state.schedule.unanswered) if isinstance(state, Queued) else None


def _is_blocked(brain: Controller, state: PodState) -> bool:
    """Return whether a guard blocks the flow of a due pod."""
    return isinstance(state, Queued) and brain.guards.blocking_flow(state.schedule.flow) is not None
