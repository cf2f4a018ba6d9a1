"""``taint-eviction replay``: plays scenario files, prints their timelines, and checks what they expect.

Not here: the format (``simulation.scenario``), and how a scenario is played (``simulation.replay``).
"""

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from taint_eviction.cli.pictures import html_option, record_in, write_page, write_text
from taint_eviction.files.marked_yaml import Malformed, Problem, decoded
from taint_eviction.history.record import Record
from taint_eviction.history.to_scenario import scenario_text
from taint_eviction.picture.of_history import picture_of_record
from taint_eviction.picture.of_replay import picture_of_replay
from taint_eviction.simulation.expectations import Verdict
from taint_eviction.simulation.replay import ReplayResult
from taint_eviction.simulation.scenario import read_scenario
from taint_eviction.simulation.timeline import Entry, What
from taint_eviction.wiring_simulation import replay_scenario

EXIT_BROKEN, EXIT_MALFORMED = 1, 2

_STDIN = "-"
_SUFFIXES = (".yaml", ".yml")
_COLOURS = {
    What.EVICTED: "red",
    What.DELETED_AGAIN: "red",
    What.SCHEDULED: "yellow",
    What.CANCELLED: "green",
    What.CALL_FAILED: "magenta",
    What.REFUSED: "magenta",
    What.BLOCKED: "magenta",
    What.BREAKER_OPENED: "red",
    What.BREAKER_CLOSED: "green",
    What.STEP: "cyan",
}


@click.command(context_settings={"auto_envvar_prefix": "TAINT_EVICTION"})
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    show_envvar=True,
    help="Timelines for people, or one JSON document.",
)
@html_option
@click.option("--to-scenario", metavar="FILE", help="Write a record as a scenario file, to change and keep.")
def replay(files: tuple[str, ...], output: str, html: str | None, to_scenario: str | None) -> None:
    """Play scenario FILEs on a virtual clock and check what they expect.

    A scenario says which nodes and pods there are, what happens when, and which pods leave. It is played through the
    controller itself against a simulated cluster, an hour in a moment. Directories are walked for *.yaml; - is stdin.

    A journal (run --journal), an audit log (run --audit-log) or a log (run --log-format json) is a story, too: what the
    controller did then is what is expected now.

    Exit code: 0 all as expected, 1 an expectation was broken, 2 a file is malformed.
    """
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False
    # What the controller logs meanwhile has its place in the timeline.
    logging.getLogger("taint_eviction").addHandler(logging.NullHandler())
    records: dict[str, Record] = {}
    results, problems = _play(files, records)
    _write(results, records, html, to_scenario)
    if output == "json":
        click.echo(json.dumps(_document(results, problems), indent=2))
    else:
        _print_results(results)
    for problem in problems:
        click.echo(str(problem), err=True)
    if problems:
        sys.exit(EXIT_MALFORMED)
    sys.exit(EXIT_BROKEN if any(result.broken for result in results) else 0)


def _write(
    results: Sequence[ReplayResult], records: Mapping[str, Record], html: str | None, to_scenario: str | None
) -> None:
    """Write what was asked for besides: a picture, of what was recorded where it is a record, and its scenario."""
    if (html or to_scenario) and max(len(results), len(records)) > 1:
        raise click.UsageError("--html and --to-scenario take one story, not several")
    record = next(iter(records.values()), None)
    if to_scenario:
        if record is None:
            raise click.UsageError("--to-scenario takes a journal or a log, and this is none")
        write_text(to_scenario, scenario_text(record))
    if html and record is not None:
        write_page(html, picture_of_record(record))
    elif html and results:
        write_page(html, picture_of_replay(results[0]))


def _play(files: Sequence[str], records: dict[str, Record]) -> tuple[list[ReplayResult], list[Problem]]:
    """Play all files; those that are records are put into ``records``."""
    results: list[ReplayResult] = []
    problems: list[Problem] = []
    for file in (found for name in files for found in _found(name)):
        try:
            results.append(replay_scenario(read_scenario(_text(file, records), file)))
        except Malformed as malformed:
            problems += malformed.problems
        except OSError as error:
            problems.append(Problem(file, 1, f"cannot be read: {error.strerror or error}"))
    return results, problems


def _found(name: str) -> list[str]:
    """List the scenario files below a directory; a file, an empty directory, or stdin is itself."""
    if name == _STDIN or not Path(name).is_dir():
        return [name]
    found = sorted(file for file in Path(name).rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    return [str(file) for file in found] or [name]


def _text(file: str, records: dict[str, Record]) -> str:
    if file != _STDIN and Path(file).is_dir():
        raise Malformed([Problem(file, 1, "there is no *.yaml in this directory")])
    raw = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    record = record_in(raw, file)
    if record is not None:
        records[file] = record
        return scenario_text(record)
    return decoded(raw, file)


# For machines


def _document(results: Sequence[ReplayResult], problems: Sequence[Problem]) -> dict[str, Any]:
    return {
        "replays": [result.as_json() for result in results],
        "problems": [{"file": problem.file, "line": problem.line, "what": problem.what} for problem in problems],
        "held": sum(not result.broken for result in results),
        "broken": sum(bool(result.broken) for result in results),
    }


# For people


def _print_results(results: Sequence[ReplayResult]) -> None:
    for result in results:
        _print_heading(result)
        if len(results) == 1 or result.broken:
            _print_timeline(result.timeline)
        for verdict in result.verdicts if len(results) == 1 else result.broken:
            _print_verdict(result, verdict)
        if len(results) == 1 or result.broken:
            click.echo()
    if len(results) != 1:
        held = sum(not result.broken for result in results)
        click.echo(f"{len(results)} scenarios: {held} as expected, {len(results) - held} not")


def _print_heading(result: ReplayResult) -> None:
    mark = click.style("BROKEN", fg="red", bold=True) if result.broken else click.style("ok", fg="green")
    click.echo(f"{mark}  {click.style(result.scenario.name, bold=True)}: {' '.join(result.scenario.about.split())}")


def _print_timeline(entries: Sequence[Entry]) -> None:
    subjects = {entry: _subject(entry) for entry in entries}
    width = min(max((len(subjects[entry]) for entry in entries if entry.what is not What.STEP), default=0), 40)
    for entry in entries:
        what = click.style(f"{entry.what.value:<13}", fg=_COLOURS.get(entry.what))
        click.echo(f"{entry.at:>11.3f}  {what}  {subjects[entry]:<{width}}  {_detail(entry)}".rstrip())


def _subject(entry: Entry) -> str:
    """Name pod or node; of pods that come again under their name, the later ones with their UID."""
    return entry.subject if not entry.uid or entry.uid.endswith("-1") else f"{entry.subject} [{entry.uid}]"


def _detail(entry: Entry) -> str:
    parts = []
    if entry.due_at is not None:
        parts.append(f"for {entry.due_at:.3f}:")
    if entry.late_seconds is not None:
        parts.append(f"{entry.late_seconds:.3f} s late:")
    return " ".join([*parts, entry.why])


def _print_verdict(result: ReplayResult, verdict: Verdict) -> None:
    if verdict.held:
        click.echo(f"  {click.style('held', fg='green')}    {verdict.pod}: {verdict.expected}")
        return
    place = f"{result.scenario.file}:{verdict.line}" if verdict.line else result.scenario.file
    click.echo(f"  {click.style('BROKEN', fg='red', bold=True)}  {verdict.pod} ({place})")
    click.echo(f"            expected: {verdict.expected}")
    click.echo(f"            seen:     {verdict.seen}")
