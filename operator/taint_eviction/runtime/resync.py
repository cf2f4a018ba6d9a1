"""List, observe all, sweep the absent: for all nodes, for the pods of one node, or for all bound pods.

Readiness, ghosts and lost events rest on this one function; watches only bring the changes between two lists. The
request is dated before it is sent, so that what a watch brings meanwhile is never taken for older than the list.

A consistent list may take the API server a tenth of a second. Where nothing is known yet, what it has at hand is asked
for as well, and observed as if a watch had brought it: late perhaps, and never as a proof that something is gone. After
a pause the first list has the API server for itself until that is told, or for a moment where nothing is asked, so that
the first pods go before the others' lists take all it has.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from taint_eviction.core.facts import NodeSeen, NodesSwept, PodSeen, PodsSwept
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.ports import CallFailed, ClusterReader, NodesScope, WatchScope
from taint_eviction.runtime.turns import Turns

# So many of the pods at hand are observed before evictions get their turn.
_GLANCED_AT_ONCE = 5


class Resync:
    """Brings the brain's view in line with what a fresh list says; at most ``lists_at_once`` lists at a time.

    ``glances``: a first list of a node's pods is preceded by what is at hand, unless more lists are wanted than that.
    """

    def __init__(self, reader: ClusterReader, live: LiveController, lists_at_once: int, glances: bool = True) -> None:
        self._reader = reader
        self._live = live
        self._turns = Turns(lists_at_once)
        self._glances = glances

    async def resync(self, scope: WatchScope, first: bool = False) -> int | None:
        """List ``scope`` once and return the version of that list, None where the server told none.

        ``first``: nothing is known of it yet. Raise ``CallFailed`` if the list fails. What was listed until then stays
        observed.
        """
        async with self._turns.take():
            if isinstance(scope, NodesScope):
                return await self._nodes()
            # Where many lists are wanted, another of each would only make all of them later.
            if not (first and self._glances) or scope.node_name is None or self._turns.crowded:
                return await self._pods(scope.node_name)
            async with self._glance(scope.node_name):
                return await self._pods(scope.node_name)

    @contextlib.asynccontextmanager
    async def _glance(self, node_name: str) -> AsyncIterator[None]:
        """Observe the pods that the API server has at hand, as long as the block lasts."""
        glance = asyncio.create_task(self._observe_cached(node_name), name=f"glance at the pods of {node_name}")
        try:
            await asyncio.sleep(0)  # Its turn comes first.
            yield
        finally:
            glance.cancel()
            await asyncio.wait((glance,))
            if not glance.cancelled():
                glance.result()  # A bug in there is ours, however the block has ended.

    async def _observe_cached(self, node_name: str) -> None:
        with contextlib.suppress(CallFailed):  # The list that is under way will tell.
            for number, pod in enumerate(await self._reader.cached_pods(node_name), start=1):
                self._live.observe(PodSeen(pod))
                if number % _GLANCED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        self._turns.let_more()

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
