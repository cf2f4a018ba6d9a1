"""How fast the controller reacts to taints: on one node, on 200 nodes at once, and on and off every second."""

import asyncio

from tests.bench.bare import all_at_once
from tests.bench.deletions import Deletions
from tests.bench.population import Population
from tests.bench.processes import MeasuredController, now
from tests.bench.results import Result, percentile
from tests.bench.stage import BenchStage, Stages
from tests.bench.stalls import Stalls

_LISTS_AT_ONCE = 8
_IN_TIME_SECONDS = 120.0


async def one_node(stages: Stages, scale: float) -> list[Result]:
    """Taint one node after another, each with 30 pods that do not tolerate the taint."""
    nodes = max(3, round(100 * scale))
    async with stages.set_up(Population(nodes, nodes * 30)) as stage, Deletions(stage) as deletions:
        floors = [await _bare_reaction(stage, node) for node in stage.nodes[: nodes // 3]]
        with MeasuredController(stage.kubeconfig) as controller:
            await controller.until_ready()
            await asyncio.sleep(1.0)
            waits = [await _reaction(stage, deletions, node) for node in stage.nodes[nodes // 3 :]]
    figure, floor = "one node tainted", "bare list, PATCH, DELETE"
    return [
        Result(figure, f"first DELETE, p{round(share * 100)}", wait * 1e3, "ms", goal, bare * 1e3, floor)
        for share, goal in ((0.5, 40.0), (0.99, 150.0))
        for wait, bare in [(percentile(waits, share), percentile(floors, share))]
    ]


async def _bare_reaction(stage: BenchStage, node: str) -> float:
    began_at = now()
    pod = (await stage.client.list_node(node))[0]["metadata"]
    await stage.client.evict(pod["name"], pod["uid"])
    return now() - began_at


async def _reaction(stage: BenchStage, deletions: Deletions, node: str) -> float:
    """Taint a node, wait until all its pods are terminating, and return the seconds until the first one was."""
    known = set(deletions.at)
    there = [pod for pod in await stage.client.list_node(node) if "deletionTimestamp" not in pod["metadata"]]
    expected = len(known) + len(there)
    began_at = now()
    await stage.client.taint(node)
    await deletions.until(expected, _IN_TIME_SECONDS)
    first_at = min(at for pod, at in deletions.at.items() if pod not in known)
    await stage.client.untaint(node)
    await asyncio.sleep(0.3)
    return first_at - began_at


async def many_nodes(stages: Stages, scale: float) -> list[Result]:
    """Taint 200 nodes at once, with 6,000 pods that tolerate the taint for an hour."""
    population = Population(200, 6_000, seconds=3_600).scaled(scale)
    async with stages.set_up(population) as stage:
        began_at = now()
        await all_at_once(stage.client.list_node, stage.nodes, _LISTS_AT_ONCE)
        floor = now() - began_at
        with MeasuredController(stage.kubeconfig) as controller:
            await controller.until_ready()
            await asyncio.sleep(2.0)
            before = controller.usage()
            with Stalls(controller.port) as stalls:
                began_at = now()
                await stage.taint(stage.nodes)
                armed_at = await controller.until(
                    lambda: controller.count_lines(" is due at ") >= population.pods, _IN_TIME_SECONDS
                )
                armed = controller.usage()
                await asyncio.sleep(10.0)
            after = controller.usage()
    figure = "200 nodes tainted at once"
    return [
        Result(figure, "all pods armed", armed_at - began_at, "s", 2.0, floor, "bare lists"),
        Result(figure, "RSS", after.peak_rss, "MB", 220.0),
        Result(figure, "worst stall", stalls.worst * 1e3, "ms", 150.0, stalls.noise * 1e3, "a thread's sleep"),
        Result(figure, "CPU until armed", armed.cpu_seconds - before.cpu_seconds, "s"),
        Result(figure, "CPU in all", after.cpu_seconds - before.cpu_seconds, "s"),
    ]


async def flapping(stages: Stages, scale: float) -> list[Result]:
    """For a minute, set or remove a taint each second on 100 nodes with 30 pods each."""
    population = Population(100, 3_000, seconds=3_600).scaled(scale)
    seconds = max(4, round(60 * scale))
    async with stages.set_up(population) as stage:
        with MeasuredController(stage.kubeconfig) as controller:
            await controller.until_ready()
            await _flap(stage, 4)
            before, lists_before = controller.usage(), await _pod_lists(controller)
            await _flap(stage, seconds)
            after, lists_after = controller.usage(), await _pod_lists(controller)
            missed = abs(population.pods - await _settled(controller, population.pods))
            await stage.untaint(stage.nodes)
            missed += await _settled(controller, 0)
    figure = f"flapping, {seconds} s"
    lists = (lists_after - lists_before) / len(stage.nodes)
    return [
        Result(figure, "RSS grown by", after.rss - before.rss, "MB", 10.0),
        Result(figure, "decisions missed", missed, "", 0.0),
        Result(figure, "pod lists a node", lists, "", 1.0),
        Result(figure, "CPU", (after.cpu_seconds - before.cpu_seconds) / seconds * 100, "% of a core"),
    ]


async def _flap(stage: BenchStage, seconds: int) -> None:
    """Set or remove the taint each second; it is set at the end."""
    for turn in range(seconds):
        began_at = now()
        await (stage.taint(stage.nodes) if (seconds - turn) % 2 else stage.untaint(stage.nodes))
        await asyncio.sleep(max(0.0, began_at + 1.0 - now()))


async def _pod_lists(controller: MeasuredController) -> float:
    metrics = await controller.metrics()
    return sum(count for name, count in metrics.items() if 'resource="pods"' in name and 'verb="list"' in name)


async def _settled(controller: MeasuredController, expected: int) -> float:
    """Wait at most 5 seconds for this number of pending pods, and return the number."""
    pending = -1.0
    for _ in range(50):
        pending = (await controller.metrics())["pending_evictions"]
        if pending == expected:
            break
        await asyncio.sleep(0.1)
    return pending
