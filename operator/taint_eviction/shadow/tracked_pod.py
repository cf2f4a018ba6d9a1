"""What the shadow remembers of one pod while its eviction is compared."""

from collections import deque

from taint_eviction.core.decision import Evict
from taint_eviction.core.objects import Pod
from taint_eviction.shadow.comparison import BUILT_IN_REASON

_MAX_DEADLINES = 8


class TrackedPod:
    """One pod (one UID) that is to be evicted, here or by the built-in controller.

    ``pod``: as it was seen last, at ``seen_at``. ``deadlines``: all that it had here, the latest last.
    ``cancelled_at``: when it lost the latest. ``evicted_at``: when it was evicted here, by ``decision``;
    ``called_off_at``: when that was no longer wanted. ``marked``: the built-in controller has set its condition.
    ``compared``: what became of this eviction is known.
    """

    __slots__ = (
        "called_off_at",
        "cancelled_at",
        "compared",
        "deadlines",
        "decision",
        "evicted_at",
        "marked",
        "pod",
        "seen_at",
    )

    def __init__(self, pod: Pod, seen_at: float) -> None:
        self.pod = pod
        self.seen_at = seen_at
        self.deadlines: deque[float] = deque(maxlen=_MAX_DEADLINES)
        self.cancelled_at: float | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Compare another eviction of the same pod: what became of the last one is known."""
        self.decision: Evict | None = None
        self.evicted_at: float | None = None
        self.called_off_at: float | None = None
        self.marked = self.pod.disruption is not None and self.pod.disruption.reason == BUILT_IN_REASON
        self.compared = False

    @property
    def is_open(self) -> bool:
        """Tell whether it was evicted here, and what the built-in controller does is not known yet."""
        return self.evicted_at is not None and not self.compared

    @property
    def earlier_deadlines(self) -> list[float]:
        """List the deadlines that it had before the latest."""
        return list(self.deadlines)[:-1]
