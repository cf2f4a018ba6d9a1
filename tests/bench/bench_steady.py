"""The cost of a busy cluster without evictions: pods on clean nodes change, and nodes send heartbeats."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.bench.population import NAMESPACE, Population
from tests.bench.processes import MeasuredController, MeasuredProcess, now
from tests.bench.results import Result
from tests.bench.stage import BenchStage, Stages
from tests.bench.stalls import Stalls

_TAINTED = 10
_PODS_A_SECOND = 1_000
_NODES_A_SECOND = 100
_CONCURRENCY = 24


async def steady(stages: Stages, scale: float) -> list[Result]:
    """Per second, update 1,000 pods on clean nodes and the status of 100 nodes."""
    return await _steady("steady", stages, scale, ())


async def steady_whole(stages: Stages, scale: float) -> list[Result]:
    """Do the same while all bound pods are watched, as with hundreds of tainted nodes."""
    return await _steady("steady, all pods watched", stages, scale, ("--whole-cluster-from", "5"))


async def _steady(figure: str, stages: Stages, scale: float, flags: tuple[str, ...]) -> list[Result]:
    population = Population(1_000, 10_000, seconds=3_600).scaled(scale)
    window = max(2.0, 20.0 * scale)
    async with stages.set_up(population) as stage:
        await stage.taint(stage.nodes[:_TAINTED])
        bare = MeasuredProcess("-m", "tests.bench.watcher", str(stage.kubeconfig))
        with MeasuredController(stage.kubeconfig, *flags) as controller, bare:
            await controller.until_ready()
            await asyncio.sleep(3.0)
            async with _load(stage) as done:
                await asyncio.sleep(1.0)
                began_at, before, bare_before, done_before = now(), controller.usage(), bare.usage(), done[0]
                await asyncio.sleep(window)
                span = now() - began_at
                after, bare_after, updates = controller.usage(), bare.usage(), done[0] - done_before
                with Stalls(controller.port) as stalls:
                    await asyncio.sleep(window)
    share = (after.cpu_seconds - before.cpu_seconds) / span * 100
    floor = (bare_after.cpu_seconds - bare_before.cpu_seconds) / span * 100
    goals = (None, None) if flags else (5.0, 50.0)
    return [
        Result(figure, "updates done", updates / span, "/s"),
        Result(figure, "CPU", share, "% of a core", goals[0], floor, "bare watch of nodes"),
        Result(figure, "worst stall", stalls.worst * 1e3, "ms", goals[1], stalls.noise * 1e3, "a thread's sleep"),
        Result(figure, "RSS", after.rss, "MB"),
    ]  # fmt: skip


@contextlib.asynccontextmanager
async def _load(stage: BenchStage) -> AsyncIterator[list[int]]:
    """Update pods and nodes during the block; yield a list whose only item counts the updates."""
    done = [0]
    clean = stage.population.nodes - _TAINTED
    pods = [
        f"/api/v1/namespaces/{NAMESPACE}/pods/{stage.run}-pod-{index:06d}/status"
        for index in range(stage.population.pods)
        if index % stage.population.nodes >= min(_TAINTED, stage.population.nodes - 1)
    ]
    nodes = [f"/api/v1/nodes/{name}/status" for name in stage.nodes[-max(1, clean) :]]
    tasks = [
        asyncio.create_task(_at_rate(_PODS_A_SECOND, _touches(stage, pods, "ContainersReady"), done)),
        asyncio.create_task(_at_rate(_NODES_A_SECOND, _touches(stage, nodes, "Ready"), done)),
    ]
    try:
        yield done
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _touches(stage: BenchStage, paths: list[str], condition: str) -> Callable[[], Awaitable[None]]:
    waiting, turns = itertools.cycle(paths), itertools.count()

    async def touch() -> None:
        message = f"turn {next(turns)}"
        body = {"status": {"conditions": [{"type": condition, "status": "True", "message": message}]}}
        await stage.client.call("PATCH", next(waiting), body)

    return touch


async def _at_rate(rate: int, touch: Callable[[], Awaitable[None]], done: list[int]) -> None:
    """Make this number of updates per second, or as many as the server allows."""
    began_at = now()

    async def worker(number: int) -> None:
        for turn in itertools.count():
            await asyncio.sleep(max(0.0, began_at + (turn * _CONCURRENCY + number) / rate - now()))
            await touch()
            done[0] += 1

    await asyncio.gather(*(worker(number) for number in range(_CONCURRENCY)))
