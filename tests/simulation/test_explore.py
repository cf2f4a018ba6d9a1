"""Explorations with fixed seeds, so that each run of a commit is the same; README.md describes long ones."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.amount import by_day
from tests.simulation.explore import COMMAND
from tests.simulation.exploring.generator import made_up
from tests.simulation.exploring.playing import Played, as_text, play, play_scenario, read_document
from tests.simulation.exploring.shrinking import shrunk
from tests.simulation.exploring.sieve import (
    RIGHTLY_DIFFERENT,
    Disturbance,
    difference,
    disturbances,
    played,
    sampled_files,
)
from tests.simulation.known_bugs import KNOWN_BUGS

from taint_eviction_lab.simulation.scenario import Scenario, read_scenario

ROOT = Path(__file__).parent.parent.parent
# At most this many runs shrink a scenario for the message of a failure.
SHRINKING_PLAYS = 30
# For each known mistake, a seed that finds it, and the rule that the mistake breaks.
CAUGHT_BY = {
    "W1": (2, "not evicted"),
    "W2": (7, "another UID"),
    "W3": (7, "late"),
    "W5": (0, "not due"),
    "W7": (7, "late"),
    "W8": (0, "not evicted"),
    "W11": (0, "no fresh read"),
    "W13": (0, "deleted again"),
    "W23": (1, "wrong call"),
    "out-of-service-passes": (47002007, "breaker open"),
    "out-of-service-ready": (5, "wrong call"),
    "W24": (0, "not evicted"),
    "W22": (7, "late"),
    "ready-in-between": (6, "not due"),
    "no-witness": (20, "not due"),
    "limit-at-begin": (5, "over a limit"),
    "token-kept": (5, "not evicted"),
    "pause-when-taken": (2, "paused"),
    "breaker-first-sight": (9, "opened for nothing"),
    "breaker-last-write": (11, "opened for nothing"),
    "breaker-listed": (11, "before it was judged"),
    "breaker-taints": (9, "in an outage"),
    "latch-lost": (13, "breaker open"),
    "reset-ahead": (11, "in a surge"),
    "no-settling": (9, "not settled"),
    "budget-hammered": (0, "asked too soon"),
    "no-timeout": (0, "wrong call"),
    "patience-from-deadline": (0, "wrong call"),
    "patience-uninterrupted": (8, "wrong call"),
    "unreadable-ignored": (2, "unreadable value misread"),
    "unreadable-stays": (13, "not evicted"),
    "older-latches": (0, "breaker open"),
    "latches-need-a-breaker": (2, "breaker open"),
    "pauses-do-not-end": (8, "not evicted"),
    "pauses-removed-by-scope": (1, "wrote something else"),
    "labels-read-once": (59, "paused"),
    "rules-select-all-nodes": (0, "not evicted"),
    "pauses-by-first-labels": (71, "paused"),
    "pauses-know-no-later-nodes": (55, "paused"),
    "unreadable-selectors-ignored": (66, "unreadable value misread"),
    "notin-needs-the-label": (55, "paused"),
    "highest-vote": (4, "not due"),
    "dates-believed": (0, "not due"),
    "largest-date": (0, "not due"),
    "dated-beats-seen": (7, "not due"),
    "answers-move-starts": (7, "late"),
    "answers-overtake": (7, "not due"),
    "answers-wait-not": (7, "not due"),
    "absent-taints-wait": (0, "not due"),
    "reads-dated-late": (0, "no fresh read"),
    "workers-not-lent": (7, "late"),
    "lease-hasty": (6, "late"),
    "connects-late": (27, "no fresh read"),
    "control-state-hasty": (6, "late"),
    "marked-once": (8, "not marked"),
    "standbys-report": (0, "reported by a standby"),
    "webhooks-for-ever": (4, "patience never ends"),
    "answers-end-patience": (16, "patience never ends"),
    "stalls-end-patience": (16, "patience never ends"),
    "evacuations-refuse": (1, "asked too soon"),
    "evacuations-never-end": (1, "patience never ends"),
    "lists-keep-turns": (6, "late"),
    "hanging-retries-count": (20, "late"),
    "take-backs-block": (7, "late"),
    "owners-hold-what-is-off": (1, "not evicted"),
    "dry-runs-repeat": (24, "reported again"),
    "never-given-back": (13, "not given back"),
    "given-back-by-hints": (42, "not given back"),
    "adopted-by-name": (13, "another UID"),
    "noted-by-place": (32, "effective tolerations changed"),
    "notes-ignored": (28, "effective tolerations changed"),
    "adopted-when-stopped": (29, "adoption was stopped"),
    "standbys-adopt": (12, "sent without leading"),
    "adopted-late": (143, "not adopted in time"),
    "finished-adopted": (14, "adopted wrongly"),
    "starts-see-all": (125, "not adopted in time"),
    "standbys-never-forget": (143, "not adopted in time"),
    "order-ignored": (17, "out of order"),
    "order-ignored-after-a-restart": (38, "out of order"),
    "order-for-ever": (40, "late"),
    "ceilings-ignored": (15, "late"),
    "ceilings-end-everything": (21, "not due"),
    "ceilings-never-change": (10, "not due"),
    "lost-respected": (47, "wrong call"),
    "unready-is-lost": (43, "wrong call"),
    "lost-stays-lost": (47, "wrong call"),
    "order-passes-the-blocked": (890, "out of order"),
    "ceilings-on-all-nodes": (70, "not due"),
    "pauses-end-evacuations": (167, "asked too soon"),
    "lost-nodes-pass-the-breaker": (70, "breaker open"),
}
# Without a mistake, these seeds break no rule; by day some of them are played. Long runs play others.
FIXED_SEEDS = sorted({seed for seed, _ in CAUGHT_BY.values()})
PLAYED_SEEDS = by_day(FIXED_SEEDS, 4)
# So many that no worker is busy with one of them while all others have ended.
_PARTS = len(PLAYED_SEEDS) // 4 + 1
# The sample: every 17th disturbance of one scenario in about 14; the long command tries all.
EVERY_DISTURBANCE, EVERY_SCENARIO = 17, 14
SIEVED = [file for file in sampled_files(EVERY_SCENARIO) if file.stem not in RIGHTLY_DIFFERENT]


def told(seed: int, result: Played) -> str:
    """Return the first broken rules, the command that repeats the run, and a scenario that a few runs have shrunk."""
    again = f"seed {seed}: {COMMAND} --seed {seed}"
    scenario = as_text(shrunk(made_up(seed), result.rule, max_plays=SHRINKING_PLAYS))
    return "\n".join([again, *(str(violation) for violation in result.violations[:5]), scenario])


def explored(seeds: Iterable[int], record_property: Callable[[str, object], None]) -> int:
    """Play seeds, record their figures, fail with the broken rules if any, and return how many calls ended pods."""
    results = {seed: play(made_up(seed)) for seed in seeds}
    record_property("runs", len(results))
    record_property("seconds", sum(result.seconds for result in results.values()))
    found = [told(seed, result) for seed, result in results.items() if result.violations]
    if found:
        pytest.fail("\n".join(found), pytrace=False)
    return sum(result.deletes for result in results.values())


@pytest.mark.parametrize("seeds", [PLAYED_SEEDS[part::_PARTS] for part in range(_PARTS)], ids=str)
def test_nothing_breaks_for_fixed_seeds(seeds: list[int], record_property: Callable[[str, object], None]) -> None:
    """With faults of cluster, network, watches, clocks and replicas, no pod is evicted wrongly and none is missed."""
    assert explored(seeds, record_property) > 20


def test_a_failing_seed_is_reported_with_a_scenario_that_breaks_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command for the seed, the broken rule, and a scenario that breaks the same rule."""
    seed, rule = CAUGHT_BY["W5"]
    KNOWN_BUGS["W5"](monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "SHRINKING_PLAYS", 3)
    with pytest.raises(pytest.fail.Exception) as failure:
        explored([seed], lambda *_: None)
    said = str(failure.value)
    assert f"--seed {seed}\n" in said
    assert f" {rule}: " in said
    assert play_scenario(read_scenario(said[said.index("about: ") :], "said")).rule == rule


@pytest.mark.parametrize("name", KNOWN_BUGS)
def test_every_known_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed seed finds each known mistake; without a mistake, the fixed seeds break no rule."""
    seed, rule = CAUGHT_BY[name]
    KNOWN_BUGS[name](monkeypatch)
    assert rule in [violation.rule for violation in play(made_up(seed), enough=rule.__eq__).violations]


def _without_lines(scenario: Scenario) -> Scenario:
    return replace(scenario, steps=tuple(replace(step, line=0) for step in scenario.steps))


def test_a_document_is_read_as_its_text_is() -> None:
    """What is played is what the scenario says that a failure shows, but for the lines of its steps."""
    for document in map(made_up, FIXED_SEEDS):
        read, played = read_scenario(as_text(document), str(document["name"])), read_document(document)
        assert _without_lines(read) == _without_lines(played)


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """A run does not depend on the order of sets, on addresses of objects, or on earlier runs of the process."""
    code = (
        "from tests.simulation.exploring.generator import made_up; from tests.simulation.exploring.playing import play;"
        "print(*(play(made_up(seed)).digest for seed in (3, 42)))"
    )
    here = [play(made_up(seed)).digest for seed in (3, 42)]
    for hash_seed in ("1",):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}"}
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert run.stdout.split() == here


def test_a_failure_is_shrunk_to_at_most_half_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrinking removes what the failure does not need; the rest still breaks the same rule."""
    seed, rule = CAUGHT_BY["W5"]
    KNOWN_BUGS["W5"](monkeypatch)
    document = made_up(seed)
    small = shrunk(document, rule, max_plays=20)
    assert play(small).rule == rule
    assert len(small["timeline"]) <= len(document["timeline"]) // 2


@pytest.mark.parametrize("file", SIEVED, ids=lambda file: file.stem)
def test_a_disturbed_run_ends_as_the_undisturbed_one(file: Path) -> None:
    """A sample of Sieve's patterns: a crash around a call, a watch that lags by some events, an event that is lost."""
    scenario = read_scenario(file.read_text(encoding="utf-8"), file.name)
    undisturbed = played(scenario)
    assert not undisturbed.broken
    for disturbance in sample(list(disturbances(undisturbed))):
        what = difference(undisturbed, played(scenario, disturbance, undisturbed.seconds))
        assert not what, f"{disturbance}: {what}"


def sample(every: list[Disturbance]) -> list[Disturbance]:
    """Take a few of the disturbances, the same ones in each run and evenly spread."""
    return every[EVERY_DISTURBANCE // 2 :: EVERY_DISTURBANCE][:2]
