"""Hostile answers, and the requests that get them."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

Fits = Callable[[web.BaseRequest], bool]
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_JSON = "application/json"
# Longer than any request in these tests may last.
_LONG_SECONDS = 10.0
_OVER = 1 << 25


@dataclass(frozen=True, slots=True)
class Requests:
    """A kind of request. ``of_all_nodes``: it is not about the hostile node, or a pod on it, alone."""

    name: str
    of_all_nodes: bool
    fits: Callable[[str, str], Fits]


def _get(request: web.BaseRequest, *, watch: bool = False) -> bool:
    return request.method == "GET" and (request.query.get("watch") == "true") is watch


def _of_node(request: web.BaseRequest, node: str) -> bool:
    return request.query.get("fieldSelector") == f"spec.nodeName={node}"


def _pod(request: web.BaseRequest, pod: str, method: str) -> bool:
    return request.method == method and f"/pods/{pod}" in request.path


REQUESTS = [
    Requests("list nodes", True, lambda _node, _pod: lambda it: _get(it) and it.path == "/api/v1/nodes"),
    Requests("watch nodes", True, lambda _node, _pod: lambda it: _get(it, watch=True) and it.path == "/api/v1/nodes"),
    Requests("list pods", False, lambda node, _pod: lambda it: _get(it) and _of_node(it, node)),
    Requests("watch pods", False, lambda node, _pod: lambda it: _get(it, watch=True) and _of_node(it, node)),
    Requests("get a node", False, lambda node, _pod: lambda it: _get(it) and it.path == f"/api/v1/nodes/{node}"),
    Requests("patch a pod", False, lambda _node, pod: lambda it: _pod(it, pod, "PATCH")),
    Requests("delete a pod", False, lambda _node, pod: lambda it: _pod(it, pod, "DELETE")),
    Requests("post an event", True, lambda _node, _pod: lambda it: it.path.endswith("/events")),
    Requests("get the control state", True, lambda _node, _pod: lambda it: "/configmaps/" in it.path),
]


def _says(status: int, body: bytes, content_type: str = _JSON, **headers: str) -> Answer:
    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers={"Content-Type": content_type, **named})

    return answer


def _streams(piece: bytes, pause_seconds: float = 0.0, **headers: str) -> Answer:
    """Return an answer that repeats a piece until the client goes, or for a long time."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = web.StreamResponse(headers={"Content-Type": _JSON, **named})
        response.enable_chunked_encoding()
        await response.prepare(request)
        with_an_end = asyncio.get_running_loop().time() + _LONG_SECONDS
        try:
            while asyncio.get_running_loop().time() < with_an_end:
                await response.write(piece)
                await asyncio.sleep(pause_seconds)
        except ConnectionError:
            pass
        return response

    return answer


async def _stalls(request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.sleep(_LONG_SECONDS)
    return await _breaks(request)


async def _breaks(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _cut_off(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": _JSON, "Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":[')
    return await _breaks(request)


async def _no_http(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"\x00\xff garbage\r\n\r\n" * 100)
    return await _breaks(request)


_EMPTY = b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
_STATUS = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":"%s","message":"%s","details":%s}'

ANSWERS: dict[str, tuple[Answer, int]] = {
    "html": (_says(200, b"<html><body>Sign in</body></html>", "text/html"), 2),
    "html with 503": (_says(503, b"<html>" * 1000, "text/html"), 2),
    "html with 404": (_says(404, b"<html>Not Found</html>", "text/html"), 2),
    "html with 403": (_says(403, b"<html>Forbidden</html>", "text/html"), 2),
    "nothing": (_says(200, b""), 2),
    "no content": (_says(204, b""), 2),
    "null": (_says(200, b"null"), 2),
    "a list": (_says(200, b"[]"), 2),
    "a text": (_says(200, b'"ok"'), 2),
    "an empty object": (_says(200, b"{}"), 2),
    "a success": (_says(200, b'{"kind":"Status","status":"Success","metadata":{}}'), 2),
    "items of another type": (_says(200, b'{"metadata":{},"items":7}'), 2),
    "items of other types": (_says(200, b'{"metadata":{"resourceVersion":[]},"items":[null,7,"a",[],{}]}'), 2),
    "metadata of another type": (_says(200, b'{"metadata":[],"spec":"a","status":7,"items":[]}'), 2),
    "a token of another type": (_says(200, b'{"metadata":{"continue":{"a":1}},"items":[]}'), 2),
    "the same page again and again": (
        _says(200, b'{"metadata":{"resourceVersion":"1","continue":"again"},"items":[]}'),
        50,
    ),
    "a long token": (
        _says(200, b'{"metadata":{"resourceVersion":"1","continue":"%s"},"items":[]}' % (b"x" * 100_000)),
        2,
    ),
    "equal keys": (_says(200, b'{"metadata":{},"metadata":[],"items":[],"items":7,"kind":1,"kind":2}'), 2),
    "large numbers": (_says(200, b'{"metadata":{"generation":%s},"items":[1e400]}' % (b"9" * 400)), 2),
    "invalid UTF-8": (_says(200, b'{"metadata":{"name":"\xff\xfe"}}'), 2),
    "deep nesting": (_says(200, b'{"a":' * 100_000), 2),
    "cut off": (_cut_off, 2),
    "a broken connection": (_breaks, 2),
    "no HTTP": (_no_http, 2),
    "no answer": (_stalls, 2),
    "an answer without an end": (_streams(b"x" * (1 << 18)), 1),
    "an answer byte by byte": (_streams(b"x", 0.01), 1),
    "items without an end": (_streams(b'{"metadata":{"name":"a"}},'), 1),
    "gzip": (_says(200, gzip.compress(_EMPTY), Content_Encoding="gzip"), 2),
    "gzip of 32 MB": (_says(200, gzip.compress(b" " * _OVER, 1), Content_Encoding="gzip"), 2),
    "no gzip": (_says(200, _EMPTY, Content_Encoding="gzip"), 2),
    "a redirect to itself": (_says(307, b"", Location="?a=b"), 2),
    "a redirect elsewhere": (_says(302, b"", Location="http://127.0.0.1:9/api/v1/nodes"), 2),
    "retry after 30 years": (_says(429, b"slow down", "text/plain", Retry_After="1000000000"), 1),
    "retry after a text": (_says(503, b"", Retry_After="9" * 5000), 2),
    "a date of another year": (_says(503, b"", Date="Mon, 01 Jan 0001 00:00:00 -9999"), 2),
    "401": (_says(401, _STATUS % (401, b"Unauthorized", b"Unauthorized", b"{}")), 2),
    "403": (_says(403, _STATUS % (403, b"Forbidden", b"no", b"{}")), 2),
    "404 about another object": (_says(404, _STATUS % (404, b"NotFound", b"gone", b'{"name":"a","kind":"pods"}')), 2),
    "409": (_says(409, _STATUS % (409, b"Conflict", b"conflict", b"{}")), 2),
    "410": (_says(410, _STATUS % (410, b"Expired", b"too old", b"{}")), 2),
    "a Status of another type": (_says(500, b'{"kind":"Status","reason":[],"message":{},"details":7,"code":"a"}'), 2),
    "causes without an end": (
        _says(422, _STATUS % (422, b"Invalid", b"x" * 100_000, b'{"causes":[%s{}]}' % (b'{"message":"a"},' * 50_000))),
        2,
    ),
    "a status that is none": (_says(599, b"?"), 2),
}


@dataclass(frozen=True, slots=True)
class AnswerCase:
    """An answer to one kind of request."""

    request: Requests
    answer_name: str

    def __str__(self) -> str:
        return f"{self.request.name}: {self.answer_name}"

    @property
    def answer(self) -> Answer:
        """The answer."""
        return ANSWERS[self.answer_name][0]

    @property
    def times(self) -> int:
        """How many requests get it."""
        return ANSWERS[self.answer_name][1]


def answer_cases() -> list[AnswerCase]:
    """Return all cases."""
    return [AnswerCase(request, name) for request in REQUESTS for name in ANSWERS]
