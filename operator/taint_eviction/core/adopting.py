"""Which countdowns of a pod are to be adopted on its node, and when the pod may have its seconds back.

Not here: when that is asked, and what is noted (``adoption``).
"""

from collections.abc import Iterable, Sequence

from taint_eviction.core.adoption import AdoptedBy
from taint_eviction.core.matching import matches
from taint_eviction.core.objects import NO_EXECUTE, Pod, Taint, Toleration


def places_to_adopt(spec_tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> tuple[int, ...]:
    """Return the places of all tolerations whose seconds would keep a timer of the built-in controller's running."""
    evicting = [taint for taint in taints if taint.effect == NO_EXECUTE]
    return tuple(
        place
        for place, toleration in enumerate(spec_tolerations)
        if toleration.toleration_seconds is not None and any(matches(toleration, taint) for taint in evicting)
    )


def adoption_matters(pod: Pod, taints: Iterable[Taint]) -> bool:
    """Tell whether a countdown that the controller adopted may still run: a noted toleration matches a taint.

    What an admission policy took is never for the leader to give back, so it always matters.
    """
    if pod.adoption is None:
        return False
    if pod.adoption.by == AdoptedBy.ADMISSION.value:
        return True
    # Those whose seconds only the note has. Both are in the spec's order.
    noted = [
        counted
        for counted, spec in zip(pod.tolerations, pod.spec_tolerations, strict=True)
        if counted.toleration_seconds is not None and spec.toleration_seconds is None
    ]
    return bool(places_to_adopt(noted, taints))
