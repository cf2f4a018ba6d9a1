"""Changes single pods over HTTP and finds those that have a note: ``AdoptionPort``, also for ``hand-back``.
A patch tests the pod as it was read. After a conflict the pod is read again, and decided on again.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from taint_eviction.core.adoption import CountdownChange, note_of
from taint_eviction.core.control_state import Pause
from taint_eviction.core.objects import NamespacedName, Pod, PodRef
from taint_eviction.core.pod_parts import PodParts
from taint_eviction.kube.adoption_patches import MAX_NOTE, NOTE_ANNOTATION, JsonPatch, change_patch, note_text
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ADMISSION_SECONDS, FIELD_MANAGER, ApiCalls, ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.kube.kubernetes_objects import read_pod, readable_uid
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.kube.state_config_map import StateConfigMap
from taint_eviction.runtime.ports import CallFailed, FailureReason, WantedChange

# Each conflict means that another client has changed the pod meanwhile.
_MAX_TRIES = 8
# How the API server answers if a test of a patch fails; anything else is a refusal.
_MAYBE_CONFLICTS = (409, 422)

_PAGE = 500
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

Body = Mapping[str, Any]


async def change_pod(calls: ApiCalls, ref: PodRef, wanted: Callable[[Body], JsonPatch | None]) -> Body | None:
    """Patch a pod as it is now, and return it after the change; None: it is gone.
    ``wanted`` is called right before each try; it returns None if nothing is to be changed.
    """
    body = await _read(calls, ref)
    if body is None:
        return None
    for _ in range(_MAX_TRIES):
        patch = wanted(body)
        if patch is None:
            return body
        call = ApiRequest("patch", "pods", *ref.key, {"fieldManager": FIELD_MANAGER}, patch)
        answer = await calls.make(call, max_seconds=ADMISSION_SECONDS)
        if answer.outcome is Outcome.DONE:
            changed: Body = answer.body
            return changed
        if answer.outcome is Outcome.ABSENT:
            return None
        if answer.status not in _MAYBE_CONFLICTS:
            answer.need(Outcome.DONE)
        read = await _read(calls, ref)
        if read is None:
            return None
        if answer.status != _MAYBE_CONFLICTS[0] and _version(read) == _version(body):
            # No test of the patch failed: the change itself is refused.
            answer.need(Outcome.DONE)
        body = read
    why = f"it was changed by others meanwhile, {_MAX_TRIES} times in a row: {answer.failure}"
    raise CallFailed(why, reason=FailureReason.CONFLICT)


async def _read(calls: ApiCalls, ref: PodRef) -> Body | None:
    answer = await calls.make(ApiRequest("get", "pods", *ref.key))
    if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
        return None
    body: Body = answer.body
    if readable_uid(body) != ref.uid:
        return None
    if not isinstance(_version(body), str):
        raise CallFailed("the API server's answer is a pod without resourceVersion")
    return body


def _version(body: Body) -> object:
    return body["metadata"].get("resourceVersion")


async def list_noted(calls: ApiCalls) -> AsyncGenerator[PodRef, None]:
    """Yield the pods of all nodes that have the annotation, from their metadata alone."""
    request = ApiRequest("list", "pods", accept=_METADATA)
    async for ref in list_items(calls, request, _noted, _PAGE):
        yield ref


def _noted(body: Body) -> PodRef | None:
    metadata = body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(annotations, dict) and NOTE_ANNOTATION in annotations:
        namespace, name, uid = (metadata.get(field) for field in ("namespace", "name", "uid"))
        if isinstance(namespace, str) and isinstance(name, str) and isinstance(uid, str):
            return PodRef(NamespacedName(namespace, name), uid)
    return None


def patch_of(body: Body, pod: Pod, change: CountdownChange) -> JsonPatch:
    """Return the patch of a change; raise ``CallFailed`` if its note would be too long."""
    if len(note_text(note_of(pod.spec_tolerations, change.noted))) > MAX_NOTE:
        raise CallFailed("its tolerations are too many, or their keys too long, to be noted")
    return change_patch(body, pod.spec_tolerations, change)


class Adoptions:
    """Changes pods and looks for them; see ``runtime.ports``. ``holder`` is this process's identity in the Lease.

    ``parts``: the labels and annotations of pods that are read.
    """

    def __init__(
        self, calls: ApiCalls, malformed: MalformedObjects, state: StateConfigMap, holder: str, parts: PodParts
    ) -> None:
        self._calls = calls
        self._malformed = malformed
        self._state = state
        self._holder = holder
        self._parts = parts

    async def change(self, ref: PodRef, wanted: WantedChange) -> Pod | None:
        """Change one pod, if that is wanted as it is now."""

        def patch(body: Body) -> JsonPatch | None:
            pod = self._pod(body)
            change = wanted(pod)
            return None if change is None else patch_of(body, pod, change)

        body = await change_pod(self._calls, ref, patch)
        if body is None:
            return None
        pod = self._pod(body)
        return pod if pod.ref == ref else None

    async def list_noted(self) -> list[PodRef]:
        """List the pods that have the annotation."""
        return [ref async for ref in list_noted(self._calls)]

    async def write_adopter(self, term: int) -> None:
        """Write that this process takes countdowns over."""
        await self._state.write_adopter(self.adopter(term))

    def adopter(self, term: int) -> str:
        """Return what says that this process takes countdowns over."""
        return f"{self._holder} {term}"

    async def remove_adopter(self, seen: str) -> None:
        """Write that nobody takes countdowns over."""
        await self._state.remove_adopter(seen)

    async def confirm_no_adoption(self, order: Pause) -> None:
        """Write that this process takes nothing over."""
        await self._state.confirm_no_adoption(self._holder, order)

    def _pod(self, body: Body) -> Pod:
        return self._malformed.read_answer(lambda each: read_pod(each, self._parts), body)
