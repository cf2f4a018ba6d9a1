"""``replay`` draws scenarios, and replays, draws and keeps records."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.planning.test_history import incident

from taint_eviction_lab.cli.replay import replay

SCENARIO = "tests/scenarios/recreate/recreate-statefulset-pod-is-evicted-again.yaml"


def run(*arguments: str) -> Result:
    """Run ``replay``."""
    return CliRunner().invoke(replay, list(arguments), catch_exceptions=False)


def test_a_scenario_is_drawn(tmp_path: Path) -> None:
    """The scenario of the stale key becomes one page."""
    assert run(SCENARIO, "--html", str(tmp_path / "page.html")).exit_code == 0
    assert "default/web-0" in (tmp_path / "page.html").read_text()


def test_a_journal_is_replayed_drawn_and_kept(tmp_path: Path) -> None:
    """The scenario that was kept holds when it is replayed by itself."""
    incident(tmp_path / "journal")
    page, scenario = str(tmp_path / "page.html"), str(tmp_path / "incident.yaml")
    result = run(str(tmp_path / "journal"), "--html", page, "--to-scenario", scenario)
    assert result.exit_code == 0
    assert "ok      shop/c: evicted at" in result.stdout
    assert "What happened" in Path(page).read_text()
    assert run(scenario).exit_code == 0


def test_a_journal_that_is_cut_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    """Messages on stderr say that a line is cut and was skipped."""
    incident(tmp_path / "journal")
    raw = (tmp_path / "journal").read_bytes()
    (tmp_path / "cut").write_bytes(raw[:-30])
    result = run(str(tmp_path / "cut"), "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["failed"] == 0
    assert "the line is cut in the middle" in result.stderr
    assert "1 line skipped" in result.stderr


@pytest.mark.parametrize("line", ['{"what": "garbage"}', '{"t": 1, "what": "node"', '{"t": 1e400, "what": "node"}'])
def test_a_journal_without_a_usable_line_is_malformed(tmp_path: Path, line: str) -> None:
    """A scenario in which nothing happens would hold."""
    (tmp_path / "journal").write_text(f"{line}\n")
    result = run(str(tmp_path / "journal"))
    assert result.exit_code == 2
    assert f"{tmp_path / 'journal'}:1: no line of this journal or log can be used" in result.stderr


def test_a_byte_order_mark_and_the_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    """An editor may have written both into the journal."""
    incident(tmp_path / "journal")
    raw = (tmp_path / "journal").read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "edited").write_bytes(b"\xef\xbb\xbf" + raw)
    result = run(str(tmp_path / "edited"))
    assert (result.exit_code, result.stderr) == (0, "")


def test_an_output_that_makes_no_sense_exits_2(tmp_path: Path) -> None:
    """One page is one scenario, a scenario needs no conversion, and a folder has to exist."""
    assert run(SCENARIO, SCENARIO, "--html", str(tmp_path / "page.html")).exit_code == 2
    assert run(SCENARIO, "--to-scenario", str(tmp_path / "x.yaml")).exit_code == 2
    assert run(SCENARIO, "--html", str(tmp_path / "none" / "page.html")).exit_code == 2
