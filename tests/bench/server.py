"""The embedded API server in its own process, with a population: ``python -m tests.bench.server JSON``."""

import asyncio
import gc
import json
import signal
import sys
from pathlib import Path

from tests.bench.population import Population

from fake_apiserver import ApiServer, kubeconfig


def populate(server: ApiServer, population: Population, run: str) -> None:
    """Create all objects."""
    timestamp = server.clock.timestamp()
    for index in range(population.nodes):
        server.create("nodes", population.node(run, index, timestamp))
    status = {"phase": "Running", "startTime": timestamp}
    for index in range(population.pods):
        server.create("pods", {**population.pod(run, index), "status": status})


async def serve(population: Population, run: str, kubeconfig_file: Path) -> None:
    """Serve until SIGTERM; the kubeconfig appears once the server listens."""
    server = ApiServer(history_size=20_000)
    populate(server, population, run)
    # A real API server does not stop for 0.1 s now and then to collect garbage among 5,000 pods.
    gc.freeze()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with server:
        written = kubeconfig_file.with_suffix(".new")
        written.write_text(json.dumps(kubeconfig(server)), "utf-8")
        written.rename(kubeconfig_file)
        await stopped.wait()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    asyncio.run(serve(Population(**asked["population"]), asked["run"], Path(asked["kubeconfig"])))
