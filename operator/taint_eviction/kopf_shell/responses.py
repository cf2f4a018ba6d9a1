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
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from taint_eviction.files.json_lists import CHUNK_BYTES, MOST_ITEM_BYTES, decode, read_bytes, read_items

# What the filter gets in place of a line that is too long.
TOO_LONG = f"a line of more than {MOST_ITEM_BYTES >> 20} MB".encode()

# A list may have many objects; they are read one after the other.
_MOST_BYTES = 1 << 28


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

    ``keep`` takes each item of a list as it arrives, and a list to which it adds what Kopf sees of it. ``rewrite``
    takes the HTTP status and the decoded JSON, with such a list, and returns the JSON that Kopf reads. The result is
    kept: it can be read again, also by another Kopf after the connection is closed.
    """

    keep: Callable[[Any, list[Any]], None] | None = None
    rewrite: Callable[[int, Any], Any] | None = None
    _decoded: Any = None

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        """The headers without Retry-After: Kopf waits as long as that says, and sees no new taint meanwhile."""
        return CIMultiDictProxy(CIMultiDict(each for each in self._headers.items() if each[0].lower() != "retry-after"))

    async def json(self, **_options: Any) -> Any:
        """Decode the body with orjson, five times faster than by default; raise ``ValueError`` if it is too long."""
        if self._decoded is None:
            decoded = await self._decode()
            self._decoded = self.rewrite(self.status, decoded) if self.rewrite is not None else decoded
        return self._decoded

    async def _decode(self) -> Any:
        kept: list[Any] = []
        keep, chunks = self.keep, self.content.iter_chunked(CHUNK_BYTES)
        try:
            if keep is None:
                return decode(await read_bytes(chunks, MOST_ITEM_BYTES))
            body = await read_items(chunks, lambda item: keep(item, kept), _MOST_BYTES)
        except BaseException:
            self.close()
            raise
        return {**body, "items": kept} if isinstance(body, dict) and isinstance(body.get("items"), list) else body

    def with_json(self, decoded: Any) -> "RewrittenResponse":
        """Return a copy of this response, which has been read, with other JSON."""
        other = copy.copy(self)
        other._decoded = decoded
        return other


class Filtered:
    """Replaces the content stream of a watch and passes on its lines as ``filter`` returns them.

    ``filter`` takes all complete lines of a chunk and returns the lines that Kopf reads. A line that grows too long
    ends the stream: ``TOO_LONG`` stands for it.
    """

    def __init__(self, stream: aiohttp.StreamReader, filter: Callable[[Iterable[bytes]], Iterable[bytes]]) -> None:
        self._stream = stream
        self._filter = filter

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Iterate over chunks of complete lines; the last line of the stream may lack its newline."""
        # A line that is not complete. It grows in place: a line may come in thousands of pieces.
        rest = bytearray()
        async for chunk in self._stream.iter_chunked(size):
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                if passed := self._passed((bytes(rest) + head).split(b"\n")):
                    yield passed
                rest = bytearray()
            rest += tail
            if len(rest) > MOST_ITEM_BYTES:
                yield self._passed([TOO_LONG])
                return
        if passed := self._passed([bytes(rest)]):
            yield passed

    def _passed(self, lines: Iterable[bytes]) -> bytes:
        complete = [line for line in lines if line]
        return b"".join(line + b"\n" for line in self._filter(complete)) if complete else b""

    def __getattr__(self, name: str) -> Any:
        # aiohttp reads and sets the exception of a response's stream, among others.
        return getattr(self._stream, name)

    @classmethod
    def put_before(cls, response: aiohttp.ClientResponse, filter: Callable[[Iterable[bytes]], Iterable[bytes]]) -> None:
        """Make every reader of ``response`` read through ``filter``."""
        response.content = cast(aiohttp.StreamReader, cls(response.content, filter))
