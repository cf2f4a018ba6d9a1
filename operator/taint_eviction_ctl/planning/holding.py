"""What holds all pods of a plan, if anything does: people's pauses, the breaker, rules that pause, budgets.

The plan itself is made as if there were no pauses and no breaker.
"""

from collections.abc import Collection

from taint_eviction.core.control_state import ControlState, Pause
from taint_eviction_ctl.planning.plan import Plan
from taint_eviction_ctl.planning.planned_pod import PlannedPod

_MAX_NAMES = 4


def holders(plan: Plan, control_state: ControlState) -> set[str] | None:
    """Return which kinds of holds keep all pods that would leave; None if some still leave, or none would."""
    found = [_holder(plan, pod, control_state) for pod in plan.leaving]
    return {each for each in found if each} if found and all(found) else None


def named(found: Collection[str]) -> str:
    """Return the names of what holds pods, at most the first few."""
    names = sorted(found)
    more = [f"{len(names) - _MAX_NAMES} others like these"] if len(names) > _MAX_NAMES else []
    return ", or ".join([*names[:_MAX_NAMES], *more])


def _holder(plan: Plan, pod: PlannedPod, control_state: ControlState) -> str:
    """Return what holds a pod; "" if nothing does."""
    if pod.adopted is False:
        return ""  # The built-in controller evicts it.
    latch, planned = control_state.latch, pod.facts.pod
    if latch is not None and (not pod.out_of_service or latch.out_of_service or latch.unreadable):
        return "the circuit breaker, which is open"
    pauses = {
        "a pause of all evictions": control_state.cluster,
        f"a pause of node {planned.node_name}": control_state.nodes.get(planned.node_name or ""),
        f"a pause of namespace {planned.ref.key.namespace}": control_state.namespaces.get(planned.ref.key.namespace),
    }
    for words, pause in pauses.items():
        if pause is not None and _lasts(plan, pod, pause):
            return words
    if pod.paused_by:
        return f"rule {pod.paused_by}"
    return "budgets" if pod.blocked and pod.deleted_at is None else ""


def _lasts(plan: Plan, pod: PlannedPod, pause: Pause) -> bool:
    """Return whether a pause still holds when the pod would leave."""
    return pause.until_epoch is None or plan.now.epoch_of(max(plan.now.at, pod.leaves_at or 0.0)) < pause.until_epoch
