"""When pods are deleted, as seen by a watch of the benchmark's own, which is the same for all controllers."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from tests.bench.population import LABEL, NAMESPACE, Json
from tests.bench.processes import now
from tests.bench.stage import BenchStage


class Deletions:
    """Watches during the block; ``at``: when each pod was first seen terminating or gone."""

    def __init__(self, stage: BenchStage) -> None:
        self._stage = stage
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.at: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        """Start to watch."""
        self._task = asyncio.create_task(self._listen())
        await asyncio.sleep(0.3)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def until(self, count: int, timeout_seconds: float) -> None:
        """Wait for this number of deletions since the start."""
        async with asyncio.timeout(timeout_seconds):
            while len(self.at) < count:
                self._changed.clear()
                await self._changed.wait()

    async def _listen(self) -> None:
        path, selector = f"/api/v1/namespaces/{NAMESPACE}/pods", f"&labelSelector={LABEL}={self._stage.run}"
        client = self._stage.client
        version = await client.version(path)
        while True:
            async for event in client.watch(path, version, selector):
                self._note(event["type"], event["object"])
            # An API server that is short of CPU closes watches; changes since then are listed.
            version = await client.version(path)
            for pod in await client.list_all(path, selector):
                self._note("LISTED", pod)

    def _note(self, event_type: str, pod: Json) -> None:
        metadata = pod["metadata"]
        if event_type == "DELETED" or "deletionTimestamp" in metadata:
            self.at.setdefault(metadata["name"], now())
            self._changed.set()
