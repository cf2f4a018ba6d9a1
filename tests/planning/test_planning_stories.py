"""The commands that tell stories: each can draw one, and a record can be played, drawn and kept."""

import json
from pathlib import Path

from click.testing import CliRunner, Result
from tests.planning.test_history import incident

from taint_eviction.cli.replay import replay

SCENARIO = "tests/scenarios/recreate-statefulset-pod-is-evicted-again.yaml"


def run(*arguments: str) -> Result:
    """Run ``replay``."""
    return CliRunner().invoke(replay, list(arguments), catch_exceptions=False)


def test_a_scenario_is_drawn(tmp_path: Path) -> None:
    """The stale key as one page."""
    assert run(SCENARIO, "--html", str(tmp_path / "page.html")).exit_code == 0
    assert "default/web-0" in (tmp_path / "page.html").read_text()


def test_a_journal_is_played_drawn_and_kept(tmp_path: Path) -> None:
    """And what was kept holds when it is played by itself."""
    incident(tmp_path / "journal")
    page, scenario = str(tmp_path / "page.html"), str(tmp_path / "incident.yaml")
    result = run(str(tmp_path / "journal"), "--html", page, "--to-scenario", scenario)
    assert result.exit_code == 0
    assert "held    shop/c: evicted at" in result.stdout
    assert "What happened" in Path(page).read_text()
    assert run(scenario).exit_code == 0


def test_a_journal_that_is_cut_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    """With a word on stderr about the place."""
    incident(tmp_path / "journal")
    raw = (tmp_path / "journal").read_bytes()
    (tmp_path / "cut").write_bytes(raw[:-30])
    result = run(str(tmp_path / "cut"), "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["broken"] == 0
    assert "the line is cut in the middle" in result.stderr
    assert "1 line is of no use and skipped" in result.stderr


def test_several_stories_or_a_scenario_cannot_be_written_as_one(tmp_path: Path) -> None:
    """One picture is one story, and a scenario is a scenario already."""
    assert run(SCENARIO, SCENARIO, "--html", str(tmp_path / "page.html")).exit_code == 2
    assert run(SCENARIO, "--to-scenario", str(tmp_path / "x.yaml")).exit_code == 2
    assert run(SCENARIO, "--html", str(tmp_path / "none" / "page.html")).exit_code == 2
