"""A proxy between the controller and the API server that spoils objects and gives hostile answers in its place."""

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import orjson
from aiohttp import web
from tests.fuzz.fields import FieldCase, as_sent, spoil

from fake_apiserver import ApiServer

_OBJECTS = re.compile(r"/(nodes|pods)(?:/|$)")
_PASSED_ON = ("Content-Type", "Date", "Audit-Id", "Retry-After")

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Rule:
    """An answer to requests that fit, in place of the API server's, ``times`` times."""

    fits: Callable[[web.BaseRequest], bool]
    answer: Answer
    times: int
    hits: int = 0


class HostileProxy:
    """``cases``: by plural and name, what the value in a field of an object is replaced by on its way."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.session: aiohttp.ClientSession | None = None
        self.cases: dict[tuple[str, str], FieldCase] = {}
        self.rules: list[Rule] = []
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        for rule in self.rules:
            if rule.hits < rule.times and rule.fits(request):
                rule.hits += 1
                return await rule.answer(request)
        assert self.session is not None
        headers = {name: value for name, value in request.headers.items() if name in ("Content-Type", "Accept")}
        async with self.session.request(
            request.method, self._server.url + request.path_qs, data=await request.read(), headers=headers
        ) as answer:
            passed = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
            found = _OBJECTS.search(request.path)
            plural = found[1] if found else ""
            if request.query.get("watch") != "true":
                return web.Response(
                    status=answer.status, body=self._spoilt(await answer.read(), plural), headers=passed
                )
            response = web.StreamResponse(status=answer.status, headers=passed)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                async for line in answer.content:
                    await response.write(self._spoilt(line, plural))
                await response.write_eof()
            return response

    def _spoilt(self, content: bytes, plural: str) -> bytes:
        """Spoil the objects in an answer, or in the line of a watch."""
        if not self.cases or not plural:
            return content
        body = orjson.loads(content)
        items = body.get("items")
        for item in items if isinstance(items, list) else [body.get("object", body)]:
            case = self.cases.get((plural, (item.get("metadata") or {}).get("name", "")))
            if case is not None:
                spoil(item, case)
        return as_sent(body) + b"\n"


@contextlib.asynccontextmanager
async def hostile_proxy(server: ApiServer) -> AsyncIterator[HostileProxy]:
    """Run a proxy before an API server."""
    proxy = HostileProxy(server)
    runner = web.ServerRunner(web.Server(proxy.handle, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 24) as session:
        proxy.session = session
        try:
            yield proxy
        finally:
            await runner.cleanup()
