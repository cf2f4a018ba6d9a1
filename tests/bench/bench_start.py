"""Duration and cost of a start: with a few tainted nodes in a large cluster, and with a large dedicated pool."""

import asyncio

from tests.bench.population import Population
from tests.bench.processes import MeasuredController, now
from tests.bench.results import Result
from tests.bench.stage import BenchStage, Stages

_TAINTED = 10
# Work after readiness: Kopf's watches start after the lists.
_SETTLING_SECONDS = 5.0


async def cold_start(stages: Stages, scale: float) -> list[Result]:
    """Start with 1,000 nodes and 30,000 pods, 10 nodes tainted."""
    population = Population(1_000, 30_000, seconds=3_600).scaled(scale)
    return await _start("cold start, 1,000 nodes", stages, population, (1.8, 1.6, 90.0))


async def cold_start_large(stages: Stages, scale: float) -> list[Result]:
    """Start with 5,000 nodes and 150,000 pods, 10 nodes tainted."""
    population = Population(5_000, 150_000, seconds=3_600).scaled(scale)
    return await _start("cold start, 5,000 nodes", stages, population, (5.0, None, 150.0))


async def pool(stages: Stages, scale: float) -> list[Result]:
    """Start with 1,000 nodes that are always tainted, whose 30,000 pods tolerate the taint."""
    population = Population(1_000, 30_000, seconds=None).scaled(scale)
    figure = "1,000 nodes tainted for good"
    async with stages.set_up(population) as stage:
        await stage.taint(stage.nodes)
        began_at = now()
        await stage.client.list_all("/api/v1/pods")
        floor = now() - began_at
        with MeasuredController(stage.kubeconfig) as controller:
            wall = await controller.until_ready() - controller.started_at
            await asyncio.sleep(_SETTLING_SECONDS)
            usage = controller.usage()
    return [
        Result(figure, "start to ready", wall, "s", 15.0, floor, "bare list of all pods"),
        Result(figure, "RSS after 5 s", usage.rss, "MB", 300.0),
        Result(figure, "peak RSS", usage.peak_rss, "MB"),
        Result(figure, "CPU in all", usage.cpu_seconds, "s"),
    ]


async def _start(
    figure: str, stages: Stages, population: Population, goals: tuple[float, float | None, float]
) -> list[Result]:
    async with stages.set_up(population) as stage:
        tainted = stage.nodes[:_TAINTED]
        await stage.taint(tainted)
        floor = await _bare_lists(stage, tainted)
        with MeasuredController(stage.kubeconfig) as controller:
            wall = await controller.until_ready() - controller.started_at
            ready = controller.usage()
            await asyncio.sleep(_SETTLING_SECONDS)
            settled = controller.usage()
            pending = (await controller.metrics())["pending_evictions"]
    expected = population.pods_on(len(tainted))
    if pending != expected:
        raise RuntimeError(f"{pending:g} pods are armed, not {expected}")
    return [
        Result(figure, "wall to ready", wall, "s", goals[0], floor, "bare list of nodes, 10 nodes' pods"),
        Result(figure, "CPU to ready", ready.cpu_seconds, "s", goals[1]),
        Result(figure, "peak RSS", settled.peak_rss, "MB", goals[2]),
        Result(figure, "CPU after 5 s more", settled.cpu_seconds, "s"),
        Result(figure, "RSS after 5 s more", settled.rss, "MB"),
    ]


async def _bare_lists(stage: BenchStage, tainted: list[str]) -> float:
    began_at = now()
    await stage.client.list_all("/api/v1/nodes")
    await asyncio.gather(*(stage.client.list_node(node) for node in tainted))
    return now() - began_at
