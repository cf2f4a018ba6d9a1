"""Lists, observes all items, and removes absent objects: for all nodes, the pods of one node, or all bound pods.

Readiness, and the repair of lost events and missed deletions, rest on this one function; watches only bring the changes
between two lists. The request is dated before it is sent, so that what a watch brings meanwhile never counts as older
than the list.

A consistent list may take the API server a tenth of a second. If nothing is known yet, a list from the API server's
cache is requested as well and observed as if a watch had brought it: perhaps late, and never as proof that something is
gone. After a pause the first list has the API server for itself until the cached list is observed, or for a moment if
none is requested, so that the first pods are evicted before the lists of other nodes use all its CPU. For the same
reason evictions get their turn after each pod of these two lists.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from taint_eviction.core.facts import NodeSeen, NodesSwept, PodSeen, PodsSwept
from taint_eviction.core.objects import Node, Pod
from taint_eviction.runtime.list_turns import ListTurns
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.ports import CallFailed, ClusterReader, NodesScope, WatchScope


@dataclass(frozen=True, slots=True)
class Listed:
    """What a list says of versions: its own, None if that is no number, and the ``newest`` of its objects', 0: none.

    ``lacking``: it lacks an object that is known, and that did not seem to end.
    """

    version: int | None
    newest: int
    lacking: bool


class Resync:
    """Brings the core's view in line with what a fresh list says; ``lists_at_once`` lists of pods at a time.

    The list of nodes waits for no list of pods: without it no new taint is known.

    ``cached_lists``: a first list of a node's pods comes with a cached one, unless more lists than that are wanted.
    """

    def __init__(self, reader: ClusterReader, live: Live, lists_at_once: int, cached_lists: bool = True) -> None:
        self._reader = reader
        self._live = live
        self._clock = live.clock
        self._turns = ListTurns(lists_at_once)
        self._cached_lists = cached_lists

    async def resync(
        self, scope: WatchScope, *, first: bool = False, again: bool = False, after_gap: bool = False
    ) -> Listed:
        """List ``scope`` once.

        ``first``: nothing is known of it yet. ``again``: the last try failed, so others go before it. ``after_gap``:
        there was no watch until now, or it has missed something.
        Raise ``CallFailed`` if the list fails; the pages before stay observed.
        """
        if isinstance(scope, NodesScope):
            return await self._nodes(after_gap)
        async with self._turns.turn(urgent=first and not again):
            # If many lists are wanted, a second one for each node would only delay all of them.
            if not (first and self._cached_lists) or scope.node_name is None or self._turns.crowded:
                return await self._pods(scope.node_name)
            async with self._cached_list(scope.node_name):
                return await self._pods(scope.node_name, one_by_one=True)

    @contextlib.asynccontextmanager
    async def _cached_list(self, node_name: str) -> AsyncIterator[None]:
        """Observe the pods in the API server's cache, for as long as the block lasts at most."""
        cached_list = asyncio.create_task(
            self._observe_cached(node_name), name=f"cached list of the pods of {node_name}"
        )
        try:
            await asyncio.sleep(0)  # It is sent first.
            yield
        finally:
            cached_list.cancel()
            await asyncio.wait((cached_list,))
            if not cached_list.cancelled():
                cached_list.result()  # Raises a bug of ours, however the block has ended.

    async def _observe_cached(self, node_name: str) -> None:
        with contextlib.suppress(CallFailed):  # The consistent list reports failures.
            for pod in await self._reader.cached_pods(node_name):
                self._live.observe(PodSeen(pod))
                await asyncio.sleep(0)
        self._turns.let_more()

    async def _nodes(self, after_gap: bool) -> Listed:
        asked_at = self._clock.now().at
        present: set[str] = set()
        version: int | None = None
        newest = 0
        async with contextlib.aclosing(self._reader.list_nodes()) as pages:
            async for page in pages:
                present |= page.present
                version, newest = page.resource_version, _newest(page.objects, newest)
                for node in page.objects:
                    self._live.observe(NodeSeen(node, after_gap, asked_at))
                await asyncio.sleep(0)
        return self._swept(NodesSwept(frozenset(present), asked_at, version), newest)

    async def _pods(self, node_name: str | None, *, one_by_one: bool = False) -> Listed:
        asked_at = self._clock.now().at
        present: set[str] = set()
        version: int | None = None
        newest = 0
        async with contextlib.aclosing(self._reader.list_pods(node_name)) as pages:
            async for page in pages:
                present |= page.present
                version, newest = page.resource_version, _newest(page.objects, newest)
                for pod in page.objects:
                    self._live.observe(PodSeen(pod, asked_at=asked_at))
                    if one_by_one:
                        await asyncio.sleep(0)
                await asyncio.sleep(0)
        return self._swept(PodsSwept(node_name, frozenset(present), asked_at, version), newest)

    def _swept(self, fact: NodesSwept | PodsSwept, newest: int) -> Listed:
        lacking = self._live.controller.lacks(fact)
        self._live.observe(fact)
        return Listed(fact.resource_version, newest, lacking)


def _newest(objects: Iterable[Node | Pod], newest: int) -> int:
    return max(newest, *(each.resource_version or 0 for each in objects), 0)
