"""Floods of a running controller's HTTP port: probes answer, evictions go on, memory and log stay small."""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from tests.stage.objects import add_nodes, add_pod, deletes, write_kubeconfig
from tests.stage.processes import RunningController, start_controller
from tests.stage.waiting import free_port

from fake_apiserver import ApiServer

UNFINISHED = b"GET /metrics HTTP/1.1\r\n" + (b"x: " + b"x" * 8000 + b"\r\n") * 125
FEW_FILES = 256


@dataclass
class Flooded:
    """A controller with two listeners, and its API server with a pod on each of two nodes."""

    run: RunningController
    server: ApiServer
    port: int
    probe_port: int

    def resident_bytes(self) -> int:
        """Return the memory that the controller has."""
        pages = Path(f"/proc/{self.run.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    async def healthy(self, port: int) -> bool:
        """Return whether /healthz answers."""
        url = f"http://127.0.0.1:{port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status == 200

    async def evicts(self, node: str) -> None:
        """Taint the node, and wait for the deletion of its pod."""
        self.server.taint(node, "maintenance")
        await self.run.until(lambda: [entry for entry in deletes(self.server) if entry.name == f"on-{node}"])


@contextlib.asynccontextmanager
async def flooded(directory: Path, limit: int) -> AsyncIterator[Flooded]:
    """Run a controller that may have this many open files, and that leads."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, probe_port = free_port(), free_port()
    async with ApiServer(seed=5) as server:
        add_nodes(server, "n1", "n2")
        for node in ("n1", "n2"):
            add_pod(server, f"on-{node}", node)
        config = write_kubeconfig(directory / "config", server)
        limited = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit} // 2, {limit}));"
        program = ("-c", f"{limited} runpy.run_module('taint_eviction', run_name='__main__')")
        probes = f"--probe-listen=127.0.0.1:{probe_port}"
        run = await start_controller(config, probes, listen=f"127.0.0.1:{port}", program=program)
        try:
            await run.until(lambda: server.requests.select(verb="create", resource="leases"))
            await run.synced()
            yield Flooded(run, server, port, probe_port)
        finally:
            await run.kill()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_unfinished_headers_take_no_memory(tmp_path: Path) -> None:
    """250 connections send 1 MB of headers each, without an end."""
    async with flooded(tmp_path, 1024) as at:
        before = at.resident_bytes()
        made = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", at.port) for _ in range(250)))
        writers = [writer for _, writer in made]
        for writer in writers:
            writer.write(UNFINISHED)
        for writer in writers:
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        assert await at.healthy(at.probe_port)
        assert await at.healthy(at.port)
        await at.evicts("n1")
        assert at.resident_bytes() - before < 60 * 2**20
        for writer in writers:
            writer.transport.abort()
        assert len(at.run.said("malformed requests")) == 1


@pytest.mark.parametrize("flooded_port", ["listen", "probe-listen"])
async def test_idle_connections_take_no_files_from_the_api_server(tmp_path: Path, flooded_port: str) -> None:
    """1,500 connections to a controller that may have 256 open files: the Lease is renewed, and pods are evicted."""
    async with flooded(tmp_path, FEW_FILES) as at:
        lines = len(at.run.lines)
        port = at.port if flooded_port == "listen" else at.probe_port
        made = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(1500)))
        assert await at.healthy(at.probe_port)
        assert await at.healthy(at.port)
        await at.evicts("n1")
        renewals = len(at.server.requests.select(verb="update", resource="leases"))
        await at.run.until(lambda: len(at.server.requests.select(verb="update", resource="leases")) > renewals)
        await at.evicts("n2")
        for _, writer in made:
            writer.transport.abort()
        assert len(at.run.lines) - lines < 20, at.run.lines[lines:]
