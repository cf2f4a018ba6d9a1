"""A look before the start: can the API server be reached, and does it allow what the controller will do?

For people who start the command by hand; in a cluster the controller waits for the API server instead.
"""

import asyncio
from collections.abc import Sequence

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, Call
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings

_FORBIDDEN = 403
_REVIEWS = "authorization.k8s.io/v1"
_READS = [(verb, resource) for resource in ("nodes", "pods") for verb in ("get", "list", "watch")]
_WRITES = [("patch", "pods/status"), ("delete", "pods"), ("create", "events"), ("patch", "events")]
_LEASES = [(verb, "leases") for verb in ("get", "create", "update")]


async def reach(calls: ApiCalls) -> None:
    """Make one small call; raise ``CallFailed`` if the API server can't be reached, or does not know who we are."""
    answer = await calls.make(Call("list", "nodes", query={"limit": 1}))
    if answer.status != _FORBIDDEN:
        answer.need(Outcome.DONE)


async def missing_rights(calls: ApiCalls, settings: Settings) -> list[str]:
    """Name the rights that are missing, as ``verb resource``; what the server would not say is not missing."""
    needed = _READS + ([] if settings.dry_run else _WRITES) + (_LEASES if settings.election.enabled else [])
    allowed = await asyncio.gather(*(_allowed(calls, verb, resource, settings) for verb, resource in needed))
    return [f"{verb} {resource}" for (verb, resource), yes in zip(needed, allowed, strict=True) if not yes]


async def _allowed(calls: ApiCalls, verb: str, resource: str, settings: Settings) -> bool:
    plural, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "resource": plural, "subresource": subresource}
    if plural == "leases":
        attributes |= {"group": "coordination.k8s.io", "namespace": settings.election.lease_namespace}
        if verb != "create":  # one that is to be created has no name yet when it is authorized
            attributes["name"] = settings.election.lease_name
    body = {
        "apiVersion": _REVIEWS,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = await calls.make(Call("create", "selfsubjectaccessreviews", body=body, group=_REVIEWS))
    except CallFailed:
        return True
    return answer.outcome is not Outcome.DONE or bool((answer.body.get("status") or {}).get("allowed"))


def in_words(missing: Sequence[str]) -> str:
    """Say in one line what is missing and what to do."""
    return (
        f"this user lacks rights that are needed: {', '.join(missing)};"
        " apply the ClusterRole and Role in manifests/base, or use another context"
    )
