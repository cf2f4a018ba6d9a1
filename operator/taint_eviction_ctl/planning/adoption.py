"""Whose countdowns are taken over, and which pods the built-in controller evicts, if it runs beside this one.

A countdown can only be taken over while it runs. A pod that does not tolerate a taint at all is evicted by the built-in
controller at once, and no guard of this controller holds it.
"""

from collections import Counter

from taint_eviction.core.adoption import has_countdown, may_be_marked
from taint_eviction.core.decision import counted_seconds
from taint_eviction.core.objects import Pod
from taint_eviction.core.text import many
from taint_eviction_ctl.planning.plan import Plan
from taint_eviction_ctl.planning.planned_pod import PlannedPod


def add_adoption(plan: Plan, adopt_from_seconds: float, stopped: bool = False) -> None:
    """Note for each pod whether its countdown would be taken over, if shorter tolerances than this are left alone.
    ``stopped``: hand-back was ordered, so none is. For other pods the plan says what this controller would do: the
    built-in one may be sooner.
    """
    leaving, left = 0, Counter[str]()
    for pod in plan.pods:
        seconds = _tolerance_seconds(pod)
        if seconds is None:
            continue
        leaving += 1
        kind = _kind_left_alone(pod.forecast.pod, seconds, adopt_from_seconds)
        pod.adopted = not stopped and kind is None
        if not pod.adopted:
            left[kind or ""] += 1
    if left:
        why = "hand-back was ordered" if stopped else ", ".join(f"{kind} ({n})" for kind, n in left.most_common())
        plan.notes.append(
            f"the built-in controller evicts {left.total()} of {many(leaving, 'pod')}, past breaker, budgets, limits"
            f" and pauses: {why}"
        )
    elif leaving:
        plan.notes.append("all countdowns are taken over: breaker, budgets, limits and pauses hold the pods")


def _kind_left_alone(pod: Pod, seconds: float, adopt_from_seconds: float) -> str | None:
    """Return the kind of pods to which a pod belongs whose countdowns are never taken over; None: its countdown is."""
    if pod.finished:
        return "pods that have finished"
    if not has_countdown(pod):
        return "replicas of this controller"
    if not 0 < seconds >= adopt_from_seconds:
        return f"pods that tolerate a taint for less than {adopt_from_seconds:g} s, or not at all"
    return None if may_be_marked(pod) else "pods with too many tolerations"


def _tolerance_seconds(pod: PlannedPod) -> float | None:
    """Return for how long the built-in controller tolerates the pod's taints; None: it never evicts the pod."""
    if pod.forecast.pod.mirror or pod.forecast.pod.terminating:
        return None
    seconds = []
    for verdict in pod.forecast.decision.verdicts:
        # The built-in controller has no default toleration seconds.
        if verdict.toleration is None or verdict.by_default:
            seconds.append(0.0)
        elif verdict.fire_at is not None:
            # It has no ceiling, either.
            seconds.append(float(counted_seconds(verdict.toleration.toleration_seconds) or 0))
    return min(seconds, default=None)
