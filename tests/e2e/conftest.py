"""The same behaviours against the embedded API server (always) and against KUBECONFIG's cluster (with ``-m e2e``).

The controller under test is the real command in a process of its own, talking HTTP.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster, Json

from taint_eviction.adapters.credentials import with_kubeconfig
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.simulation.apiserver import ApiServer, kubeconfig

Start = Callable[..., Awaitable["Running"]]
Order = Callable[..., Awaitable[str]]


@dataclass
class Running:
    """A ``taint-eviction run`` in a process of its own that listens at ``url``, and the log lines it has written."""

    process: asyncio.subprocess.Process
    url: str
    lines: list[Json] = field(default_factory=list)
    _ended: bool = False
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def read(self) -> None:
        """Collect log lines until the process ends."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            try:
                told = json.loads(line)
            except ValueError:
                told = {"message": line.decode(errors="replace").rstrip()}
            async with self._changed:
                self.lines.append(told)
                self._changed.notify_all()
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def until(self, wanted: Callable[[Json], bool], seconds: float = 10.0) -> Json:
        """Wait until it has written a line that is wanted, and return the first; fail once it has ended instead."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._ended or any(map(wanted, self.lines)))
        found = next(filter(wanted, self.lines), None)
        assert found is not None, f"it has not said so: {self.lines[-10:]}"
        return found

    async def says(self, seconds: float = 10.0, **fields: str) -> Json:
        """Wait until it has written a line with these fields, and return the first."""
        return await self.until(lambda line: fields.items() <= line.items(), seconds)

    async def ask(self, *words: str) -> str:
        """Ask it by a command, and return what that prints."""
        return await command(*words, "--server", self.url)


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def start_process(*words: str) -> asyncio.subprocess.Process:
    """Start the real command; it takes nothing from this process's environment that it would obey."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TAINT_EVICTION_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "taint_eviction", *words),
        env={**environment, "PYTHONPATH": "operator"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def command(*words: str) -> str:
    """Run a command as a person does, and return what it prints; it must succeed."""
    process = await start_process(*words)
    out, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    return out.decode()


@contextlib.asynccontextmanager
async def running_controller(config: Path, own: str, *flags: str) -> AsyncIterator[Running]:
    """Run a controller that is synced, until the end of the block; then it must end with exit code 0.

    Its ConfigMap is ``own`` in the namespace ``own``: it obeys no order that is given to others in the cluster.
    """
    listen = f"127.0.0.1:{free_port()}"
    process = await start_process(
        *("run", "--kubeconfig", str(config), "--log-format", "json", "--listen", listen, "--no-leader-elect"),
        *("--leader-elect-resource-namespace", own, "--leader-elect-resource-name", own, *flags),
    )
    running = Running(process, f"http://{listen}")
    reading = asyncio.create_task(running.read())
    try:
        await running.until(lambda line: line.get("message", "").startswith("synced"), 30)
        yield running
        assert process.returncode is None, running.lines[-5:]
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0, running.lines[-5:]
    finally:
        if process.returncode is None:
            process.kill()
        await reading


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
async def config(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """Give the kubeconfig of the cluster under test."""
    if request.param == "real":
        named = os.environ.get("KUBECONFIG")
        if not named:
            pytest.skip("KUBECONFIG names no cluster")
        yield Path(named)
        return
    async with ApiServer() as server:
        server.kubelets.finish_after_seconds = 30.0  # as on a node without kubelet, pods stay Terminating
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(kubeconfig(server)))
        yield path


@pytest.fixture
async def cluster(config: Path) -> AsyncIterator[Cluster]:
    """Give a namespace in the cluster under test."""
    connection = await with_kubeconfig(str(config), None, ServerClock())
    async with Cluster(connection) as made:
        yield made
    await connection.close()


@pytest.fixture
async def start(config: Path, cluster: Cluster) -> AsyncIterator[Start]:
    """Give a way to start a controller with some flags that ends before the namespace does."""
    async with contextlib.AsyncExitStack() as stack:

        async def started(*flags: str) -> Running:
            return await stack.enter_async_context(running_controller(config, cluster.prefix, *flags))

        yield started


@pytest.fixture
async def controller(start: Start) -> Running:
    """Give a running controller as it is by default."""
    return await start()


@pytest.fixture
def order(config: Path, cluster: Cluster) -> Order:
    """Give a way to give orders to this test's controllers by a command; it returns what that prints."""
    where = ("--kubeconfig", str(config), "--state-namespace", cluster.prefix, "--state-name", cluster.prefix)

    async def ordered(*words: str) -> str:
        return await command(*words, *where)

    return ordered
