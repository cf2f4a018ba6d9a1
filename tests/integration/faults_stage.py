"""For the tests of what fails: the whole controller towards an embedded API server, in this loop or in a process.

In the loop it is the real object graph with the real Kopf and client, only with short spans. A process is the real
command. What tests wait for is a condition or a request in the server's log, never a span.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
from kubernetes.aio.client import Configuration

from taint_eviction.adapters.credentials import Connection
from taint_eviction.adapters.probe_server import Address
from taint_eviction.adapters.token_sources import FixedAuthorization
from taint_eviction.kopf_shell.tuning import WatchTuning
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.settings import ElectionSettings, RetrySettings, Settings, WatchSettings
from taint_eviction.simulation.apiserver import ApiServer, LoggedRequest, kubeconfig, node_object
from taint_eviction.simulation.apiserver.clock import monotonic
from taint_eviction.wiring import Application

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
KEY = "maintenance"
PREFIX = "taint_eviction_controller_"
IN_TIME_SECONDS = 10.0

# What is "at once" on a busy machine.
PROMPT_SECONDS = 2.0

QUICK_WATCH = WatchSettings(restart_first_seconds=0.02, restart_most_seconds=0.1)
QUICK = Settings(
    call_timeout_seconds=0.5,
    grace_seconds=2.0,
    retry=RetrySettings(0.02, 0.1),
    watch=QUICK_WATCH,
    election=ElectionSettings(enabled=False),
)
QUICK_KOPF = WatchTuning(retry_seconds=(0.01, 0.02), request_seconds=2.0, connect_seconds=2.0)


# Objects on the server


def tolerates(seconds: int | None = None, key: str = KEY) -> Json:
    """Make a toleration, for ever where ``seconds`` is None."""
    toleration: Json = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


def add_nodes(server: ApiServer, *names: str) -> None:
    """Create nodes that are ready."""
    for name in names:
        server.create("nodes", node_object(name, server.clock.timestamp()))


def add_pod(server: ApiServer, name: str, node: str | None, *tolerations: Json, **metadata: Any) -> str:
    """Create a pod, bound unless ``node`` is None, and return its UID."""
    spec: Json = {"containers": [{"name": "main", "image": "pause"}], "tolerations": list(tolerations)}
    if node is not None:
        spec["nodeName"] = node
    created = server.create("pods", {"metadata": {"name": name, **metadata}, "spec": spec})
    return str(created["metadata"]["uid"])


def add_pods(server: ApiServer, prefix: str, count: int, node: str, *tolerations: Json) -> list[str]:
    """Create so many pods and return their names."""
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        add_pod(server, name, node, *tolerations)
    return names


def condition_of(server: ApiServer, name: str) -> Json:
    """Return a pod's DisruptionTarget condition, empty if it has none."""
    pod = server.get("pods", name) or {}
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((found for found in conditions if found["type"] == "DisruptionTarget"), {})


def events_about(server: ApiServer, uid: str) -> list[str]:
    """Return the messages of the Kubernetes events about this pod."""
    return [event["message"] for event in server.list("events") if event["involvedObject"]["uid"] == uid]


def deletes(server: ApiServer, name: str | None = None) -> list[LoggedRequest]:
    """Return the DELETE requests for pods that have arrived, for one pod or all."""
    wanted = {} if name is None else {"name": name}
    return server.requests.select(verb="delete", resource="pods", **wanted)


async def deleted(server: ApiServer, *names: str, within_seconds: float = IN_TIME_SECONDS) -> float:
    """Wait until each of these pods is terminating or gone, and return when the last of them was asked to go."""
    await until(lambda: all(is_leaving(server, name) for name in names), within_seconds)
    return max(deletes(server, name)[-1].arrived_at for name in names)


def is_leaving(server: ApiServer, name: str) -> bool:
    """Tell whether a pod is terminating or gone."""
    pod = server.get("pods", name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


async def until(condition: Callable[[], object], seconds: float = IN_TIME_SECONDS) -> None:
    """Wait until a condition holds; raise TimeoutError if it does not in time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions span server and controller, which share no event
            await asyncio.sleep(0.005)


# The controller in this loop


@dataclass
class Controlled:
    """A running controller, and the server that it runs against."""

    server: ApiServer
    application: Application
    clock: ServerClock
    stop: asyncio.Event
    listen: Address
    running: asyncio.Task[None]
    complaints: list[Mapping[str, Any]] = field(default_factory=list)

    def metric(self, name: str, **labels: str) -> float:
        """Read a metric of ours; 0 where it has no such series."""
        return self.application.metrics.registry.get_sample_value(PREFIX + name, labels) or 0.0

    async def until(self, condition: Callable[[], object], seconds: float = IN_TIME_SECONDS) -> None:
        """Wait until a condition holds, or raise why the controller ended before."""
        await until(lambda: self.running.done() or condition(), seconds)
        if self.running.done():
            self.running.result()

    async def synced(self) -> None:
        """Wait until everything was listed and all nodes are watched."""
        await self.until(self.application.engine.synced)
        await self.until(lambda: self.server.watches.select(resource="nodes"))

    async def watching_pods_of(self, *nodes: str) -> None:
        """Wait until the pods of these nodes are watched."""
        await self.until(lambda: all(self.server.watches.select(resource="pods", node=node) for node in nodes))

    async def probe(self, path: str) -> tuple[int, str]:
        """Ask the probe server over HTTP."""
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.listen}{path}") as answer:
            return answer.status, (await answer.text()).strip()

    async def end(self) -> None:
        """Stop it in good order; raise what it raises."""
        self.stop.set()
        await asyncio.wait((self.running,), timeout=IN_TIME_SECONDS)
        assert self.running.done(), _what_hangs()
        self.running.result()


def connection_to(server: ApiServer) -> Connection:
    """Make a way to the server, without credentials."""
    return Connection(Configuration(host=server.url), FixedAuthorization(None), "the test", None, in_cluster=False)


@contextlib.asynccontextmanager
async def controlling(
    server: ApiServer,
    settings: Settings = QUICK,
    tuning: WatchTuning = QUICK_KOPF,
    *,
    connection: Connection | None = None,
    clock: ServerClock | None = None,
    sharpening: bool = False,
    synced: bool = True,
    reinstall_signal_handlers: Callable[[], None] = lambda: None,
) -> AsyncIterator[Controlled]:
    """Run the controller, from synced on, until the end of the block; nothing in the loop may complain meanwhile.

    ``sharpening`` False spares the up to one second in which it finds out when the server's second turns.
    """
    clock, stop, listen = clock or ServerClock(), asyncio.Event(), Address("127.0.0.1", free_port())
    with contextlib.nullcontext() if sharpening else mock.patch("taint_eviction.wiring.sharpen", _not_at_all):
        application = Application(
            connection or connection_to(server),
            clock,
            settings,
            listen=listen,
            reinstall_signal_handlers=reinstall_signal_handlers,
            tuning=tuning,
        )
        running = asyncio.create_task(application.run(stop), name="application")
        controlled = Controlled(server, application, clock, stop, listen, running)
        with _listening_to_complaints(controlled.complaints):
            try:
                if synced:
                    await controlled.synced()
                yield controlled
                if not running.done():
                    await controlled.end()
            finally:
                running.cancel()
                await asyncio.wait((running,), timeout=IN_TIME_SECONDS)
                assert running.done(), _what_hangs()
        assert not controlled.complaints, controlled.complaints


def _what_hangs() -> list[str]:
    """Say of each task where it waits: the controller did not end."""
    return [f"{task.get_name()}: {' > '.join(_awaited(task.get_coro()))}" for task in asyncio.all_tasks()]


def _awaited(work: Any) -> Iterator[str]:
    while (frame := getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)) is not None:
        yield f"{frame.f_code.co_name}:{frame.f_lineno}"
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)


async def _not_at_all(*_: object) -> None:
    """Stand in for the sharpening of the clock."""


@contextlib.contextmanager
def _listening_to_complaints(complaints: list[Mapping[str, Any]]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# The controller in a process of its own


@dataclass
class Process:
    """A ``taint-eviction run`` and what it has logged."""

    process: asyncio.subprocess.Process
    lines: list[Json] = field(default_factory=list)
    reading: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Collect log lines until it ends."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"message": line.decode(errors="replace").rstrip()})

    def said(self, start: str) -> list[Json]:
        """Return the log lines whose message starts so."""
        return [line for line in self.lines if str(line.get("message", "")).startswith(start)]

    def log_of(self, pod: str, what: str) -> list[Json]:
        """Return the log lines of one kind about a pod of the default namespace."""
        return [line for line in self.lines if line.get("pod") == f"default/{pod}" and line.get("what") == what]

    async def synced(self) -> None:
        """Wait until it says that it is synced."""
        try:
            await until(lambda: self.said("synced") or self.process.returncode is not None, 30)
        finally:
            assert self.said("synced"), self.lines

    async def kill(self) -> None:
        """End it as a power failure does."""
        self.process.kill()
        await self.process.wait()

    async def ended(self) -> int:
        """Wait for its end and return its exit code."""
        code = await asyncio.wait_for(self.process.wait(), 30)
        if self.reading is not None:
            await self.reading
        return code


@contextlib.asynccontextmanager
async def process(
    config: Path, *flags: str, program: Sequence[str] = ("-m", "taint_eviction")
) -> AsyncIterator[Process]:
    """Run the command until the end of the block; it is killed there if it still runs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAINT_EVICTION_")}
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *(*program, "run", "--kubeconfig", str(config), "--log-format", "json", "--no-leader-elect", *flags),
        env={**environment, "PYTHONPATH": str(ROOT / "operator")},
        stderr=asyncio.subprocess.PIPE,
    )
    run = Process(started)
    run.reading = asyncio.create_task(run.read())
    try:
        yield run
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()
        await run.reading


def write_kubeconfig(path: Path, server: ApiServer, **user: Any) -> Path:
    """Write a kubeconfig for the server; ``user`` says how to log in."""
    content = kubeconfig(server)
    content["users"][0]["user"] |= user
    path.write_text(json.dumps(content))
    return path


__all__ = ["monotonic"]
