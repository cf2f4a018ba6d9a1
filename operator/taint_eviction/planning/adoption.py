"""Which pods are adopted, and which the built-in controller evicts, if it runs beside this one.

A countdown can only be adopted while it runs. A pod that does not tolerate a taint at all is evicted by the built-in
controller at once, and no guard of this controller holds it.
"""

import math

from taint_eviction.core.decision import TaintVerdict
from taint_eviction.core.instants import Moment
from taint_eviction.planning.plan import Plan
from taint_eviction.planning.planned_pod import PlannedPod


def add_adoption(plan: Plan, adopt_from_seconds: float) -> None:
    """Note for each pod whether it would be adopted, if adoption needs at least this much time left of its countdown.
    For pods that are not adopted the plan says what this controller would do: the built-in one may be sooner.
    """
    for pod in plan.pods:
        left_seconds = _left_seconds(pod, plan.now)
        if left_seconds is not None:
            pod.adopted = left_seconds >= adopt_from_seconds and not pod.facts.pod.finished
    leaving = [pod for pod in plan.pods if pod.adopted is not None]
    builtin = sum(not pod.adopted for pod in leaving)
    if builtin:
        plan.notes.append(
            f"the built-in controller evicts {builtin} of {len(leaving)} pods, past breaker, budgets, limits and"
            f" pauses: they do not tolerate a taint, or for less than {adopt_from_seconds:g} s"
        )
    elif leaving:
        plan.notes.append("all pods with a countdown are adopted: breaker, budgets, limits and pauses hold them")


def _left_seconds(pod: PlannedPod, now: Moment) -> float | None:
    """Return how much of the countdown is left when the controller sees it; None: the built-in one never evicts the
    pod.
    """
    if pod.forecast.pod.mirror or pod.forecast.pod.terminating:
        return None
    already = pod.forecast.pod.adoption is not None
    verdicts = pod.forecast.decision.verdicts
    left = [seconds for verdict in verdicts if (seconds := _left(verdict, now, already)) is not None]
    return min(left, default=None)


def _left(verdict: TaintVerdict, now: Moment, already: bool) -> float | None:
    # The built-in controller has no default toleration seconds.
    if verdict.toleration is None or verdict.by_default:
        return 0.0
    if verdict.toleration.toleration_seconds is None:
        return None
    # For an adopted pod the built-in controller has no timer, and further countdowns are adopted however short.
    if already:
        return math.inf
    return verdict.start_at + verdict.toleration.toleration_seconds - max(now.at, verdict.start_at)
