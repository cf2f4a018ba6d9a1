"""A way to the API server on which each connection takes a while to open and serves one request (W11).

A load balancer across an ocean that keeps no connection alive is an example. A node that is read before the connection
for its pod's DELETE is open is too old by the time the DELETE is sent.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from test_replicas_fence import certified
from tests.stage.controlled import Controlled, controlling
from tests.stage.objects import KEY, add_nodes, add_pod, deleted, deletes, is_leaving
from tests.stage.waiting import now

from fake_apiserver import ApiServer, kubeconfig
from taint_eviction.login.credentials import with_kubeconfig
from taint_eviction.runtime.clock import ServerClock

# Longer than a read of a node may be shared with later calls.
_OPENING_SECONDS = 1.2


class SlowWay:
    """A TCP listener that delays TLS and makes the server close each connection after its answer.

    ``stood_at``: when the connection of the last request by each method was open.
    """

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self.opening_seconds = 0.0
        self.connections = 0
        self.stood_at: dict[str, float] = {}
        self._server_port = port
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen; return the port."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(writer.transport, asyncio.ReadTransport)
        writer.transport.pause_reading()  # the first bytes belong to TLS
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await asyncio.sleep(self.opening_seconds)
            with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
                await writer.start_tls(self._tls)
                await self._pass_one_request(reader, writer)
        finally:
            writer.transport.abort()

    async def _pass_one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stood_at = now()
        first_line = await reader.readuntil(b"\r\n")
        self.stood_at[first_line.decode().split()[0]] = stood_at
        answers, requests = await asyncio.open_connection("127.0.0.1", self._server_port)
        both: list[asyncio.Task[None]] = []
        try:
            requests.write(first_line + b"Connection: close\r\n")
            both += [asyncio.create_task(_pass(reader, requests)), asyncio.create_task(_pass(answers, writer))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            requests.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()


@contextlib.asynccontextmanager
async def slow_way(server: ApiServer, directory: Path) -> AsyncIterator[tuple[SlowWay, Controlled]]:
    """Run the controller over such a way, which has no delay until the controller has synced."""
    way = SlowWay(server.port, certified(directory))
    config = directory / "config"
    config.write_text(json.dumps(kubeconfig(f"https://127.0.0.1:{await way.start()}")))
    clock = ServerClock()
    connection = await with_kubeconfig(str(config), None, clock)
    try:
        async with controlling(server, connection=connection, clock=clock) as running:
            yield way, running
    finally:
        await way.stop()


async def test_pod_is_evicted_although_each_connection_takes_longer_than_a_read_stays_valid(tmp_path: Path) -> None:
    """The connection for the DELETE is open before the node is read, so the read is recent when the DELETE is sent."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        async with slow_way(server, tmp_path) as (way, running):
            server.taint("n1", KEY)
            await running.watching_pods_of("n1")
            way.opening_seconds = _OPENING_SECONDS
            add_pod(server, "web", "n1")
            sent_at = await deleted(server, "web")
            read_at = server.requests.select(verb="get", resource="nodes", name="n1")[-1].arrived_at
            assert way.stood_at["DELETE"] < read_at < sent_at
            assert len(deletes(server)) == 1
            assert way.connections >= len(server.requests.entries)


async def test_pod_stays_if_its_node_is_untainted_while_the_connection_opens(tmp_path: Path) -> None:
    """The decision is made on the open connection and with a live read, although the node watch lags."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        async with slow_way(server, tmp_path) as (way, running):
            server.taint("n1", KEY)
            await running.watching_pods_of("n1")
            way.opening_seconds = _OPENING_SECONDS
            add_pod(server, "web", "n1")
            await server.requests.wait_for(verb="patch", resource="pods/status")
            server.lag("nodes")
            server.untaint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 0)
            assert deletes(server) == []
            assert not is_leaving(server, "web")
