"""The same behaviours against the embedded API server (always) and against KUBECONFIG's cluster (with ``-m e2e``).

The controller under test is the real command in a process of its own, talking HTTP.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster import Cluster

from taint_eviction.adapters.credentials import with_kubeconfig
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.simulation.apiserver import ApiServer, kubeconfig


@dataclass
class Running:
    """A ``taint-eviction run`` in a process of its own, and the log lines it has written."""

    process: asyncio.subprocess.Process
    lines: list[dict[str, Any]] = field(default_factory=list)

    async def read(self, ready: asyncio.Event) -> None:
        """Collect log lines; set ``ready`` once it says that it is synced."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            try:
                told = json.loads(line)
            except ValueError:
                told = {"message": line.decode(errors="replace").rstrip()}
            self.lines.append(told)
            if told.get("message", "").startswith("synced"):
                ready.set()


async def run_controller(config: Path, *flags: str) -> tuple[Running, asyncio.Task[None]]:
    """Start the controller and wait until it is synced."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TAINT_EVICTION_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "taint_eviction", "run", "--kubeconfig", str(config), "--log-format", "json"),
        *("--no-leader-elect", *flags),
        env={**environment, "PYTHONPATH": "operator"},
        stderr=asyncio.subprocess.PIPE,
    )
    running, ready = Running(process), asyncio.Event()
    reading = asyncio.create_task(running.read(ready))
    synced = asyncio.create_task(ready.wait())
    await asyncio.wait((synced, reading), timeout=30, return_when=asyncio.FIRST_COMPLETED)
    synced.cancel()
    if not ready.is_set():
        process.kill()
        raise AssertionError(f"the controller did not get ready: {running.lines}")
    return running, reading


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
async def controller(config: Path) -> AsyncIterator[Running]:
    """Give a running controller; it must end with exit code 0 when it is told to stop."""
    running, reading = await run_controller(config)
    yield running
    assert running.process.returncode is None, running.lines[-5:]
    running.process.terminate()
    assert await asyncio.wait_for(running.process.wait(), 30) == 0, running.lines[-5:]
    await reading
