"""What Kopf reads of the API server's answers, and how it gets to see something else.

Kopf reads ``json()`` of what is short and ``content.iter_chunked()`` of a watch, nothing else; a test notices when
that changes. Both doors are public, as is ``aiohttp``'s ``response_class``. What is told apart here is told by URL.
"""

import copy
import enum
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, cast

import aiohttp
import orjson
from yarl import URL

JsonObject = dict[str, Any]


class Purpose(enum.Enum):
    """What a request of Kopf is for."""

    DISCOVER = enum.auto()
    LIST = enum.auto()
    WATCH = enum.auto()


def purpose_of(url: URL) -> Purpose:
    """Tell what Kopf asks for, by what it asks."""
    if url.query.get("watch") == "true":
        return Purpose.WATCH
    return Purpose.LIST if url.path.endswith(("/api/v1/nodes", "/api/v1/pods")) else Purpose.DISCOVER


class Answer(aiohttp.ClientResponse):
    """An answer of the API server that Kopf reads as it was rewritten, not as it came.

    ``rewrite`` is given the status and the decoded JSON and returns what Kopf shall see of it. That is kept, so that it
    may be read again, also by another Kopf after the connection has gone.
    """

    rewrite: Callable[[int, Any], Any] | None = None
    _decoded: Any = None

    async def json(self, **_options: Any) -> Any:
        """Decode the answer, five times faster than by default."""
        if self._decoded is None:
            decoded = orjson.loads(await self.read())
            self._decoded = self.rewrite(self.status, decoded) if self.rewrite is not None else decoded
        return self._decoded

    def retold(self, decoded: Any) -> "Answer":
        """Return an answer that reads like this one, which has been read, but for its JSON."""
        other = copy.copy(self)
        other._decoded = decoded
        return other


class Strained:
    """Stands where the stream of a watch stood, and passes on lines as they were rewritten.

    ``strain`` is given all complete lines of a chunk and returns those that Kopf shall see.
    """

    def __init__(self, stream: aiohttp.StreamReader, strain: Callable[[Iterable[bytes]], Iterable[bytes]]) -> None:
        self._stream = stream
        self._strain = strain

    async def iter_chunked(self, most: int) -> AsyncIterator[bytes]:
        """Iterate over whole lines, as many at a time as have come; the last may lack its end."""
        rest = b""
        async for chunk in self._stream.iter_chunked(most):
            *lines, rest = (rest + chunk).split(b"\n")
            passed = b"".join(line + b"\n" for line in self._strain(line for line in lines if line))
            if passed:
                yield passed
        if rest:
            yield rest

    def __getattr__(self, name: str) -> Any:
        # aiohttp itself asks the stream of a response for its exception, sets one, and so on.
        return getattr(self._stream, name)

    @classmethod
    def put_before(cls, answer: aiohttp.ClientResponse, strain: Callable[[Iterable[bytes]], Iterable[bytes]]) -> None:
        """Let whoever reads ``answer`` read through ``strain``."""
        answer.content = cast(aiohttp.StreamReader, cls(answer.content, strain))
