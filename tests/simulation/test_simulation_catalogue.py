"""The catalogue of scenarios: each file is a test."""

from pathlib import Path

import pytest

from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_scenario

CATALOGUE = Path(__file__).parent.parent / "scenarios"
FILES = sorted(CATALOGUE.glob("*.yaml"))
_DECISIONS = ("evict", "stay", "cancel", "reschedule", "recreate", "restart", "retry", "clock")
_SETTLED = (*_DECISIONS, "outage", "out", "hold", "budget", "limit", "pause", "breaker", "rules", "lifecycle")
KINDS = (*_SETTLED, "shadow", "adopt")

# What of section 3 of the contract a virtual clock can show; W19 and W20 partly, by lists that fail.
SHOWN = [f"W{number}" for number in (*range(1, 20), 21, 22, 24)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    """What the file expects is what happens."""
    result = replay_scenario(read_scenario(file.read_text(encoding="utf-8"), file.name))
    broken = [f"{verdict.pod}: expected {verdict.expected}, seen {verdict.seen}" for verdict in result.broken]
    timeline = [f"{entry.at:.3f} {entry.what.value} {entry.subject} {entry.why}" for entry in result.timeline]
    assert not broken, "\n".join([*broken, *timeline])


def test_names_read_as_a_catalogue() -> None:
    """Every file begins with what happens in it."""
    assert [file.name for file in FILES if file.name.split("-")[0] not in KINDS] == []


@pytest.mark.parametrize("mistake", SHOWN)
def test_every_mistake_of_upstream_has_a_scenario(mistake: str) -> None:
    """Each W that a virtual clock can show is named by some scenario's sentence."""
    about = " ".join(file.read_text(encoding="utf-8").partition("given:")[0] for file in FILES)
    assert mistake in about.replace(",", " ").replace(":", " ").replace(".", " ").split()
