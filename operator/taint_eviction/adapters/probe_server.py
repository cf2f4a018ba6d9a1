"""The HTTP server for probes, metrics and status documents; GET and HEAD only.

Every response comes from a callable: the server knows none of the contents. An exception in a callable becomes a 500: a
probe without a response would say nothing.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import orjson
from aiohttp import web

from taint_eviction.core.text import JsonObject

logger = logging.getLogger(__name__)

# Scrapes and probes are short. A stop cuts off every connection that lasts longer than this.
_STOP_SECONDS = 1.0

Probe = Callable[[], tuple[bool, str]]
# Takes the query; returns the HTTP status and the JSON object.
Document = Callable[[Mapping[str, str]], Awaitable[tuple[int, JsonObject]]]


class ListenError(Exception):
    """The server cannot listen on the address; one line that says why."""


class Address(NamedTuple):
    """Where to listen. ``host`` "" means every address, ``port`` 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ProbeServer:
    """Serves from ``start`` to ``stop``. ``probes`` and ``documents`` are by path: ``{"/healthz": …}``."""

    def __init__(
        self,
        address: Address,
        probes: Mapping[str, Probe],
        documents: Mapping[str, Document],
        render_metrics: Callable[[], bytes],
        content_type: str,
    ) -> None:
        self._address = address
        self._probes = dict(probes)
        self._documents = dict(documents)
        self._render_metrics = render_metrics
        self._content_type = content_type
        self._runner: web.ServerRunner | None = None

    @property
    def port(self) -> int:
        """The port of the running server; before ``start`` the port of the address."""
        addresses = self._runner.addresses if self._runner is not None else []
        return int(addresses[0][1]) if addresses else self._address.port

    async def start(self) -> None:
        """Listen; raise ``ListenError`` if the address is in use or unavailable."""
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=_STOP_SECONDS)
        await runner.setup()
        site = web.TCPSite(runner, self._address.host or None, self._address.port)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise ListenError(f"cannot listen on {self._address}: {error.strerror or error}") from error
        self._runner = runner

    async def stop(self) -> None:
        """Stop listening and end open connections. May be called again."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="only GET and HEAD are allowed\n", headers={"Allow": "GET, HEAD"})
        try:
            return await self._respond(request.path, request.query)
        except Exception:
            logger.exception("%s cannot be answered", request.path)
            return web.Response(status=500, text="internal error; see the log\n")

    async def _respond(self, path: str, query: Mapping[str, str]) -> web.Response:
        if path == "/metrics":
            return web.Response(body=self._render_metrics(), headers={"Content-Type": self._content_type})
        if (document := self._documents.get(path)) is not None:
            status, content = await document(query)
            return web.Response(status=status, body=orjson.dumps(content) + b"\n", content_type="application/json")
        probe = self._probes.get(path)
        if probe is None:
            paths = ", ".join(sorted([*self._probes, *self._documents, "/metrics"]))
            return web.Response(status=404, text=f"no such path; these exist: {paths}\n")
        ok, text = probe()
        return web.Response(status=200 if ok else 503, text=f"{text}\n")
