"""Adopts single pods and gives them back over HTTP: ``AdoptionDoor``, and the loop that ``hand-back`` also uses.
A patch tests uid and resourceVersion of the pod as it was read. After a conflict the pod is read again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from taint_eviction.adapters.adoption_patches import (
    ADOPTED,
    MAX_NOTE,
    JsonPatch,
    adopt_patch,
    note_text,
    read_note,
    return_patch,
)
from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import FIELD_MANAGER, ApiCalls, ApiRequest
from taint_eviction.adapters.item_lists import list_items
from taint_eviction.adapters.json_fields import Unreadable
from taint_eviction.adapters.kubernetes_objects import MalformedObject, read_pod, readable_uid
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.adapters.state_config_map import StateConfigMap
from taint_eviction.core.adoption import (
    AdoptedBy,
    AdoptionNote,
    TolerationKey,
    seconds_at,
    seconds_to_return,
    toleration_keys,
)
from taint_eviction.core.objects import Adoption, NamespacedName, Pod, PodRef, Toleration
from taint_eviction.runtime.ports import CallFailed, PlacesToAdopt

# Each conflict means that another client has changed the pod meanwhile.
_MAX_TRIES = 8
# How the API server answers if a test of a patch fails; anything else is a refusal.
_MAYBE_CONFLICTS = (409, 422)

# Pods with the label may be large.
_PAGE = 50

_BY_CONTROLLER = f"{ADOPTED},{ADOPTED}!={AdoptedBy.ADMISSION.value}"

_PUT_BACK = "its tolerationSeconds are there again: an admission plugin or a webhook has put them back"
_NOT_NOTED = "an admission plugin or a webhook has removed the note or the label"

Body = Mapping[str, Any]


async def change_pod(
    calls: ApiCalls,
    key: NamespacedName,
    uid: str,
    patch_of: Callable[[Body], JsonPatch | None],
    body: Body | None = None,
) -> Body | None:
    """Patch a pod as it is now, and return it after the change; None: it is gone.
    ``patch_of`` is called right before each try; it returns None if nothing is to be changed. ``body``: the pod if it
    was already read, None: it is read first.
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
        if answer.outcome is Outcome.ABSENT:
            return None
        if answer.status not in _MAYBE_CONFLICTS:
            answer.need(Outcome.DONE)
        read = await _read(calls, key, uid)
        if read is None:
            return None
        if answer.status != _MAYBE_CONFLICTS[0] and _version(read) == _version(body):
            # No test of the patch failed: the change itself is refused.
            answer.need(Outcome.DONE)
        body = read
    raise CallFailed(f"it was changed by others meanwhile, {_MAX_TRIES} times in a row: {answer.failure}")


async def _read(calls: ApiCalls, key: NamespacedName, uid: str) -> Body | None:
    answer = await calls.make(ApiRequest("get", "pods", key.namespace, key.name))
    if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
        return None
    body: Body = answer.body
    if readable_uid(body) != uid:
        return None
    if not isinstance(_version(body), str):
        raise CallFailed("the API server's answer is a pod without resourceVersion")
    return body


def _version(body: Body) -> object:
    return body["metadata"].get("resourceVersion")


def noted_on(body: Body) -> AdoptionNote:
    """Return the note on a pod; raise ``Unreadable`` if it is invalid."""
    return read_note((body["metadata"].get("annotations") or {}).get(ADOPTED))


class Adoptions:
    """Adopts and gives back; see ``runtime.ports``. ``holder`` is this process's identity in the Lease."""

    def __init__(self, calls: ApiCalls, malformed: MalformedObjects, state: StateConfigMap, holder: str) -> None:
        self._calls = calls
        self._malformed = malformed
        self._state = state
        self._holder = holder

    async def adopt(self, ref: PodRef, places: PlacesToAdopt) -> Pod | None:
        """Take the seconds of some tolerations."""
        taken: Mapping[TolerationKey, int] = {}

        def patch_of(body: Body) -> JsonPatch | None:
            nonlocal taken
            pod = self._pod(body)
            chosen = places(pod)
            taken = seconds_at(pod.spec_tolerations, chosen)
            if not taken:
                return None
            # An existing note is kept, as far as it counts.
            adoption = pod.adoption or Adoption(pod.spec_tolerations)
            before, at_creation = (
                seconds_at(pod.tolerations, kept) for kept in (adoption.by_controller, adoption.by_admission)
            )
            note = AdoptionNote(before | taken, at_creation)
            if len(note_text(note)) > MAX_NOTE:
                raise CallFailed("its tolerations are too many, or their keys too long, to be noted")
            return adopt_patch(body, chosen, note)

        body = await change_pod(self._calls, ref.key, ref.uid, patch_of)
        if body is None:
            return None
        pod = self._pod(body)
        if pod.ref != ref:
            return None
        if taken:
            await self._check(pod, body, taken)
        return pod

    async def _check(self, pod: Pod, body: Body, taken: Mapping[TolerationKey, int]) -> None:
        """Raise ``CallFailed`` unless the seconds are gone from the pod and are in its note."""
        if any(key in taken and each.toleration_seconds is not None for key, each in _keyed(pod.spec_tolerations)):
            raise CallFailed(_PUT_BACK)
        has = dict(_keyed(pod.tolerations))
        noted = all(key not in has or has[key].toleration_seconds == seconds for key, seconds in taken.items())
        if noted and pod.adoption is not None and ADOPTED in pod.labels:
            return
        # Without the note the seconds would be lost, and without the label they would never be given back.
        await change_pod(
            self._calls,
            pod.ref.key,
            pod.ref.uid,
            lambda found: return_patch(found["metadata"], seconds_to_return(self._pod(found).spec_tolerations, taken)),
            body,
        )
        raise CallFailed(_NOT_NOTED)

    async def list_adopted(self) -> list[Pod]:
        """List the pods with the label from which more was taken than at their creation."""
        found = []
        labelled = ApiRequest("list", "pods", query={"labelSelector": _BY_CONTROLLER})
        async for body in list_items(self._calls, labelled, _PAGE):
            try:
                found.append(self._malformed.read(read_pod, body))
            except MalformedObject:
                continue  # It is reported, and cannot be given back.
        return found

    async def give_back(self, ref: PodRef, wanted: Callable[[Pod], bool]) -> Pod | None:
        """Give back what the controller took."""

        def patch_of(body: Body) -> JsonPatch | None:
            pod = self._pod(body)
            if not wanted(pod) or not is_noted(body):
                return None
            try:
                note = noted_on(body)
            except Unreadable:
                return return_patch(body["metadata"], {})
            left = AdoptionNote({}, note.by_admission) if note.by_admission else None
            return return_patch(body["metadata"], seconds_to_return(pod.spec_tolerations, note.by_controller), left)

        body = await change_pod(self._calls, ref.key, ref.uid, patch_of)
        if body is None:
            return None
        pod = self._pod(body)
        return pod if pod.ref == ref else None

    async def confirm_no_adoption(self) -> None:
        """Write that this process adopts nothing."""
        await self._state.confirm_no_adoption(self._holder)

    def _pod(self, body: Body) -> Pod:
        return self._malformed.read_answer(read_pod, body)


def is_noted(body: Body) -> bool:
    """Return whether a pod has the annotation or the label."""
    return any(ADOPTED in (body["metadata"].get(field) or ()) for field in ("annotations", "labels"))


def _keyed(tolerations: Sequence[Toleration]) -> Iterator[tuple[TolerationKey, Toleration]]:
    return zip(toleration_keys(tolerations), tolerations, strict=True)
