"""Taking back DisruptionTarget conditions of this process's making from pods whose eviction was called off.

A condition that was about to be written may be there, whatever the answer was; so it is to be taken back from every
pod whose eviction is called off after that. Whether and when stands in the pod's record (``Condition``); the queue here
holds hints only. Decides nothing and writes nothing.
"""

from taint_eviction.core.objects import PodRef
from taint_eviction.core.pod_record import NO_CONDITION, Condition, PodRecord
from taint_eviction.core.timed_queue import TimedWorkerQueue


class TakeBacks:
    """When conditions are to be taken back."""

    def __init__(self) -> None:
        self._queue = TimedWorkerQueue()
        self._turns = 0

    def will_mark(self, record: PodRecord) -> None:
        """Note that a condition is about to be written."""
        before = record.condition
        record.condition = Condition(True, before.take_back_at, before.tries, before.turn)

    def want(self, record: PodRecord, at: float) -> None:
        """Have a pod's condition taken back at ``at``, or when that is wanted already."""
        if record.condition.take_back_at is None:
            self._schedule(record, at, record.condition.tries)

    def want_again(self, record: PodRecord, at: float, tries: int) -> None:
        """Have it taken back at ``at``, after so many attempts that failed."""
        self._schedule(record, at, tries)

    def _schedule(self, record: PodRecord, at: float, tries: int) -> None:
        self._turns += 1
        record.condition = Condition(record.condition.may_be_there, at, tries, self._turns)
        self.place(record)

    def place(self, record: PodRecord) -> None:
        """Put the hint where the record says."""
        if record.condition.take_back_at is not None:
            self._queue.schedule(record.ref, record.condition.take_back_at)

    def cancel(self, record: PodRecord) -> None:
        """Leave the condition where it is, for now."""
        if record.condition.take_back_at is not None:
            self._queue.cancel(record.ref)
            record.condition = Condition(record.condition.may_be_there, None, record.condition.tries)

    def forget(self, record: PodRecord) -> None:
        """Note that there is no such condition: the pod is gone, or was deleted, or its condition was taken back."""
        self.cancel(record)
        record.condition = NO_CONDITION

    def next_at(self) -> float | None:
        """Say when the next is due, None if there is none."""
        return self._queue.next_fire_at()

    def pop_due(self, now: float) -> PodRef | None:
        """Take out the one that has been due for longest; None if none is due."""
        entry = self._queue.pop_due(now)
        return None if entry is None else entry.ref
