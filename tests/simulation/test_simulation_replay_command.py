"""The command: what it prints, and how it exits."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.simulation.scenario_texts import ONE_POD

from taint_eviction_lab.cli.replay import replay


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(replay, list(arguments), input=stdin, catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a scenario that holds, one that is broken below it, and a file that is none."""
    (tmp_path / "holds.yaml").write_text(ONE_POD)
    (tmp_path / "notes.txt").write_text("none of them")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "breaks.yml").write_text(ONE_POD.replace("evicted: 40", "evicted: 35"))
    return tmp_path


def test_a_scenario_that_holds_exits_0_with_its_timeline(folder: Path) -> None:
    """A person reads what happened when, and why."""
    result = run(str(folder / "holds.yaml"))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "ok  holds: One pod, one taint."
    assert "     10.000  step           taint node-1 maintenance=now:NoExecute" in lines
    assert any("scheduled      default/web-0  for 40.005: maintenance=now:NoExecute is tol" in line for line in lines)
    assert "     40.030  evicted        default/web-0  from node-1" in lines
    assert "  held    default/web-0: evicted at 40" in lines
    assert result.stderr == ""


def test_a_broken_expectation_exits_1_with_expected_and_seen(folder: Path) -> None:
    """File and line of the expectation, what it says, and what happened instead."""
    file = folder / "below" / "breaks.yml"
    result = run(str(file))
    assert result.exit_code == 1
    assert result.stdout.startswith("BROKEN  breaks: One pod, one taint.")
    assert (
        f"  BROKEN  default/web-0 ({file}:9)\n"
        "            expected: evicted at 35\n"
        "            seen:     evicted at 40.030\n"
    ) in result.stdout


def test_a_malformed_file_exits_2_with_all_that_is_wrong(folder: Path) -> None:
    """All problems of all files on stderr; the others are played all the same."""
    bad = folder / "bad.yaml"
    bad.write_text(ONE_POD.replace("given:", "givn:").replace("evicted: 40", "evictd: 40"))
    result = run(str(folder / "below"), str(bad), str(folder / "holds.yaml"))
    assert result.exit_code == 2
    assert f"{bad}:2: unknown key 'givn' in a scenario; did you mean 'given'?" in result.stderr
    assert f"{bad}:9: unknown key 'evictd' in the expectation of 'web-0'; did you mean 'evicted'?" in result.stderr
    assert "2 scenarios: 1 as expected, 1 not" in result.stdout


def test_a_folder_is_walked_and_summed_up(folder: Path) -> None:
    """A line each; timelines only where something is broken."""
    result = run(str(folder))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[-1] == "2 scenarios: 1 as expected, 1 not"
    assert lines.count("ok  holds: One pod, one taint.") == 1
    assert sum("evicted        default/web-0" in line for line in lines) == 1


def test_a_dash_reads_stdin() -> None:
    """A scenario can be piped in."""
    result = run("-", stdin=ONE_POD)
    assert result.exit_code == 0
    assert result.stdout.startswith("ok  -: One pod")


def test_json_is_one_document_for_machines(folder: Path) -> None:
    """With scenario, timeline and expectations of each replay."""
    result = run("-o", "json", str(folder))
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["held"], document["broken"], document["problems"]) == (1, 1, [])
    broken, held = document["replays"]
    assert (broken["scenario"], held["scenario"]) == ("breaks", "holds")
    assert broken["expectations"] == [
        {"pod": "default/web-0", "line": 9, "expected": "evicted at 35", "seen": "evicted at 40.030", "held": False}
    ]
    evicted = [entry for entry in held["timeline"] if entry["what"] == "evicted"]
    assert evicted == [
        {"at": 40.03, "what": "evicted", "subject": "default/web-0", "uid": "default-web-0-1", "why": "from node-1"}
    ]
    scheduled = next(entry for entry in held["timeline"] if entry["what"] == "scheduled")
    assert scheduled["dueAt"] == 40.005


def test_json_tells_problems_too(folder: Path) -> None:
    """A machine finds file, line and what."""
    (folder / "bad.yaml").write_text("about: x\n")
    result = run("-o", "json", str(folder / "bad.yaml"))
    assert result.exit_code == 2
    assert json.loads(result.stdout)["problems"] == [
        {"file": str(folder / "bad.yaml"), "line": 1, "what": "a scenario lacks 'expect'"},
        {"file": str(folder / "bad.yaml"), "line": 1, "what": "a scenario lacks 'given'"},
    ]


def test_a_file_that_cannot_be_read_exits_2(tmp_path: Path) -> None:
    """Absent, empty or binary: one line, no traceback."""
    absent, empty, binary = tmp_path / "absent.yaml", tmp_path / "empty", tmp_path / "binary.yaml"
    empty.mkdir()
    binary.write_bytes(b"about: x\nname: \xff\xfe")
    result = run(str(absent), str(empty), str(binary))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"{absent}:1: cannot be read: No such file or directory",
        f"{empty}:1: there is no *.yaml in this directory",
        f"{binary}:2: the file is not UTF-8 text",
    ]


def test_a_step_that_cannot_be_done_exits_2(tmp_path: Path) -> None:
    """What only the replay can know is malformed all the same."""
    file = tmp_path / "late.yaml"
    file.write_text(ONE_POD.replace("expect:", "  - at: 50\n    delete: web-0\nexpect:"))
    result = run(str(file))
    assert result.exit_code == 2
    assert result.stderr == f'{file}:9: at 50: pods "web-0" not found\n'


def test_nothing_to_play_is_a_usage_error() -> None:
    """Without a file there is nothing to say."""
    assert run().exit_code == 2
