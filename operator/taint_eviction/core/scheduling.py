"""Could a pod be scheduled on a node again: the scheduler's view of taints, for explanations only.

Other than for evictions, any toleration counts and not the first, and its seconds do not matter.

Reference: pkg/scheduler/framework/plugins/tainttoleration
"""

from collections.abc import Iterable

from taint_eviction.core.matching import matches
from taint_eviction.core.objects import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration


def repelling(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """List the taints (NoSchedule and NoExecute) for which no such pod is scheduled on their node."""
    return _untolerated(tuple(tolerations), taints, (NO_SCHEDULE, NO_EXECUTE))


def discouraging(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """List the taints (PreferNoSchedule) for which such a pod is scheduled on their node only if need be."""
    return _untolerated(tuple(tolerations), taints, (PREFER_NO_SCHEDULE,))


def _untolerated(
    tolerations: tuple[Toleration, ...], taints: Iterable[Taint], effects: tuple[str, ...]
) -> tuple[Taint, ...]:
    return tuple(
        taint
        for taint in taints
        if taint.effect in effects and not any(matches(toleration, taint) for toleration in tolerations)
    )
