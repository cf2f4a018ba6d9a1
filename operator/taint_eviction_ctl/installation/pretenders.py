"""Pods that only say that they are a controller: whoever may create pods in some namespace chooses labels and flags.
The account of a real one may do in the whole cluster what a controller does.
"""

import asyncio
from collections.abc import Iterable

from taint_eviction.kube.api_calls import ApiCalls
from taint_eviction.kube.preflight import allowed
from taint_eviction.settings import Settings
from taint_eviction_ctl.installation.replicas import CONTROLLER, Replica

# So many accounts are asked about at a time.
_AT_ONCE = 10


async def that_may(calls: ApiCalls, replicas: Iterable[Replica], verb: str) -> list[Replica]:
    """Return those whose account may do this to any pod of the cluster, and those of which that cannot be asked."""
    found, room = list(replicas), asyncio.Semaphore(_AT_ONCE)

    async def may(user: str) -> bool | None:
        async with room:
            return await allowed(calls, verb, "pods", Settings(), user)

    users = list(dict.fromkeys(each.user for each in found))
    answers = dict(zip(users, await asyncio.gather(*map(may, users)), strict=True))
    return [each for each in found if answers[each.user] is not False]


def beside_accounts(replicas: Iterable[Replica]) -> list[Replica]:
    """Return those that have no account, if others have one: a node's kubelet may create such pods in any namespace.
    The pods of a static pod's installation have none, either, so they alone are not told from others.
    """
    found = list(replicas)
    without = [each for each in found if each.user == CONTROLLER]
    return without if len(without) < len(found) else []
