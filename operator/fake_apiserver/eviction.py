"""The two subresources that act on pods: eviction, which asks the budgets first, and binding.

As in the real server, a budget is checked and decremented before the preconditions are checked.

Reference: kubernetes/pkg/registry/core/pod/storage/{eviction,storage}.go, texts as of 1.35. One difference: a conflict
is answered at once, while the real server tries for up to ten seconds before it says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from .budgets import disruption_conditions, is_ready, matching_budgets
from .deletion import DeleteOptions, check_preconditions, delete
from .records import StoredObject
from .registry import Registry, WriteOptions
from .status import JsonObject, StatusError, bad_request, conflict, forbidden, success, too_many_requests

MORE_THAN_ONE = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
WOULD_VIOLATE = "Cannot evict pod as it would violate the pod's disruption budget."
MAX_DISRUPTED_PODS = 2000
STALE_RETRY_SECONDS = 10
_PAST_BUDGETS = frozenset({"Succeeded", "Failed", "Pending"})
_BUDGET_WRITE = WriteOptions(manager="kube-apiserver", subresource="status")
# The condition is written below the level at which owners of fields are recorded.
_POD_WRITE = WriteOptions(manager="kube-apiserver", subresource="status", track_fields=False)


def evict(registry: Registry, record: StoredObject, eviction: JsonObject, query: Mapping[str, str]) -> JsonObject:
    """Deletes the pod if its budget allows it; returns the Status, which may be a failure with its own code."""
    options = _options(eviction, query)
    pod = record.decode()
    status = pod.get("status") or {}
    if status.get("phase") in _PAST_BUDGETS or "deletionTimestamp" in pod["metadata"]:
        _mark_and_delete(registry, record, pod, options)
        return success(code=201)
    budgets = matching_budgets(registry, record)
    if len(budgets) > 1:
        raise StatusError(500, MORE_THAN_ONE, reason="")
    if budgets and not _passes_unhealthy(pod, budgets[0].decode()):
        _check_and_decrement(registry, budgets[0], record.name, options)
    _mark_and_delete(registry, record, pod, options)
    return success(code=201)


def _options(eviction: JsonObject, query: Mapping[str, str]) -> DeleteOptions:
    body = eviction.get("deleteOptions") or {}
    in_query, in_body = [query["dryRun"]] if query.get("dryRun") else [], body.get("dryRun") or []
    if in_query and in_body and in_query != in_body:
        raise bad_request(f"Non-matching dry-run options in request and content: {in_query} and {in_body}")
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        body.get("gracePeriodSeconds"),
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        bool(in_query or in_body),
    )


def _passes_unhealthy(pod: JsonObject, budget: JsonObject) -> bool:
    """Pods that are not ready do not count as healthy, so their eviction costs no disruption."""
    if is_ready(pod):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _check_and_decrement(registry: Registry, record: StoredObject, pod_name: str, options: DeleteOptions) -> None:
    """Raises the budget's refusal; otherwise takes one disruption from the budget."""
    budget = record.decode()
    status = budget.get("status") or {}
    name = record.name
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(WOULD_VIOLATE, STALE_RETRY_SECONDS, [_cause(cause)])
    if status.get("disruptionsAllowed", 0) < 0:
        raise forbidden("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > MAX_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    if status.get("disruptionsAllowed", 0) == 0:
        raise too_many_requests(WOULD_VIOLATE, 0, [_cause(f"The disruption budget {name} {_exhausted(status)}")])
    status["disruptionsAllowed"] -= 1
    if status["disruptionsAllowed"] == 0:
        status["conditions"] = disruption_conditions(budget, 0, registry.clock.timestamp())
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod_name: registry.clock.timestamp()}
    if not options.dry_run:
        registry.replace(record, budget, _BUDGET_WRITE)


def _exhausted(status: JsonObject) -> str:
    """Why no disruption is allowed; a condition's message is preferred to numbers that it makes doubtful."""
    conditions = [c for c in status.get("conditions") or [] if c.get("type") == "DisruptionAllowed"]
    said = next((c for c in conditions if c.get("status") == "False" and c.get("message")), None)
    wanted, found = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    if said is not None and said.get("reason") == "SyncFailed":
        return f"does not allow evicting pods currently because it failed sync: {said['message']}"
    if found <= wanted:
        return f"needs {wanted} healthy pods and has {found} currently"
    because = f" ({said.get('reason')}): {said['message']}" if said is not None else ""
    return f"does not allow evicting pods currently{because}"


def _cause(message: str) -> JsonObject:
    return {"reason": "DisruptionBudget", "message": message}


def _mark_and_delete(registry: Registry, record: StoredObject, pod: JsonObject, options: DeleteOptions) -> None:
    """Sets the condition DisruptionTarget, then deletes; a failed precondition leaves the pod untouched."""
    check_preconditions(record, options)
    if not options.dry_run:
        set_condition(pod, _condition(registry.clock.timestamp()))
        record = registry.replace(record, pod, _POD_WRITE)
    delete(registry, record, DeleteOptions(options.grace_period_seconds, options.uid, None, options.dry_run))


def _condition(timestamp: str) -> JsonObject:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }


def set_condition(pod: JsonObject, condition: JsonObject) -> None:
    """Puts a condition into the status in place; the transition time stays where the status does."""
    conditions: list[JsonObject] = pod.setdefault("status", {}).setdefault("conditions", [])
    for index, old in enumerate(conditions):
        if old.get("type") == condition["type"]:
            if old.get("status") == condition["status"]:
                condition["lastTransitionTime"] = old.get("lastTransitionTime")
            conditions[index] = condition
            return
    conditions.append(condition)


def bind(registry: Registry, record: StoredObject, binding: JsonObject, *, dry_run: bool = False) -> None:
    """What the scheduler does: sets nodeName and the condition PodScheduled; 409 where the pod is bound already."""
    node = (binding.get("target") or {}).get("name")
    if not node:
        raise bad_request('Binding "" is invalid: target.name: Required value')
    uid = (binding.get("metadata") or {}).get("uid")
    check_preconditions(record, DeleteOptions(uid=uid))
    pod = record.decode()
    if "deletionTimestamp" in pod["metadata"]:
        why = f"pod {record.name} is being deleted, cannot be assigned to a host"
        raise conflict("", "pods/binding", record.name, why)
    if bound := pod["spec"].get("nodeName"):
        raise conflict("", "pods/binding", record.name, f'pod {record.name} is already assigned to node "{bound}"')
    pod["spec"]["nodeName"] = node
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    set_condition(pod, {**condition, "lastTransitionTime": registry.clock.timestamp()})
    if not dry_run:
        registry.store.commit(record.resource, pod)
