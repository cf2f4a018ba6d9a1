"""What keeps pods of a plan on their nodes at their deadlines: the guards of a running controller, and budgets.

The guards are ``core.guards``; this module asks them about each pod, as of the time at which it would leave.
"""

from taint_eviction.core.guards import GuardList, guards_of
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.reconciler import flow_of
from taint_eviction.files.kubernetes_times import format_utc
from taint_eviction_ctl.planning.plan import Plan, rehearse
from taint_eviction_ctl.planning.planned_pod import Holder, PlannedPod
from taint_eviction_ctl.planning.rehearsal import Conditions

_BUDGETS = Holder("budgets", "budgets", "these allow it")
_BREAKER = Holder("breaker_open", "the circuit breaker", "it is reset")


def add_holders(plan: Plan, conditions: Conditions) -> None:
    """Note for each pod that would leave what holds it then. The built-in controller evicts its pods past all that."""
    nodes = {name: KnownNode(facts.node, plan.now.at) for name, facts in plan.inventory.nodes.items()}
    guards = guards_of(conditions.control_state, conditions.eviction, nodes)
    for pod in plan.leaving:
        pod.holders = _blocking(pod, guards, plan.now)
    opened = None
    if any(conditions.breaker.enabled or pod.holders or pod.server_allows is False for pod in plan.leaving):
        opened = rehearse(plan, conditions)
    if opened is not None:
        opens, cause = format_utc(opened.since_epoch), opened.cause
        plan.notes.append(f"the circuit breaker would open at {opens}, and no pod would leave from then on: {cause}")
    for pod in plan.leaving:
        if pod.adopted is False or pod.handling is None:
            pod.goes_at = pod.leaves_at
            continue
        if pod.blocked and pod.deleted_at is None:
            pod.holders += (_BUDGETS,)
        if opened is not None and pod.goes_at is None and not pod.holders:
            pod.holders = (_BREAKER,)


def _blocking(pod: PlannedPod, guards: GuardList, now: Moment) -> tuple[Holder, ...]:
    """Return the guards that block a pod when it is due."""
    if pod.handling is None or pod.adopted is False:
        return ()
    at = max(now.at, pod.leaves_at or 0.0)
    flow = flow_of(pod.facts.pod, pod.handling)
    blocking = guards.blocking_then(flow, now._replace(at=at, server_epoch=now.epoch_of(at)))
    return tuple(Holder(each.reason.name.lower(), each.named(flow), each.ends) for each in blocking)
