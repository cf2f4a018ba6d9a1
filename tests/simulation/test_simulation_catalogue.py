"""The catalogue of scenarios: each file is a test."""

from pathlib import Path

import pytest

from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_scenario

CATALOGUE = Path(__file__).parent.parent / "scenarios"
FILES = sorted(CATALOGUE.glob("*.yaml"))
_DECISIONS = ("evict", "stay", "cancel", "reschedule", "recreate", "restart", "retry", "clock")
_SETTLED = (*_DECISIONS, "outage", "out", "hold", "budget", "limit", "pause", "breaker", "rules", "order", "lifecycle")
KINDS = (*_SETTLED, "ceiling", "lost", "pool", "shadow", "adopt")

# The numbers of the contract's sections 3 and 6 that a virtual clock can show; W19 only partly, by lists that fail.
SHOWN = [f"W{number}" for number in (*range(1, 20), 21, 22, 23, 24)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    """A replay of the file meets all its expectations."""
    result = replay_scenario(read_scenario(file.read_text(encoding="utf-8"), file.name))
    broken = [f"{verdict.pod}: expected {verdict.expected}, seen {verdict.seen}" for verdict in result.broken]
    timeline = [f"{entry.at:.3f} {entry.what.value} {entry.subject} {entry.why}" for entry in result.timeline]
    assert not broken, "\n".join([*broken, *timeline])


def test_each_file_name_begins_with_its_kind() -> None:
    """The name of each file begins with the kind of its scenario."""
    assert [file.name for file in FILES if file.name.split("-")[0] not in KINDS] == []


@pytest.mark.parametrize("mistake", SHOWN)
def test_every_mistake_of_upstream_has_a_scenario(mistake: str) -> None:
    """Each W that a virtual clock can show is named in the description of some scenario."""
    about = " ".join(file.read_text(encoding="utf-8").partition("given:")[0] for file in FILES)
    assert mistake in about.replace(",", " ").replace(":", " ").replace(".", " ").split()
