"""Writes that change a pod: ``ClusterWriter`` over HTTP, always for exactly one pod (name and UID).

This module retries nothing: only the caller knows whether the call is still wanted. A request that ends a pod awaits
``ready`` on an open connection, right before it is written (``fence``).
"""

from functools import partial
from typing import Any

from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import FIELD_MANAGER, ApiCalls, ApiRequest
from taint_eviction.kube.condition_patches import mark_patch, unmark_patch
from taint_eviction.kube.evictions import eviction_body
from taint_eviction.kube.kubernetes_objects import read_pod
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.runtime.ports import CallFailed, FailureReason, Ready

_GONE = (Outcome.ABSENT, Outcome.ANOTHER_UID)


class ApiWriter:
    """Sends the writes; ``runtime.ports`` has the contracts of the methods."""

    def __init__(self, calls: ApiCalls, malformed: MalformedObjects, parts: PodParts = ALL_PARTS) -> None:
        self._calls = calls
        self._malformed = malformed
        self._read_pod = partial(read_pod, parts=parts)

    async def mark(self, ref: PodRef, already: bool, now: Moment) -> Pod | None:
        """Set the DisruptionTarget condition."""
        return await self._patch_status(ref, mark_patch(ref, None if already else now.server_epoch))

    async def unmark(self, pod: Pod, now: Moment) -> Pod | None:
        """Set the condition's status to False on exactly this version of the pod; fail for any other version."""
        if pod.resource_version is None:
            raise CallFailed(f"{pod.ref} has no resourceVersion, which the patch needs")
        return await self._patch_status(pod.ref, unmark_patch(pod.ref, pod.resource_version, now.server_epoch))

    async def delete(self, ref: PodRef, ready: Ready, max_seconds: float | None = None) -> bool:
        """Delete the pod."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": ref.uid}}
        call = ApiRequest("delete", "pods", ref.key.namespace, ref.key.name, body=body)
        return await self._end(ref, call, ready, max_seconds)

    async def evict(self, ref: PodRef, ready: Ready, max_seconds: float | None = None) -> bool:
        """Evict the pod through the eviction API."""
        call = ApiRequest("create", "pods/eviction", ref.key.namespace, ref.key.name, body=eviction_body(ref))
        return await self._end(ref, call, ready, max_seconds)

    async def _end(self, ref: PodRef, call: ApiRequest, ready: Ready, max_seconds: float | None) -> bool:
        answer = await self._calls.make(call, ready, max_seconds=max_seconds)
        if answer.need(Outcome.DONE, *_GONE).outcome is not Outcome.DONE:
            return False
        if not _confirms(answer.body, ref, evicts=call.verb == "create"):
            # It would count as an eviction, and the pod would never be evicted.
            raise CallFailed(f"the answer does not say that {ref} is being deleted (HTTP {answer.status})")
        return True

    async def _patch_status(self, ref: PodRef, patch: dict[str, Any]) -> Pod | None:
        query = {"fieldManager": FIELD_MANAGER}
        answer = await self._calls.make(
            ApiRequest("patch", "pods/status", ref.key.namespace, ref.key.name, query, patch)
        )
        if answer.need(Outcome.DONE, *_GONE).outcome is not Outcome.DONE:
            return None
        pod = self._malformed.read_answer(self._read_pod, answer.body)
        if pod.ref != ref:
            # It would count as gone, and never be evicted. The API server refuses a patch of another UID.
            unanswered = f"the API server's answer is not about {ref}"
            raise CallFailed(unanswered, reason=FailureReason.NO_ANSWER, may_pass=True)
        return pod


def _confirms(body: object, ref: PodRef, *, evicts: bool) -> bool:
    """Return whether the API server itself says that a pod is being deleted; proxies may answer anything with a 200.

    It answers a deletion with the pod, which then has a deletionTimestamp, or with a Status that names it; and an
    eviction with a Status that names nothing.
    """
    match body:
        case {"kind": "Pod", "metadata": {"uid": ref.uid, "deletionTimestamp": str()}}:
            return True
        case {"kind": "Status", "status": "Success", "details": {"uid": uid}}:
            return bool(uid == ref.uid)
        case {"kind": "Status", "status": "Success"}:
            return evicts
    return False
