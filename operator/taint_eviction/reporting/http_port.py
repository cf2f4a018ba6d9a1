"""A small HTTP/1.1 server, for GET and HEAD alone. Anybody may connect to it: what clients can make it keep is bounded.

Each connection holds at most a request's head and one answer: there are no bodies, and a connection is closed after its
answer. A head must be complete within a few seconds and 16 kB. If all connections are taken, the oldest one without a
complete request, or with its answer, is closed for a new one: of the address that has most. So other clients keep no
probe of the kubelet out, however fast they connect. That is decided before anything is made for a connection, so this
module accepts them itself. The general servers of Python keep up to 1 MB of unfinished headers for each of any number
of connections.

This module knows no paths (``probe_server``).

Reference: https://www.rfc-editor.org/rfc/rfc9112
"""

import asyncio
import contextlib
import logging
import os
import resource
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from taint_eviction.core.text import one_line

logger = logging.getLogger(__name__)

# The connections of one port.
MAX_CONNECTIONS = 64
_MAX_HEAD_BYTES = 2**14
_HEAD_SECONDS = 5.0
# A client that reads slower than this is cut off.
_ANSWER_SECONDS = 10.0
# A closed connection is read for so long and so much, since a client that still sends would lose the answer.
_LINGER_SECONDS = 1.0
_MAX_PARAMETERS = 20

# A new connection has so long to bring its request before one of the same address may take its place. A client on the
# network of the cluster needs a few milliseconds.
_ITS_SECONDS = 0.05
# Clients that wait to be accepted: a queue that is full makes the kernel drop those of others, too.
_QUEUE = 4096
# How many are accepted in one pass of the event loop, most of them only to be closed at once.
_AT_ONCE = 256
# How long no client is accepted once no file is left for one.
_PAUSE_SECONDS = 1.0

# All ports together leave three quarters of the open files to the API server's connections, and to files. In one pass
# of the event loop all connections of a port may be given to new clients; those in whose place they come are closed in
# the next one.
_SHARE_OF_OPEN_FILES = 16

# Malformed requests of this time are one line in the log.
_REPEAT_SECONDS = 60.0

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}
_REASONS |= {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}


class ListenError(Exception):
    """The server cannot listen on the address; one line that says why."""


class Address(NamedTuple):
    """Where to listen. ``host`` "" means every address, ``port`` 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PortAnswer(NamedTuple):
    """What to answer a request."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


# Takes the path and the query.
Handler = Callable[[str, Mapping[str, str]], Awaitable[PortAnswer]]


class _Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]


class _Malformed(Exception):
    """The request cannot be read: the status to answer, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def raise_open_files() -> None:
    """Raise the limit of open files to the highest that the system allows this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Some systems allow less than they say.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_allowed() -> int:
    """Return how many connections a port may have, by the limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft < 0 else max(1, min(MAX_CONNECTIONS, soft // _SHARE_OF_OPEN_FILES))


@dataclass(slots=True, eq=False)
class _Client:
    """Its connection, since when that is there, by the loop's clock, and how far its one request has come."""

    connection: socket.socket
    address: str
    since: float
    asks: bool = True
    answered: bool = False


class HttpPort:
    """Serves from ``start`` to ``stop``; ``handle`` answers, and never raises."""

    def __init__(self, address: Address, handle: Handler) -> None:
        self._address = address
        self._handle = handle
        self._listeners: list[socket.socket] = []
        self._room = MAX_CONNECTIONS
        # Oldest first, without those that were closed for others.
        self._clients: dict[_Client, asyncio.Task[None]] = {}
        self._by_address: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._malformed = 0
        self._said_at: float | None = None
        self._turn = asyncio.Lock()

    @property
    def port(self) -> int:
        """The port of the running server; before ``start`` the port of the address."""
        return int(self._listeners[0].getsockname()[1]) if self._listeners else self._address.port

    async def start(self) -> None:
        """Listen; raise ``ListenError`` if the address is in use or unavailable."""
        self._room = connections_allowed()
        loop, host = asyncio.get_running_loop(), self._address.host or None
        try:
            # It knows names of hosts, and all addresses of this one.
            bound = await loop.create_server(asyncio.Protocol, host, self._address.port, start_serving=False)
            self._listeners = [socket.socket(fileno=os.dup(each.fileno())) for each in bound.sockets]
            bound.close()
            for listener in self._listeners:
                listener.setblocking(False)
                listener.listen(_QUEUE)
                loop.add_reader(listener, self._accept, listener)
        except OSError as error:
            await self.stop()
            raise ListenError(f"cannot listen on {self._address}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """Stop listening and end open connections. May be called again."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Connections

    def _accept(self, listener: socket.socket) -> None:
        """Accept clients that wait. Others may follow in the next pass of the event loop: it has other work as well."""
        loop, admitted = asyncio.get_running_loop(), 0
        for _ in range(_AT_ONCE):
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:
                # No file is left for it.
                logger.warning("no client can connect to port %d for %g s: %s", self.port, _PAUSE_SECONDS, error)
                loop.remove_reader(listener)
                loop.call_later(_PAUSE_SECONDS, self._accept_again, listener)
                return
            admitted += self._admit(_Client(accepted, str(peer[0]), loop.time()))
            if admitted >= self._room:
                return

    def _accept_again(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _admit(self, new: _Client) -> bool:
        """Serve a connection, in the place of another one if all are taken; or close it, and return False."""
        if len(self._clients) >= self._room:
            oldest = self._displaced_by(new)
            if oldest is None:
                new.connection.close()
                return False
            self._clients.pop(oldest).cancel()
            self._by_address[oldest.address] -= 1
        new.connection.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._serve(new), name="http")
        self._clients[new] = task
        self._by_address[new.address] += 1
        self._tasks.add(task)
        task.add_done_callback(lambda ended: self._ended(new, ended))
        return True

    def _displaced_by(self, new: _Client) -> _Client | None:
        """Return the connection that is closed for a new one; None: the new one is closed.

        It is one of the address that has most connections: the oldest without a complete request, or with its answer,
        else the oldest. So who opens many connections displaces no address that has fewer. Those of an address that has
        not more, once the new one is there, are closed only with their answer, or after time for their request.
        """
        found, best, own = None, (0, False), self._by_address[new.address]
        for each in self._clients:
            has, idle = self._by_address[each.address], each.asks or each.answered
            had_time = each.answered or new.since - each.since >= _ITS_SECONDS
            if (has > own + 1 or (has >= own and idle and had_time)) and (has, idle) > best:
                found, best = each, (has, idle)
        return found

    def _ended(self, client: _Client, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        client.connection.close()
        if self._clients.pop(client, None) is not None:
            self._by_address[client.address] -= 1
        self._by_address += Counter()  # Without those that have none.

    async def _serve(self, client: _Client) -> None:
        # The client may go at any moment.
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(sock=client.connection, limit=_MAX_HEAD_BYTES)
            try:
                await self._answer_one(reader, writer, client)
                client.answered = True
                await self._linger(reader, writer)
            finally:
                writer.transport.abort()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: _Client) -> None:
        """Read and answer the connection's request."""
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            request = _read(head)
        except asyncio.LimitOverrunError:
            await self._refuse(writer, _Malformed(431, f"its headers are longer than {_MAX_HEAD_BYTES} bytes"))
            return
        except _Malformed as why:
            await self._refuse(writer, why)
            return
        client.asks = False
        if request.method in ("GET", "HEAD"):
            # One request begins in a pass of the event loop: many at once must not keep it from its other work.
            async with self._turn:
                await asyncio.sleep(0)
            answer = await self._handle(request.path, request.query)
        else:
            answer = PortAnswer(405, b"only GET and HEAD are allowed\n")
        await _send(writer, answer, with_body=request.method != "HEAD")

    async def _refuse(self, writer: asyncio.StreamWriter, why: _Malformed) -> None:
        self._note_malformed(writer, why)
        await _send(writer, PortAnswer(why.status, f"{why}\n".encode()), with_body=True)

    def _note_malformed(self, writer: asyncio.StreamWriter, why: _Malformed) -> None:
        self._malformed += 1
        now = asyncio.get_running_loop().time()
        if self._said_at is not None and now - self._said_at < _REPEAT_SECONDS:
            return
        peer = writer.get_extra_info("peername")
        client = peer[0] if isinstance(peer, tuple) else "a client that is gone"
        text = "malformed requests at port %d: %d since this was last said, the last one from %s: %s"
        logger.warning(text, self.port, self._malformed, client, why)
        self._malformed, self._said_at = 0, now

    async def _linger(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Close the sending side, and discard what the client still sends: a reset would take the answer from it."""
        writer.write_eof()
        async with asyncio.timeout(_LINGER_SECONDS):
            for _ in range(4):
                if not await reader.read(_MAX_HEAD_BYTES):
                    return


def _read(head: bytes) -> _Request:
    """Read a request's head; raise ``_Malformed``."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise _Malformed(400, f"not a request of HTTP/1.1: {one_line(lines[0], 80)}")
    for line in lines[1:-2]:
        name, colon, _ = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _Malformed(400, f"not a header: {one_line(line, 80)}")
    try:
        target = urlsplit(words[1])
        query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS))
    except ValueError:
        raise _Malformed(400, f"not a URL: {one_line(words[1], 80)}") from None
    return _Request(words[0], unquote(target.path), query)


async def _send(writer: asyncio.StreamWriter, answer: PortAnswer, *, with_body: bool) -> None:
    head = [
        f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Other')}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        *(["Allow: GET, HEAD"] if answer.status == 405 else []),
        "Connection: close",
    ]
    writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + (answer.body if with_body else b""))
    async with asyncio.timeout(_ANSWER_SECONDS):
        await writer.drain()
