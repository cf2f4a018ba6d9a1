"""The small HTTP server for probes, metrics, and documents about what goes on; GET and HEAD only.

Knows nothing of what it serves: each probe and each document asks a callable, metrics come from one. An exception in a
callable is answered with 500, never with silence: a probe that hangs tells nobody anything.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson
from aiohttp import web

logger = logging.getLogger(__name__)

# Scrapes and probes are short; whoever hangs on longer than this at stop is cut off.
_STOP_SECONDS = 1.0

Probe = Callable[[], tuple[bool, str]]
# From the query to the HTTP status and what is to be said as JSON.
Document = Callable[[Mapping[str, str]], tuple[int, dict[str, Any]]]


class ListenError(Exception):
    """The address cannot be listened on; one line that says why."""


class Address(NamedTuple):
    """Where to listen; ``host`` "" means on every address, ``port`` 0 any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read HOST:PORT, [IPV6]:PORT or :PORT; raise ``ListenError``."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
        if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
            raise ListenError(f"cannot listen on {text!r}: it should be HOST:PORT, for example :8080")
        return cls(host, int(port))

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
        """The port that is listened on; the one asked for before ``start``."""
        addresses = self._runner.addresses if self._runner is not None else []
        return int(addresses[0][1]) if addresses else self._address.port

    async def start(self) -> None:
        """Listen; raise ``ListenError`` if the address is taken or not to be had."""
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
        """Stop listening; answers that are under way are ended. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="only GET and HEAD\n", headers={"Allow": "GET, HEAD"})
        try:
            return self._respond(request.path, request.query)
        except Exception:
            logger.exception("%s cannot be answered", request.path)
            return web.Response(status=500, text="internal error; see the log\n")

    def _respond(self, path: str, query: Mapping[str, str]) -> web.Response:
        if path == "/metrics":
            return web.Response(body=self._render_metrics(), headers={"Content-Type": self._content_type})
        if (document := self._documents.get(path)) is not None:
            status, content = document(query)
            return web.Response(status=status, body=orjson.dumps(content) + b"\n", content_type="application/json")
        probe = self._probes.get(path)
        if probe is None:
            paths = ", ".join(sorted([*self._probes, *self._documents, "/metrics"]))
            return web.Response(status=404, text=f"no such path; there are {paths}\n")
        ok, text = probe()
        return web.Response(status=200 if ok else 503, text=f"{text}\n")
