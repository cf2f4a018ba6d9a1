"""A proxy before an API server that keeps back the answer to each write: a server that is busy, or far away.

It listens on loopback without TLS, passes on the credentials of each request, and counts the writes. One write can be
kept back itself, until long after its sender is dead.
"""

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
import yaml
from aiohttp import web

from taint_eviction.login.credentials import with_kubeconfig
from taint_eviction.runtime.clock import ServerClock

_READS = ("GET", "HEAD")
# These belong to one connection. The length is known anew when the answer is passed on.
_OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class Answer(NamedTuple):
    """An answer of the API server."""

    status: int
    text: str


class LateWrite:
    """A write that the proxy keeps back. ``passes_on`` sends it, and is set once it has come."""

    def __init__(self) -> None:
        self.passes_on: asyncio.Future[Callable[[], Awaitable[Answer]]] = asyncio.Future()

    async def has_come(self, seconds: float) -> None:
        """Wait until the proxy has it."""
        async with asyncio.timeout(seconds):
            await asyncio.shield(self.passes_on)

    async def arrive(self) -> Answer:
        """Let the API server get it."""
        return await self.passes_on.result()()


class SlowWrites:
    """The proxy, for one block. ``trusts``: the API server's certificate; it has no credentials of its own.

    ``writes`` counts the writes by method and resource, also refused ones: ``PATCH pods``, ``POST pods/eviction``.
    """

    def __init__(self, url: str, trusts: ssl.SSLContext, seconds: float) -> None:
        self._target = url
        self._trusts = trusts
        self._seconds = seconds
        self._runner = web.AppRunner(
            self._application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        self._late: dict[str, LateWrite] = {}
        self.writes: Counter[str] = Counter()
        self.url = ""

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        return application

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._trusts)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=timeout)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        _, port = self._runner.addresses[0]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def keep_back(self, write: str) -> LateWrite:
        """Keep back the next such write, as in ``writes``. Its sender gets no answer."""
        self._late[write] = late = LateWrite()
        return late

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_A_CONNECTION}
        body = await request.read()
        write = "" if request.method in _READS else f"{request.method} {_resource(request.path)}"

        def ask() -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
            url = f"{self._target}{request.raw_path}"
            return self._session.request(request.method, url, data=body or None, headers=headers, allow_redirects=False)

        async def pass_on() -> Answer:
            async with ask() as answer:
                return Answer(answer.status, await answer.text())

        if (late := self._late.pop(write, None)) is not None:
            late.passes_on.set_result(pass_on)
            await asyncio.Event().wait()  # Until the sender is dead, and this task is cancelled.
        async with ask() as answer:
            if write:
                self.writes[write] += 1
                await asyncio.sleep(self._seconds)
            passed = web.StreamResponse(status=answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _OF_A_CONNECTION:
                    passed.headers[name] = value
            with contextlib.suppress(aiohttp.ClientConnectionResetError):  # The client is gone.
                await passed.prepare(request)
                async for part in answer.content.iter_any():
                    await passed.write(part)
                await passed.write_eof()
            return passed


@contextlib.asynccontextmanager
async def in_between(config: Path, seconds: float) -> AsyncIterator[SlowWrites]:
    """Put a proxy between an API server and all who use a kubeconfig with a token, which is rewritten."""
    connection = await with_kubeconfig(str(config), None, ServerClock())
    async with SlowWrites(connection.url, connection.ssl_context, seconds) as slow:
        await asyncio.to_thread(_name_server, config, slow.url)
        yield slow
    await connection.close()


def _name_server(config: Path, url: str) -> None:
    document = yaml.safe_load(config.read_text())
    for each in document["clusters"]:
        each["cluster"] = {"server": url}
    config.write_text(yaml.safe_dump(document))


def _resource(path: str) -> str:
    """Return the resource that a path names, with its subresource."""
    words = path.strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[:1] == ["namespaces"] and len(words) > 2:
        words = words[2:]
    return "/".join([*words[:1], *words[2:3]])
