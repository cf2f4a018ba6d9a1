"""Reads and writes of the cluster: ``ClusterReader`` and ``ClusterWriter`` over HTTP.

Every read but ``cached_pods`` is consistent: no resourceVersion is given, so an answer is at least as new as its
question. Nothing is retried in here: the one who asked knows whether it is still wanted.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import FIELD_MANAGER, ApiCalls, Call
from taint_eviction.adapters.condition_patches import mark_patch, unmark_patch
from taint_eviction.adapters.evictions import eviction_body
from taint_eviction.adapters.json_fields import version_number
from taint_eviction.adapters.kubernetes_objects import MalformedObject, Parsed, read_node, read_pod, readable_uid
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Node, Pod, PodRef
from taint_eviction.runtime.ports import CallFailed, Page

ObjectT = TypeVar("ObjectT", Node, Pod)

_PAGE = 500

# A list is begun anew so often when its continue token is too old (after 5 minutes); then it is asked for as a whole.
_PAGED_ATTEMPTS = 3

_GONE = (Outcome.ABSENT, Outcome.ANOTHER_UID)


class ApiClient:
    """The API server's doors; see ``runtime.ports`` for the contracts of the methods.

    ``look_at_pod`` is shown every pod that is listed, as it came.
    """

    def __init__(
        self, calls: ApiCalls, malformed: MalformedObjects, look_at_pod: Callable[[Any], None] = lambda _: None
    ) -> None:
        self._calls = calls
        self._malformed = malformed
        self._look_at_pod = look_at_pod

    # Reads

    async def list_nodes(self) -> AsyncGenerator[Page[Node], None]:
        """List all nodes."""
        async for page in self._list("nodes", read_node, {}, paged=True):
            yield page

    async def list_pods(self, node_name: str | None) -> AsyncGenerator[Page[Pod], None]:
        """List the pods bound to one node, or to any.

        Those of one node in one piece: the server has them at hand by node, but older ones read a limited list, of all
        pods, from etcd.
        """
        async for page in self._list("pods", self._look_and_read, _bound_to(node_name), paged=node_name is None):
            yield page

    async def cached_pods(self, node_name: str) -> tuple[Pod, ...]:
        """List the pods bound to one node from the watch cache (resourceVersion 0).

        A consistent list waits until that cache is as new as the question, and where no pod changes, as right after a
        node was tainted, an API server asks etcd for its progress ten times a second only.
        """
        answer = await self._calls.make(Call("list", "pods", query={**_bound_to(node_name), "resourceVersion": 0}))
        page, _ = self._page(answer.need(Outcome.DONE).body, self._look_and_read, "pods")
        return page.objects

    def _look_and_read(self, body: object) -> Parsed[Pod]:
        self._look_at_pod(body)
        return read_pod(body)

    async def read_node(self, name: str) -> Node | None:
        """Read a node."""
        answer = await self._calls.make(Call("get", "nodes", name=name))
        if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
            return None
        return self._parse(read_node, answer.body)

    async def read_pod(self, ref: PodRef) -> Pod | None:
        """Read exactly this pod."""
        answer = await self._calls.make(Call("get", "pods", ref.key.namespace, ref.key.name))
        if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
            return None
        pod = self._parse(read_pod, answer.body)
        return pod if pod.ref == ref else None

    # Writes

    async def mark(self, ref: PodRef, already: bool, now: Moment) -> Pod | None:
        """Set the DisruptionTarget condition."""
        return await self._patch_status(ref, mark_patch(ref, None if already else now.server_epoch))

    async def unmark(self, pod: Pod, now: Moment) -> Pod | None:
        """Set the condition's status to False, on exactly this version; another one answers ``CallFailed(409)``."""
        if pod.resource_version is None:
            raise CallFailed(f"{pod.ref} has no version that a patch could be made for")
        return await self._patch_status(pod.ref, unmark_patch(pod.ref, pod.resource_version, now.server_epoch))

    async def delete(self, ref: PodRef) -> bool:
        """Ask for the pod's deletion."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": ref.uid}}
        answer = await self._calls.make(Call("delete", "pods", ref.key.namespace, ref.key.name, body=body))
        return answer.need(Outcome.DONE, *_GONE).outcome is Outcome.DONE

    async def evict(self, ref: PodRef) -> bool:
        """Ask the eviction API for the pod."""
        key = ref.key
        answer = await self._calls.make(
            Call("create", "pods/eviction", key.namespace, key.name, body=eviction_body(ref))
        )
        return answer.need(Outcome.DONE, *_GONE).outcome is Outcome.DONE

    async def _patch_status(self, ref: PodRef, patch: dict[str, Any]) -> Pod | None:
        query = {"fieldManager": FIELD_MANAGER}
        answer = await self._calls.make(Call("patch", "pods/status", ref.key.namespace, ref.key.name, query, patch))
        if answer.need(Outcome.DONE, *_GONE).outcome is not Outcome.DONE:
            return None
        pod = self._parse(read_pod, answer.body)
        return pod if pod.ref == ref else None

    # Lists

    async def _list(
        self, resource: str, read: Callable[[object], Parsed[ObjectT]], query: dict[str, str | int], paged: bool
    ) -> AsyncGenerator[Page[ObjectT], None]:
        attempt, token = 1, ""
        while True:
            limit = {"limit": _PAGE} if paged and attempt <= _PAGED_ATTEMPTS else {}
            following = {"continue": token} if token else {}
            answer = await self._calls.make(Call("list", resource, query={**query, **limit, **following}))
            if token and answer.outcome is Outcome.EXPIRED:
                # What was told already stays told: it only makes the list name more than there is.
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
            raise CallFailed(f"the API server's answer is no list of {resource}")
        objects: list[ObjectT] = []
        present: set[str] = set()
        for item in items or ():
            uid = readable_uid(item)
            if uid is not None:
                present.add(uid)
            try:
                objects.append(self._read(read, item))
            except MalformedObject as error:
                self._malformed.malformed(error)
        token = metadata.get("continue")
        page = Page(tuple(objects), frozenset(present), version_number(metadata))
        return page, token if isinstance(token, str) else ""

    # Objects

    def _parse(self, read: Callable[[object], Parsed[ObjectT]], body: object) -> ObjectT:
        try:
            return self._read(read, body)
        except MalformedObject as error:
            self._malformed.malformed(error)
            raise CallFailed(f"the API server's answer cannot be used: {error}") from error

    def _read(self, read: Callable[[object], Parsed[ObjectT]], body: object) -> ObjectT:
        value, complaints = read(body)
        if complaints:
            self._malformed.complained(value, complaints)
        return value


def _bound_to(node_name: str | None) -> dict[str, str | int]:
    return {"fieldSelector": "spec.nodeName!=" if node_name is None else f"spec.nodeName={node_name}"}
