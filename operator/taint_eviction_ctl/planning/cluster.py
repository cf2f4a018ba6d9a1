"""A cluster → the inventory; and dry-run evictions, which ask its API server what budgets allow.
Reads nodes, pods and budgets page by page; changes nothing. Needs the rights to list nodes, pods and
poddisruptionbudgets, and to create pods/eviction: without one of the latter two the plan says so and continues.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence

from taint_eviction.core.pod_parts import PodParts, needed_keys
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.evictions import eviction_body
from taint_eviction.kube.item_lists import list_items
from taint_eviction.runtime.clock import read_monotonic
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction_ctl.planning.budgets import leave_out_costly_budgets
from taint_eviction_ctl.planning.disruption_budgets import EvictionVerdict
from taint_eviction_ctl.planning.inventory import Inventory
from taint_eviction_ctl.planning.plan import Plan
from taint_eviction_ctl.planning.planned_pod import PlannedPod
from taint_eviction_ctl.planning.reading import InventoryReader, Putting

_TOLD_EVERY = 500
_POLICY = "policy/v1"
_FORBIDDEN = 403
_TOO_MANY = 429
_TRIES_AT_ONCE = 10
# For pods beyond this number only the arithmetic counts.
_MAX_TRIES = 500
_NO_RIGHT = "this user may not create pods/eviction: the API server does not confirm what is said of budgets"
# A namespace is not asked again after an answer that took longer: its webhook chooses how long each one takes.
_LONG_SECONDS = 2.0
_SLOW = "the API server was not asked: it took long, or did not answer, for another pod of this namespace"


async def read_cluster(
    calls: ApiCalls, progress: Callable[[int], None], namespace: str = "", label_keys: Collection[str] = ()
) -> Inventory:
    """List nodes, and pods and budgets of a namespace, "": of all.

    Of the labels of pods, keep only those with these keys, and those that budgets select by: anybody may create a pod
    with thousands of labels. Raise ``CallFailed`` if nodes or pods cannot be listed.
    """
    inventory, parts = Inventory(), PodParts()
    reader = InventoryReader(inventory, parts)
    try:
        await _put_budgets(calls, reader, namespace)
    except CallFailed as error:
        if error.reason not in (FailureReason.FORBIDDEN, FailureReason.NOT_FOUND):
            raise
        inventory.budgets_known = False
        inventory.notes.append(f"budgets could not be listed: {error}")
    parts.label_keys = needed_keys({*label_keys, *_keys(inventory)})
    for resource, kind, within in (("nodes", "Node", ""), ("pods", "Pod", namespace)):
        async for put in list_items(calls, ApiRequest("list", resource, within), _reading(reader, kind)):
            put()
            if len(inventory) % _TOLD_EVERY == 0:
                progress(len(inventory))
    leave_out_costly_budgets(inventory)
    return inventory


async def read_namespaces(calls: ApiCalls, namespaces: Sequence[str]) -> Inventory:
    """List the budgets of some namespaces, and the pods of those that have any; its notes say what is left out.

    Raise ``CallFailed`` if they cannot be listed.
    """
    inventory, parts = Inventory(), PodParts()
    reader = InventoryReader(inventory, parts)
    for namespace in namespaces:
        await _put_budgets(calls, reader, namespace)
    parts.label_keys = needed_keys(_keys(inventory))
    for namespace in sorted({key.namespace for key in inventory.budgets}):
        async for put in list_items(calls, ApiRequest("list", "pods", namespace), _reading(reader, "Pod")):
            put()
    leave_out_costly_budgets(inventory)
    return inventory


def _keys(inventory: Inventory) -> set[str]:
    """Return the keys of the labels by which budgets choose their pods."""
    return {term.key for budget in inventory.budgets.values() for term in budget.selector or ()}


async def _put_budgets(calls: ApiCalls, reader: InventoryReader, namespace: str) -> None:
    request = ApiRequest("list", "poddisruptionbudgets", namespace, group=_POLICY)
    async for put in list_items(calls, request, _reading(reader, "PodDisruptionBudget")):
        put()


def _reading(reader: InventoryReader, kind: str) -> Callable[[JsonObject], Putting]:
    return lambda item: reader.read({**item, "kind": kind}, "cluster")


async def try_evictions(calls: ApiCalls, plan: Plan) -> None:
    """Ask the API server for a dry-run eviction of each pod that leaves and has a budget, one by one.

    The server forgets a dry run, so it answers for each pod as if that were the only one: a budget that allows one
    disruption allows each of five pods here. Only the arithmetic shows that it does not allow all five. A namespace
    whose webhook answers slowly or not at all is not asked again: nobody is to wait for hundreds of its pods.
    """
    wanted = [pod for pod in plan.leaving if pod.asks and pod.budgets]
    if len(wanted) > _MAX_TRIES:
        plan.notes.append(
            f"only the first {_MAX_TRIES} of {len(wanted)} pods with budgets were tried on the API server"
        )
    refused = asyncio.Event()
    slow: set[str] = set()
    turn = asyncio.Semaphore(_TRIES_AT_ONCE)

    async def try_one(pod: PlannedPod) -> None:
        async with turn:
            if pod.ref.key.namespace in slow:
                pod.server_answer = _SLOW
            elif not refused.is_set():
                began_at = read_monotonic()
                if not await _try(calls, pod, refused) or read_monotonic() - began_at >= _LONG_SECONDS:
                    slow.add(pod.ref.key.namespace)

    await asyncio.gather(*(try_one(pod) for pod in wanted[:_MAX_TRIES]))
    if refused.is_set():
        plan.notes.append(_NO_RIGHT)
    elif wanted:
        plan.notes.append(_confirmed(wanted[:_MAX_TRIES]))


async def _try(calls: ApiCalls, pod: PlannedPod, refused: asyncio.Event) -> bool:
    """Ask about one pod; return whether there was an answer."""
    key, body = pod.ref.key, eviction_body(pod.ref)
    try:
        answer = await calls.make(
            ApiRequest("create", "pods/eviction", key.namespace, key.name, {"dryRun": "All"}, body)
        )
    except CallFailed as error:
        pod.server_answer = f"the API server could not be asked: {error}"
        return False
    failure = answer.failure
    if failure is None:
        pod.server_allows = True
    elif answer.status == _FORBIDDEN and not failure.denied and "pods/eviction" in str(failure):
        refused.set()
    elif failure.block is None and not failure.denied and answer.status >= _TOO_MANY:
        # The answer of a busy or broken server says nothing about the pod.
        pod.server_answer = f"the API server could not be asked: {failure}"
    else:
        pod.server_allows, pod.moves_away = False, failure.evacuates
        pod.server_answer = f"the API server says: {failure}"
    return True


def _confirmed(asked: Sequence[PlannedPod]) -> str:
    allowed = sum(pod.server_allows is True for pod in asked)
    blocked = sum(pod.server_allows is False for pod in asked)
    otherwise = sum(pod.server_allows is False and pod.verdict is EvictionVerdict.ALLOWED for pod in asked)
    said = f"confirmed by dry-run evictions, each pod alone: the API server allows {allowed} and refuses {blocked}"
    said += f", {otherwise} of which the arithmetic allows" if otherwise else ""
    return said + (f"; {unasked} could not be asked" if (unasked := len(asked) - allowed - blocked) else "")
