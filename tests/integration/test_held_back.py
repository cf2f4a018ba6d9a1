"""Evictions held back, with the real command over HTTP: many nodes tainted by mistake, pauses, a new leader."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.stage.objects import add_nodes, add_pod, add_pods, deletes, write_kubeconfig
from tests.stage.processes import RunningController, invoked, running_controller
from tests.stage.replicas import QUICK_ELECTION, ReplicaProcess, Theatre, theatre
from tests.stage.waiting import free_port, now, until

from fake_apiserver import ApiServer, LoggedRequest

KEY = "mistake"
STATE = ("configmaps", "taint-eviction-controller", "kube-system")


async def order(config: Path, *words: str) -> str:
    """Run a command as a person does, and return its output; the command must succeed."""
    said = await invoked(*words, "--kubeconfig", str(config))
    assert said.code == 0, said.complaints
    return said.out


def reads_of_state(server: ApiServer) -> list[LoggedRequest]:
    """Return the requests that have read the ConfigMap so far."""
    return server.requests.select(verb="get", resource="configmaps")


# The breaker


@dataclass
class Mistake:
    """20 nodes with 20 pods each; tests taint nodes while the breaker is on."""

    server: ApiServer
    config: Path

    def state(self) -> str:
        """Return the breaker's key in the ConfigMap, or "" if there is none."""
        state = self.server.get(*STATE)
        return "" if state is None else str(state["data"].get("breaker", ""))

    @contextlib.asynccontextmanager
    async def running(self, *flags: str) -> AsyncIterator[RunningController]:
        """Run the controller until the end of the block."""
        async with running_controller(self.config, "--breaker", *flags, listen=f"127.0.0.1:{free_port()}") as run:
            yield run


@pytest.fixture
async def mistake(tmp_path: Path) -> AsyncIterator[Mistake]:
    """A server with the nodes and pods, and a kubeconfig."""
    async with ApiServer(seed=5) as server:
        add_nodes(server, *(f"n{number}" for number in range(20)))
        for number in range(20):
            add_pods(server, f"p{number}", 20, f"n{number}")
        config = write_kubeconfig(tmp_path / "config", server)
        yield Mistake(server, config)


async def test_a_mistake_on_half_of_the_nodes_evicts_no_pod_until_a_person_resets_the_breaker(mistake: Mistake) -> None:
    """200 pods are due, and none is evicted, even after a restart; after the reset these pods alone are evicted."""
    async with mistake.running() as run:
        for number in range(10):
            mistake.server.taint(f"n{number}", KEY)
        await until(lambda: '"open":true' in mistake.state().replace(" ", ""))
        await until(lambda: mistake.server.list("events"))
        [opened] = [line for line in run.lines if "more than 25 %" in line["message"]]
        assert "of 20 nodes newly tainted within 300 s" in opened["message"]
        await asyncio.sleep(3)  # longer than an eviction waits for a surge to become visible
        assert deletes(mistake.server) == []
    [told] = mistake.server.list("events")
    assert (told["reason"], told["type"]) == ("EvictionsStopped", "Warning")
    assert told["involvedObject"]["kind"] == "ConfigMap"
    async with mistake.running() as run:
        await until(lambda: any("more than 25 %" in line["message"] for line in run.lines))
        await asyncio.sleep(3)
        assert deletes(mistake.server) == []
        await order(mistake.config, "breaker", "reset", "--yes")
        await until(lambda: len(deletes(mistake.server)) == 200)
        await asyncio.sleep(1)
    gone = {entry.name for entry in deletes(mistake.server)}
    assert gone == {f"p{number}-{pod}" for number in range(10) for pod in range(20)}
    assert len(deletes(mistake.server)) == 200


async def test_one_node_of_twenty_is_no_surge(mistake: Mistake) -> None:
    """Its pods are evicted after the time in which a surge would become visible."""
    async with mistake.running():
        tainted_at = now()
        mistake.server.taint("n0", KEY)
        await until(lambda: len(deletes(mistake.server)) == 20)
    assert mistake.state() == ""
    assert min(entry.arrived_at for entry in deletes(mistake.server)) - tainted_at >= 2


async def test_no_pod_is_evicted_while_the_nodes_of_a_surge_are_listed(tmp_path: Path) -> None:
    """110 of 120 nodes are tainted, each list takes two seconds, and eight run at a time; then the breaker opens.

    It opens when the settle time of 6 s is over, which is long enough to see all taints on a machine with other work.
    """
    async with ApiServer(seed=5) as server:
        names = [f"n{number}" for number in range(120)]
        add_nodes(server, *names)
        for name in names:
            add_pod(server, f"on-{name}", name)
        config = write_kubeconfig(tmp_path / "config", server)
        stage = Mistake(server, config)
        async with stage.running("--breaker-settle=6s"):
            server.faults.add(verb="list", resource="pods", delay_seconds=2.0)
            for name in names[:110]:
                server.taint(name, KEY)
            await until(lambda: '"open":true' in stage.state().replace(" ", ""))
            await asyncio.sleep(3)
        assert deletes(server) == []


# Pauses


@contextlib.asynccontextmanager
async def two_replicas(directory: Path, *flags: str) -> AsyncIterator[tuple[Theatre, ReplicaProcess, Path]]:
    """Run two replicas; yield the servers, the leader, and a kubeconfig for people."""
    async with theatre(directory) as made:
        for number in range(2):
            made.add_node(f"n{number}")
            made.add_pod(f"p{number}", f"n{number}")
        leader = await made.open("a", *QUICK_ELECTION, *flags)
        await until(leader.leads)
        await made.open("b", *QUICK_ELECTION, *flags)
        yield made, leader, write_kubeconfig(directory / "people", made.server, token="people")


async def test_a_pause_holds_each_replica_and_outlives_the_leader(tmp_path: Path) -> None:
    """No pod is evicted during the pause, whichever replica leads; a pod that became due is evicted after the pause."""
    async with two_replicas(tmp_path) as (made, leader, config):
        said = await order(config, "pause", "--reason", "looking into it")
        assert "all evictions are paused" in said.lower()
        await until(lambda: all(replica.said("paused") for replica in made.replicas))
        made.taint("n0")
        await leader.kill()
        other = next(replica for replica in made.replicas if replica is not leader)
        await until(other.leads)
        await asyncio.sleep(1)
        assert made.changes() == []
        resumed_at = now()
        await order(config, "resume", "--yes")
        await until(lambda: made.is_gone("p0"))
        assert [entry.name for entry in made.changes(other) if entry.verb == "delete"] == ["p0"]
        assert min(entry.arrived_at for entry in made.changes()) > resumed_at


async def test_a_pause_of_one_node_does_not_affect_other_nodes(tmp_path: Path) -> None:
    """The pause still exists after all replicas were replaced."""
    async with two_replicas(tmp_path) as (made, _, config):
        await order(config, "pause", "--node", "n0")
        for replica in made.replicas:
            await replica.end()
        fresh = await made.open("c", *QUICK_ELECTION)
        made.taint("n0")
        made.taint("n1")
        await until(lambda: made.is_gone("p1"))
        await asyncio.sleep(1)
        assert not made.is_gone("p0")
        assert {entry.name for entry in made.changes(fresh)} == {"p1"}
        data = (made.server.get(*STATE) or {})["data"]
        assert set(json.loads(data["pause-node.n0"])) >= {"since"}


async def test_a_pause_outlives_that_its_config_map_is_replaced(tmp_path: Path) -> None:
    """As kubectl replace does with the manifest, which has no data; the leader writes the pause again after 10 s."""
    async with ApiServer(seed=5) as server:
        add_nodes(server, "n1")
        add_pod(server, "paused", "n1")
        config = write_kubeconfig(tmp_path / "config", server)
        await order(config, "pause")
        async with running_controller(config) as run:
            await run.until(lambda: "format" in (server.get(*STATE) or {})["data"])
            written = len(reads_of_state(server))
            await run.until(lambda: len(reads_of_state(server)) > written + 1)
            server.patch(STATE[0], STATE[1], {"data": None}, STATE[2])
            server.taint("n1", KEY)
            await run.until(lambda: "data" in (server.get(*STATE) or {}))
            assert (server.get(*STATE) or {})["data"].keys() == {"format", "pause"}
        assert deletes(server) == []


async def test_a_pause_outlives_its_config_map_but_not_its_controller(tmp_path: Path) -> None:
    """The leader writes the pause again after 10 s, but not while it is being ended: somebody removes the controller.

    It ends slowly here, since a deletion that was sent before is not answered for 14 s.
    """
    async with ApiServer(seed=5) as server:
        add_nodes(server, "n1", "n2")
        add_pod(server, "paused", "n1")
        add_pod(server, "slow", "n2")
        config = write_kubeconfig(tmp_path / "config", server)
        await order(config, "pause", "node/n1")
        async with running_controller(config, "--call-timeout=20s") as run:
            await run.until(lambda: "format" in (server.get(*STATE) or {})["data"])
            server.delete(*STATE)
            server.taint("n1", KEY)
            await run.until(lambda: server.get(*STATE) is not None)
            assert (server.get(*STATE) or {})["data"].keys() == {"format", "pause-node.n1"}
            assert len(run.said("was deleted or replaced: they stay in force as known")) == 1
            server.faults.add(verb="delete", resource="pods", delay_seconds=14)
            server.taint("n2", KEY)
            await run.until(lambda: deletes(server))
            server.delete(*STATE)
            assert await run.end() == 0
        assert server.get(*STATE) is None
        assert [entry.name for entry in deletes(server)] == ["slow"]
