"""The one place where the object graph is built: brain, body and skins of a running controller.

Builds and starts; decides nothing.
"""

import asyncio
import random
import socket
import uuid
from collections.abc import Callable, Sequence

import aiohttp

from taint_eviction.adapters.api_calls import ApiCalls
from taint_eviction.adapters.api_client import ApiClient
from taint_eviction.adapters.clock_sharpening import sharpen
from taint_eviction.adapters.credentials import USER_AGENT, Connection
from taint_eviction.adapters.lease import KubernetesLease
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.adapters.observations import Observations
from taint_eviction.adapters.sessions import make_session
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.kopf_shell.watcher import KopfWatcher
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.driver import Driver
from taint_eviction.runtime.dry_run import DryRunWriter
from taint_eviction.runtime.engine import Engine
from taint_eviction.runtime.evictor import Evictor
from taint_eviction.runtime.leadership import Elector, NoElection
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import Gate, Teller
from taint_eviction.runtime.resync import Resync
from taint_eviction.runtime.supervised_watch import WatchDoors
from taint_eviction.settings import Settings


class Application:
    """A controller, ready to run in one event loop."""

    def __init__(
        self,
        connection: Connection,
        clock: ServerClock,
        settings: Settings,
        *,
        tellers: Sequence[Teller],
        counted_call: Callable[[str, str, str], None],
        counted_malformed: Callable[[str], None],
        reinstall_signal_handlers: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._settings = settings
        chance = random.Random()
        self.calls = ApiCalls(
            connection.api_client(), settings.call_timeout_seconds, clock.heard_date, counted_call
        )
        malformed = MalformedObjects(counted_malformed)
        client = ApiClient(self.calls, malformed)
        self.elector = self._make_elector(chance)
        gate: Gate = self.elector or NoElection()
        controller = Controller(DecisionPolicy(settings.evict_finished), settings.dry_run)
        self.live = LiveController(controller, clock, tellers)
        evictor = Evictor(
            self.live,
            client,
            DryRunWriter(client) if settings.dry_run else client,
            NodeReads(client, self.live, settings.node_read_seconds),
            gate,
            retry=settings.retry,
            chance=chance,
        )
        self.driver = Driver(self.live, evictor, gate, settings.workers)
        def open_session(
            *, listen_in: aiohttp.ClientMiddlewareType, response_class: type[aiohttp.ClientResponse]
        ) -> aiohttp.ClientSession:
            middlewares = (listen_in, *connection.middlewares)
            return make_session(connection.connector, middlewares, USER_AGENT, response_class=response_class)

        doors = WatchDoors(
            self.live,
            Resync(client, self.live, settings.watch.lists_at_once),
            KopfWatcher(connection.url, open_session, reinstall_signal_handlers=reinstall_signal_handlers),
            Observations(malformed).interpret,
            settings=settings.watch,
            chance=chance,
        )
        self.engine = Engine(self.live, doors, self.driver)

    def _make_elector(self, chance: random.Random) -> Elector | None:
        election = self._settings.election
        if not election.enabled:
            return None
        store = KubernetesLease(self.calls, election.lease_namespace, election.lease_name)
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        return Elector(identity, store, self._clock, election, chance=chance)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, then end in good order; a bug of our own is raised."""
        running = asyncio.create_task(self._run_all(), name="controller")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            await self.driver.stop(self._settings.grace_seconds)
        finally:
            for task in (running, stopping):
                task.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)
            if self.elector is not None:
                await self.elector.release()
            await self._connection.close()

    async def _run_all(self) -> None:
        await sharpen(self.calls, self._clock)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.engine.run(), name="engine")
            if self.elector is not None:
                group.create_task(self.elector.run(), name="elector")
