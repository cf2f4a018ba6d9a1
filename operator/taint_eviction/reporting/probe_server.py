"""The HTTP server for probes, metrics and status documents.

Every response comes from a callable: the server knows none of the contents. An exception in a callable becomes a 500: a
probe without a response would say nothing.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

import orjson

from taint_eviction.core.text import JsonObject, one_line
from taint_eviction.reporting.http_port import Address, HttpPort, PortAnswer

logger = logging.getLogger(__name__)

Probe = Callable[[], tuple[bool, str]]
# Takes the query; returns the HTTP status and the JSON object.
Document = Callable[[Mapping[str, str]], Awaitable[tuple[int, JsonObject]]]
# Returns the body and its content type.
Page = Callable[[], tuple[bytes, str]]


class ProbeServer:
    """Serves from ``start`` to ``stop``, each part by its path: ``{"/healthz": …}``. ``pages``: the metrics."""

    def __init__(
        self,
        address: Address,
        probes: Mapping[str, Probe],
        documents: Mapping[str, Document] | None = None,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        self._probes = dict(probes)
        self._documents = dict(documents or {})
        self._pages = dict(pages or {})
        self._port = HttpPort(address, self._answer)

    @property
    def port(self) -> int:
        """The port of the running server; before ``start`` the port of the address."""
        return self._port.port

    async def start(self) -> None:
        """Listen; raise ``ListenError`` if the address is in use or unavailable."""
        await self._port.start()

    async def stop(self) -> None:
        """Stop listening and end open connections. May be called again."""
        await self._port.stop()

    async def _answer(self, path: str, query: Mapping[str, str]) -> PortAnswer:
        try:
            return await self._respond(path, query)
        except Exception:
            logger.exception("%s cannot be answered", one_line(path))
            return PortAnswer(500, b"internal error; see the log\n")

    async def _respond(self, path: str, query: Mapping[str, str]) -> PortAnswer:
        if (page := self._pages.get(path)) is not None:
            return PortAnswer(200, *page())
        if (document := self._documents.get(path)) is not None:
            status, content = await document(query)
            return PortAnswer(status, orjson.dumps(content) + b"\n", "application/json")
        probe = self._probes.get(path)
        if probe is None:
            paths = ", ".join(sorted([*self._probes, *self._documents, *self._pages]))
            return PortAnswer(404, f"no such path; these exist: {paths}\n".encode())
        ok, text = probe()
        return PortAnswer(200 if ok else 503, f"{text}\n".encode())
