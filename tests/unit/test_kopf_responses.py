"""How Kopf reads the API server's responses: lists item by item, and streams in lines of bounded length."""

from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import aiohttp
import pytest

from taint_eviction.kopf_shell import responses
from taint_eviction.kopf_shell.responses import TOO_LONG, Filtered, RewrittenResponse


class ArrivingBody:
    """A body that arrives in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class ArrivingResponse(RewrittenResponse):
    """A response with this body."""

    def __init__(self, *pieces: bytes) -> None:
        self.status = 200
        self.content = cast(aiohttp.StreamReader, ArrivingBody(*pieces))
        self.closed_early = False

    def close(self) -> None:
        self.closed_early = True


async def lines_of(*pieces: bytes) -> list[list[bytes]]:
    """Return the lines that a filter gets at a time; it passes on all of them."""
    given: list[list[bytes]] = []

    def note(lines: Iterable[bytes]) -> Iterable[bytes]:
        given.append(list(lines))
        return given[-1]

    stream = Filtered(cast(aiohttp.StreamReader, ArrivingBody(*pieces)), note)
    passed = [chunk async for chunk in stream.iter_chunked(1 << 20)]
    assert b"".join(passed).split(b"\n") == [*(line for lines in given for line in lines), b""]
    return given


async def test_a_line_is_whole_however_it_arrives() -> None:
    """A chunk without the end of a line tells the filter nothing: it is no sign of life, either."""
    assert await lines_of(b"a", b"b", b"c\nd\n\ne", b"f\n") == [[b"abc", b"d"], [b"ef"]]


async def test_the_last_line_may_lack_its_end() -> None:
    """The API server may close the stream after it."""
    assert await lines_of(b"a\nb") == [[b"a"], [b"b"]]


async def test_a_line_that_is_too_long_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may never end, and it is kept until it does."""
    monkeypatch.setattr(responses, "MOST_ITEM_BYTES", 10)
    assert await lines_of(b"a\n", b"123456", b"78901", b"2\nb\n") == [[b"a"], [TOO_LONG]]


async def test_each_item_of_a_list_is_cut_down_as_it_arrives() -> None:
    """Only what Kopf is to see of it is kept."""
    response = ArrivingResponse(b'{"metadata":{"a":1},"items":[{"metadata":{"n":1}}', b',{"metadata":{"n":2}}],"b":2}')

    def keep(item: Any, kept: list[Any]) -> None:
        if item["metadata"]["n"] > 1:
            kept.append(item["metadata"])

    response.keep = keep
    response.rewrite = lambda status, page: {**page, "status": status}
    assert await response.json() == {"metadata": {"a": 1}, "items": [{"n": 2}], "b": 2, "status": 200}


async def test_a_response_that_is_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rest is not read."""
    monkeypatch.setattr(responses, "_MOST_BYTES", 10)
    response = ArrivingResponse(b'{"items":[{"metadata":{}}]}')
    response.keep = lambda item, kept: kept.append(item)
    with pytest.raises(ValueError, match="more than"):
        await response.json()
    assert response.closed_early
