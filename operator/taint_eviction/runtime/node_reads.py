"""Live reads of nodes, shared: one read serves every call that starts within a second of its answer.

An answer is an observation like any other, so what is decided afterwards is decided on it.
"""

import asyncio
from dataclasses import dataclass

from taint_eviction.core.facts import NodeGone, NodeSeen
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.ports import ClusterReader


@dataclass(slots=True)
class _Read:
    """A read under way, and how many wait for it: the last one who leaves ends it."""

    task: asyncio.Task[bool]
    waiting: int = 0


def _retrieve(task: asyncio.Task[bool]) -> None:
    if not task.cancelled():
        task.exception()


class NodeReads:
    """Keeps what is known of nodes fresh for the calls that are about to be made."""

    def __init__(self, reader: ClusterReader, live: LiveController, serves_seconds: float) -> None:
        self._reader = reader
        self._live = live
        self._serves_seconds = serves_seconds
        self._answered_at: dict[str, float] = {}
        self._under_way: dict[str, _Read] = {}

    async def fresh(self, name: str) -> bool:
        """Tell, once the node has been read lately, whether it exists; raise ``CallFailed`` if it could not be read."""
        now = self._live.clock.now().at
        answered_at = self._answered_at.get(name)
        if answered_at is not None and now - answered_at < self._serves_seconds:
            return True
        read = self._under_way.get(name)
        if read is None:
            read = self._under_way[name] = _Read(asyncio.create_task(self._read(name), name=f"read node {name}"))
            read.task.add_done_callback(_retrieve)
        read.waiting += 1
        try:
            return await asyncio.shield(read.task)
        finally:
            read.waiting -= 1
            if read.task.done() or not read.waiting:
                read.task.cancel()
                if self._under_way.get(name) is read:
                    del self._under_way[name]

    async def _read(self, name: str) -> bool:
        asked_at = self._live.clock.now().at
        node = await self._reader.read_node(name)
        if node is None:
            # Serves nobody else: it has no version by which a watch that lags could be told to be older.
            self._live.observe(NodeGone(name, asked_at=asked_at))
            return False
        self._live.observe(NodeSeen(node, continuous=False, asked_at=asked_at))
        self._note_answer(name)
        return True

    def _note_answer(self, name: str) -> None:
        now = self._live.clock.now().at
        self._answered_at.pop(name, None)
        self._answered_at[name] = now
        for old in [name for name, at in self._answered_at.items() if now - at >= self._serves_seconds]:
            del self._answered_at[old]
