"""The names that a shell completes: contexts of the kubeconfig, and what the cluster has, read with the user's rights.

A cluster that does not answer in time has no names: completion never prints an error into somebody's command line.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import click
from click.shell_completion import CompletionItem

from taint_eviction.core.objects import ZONE_LABEL
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.api_calls import ApiRequest
from taint_eviction.kube.item_lists import list_items
from taint_eviction.login.credentials import CredentialsError, known_contexts
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_ctl.cli.reaching import ReachedCluster, reaching
from taint_eviction_ctl.cli.values import NODE_KINDS, ZONE_KINDS

_SECONDS = 3.0
# More names than that help nobody to choose; the API server sends no more, either.
_MAX = 500
_DEFAULT_NAMESPACE = "default"

Flags = Mapping[str, Any]
Find = Callable[[Flags, str], list[str]]


def _contexts(flags: Flags, _: str) -> list[str]:
    try:
        return known_contexts(flags.get("kubeconfig"))
    except CredentialsError:
        return []


def _listed(resource: str) -> Find:
    return lambda flags, _: _names(flags, lambda reading: reading.all(resource))


def _pods_or_nodes(flags: Flags, word: str) -> list[str]:
    """Return pods of the namespace that is given, by the word itself, by -n, or by the context; or nodes."""
    before, slash, _ = word.rpartition("/")
    if before in NODE_KINDS:
        return [f"{before}/{name}" for name in _names(flags, lambda reading: reading.all("nodes"))]
    namespace = before or flags.get("namespace") or ""
    found = _names(flags, lambda reading: reading.all("pods", namespace or reading.namespace))
    return [f"{before}{slash}{name}" for name in found]


def _scopes(flags: Flags, word: str) -> list[str]:
    """Return what can be paused, once its kind is written."""
    kind, slash, _ = word.partition("/")
    if not slash:
        return ["node/", "zone/", "namespace/"]
    if kind in ZONE_KINDS:
        return [f"{kind}/{name}" for name in _names(flags, lambda reading: reading.zones())]
    resource = "nodes" if kind in NODE_KINDS else "namespaces"
    return [f"{kind}/{name}" for name in _names(flags, lambda reading: reading.all(resource))]


# By the names of flags and arguments, which mean the same in all verbs.
_FIND: Mapping[str, Find] = {
    "context": _contexts,
    "namespace": _listed("namespaces"),
    "lease_namespace": _listed("namespaces"),
    "node": _listed("nodes"),
    "delete_node": _listed("nodes"),
    "taint": _listed("nodes"),
    "untaint": _listed("nodes"),
    "pod": _pods_or_nodes,
    "scopes": _scopes,
}


class _Name(click.types.StringParamType):
    """A text whose values a shell completes."""

    def __init__(self, find: Find) -> None:
        self._find = find

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Return the names that begin so."""
        return [CompletionItem(name) for name in self._find(ctx.params, incomplete) if name.startswith(incomplete)]


def complete_names(command: click.Command) -> None:
    """Let those flags and arguments of a command complete that name something."""
    for parameter in command.params:
        if parameter.type is click.STRING and (find := _FIND.get(parameter.name or "")):
            parameter.type = _Name(find)


class _Reading:
    """A cluster from which names are read."""

    def __init__(self, cluster: ReachedCluster) -> None:
        self._calls = cluster.calls
        self.namespace = cluster.connection.namespace or _DEFAULT_NAMESPACE

    async def all(self, resource: str, namespace: str = "") -> list[str]:
        """Return the names of the first objects of a kind."""
        return await self._first(ApiRequest("list", resource, namespace), _name)

    async def zones(self) -> list[str]:
        """Return the zones of the first nodes."""
        return sorted(set(await self._first(ApiRequest("list", "nodes", query={"labelSelector": ZONE_LABEL}), _zone)))

    async def _first(self, request: ApiRequest, read: Callable[[JsonObject], str]) -> list[str]:
        names: list[str] = []
        async with aclosing(list_items(self._calls, request, read, _MAX)) as found:
            async for name in found:
                names.append(name)
                if len(names) == _MAX:
                    break
        return names


def _names(flags: Flags, read: Callable[[_Reading], Awaitable[list[str]]]) -> list[str]:
    async def reading() -> list[str]:
        async with asyncio.timeout(_SECONDS):
            async with reaching(flags, _SECONDS) as cluster:
                return await read(_Reading(cluster))

    try:
        return asyncio.run(reading())
    except (CredentialsError, CallFailed, TimeoutError):
        return []


def _zone(body: JsonObject) -> str:
    return str(((body.get("metadata") or {}).get("labels") or {}).get(ZONE_LABEL, ""))


def _name(body: JsonObject) -> str:
    return str((body.get("metadata") or {}).get("name"))
