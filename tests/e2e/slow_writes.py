"""A proxy before an API server that keeps back the answer to each write: a server that is busy, or far away.

It listens on loopback without TLS, passes on the credentials of each request, and counts the writes.
"""

import asyncio
import contextlib
import ssl
from collections import Counter
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

_READS = ("GET", "HEAD")
# These belong to one connection. The length is known anew when the answer is passed on.
_OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class SlowWrites:
    """The proxy, for one block. ``trusts``: the API server's certificate; it has no credentials of its own.

    ``writes`` counts the writes by method and resource, also refused ones: ``PATCH pods``, ``POST pods/eviction``.
    """

    def __init__(self, url: str, trusts: ssl.SSLContext, seconds: float) -> None:
        self._target = url
        self._trusts = trusts
        self._seconds = seconds
        self._runner = web.AppRunner(self._application(), access_log=None, handler_cancellation=True)
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
        site = web.TCPSite(self._runner, "127.0.0.1", 0, shutdown_timeout=0.1)
        await site.start()
        _, port = self._runner.addresses[0]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_A_CONNECTION}
        body = await request.read()
        writes = request.method not in _READS
        async with self._session.request(
            request.method,
            f"{self._target}{request.raw_path}",
            data=body or None,
            headers=headers,
            allow_redirects=False,
        ) as answer:
            if writes:
                self.writes[f"{request.method} {_resource(request.path)}"] += 1
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


def _resource(path: str) -> str:
    """Return the resource that a path names, with its subresource."""
    words = path.strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[:1] == ["namespaces"] and len(words) > 2:
        words = words[2:]
    return "/".join([*words[:1], *words[2:3]])
