"""Real controllers in their own processes with one embedded API server, each behind a connection that can be cut.

The server recognizes each replica by its token. Each test module runs its replicas once, and its tests check what the
server has recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stage.objects import KEY, add_nodes, add_pod, is_leaving, tolerates, write_kubeconfig
from tests.stage.processes import RunningController, start_controller
from tests.stage.waiting import free_port, now

from fake_apiserver import ApiServer, LoggedRequest

LEASE = "taint-eviction-controller"

# A leader must be able to renew in time on a machine with other work, and tests wait for each takeover.
LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 8.0, 5.0, 0.5
QUICK_ELECTION = (
    f"--leader-elect-lease-duration={LEASE_SECONDS:g}s",
    f"--leader-elect-renew-deadline={RENEW_SECONDS:g}s",
    f"--leader-elect-retry-period={RETRY_SECONDS:g}s",
)


class Line:
    """A TCP line to the server that can be cut unnoticed by both ends: nothing passes, and nothing is refused.

    Data sent into a cut line is lost. A mended line resets its earlier connections, as a firewall does that has
    forgotten them. ``called`` is set once a client has connected.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.called = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen; return the port."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._listener.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Let nothing pass from now on."""
        self._open.clear()

    def mend(self) -> None:
        """Let new connections pass."""
        for task in self._tasks:
            task.cancel()
        self._open.set()

    def let_go(self) -> None:
        """Let everything pass that waits, and keep the connections."""
        self._open.set()

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.called.set()
        task = asyncio.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._open.wait()
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except BaseException:
            writer.transport.abort()
            raise
        try:
            both = self._pass(reader, server_writer), self._pass(server_reader, writer)
            await asyncio.wait([asyncio.create_task(way) for way in both], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, server_writer):
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(2**16):
                await self._open.wait()
                writer.write(data)
                await writer.drain()


@dataclass
class ReplicaProcess(RunningController):
    """A replica; ``name`` is its token, ``line`` its connection to the server."""

    name: str = ""
    line: Line = field(kw_only=True)


class Theatre:
    """The server, its nodes and pods, and the replicas."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.server = ApiServer(seed=1, tokens=self._accept)
        self.callers: dict[int, str] = {}
        self.due_at: dict[str, float] = {}
        self.replicas: list[ReplicaProcess] = []

    def _accept(self, token: str) -> bool:
        # The server calls this right after it has recorded a request, with no await between.
        self.callers[self.server.requests.entries[-1].number] = token
        return True

    async def open(self, name: str, *flags: str, ready: bool = True) -> ReplicaProcess:
        """Start a replica; wait until it is ready."""
        line = Line(self.server.port)
        url = f"http://127.0.0.1:{await line.start()}"
        config = write_kubeconfig(self._directory / f"{name}.kubeconfig", url, token=name)
        started = await start_controller(config, *flags, listen=f"127.0.0.1:{free_port()}")
        replica = ReplicaProcess(started.process, started.listen, started.lines, started.reading, name, line=line)
        self.replicas.append(replica)
        if ready:
            await replica.until(lambda: is_ready(replica))
        return replica

    async def close(self) -> None:
        """Kill the replicas that still run, and wait for their ends."""
        for replica in self.replicas:
            await replica.kill()
            await replica.line.stop()

    # The cluster

    def add_node(self, name: str) -> None:
        """Create a node."""
        add_nodes(self.server, name)

    def add_pod(self, name: str, node: str, tolerates_seconds: int | None = None) -> None:
        """Create a pod that tolerates the taint for this time; None: not at all."""
        add_pod(self.server, name, node, *([] if tolerates_seconds is None else [tolerates(tolerates_seconds)]))

    def taint(self, node: str) -> None:
        """Taint a node now, and record when its pods are due."""
        at = now()
        self.server.taint(node, KEY)
        for pod in self.server.list("pods", field_selector=f"spec.nodeName={node}"):
            tolerations = [found for found in pod["spec"].get("tolerations", ()) if found.get("key") == KEY]
            self.due_at[pod["metadata"]["name"]] = at + (tolerations[0]["tolerationSeconds"] if tolerations else 0)

    def is_gone(self, name: str) -> bool:
        """Return whether a pod is terminating or gone."""
        return is_leaving(self.server, name)

    def all_gone(self) -> bool:
        """Return whether every pod with a recorded deadline is terminating or gone."""
        return all(self.is_gone(name) for name in self.due_at)

    # Records of the server

    def lease(self) -> dict[str, Any]:
        """Return the Lease's spec."""
        lease = self.server.get("leases", LEASE, "kube-system")
        assert lease is not None
        spec: dict[str, Any] = lease["spec"]
        return spec

    def calls(self, replica: ReplicaProcess | None = None, **criteria: str) -> list[LoggedRequest]:
        """Return the requests of a replica, or of all."""
        return self.server.requests.select(
            lambda entry: replica is None or self.callers.get(entry.number) == replica.name, **criteria
        )

    def changes(self, replica: ReplicaProcess | None = None, since: float = 0.0) -> list[LoggedRequest]:
        """Return the requests that change pods."""
        return [
            entry
            for entry in self.calls(replica)
            if entry.resource.partition("/")[0] == "pods"
            and entry.verb in {"create", "update", "patch", "delete"}
            and entry.arrived_at >= since
        ]

    def won_at(self, replica: ReplicaProcess, since: float = 0.0) -> float:
        """Return when a replica's first successful write of the Lease arrived; infinite if there was none."""
        writes = [
            entry.arrived_at
            for verb in ("create", "update")
            for entry in self.calls(replica, verb=verb, resource="leases")
            if entry.arrived_at >= since and entry.code in {200, 201} and entry.body["spec"]["holderIdentity"]
        ]
        return min(writes, default=float("inf"))


@contextlib.asynccontextmanager
async def theatre(directory: Path) -> AsyncIterator[Theatre]:
    """Serve a cluster; kill the replicas that still run at the end."""
    made = Theatre(directory)
    async with made.server:
        try:
            yield made
        finally:
            await made.close()


async def is_ready(replica: ReplicaProcess) -> bool:
    """Return whether a replica's readiness probe succeeds."""
    return (await replica.get("/readyz"))[0] == 200
