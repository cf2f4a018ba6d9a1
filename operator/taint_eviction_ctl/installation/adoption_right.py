"""The right to change tolerations, which the component adopt grants: who has it, and how it is taken away.

The component's ClusterRoleBinding is an object of its own, whose name a prefix, a suffix or a chart may change. It
names the account, which has the name of the Lease, or the user of a static pod.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.kube.preflight import allowed
from taint_eviction.settings import Settings
from taint_eviction_ctl.installation.replicas import CONTROLLER

_RBAC = "rbac.authorization.k8s.io/v1"
# In the name of the component's ClusterRole.
_COMPONENT = f"{CONTROLLER}-adopt"

# An API server learns by a watch that a binding is gone.
_ASK_AGAIN_SECONDS = 0.5
_TRIES = 20


class RightKept(Exception):
    """The account may still have the right; the message says why."""


class AdoptionRight:
    """The right of the account with this name, or of the user of a static pod."""

    def __init__(self, calls: ApiCalls, account: NamespacedName) -> None:
        self._calls = calls
        self._users = (f"system:serviceaccount:{account.namespace}:{account.name}", CONTROLLER)

    async def bindings(self) -> list[str]:
        """Return the names of the ClusterRoleBindings that grant it; raise ``CallFailed`` if they cannot be read."""
        return [body["metadata"]["name"] async for body in self._bindings()]

    async def remove(self) -> AsyncIterator[str]:
        """Delete the bindings that grant it, and yield the name of each; then ask whether the right is gone.

        Raise ``RightKept`` if the account still has it, or if that cannot be asked.
        """
        names = await self.bindings()
        for name in names:
            answer = await self._calls.make(ApiRequest("delete", "clusterrolebindings", name=name, group=_RBAC))
            answer.need(Outcome.DONE, Outcome.ABSENT)
            yield name
        for user in self._users:
            await self._need_no_right(user, removed=bool(names))

    async def _need_no_right(self, user: str, *, removed: bool) -> None:
        for left in reversed(range(_TRIES if removed else 1)):
            may = await allowed(self._calls, "patch", "pods", Settings(), user)
            if may is False:
                return
            if left:
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
        if may is None:
            raise RightKept(f"whether {user} may still patch pods cannot be asked")
        other = "" if removed else f", and no ClusterRoleBinding of {_COMPONENT} is found"
        raise RightKept(f"{user} may patch pods{other}")

    async def _bindings(self) -> AsyncIterator[Mapping[str, Any]]:
        def read(body: JsonObject) -> JsonObject | None:
            role = str((body.get("roleRef") or {}).get("name"))
            ours = _COMPONENT in role and any(_user(each) in self._users for each in body.get("subjects") or ())
            return body if ours else None

        async for body in list_items(self._calls, ApiRequest("list", "clusterrolebindings", group=_RBAC), read):
            yield body


def _user(subject: Any) -> str:
    if not isinstance(subject, dict):
        return ""
    if subject.get("kind") == "User":
        return str(subject.get("name"))
    return f"system:serviceaccount:{subject.get('namespace')}:{subject.get('name')}"
