"""A cluster → the inventory, and what its API server says to evictions that are only tried.

Reads nodes, pods and budgets page by page; changes nothing. Needs list on nodes, pods and poddisruptionbudgets, and
create on pods/eviction for the tries: without the latter two the plan says so and goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, Call
from taint_eviction.adapters.evictions import eviction_body
from taint_eviction.core.disruption_budgets import EvictionVerdict
from taint_eviction.planning.inventory import Inventory
from taint_eviction.planning.plan import Plan
from taint_eviction.planning.planned_pod import PlannedPod
from taint_eviction.planning.reading import InventoryReader
from taint_eviction.runtime.ports import CallFailed

_PAGE = 500
_POLICY = "policy/v1"
_FORBIDDEN = 403
_TOO_MANY = 429
_NOT_FOUND = 404
_TRIES_AT_ONCE = 10
# Beyond that the arithmetic alone has to do.
_MOST_TRIES = 500
_NO_RIGHT = "this user may not create pods/eviction, so budgets are not confirmed by the API server"


async def read_cluster(calls: ApiCalls, progress: Callable[[int], None]) -> Inventory:
    """List everything; raise ``CallFailed`` if nodes or pods cannot be listed."""
    inventory = Inventory()
    reader = InventoryReader(inventory)
    for resource, kind in (("nodes", "Node"), ("pods", "Pod")):
        async for item in _list(calls, Call("list", resource)):
            reader.put({**item, "kind": kind}, "cluster")
            if len(inventory) % _PAGE == 0:
                progress(len(inventory))
    try:
        async for item in _list(calls, Call("list", "poddisruptionbudgets", group=_POLICY)):
            reader.put({**item, "kind": "PodDisruptionBudget"}, "cluster")
    except CallFailed as error:
        if error.status not in (_FORBIDDEN, _NOT_FOUND):
            raise
        inventory.budgets_known = False
        inventory.notes.append(f"budgets could not be listed: {error}")
    return inventory


async def _list(calls: ApiCalls, call: Call) -> AsyncIterator[dict[str, Any]]:
    """Go through a list page by page; where a page's token has become too old, once more from the beginning."""
    token, limit = "", _PAGE
    while True:
        query: dict[str, str | int] = {"limit": limit, "continue": token} if token else {"limit": limit}
        answer = await calls.make(Call(call.verb, call.resource, query=query if limit else None, group=call.group))
        if token and answer.outcome is Outcome.EXPIRED:
            token, limit = "", 0
            continue
        body = answer.need(Outcome.DONE).body
        if not isinstance(body, dict) or not isinstance(body.get("items"), list | None):
            raise CallFailed(f"the API server's answer is no list of {call.resource}")
        for item in body.get("items") or ():
            if isinstance(item, dict):
                yield item
        token = str((body.get("metadata") or {}).get("continue") or "")
        if not token:
            return


async def try_evictions(calls: ApiCalls, plan: Plan) -> None:
    """Ask the API server what it would say to the eviction of each pod that leaves and has a budget, one by one.

    Each is asked for as if it were the only one, as the server forgets a dry run: so a budget that allows one of five
    allows each of them here, and only the arithmetic tells that it does not allow all.
    """
    wanted = [pod for pod in plan.leaving if pod.asks and pod.budgets]
    if len(wanted) > _MOST_TRIES:
        plan.notes.append(
            f"only the first {_MOST_TRIES} of {len(wanted)} pods with budgets were tried on the API server"
        )
    refused = asyncio.Event()
    turn = asyncio.Semaphore(_TRIES_AT_ONCE)

    async def try_one(pod: PlannedPod) -> None:
        async with turn:
            if not refused.is_set():
                await _try(calls, pod, refused)

    await asyncio.gather(*(try_one(pod) for pod in wanted[:_MOST_TRIES]))
    if refused.is_set():
        plan.notes.append(_NO_RIGHT)
    elif wanted:
        plan.notes.append(_confirmed(wanted[:_MOST_TRIES]))


async def _try(calls: ApiCalls, pod: PlannedPod, refused: asyncio.Event) -> None:
    key, body = pod.ref.key, eviction_body(pod.ref)
    try:
        answer = await calls.make(Call("create", "pods/eviction", key.namespace, key.name, {"dryRun": "All"}, body))
    except CallFailed as error:
        pod.server_answer = f"the API server could not be asked: {error}"
        return
    failure = answer.failure
    if failure is None:
        pod.server_allows = True
    elif answer.status == _FORBIDDEN and "pods/eviction" in str(failure):
        refused.set()
    elif failure.block is None and answer.status >= _TOO_MANY:
        # A server that is busy or broken has said nothing about the pod.
        pod.server_answer = f"the API server could not be asked: {failure}"
    else:
        pod.server_allows = False
        pod.server_answer = f"the API server says: {failure}"


def _confirmed(asked: Sequence[PlannedPod]) -> str:
    allowed = sum(pod.server_allows is True for pod in asked)
    blocked = sum(pod.server_allows is False for pod in asked)
    otherwise = sum(pod.server_allows is False and pod.verdict is EvictionVerdict.ALLOWED for pod in asked)
    said = f"confirmed by dry-run evictions, each pod by itself: the API server allows {allowed} and refuses {blocked}"
    said += f"; {otherwise} refused that the arithmetic allows" if otherwise else ""
    return said + (f"; {unasked} could not be asked" if (unasked := len(asked) - allowed - blocked) else "")
