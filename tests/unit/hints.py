"""The hints in the brain's queues: which there are, and how to fill the queues anew from the records."""

from collections.abc import Iterable

from taint_eviction.core.controller import Controller
from taint_eviction.core.eviction_queue import EvictionQueue
from taint_eviction.core.fair_queue import FairQueue
from taint_eviction.core.pods import PodRecord, WaitingState
from taint_eviction.core.timed_queue import TimedWorkerQueue


def timed(queue: EvictionQueue) -> dict[str, TimedWorkerQueue]:
    """The queues that wait for an instant."""
    return {
        "waiting": queue._first_tries,
        "settling": queue._stabilizing,
        "retrying": queue._retries,
        "taint changes": queue._taint_changes,
    }


def fair(queue: EvictionQueue) -> dict[str, FairQueue]:
    """The queues that wait for a turn."""
    return {
        "queued": queue._due_first,
        "queued again": queue._due_again,
        "queued unanswered": queue._due_unanswered,
        "following": queue._following,
    }


def places(queue: EvictionQueue, uid: str) -> list[str]:
    """Name the queues that have a hint to a pod; the one that tells when another taint governs it is no place."""
    return [place for place in hints(queue).get(uid, []) if place != "taint changes"]


def hints(queue: EvictionQueue) -> dict[str, list[str]]:
    """Name the queues that have a hint to each pod, by UID."""
    found: dict[str, list[str]] = {}
    for name, each in timed(queue).items():
        for entry in each:
            found.setdefault(entry.ref.uid, []).append(name)
    for name, lines in fair(queue).items():
        for waiting in lines._entries.values():
            found.setdefault(waiting.ref.uid, []).append(name)
    return found


def waiting_uids(records: Iterable[PodRecord]) -> list[str]:
    """List the UIDs of the records that wait for something."""
    return sorted(record.ref.uid for record in records if isinstance(record.state, WaitingState))


def fill_anew(brain: Controller, now: float) -> None:
    """Throw all hints away and fill the queues from the records; limits and whose turn it is stay."""
    queue, take_backs = brain._queue, brain._reconciler._take_backs
    queue._first_tries, queue._stabilizing, queue._retries = (TimedWorkerQueue() for _ in range(3))
    queue._taint_changes = TimedWorkerQueue()
    for lines in fair(queue).values():
        lines._entries, lines._flows, lines._blocked = {}, {}, 0
        lines._ready, lines._kept, lines._calls = [], {}, []
    for ref in [follower.ref for follower in queue.order._followers.values()]:
        queue.order.unfollow(ref)
    records = sorted(brain.pods, key=lambda record: record.turn)
    for record in records:
        if isinstance(record.state, WaitingState):
            queue.place(record.ref, record.state, now)
    for record in sorted(records, key=lambda record: record.schedule_turn):
        if isinstance(record.state, WaitingState):
            queue.place_taint_change(record.ref, record.state.schedule)
    take_backs._queue = TimedWorkerQueue()
    for record in sorted(records, key=lambda record: record.condition.turn):
        take_backs.place(record)
