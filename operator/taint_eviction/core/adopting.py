"""Which countdowns of a pod are to be adopted on its node, and when the pod may have its seconds back.

Not here: when that is asked, and what is noted (``adoption``).
"""

from collections.abc import Iterable, Sequence

from taint_eviction.core.decision import DecisionPolicy, SeenTaint, judge
from taint_eviction.core.instants import Sighting
from taint_eviction.core.matching import matches
from taint_eviction.core.objects import NO_EXECUTE, Pod, Taint, Toleration

# The controller's own pods, all replicas: nothing may depend on a controller that adopted itself.
_OWN_LABEL = ("app.kubernetes.io/name", "taint-eviction-controller")

# The built-in controller knows neither default tolerances nor holds.
_BUILT_IN = DecisionPolicy()


def places_to_adopt(spec_tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> tuple[int, ...]:
    """Return the places of all tolerations whose seconds would keep a timer of the built-in controller's running."""
    evicting = [taint for taint in taints if taint.effect == NO_EXECUTE]
    return tuple(
        place
        for place, toleration in enumerate(spec_tolerations)
        if toleration.toleration_seconds is not None and any(matches(toleration, taint) for taint in evicting)
    )


def adoptable_until(pod: Pod, bound: Sighting | None, taints: Sequence[SeenTaint], earliest: float) -> float | None:
    """Return when the countdown ends that is to be adopted from the built-in controller; None: there is none.

    A first one has to end at ``earliest`` or later: what ends before is not worth a change. Of a pod that is adopted
    each further one counts, even if it is over by what is known here: the built-in controller counts seconds that were
    set again from that moment, and guards may hold the pod.
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
    """Tell whether a pod may have back what the controller took: none of that matches a taint any more.

    What was taken at its creation is never for the leader to give back.
    """
    if pod.adoption is None:
        return False
    taken = [pod.tolerations[place] for place in pod.adoption.by_controller]
    return not places_to_adopt(taken, taints) and bool(taken or not pod.adoption.by_admission)
