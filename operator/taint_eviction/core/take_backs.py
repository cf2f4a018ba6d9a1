"""Taking back DisruptionTarget conditions that this process set, from pods whose eviction was cancelled.
A condition that was about to be written may be there, whatever the answer was; so it is taken back from every pod whose
eviction is cancelled after that. A request that had no answer may write it after a take-back that found none, so there
is one more after the time that a request may be late. The pod's record says whether and when (``Condition``); the queue
here holds hints only. This module decides nothing and writes nothing.
"""

from taint_eviction.core.instants import LATE_WRITE_SECONDS
from taint_eviction.core.objects import PodRef
from taint_eviction.core.pods import PodRecord
from taint_eviction.core.timed_queue import TimedWorkerQueue


class TakeBacks:
    """When conditions are to be taken back."""

    def __init__(self) -> None:
        self._queue = TimedWorkerQueue()
        self._turns = 0

    def want(self, record: PodRecord, at: float) -> None:
        """Schedule the take-back of a pod's condition for ``at``, unless it is already scheduled or under way."""
        if record.condition.take_back_at is None and record.taking_back is None:
            self.want_again(record, at, record.condition.tries)

    def hasten(self, record: PodRecord, at: float) -> None:
        """Note that the condition was seen: a take-back that waits for a late request is scheduled for ``at``."""
        if record.condition.take_back_at == record.condition.late_until:
            self.want_again(record, at, record.condition.tries)

    def want_again(self, record: PodRecord, at: float, tries: int) -> None:
        """Schedule the take-back for ``at``, after ``tries`` failed attempts."""
        self._turns += 1
        record.want_take_back(at, tries, self._turns)
        self.place(record)

    def ended(self, record: PodRecord, now: float) -> bool:
        """Note that a take-back found no condition, or reset it; return whether none can come any more."""
        late_until = record.condition.late_until
        if now < late_until:
            self.want_again(record, late_until, 0)
        else:
            self.forget(record)
        return now >= late_until

    def may_come_late(self, record: PodRecord, now: float) -> None:
        """Note that a request to set the condition had no answer."""
        record.may_be_marked_late(now + LATE_WRITE_SECONDS)

    def place(self, record: PodRecord) -> None:
        """Put the hint where the record says."""
        if record.condition.take_back_at is not None:
            self._queue.schedule(record.ref, record.condition.take_back_at)

    def cancel(self, record: PodRecord) -> None:
        """Leave the condition on the pod, for now."""
        if record.condition.take_back_at is not None:
            self._queue.cancel(record.ref)
            record.leave_condition()

    def forget(self, record: PodRecord) -> None:
        """Note that there is no such condition: the pod is gone, or was deleted, or its condition was taken back."""
        self.cancel(record)
        record.forget_condition()

    def next_at(self) -> float | None:
        """Return when the next take-back is due, None if there is none."""
        return self._queue.next_fire_at()

    def pop_due(self, now: float) -> PodRef | None:
        """Remove and return the pod that has been due for longest; None if none is due."""
        entry = self._queue.pop_due(now)
        return None if entry is None else entry.ref
