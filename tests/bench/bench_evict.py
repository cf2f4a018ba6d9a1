"""How fast pods are evicted: many at once beside a bare loop, with how many calls, and how late single pods are."""

import asyncio
import heapq
import json
import os
import random
from typing import NamedTuple

from tests.bench.bare import all_at_once
from tests.bench.deletions import Deletions
from tests.bench.population import Population
from tests.bench.processes import MeasuredController, MeasuredProcess, Usage, now
from tests.bench.results import Result, percentile
from tests.bench.stage import BenchStage, Stages

_WORKERS = 20
_IN_TIME_SECONDS = 600.0
_ARMING_SECONDS = 20
_TAINTING_SECONDS = 10.0


class Mass(NamedTuple):
    """When pods were deleted, in seconds: the first, half, 99 of 100, and the last; CPU in ms per eviction."""

    first: float
    half: float
    most: float
    last: float
    cpu: float


async def mass(stages: Stages, scale: float) -> list[Result]:
    """Taint 40 nodes with 2,000 pods without toleration; before and after, a bare loop evicts the pods of 40 nodes."""
    population = Population(120, 6_000).scaled(scale)
    third = population.nodes // 3
    async with stages.set_up(population) as stage, Deletions(stage) as deletions:
        parts = [stage.nodes[:third], stage.nodes[third : 2 * third], stage.nodes[2 * third : 3 * third]]
        floors = [await _bare_mass(stage, deletions, parts[0])]
        with MeasuredController(stage.kubeconfig) as controller:
            await controller.until_ready()
            await asyncio.sleep(1.0)
            ours, pods = await evict_all(stage, deletions, parts[1], controller)
            await _until_quiet(controller)
            calls = await controller.metrics()
        floors.append(await _bare_mass(stage, deletions, parts[2]))
    first, _, _, last, cpu = (sum(values) / len(floors) for values in zip(*floors, strict=True))
    figure, floor = "2,000 pods on 40 nodes", "bare PATCH + DELETE"
    return [
        Result(figure, "last one gone", ours.last, "s", last * 1.15, last, floor),
        Result(figure, "first one gone", ours.first, "s", 0.1, first, floor),
        Result(figure, "CPU an eviction, until the last is gone", ours.cpu, "ms", None, cpu, f"{floor}, with a watch"),
        *_call_counts(calls, pods, len(parts[1])),
    ]


async def _bare_mass(stage: BenchStage, deletions: Deletions, nodes: list[str]) -> Mass:
    pods = [(name, uid) for name, uid, node in await stage.pods() if node in set(nodes)]
    expected = len(deletions.at) + len(pods)
    known = set(deletions.at)
    before, began_at = Usage.of(os.getpid()), now()
    await all_at_once(lambda pod: stage.client.evict(*pod), pods, _WORKERS)
    await deletions.until(expected, _IN_TIME_SECONDS)
    return _span(deletions, known, began_at, before, Usage.of(os.getpid()))


async def evict_all(
    stage: BenchStage, deletions: Deletions, nodes: list[str], controller: MeasuredProcess
) -> tuple[Mass, int]:
    """Taint nodes at once and wait until their pods are deleted; return the times and the number of pods."""
    pods = len(stage.pods_on(nodes))
    expected, known = len(deletions.at) + pods, set(deletions.at)
    before, began_at = controller.usage(), now()
    await stage.taint(nodes)
    await deletions.until(expected, _IN_TIME_SECONDS)
    return _span(deletions, known, began_at, before, controller.usage()), pods


def _span(deletions: Deletions, known: set[str], began_at: float, before: Usage, after: Usage) -> Mass:
    late = [at - began_at for pod, at in deletions.at.items() if pod not in known]
    cpu = (after.cpu_seconds - before.cpu_seconds) / len(late) * 1e3
    return Mass(min(late), percentile(late, 0.5), percentile(late, 0.99), max(late), cpu)


async def _until_quiet(controller: MeasuredController) -> None:
    """Wait until all events have been posted."""
    before = -1.0
    for _ in range(60):
        counted = sum(value for name, value in (await controller.metrics()).items() if name.startswith("api_calls"))
        if counted == before:
            return
        before = counted
        await asyncio.sleep(0.5)


def _call_counts(metrics: dict[str, float], pods: int, nodes: int) -> list[Result]:
    def calls(verb: str, resource: str) -> float:
        labels = (f'verb="{verb}"', f'resource="{resource}"')
        return sum(
            value
            for name, value in metrics.items()
            if name.startswith("api_calls") and all(label in name for label in labels)
        )

    writes = calls("patch", "pods/status") + calls("delete", "pods") + calls("get", "pods")
    seconds_of_it = "in all"
    return [
        Result("calls", "an eviction", writes / pods, "", 2.0, 4.0, "upstream: 3 + 1"),
        Result("calls", "events an eviction", (calls("create", "events") + calls("patch", "events")) / pods, "", 1.0),
        Result("calls", f"node reads a node, {seconds_of_it}", calls("get", "nodes") / nodes, ""),
    ]


async def lateness(stages: Stages, scale: float) -> list[Result]:
    """Let 10,000 deadlines pass within 60 seconds."""
    spread = max(4, round(60 * scale))
    scaled = Population(200, 10_000).scaled(scale)
    population = Population(scaled.nodes, scaled.pods, _ARMING_SECONDS, spread)
    async with stages.set_up(population) as stage, Deletions(stage) as deletions:
        with MeasuredController(stage.kubeconfig, "--log-format", "json") as controller:
            await controller.until_ready()
            await asyncio.sleep(1.0)
            # Tolerations are whole seconds: if nodes were not tainted at odd times, hundreds of deadlines would be the
            # same.
            for node in stage.nodes:
                await stage.client.taint(node)
                await asyncio.sleep(random.uniform(0.0, 2.0) * _TAINTING_SECONDS / len(stage.nodes))
            await deletions.until(population.pods, _ARMING_SECONDS + spread + _IN_TIME_SECONDS)
            await asyncio.sleep(0.5)
            late = [
                entry["late_seconds"] for entry in map(json.loads, controller.lines()) if entry.get("what") == "evicted"
            ]
    floors = await _bare_lateness(stages, Population(scaled.nodes, max(4, population.pods // 5)), max(2, spread // 5))
    figure, floor = f"{population.pods:,} deadlines over {spread} s", "bare loop with a heap"
    return [
        Result(
            figure, f"deletion accepted late by, {name}", percentile(late, share) * 1e3, "ms", goal, bare * 1e3, floor
        )
        for name, share, goal in (("p50", 0.5, 10.0), ("p99", 0.99, 50.0), ("worst", 1.0, None))
        for bare in [percentile(floors, share)]
    ]


async def _bare_lateness(stages: Stages, population: Population, spread: int) -> list[float]:
    """Do a part of the same with a heap and one task per eviction."""
    async with stages.set_up(population) as stage:
        pods = await stage.pods()
        began_at = now() + 0.5
        due = [(began_at + spread * index / len(pods), name, uid) for index, (name, uid, _) in enumerate(pods)]
        heapq.heapify(due)
        late: list[float] = []

        async def evict(fire_at: float, name: str, uid: str) -> None:
            await stage.client.evict(name, uid)
            late.append(now() - fire_at)

        async with asyncio.TaskGroup() as group:
            while due:
                await asyncio.sleep(max(0.0, due[0][0] - now()))
                group.create_task(evict(*heapq.heappop(due)))
    return late
