"""The life of a controller process: the order in which parts start, what ends the process, and the shutdown. This
module does not build the parts (``wiring``) and does not catch signals (``cli``): the caller sets an event to stop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from taint_eviction.runtime.engine import Engine
from taint_eviction.runtime.leadership import Elector
from taint_eviction.settings import Settings

logger = logging.getLogger(__name__)

# How long events may still be posted, and outcomes be kept, when the process stops.
_DRAIN_SECONDS = 3.0

# How often it is checked whether the view is complete: while the election waits for that, and while only a line of the
# log does, which may take for as long as a list fails.
_SYNC_CHECK_SECONDS, _SYNC_LOG_SECONDS = 0.05, 1.0


class Server(Protocol):
    """Answers others while the controller runs."""

    async def start(self) -> None:
        """Begin to listen."""
        ...

    async def stop(self) -> None:
        """Stop listening; also valid if the server never started."""
        ...


class Lifecycle:
    """Runs one controller, with what starts and ends beside it; ``elector`` None: it acts without a Lease.

    ``servers`` answer HTTP requests. ``tasks``, by name, run until they are cancelled. Each of ``drains`` waits for at
    most the given seconds until what it has is written. ``close`` ends the connections to the API server.
    """

    def __init__(
        self,
        engine: Engine,
        elector: Elector | None,
        settings: Settings,
        *,
        servers: Sequence[Server],
        tasks: Mapping[str, Callable[[], Coroutine[Any, Any, None]]],
        drains: Sequence[Callable[[float], Awaitable[bool]]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._elector = elector
        if elector is not None:
            elector.tried_in_vain = engine.live.controller.tried_in_vain
        self._settings = settings
        self._servers = servers
        self._tasks = tasks
        self._drains = drains
        self._close = close

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, then shut down in order; a bug of the controller is raised."""
        running = asyncio.create_task(self._run_all(), name="controller")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            await self._stop()
        finally:
            for task in (running, stopping):
                task.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)
            if self._elector is not None:
                await self._elector.release()
            for server in self._servers:
                await server.stop()
            await self._close()

    async def _stop(self) -> None:
        logger.info("stopping: %d evictions in flight", self._engine.driver.in_flight)
        if not await self._engine.driver.stop(self._settings.grace_seconds):
            logger.warning("some evictions were cut off; the next leader completes them")
        await asyncio.gather(*(drain(_DRAIN_SECONDS) for drain in self._drains))

    async def _run_all(self) -> None:
        for server in self._servers:
            await server.start()
        async with asyncio.TaskGroup() as group:
            if self._elector is None:
                logger.info("runs without leader election: no Lease says who acts")
            else:
                group.create_task(self._stand(self._elector), name="elector")
            for name, task in self._tasks.items():
                group.create_task(task(), name=name)
            group.create_task(self._engine.run(), name="engine")
            group.create_task(self._report_synced(), name="synced")

    async def _stand(self, elector: Elector) -> None:
        """Stand for election once the deadlines are known, so that a process that just started never wins against a
        standby. But wait no longer than a lease lasts: a list of one node's pods that keeps failing must not stop every
        replica. A dead leader's lease runs out meanwhile.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.election.lease_duration_seconds), asyncio.TaskGroup() as group:
                observing = group.create_task(elector.observe(), name="observe the lease")
                await self._until_synced(_SYNC_CHECK_SECONDS)
                observing.cancel()
        await elector.run()

    async def _until_synced(self, check_seconds: float) -> None:
        # Many events can make it true; polling is simpler, and the election can wait.
        while not self._engine.synced():  # noqa: ASYNC110
            await asyncio.sleep(check_seconds)

    async def _report_synced(self) -> None:
        await self._until_synced(_SYNC_LOG_SECONDS)
        controller = self._engine.live.controller
        tainted, pending = len(controller.tainted_nodes()), controller.status.pending_count()
        logger.info("synced: %d tainted nodes, %d pods with a deadline", tainted, pending)
