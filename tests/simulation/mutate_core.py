"""Mutation testing of the core: ``python -m tests.simulation.mutate_core [--sample N] [MODULE…]``.

It changes one comparison, operator, constant, condition or statement of ``core`` at a time, in a copy of the tree, and
runs the tests of the core: first those of the module, then those of the other modules, then the catalogue. A mutant
that no test notices survives, and is printed with its place (``mutations`` makes the changes, ``MUTANTS.md`` lists the
survivors).

Each mutant runs in a process of its own, forked from one that has imported what the tests need. A mutant that needs
much more CPU, time or memory than the unchanged code is noticed by limits. A file records which mutants died; the next
run tries only the others, new ones and survivors.
"""

import gc
import glob
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
import pytest
from tests.simulation.mutations import Mutant, mutants

ROOT = Path(__file__).parent.parent.parent
CORE = Path("operator/taint_eviction/core")

# The tests of a module have its name. This table is for modules that are tested under other names, too.
FIRST = {
    "attempts": ["tests/unit/test_core_controller*.py"],
    "breaker_table": ["tests/unit/test_core_breaker_table.py", "tests/unit/test_core_uncounted_nodes.py"],
    "controller": ["tests/unit/test_core_controller*.py", "tests/unit/test_kube_observations.py"],
    "gone_objects": ["tests/unit/test_core_cluster.py"],
    "known_nodes": ["tests/unit/test_core_cluster.py"],
    "pods": [
        "tests/unit/test_core_cluster.py",
        "tests/unit/test_core_controller*.py",
        "tests/unit/test_core_failed_attempts.py",
        "tests/property/test_properties_of_effective_taints.py",
    ],
    "policy": [
        "tests/unit/test_core_policy.py",
        "tests/unit/test_files_policy_file.py",
        "tests/property/test_properties_of_effective_taints.py",
    ],
    "reconciler": ["tests/unit/test_core_controller*.py", "tests/unit/test_core_eviction_queue.py"],
    "status": ["tests/unit/test_reporting_status_document.py", "tests/unit/test_core_controller*.py"],
    "warnings": ["tests/unit/test_core_eviction_loops.py", "tests/unit/test_core_stray_taints.py"],
}
THEN = [
    "tests/unit/test_core_*.py",
    "tests/unit/test_reporting_explanation_document.py",
    "tests/unit/test_reporting_status_document.py",
    "tests/planning/test_planning_budgets.py",
    "tests/planning/test_planning_forecast.py",
    "tests/property/test_properties_of_breaker.py",
    "tests/property/test_properties_of_controller.py",
    "tests/property/test_properties_of_decisions.py",
    "tests/property/test_properties_of_event_order.py",
    "tests/property/test_properties_of_effective_taints.py",
    "tests/property/test_properties_of_hints.py",
    "tests/property/test_properties_of_limits.py",
    "tests/property/test_properties_of_matching.py",
    "tests/property/test_properties_of_timed_queue.py",
]
LAST = ["tests/simulation/test_simulation_catalogue.py"]

# Modules that the tests need; imported once here, so that no mutant's process imports them again.
_IMPORTED = ("freezegun", "hypothesis.stateful", "orjson", "prometheus_client", "pytest_asyncio", "yaml")
_LONGEST_SECONDS = 240
_MAX_MEMORY_BYTES = 3 << 30


# Running the tests


class Trials:
    """A copy of the tree in which mutants are tried one at a time."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._output = tree.parent / "output"
        self._cpu_seconds: dict[str, float] = {}

    def prepare(self, module: str) -> None:
        """Check that the tests pass on the unchanged tree and fail on a broken module, and measure their CPU time."""
        for files in self._stages(module):
            if " ".join(files) in self._cpu_seconds:
                continue
            passed, seconds = self._run(files, _LONGEST_SECONDS)
            if not passed:
                raise click.ClickException(
                    f"the tests fail on the unchanged tree:\n{self._output.read_text(encoding='utf-8')}"
                )
            self._cpu_seconds[" ".join(files)] = seconds
        for compiled in (self._tree / CORE / "__pycache__").glob("*"):
            compiled.unlink()  # Python compares it with its source only by second and size.
        if self.survives(module, "raise SystemError"):
            raise click.ClickException("the tests do not import the mutated module")

    def survives(self, module: str, source: str) -> bool:
        """Run the tests on a mutant; return whether all pass."""
        place = self._tree / CORE / f"{module}.py"
        before = place.read_text(encoding="utf-8")
        place.write_text(source, encoding="utf-8")
        try:
            return all(self._run(files, self._limit(files), writing=False)[0] for files in self._stages(module))
        finally:
            place.write_text(before, encoding="utf-8")

    def _stages(self, module: str) -> list[list[str]]:
        own = FIRST.get(module, [f"tests/unit/test_core_{module}*.py"])
        return [files for patterns in (own, THEN, LAST) if (files := _files(self._tree, patterns))]

    def _limit(self, files: list[str]) -> int:
        # Twice the measured time, as other processes use the caches, too, and some seconds for the start.
        return int(self._cpu_seconds[" ".join(files)] * 2 + 4)

    def _run(self, files: list[str], cpu_seconds: int, writing: bool = True) -> tuple[bool, float]:
        """Run tests in a process of their own; return whether they pass, and the seconds of CPU they took."""
        child = os.fork()
        if child == 0:
            sys.dont_write_bytecode = not writing
            _test(self._tree, files, cpu_seconds, self._output)
        _, status, usage = os.wait4(child, 0)
        return status == 0, usage.ru_utime + usage.ru_stime


def _files(tree: Path, patterns: list[str]) -> list[str]:
    return [file for pattern in patterns for file in sorted(glob.glob(pattern, root_dir=tree))]


def _test(tree: Path, files: list[str], cpu_seconds: int, output: Path) -> None:
    """Run tests in this process, then end the process."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(_LONGEST_SECONDS)
    told = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(told, 1)
    os.dup2(told, 2)
    os.chdir(tree)
    os.environ["HYPOTHESIS_PROFILE"] = "brief"
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "taint_eviction")]:
        del sys.modules[name]
    sys.path[:] = [place for place in sys.path if place and not _is_of_the_tree(Path(place))]
    code = 99
    try:
        code = int(pytest.main(["-q", "-x", "--assert=plain", "--tb=line", "-p", "no:cacheprovider", *files]))
    finally:
        os._exit(code)


def _is_of_the_tree(place: Path) -> bool:
    """Return whether a place of modules is the project itself; its virtual environment may be inside it."""
    return place.is_relative_to(ROOT) and not place.is_relative_to(sys.prefix)


# Trying all mutants


def _known_dead(notes: Path) -> set[str]:
    if not notes.exists():
        return set()
    told = [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]
    return {each["key"] for each in told if each["dead"]}


def _try_all(chosen: list[Mutant], trials: Trials, notes: Path) -> list[str]:
    """Try mutants of one module; return the places of the survivors."""
    dead = _known_dead(notes)
    untried = [mutant for mutant in chosen if mutant.key not in dead]
    if untried:
        trials.prepare(untried[0].module)
    survivors = []
    for mutant in untried:
        survives = trials.survives(mutant.module, mutant.source)
        note = {"key": mutant.key, "where": mutant.where, "dead": not survives}
        with notes.open("a", encoding="utf-8") as file:
            file.write(json.dumps(note, ensure_ascii=False) + "\n")
        if survives:
            survivors.append(mutant.where)
            click.echo(f"survived: {mutant.where}")
    return survivors


@click.command()
@click.argument("modules", nargs=-1)
@click.option("--sample", type=int, help="Try at most this many mutants per module, chosen at random.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sample.")
@click.option(
    "--notes",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path(tempfile.gettempdir()) / "taint-eviction-mutants.jsonl",
    show_default=True,
    help="File that records which mutants died, so that they are not tried again.",
)
def main(modules: tuple[str, ...], sample: int | None, seed: int, notes: Path) -> None:
    """Mutate the core, all of it or only MODULEs (decision, timed_queue…), and print which mutants survive."""
    os.nice(10)
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        tree = Path(place) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
        trials = Trials(tree)
        for module in modules or sorted(path.stem for path in (ROOT / CORE).glob("*.py")):
            chosen = mutants(ROOT / CORE / f"{module}.py")
            if sample is not None and len(chosen) > sample:
                click.echo(f"{module}: a sample of {sample} of {len(chosen)} by seed {seed}")
                chosen = random.Random(seed).sample(chosen, sample)
            survivors = _try_all(chosen, trials, notes)
            click.echo(f"{module}: {len(chosen)} mutants, {len(chosen) - len(survivors)} died")


if __name__ == "__main__":
    main()
