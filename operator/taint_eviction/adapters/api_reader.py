"""Reads of the cluster: ``ClusterReader`` over HTTP.

Every read except ``cached_pods`` is consistent: the request names no resourceVersion, so the answer is at least as new
as the request. This module retries nothing: only the caller knows whether the call is still wanted.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, ApiRequest
from taint_eviction.adapters.json_fields import version_number
from taint_eviction.adapters.kubernetes_objects import (
    MalformedObject,
    ObjectT,
    Parsed,
    read_node,
    read_pod,
    readable_uid,
)
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.core.objects import Node, Pod, PodRef
from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.runtime.ports import CallFailed, Page

_PAGE = 500

# How often a list restarts because its continue token has expired (after 5 minutes); then it is read in one answer.
_PAGED_ATTEMPTS = 3


class ApiReader:
    """Reads and lists nodes and pods; ``runtime.ports`` has the contracts of the methods.

    ``look_at_pod`` is called with the JSON of every pod that is listed. ``parts`` of pods are read.
    """

    def __init__(
        self,
        calls: ApiCalls,
        malformed: MalformedObjects,
        look_at_pod: Callable[[Any], None] = lambda _: None,
        parts: PodParts = ALL_PARTS,
    ) -> None:
        self._calls = calls
        self._read_pod = partial(read_pod, parts=parts)
        self._malformed = malformed
        self._look_at_pod = look_at_pod

    async def list_nodes(self) -> AsyncGenerator[Page[Node], None]:
        """List all nodes."""
        async for page in self._list("nodes", read_node, {}, paged=True):
            yield page

    async def list_pods(self, node_name: str | None) -> AsyncGenerator[Page[Pod], None]:
        """List the pods bound to one node, or to any node.

        The pods of one node are listed in one answer: the API server has an index by node, but older versions serve a
        limited list from etcd and read all pods for it.
        """
        async for page in self._list("pods", self._look_and_read, _bound_to(node_name), paged=node_name is None):
            yield page

    async def cached_pods(self, node_name: str) -> tuple[Pod, ...]:
        """List the pods bound to one node from the API server's watch cache (resourceVersion 0).

        A consistent list waits until that cache is as new as the request. While no pod changes, the API server asks
        etcd for its progress only ten times a second, so that wait is long right after a node was tainted.
        """
        answer = await self._calls.make(
            ApiRequest("list", "pods", query={**_bound_to(node_name), "resourceVersion": 0})
        )
        page, _ = self._page(answer.need(Outcome.DONE).body, self._look_and_read, "pods")
        return page.objects

    def _look_and_read(self, body: object) -> Parsed[Pod]:
        self._look_at_pod(body)
        return self._read_pod(body)

    async def read_node(self, name: str) -> Node | None:
        """Read a node."""
        answer = await self._calls.make(ApiRequest("get", "nodes", name=name))
        if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
            return None
        return self._malformed.read_answer(read_node, answer.body)

    async def read_pod(self, ref: PodRef) -> Pod | None:
        """Read exactly this pod."""
        answer = await self._calls.make(ApiRequest("get", "pods", ref.key.namespace, ref.key.name))
        if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
            return None
        pod = self._malformed.read_answer(self._read_pod, answer.body)
        return pod if pod.ref == ref else None

    # Lists

    async def _list(
        self, resource: str, read: Callable[[object], Parsed[ObjectT]], query: dict[str, str | int], paged: bool
    ) -> AsyncGenerator[Page[ObjectT], None]:
        attempt, token = 1, ""
        while True:
            limit = {"limit": _PAGE} if paged and attempt <= _PAGED_ATTEMPTS else {}
            following = {"continue": token} if token else {}
            answer = await self._calls.make(ApiRequest("list", resource, query={**query, **limit, **following}))
            if token and answer.outcome is Outcome.EXPIRED:
                # The pages that were yielded remain valid: the list then only names more objects than exist.
                attempt, token = attempt + 1, ""
                continue
            page, token = self._page(answer.need(Outcome.DONE).body, read, resource)
            yield page
            if not token:
                return

    def _page(self, body: Any, read: Callable[[object], Parsed[ObjectT]], resource: str) -> tuple[Page[ObjectT], str]:
        metadata = body.get("metadata") if isinstance(body, dict) else None
        items = body.get("items") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or not isinstance(items, list | None):
            raise CallFailed(f"the API server's answer is not a list of {resource}")
        objects: list[ObjectT] = []
        present: set[str] = set()
        for item in items or ():
            uid = readable_uid(item)
            if uid is not None:
                present.add(uid)
            with contextlib.suppress(MalformedObject):
                objects.append(self._malformed.read(read, item))
        token = metadata.get("continue")
        page = Page(tuple(objects), frozenset(present), version_number(metadata))
        return page, token if isinstance(token, str) else ""


def _bound_to(node_name: str | None) -> dict[str, str | int]:
    return {"fieldSelector": "spec.nodeName!=" if node_name is None else f"spec.nodeName={node_name}"}
