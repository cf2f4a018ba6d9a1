"""When the built-in controller would evict a pod whose eviction is decided here, as far as this decision tells.

It knows the pod's own tolerations and the taints of its node, and nothing else: no default tolerance, ceiling, hold or
graceful shutdown. What no longer stands is not known here: the built-in controller keeps a timer that an earlier taint
or toleration has set. ``countdowns`` follows timers as they are set, where countdowns are taken over.

Reference: ``processPodOnNode`` in pkg/controller/tainteviction.
"""

from collections.abc import Iterable
from itertools import groupby

from taint_eviction.core.decision import TaintVerdict, counted_seconds

# Evictions by the two controllers at most this far apart are the same.
SAME_SECONDS = 2.0


def built_in_at(verdicts: Iterable[TaintVerdict]) -> float | None:
    """Return the instant at which it evicts the pod, None: never; if it has watched all the time.

    A taint that the pod does not tolerate evicts it at once. Otherwise the first taint that it tolerates for a time
    sets the timer, and no later taint moves that.
    """

    def starts(verdict: TaintVerdict) -> float:
        return verdict.start_at

    timer_at: float | None = None
    for start_at, joined in groupby(sorted(verdicts, key=starts), key=starts):
        if timer_at is not None and timer_at <= start_at:
            return timer_at
        spans = []
        for verdict in joined:
            if verdict.toleration is None or verdict.by_default:
                return start_at
            seconds = counted_seconds(verdict.toleration.toleration_seconds)
            spans += [] if seconds is None else [float(seconds)]
        if timer_at is None and spans:
            timer_at = start_at + min(spans)
    return timer_at
