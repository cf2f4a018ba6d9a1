"""The runtime's ports for reads and writes, on the simulated cluster.
They answer from the store as it is when a call arrives. ``calls`` carries calls and answers.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Protocol, TypeVar

from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Node, Pod, PodRef
from taint_eviction.core.text import JsonObject
from taint_eviction.runtime.ports import CallFailed, Page, Ready
from taint_eviction_lab.simulation.calls import World
from taint_eviction_lab.simulation.cluster import bound_to
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.virtual_clock import virtual_now

AnswerT = TypeVar("AnswerT")


class Calls(Protocol):
    """Carries calls to the store and their answers back."""

    async def call(
        self,
        call: CallKind,
        subject: str,
        act: Callable[[], AnswerT],
        uid: str = "",
        ready: Ready | None = None,
        max_seconds: float | None = None,
    ) -> AnswerT:
        """Make a call: run ``act`` when it arrives, and return the answer; raise ``CallFailed``."""


class SimulatedApi:
    """``ClusterReader`` and ``ClusterWriter`` of one controller process.

    ``cache_age`` returns the age of the API server's watch cache, in seconds.
    """

    def __init__(self, world: World, calls: Calls, cache_age: Callable[[], float] = lambda: 0.0) -> None:
        self._world = world
        self._calls = calls
        self._cluster = world.cluster
        self._writes = world.pod_writes
        self._cache_age = cache_age

    # Reading

    async def list_nodes(self) -> AsyncGenerator[Page[Node], None]:
        """List all nodes, page by page, as they were when the first page was answered."""
        async for part, version in self._pages(CallKind.LIST_NODES, "", self._cluster.nodes):
            nodes = tuple(node for body in part if (node := self._world.parsing.node(body)) is not None)
            yield Page(nodes, _uids(part), version)

    async def list_pods(self, node_name: str | None) -> AsyncGenerator[Page[Pod], None]:
        """List the pods bound to one node, or to any node if ``node_name`` is None."""
        subject = node_name or ""
        async for part, version in self._pages(
            CallKind.LIST_PODS, subject, lambda: self._cluster.bodies(bound_to(node_name))
        ):
            pods = tuple(pod for body in part if (pod := self._world.parsing.pod(body)) is not None)
            yield Page(pods, _uids(part), version)

    async def cached_pods(self, node_name: str) -> tuple[Pod, ...]:
        """List the pods bound to one node from the API server's watch cache."""

        def at_hand() -> list[JsonObject]:
            return self._cluster.pods_at(virtual_now() - self._cache_age(), node_name)

        bodies = await self._calls.call(CallKind.LIST_CACHED_PODS, node_name, at_hand)
        return tuple(pod for body in bodies if (pod := self._world.parsing.pod(body)) is not None)

    async def _pages(
        self, call: CallKind, subject: str, select: Callable[[], list[JsonObject]]
    ) -> AsyncIterator[tuple[list[JsonObject], int]]:
        """Yield a list page by page, with its version: both as they were when the first page was answered."""
        size = self._world.network.page_size
        bodies, version = await self._calls.call(
            call, subject, lambda: (select(), self._cluster.store.resource_version)
        )
        yield bodies[:size], version
        for begin in range(size, len(bodies), size):
            await self._calls.call(call, subject, lambda: None)
            yield bodies[begin : begin + size], version

    async def read_node(self, name: str) -> Node | None:
        """Read a node; None if there is none of this name."""
        body = await self._calls.call(CallKind.READ_NODE, name, lambda: self._cluster.node(name))
        if body is None:
            return None
        node = self._world.parsing.node(body)
        if node is None:
            raise CallFailed(f"Node {name} cannot be read")
        return node

    async def read_pod(self, ref: PodRef) -> Pod | None:
        """Read a pod; None if there is none of this name, or it has another UID."""
        return self._live(
            await self._calls.call(CallKind.READ_POD, str(ref), lambda: self._writes.pod_of(ref), ref.uid)
        )

    def _live(self, body: JsonObject | None) -> Pod | None:
        if body is None:
            return None
        pod = self._world.parsing.pod(body)
        if pod is None:
            raise CallFailed("the pod cannot be read")
        return pod

    # Writing

    async def mark(self, ref: PodRef, already: bool, now: Moment) -> Pod | None:
        """Set the DisruptionTarget condition and return the live pod."""
        since = None if already else now.server_epoch
        marking = self._calls.call(CallKind.MARK, str(ref), lambda: self._writes.mark(ref, since), ref.uid)
        return self._live(await marking)

    async def unmark(self, pod: Pod, now: Moment) -> Pod | None:
        """Set the condition's status to False on exactly this version of ``pod``; return the live pod."""
        unmarking = self._calls.call(
            CallKind.UNMARK, str(pod.ref), lambda: self._writes.unmark(pod, now.server_epoch), pod.ref.uid
        )
        return self._live(await unmarking)

    async def delete(self, ref: PodRef, ready: Ready, max_seconds: float | None = None) -> bool:
        """Ask for the pod's deletion; True once the API server has accepted it."""
        return await self._calls.call(
            CallKind.DELETE, str(ref), lambda: self._writes.delete(ref), ref.uid, ready, max_seconds
        )

    async def evict(self, ref: PodRef, ready: Ready, max_seconds: float | None = None) -> bool:
        """Evict the pod by the eviction API; True once accepted, ``CallFailed`` with ``block`` if a budget refuses."""
        return await self._calls.call(
            CallKind.EVICT, str(ref), lambda: self._writes.evict(ref), ref.uid, ready, max_seconds
        )


def _uids(bodies: list[JsonObject]) -> frozenset[str]:
    return frozenset(body["metadata"]["uid"] for body in bodies)
