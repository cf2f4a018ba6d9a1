"""For all tests: bytecode, what freezegun must leave alone, no event loop unasked for, logging, the order of tests for
several workers, figures at the end.
"""

import asyncio
import gc
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import freezegun
import pytest

# Where the environment forbids bytecode, as images of Python often do, each worker would compile all tests anew with
# each run, and each process that a test starts the whole controller.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Hypothesis measures its own work with clocks. kubernetes loads its models when its attributes are looked at, as
# freezegun does with every module, and models that are made while the clock is frozen are broken for good.
freezegun.configure(extend_ignore_list=["hypothesis", "kubernetes"])  # type: ignore[no-untyped-call, unused-ignore]

# Else Python 3.11 makes a loop when pytest-asyncio first asks for one, and nobody ever closes it.
asyncio.set_event_loop(None)

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Put the root logger back: commands that run in the process of a test set it up anew."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile all tests once in a fresh clone: the workers start together, and each would compile all of them."""
    if (TESTS / "unit" / "__pycache__").exists():
        return
    files = sorted(str(file) for file in TESTS.rglob("test_*.py"))
    collect = (sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-n0", "-p", "no:cacheprovider")
    halves = [subprocess.Popen([*collect, *files[half::2]], stdout=subprocess.DEVNULL) for half in range(2)]
    for half in halves:
        half.wait()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give several workers tests that wait and tests that compute at the same time."""
    if (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
        items[:] = _mixed(items, workers)


def _mixed(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in an order of which each worker gets an equal part, as ``--dist worksteal`` deals them.

    Half of the workers begin with tests that wait for real deadlines, the others with those that compute. Unit tests
    come last: they are the shortest, so the workers end together. So do files in reverse, whose longest come late in
    the alphabet.
    """
    kinds: dict[str, list[pytest.Item]] = {"waiting": [], "computing": [], "unit": []}
    for _, file in reversed([(path, list(of_file)) for path, of_file in groupby(items, lambda item: item.path)]):
        folder = file[0].path.relative_to(TESTS).parts[0]
        kinds["waiting" if folder in ("e2e", "integration") else "unit" if folder == "unit" else "computing"] += file
    waiting, computing, short = kinds.values()
    mixed: list[pytest.Item] = []
    for worker in range(workers):
        first, second = (waiting, computing) if worker % 2 == 0 else (computing, waiting)
        for kind in (first, second, short):
            mixed += kind[len(kind) * worker // workers : len(kind) * (worker + 1) // workers]
    return mixed


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what was collected, and look less often for the little that there is."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much explorations played, and how fast, in whichever process they ran."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, ())]
    told = [(report.duration, dict(report.user_properties)) for report in reports]
    explored = [(elapsed, properties) for elapsed, properties in told if "runs" in properties]
    if not explored:
        return
    runs = sum(properties["runs"] for _, properties in explored)
    hours = sum(properties["seconds"] for _, properties in explored) / 3600
    elapsed = sum(elapsed for elapsed, _ in explored)
    terminalreporter.section("explorations")
    terminalreporter.line(
        f"{runs} runs, {hours:.1f} simulated hours in {elapsed:.0f} s of one process: "
        f"{runs / elapsed * 60:.0f} runs a minute, {hours / elapsed:.2f} simulated hours a second"
    )
