"""What strangers send to the HTTP port: it stays small, answers others, and says little in the log."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Mapping

import pytest
from tests.stage.waiting import PATIENCE_SECONDS, until

from taint_eviction.reporting import http_port
from taint_eviction.reporting.http_port import MAX_CONNECTIONS, Address, HttpPort, PortAnswer, connections_allowed

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def echo(path: str, query: Mapping[str, str]) -> PortAnswer:
    return PortAnswer(200, f"{path} {dict(query)}".encode())


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[HttpPort]:
    """Serve until the end of the block."""
    port = HttpPort(Address("127.0.0.1", 0), echo)
    await port.start()
    try:
        yield port
    finally:
        await port.stop()


@pytest.fixture
async def port() -> AsyncIterator[HttpPort]:
    """A port that answers with path and query."""
    async with serving() as made:
        yield made


@contextlib.asynccontextmanager
async def clients(port: HttpPort, count: int) -> AsyncIterator[list[Streams]]:
    """Connect as often as this, one after the other."""
    made = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(count)]
    try:
        yield made
    finally:
        for _, writer in made:
            writer.close()


async def answer(streams: Streams) -> tuple[str, str]:
    """Read one answer: its status line and its body."""
    reader, _ = streams
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    [length] = [int(line.split(": ")[1]) for line in head.split("\r\n") if line.startswith("Content-Length")]
    return head.split("\r\n")[0], (await reader.readexactly(length)).decode()


async def say(port: HttpPort, sent: bytes) -> str:
    """Send something, and return all that comes until the connection is closed."""
    async with clients(port, 1) as [(reader, writer)]:
        writer.write(sent)
        return (await reader.read()).decode()


async def is_closed(streams: Streams) -> bool:
    """Return whether the server has closed the connection without an answer."""
    try:
        return await streams[0].read() == b""
    except ConnectionError:
        return True


# Requests


async def test_a_request_is_answered_by_its_path_and_query(port: HttpPort) -> None:
    """Decoded, with empty values."""
    async with clients(port, 1) as [client]:
        client[1].write(b"GET /a%20b?x=1&y=%C3%A4&z HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await answer(client) == ("HTTP/1.1 200 OK", "/a b {'x': '1', 'y': 'ä', 'z': ''}")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        GET,
        GET + GET,
        b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nConnection: close\r\n\r\n",
    ],
)
async def test_a_connection_is_closed_after_its_answer(port: HttpPort, sent: bytes) -> None:
    """Bodies are not read, and nothing that follows is taken for a request."""
    said = await say(port, sent)
    assert said.startswith("HTTP/1.1 200 OK\r\n")
    assert said.endswith("Connection: close\r\n\r\n/ {}")


async def test_head_has_the_headers_of_get_alone(port: HttpPort) -> None:
    """With the length that the body would have."""
    said = await say(port, b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert said.split("\r\n")[2:] == ["Content-Length: 4", "Connection: close", "", ""]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", "400 Bad Request"),
        (b"GET /\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/2\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", "400 Bad Request"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"GET /?" + b"a=1&" * 21 + b" HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * 17_000 + b"\r\n\r\n", "431 Request Header Fields Too Large"),
        (b"x" * 17_000, "431 Request Header Fields Too Large"),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_closed(port: HttpPort, sent: bytes, why: str) -> None:
    """Others are answered."""
    said = await say(port, sent)
    assert said.startswith(f"HTTP/1.1 {why}\r\n")
    assert "Connection: close" in said
    assert (await say(port, b"GET / HTTP/1.0\r\n\r\n")).startswith("HTTP/1.1 200 OK")


async def test_many_malformed_requests_are_one_line_in_the_log(
    port: HttpPort, caplog: pytest.LogCaptureFixture
) -> None:
    """It has what the last one was, without control characters."""
    for _ in range(50):
        await say(port, b"bad\x1b[31m\r\n\r\n")
    assert caplog.messages == [
        f"malformed requests at port {port.port}: 1 since this was last said, the last one from 127.0.0.1:"
        " not a request of HTTP/1.1: bad [31m"
    ]


# Time


async def test_headers_that_are_not_complete_in_time_end_the_connection(
    port: HttpPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does a connection that sends nothing, or nothing more after an answer."""
    monkeypatch.setattr(http_port, "_HEAD_SECONDS", 0.2)
    async with clients(port, 3) as [slow, silent, answered]:
        slow[1].write(b"GET / HTTP/1.1\r\nx: ")
        answered[1].write(GET)
        assert (await answer(answered))[1] == "/ {}"
        assert [await is_closed(each) for each in (slow, silent, answered)] == [True] * 3


# Connections


async def test_a_new_connection_takes_the_place_of_the_oldest_without_a_complete_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client whose request is being answered keeps its place."""
    goes_on = asyncio.Event()

    async def slowly(path: str, query: Mapping[str, str]) -> PortAnswer:
        if path == "/slow":
            await goes_on.wait()
        return PortAnswer(200, path.encode())

    port = HttpPort(Address("127.0.0.1", 0), slowly)
    await port.start()
    async with clients(port, 1) as [served], clients(port, MAX_CONNECTIONS - 1) as idle:
        served[1].write(b"GET /slow HTTP/1.1\r\n\r\n")
        idle[1][1].write(b"GET / HTTP/1.1\r\nx: ")
        await asyncio.sleep(0.1)
        async with clients(port, 2) as newer:
            for each in newer:
                each[1].write(GET)
                assert (await answer(each))[1] == "/"
            assert [await is_closed(each) for each in idle[:2]] == [True, True]
            idle[2][1].write(GET)
            assert (await answer(idle[2]))[1] == "/"
            goes_on.set()
            assert (await answer(served))[1] == "/slow"
    await port.stop()


async def test_clients_that_have_their_answer_and_stay_keep_nobody_out(port: HttpPort) -> None:
    """Otherwise whoever reaches the port could keep the kubelet from its probe."""
    async with clients(port, MAX_CONNECTIONS) as staying:
        for each in staying:
            each[1].write(b"GET / HTTP/1.0\r\n\r\n")
            await answer(each)
        async with clients(port, 1) as [late]:
            late[1].write(GET)
            assert (await answer(late))[1] == "/ {}"


async def test_while_all_connections_are_being_answered_a_new_one_is_closed() -> None:
    """Nobody who has asked loses the answer."""
    goes_on = asyncio.Event()
    asked = 0

    async def slowly(path: str, query: Mapping[str, str]) -> PortAnswer:
        nonlocal asked
        asked += 1
        await goes_on.wait()
        return PortAnswer(200, b"at last")

    port = HttpPort(Address("127.0.0.1", 0), slowly)
    await port.start()
    async with clients(port, MAX_CONNECTIONS) as served:
        for each in served:
            each[1].write(GET)
        await until(lambda: asked == MAX_CONNECTIONS)
        async with clients(port, 1) as [late]:
            assert await is_closed(late)
        goes_on.set()
        assert {(await answer(each))[1] for each in served} == {"at last"}
    await port.stop()


# Many connections


def connected_from(address: str, port: HttpPort, count: int, sent: bytes = b"") -> list[socket.socket]:
    """Connect as often as this from an address of this machine, faster than the port accepts, and send something."""
    made = []
    for _ in range(count):
        client = socket.socket()
        client.bind((address, 0))
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.connect(("127.0.0.1", port.port))
        if sent:
            client.send(sent)
        made.append(client)
    return made


async def first_bytes(client: socket.socket) -> bytes:
    """Receive what comes first; b"" once the connection is closed."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await asyncio.get_running_loop().sock_recv(client, 12)
    except ConnectionError:
        return b""


async def test_an_address_that_opens_many_connections_displaces_none_of_another(port: HttpPort) -> None:
    """However long those wait for their request: the many displace each other."""
    [quiet] = connected_from("127.0.0.1", port, 1)
    many = connected_from("127.0.0.2", port, MAX_CONNECTIONS - 1)
    await asyncio.sleep(0.1)
    more = connected_from("127.0.0.2", port, 3 * MAX_CONNECTIONS)
    assert await first_bytes(many[0]) == b""
    quiet.send(GET)
    assert await first_bytes(quiet) == b"HTTP/1.1 200"
    for each in (quiet, *many, *more):
        each.close()


async def test_an_address_that_waits_for_many_answers_makes_room_for_another() -> None:
    """It may read none of them for as long as they last."""

    async def never(path: str, query: Mapping[str, str]) -> PortAnswer:
        if path == "/never":
            await asyncio.get_running_loop().create_future()
        return PortAnswer(200, b"")

    port = HttpPort(Address("127.0.0.1", 0), never)
    await port.start()
    many = connected_from("127.0.0.2", port, MAX_CONNECTIONS, b"GET /never HTTP/1.1\r\n\r\n")
    await asyncio.sleep(0.1)
    [scrape] = connected_from("127.0.0.1", port, 1, GET)
    assert await first_bytes(scrape) == b"HTTP/1.1 200"
    assert await first_bytes(many[0]) == b""
    for each in (*many, scrape):
        each.close()
    await port.stop()


@pytest.mark.parametrize("address", ["127.0.0.2", "127.0.0.1"], ids=["of others", "of its own address"])
async def test_a_request_among_hundreds_of_connections_that_come_at_once_is_answered(
    port: HttpPort, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that wait to be accepted keep nobody out, and who was accepted has time to ask."""
    monkeypatch.setattr(http_port, "_ITS_SECONDS", PATIENCE_SECONDS)  # This process may stand still for a moment.
    before = connected_from(address, port, MAX_CONNECTIONS - 1 if address == "127.0.0.1" else 300)
    [probe] = connected_from("127.0.0.1", port, 1, GET)
    after = connected_from(address, port, 300)
    answered = await first_bytes(probe)
    for each in (*before, probe, *after):
        each.close()
    assert answered == b"HTTP/1.1 200"


async def test_one_that_is_accepted_later_takes_no_place_of_many_addresses_that_are_just_asking(
    port: HttpPort,
) -> None:
    """Each of them has time to ask; those that ask nothing then make room."""
    first = [client for number in range(MAX_CONNECTIONS) for client in connected_from(f"127.0.1.{number}", port, 1)]
    [late] = connected_from("127.0.0.1", port, 1)
    assert await first_bytes(late) == b""
    await asyncio.sleep(0.1)
    [later] = connected_from("127.0.0.1", port, 1, GET)
    assert await first_bytes(later) == b"HTTP/1.1 200"
    for each in (*first, late, later):
        each.close()


async def test_stopping_ends_open_connections(port: HttpPort) -> None:
    """Idle ones and those in the middle of a request."""
    async with clients(port, 2) as both:
        both[0][1].write(b"GET / HT")
        await asyncio.sleep(0.05)
        await port.stop()
        assert [await is_closed(each) for each in both] == [True, True]


@pytest.mark.parametrize(("limit", "allowed"), [(1024, 64), (1023, 63), (256, 16), (10, 1), (-1, 64)])
def test_a_port_leaves_most_of_the_open_files_to_others(
    monkeypatch: pytest.MonkeyPatch, limit: int, allowed: int
) -> None:
    """Two ports, with clients that wait to be accepted, take a quarter of the limit at most; -1 is no limit."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert connections_allowed() == allowed
