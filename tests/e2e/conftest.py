"""The same behaviours with the embedded API server (always) and with KUBECONFIG's cluster (with ``-m e2e``).

The controller under test is the real command in its own process and uses HTTP.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.e2e.cluster import ClusterUnderTest
from tests.stage.objects import write_kubeconfig
from tests.stage.processes import RunningController, invoked, running_controller
from tests.stage.waiting import free_port

from fake_apiserver import ApiServer
from taint_eviction.login.credentials import with_kubeconfig
from taint_eviction.runtime.clock import ServerClock

Start = Callable[..., Awaitable[RunningController]]
Order = Callable[..., Awaitable[str]]


@contextlib.asynccontextmanager
async def own_controller(config: Path, own: str, *flags: str) -> AsyncIterator[RunningController]:
    """Run a controller until the end of the block; then it must end with exit code 0.

    Its ConfigMap is ``own`` in the namespace ``own``, so orders to other controllers in the cluster do not affect it.
    """
    where = ("--leader-elect-resource-namespace", own, "--leader-elect-resource-name", own)
    async with running_controller(config, *where, *flags, listen=f"127.0.0.1:{free_port()}") as running:
        yield running
        assert running.process.returncode is None, running.lines[-5:]
        assert await running.end() == 0, running.lines[-5:]


@contextlib.asynccontextmanager
async def alone(named: str) -> AsyncIterator[None]:
    """Let the tests with this cluster take turns, also those of other processes: a controller acts on all nodes, also
    on those of other tests.
    """
    path = Path(tempfile.gettempdir()) / f"taint-eviction-test-{hashlib.sha256(named.encode()).hexdigest()[:16]}.lock"
    with path.open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
async def config(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """The kubeconfig of the cluster under test."""
    if request.param == "real":
        named = os.environ.get("KUBECONFIG")
        if not named:
            pytest.skip("KUBECONFIG names no cluster")
        async with alone(named):
            yield Path(named)
        return
    async with ApiServer() as server:
        server.kubelets.finish_after_seconds = 30.0  # pods stay Terminating, as on a node without kubelet
        yield write_kubeconfig(tmp_path / "kubeconfig", server)


@pytest.fixture
async def cluster(config: Path) -> AsyncIterator[ClusterUnderTest]:
    """A namespace in the cluster under test."""
    connection = await with_kubeconfig(str(config), None, ServerClock())
    async with ClusterUnderTest(connection) as made:
        yield made
    await connection.close()


@pytest.fixture
async def start(config: Path, cluster: ClusterUnderTest) -> AsyncIterator[Start]:
    """A function that starts a controller with some flags; the controller ends before the namespace is deleted."""
    async with contextlib.AsyncExitStack() as stack:

        async def started(*flags: str) -> RunningController:
            return await stack.enter_async_context(own_controller(config, cluster.prefix, *flags))

        yield started


@pytest.fixture
async def controller(start: Start) -> RunningController:
    """A running controller with default flags."""
    return await start()


@pytest.fixture
def order(config: Path, cluster: ClusterUnderTest) -> Order:
    """A function that runs a command for this test's controllers and returns its output."""
    where = ("--kubeconfig", str(config), "--state-namespace", cluster.prefix, "--state-name", cluster.prefix)

    async def ordered(*words: str) -> str:
        said = await invoked(*words, *where)
        assert said.code == 0, said.complaints
        return said.out

    return ordered
