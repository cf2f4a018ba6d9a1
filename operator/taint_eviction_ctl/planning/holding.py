"""What keeps pods of a plan on their nodes at their deadlines: the guards of a running controller, and budgets.

The guards are ``core.guards``; this module asks them about each pod, as of the time at which it would leave.
"""

from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.guards import guards_of
from taint_eviction.files.kubernetes_times import format_utc
from taint_eviction_ctl.planning.plan import Plan, rehearse
from taint_eviction_ctl.planning.planned_pod import Holder, PlannedPod
from taint_eviction_ctl.planning.rehearsal import Conditions

_BUDGETS = Holder("budgets", "budgets", "these allow it")
_BREAKER = Holder("breaker_open", "the circuit breaker", "it is reset")


def add_holders(plan: Plan, conditions: Conditions) -> None:
    """Note for each pod that would leave what holds it then. The built-in controller evicts its pods past all that."""
    opened = rehearse(plan, conditions) if conditions.blocks or _corrected(plan) else None
    if opened is not None:
        opens, cause = format_utc(opened.since_epoch), opened.cause
        plan.notes.append(f"the circuit breaker would open at {opens}, and no pod would leave from then on: {cause}")
    nodes = plan.inventory.nodes
    guards = guards_of(
        conditions.control_state, conditions.eviction, lambda name: nodes[name].node.labels if name in nodes else None
    )
    for pod in plan.leaving:
        if pod.adopted is False or pod.handling is None:
            pod.goes_at = pod.leaves_at
            continue
        at = max(plan.now.at, pod.leaves_at or 0.0)
        flow = _flow(pod)
        blocking = guards.blocking_then(flow, plan.now._replace(at=at, server_epoch=plan.now.epoch_of(at)))
        pod.holders = tuple(Holder(each.reason.name.lower(), each.named(flow), each.ends) for each in blocking)
        if pod.blocked and pod.deleted_at is None:
            pod.holders += (_BUDGETS,)
        if opened is not None and pod.goes_at is None and not pod.holders:
            pod.holders = (_BREAKER,)


def _corrected(plan: Plan) -> bool:
    """Return whether the API server refuses what the arithmetic allows."""
    return any(pod.server_allows is False for pod in plan.leaving)


def _flow(pod: PlannedPod) -> FlowKey:
    assert pod.handling is not None
    rule = "" if pod.handling.rule is None else pod.handling.rule.name
    return FlowKey(pod.facts.pod.node_name or "", pod.ref.key.namespace, rule, pod.handling.bypasses_limits)
