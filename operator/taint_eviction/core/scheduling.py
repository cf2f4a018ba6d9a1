"""Whether a pod could be scheduled on a node again: the scheduler's view of taints, for explanations only.
Unlike for evictions, any matching toleration counts, not only the first, and its seconds do not matter.

Reference: pkg/scheduler/framework/plugins/tainttoleration
"""

from collections.abc import Iterable

from taint_eviction.core.matching import matches
from taint_eviction.core.objects import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration


def repelling(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints (NoSchedule and NoExecute) that keep such a pod from being scheduled on their node."""
    return _untolerated(tuple(tolerations), taints, (NO_SCHEDULE, NO_EXECUTE))


def discouraging(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints (PreferNoSchedule) because of which the scheduler avoids their node for such a pod."""
    return _untolerated(tuple(tolerations), taints, (PREFER_NO_SCHEDULE,))


def _untolerated(
    tolerations: tuple[Toleration, ...], taints: Iterable[Taint], effects: tuple[str, ...]
) -> tuple[Taint, ...]:
    return tuple(
        taint
        for taint in taints
        if taint.effect in effects and not any(matches(toleration, taint) for toleration in tolerations)
    )
