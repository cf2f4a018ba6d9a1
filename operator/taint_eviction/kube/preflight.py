"""Checks before the start: can the API server be reached, and does it allow what the controller will do?

For people who start the command by hand. In a cluster the controller waits for the API server instead.
"""

import asyncio
from collections.abc import Iterator, Sequence

from taint_eviction.core.policy import EvictionMode
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings, history_name

_FORBIDDEN = 403
_REVIEWS = "authorization.k8s.io/v1"
_READS = [(verb, resource) for resource in ("nodes", "pods") for verb in ("get", "list", "watch")]
_WRITES = [("patch", "pods/status"), ("delete", "pods")]
_EVICTIONS = [("create", "pods/eviction")]
_ADOPTIONS = [("patch", "pods")]
_EVENTS = [("create", "events"), ("patch", "events")]
_LEASES = [(verb, "leases") for verb in ("get", "create", "update")]
_CONTROL_STATE = [("get", "configmaps")]
_LATCHES = [("create", "configmaps"), ("patch", "configmaps")]
_HISTORY = ("get", "patch")


async def reach(calls: ApiCalls) -> None:
    """Make one small call; raise ``CallFailed`` if the API server cannot be reached or rejects the credentials."""
    answer = await calls.make(ApiRequest("list", "nodes", query={"limit": 1}))
    if answer.status != _FORBIDDEN:
        answer.need(Outcome.DONE)


async def missing_rights(calls: ApiCalls, settings: Settings) -> list[str]:
    """Return the missing rights as ``verb resource``. A right that cannot be checked does not count as missing."""
    needed = list(needed_rights(settings))
    answers = await asyncio.gather(*(allowed(calls, verb, resource, settings) for verb, resource in needed))
    return [f"{verb} {resource}" for (verb, resource), yes in zip(needed, answers, strict=True) if yes is False]


def needed_rights(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the verbs and resources that the controller uses with these settings.

    The name of an object follows its resource, unless it is that of Lease and state ConfigMap.
    """
    yield from _READS
    if settings.election.enabled:
        yield from _LEASES
    if settings.control_state.enabled:
        yield from _CONTROL_STATE
    if settings.keeps_history:
        yield from ((verb, f"configmaps {history_name(settings.election.lease_name)}") for verb in _HISTORY)
        if settings.dry_run or not settings.control_state.enabled:
            yield "create", "configmaps"
    if settings.dry_run_events or not settings.dry_run:
        yield from _EVENTS
    if settings.dry_run:
        return
    yield from _WRITES
    if settings.adoption.enabled:
        yield from _ADOPTIONS
    if {settings.policy.mode, *(rule.mode for rule in settings.policy.rules)} - {None, EvictionMode.DELETE}:
        yield from _EVICTIONS
    if settings.control_state.enabled:
        yield from _LATCHES


async def allowed(calls: ApiCalls, verb: str, resource: str, settings: Settings, user: str = "") -> bool | None:
    """Return whether a user ("": the current user) has a right; None if that cannot be checked."""
    resource, _, name = resource.partition(" ")
    plural, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "resource": plural, "subresource": subresource}
    own = {
        "leases": ("coordination.k8s.io", settings.election.lease_name),
        "configmaps": ("", settings.control_state.name),
    }
    if plural in own:
        group, own_name = own[plural]
        attributes |= {"group": group, "namespace": settings.election.lease_namespace}
        if verb != "create":  # A creation is authorized without a name.
            attributes["name"] = name or own_name
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    spec = {"resourceAttributes": attributes} | ({"user": user} if user else {})
    body = {"apiVersion": _REVIEWS, "kind": kind, "spec": spec}
    try:
        answer = await calls.make(ApiRequest("create", f"{kind.lower()}s", body=body, group=_REVIEWS))
    except CallFailed:
        return None
    if answer.outcome is not Outcome.DONE or not isinstance(answer.body, dict):
        return None
    status = answer.body.get("status") or {}
    return bool(status.get("allowed")) if isinstance(status, dict) else None


def in_words(missing: Sequence[str]) -> str:
    """Return one line with the missing rights and what to do."""
    return (
        f"this user lacks rights that the controller needs: {', '.join(missing)};"
        " apply the ClusterRole and Role in manifests/base, or use another context"
    )
