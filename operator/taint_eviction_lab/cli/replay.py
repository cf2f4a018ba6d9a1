"""``taint-eviction replay``: plays scenario files, prints their timelines, and checks what they expect.

The format is in ``simulation.scenario``, the player in ``simulation.replay``.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from taint_eviction.cli.connection import flag
from taint_eviction.cli.exit_codes import ExitCode
from taint_eviction.cli.visible import visible
from taint_eviction.files.marked_yaml import Malformed, Problem, decoded
from taint_eviction_ctl.cli.documents import echo_document
from taint_eviction_ctl.cli.flags import NO_HEADERS_FLAG, output_flag, verb
from taint_eviction_ctl.cli.pictures import html_option, write_page, write_text
from taint_eviction_lab.built_in.version import MEASURED, BuiltInVersion, read_version
from taint_eviction_lab.cli.records import record_in
from taint_eviction_lab.cli.replay_views import playing_progress, print_results
from taint_eviction_lab.history.record import RunRecord
from taint_eviction_lab.history.to_scenario import scenario_text
from taint_eviction_lab.picture.of_history import picture_of_record
from taint_eviction_lab.picture.of_replay import picture_of_replay
from taint_eviction_lab.simulation.against import AgainstModel
from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_against, replay_scenario

_STDIN = "-"
_SUFFIXES = (".yaml", ".yml")


def _read_against(_: click.Context, __: click.Parameter, value: str | None) -> BuiltInVersion | None:
    if value is None:
        return None
    name, _equals, version = value.partition("=")
    if name != "built-in":
        raise click.BadParameter(f"{value!r} is not built-in, or built-in=1.36")
    try:
        return read_version(version) if _equals else MEASURED
    except ValueError as expected:
        raise click.BadParameter(f"{version!r} is not {expected}") from expected


@verb()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@output_flag("table", "json", "yaml", text="Timelines for people, or one document for programs.")
@NO_HEADERS_FLAG
@flag("--timeline", is_flag=True, help="Show what happened second by second, also for many pods.")
@html_option
@click.option(
    "--to-scenario",
    metavar="FILE",
    allow_from_autoenv=False,
    help="Also write a record as a scenario, to change and keep.",
)
@click.option(
    "--against",
    metavar="built-in[=1.36]",
    callback=_read_against,
    help="Play each file also through a model of Kubernetes' own controller (1.32 to 1.38), in a cluster of its own, "
    "and compare pod by pod.",
)
def replay(
    files: tuple[str, ...],
    *,
    output: str,
    no_headers: bool,
    timeline: bool,
    html: str | None,
    to_scenario: str | None,
    against: BuiltInVersion | None,
) -> None:
    """Play scenarios on a virtual clock.

    A scenario FILE lists nodes and pods, what happens when, and which pods are expected to be evicted. It is played
    through the controller itself against a simulated cluster; an hour takes a moment. In directories, every *.yaml is a
    scenario; - is stdin.

    Records are played, too: a journal (run --journal), an audit log (run --audit-log) or a log (run --log-format json).
    The controller is expected to do the same as in the record.
    For a single file the output shows what happened second by second, or, with more than 20 pods, one line per pod. For
    several files it shows this only for those in which an expectation fails.

    Exit codes: 0 all as expected; 1 an expectation fails; 2 wrong usage, or a file is malformed.
    """
    # The timeline shows what the controller logs.
    logging.getLogger("taint_eviction").addHandler(logging.NullHandler())
    records: dict[str, RunRecord] = {}
    comparisons: dict[str, AgainstModel] = {}
    results, problems = _play(files, records, against, comparisons)
    _write(results, records, html, to_scenario)
    if output == "table":
        print_results(results, comparisons, timeline)
    else:
        echo_document(_document(results, problems, comparisons), output)
    for problem in problems:
        click.echo(visible(str(problem)), err=True)
    if problems:
        sys.exit(ExitCode.USAGE)
    sys.exit(ExitCode.FAILED if any(result.broken for result in results) else ExitCode.OK)


def _write(
    results: Sequence[ReplayResult], records: Mapping[str, RunRecord], html: str | None, to_scenario: str | None
) -> None:
    """Write the picture and the scenario that were asked for; for a record, the picture shows the record itself."""
    if (html or to_scenario) and max(len(results), len(records)) > 1:
        raise click.UsageError("--html and --to-scenario take one scenario or record, not several")
    record = next(iter(records.values()), None)
    if to_scenario:
        if record is None:
            raise click.UsageError("--to-scenario takes a journal or a log, not a scenario")
        write_text(to_scenario, scenario_text(record))
    if html and record is not None:
        write_page(html, picture_of_record(record))
    elif html and results:
        write_page(html, picture_of_replay(results[0]))


def _play(
    files: Sequence[str],
    records: dict[str, RunRecord],
    against: BuiltInVersion | None,
    comparisons: dict[str, AgainstModel],
) -> tuple[list[ReplayResult], list[Problem]]:
    """Play all files; put records among them into ``records``, and comparisons into ``comparisons``."""
    results: list[ReplayResult] = []
    problems: list[Problem] = []
    found = [file for name in files for file in _found(name)]
    with playing_progress(len(found), sys.stderr) as begin:
        for file in found:
            begin(file)
            try:
                scenario = read_scenario(_text(file, records), file)
                if against is None:
                    results.append(replay_scenario(scenario))
                else:
                    result, comparisons[file] = replay_against(scenario, against)
                    results.append(result)
            except Malformed as malformed:
                problems += malformed.problems
            except OSError as error:
                problems.append(Problem(file, 1, f"cannot be read: {error.strerror or error}"))
    return results, problems


def _found(name: str) -> list[str]:
    """Return the scenario files below a directory; a file, stdin or an empty directory is returned as it is."""
    if name == _STDIN or not Path(name).is_dir():
        return [name]
    found = sorted(file for file in Path(name).rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    return [str(file) for file in found] or [name]


def _text(file: str, records: dict[str, RunRecord]) -> str:
    if file != _STDIN and Path(file).is_dir():
        raise Malformed([Problem(file, 1, "there is no *.yaml in this directory")])
    raw = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    record = record_in(raw, file)
    if record is not None:
        records[file] = record
        return scenario_text(record)
    return decoded(raw, file)


# For machines


def _document(
    results: Sequence[ReplayResult], problems: Sequence[Problem], comparisons: Mapping[str, AgainstModel]
) -> dict[str, Any]:
    return {
        "replays": [_replay_document(result, comparisons.get(result.scenario.file)) for result in results],
        "problems": [{"file": problem.file, "line": problem.line, "what": problem.what} for problem in problems],
        "ok": sum(not result.broken for result in results),
        "failed": sum(bool(result.broken) for result in results),
    }


def _replay_document(result: ReplayResult, comparison: AgainstModel | None) -> dict[str, Any]:
    return result.as_json() if comparison is None else {**result.as_json(), "against": comparison.as_json()}
