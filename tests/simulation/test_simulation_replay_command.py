"""The command ``replay``: its output and its exit codes."""

import json
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.simulation.scenario_texts import ONE_POD

from taint_eviction_lab.cli.replay import replay
from taint_eviction_lab.cli.replay_views import playing_progress


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(replay, list(arguments), input=stdin, catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a scenario that holds, one in a subfolder that fails, and a file that is no scenario."""
    (tmp_path / "holds.yaml").write_text(ONE_POD)
    (tmp_path / "notes.txt").write_text("none of them")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "breaks.yml").write_text(ONE_POD.replace("evicted: 40", "evicted: 35"))
    return tmp_path


def test_a_scenario_that_holds_exits_0_with_its_timeline(folder: Path) -> None:
    """The output shows what happened at which time and why, then the expectations."""
    result = run(str(folder / "holds.yaml"))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "ok  holds: One pod, one taint."
    assert "     10.000  step           taint node-1 maintenance=now:NoExecute" in lines
    assert any("scheduled      default/web-0  for 40.005: maintenance=now:NoExecute is tol" in line for line in lines)
    assert "     40.030  evicted        default/web-0  from node-1" in lines
    assert "  ok      default/web-0: evicted at 40" in lines
    assert result.stderr == ""


def test_a_broken_expectation_exits_1_with_expected_and_seen(folder: Path) -> None:
    """The output has the file and line of the expectation, what was expected, and what happened instead."""
    file = folder / "below" / "breaks.yml"
    result = run(str(file))
    assert result.exit_code == 1
    assert result.stdout.startswith("FAILED  breaks: One pod, one taint.")
    assert (
        f"  FAILED  default/web-0 ({file}:9)\n"
        "            expected: evicted at 35\n"
        "            seen:     evicted at 40.030\n"
    ) in result.stdout


def test_a_malformed_file_exits_2_with_all_that_is_wrong(folder: Path) -> None:
    """All problems of all files are on stderr, and the readable files are still played."""
    bad = folder / "bad.yaml"
    bad.write_text(ONE_POD.replace("given:", "givn:").replace("evicted: 40", "evictd: 40"))
    result = run(str(folder / "below"), str(bad), str(folder / "holds.yaml"))
    assert result.exit_code == 2
    assert f"{bad}:2: unknown key 'givn' in a scenario; did you mean 'given'?" in result.stderr
    assert f"{bad}:9: unknown key 'evictd' in the expectation of 'web-0'; did you mean 'evicted'?" in result.stderr
    assert "2 scenarios: 1 as expected, 1 not" in result.stdout


def test_a_folder_is_walked_and_summed_up(folder: Path) -> None:
    """Each scenario of a folder has one line; only a broken one shows its timeline."""
    result = run(str(folder))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[-1] == "2 scenarios: 1 as expected, 1 not"
    assert lines.count("ok  holds: One pod, one taint.") == 1
    assert sum("evicted        default/web-0" in line for line in lines) == 1


def test_a_dash_reads_stdin() -> None:
    """``-`` as the file reads the scenario from standard input."""
    result = run("-", stdin=ONE_POD)
    assert result.exit_code == 0
    assert result.stdout.startswith("ok  -: One pod")


def test_json_is_one_document_for_machines(folder: Path) -> None:
    """The document has the scenario, the timeline and the expectations of each replay."""
    result = run("-o", "json", str(folder))
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["ok"], document["failed"], document["problems"]) == (1, 1, [])
    failed, ok = document["replays"]
    assert (failed["scenario"], ok["scenario"]) == ("breaks", "holds")
    assert failed["expectations"] == [
        {"pod": "default/web-0", "line": 9, "expected": "evicted at 35", "seen": "evicted at 40.030", "ok": False}
    ]
    evicted = [entry for entry in ok["timeline"] if entry["what"] == "evicted"]
    assert evicted == [
        {"at": 40.03, "what": "evicted", "subject": "default/web-0", "uid": "default-web-0-1", "why": "from node-1"}
    ]
    scheduled = next(entry for entry in ok["timeline"] if entry["what"] == "scheduled")
    assert scheduled["dueAt"] == 40.005


def test_json_has_the_problems_of_files(folder: Path) -> None:
    """Each problem has its file, its line and a text."""
    (folder / "bad.yaml").write_text("about: x\n")
    result = run("-o", "json", str(folder / "bad.yaml"))
    assert result.exit_code == 2
    assert json.loads(result.stdout)["problems"] == [
        {"file": str(folder / "bad.yaml"), "line": 1, "what": "a scenario lacks 'expect'"},
        {"file": str(folder / "bad.yaml"), "line": 1, "what": "a scenario lacks 'given'"},
    ]


def test_a_file_that_cannot_be_read_exits_2(tmp_path: Path) -> None:
    """A missing file, an empty folder and a binary file each give one line on stderr and no traceback."""
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
    """A step that proves impossible during the replay counts as malformed."""
    file = tmp_path / "late.yaml"
    file.write_text(ONE_POD.replace("expect:", "  - at: 50\n    delete: web-0\nexpect:"))
    result = run(str(file))
    assert result.exit_code == 2
    assert result.stderr == f'{file}:9: at 50: pods "web-0" not found\n'


MANY = """\
about: More pods than anybody reads about second by second.
given:
  nodes: [node-1]
  pods:
    - {name: "web-{0..20}", nodeName: node-1, tolerations: [maintenance for 30]}
    - {name: db-0, nodeName: node-1, tolerations: [maintenance]}
    - {name: cache-0, nodeName: node-1, tolerations: [maintenance for 5000]}
timeline:
  - at: 10
    taint: node-1 maintenance=now:NoExecute
expect:
  web-*: {evicted: 40}
  db-0: {notEvicted: true}
until: 60
"""


def test_many_pods_have_a_line_each(tmp_path: Path) -> None:
    """With many pods, the output has one line per pod with its end, and no timeline."""
    file = tmp_path / "many.yaml"
    file.write_text(MANY)
    result = run(str(file))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "ok  many: More pods than anybody reads about second by second.",
        "  ok      default/cache-0  stays on node-1, due at 5010.005",
        "  ok      default/db-0     stays on node-1",
    ]
    assert "  ok      default/web-0    evicted at 40.030" in lines
    assert len(lines) == 1 + 23 + 1
    assert lines[-1] == "23 pods: --timeline shows what happened second by second"


def test_the_option_timeline_shows_the_timeline_of_many_pods(tmp_path: Path) -> None:
    """With ``--timeline`` the output for many pods is as detailed as for few."""
    file = tmp_path / "many.yaml"
    file.write_text(MANY)
    lines = run(str(file), "--timeline").stdout.splitlines()
    assert "     10.000  step           taint node-1 maintenance=now:NoExecute" in lines
    assert "  ok      default/db-0: not evicted" in lines


def test_a_failure_among_many_pods_is_shown_in_full(tmp_path: Path) -> None:
    """After the lines of the pods, the output has what was expected and seen; with several files it has only that."""
    file = tmp_path / "many.yaml"
    file.write_text(MANY.replace("db-0: {notEvicted: true}", "db-0: {evicted: 40}"))
    (tmp_path / "other.yaml").write_text(ONE_POD)
    failed = [
        f"  FAILED  default/db-0 ({file}:13)",
        "            expected: evicted at 40",
        "            seen:     never evicted",
    ]
    alone = run(str(file)).stdout.splitlines()
    assert "  FAILED  default/db-0     stays on node-1" in alone
    assert alone[-4:-1] == failed
    assert run(str(tmp_path)).stdout.splitlines()[1:-3] == failed


def test_an_expectation_that_nothing_happens_is_shown_as_never(tmp_path: Path) -> None:
    """An empty list in an expectation is shown as ``never evicted``, ``never marked`` and so on."""
    file = tmp_path / "never.yaml"
    expected = "{evicted: [], marked: [], blocked: [], scheduled: [], lateAtMost: 1}\n  breaker: {opened: []}"
    file.write_text(
        ONE_POD.replace("{evicted: 40}", expected).replace("  - at: 10", "  - at: 50").replace("for 30", "")
    )
    out = run(str(file)).stdout
    for said in ("never evicted", "never marked", "never blocked", "never scheduled"):
        assert f"  ok      default/web-0: {said}" in out
    assert "  ok      breaker: never opened" in out
    assert "            seen:     never evicted" in out


def test_progress_is_shown_in_one_line_and_removed() -> None:
    """On a terminal, a replay of several files shows which one is played."""
    written = StringIO()
    written.isatty = lambda: True  # type: ignore[method-assign]
    with playing_progress(2, written) as play:
        play("one.yaml")
        play("two.yaml")
    parts = written.getvalue().split("\r")
    assert [part.rstrip() for part in parts] == ["", "playing 1 of 2: one.yaml", "playing 2 of 2: two.yaml", "", ""]


@pytest.mark.parametrize(("files", "terminal"), [(1, True), (2, False)])
def test_progress_is_shown_neither_for_one_file_nor_in_a_pipe(files: int, terminal: bool) -> None:
    """Progress is only of use on a terminal, and only with several files."""
    written = StringIO()
    written.isatty = lambda: terminal  # type: ignore[method-assign]
    with playing_progress(files, written) as play:
        play("one.yaml")
    assert written.getvalue() == ""


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ("One pod", "One \x01pod", "1: it is not valid YAML: unacceptable character #x0001"),
        ("{evicted: 40}", "{evicted: 4\x010}", "9: it is not valid YAML: unacceptable character #x0001"),
        ("at: 10", "at: !!int x", "6: it is not valid YAML: invalid literal for int() with base 10: 'x'"),
        ("[{name", "[{name: web-0, nodeName: node-1},\n    {name", "5: 'web-0' is given twice"),
        ("[node-1]", "[node-1,\n    node-2, node-1]", "4: 'node-1' is given twice"),
        ("evicted: 40", "evicted: soon", "9: evicted must be seconds (90) or a duration (1m30s, 500ms), not 'soon'"),
        ("{evicted: 40}", "{evicted: 40", "10: expected ',' or '}', but got '<stream end>'"),
        ("taint: node-1", "tant: node-1", "7: unknown key 'tant' in a step; did you mean 'taint'?"),
        ("[{name: web-0,", "[{", "9: no pod of this scenario is called 'web-0'; there is none"),
    ],
)
def test_each_problem_has_its_line(tmp_path: Path, good: str, bad: str, problem: str) -> None:
    """Problems of syntax, structure and names begin with file and line, as those of compilers do."""
    file = tmp_path / "bad.yaml"
    assert good in ONE_POD
    file.write_text(ONE_POD.replace(good, bad, 1))
    result = run(str(file))
    assert result.exit_code == 2
    assert any(line.startswith(f"{file}:{problem}") for line in result.stderr.splitlines()), result.stderr
    assert result.stdout == ""


def test_nothing_to_play_is_a_usage_error() -> None:
    """Without a file the command exits with code 2."""
    assert run().exit_code == 2
