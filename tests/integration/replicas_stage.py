"""Two real controllers in processes of their own before an embedded API server, each behind a line that can be cut.

The server knows who called by the token each replica has been given. Tests are stories: each is played once, and its
tests look at what the server has written down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from taint_eviction.simulation.apiserver import ApiServer, LoggedRequest, kubeconfig, node_object

ROOT = Path(__file__).parents[2]
LEASE = "taint-eviction-controller"
KEY = "maintenance"
PATIENCE_SECONDS = 30.0

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 3.0, 2.0, 0.5
QUICK = (
    f"--leader-elect-lease-duration={LEASE_SECONDS:g}s",
    f"--leader-elect-renew-deadline={RENEW_SECONDS:g}s",
    f"--leader-elect-retry-period={RETRY_SECONDS:g}s",
)
# How long it takes at worst until another one acts after the leader has died.
TAKEOVER_SECONDS = LEASE_SECONDS + 2 * 2.2 * RETRY_SECONDS
# What a busy machine may add to anything.
SLACK_SECONDS = 1.0


class Line:
    """A TCP line to the server that can be cut without either end noticing: nothing passes, nothing is refused.

    What was sent into a cut line is lost; mended, it resets the connections of before, as a firewall does that has
    forgotten them. ``called`` is set once somebody has connected.
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
        """Let nothing pass any more."""
        self._open.clear()

    def mend(self) -> None:
        """Let new connections pass."""
        for task in self._tasks:
            task.cancel()
        self._open.set()

    def let_go(self) -> None:
        """Let everything pass that waits."""
        self._open.set()

    async def stop(self) -> None:
        """End everything."""
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
class Replica:
    """A ``taint-eviction run`` in a process of its own; ``name`` is its token."""

    name: str
    process: asyncio.subprocess.Process
    line: Line
    port: int
    log: list[dict[str, Any]] = field(default_factory=list)

    async def read(self) -> None:
        """Collect log lines."""
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            try:
                self.log.append(json.loads(raw))
            except ValueError:
                self.log.append({"message": raw.decode(errors="replace").rstrip()})

    def said(self, text: str) -> bool:
        """Tell whether a log line contains this."""
        return any(text in line.get("message", "") for line in self.log)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def get(self, path: str) -> tuple[int, str]:
        """Ask its probe server; status 0 where it does not listen yet."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def leads(self) -> bool:
        """Tell whether its metrics say that it leads."""
        _, text = await self.get("/metrics")
        [line] = [line for line in text.splitlines() if line.startswith("leader_election_master_status{")]
        return line.endswith(" 1.0")

    async def end(self) -> int:
        """Wait for its end; return the exit code."""
        return await asyncio.wait_for(self.process.wait(), PATIENCE_SECONDS)


class Theatre:
    """The server, its nodes and pods, and the replicas."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.server = ApiServer(seed=1, tokens=self._accept)
        self.callers: dict[int, str] = {}
        self.due_at: dict[str, float] = {}
        self.replicas: list[Replica] = []
        self._reading: list[asyncio.Task[None]] = []

    def _accept(self, token: str) -> bool:
        # Asked right after a request was written down, with no await between.
        self.callers[self.server.requests.entries[-1].number] = token
        return True

    async def open(self, name: str, *flags: str, waits: bool = True) -> Replica:
        """Start a replica; wait until it is ready."""
        line = Line(self.server.port)
        config = self._directory / f"{name}.kubeconfig"
        config.write_text(json.dumps(kubeconfig(f"http://127.0.0.1:{await line.start()}", token=name)))
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TAINT_EVICTION_")}
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "taint_eviction", "run", "--kubeconfig", str(config)),
            *("--log-format", "json", "--listen", f"127.0.0.1:{port}", *flags),
            cwd=ROOT,
            env={**inherited, "PYTHONPATH": "operator"},
            stderr=asyncio.subprocess.PIPE,
        )
        replica = Replica(name, process, line, port)
        self.replicas.append(replica)
        self._reading.append(asyncio.create_task(replica.read()))
        if waits:
            await until(lambda: self._is_ready(replica))
        return replica

    @staticmethod
    async def _is_ready(replica: Replica) -> bool:
        assert replica.process.returncode is None, replica.log
        return (await replica.get("/readyz"))[0] == 200

    async def close(self) -> None:
        """Kill what still runs, and wait for it."""
        for replica in self.replicas:
            if replica.process.returncode is None:
                replica.signal(signal.SIGKILL)
            await replica.process.wait()
            await replica.line.stop()
        await asyncio.gather(*self._reading)

    # The cluster

    def add_node(self, name: str) -> None:
        """Create a node."""
        self.server.create("nodes", node_object(name, self.server.clock.timestamp()))

    def add_pod(self, name: str, node: str, tolerates_seconds: int | None = None) -> None:
        """Create a pod that tolerates the taint for so long, None: not at all."""
        toleration = {
            "key": KEY,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": tolerates_seconds,
        }
        spec = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "pause"}],
            "tolerations": [] if tolerates_seconds is None else [toleration],
        }
        self.server.create("pods", {"metadata": {"name": name}, "spec": spec})

    def taint(self, node: str) -> None:
        """Taint a node now; from then on its pods are due in their time."""
        at = now()
        self.server.taint(node, KEY)
        for pod in self.server.list("pods", field_selector=f"spec.nodeName={node}"):
            tolerations = [found for found in pod["spec"].get("tolerations", ()) if found.get("key") == KEY]
            self.due_at[pod["metadata"]["name"]] = at + (tolerations[0]["tolerationSeconds"] if tolerations else 0)

    def is_gone(self, name: str) -> bool:
        """Tell whether a pod is terminating or gone."""
        pod = self.server.get("pods", name)
        return pod is None or "deletionTimestamp" in pod["metadata"]

    # What has been written down

    def lease(self) -> dict[str, Any]:
        """Return the Lease's spec."""
        lease = self.server.get("leases", LEASE, "kube-system")
        assert lease is not None
        spec: dict[str, Any] = lease["spec"]
        return spec

    def calls(self, replica: Replica | None = None, **criteria: str) -> list[LoggedRequest]:
        """Return the requests of a replica, or of all."""
        return self.server.requests.select(
            lambda entry: replica is None or self.callers.get(entry.number) == replica.name, **criteria
        )

    def changes(self, replica: Replica | None = None, since: float = 0.0) -> list[LoggedRequest]:
        """Return the requests that change pods."""
        return [
            entry
            for entry in self.calls(replica)
            if entry.resource.partition("/")[0] == "pods"
            and entry.verb in {"create", "update", "patch", "delete"}
            and entry.arrived_at >= since
        ]

    def won_at(self, replica: Replica, since: float = 0.0) -> float:
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
    """Serve a cluster; whatever still runs is killed in the end."""
    made = Theatre(directory)
    async with made.server:
        try:
            yield made
        finally:
            await made.close()


async def until(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition, or coroutine, holds."""
    async with asyncio.timeout(seconds):
        while True:
            held = condition()
            if await held if asyncio.iscoroutine(held) else held:
                return
            await asyncio.sleep(0.01)


async def sleep_until(at: float) -> None:
    """Wait for an instant of the loop's clock."""
    await asyncio.sleep(at - now())


def now() -> float:
    """The clock by which the server dates arrivals."""
    return asyncio.get_running_loop().time()


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
