"""Explorations within a fixed budget: fixed seeds gate, some new ones are reported; see README.md for long ones."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.simulation.explore import COMMAND
from tests.simulation.exploring.generator import made_up
from tests.simulation.exploring.playing import Played, play
from tests.simulation.exploring.shrinking import shrunk
from tests.simulation.exploring.sieve import (
    RIGHTLY_DIFFERENT,
    Disturbance,
    catalogue,
    difference,
    disturbances,
    played,
)
from tests.simulation.known_bugs import KNOWN_BUGS

from taint_eviction.simulation.scenario import read_scenario

ROOT = Path(__file__).parent.parent.parent
FIXED_SEEDS = range(96)
NEW_SEEDS = 24
# For each mistake the first seed that finds it, and the rule by which it does.
CAUGHT_BY = {
    "W1": (0, "not evicted"),
    "W2": (2, "another UID"),
    "W3": (6, "late"),
    "W5": (0, "not due"),
    "W7": (6, "late"),
    "W8": (0, "not evicted"),
    "W11": (0, "no fresh read"),
    "W13": (4, "deleted again"),
    "limit-at-begin": (2, "over a limit"),
    "token-kept": (2, "not evicted"),
    "pause-when-taken": (3, "paused"),
    "breaker-first-sight": (11, "opened for nothing"),
    "latch-lost": (11, "breaker open"),
    "no-settling": (9, "not settled"),
    "budget-hammered": (0, "asked too soon"),
    "no-timeout": (9, "wrong call"),
    "nonsense-ignored": (3, "nonsense misread"),
}
# One in so many of all disturbances of a scenario, and one in so many scenarios: the rest is for the long command.
EVERY_DISTURBANCE, EVERY_SCENARIO = 17, 7
SIEVED = [file for file in catalogue() if file.stem not in RIGHTLY_DIFFERENT][::EVERY_SCENARIO]


def told(seed: int, result: Played) -> str:
    """Say what was broken first, and how to see it again."""
    return "\n".join(
        [f"seed {seed}: {COMMAND} --seed {seed}", *(str(violation) for violation in result.violations[:5])]
    )


def explored(seeds: Iterable[int], record_property: Callable[[str, object], None]) -> tuple[int, list[str]]:
    """Play seeds; return how many calls ended pods, and what was broken. How much was played is told in the end."""
    results = {seed: play(made_up(seed)) for seed in seeds}
    found = [told(seed, result) for seed, result in results.items() if result.violations]
    record_property("runs", len(results))
    record_property("seconds", sum(result.seconds for result in results.values()))
    record_property("found", found)
    return sum(result.deletes for result in results.values()), found


@pytest.mark.parametrize("seeds", [range(first, first + 8) for first in FIXED_SEEDS[::8]], ids=str)
def test_nothing_breaks_for_fixed_seeds(seeds: range, record_property: Callable[[str, object], None]) -> None:
    """Whatever happens to cluster, network, watches, clocks and replicas: no wrong kill, no lost eviction."""
    deletes, found = explored(seeds, record_property)
    assert not found, "\n".join(found)
    assert deletes > 20


@pytest.mark.parametrize("part", range(3))
def test_new_seeds_are_reported(part: int, record_property: Callable[[str, object], None]) -> None:
    """What a new seed breaks is told at the end of the tests, with the command that replays it; it does not gate."""
    seeds = random.SystemRandom().sample(range(10**6, 10**9), NEW_SEEDS // 3)
    explored(seeds, record_property)


@pytest.mark.parametrize("name", KNOWN_BUGS)
def test_every_known_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that cannot find upstream's mistakes proves nothing."""
    seed, rule = CAUGHT_BY[name]
    assert not play(made_up(seed)).violations
    KNOWN_BUGS[name](monkeypatch)
    assert rule in [violation.rule for violation in play(made_up(seed)).violations]


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Bit for bit: neither the order of sets nor addresses of objects, nor what ran before, decide anything."""
    code = (
        "from tests.simulation.exploring.generator import made_up; from tests.simulation.exploring.playing import play;"
        "print(*(play(made_up(seed)).digest for seed in (3, 5)))"
    )
    here = [play(made_up(seed)).digest for seed in (3, 5)]
    for hash_seed in ("1",):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}"}
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert run.stdout.split() == here


def test_a_failure_is_shrunk_to_what_a_person_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps, pods, nodes and settings that do not matter are left out; what is left still breaks the same rule."""
    seed, rule = CAUGHT_BY["W5"]
    KNOWN_BUGS["W5"](monkeypatch)
    document = made_up(seed)
    small = shrunk(document, rule, most_plays=20)
    assert play(small).rule == rule
    assert len(small["timeline"]) <= len(document["timeline"]) // 2


@pytest.mark.parametrize("file", SIEVED, ids=lambda file: file.stem)
def test_a_disturbed_run_ends_as_the_undisturbed_one(file: Path) -> None:
    """Sieve's patterns, a sample: a crash around a call, a watch that lags by events, an event that is lost."""
    scenario = read_scenario(file.read_text(encoding="utf-8"), file.name)
    undisturbed = played(scenario)
    assert not undisturbed.broken
    for disturbance in sample(list(disturbances(undisturbed))):
        what = difference(undisturbed, played(scenario, disturbance, undisturbed.seconds))
        assert not what, f"{disturbance}: {what}"


def sample(every: list[Disturbance]) -> list[Disturbance]:
    """Take the same few of all, spread evenly."""
    return every[EVERY_DISTURBANCE // 2 :: EVERY_DISTURBANCE][:2]
