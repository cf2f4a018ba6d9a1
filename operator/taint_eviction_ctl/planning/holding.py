"""What keeps pods of a plan on their nodes at their deadlines: the guards of a running controller, and budgets.

The guards are ``core.guards``; this module asks them about each pod, as of the time at which it would leave.
"""

from taint_eviction.core.control_state import ControlState
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.guards import guards_of
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction_ctl.planning.plan import Plan
from taint_eviction_ctl.planning.planned_pod import Holder, PlannedPod

_BUDGETS = Holder("budgets", "budgets", "these allow it")


def add_holders(plan: Plan, control_state: ControlState, policy: EvictionPolicy) -> None:
    """Note for each pod that would leave what holds it then. The built-in controller evicts its pods past all that."""
    nodes = plan.inventory.nodes
    guards = guards_of(control_state, policy, lambda name: nodes[name].node.labels if name in nodes else None)
    for pod in plan.leaving:
        if pod.adopted is False or pod.handling is None:
            continue
        at = max(plan.now.at, pod.leaves_at or 0.0)
        flow = _flow(pod)
        blocking = guards.blocking_then(flow, plan.now._replace(at=at, server_epoch=plan.now.epoch_of(at)))
        pod.holders = tuple(Holder(each.reason.name.lower(), each.named(flow), each.ends) for each in blocking)
        if pod.blocked and pod.deleted_at is None:
            pod.holders += (_BUDGETS,)


def _flow(pod: PlannedPod) -> FlowKey:
    assert pod.handling is not None
    rule = "" if pod.handling.rule is None else pod.handling.rule.name
    return FlowKey(pod.facts.pod.node_name or "", pod.ref.key.namespace, rule, pod.handling.bypasses_limits)
