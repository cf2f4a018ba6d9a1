"""Which pods may carry a DisruptionTarget condition of this process's making, and which are owed its taking back.

A condition that was about to be written may be there, whatever the answer was; so it is owed to every pod whose
eviction is called off after that. Decides nothing and writes nothing: ``controller`` asks, the body writes.
"""

from taint_eviction.core.objects import PodRef
from taint_eviction.core.timed_queue import TimedWorkerQueue


class ConditionLedger:
    """Conditions by UID. ``owed`` has when each is to be taken back."""

    def __init__(self) -> None:
        self.owed = TimedWorkerQueue()
        self._marked: set[str] = set()
        self._tries: dict[str, int] = {}

    def will_mark(self, ref: PodRef) -> None:
        """Note that a condition is about to be written."""
        self._marked.add(ref.uid)

    def may_carry(self, ref: PodRef) -> bool:
        """Tell whether a pod may carry a condition that this process wrote."""
        return ref.uid in self._marked

    def tries(self, ref: PodRef) -> int:
        """Count the failed attempts to take the pod's condition back."""
        return self._tries.get(ref.uid, 0)

    def owe(self, ref: PodRef, at: float) -> None:
        """Owe taking a pod's condition back at ``at``; what is owed already keeps its time."""
        if ref not in self.owed:
            self.owed.schedule(ref, at)

    def try_again(self, ref: PodRef, tries: int, at: float) -> None:
        """Owe it again after so many failed attempts."""
        self._tries[ref.uid] = tries
        self.owed.schedule(ref, at)

    def owe_nothing(self, ref: PodRef) -> None:
        """Leave the condition where it is, for now."""
        self.owed.cancel(ref)

    def write_off(self, ref: PodRef) -> None:
        """Forget the pod: it is gone, or carries no condition any more."""
        self.owed.cancel(ref)
        self._marked.discard(ref.uid)
        self._tries.pop(ref.uid, None)

    def __len__(self) -> int:
        """Count what is remembered of any pod; 0 once all is written off."""
        return len(self.owed) + len(self._marked) + len(self._tries)
