"""Held back over HTTP, by the real command: a mistake on half of the nodes, a pause, a failover, a restart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults_stage import ROOT, Process, add_nodes, add_pods, deletes, free_port, monotonic, process, write_kubeconfig
from replicas_stage import QUICK, Replica, Theatre, theatre, until

from taint_eviction.simulation.apiserver import ApiServer

KEY = "mistake"
STATE = ("configmaps", "taint-eviction-controller", "kube-system")

# How soon a pause must be in force everywhere, and how soon what is due goes once nothing holds it.
PAUSED_SECONDS = 5.0


async def command(config: Path, *words: str) -> str:
    """Run a command as a person does, and return what it prints; it must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAINT_EVICTION_")}
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "taint_eviction", *words, "--kubeconfig", str(config)),
        env={**environment, "PYTHONPATH": str(ROOT / "operator")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaints = await started.communicate()
    assert started.returncode == 0, complaints.decode()
    return out.decode()


# The breaker


@dataclass
class Mistake:
    """20 nodes with 100 pods each, of which half are tainted at once while the breaker is on."""

    server: ApiServer
    config: Path
    flags: tuple[str, ...]

    def state(self) -> str:
        """Return what the ConfigMap says of the breaker, "" where it says nothing."""
        state = self.server.get(*STATE)
        return "" if state is None else str(state["data"].get("breaker", ""))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        """Run the controller until the end of the block."""
        async with process(self.config, *self.flags) as run:
            await run.synced()
            yield run


@pytest.fixture
async def mistake(tmp_path: Path) -> AsyncIterator[Mistake]:
    """Set the stage."""
    async with ApiServer(seed=5) as server:
        add_nodes(server, *(f"n{number}" for number in range(20)))
        for number in range(20):
            add_pods(server, f"p{number}", 100, f"n{number}")
        config = write_kubeconfig(tmp_path / "config", server)
        yield Mistake(server, config, ("--breaker", f"--listen=127.0.0.1:{free_port()}"))


async def test_a_mistake_on_half_of_the_nodes_evicts_nobody_until_a_human_says_so(mistake: Mistake) -> None:
    """1,000 pods are due: none goes, not after a restart either; all go after the reset, and nobody else."""
    async with mistake.running() as run:
        for number in range(10):
            mistake.server.taint(f"n{number}", KEY)
        await until(lambda: '"open":true' in mistake.state().replace(" ", ""))
        await until(lambda: mistake.server.list("events"))
        [opened] = [line for line in run.lines if "more than 25 %" in line["message"]]
        assert "of 20 nodes newly tainted within 300 s" in opened["message"]
        await asyncio.sleep(3)  # Longer than an eviction waits for a wave to show itself.
        assert deletes(mistake.server) == []
    [told] = mistake.server.list("events")
    assert (told["reason"], told["type"]) == ("EvictionsStopped", "Warning")
    assert told["involvedObject"]["kind"] == "ConfigMap"
    async with mistake.running() as run:
        await until(lambda: any("more than 25 %" in line["message"] for line in run.lines))
        await asyncio.sleep(3)
        assert deletes(mistake.server) == []
        await command(mistake.config, "breaker", "reset")
        await until(lambda: len(deletes(mistake.server)) == 1000)
        await asyncio.sleep(1)
    gone = {entry.name for entry in deletes(mistake.server)}
    assert gone == {f"p{number}-{pod}" for number in range(10) for pod in range(100)}
    assert len(deletes(mistake.server)) == 1000


async def test_one_node_of_twenty_is_no_wave(mistake: Mistake) -> None:
    """Its pods go, after the moment in which a wave would have shown itself."""
    async with mistake.running():
        tainted_at = monotonic()
        mistake.server.taint("n0", KEY)
        await until(lambda: len(deletes(mistake.server)) == 100)
    assert mistake.server.get(*STATE) is None
    assert min(entry.arrived_at for entry in deletes(mistake.server)) - tainted_at >= 2


# Pauses


@contextlib.asynccontextmanager
async def two_replicas(directory: Path, *flags: str) -> AsyncIterator[tuple[Theatre, Replica, Path]]:
    """Run two replicas; bring whoever leads, and a kubeconfig for people."""
    async with theatre(directory) as made:
        for number in range(2):
            made.add_node(f"n{number}")
            made.add_pod(f"p{number}", f"n{number}")
        leader = await made.open("a", *QUICK, *flags)
        await until(leader.leads)
        await made.open("b", *QUICK, *flags)
        yield made, leader, write_kubeconfig(directory / "people", made.server, token="people")


async def test_a_pause_holds_every_replica_within_seconds_and_outlives_the_leader(tmp_path: Path) -> None:
    """Nothing goes while it lasts, whoever leads; what was due meanwhile goes once it ends."""
    async with two_replicas(tmp_path) as (made, leader, config):
        said = await command(config, "pause", "--reason", "looking into it")
        paused_at = monotonic()
        assert "all evictions are paused" in said.lower()
        await until(lambda: all(replica.said("paused") for replica in made.replicas), PAUSED_SECONDS)
        assert monotonic() - paused_at < PAUSED_SECONDS
        made.taint("n0")
        leader.process.kill()
        other = next(replica for replica in made.replicas if replica is not leader)
        await until(other.leads)
        await asyncio.sleep(1)
        assert made.changes() == []
        resumed_at = monotonic()
        await command(config, "resume")
        await until(lambda: made.is_gone("p0"), PAUSED_SECONDS)
        assert [entry.name for entry in made.changes(other) if entry.verb == "delete"] == ["p0"]
        assert min(entry.arrived_at for entry in made.changes()) > resumed_at


async def test_a_pause_of_one_node_holds_no_other(tmp_path: Path) -> None:
    """And it is there after everybody has been started anew."""
    async with two_replicas(tmp_path) as (made, _, config):
        await command(config, "pause", "--node", "n0")
        for replica in made.replicas:
            replica.process.terminate()
            await replica.end()
        fresh = await made.open("c", *QUICK)
        made.taint("n0")
        made.taint("n1")
        await until(lambda: made.is_gone("p1"))
        await asyncio.sleep(1)
        assert not made.is_gone("p0")
        assert {entry.name for entry in made.changes(fresh)} == {"p1"}
        data = (made.server.get(*STATE) or {})["data"]
        assert set(json.loads(data["pause-node.n0"])) >= {"since"}
