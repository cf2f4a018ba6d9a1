"""Live reads of nodes, shared: one read serves the call it was made for, and every call that starts within a second.
The second counts from when the read was sent: its answer shows the state at some unknown moment since then. An answer
is an observation like any other, so later decisions use it; for each later call that it serves it is observed again,
since a watch that lags may have brought an older state meanwhile.

An answer ahead of the watch does not show whether a taint without ``timeAdded`` was removed and set again meanwhile. So
where it matters since when a taint has been there, the read waits up to a few seconds for the watch to catch up, and is
then repeated; the second answer counts.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field

from taint_eviction.core.facts import NodeGone, NodeSeen
from taint_eviction.core.objects import Node
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.ports import ClusterReader

_MAX_WAIT_SECONDS = 5.0
_CHECK_SECONDS = 0.05


@dataclass(slots=True, eq=False)
class _Read:
    """A read, under way or answered, and how many callers wait for it; when the last one leaves, it is cancelled.

    ``node``: the answer.
    """

    sent_at: float
    node: Node | None = None
    task: asyncio.Task[bool] = field(init=False)
    waiting: int = 0


class NodeReads:
    """Reads nodes for the calls that are about to be made."""

    def __init__(self, reader: ClusterReader, live: Live, serves_seconds: float) -> None:
        self._reader = reader
        self._live = live
        self._nodes, self._clock = live.controller.nodes, live.clock
        self._serves_seconds = serves_seconds
        # By node name, and whether the watch is waited for: the latest read, as long as it serves.
        self._reads: dict[tuple[str, bool], _Read] = {}

    async def read(self, name: str, *, awaits_watch: bool = True) -> float | None:
        """Wait for the read that serves a call starting now, and return when it was sent.
        Return None if there is no such node; raise ``CallFailed`` if it could not be read.

        ``awaits_watch`` False: it matters only which taints are there, not since when.
        """
        key = name, awaits_watch
        read = self._reads.get(key)
        now = self._clock.now().at
        if read is None or not self._serves(read, now):
            read = self._begin(key, now)
        elif read.node is not None and self._nodes.is_behind(read.node):
            self._live.observe(NodeSeen(read.node, asked_at=read.sent_at))
        read.waiting += 1
        try:
            return read.sent_at if await asyncio.shield(read.task) else None
        finally:
            read.waiting -= 1
            if not read.waiting and not read.task.done():
                read.task.cancel()
                self._forget(key, read)

    def _begin(self, key: tuple[str, bool], now: float) -> _Read:
        for old in [key for key, read in self._reads.items() if not self._serves(read, now)]:
            del self._reads[old]
        read = self._reads[key] = _Read(now)
        read.task = asyncio.create_task(self._read(*key, read), name=f"read node {key[0]}")
        read.task.add_done_callback(lambda task: None if _has_found(task) else self._forget(key, read))
        return read

    def _serves(self, read: _Read, now: float) -> bool:
        return now - read.sent_at < self._serves_seconds

    async def _read(self, name: str, awaits_watch: bool, read: _Read) -> bool:
        node = await self._observe(name, read)
        if awaits_watch and node is not None and self._nodes.is_behind(node):
            await self._until_watched(node)
            read.sent_at = self._clock.now().at
            node = await self._observe(name, read)
        return node is not None

    async def _observe(self, name: str, read: _Read) -> Node | None:
        node = await self._reader.read_node(name)
        if node is None:
            # It serves no other call: it has no version by which a lagging watch would be known to be older.
            self._live.observe(NodeGone(name, asked_at=read.sent_at))
        else:
            self._live.observe(NodeSeen(node, asked_at=read.sent_at))
        read.node = node
        return node

    async def _until_watched(self, node: Node) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                # Facts come from many places; polling is simpler, and this is rare.
                while self._nodes.is_behind(node):  # noqa: ASYNC110
                    await asyncio.sleep(_CHECK_SECONDS)

    def _forget(self, key: tuple[str, bool], read: _Read) -> None:
        if self._reads.get(key) is read:
            del self._reads[key]


def _has_found(task: asyncio.Task[bool]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result()
