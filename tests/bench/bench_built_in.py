"""This controller and the built-in one: the same cluster and the same taints, one after another."""

import asyncio
import math
import re
import shlex
from typing import NamedTuple

from tests.bench.bench_evict import Mass, evict_all
from tests.bench.deletions import Deletions
from tests.bench.population import Population
from tests.bench.processes import MeasuredController, MeasuredProcess, now
from tests.bench.results import Result
from tests.bench.stage import BenchStage, Stages

_POPULATION = Population(1_000, 30_000)
_TAINTED = 67
_IN_TIME_SECONDS = 600.0
_SETTLING_SECONDS = 5.0


class _Course(NamedTuple):
    """The measurements of one of the two controllers.

    ``start``: until the first pod was deleted from a node that had been tainted before. ``alert``: the 99th percentile
    of lateness as the alert computes it; None if there is no metric.
    """

    start: float
    start_cpu: float
    rss: float
    mass: Mass
    alert: float | None
    peak_rss: float


async def fill(stages: Stages, scale: float) -> list[Result]:
    """Create the nodes and pods of ``side_by_side``; with ``--keep``, before it runs."""
    population = _POPULATION.scaled(scale)
    began_at = now()
    async with stages.set_up(population):
        seconds = now() - began_at
    return [Result(_figure(population), "nodes and pods created in", seconds, "s")]


async def side_by_side(stages: Stages, scale: float) -> list[Result]:
    """Start each controller with one node tainted, then taint 67 nodes with 2,010 pods without a toleration."""
    if stages.built_in is None:
        raise ValueError("--built-in says which command starts the controller to compare with")
    program, *arguments = shlex.split(stages.built_in)
    population = _POPULATION.scaled(scale)
    part = min(_TAINTED, population.nodes // 2 - 1)
    async with stages.set_up(population) as stage, Deletions(stage) as deletions:
        ours, theirs = stage.nodes[: part + 1], stage.nodes[part + 1 : 2 * part + 2]
        controller = MeasuredController(stage.kubeconfig)
        own = await _course(stage, deletions, ours, controller)
        built_in = await _course(stage, deletions, theirs, MeasuredProcess(*arguments, program=program))
    rows: list[tuple[str, str, float | None, float | None]] = [
        ("from the start to the first one gone", "s", own.start, built_in.start),
        ("CPU until then", "s", own.start_cpu, built_in.start_cpu),
        ("RSS then", "MB", own.rss, built_in.rss),
        ("first one gone", "s", own.mass.first, built_in.mass.first),
        ("half of them gone", "s", own.mass.half, built_in.mass.half),
        ("99 of 100 gone", "s", own.mass.most, built_in.mass.most),
        ("last one gone", "s", own.mass.last, built_in.mass.last),
        ("late at most, 99 of 100, as the alert computes it", "s", own.alert, built_in.alert),
        ("CPU an eviction", "ms", own.mass.cpu, built_in.mass.cpu),
        ("peak RSS", "MB", own.peak_rss, built_in.peak_rss),
    ]
    figure, other = _figure(population), f"built-in, {_rate(stages.built_in)}"
    return [
        Result(figure, name, mine, unit, theirs, theirs, "" if theirs is None else other)
        for name, unit, mine, theirs in rows
        if mine is not None
    ]


def _figure(population: Population) -> str:
    return f"{population.nodes:,} nodes, {population.pods:,} pods"


def _rate(command: str) -> str:
    """Return the client's limit of requests per second; the default is 20."""
    found = re.search(r"--kube-api-qps=(\S+)", command)
    rate = float(found[1]) if found else 20.0
    return f"{rate:g} requests/s" if rate > 0 else "no limit"


async def _course(stage: BenchStage, deletions: Deletions, nodes: list[str], process: MeasuredProcess) -> _Course:
    before, pods = len(deletions.at), len(stage.pods_on(nodes[:1]))
    await stage.taint(nodes[:1])
    with process as controller:
        await deletions.until(before + 1, _IN_TIME_SECONDS)
        start, start_cpu = now() - controller.started_at, controller.usage().cpu_seconds
        await deletions.until(before + pods, _IN_TIME_SECONDS)
        await asyncio.sleep(_SETTLING_SECONDS)
        rss = controller.usage().rss
        earlier = await _metrics(controller)
        mass, _ = await evict_all(stage, deletions, nodes[1:], controller)
        alert = lateness_quantile(0.99, earlier, await _metrics(controller))
        course = _Course(start, start_cpu, rss, mass, alert, controller.usage().peak_rss)
    if stage.server is None:
        await stage.renew(nodes)
    return course


async def _metrics(controller: MeasuredProcess) -> dict[str, float]:
    return await controller.metrics() if isinstance(controller, MeasuredController) else {}


def lateness_quantile(share: float, earlier: dict[str, float], later: dict[str, float]) -> float | None:
    """Return what Prometheus' ``histogram_quantile`` computes for the evictions between two scrapes."""
    prefix = 'lateness_seconds_bucket{le="'
    counts = {
        float(name.removeprefix(prefix).removesuffix('"}')): value - earlier.get(name, 0.0)
        for name, value in later.items()
        if name.startswith(prefix)
    }
    low, below = 0.0, 0.0
    for bound, count in sorted(counts.items()):
        wanted = share * counts[math.inf]
        if count >= wanted > 0:
            return low if bound == math.inf else low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return None
