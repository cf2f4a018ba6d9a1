"""This controller beside the built-in one: the same cluster, the same taints, one after the other."""

import shlex
from typing import NamedTuple

from tests.bench.bench_evict import Mass, evict_all
from tests.bench.deletions import Deletions
from tests.bench.population import Population
from tests.bench.processes import MeasuredController, MeasuredProcess, now
from tests.bench.results import Result
from tests.bench.stage import BenchStage, Stages

_TAINTED = 40
_IN_TIME_SECONDS = 600.0


class _Course(NamedTuple):
    """How one of the two did: ``start`` is until the first pod of a node was gone that had been tainted before."""

    start: float
    start_cpu: float
    mass: Mass
    peak_rss: float


async def side_by_side(stages: Stages, scale: float) -> list[Result]:
    """Let each start where a node is tainted already, and then clear 40 nodes of 2,000 pods that do not tolerate it."""
    if stages.built_in is None:
        raise ValueError("--built-in says which command starts the controller to compare with")
    program, *arguments = shlex.split(stages.built_in)
    population = Population(600, 30_000).scaled(scale)
    part = min(_TAINTED, population.nodes // 2 - 1)
    async with stages.set_up(population) as stage, Deletions(stage) as deletions:
        ours, theirs = stage.nodes[: part + 1], stage.nodes[part + 1 : 2 * part + 2]
        own = await _course(stage, deletions, ours, MeasuredController(stage.kubeconfig))
        built_in = await _course(stage, deletions, theirs, MeasuredProcess(*arguments, program=program))
    figure, other = f"{population.nodes} nodes, {population.pods:,} pods, {part} nodes tainted", "built-in"
    rows = [
        ("from the start to the first one gone", "s", own.start, built_in.start),
        ("CPU until then", "s", own.start_cpu, built_in.start_cpu),
        ("last one gone", "s", own.mass.last, built_in.mass.last),
        ("first one gone", "s", own.mass.first, built_in.mass.first),
        ("CPU an eviction", "ms", own.mass.cpu, built_in.mass.cpu),
        ("peak RSS", "MB", own.peak_rss, built_in.peak_rss),
    ]
    return [Result(figure, name, mine, unit, theirs, theirs, other) for name, unit, mine, theirs in rows]


async def _course(stage: BenchStage, deletions: Deletions, nodes: list[str], process: MeasuredProcess) -> _Course:
    before, pods = len(deletions.at), sum(node == nodes[0] for _, _, node in await stage.pods())
    await stage.taint(nodes[:1])
    with process as controller:
        await deletions.until(before + 1, _IN_TIME_SECONDS)
        start, start_cpu = now() - controller.started_at, controller.usage().cpu_seconds
        await deletions.until(before + pods, _IN_TIME_SECONDS)
        mass, _ = await evict_all(stage, deletions, nodes[1:], controller)
        return _Course(start, start_cpu, mass, controller.usage().peak_rss)
