"""Helpers for the tests of the Kopf shell: a listener that records calls, and a watcher of an embedded API server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import aiohttp
from tests.stage.waiting import PATIENCE_SECONDS
from yarl import URL

from fake_apiserver import ApiServer
from taint_eviction.kopf_shell.tuning import WatchTuning
from taint_eviction.kopf_shell.watch_filter import Known, Wanted
from taint_eviction.kopf_shell.watcher import KopfWatcher
from taint_eviction.runtime.ports import WatchScope

# Short enough for tests, long enough never to be reached by accident.
QUICK = WatchTuning(retry_seconds=(0.01, 0.01), request_seconds=PATIENCE_SECONDS, connect_seconds=PATIENCE_SECONDS)


class Recorder:
    """A listener that records its calls, and can be waited for."""

    def __init__(self) -> None:
        self.events: list[tuple[str | None, Mapping[str, Any]]] = []
        self.listed = 0
        self.heard = 0
        self.progress: list[tuple[int | None, int]] = []
        self._changed = asyncio.Event()

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        self.events.append((event_type, body))
        self._changed.set()

    def on_listed(self) -> None:
        self.listed += 1
        self._changed.set()

    def on_heard(self) -> None:
        self.heard += 1
        self._changed.set()

    def on_progress(self, version: int | None) -> None:
        self.progress.append((version, len(self.events)))
        self._changed.set()

    @property
    def told(self) -> list[tuple[str | None, str]]:
        """The types of the events, with the names of their objects."""
        return [(event_type, body["metadata"]["name"]) for event_type, body in self.events]

    def taint_values(self) -> list[str]:
        """The values of the first taint, in the order of the events that had one."""
        return [body["spec"]["taints"][0]["value"] for _, body in self.events if body["spec"].get("taints")]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something is true; raise TimeoutError if it does not become true in time."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def watcher_of(
    server: ApiServer,
    tuning: WatchTuning = QUICK,
    *,
    wanted: Wanted | None = None,
    known: Known | None = None,
    reinstall: Callable[[], None] = lambda: None,
    authorization: Callable[[], str] | None = None,
    connector: aiohttp.BaseConnector | None = None,
    prefix: str = "",
) -> AsyncIterator[KopfWatcher]:
    """A watcher whose connector is closed at the end. ``prefix``: the path below which a gateway offers the server."""
    shared = connector or aiohttp.TCPConnector(limit=0)

    async def authorize(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if authorization is not None:
            request.headers["Authorization"] = authorization()
        request.url = URL(str(request.url).replace(server.url + prefix, server.url, 1), encoded=True)
        return await send(request)

    def open_session(
        *, listen_in: aiohttp.ClientMiddlewareType, response_class: type[aiohttp.ClientResponse]
    ) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=shared, connector_owner=False, middlewares=(listen_in, authorize), response_class=response_class
        )

    try:
        yield KopfWatcher(
            server.url + prefix,
            open_session,
            reinstall_signal_handlers=reinstall,
            tuning=tuning,
            wanted=wanted,
            known=known,
        )
    finally:
        await shared.close()


@contextlib.asynccontextmanager
async def watching(watcher: KopfWatcher, scope: WatchScope, since: int | None = None) -> AsyncIterator[Recorder]:
    """A watch that has listed its objects; it is cancelled at the end."""
    recorder = Recorder()
    async with running(watcher.watch(scope, recorder, since)) as task:
        listed = asyncio.create_task(recorder.until(lambda: recorder.listed))
        await asyncio.wait((listed, task), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            listed.cancel()
            task.result()
        await listed
        yield recorder


@contextlib.asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator[asyncio.Future[None]]:
    """A task that is cancelled at the end, and has then ended."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,), timeout=PATIENCE_SECONDS)
        assert task.done(), "the watch did not end"


def tasks_left() -> Iterator[str]:
    """Name the tasks that run code of Kopf or of the Kopf shell."""
    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        path = code.co_filename if code is not None else ""
        if f"{os.sep}kopf{os.sep}" in path or f"{os.sep}kopf_shell{os.sep}" in path:
            yield task.get_name()


def running_pod(name: str, node: str | None = None, **metadata: Any) -> dict[str, Any]:
    """A pod, bound if a node is named."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "pause"}]}
    if node is not None:
        spec["nodeName"] = node
    return {"metadata": {"name": name, **metadata}, "spec": spec}
