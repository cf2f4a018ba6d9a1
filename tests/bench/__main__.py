"""``python -m tests.bench``: measure every figure and print a table; see README.md beside this file."""

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.bench.bench_built_in import fill, side_by_side
from tests.bench.bench_evict import lateness, mass
from tests.bench.bench_queue import queue
from tests.bench.bench_start import cold_start, cold_start_large, pool
from tests.bench.bench_steady import steady, steady_whole
from tests.bench.bench_taint import flapping, many_nodes, one_node
from tests.bench.results import Result, table
from tests.bench.stage import Stages

Benchmark = Callable[[Stages, float], Awaitable[list[Result]]]

BENCHMARKS: dict[str, Benchmark] = {
    "queue": queue,
    "cold-start": cold_start,
    "cold-start-large": cold_start_large,
    "steady": steady,
    "steady-whole": steady_whole,
    "one-node": one_node,
    "many-nodes": many_nodes,
    "pool": pool,
    "mass": mass,
    "lateness": lateness,
    "flapping": flapping,
    "fill": fill,
    "side-by-side": side_by_side,
}

# These need a real cluster and the built-in controller.
_OF_TWO = ("fill", "side-by-side")


async def measure(names: list[str], stages: Stages, scale: float, times: int) -> list[Result]:
    """Run the benchmarks one after another."""
    results: list[Result] = []
    for name in names:
        for turn in range(times):
            _say(f"{name}{f' ({turn + 1} of {times})' if times > 1 else ''} …")
            results += await BENCHMARKS[name](stages, scale)
    return results


def main() -> None:
    """Read the arguments, measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*BENCHMARKS], help="measure this one; repeatable")
    parser.add_argument("--json", type=Path, help="write the results to this file as well")
    parser.add_argument("--kubeconfig", type=Path, help="measure on this cluster, with objects of its own")
    parser.add_argument("--built-in", help="the command that starts the controller to compare with, side by side")
    parser.add_argument("--keep", action="store_true", help="leave nodes and pods on the cluster, and use them again")
    parser.add_argument("--scale", type=float, default=1.0, help="share of nodes, pods and seconds; goals are for 1")
    parser.add_argument("--times", type=int, default=1, help="measure each so often")
    arguments = parser.parse_args()
    stages = Stages(arguments.kubeconfig, arguments.built_in, keep=arguments.keep)
    names = arguments.only or [name for name in BENCHMARKS if name not in _OF_TWO or stages.built_in]
    results = asyncio.run(measure(names, stages, arguments.scale, arguments.times))
    _say(table(results), sys.stdout)
    if arguments.json is not None:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()}
        told = {"machine": machine, "scale": arguments.scale, "results": [result.as_json() for result in results]}
        arguments.json.write_text(json.dumps(told, indent=2) + "\n", "utf-8")


def _say(text: str, where: "object" = sys.stderr) -> None:
    print(text, file=where, flush=True)  # type: ignore[call-overload]


if __name__ == "__main__":
    main()
