"""The commands that tell stories: each can draw one, and a record can be played, drawn and kept."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.planning.test_history import incident

from taint_eviction_lab.cli.replay import replay

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
    assert "ok      shop/c: evicted at" in result.stdout
    assert "What happened" in Path(page).read_text()
    assert run(scenario).exit_code == 0


def test_a_journal_that_is_cut_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    """With a word on stderr about the place."""
    incident(tmp_path / "journal")
    raw = (tmp_path / "journal").read_bytes()
    (tmp_path / "cut").write_bytes(raw[:-30])
    result = run(str(tmp_path / "cut"), "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["failed"] == 0
    assert "the line is cut in the middle" in result.stderr
    assert "1 line skipped" in result.stderr


@pytest.mark.parametrize("line", ['{"what": "garbage"}', '{"t": 1, "what": "node"', '{"t": 1e400, "what": "node"}'])
def test_a_journal_without_a_line_of_use_is_malformed(tmp_path: Path, line: str) -> None:
    """A story in which nothing happens would hold; this is none."""
    (tmp_path / "journal").write_text(f"{line}\n")
    result = run(str(tmp_path / "journal"))
    assert result.exit_code == 2
    assert f"{tmp_path / 'journal'}:1: no line of this journal or log can be used" in result.stderr


def test_a_byte_order_mark_and_the_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    """So does a journal look that somebody has opened in an editor."""
    incident(tmp_path / "journal")
    raw = (tmp_path / "journal").read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "edited").write_bytes(b"\xef\xbb\xbf" + raw)
    result = run(str(tmp_path / "edited"))
    assert (result.exit_code, result.stderr) == (0, "")


def test_several_stories_or_a_scenario_cannot_be_written_as_one(tmp_path: Path) -> None:
    """One picture is one story, and a scenario is a scenario already."""
    assert run(SCENARIO, SCENARIO, "--html", str(tmp_path / "page.html")).exit_code == 2
    assert run(SCENARIO, "--to-scenario", str(tmp_path / "x.yaml")).exit_code == 2
    assert run(SCENARIO, "--html", str(tmp_path / "none" / "page.html")).exit_code == 2
