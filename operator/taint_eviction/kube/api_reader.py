"""Reads of the cluster: ``ClusterReader`` over HTTP.

Every read except ``cached_pods`` is consistent: the request names no resourceVersion, so the answer is at least as new
as the request. This module retries nothing: only the caller knows whether the call is still wanted.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, Generic

from taint_eviction.core.objects import Node, Pod, PodRef
from taint_eviction.core.pod_parts import ALL_PARTS, PodParts
from taint_eviction.files.list_pages import PageSize
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.item_lists import list_pages
from taint_eviction.kube.json_fields import version_number
from taint_eviction.kube.kubernetes_objects import (
    MalformedObject,
    ObjectT,
    Parsed,
    read_node,
    read_pod,
    readable_uid,
)
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.runtime.ports import CallFailed, Page

_PAGE = 500

Query = dict[str, str | int]


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
        async for page in self._list("nodes", read_node, {}, _PAGE):
            yield page

    async def list_pods(self, node_name: str | None) -> AsyncGenerator[Page[Pod], None]:
        """List the pods bound to one node, or to any node.

        The pods of one node are listed in one answer: the API server has an index by node, but versions before 1.34
        serve a limited list from etcd and read all pods for it. Only an answer of which some pods arrived and not all
        (it has too many bytes, or lasts longer than any request may) is asked for again in pages, at first of half as
        many pods.
        """
        limit = _PAGE if node_name is None else None
        async for page in self._list("pods", self._look_and_read, _bound_to(node_name), limit):
            yield _of_node(page, node_name)

    async def cached_pods(self, node_name: str) -> tuple[Pod, ...]:
        """List the pods bound to one node from the API server's watch cache (resourceVersion 0).

        A consistent list waits until that cache is as new as the request. While no pod changes, the API server asks
        etcd for its progress only ten times a second, so that wait is long right after a node was tainted.
        """
        page = _PageRead(self._malformed, self._look_and_read)
        # Without a limit: with one, the API server may ignore the version.
        request = ApiRequest("list", "pods", query={**_bound_to(node_name), "resourceVersion": 0})
        answer = await self._calls.make(request, take=page.take)
        return _of_node(page.finished(answer.need(Outcome.DONE).body, "pods"), node_name).objects

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
        self, resource: str, read: Callable[[object], Parsed[ObjectT]], query: Query, limit: int | None
    ) -> AsyncGenerator[Page[ObjectT], None]:
        """Yield the pages of a list (``list_pages``)."""
        request = ApiRequest("list", resource, query=query)
        size = PageSize(limit, _PAGE)
        async for page, body in list_pages(self._calls, request, size, lambda: _PageRead(self._malformed, read)):
            yield page.finished(body, resource)


class _PageRead(Generic[ObjectT]):
    """A page whose objects are read as they arrive; their JSON is not kept."""

    def __init__(self, malformed: MalformedObjects, read: Callable[[object], Parsed[ObjectT]]) -> None:
        self.taken = 0
        self._malformed = malformed
        self._read: Callable[[object], Parsed[ObjectT]] = read
        self._objects: list[ObjectT] = []
        self._present: set[str] = set()

    def take(self, item: object) -> None:
        self.taken += 1
        uid = readable_uid(item)
        if uid is not None:
            self._present.add(uid)
        with contextlib.suppress(MalformedObject):
            self._objects.append(self._malformed.read(self._read, item))

    def finished(self, body: Any, resource: str) -> Page[ObjectT]:
        """Return the page. ``body``: the list without its items."""
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or not isinstance(body.get("items"), list | None):
            raise CallFailed(f"the API server's answer is not a list of {resource}")
        return Page(tuple(self._objects), frozenset(self._present), version_number(metadata))


def _of_node(page: Page[Pod], node_name: str | None) -> Page[Pod]:
    """Return a page of a node's pods; raise ``CallFailed`` if it has another node's: then this one's are not known."""
    if node_name is not None and any(pod.node_name != node_name for pod in page.objects):
        raise CallFailed(f"the API server's answer is not a list of the pods of node {node_name}", may_pass=True)
    return page


def _bound_to(node_name: str | None) -> Query:
    return {"fieldSelector": "spec.nodeName!=" if node_name is None else f"spec.nodeName={node_name}"}
