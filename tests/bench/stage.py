"""Where figures are measured: an embedded API server in its own process, or a real cluster.

On a real cluster, all created objects have the label of the run and are removed at the end of the block.
"""

import asyncio
import contextlib
import json
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.bare import BareClient, all_at_once
from tests.bench.population import LABEL, NAMESPACE, TAINT_KEY, Population
from tests.bench.processes import MeasuredProcess

_CONCURRENCY = 32
_DELETE_NOW = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}


@dataclass(frozen=True, slots=True)
class BenchStage:
    """A populated cluster. ``server`` None: a real cluster."""

    population: Population
    run: str
    kubeconfig: Path
    client: BareClient
    server: MeasuredProcess | None

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return self.population.node_names(self.run)

    async def taint(self, nodes: Iterable[str]) -> None:
        """Taint nodes all at once."""
        if self.server is not None:
            await self._control("taint", {"nodes": list(nodes), "key": TAINT_KEY})
        else:
            await all_at_once(self.client.taint, nodes, _CONCURRENCY)

    async def untaint(self, nodes: Iterable[str]) -> None:
        """Remove the taint from nodes all at once."""
        if self.server is not None:
            await self._control("untaint", {"nodes": list(nodes), "key": TAINT_KEY})
        else:
            await all_at_once(self.client.untaint, nodes, _CONCURRENCY)

    async def _control(self, what: str, body: dict[str, Any]) -> None:
        await self.client.call("POST", f"/_simulation/{what}", body)

    async def renew(self, nodes: Sequence[str]) -> None:
        """Remove the taint from nodes of a real cluster, and replace their pods by new ones."""
        await self.untaint(nodes)

        async def renew(index: int) -> None:
            made = self.population.pod(self.run, index)
            path = f"/api/v1/namespaces/{NAMESPACE}/pods"
            await self.client.call("DELETE", f"{path}/{made['metadata']['name']}", _DELETE_NOW, allowed=(404,))
            await self.client.call("POST", path, made)

        await all_at_once(renew, self.pods_on(nodes), _CONCURRENCY)

    def pods_on(self, nodes: Iterable[str]) -> list[int]:
        """Return the indices of the pods that were created on nodes."""
        chosen, population = set(nodes), self.population
        indices = (index for index, node in enumerate(self.nodes) if node in chosen)
        return [pod for index in indices for pod in range(index, population.pods, population.nodes)]

    async def pods(self) -> list[tuple[str, str, str]]:
        """Return name, UID and node of the pods that are not terminating."""
        found = await self.client.list_all(f"/api/v1/namespaces/{NAMESPACE}/pods", f"&labelSelector={LABEL}={self.run}")
        return [
            (pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"]["nodeName"])
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
        ]


class Stages:
    """Sets up stages: on the cluster of ``kubeconfig``, or embedded if that is None.

    ``built_in``: the command that starts the controller to be compared with, or None. ``keep``: objects on a real
    cluster are kept at the end, and those that an earlier run has left are used again.
    """

    def __init__(self, kubeconfig: Path | None, built_in: str | None = None, *, keep: bool = False) -> None:
        self.kubeconfig = kubeconfig
        self.built_in = built_in
        self.keep = keep

    @contextlib.asynccontextmanager
    async def set_up(self, population: Population) -> AsyncIterator[BenchStage]:
        """Create a population for the duration of the block."""
        run = f"bench-{population.nodes}-{population.pods}" if self.keep else f"bench-{secrets.token_hex(3)}"
        if self.kubeconfig is None:
            async with _embedded(population, run) as stage:
                yield stage
            return
        async with BareClient(self.kubeconfig) as client:
            stage = BenchStage(population, run, self.kubeconfig, client, None)
            try:
                if not (self.keep and await _is_complete(stage)):
                    await _create(stage)
                yield stage
            finally:
                if not self.keep:
                    await _clean_up(stage)


@contextlib.asynccontextmanager
async def _embedded(population: Population, run: str) -> AsyncIterator[BenchStage]:
    with tempfile.TemporaryDirectory(prefix="taint-eviction-bench-") as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        asked = {"population": population.as_json(), "run": run, "kubeconfig": str(kubeconfig)}
        with MeasuredProcess("-m", "tests.bench.server", json.dumps(asked)) as server:
            await server.until(kubeconfig.exists, 300.0)
            async with BareClient(kubeconfig) as client:
                yield BenchStage(population, run, kubeconfig, client, server)


async def _is_complete(stage: BenchStage) -> bool:
    """Return whether the pod that is created last exists."""
    last = stage.population.pod(stage.run, stage.population.pods - 1)["metadata"]["name"]
    found = await stage.client.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{last}", allowed=(404,))
    return bool(found["kind"] == "Pod")


async def _create(stage: BenchStage) -> None:
    population, run, client = stage.population, stage.run, stage.client

    async def node(index: int) -> None:
        made = population.node(run, index, "2026-01-01T00:00:00Z")
        await client.call("POST", "/api/v1/nodes", made, allowed=(409,))

    async def pod(index: int) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        await client.call("POST", path, population.pod(run, index), allowed=(409,))

    await all_at_once(node, range(population.nodes), _CONCURRENCY)
    # The API server taints new nodes as not-ready, and no controller removes this taint here.
    await all_at_once(client.untaint, stage.nodes, _CONCURRENCY)
    await all_at_once(pod, range(population.pods), _CONCURRENCY)


async def _clean_up(stage: BenchStage) -> None:
    client, selector = stage.client, f"&labelSelector={LABEL}={stage.run}"
    paths = [f"/api/v1/namespaces/{NAMESPACE}/pods", "/api/v1/nodes"]
    for path in paths:
        found = [item["metadata"]["name"] for item in await client.list_all(path, selector)]

        async def delete(name: str, path: str = path) -> None:
            await client.call("DELETE", f"{path}/{name}", _DELETE_NOW, allowed=(404,))

        await all_at_once(delete, found, _CONCURRENCY)
    await _delete_events(stage)


async def _delete_events(stage: BenchStage) -> None:
    """Remove the events about this run's pods; events have no labels, but their names begin with the pod's name."""
    await asyncio.sleep(0)
    path = f"/api/v1/namespaces/{NAMESPACE}/events"
    names = [event["metadata"]["name"] for event in await stage.client.list_all(path)]

    async def delete(name: str) -> None:
        await stage.client.call("DELETE", f"{path}/{name}", allowed=(404,))

    await all_at_once(delete, [name for name in names if name.startswith(stage.run)], _CONCURRENCY)
