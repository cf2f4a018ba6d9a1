"""Pods near one that is not there: suggestions for its name, and which other pods its owner has. They are read with the
rights of the current user; suggestions also come from the replicas.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from taint_eviction.core.objects import NO_EXECUTE, NamespacedName
from taint_eviction.core.text import JsonObject, did_you_mean, nearest
from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.kube.kubernetes_objects import MalformedObject, read_node
from taint_eviction.login.credentials import CredentialsError
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.asking import Unanswered
from taint_eviction_ctl.cli.history_reads import remembered
from taint_eviction_ctl.cli.reaching import reaching
from taint_eviction_ctl.failover.objects import read_pod_object

_DEFAULT_NAMESPACE = "default"
# Of pods elsewhere that are gone, so many are suggested, with these facts.
_MAX_REMEMBERED = 3
_ABOUT_GONE = ("outcome", "node", "time", "dryRun")


async def own_namespace(flags: Mapping[str, Any]) -> str:
    """Return the namespace of the kubeconfig's context, which kubectl uses if none is given."""
    try:
        async with reaching(flags) as cluster:
            return cluster.connection.namespace or _DEFAULT_NAMESPACE
    except CredentialsError:
        return _DEFAULT_NAMESPACE


async def near_pods(key: NamespacedName, flags: Mapping[str, Any]) -> JsonObject:
    """Return similar names. ``near``: a pod in that namespace (it may be gone), a pod elsewhere, node/NAME or
    namespace/NAME; None: the pod exists or is remembered, no name is similar, or the user may not read them.
    ``nearRemembered``: pods that are gone, of this name elsewhere, or whose names begin with it, as those of a
    Deployment do; the newest outcome of each.
    """
    gone: dict[str, JsonObject] = {}
    names: set[str] = set()
    with contextlib.suppress(Unanswered):
        for each in (await remembered(flags, {"limit": 1000})).outcomes:
            here, name = each["namespace"] == key.namespace, str(each["name"])
            if here:
                names.add(name)
            if name.startswith(f"{key.name}-") if here else name == key.name:
                pod = f"{each['namespace']}/{each['name']}"
                gone.setdefault(pod, {"pod": pod, **{about: each[about] for about in _ABOUT_GONE}})
    near = await _near(key, names, flags)
    return {"near": near, "nearRemembered": [each for pod, each in gone.items() if pod != near][:_MAX_REMEMBERED]}


async def _near(key: NamespacedName, names: set[str], flags: Mapping[str, Any]) -> str | None:
    """Return a similar name; ``names``: those in that namespace that are remembered."""
    with contextlib.suppress(CredentialsError, CallFailed):
        async with reaching(flags) as cluster:
            names |= {found.name async for found in _list(cluster.calls, ApiRequest("list", "pods", key.namespace))}
            if key.name in names:
                return None
            if name := nearest(key.name, sorted(names)):
                return f"{key.namespace}/{name}"
            query = {"fieldSelector": f"metadata.name={key.name}"}
            elsewhere = [found async for found in _list(cluster.calls, ApiRequest("list", "pods", query=query))]
            if elsewhere:
                return str(min(elsewhere))
            for kind in ("node", "namespace"):
                if (await cluster.calls.make(ApiRequest("get", f"{kind}s", name=key.name))).outcome is Outcome.DONE:
                    return f"{kind}/{key.name}"
            return None
    name = None if key.name in names else nearest(key.name, sorted(names))
    return f"{key.namespace}/{name}" if name else None


async def owner_pods(namespace: str, owner: str, flags: Mapping[str, Any]) -> list[JsonObject] | None:
    """Return the pods that an owner (KIND/NAME) has now, the newest first, without those that have ended or are being
    deleted. None: the user may not list them.
    """

    def living(body: JsonObject) -> JsonObject | None:
        pod = read_pod_object(body)
        ends = pod.deletion_epoch is not None or pod.phase in ("Succeeded", "Failed")
        if ends or pod.owner is None or f"{pod.owner.kind}/{pod.owner.name}" != owner:
            return None
        created = None if pod.created_epoch is None else format_rfc3339(pod.created_epoch)
        return {"name": pod.name, "phase": pod.phase, "node": pod.node or None, "created": created}

    try:
        async with reaching(flags) as cluster:
            found = {
                pod["name"]: pod
                async for pod in list_items(cluster.calls, ApiRequest("list", "pods", namespace), living)
            }
    except (CredentialsError, CallFailed):
        return None
    return sorted(found.values(), key=lambda pod: (pod["created"] or "", pod["name"]), reverse=True)


async def left_node(node: str, flags: Mapping[str, Any]) -> JsonObject | None:
    """Return the NoExecute taints that a node has, and whether it is gone; None: the user may not read it."""
    with contextlib.suppress(CredentialsError, CallFailed, MalformedObject):
        async with reaching(flags) as cluster:
            answer = await cluster.calls.make(ApiRequest("get", "nodes", name=node))
            if answer.outcome is Outcome.DONE:
                taints = [str(taint) for taint in read_node(answer.body).value.taints if taint.effect == NO_EXECUTE]
                return {"node": node, "taints": taints, "gone": False}
            if answer.outcome is Outcome.ABSENT:
                return {"node": node, "taints": [], "gone": True}
    return None


async def absent_object(kind: str, name: str, flags: Mapping[str, Any]) -> str:
    """Return that no node or namespace has this name, and a suggestion; "" if one has, or the user may not read it."""
    with contextlib.suppress(CredentialsError, CallFailed):
        async with reaching(flags) as cluster:
            answer = await cluster.calls.make(ApiRequest("get", f"{kind}s", name=name))
            if answer.outcome is Outcome.ABSENT:
                known = sorted([found.name async for found in _list(cluster.calls, ApiRequest("list", f"{kind}s"))])
                return f"there is no {kind} {name!r}{did_you_mean(name, known)}"
    return ""


def _list(calls: ApiCalls, request: ApiRequest) -> AsyncIterator[NamespacedName]:
    return list_items(calls, request, _key)


def _key(body: JsonObject) -> NamespacedName:
    metadata = body.get("metadata") or {}
    return NamespacedName(str(metadata.get("namespace")), str(metadata.get("name")))
