"""List, observe all, sweep the absent: for all nodes, for the pods of one node, or for all bound pods.

Readiness, ghosts and lost events rest on this one function; watches only bring the changes between two lists. The
request is dated before it is sent, so that what a watch brings meanwhile is never taken for older than the list.
"""

import asyncio
import contextlib

from taint_eviction.core.facts import NodeSeen, NodesSwept, PodSeen, PodsSwept
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.ports import ClusterReader, NodesScope, WatchScope


class Resync:
    """Brings the brain's view in line with what a fresh list says; at most ``lists_at_once`` lists at a time."""

    def __init__(self, reader: ClusterReader, live: LiveController, lists_at_once: int) -> None:
        self._reader = reader
        self._live = live
        self._turn = asyncio.Semaphore(lists_at_once)

    async def resync(self, scope: WatchScope) -> int | None:
        """List ``scope`` once and return the version of that list, None where the server told none.

        Raise ``CallFailed`` if that fails. What was listed until then stays observed.
        """
        async with self._turn:
            return await (self._nodes() if isinstance(scope, NodesScope) else self._pods(scope.node_name))

    async def _nodes(self) -> int | None:
        asked_at = self._live.clock.now().at
        present: set[str] = set()
        version: int | None = None
        async with contextlib.aclosing(self._reader.list_nodes()) as pages:
            async for page in pages:
                present |= page.present
                version = page.resource_version
                for node in page.objects:
                    self._live.observe(NodeSeen(node, continuous=False, asked_at=asked_at))
                await asyncio.sleep(0)
        self._live.observe(NodesSwept(frozenset(present), asked_at, version))
        return version

    async def _pods(self, node_name: str | None) -> int | None:
        asked_at = self._live.clock.now().at
        present: set[str] = set()
        version: int | None = None
        async with contextlib.aclosing(self._reader.list_pods(node_name)) as pages:
            async for page in pages:
                present |= page.present
                version = page.resource_version
                for pod in page.objects:
                    self._live.observe(PodSeen(pod, asked_at=asked_at))
                await asyncio.sleep(0)
        self._live.observe(PodsSwept(node_name, frozenset(present), asked_at, version))
        return version
