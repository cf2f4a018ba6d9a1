"""The API server's responses as Kopf reads them, and how the Kopf shell changes what Kopf reads.

Kopf reads ``json()`` of short responses and ``content.iter_chunked()`` of a watch, nothing else; a test fails when that
changes. Both are public parts of aiohttp, as is the ``response_class`` of a session. The purpose of a request is read
from its URL.
"""

import copy
import enum
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, cast

import aiohttp
import orjson
from yarl import URL


class Purpose(enum.Enum):
    """What Kopf makes a request for."""

    DISCOVER = enum.auto()
    LIST = enum.auto()
    WATCH = enum.auto()


def purpose_of(url: URL) -> Purpose:
    """Return the purpose of a request by its URL."""
    if url.query.get("watch") == "true":
        return Purpose.WATCH
    return Purpose.LIST if url.path.endswith(("/api/v1/nodes", "/api/v1/pods")) else Purpose.DISCOVER


class RewrittenResponse(aiohttp.ClientResponse):
    """A response of the API server whose JSON is rewritten before Kopf reads it.

    ``rewrite`` takes the HTTP status and the decoded JSON and returns the JSON that Kopf reads. The result is kept:
    it can be read again, also by another Kopf after the connection is closed.
    """

    rewrite: Callable[[int, Any], Any] | None = None
    _decoded: Any = None

    async def json(self, **_options: Any) -> Any:
        """Decode the body with orjson, five times faster than by default."""
        if self._decoded is None:
            decoded = orjson.loads(await self.read())
            self._decoded = self.rewrite(self.status, decoded) if self.rewrite is not None else decoded
        return self._decoded

    def with_json(self, decoded: Any) -> "RewrittenResponse":
        """Return a copy of this response, which has been read, with other JSON."""
        other = copy.copy(self)
        other._decoded = decoded
        return other


class Filtered:
    """Replaces the content stream of a watch and passes on its lines as ``filter`` returns them.

    ``filter`` takes all complete lines of a chunk and returns the lines that Kopf reads.
    """

    def __init__(self, stream: aiohttp.StreamReader, filter: Callable[[Iterable[bytes]], Iterable[bytes]]) -> None:
        self._stream = stream
        self._filter = filter

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Iterate over chunks of complete lines; the last line of the stream may lack its newline."""
        rest = b""
        async for chunk in self._stream.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            passed = b"".join(line + b"\n" for line in self._filter(line for line in lines if line))
            if passed:
                yield passed
        if rest:
            yield rest

    def __getattr__(self, name: str) -> Any:
        # aiohttp reads and sets the exception of a response's stream, among others.
        return getattr(self._stream, name)

    @classmethod
    def put_before(cls, response: aiohttp.ClientResponse, filter: Callable[[Iterable[bytes]], Iterable[bytes]]) -> None:
        """Make every reader of ``response`` read through ``filter``."""
        response.content = cast(aiohttp.StreamReader, cls(response.content, filter))
