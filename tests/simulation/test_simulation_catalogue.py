"""The catalogue of scenarios: each file is a test."""

from pathlib import Path

import pytest
from tests.stage.catalogue import scenario_files

from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_scenario

FILES = scenario_files()
KINDS = {
    *("evict", "stay", "cancel", "reschedule", "recreate", "restart", "retry", "clock", "outage", "lost"),
    *(
        "out-of-service",
        "lifecycle",
        "hold",
        "budget",
        "limit",
        "pause",
        "breaker",
        "rules",
        "order",
        "pool",
        "ceiling",
    ),
    *("adopt", "shadow"),
}

# The numbers of the contract's sections 3 and 6 that a virtual clock can show; W19 only partly, by lists that fail.
SHOWN = [f"W{number}" for number in (*range(1, 20), 21, 22, 23, 24)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    """A replay of the file meets all its expectations."""
    result = replay_scenario(read_scenario(file.read_text(encoding="utf-8"), file.name))
    broken = [f"{verdict.pod}: expected {verdict.expected}, seen {verdict.seen}" for verdict in result.broken]
    timeline = [f"{entry.at:.3f} {entry.what.value} {entry.subject} {entry.why}" for entry in result.timeline]
    assert not broken, "\n".join([*broken, *timeline])


def test_each_file_is_in_the_folder_of_its_kind() -> None:
    """Each file is in the folder of its kind, and its name begins with the kind."""
    assert {file.parent.name for file in FILES} == KINDS
    assert [file.name for file in FILES if not file.name.startswith(f"{file.parent.name}-")] == []


def test_no_file_name_stands_twice() -> None:
    """A name stands for one file, whatever its folder."""
    assert len({file.name for file in FILES}) == len(FILES)


@pytest.mark.parametrize("mistake", SHOWN)
def test_every_mistake_of_upstream_has_a_scenario(mistake: str) -> None:
    """Each W that a virtual clock can show is named in the description of some scenario."""
    about = " ".join(file.read_text(encoding="utf-8").partition("given:")[0] for file in FILES)
    assert mistake in about.replace(",", " ").replace(":", " ").replace(".", " ").split()
