"""The ``AdoptionPort`` of one controller process: production's own, over calls to the simulated cluster.
Marks, notes, patches, and the handling of conflicts are production's. Here its requests become calls, with all their
faults.
"""

from collections.abc import Callable
from typing import Any, cast

import orjson

from fake_apiserver.records import Selection
from fake_apiserver.resources import RESOURCES
from fake_apiserver.status import StatusError
from taint_eviction.core.objects import MARK_SECONDS, NamespacedName
from taint_eviction.core.pod_parts import ALL_PARTS
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.adoptions import Adoptions
from taint_eviction.kube.answers import Outcome, outcome_of, read_refusal
from taint_eviction.kube.api_calls import ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.kube.state_config_map import StateConfigMap
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction_lab.simulation.calls import SimulatedCalls, World
from taint_eviction_lab.simulation.control_state import SimulatedControlState, SimulatedControlStateStore
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.pod_writes import failure_of

_CONFLICT, _BAD_REQUEST = 409, 400


def simulated_adoptions(world: World, calls: SimulatedCalls, control_state: SimulatedControlState) -> Adoptions:
    """Return the ``AdoptionPort`` of one process."""
    return Adoptions(
        cast(ApiCalls, _Requests(world, calls)),
        MalformedObjects(lambda kind: None),
        cast(StateConfigMap, SimulatedControlStateStore(calls, control_state)),
        calls.name,
        ALL_PARTS,
    )


class _Refused(CallFailed):
    """The API server refused a call, with this answer."""

    def __init__(self, answer: ApiAnswer) -> None:
        super().__init__(str(answer.failure))
        self.answer = answer


class _Requests:
    """Takes requests as ``ApiCalls`` does: to get and patch a pod, and to list the metadata of all pods."""

    def __init__(self, world: World, calls: SimulatedCalls) -> None:
        self._cluster = world.cluster
        self._writes = world.pod_writes
        self._calls = calls

    async def make(
        self, call: ApiRequest, *, take: Callable[[JsonObject], None] | None = None, max_seconds: float | None = None
    ) -> ApiAnswer:
        """Make a request; raise ``CallFailed`` if there is no answer."""
        key = NamespacedName(call.namespace, call.name)
        patch = cast(list[JsonObject], call.body or [])
        match call.verb:
            case "get":
                kind, act = CallKind.READ_POD, lambda: self._writes.get(key)
            case "patch":
                kind, act = _kind_of(patch), lambda: self._writes.change(key, patch)
            case _:
                kind, act = CallKind.LIST_ADOPTED, self._list
        subject = str(key) if call.name else ""
        uid = next((each["value"] for each in patch if each["path"] == "/metadata/uid"), "")
        try:
            answered = self._calls.call(kind, subject, lambda: _carried_out(call, act), uid, max_seconds=max_seconds)
            body = await answered
        except _Refused as refused:
            return refused.answer
        except CallFailed as failure:
            if failure.reason is FailureReason.NO_ANSWER:
                raise
            status = _CONFLICT if failure.reason is FailureReason.CONFLICT else _BAD_REQUEST
            return ApiAnswer(Outcome.REFUSED, status, None, failure)
        if take is not None and body is not None:
            for item in body["items"]:
                take(item)
            body = {**body, "items": []}
        return ApiAnswer(Outcome.DONE, 200, body, None)

    def _list(self) -> JsonObject:
        version = str(self._cluster.store.resource_version)
        bodies = self._cluster.bodies(Selection(RESOURCES["pods"]))
        return {"metadata": {"resourceVersion": version}, "items": [{"metadata": body["metadata"]} for body in bodies]}


def _kind_of(patch: list[JsonObject]) -> CallKind:
    marked = any(each["path"].endswith("/tolerationSeconds") and each["value"] == MARK_SECONDS for each in patch)
    return CallKind.ADOPT if marked else CallKind.GIVE_BACK


def _carried_out(call: ApiRequest, act: Callable[[], Any]) -> Any:
    try:
        return act()
    except StatusError as error:
        outcome = outcome_of(error.code, read_refusal(orjson.dumps(error.body())), call.resource, call.name)
        raise _Refused(ApiAnswer(outcome, error.code, None, failure_of(error))) from error


class PolicyInForce:
    """The ``AdmissionPolicyPort`` of a simulated process: simulated accounts have all rights."""

    async def account(self) -> str:
        """Return the name of the account."""
        return "system:serviceaccount:kube-system:taint-eviction-controller"

    async def in_force(self) -> bool:
        """Return whether it is."""
        return True
