"""Which countdowns of a pod the controller adopts, and when it may give ``tolerationSeconds`` back to the pod.
This module does not choose when to adopt, and does not hold the note (``adoption``).
"""

from collections.abc import Iterable, Sequence

from taint_eviction.core.decision import DecisionPolicy, SeenTaint, judge
from taint_eviction.core.instants import Sighting
from taint_eviction.core.matching import matches
from taint_eviction.core.objects import NO_EXECUTE, Pod, Taint, Toleration

# The controller's own pods, of all replicas: the controller must not adopt itself.
_OWN_LABEL = ("app.kubernetes.io/name", "taint-eviction-controller")

# The built-in controller knows neither default toleration seconds nor holds.
_BUILT_IN = DecisionPolicy()


def places_to_adopt(spec_tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> tuple[int, ...]:
    """Return the positions of all tolerations whose seconds would keep a timer of the built-in controller running."""
    evicting = [taint for taint in taints if taint.effect == NO_EXECUTE]
    return tuple(
        place
        for place, toleration in enumerate(spec_tolerations)
        if toleration.toleration_seconds is not None and any(matches(toleration, taint) for taint in evicting)
    )


def adoptable_until(pod: Pod, bound: Sighting | None, taints: Sequence[SeenTaint], earliest: float) -> float | None:
    """Return when the countdown that is to be adopted from the built-in controller ends; None if there is none.
    The first countdown of a pod must end at ``earliest`` or later: an earlier one is not worth a change. If the pod is
    already adopted, each further countdown counts, even if it seems to be over: the built-in controller restarts the
    countdown when the seconds are set again, and guards may hold the pod.
    """
    own = pod.labels.get(_OWN_LABEL[0]) == _OWN_LABEL[1]
    if bound is None or pod.mirror or pod.terminating or pod.finished or own:
        return None
    if not places_to_adopt(pod.spec_tolerations, [seen.taint for seen in taints]):
        return None
    ends = (judge(pod.spec_tolerations, seen, bound, _BUILT_IN).fire_at for seen in taints)
    until = min((end for end in ends if end is not None), default=None)
    if until is None or (until < earliest and pod.adoption is None):
        return None
    return until


def may_have_back(pod: Pod, taints: Iterable[Taint]) -> bool:
    """Return whether the controller may give back the seconds it took: no toleration concerned matches a taint any
    more. The leader never gives back seconds that were taken when the pod was created.
    """
    if pod.adoption is None:
        return False
    taken = [pod.tolerations[place] for place in pod.adoption.by_controller]
    return not places_to_adopt(taken, taints) and bool(taken or not pod.adoption.by_admission)
