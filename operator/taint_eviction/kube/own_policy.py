"""Whether the admission policy that narrows this account's rights is in force, tried by requests that change nothing.

The account may not read the policy, and a policy's text says less than what it refuses. So the API server is asked for
the account's name (SelfSubjectReview), and the policy is tried: a deletion with the pod's UID as a precondition must be
accepted, one without must be refused by the policy's own words. Both say ``dryRun`` twice: a body replaces what the
query says, and a gateway may drop bodies.
"""

from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.text import one_line
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ADMISSION_SECONDS, ApiAnswer, ApiCalls, ApiRequest
from taint_eviction.kube.json_fields import Unreadable, as_object, as_text
from taint_eviction.runtime.ports import CallFailed

# What the policy answers to a deletion without a UID: manifests/base/admission-policy has the same words.
REFUSAL = "taint-eviction-controller: a pod is deleted only with its UID as a precondition"

_NOT_FOUND = 404
_DRY_RUN = {"dryRun": "All"}
_REVIEWS = "authentication.k8s.io/v1"
_MAX_NAME = 253
# How many running pods are listed to find one that is not being deleted.
_MANY = 20


async def own_account(calls: ApiCalls) -> str | None:
    """Return the user name that the API server knows; "": it does not say; None: it has no such review (before 1.28).

    Raise ``CallFailed`` if there is no answer.
    """
    body = {"apiVersion": _REVIEWS, "kind": "SelfSubjectReview"}
    answer = await calls.make(ApiRequest("create", "selfsubjectreviews", body=body, group=_REVIEWS))
    if answer.outcome is not Outcome.DONE:
        if answer.status == _NOT_FOUND and answer.failure is not None and answer.failure.certain:
            return None
        if answer.lacks_right:
            return ""
        answer.need(Outcome.DONE)
    try:
        user = as_object(as_object(as_object(answer.body, "it").get("status"), "status").get("userInfo"), "userInfo")
        return one_line(as_text(user.get("username"), "username"), _MAX_NAME)
    except Unreadable as error:
        raise CallFailed(f"the API server's answer is no SelfSubjectReview: {error}") from None


class OwnPolicy:
    """Tries deletions of ``pod``, which is this process's own; if there is none, of a running pod of its namespace.

    Only if that has none, it is the first one of all: a webhook of its owner may answer in place of the policy.
    """

    def __init__(self, calls: ApiCalls, pod: NamespacedName) -> None:
        self._calls = calls
        self._pod = pod

    async def account(self) -> str | None:
        """Ask for this process's user name; see ``own_account``."""
        return await own_account(self._calls)

    async def in_force(self) -> bool:
        """Return whether the policy is in force; raise ``CallFailed`` if the answers do not say so for certain."""
        metadata = await self._some_pod()
        with_uid = await self._delete(metadata, {"preconditions": {"uid": metadata["uid"]}})
        with_uid.need(Outcome.DONE)
        without = await self._delete(metadata, {})
        if without.outcome is Outcome.DONE:
            return False
        if without.failure is None or REFUSAL not in str(without.failure):
            raise CallFailed(f"a deletion without a UID was refused, but not by the policy: {without.failure}")
        return True

    async def _delete(self, metadata: dict[str, Any], options: dict[str, Any]) -> ApiAnswer:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], **options}
        call = ApiRequest("delete", "pods", metadata["namespace"], metadata["name"], _DRY_RUN, body)
        return await self._calls.make(call, max_seconds=ADMISSION_SECONDS)

    async def _some_pod(self) -> dict[str, Any]:
        """Return the metadata of a pod that may be asked about."""
        own = await self._calls.make(ApiRequest("get", "pods", *self._pod))
        if own.outcome is Outcome.DONE:
            return _metadata(own.body)
        query: dict[str, str | int] = {"fieldSelector": "status.phase=Running", "limit": _MANY}
        for namespace in (self._pod.namespace, ""):
            listed = (await self._calls.make(ApiRequest("list", "pods", namespace, query=query))).need(Outcome.DONE)
            items = listed.body.get("items") if isinstance(listed.body, dict) else None
            # A pod that is being deleted already may be answered for in another way.
            found = map(_metadata, items if isinstance(items, list) else ())
            running = [each for each in found if "deletionTimestamp" not in each]
            if running:
                return running[0]
        raise CallFailed("no pod is running, so its policy cannot be tried")


def _metadata(body: Any) -> dict[str, Any]:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    fields = ("namespace", "name", "uid")
    if not isinstance(metadata, dict) or not all(isinstance(metadata.get(field), str) for field in fields):
        raise CallFailed("the API server's answer is no pod")
    return metadata
