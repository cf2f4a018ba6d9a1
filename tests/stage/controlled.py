"""The whole controller in the test's own loop, with an embedded API server; its clock, metrics and parts are
accessible.

It is the real object graph with the real Kopf and client. Times that a test would have to wait for are short; timeouts
are as long as in production, so that no load makes a call fail. A test of a timeout sets its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import aiohttp
from kubernetes.aio.client import Configuration
from tests.stage.waiting import PATIENCE_SECONDS, free_port, until

from fake_apiserver import ApiServer
from taint_eviction.kopf_shell.tuning import WatchTuning
from taint_eviction.login.credentials import Connection
from taint_eviction.login.tls import CurrentTls, TlsFiles
from taint_eviction.login.token_sources import FixedAuthorization, TokenSource
from taint_eviction.reporting.http_port import Address
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.settings import ElectionSettings, RetrySettings, Settings, WatchSettings
from taint_eviction.wiring import ControllerProcess, build

PREFIX = "taint_eviction_controller_"

QUICK_WATCH = WatchSettings(restart_first_seconds=0.02, restart_max_seconds=0.1)
QUICK = Settings(
    call_timeout_seconds=PATIENCE_SECONDS,
    grace_seconds=2.0,
    retry=RetrySettings(0.02, 0.1),
    watch=QUICK_WATCH,
    election=ElectionSettings(enabled=False),
)
QUICK_KOPF = WatchTuning(retry_seconds=(0.01, 0.02), request_seconds=PATIENCE_SECONDS, connect_seconds=PATIENCE_SECONDS)


@dataclass
class Controlled:
    """A running controller, and the server that it runs against."""

    server: ApiServer
    application: ControllerProcess
    clock: ServerClock
    stop: asyncio.Event
    listen: Address
    running: asyncio.Task[None]
    complaints: list[Mapping[str, Any]] = field(default_factory=list)

    def metric(self, name: str, **labels: str) -> float:
        """Return a metric of ours; 0 if there is no such series."""
        return self.application.metrics.registry.get_sample_value(PREFIX + name, labels) or 0.0

    async def until(self, condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until a condition holds; if the controller ends first, raise its exception."""
        await until(lambda: self.running.done() or condition(), seconds)
        if self.running.done():
            self.running.result()

    async def synced(self) -> None:
        """Wait until everything was listed and all nodes are watched."""
        await self.until(self.application.engine.synced)
        await self.until(lambda: self.server.watches.select(resource="nodes"))

    async def watching_pods_of(self, *nodes: str) -> None:
        """Wait until the pods of these nodes are watched."""
        await self.until(lambda: all(self.server.watches.select(resource="pods", node=node) for node in nodes))

    async def probe(self, path: str) -> tuple[int, str]:
        """Ask the probe server over HTTP."""
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.listen}{path}") as answer:
            return answer.status, (await answer.text()).strip()

    async def end(self) -> None:
        """Stop the controller gracefully; raise its exception, if any."""
        self.stop.set()
        await asyncio.wait((self.running,), timeout=PATIENCE_SECONDS)
        assert self.running.done(), _what_hangs()
        self.running.result()


def connection_to(server: ApiServer) -> Connection:
    """Return a connection to the server, without credentials."""
    return plain_connection(Configuration(host=server.url), FixedAuthorization(None))


def plain_connection(configuration: Configuration, source: TokenSource, **tls: Any) -> Connection:
    """Return a connection with these credentials; ``tls`` are the fields of ``TlsFiles``."""
    current = CurrentTls(lambda: TlsFiles(**{"authorities": None, **tls}), ServerClock())
    return Connection(configuration, source, "the test", None, in_cluster=False, tls=current)


@contextlib.asynccontextmanager
async def controlling(
    server: ApiServer,
    settings: Settings = QUICK,
    tuning: WatchTuning = QUICK_KOPF,
    *,
    connection: Connection | None = None,
    clock: ServerClock | None = None,
    sharpening: bool = False,
    synced: bool = True,
    reinstall_signal_handlers: Callable[[], None] = lambda: None,
    listen: Address | None = None,
) -> AsyncIterator[Controlled]:
    """Run the controller until the end of the block; the block begins once it is synced. Errors in the loop fail the
    test.

    ``sharpening`` False: do not wait a second for the first votes on the time.
    """
    clock, stop, listen = clock or ServerClock(), asyncio.Event(), listen or Address("127.0.0.1", free_port())
    with contextlib.nullcontext() if sharpening else mock.patch("taint_eviction.wiring.learn_time", _not_at_all):
        application = build(
            connection or connection_to(server),
            clock,
            settings,
            listen=listen,
            reinstall_signal_handlers=reinstall_signal_handlers,
            tuning=tuning,
        )
        running = asyncio.create_task(application.run(stop), name="application")
        controlled = Controlled(server, application, clock, stop, listen, running)
        with _listening_to_complaints(controlled.complaints):
            try:
                if synced:
                    await controlled.synced()
                yield controlled
                if not running.done():
                    await controlled.end()
            finally:
                running.cancel()
                await asyncio.wait((running,), timeout=PATIENCE_SECONDS)
                assert running.done(), _what_hangs()
        assert not controlled.complaints, controlled.complaints


def _what_hangs() -> list[str]:
    """Return where each task waits, for a controller that did not end."""
    return [f"{task.get_name()}: {' > '.join(_awaited(task.get_coro()))}" for task in asyncio.all_tasks()]


def _awaited(work: Any) -> Iterator[str]:
    while (frame := getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)) is not None:
        yield f"{frame.f_code.co_name}:{frame.f_lineno}"
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)


async def _not_at_all(*_: object) -> None:
    """Replace the first votes on the time."""


@contextlib.contextmanager
def _listening_to_complaints(complaints: list[Mapping[str, Any]]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)
