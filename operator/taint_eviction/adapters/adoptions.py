"""Adopts and gives back single pods over HTTP: ``AdoptionDoor``, and the loop that ``hand-back`` changes pods by, too.

A patch tests uid and resourceVersion of the pod as it was read. If somebody else was faster, the pod is read again.
"""

from collections.abc import Callable, Mapping
from typing import Any

from taint_eviction.adapters.adoption_patches import ADOPTED, JsonPatch, adopt_patch, read_note, return_patch
from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import FIELD_MANAGER, ApiCalls, ApiRequest
from taint_eviction.adapters.item_lists import list_items
from taint_eviction.adapters.json_fields import Unreadable
from taint_eviction.adapters.kubernetes_objects import MalformedObject, read_pod, readable_uid
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.adapters.state_config_map import StateConfigMap
from taint_eviction.core.adoption import AdoptedBy, AdoptionNote, TolerationKey, seconds_at, seconds_to_return
from taint_eviction.core.objects import NamespacedName, Pod, PodRef
from taint_eviction.runtime.ports import CallFailed, PlacesToAdopt

# Each conflict means that somebody else has changed the pod meanwhile.
_MAX_TRIES = 8
_CONFLICT = 409

Body = Mapping[str, Any]


async def change_pod(
    calls: ApiCalls,
    key: NamespacedName,
    uid: str,
    patch_of: Callable[[Body], JsonPatch | None],
    body: Body | None = None,
) -> Body | None:
    """Patch a pod as it is now, and return it as it is then; None: it is gone.

    ``patch_of`` is asked right before each try; None: nothing is to be changed. ``body``: the pod as it was read
    already, None: it is read first.
    """
    if body is None and (body := await _read(calls, key, uid)) is None:
        return None
    for _ in range(_MAX_TRIES):
        patch = patch_of(body)
        if patch is None:
            return body
        call = ApiRequest("patch", "pods", key.namespace, key.name, {"fieldManager": FIELD_MANAGER}, patch)
        answer = await calls.make(call)
        if answer.outcome is Outcome.DONE:
            changed: Body = answer.body
            return changed
        read = await _read(calls, key, uid)
        if read is None:
            return None
        if answer.status != _CONFLICT and _version(read) == _version(body):
            # No test of the patch failed: the change itself is refused.
            answer.need(Outcome.DONE)
        body = read
    raise CallFailed(f"it was changed by others meanwhile, {_MAX_TRIES} times in a row")


async def _read(calls: ApiCalls, key: NamespacedName, uid: str) -> Body | None:
    answer = await calls.make(ApiRequest("get", "pods", key.namespace, key.name))
    if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
        return None
    body: Body = answer.body
    return body if readable_uid(body) == uid else None


def _version(body: Body) -> object:
    return body["metadata"].get("resourceVersion")


def noted_seconds(body: Body) -> Mapping[TolerationKey, int]:
    """Return what is noted on a pod; raise ``Unreadable`` for a note that is none."""
    return read_note((body["metadata"].get("annotations") or {}).get(ADOPTED)).seconds


class Adoptions:
    """Adopts and gives back; see ``runtime.ports``. ``holder`` is this process' identity in the Lease."""

    def __init__(self, calls: ApiCalls, malformed: MalformedObjects, state: StateConfigMap, holder: str) -> None:
        self._calls = calls
        self._malformed = malformed
        self._state = state
        self._holder = holder

    async def adopt(self, ref: PodRef, places: PlacesToAdopt) -> Pod | None:
        """Take the seconds of some tolerations."""

        def patch_of(body: Body) -> JsonPatch | None:
            pod = self._pod(body)
            taken = places(pod)
            if not taken:
                return None
            # A note that is there goes on, as far as it counts.
            noted = {} if pod.adoption is None else noted_seconds(body)
            kept = seconds_at(pod.tolerations, seconds_to_return(pod.spec_tolerations, noted))
            by = AdoptedBy.CONTROLLER if pod.adoption is None or not kept else AdoptedBy(pod.adoption.by)
            return adopt_patch(body, taken, AdoptionNote(by, kept | seconds_at(pod.spec_tolerations, taken)))

        return await self._change(ref, patch_of)

    async def list_adopted(self) -> list[Pod]:
        """List the pods with the label."""
        found = []
        labelled = ApiRequest("list", "pods", query={"labelSelector": ADOPTED})
        async for body in list_items(self._calls, labelled):
            try:
                found.append(self._malformed.read(read_pod, body))
            except MalformedObject:
                continue  # It is reported, and cannot be given back.
        return found

    async def give_back(self, ref: PodRef, wanted: Callable[[Pod], bool]) -> Pod | None:
        """Give the noted seconds back."""

        def patch_of(body: Body) -> JsonPatch | None:
            pod = self._pod(body)
            if not wanted(pod):
                return None
            try:
                noted = noted_seconds(body)
            except Unreadable:
                noted = {}
            return return_patch(body["metadata"], seconds_to_return(pod.spec_tolerations, noted))

        return await self._change(ref, patch_of)

    async def confirm_no_adoption(self) -> None:
        """Write that this process adopts nothing."""
        await self._state.confirm_no_adoption(self._holder)

    async def _change(self, ref: PodRef, patch_of: Callable[[Body], JsonPatch | None]) -> Pod | None:
        body = await change_pod(self._calls, ref.key, ref.uid, patch_of)
        if body is None:
            return None
        pod = self._pod(body)
        return pod if pod.ref == ref else None

    def _pod(self, body: Body) -> Pod:
        return self._malformed.read_answer(read_pod, body)
