"""The right to change tolerations, which the component adopt grants: who has it, and how it is taken away.

The component's ClusterRoleBinding is an object of its own, with the namespace in its name and perhaps a prefix.
"""

from typing import Any

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, ApiRequest
from taint_eviction.adapters.installed_replicas import CONTROLLER
from taint_eviction.adapters.item_lists import list_items
from taint_eviction.adapters.preflight import allowed
from taint_eviction.settings import Settings

_RBAC = "rbac.authorization.k8s.io/v1"
_COMPONENT = f"{CONTROLLER}-adopt"


class RightKept(Exception):
    """The right cannot be taken away; the message says why."""


class AdoptionRight:
    """The right of the account in one namespace."""

    def __init__(self, calls: ApiCalls, namespace: str) -> None:
        self._calls = calls
        self._namespace = namespace

    async def remove(self) -> list[str]:
        """Delete the bindings that grant it; return their names. Raise ``RightKept`` if the account still has it."""
        bindings = [body async for body in self._bindings()]
        for body in bindings:
            request = ApiRequest("delete", "clusterrolebindings", name=body["metadata"]["name"], group=_RBAC)
            answer = await self._calls.make(request)
            answer.need(Outcome.DONE, Outcome.ABSENT)
        if not bindings:
            user = f"system:serviceaccount:{self._namespace}:{CONTROLLER}"
            if await allowed(self._calls, "patch", "pods", Settings(), user) is not False:
                raise RightKept(f"no ClusterRoleBinding of {_COMPONENT} is found")
        return [body["metadata"]["name"] for body in bindings]

    async def _bindings(self) -> Any:
        async for body in list_items(self._calls, ApiRequest("list", "clusterrolebindings", group=_RBAC)):
            subjects = body.get("subjects") or ()
            here = any(isinstance(each, dict) and each.get("namespace") == self._namespace for each in subjects)
            role = str((body.get("roleRef") or {}).get("name"))
            if _COMPONENT in role and (here or any(each.get("kind") == "User" for each in subjects)):
                yield body
