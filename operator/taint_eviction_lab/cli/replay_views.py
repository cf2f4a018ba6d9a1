"""How ``replay`` shows results to people: headings, timelines or a line per pod, and expectations."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

import click

from taint_eviction.cli.visible import visible
from taint_eviction.core.text import many
from taint_eviction_lab.cli.comparison_views import comparison_lines
from taint_eviction_lab.simulation.against import AgainstModel
from taint_eviction_lab.simulation.expectations import PodTimeline, Verdict, happens, seconds_of
from taint_eviction_lab.simulation.replay import ReplayResult
from taint_eviction_lab.simulation.timeline import TimelineEntry, What

# For more pods a timeline is too long to read.
_MAX_PODS = 20
_MAX_WIDTH = 40
_PROGRESS_WIDTH = 78
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


@contextmanager
def playing_progress(count: int, stderr: TextIO) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows which of ``count`` files is played: in place, and only on a terminal."""
    told = 0

    def begin(file: str) -> None:
        nonlocal told
        told += 1
        text = visible(f"playing {told} of {count}: {file}")[:_PROGRESS_WIDTH]
        click.echo(f"\r{text:<{_PROGRESS_WIDTH}}", file=stderr, nl=False)

    if count < 2 or not stderr.isatty():
        yield lambda _: None
        return
    try:
        yield begin
    finally:
        click.echo(f"\r{'':<{_PROGRESS_WIDTH}}\r", file=stderr, nl=False)


def print_results(
    results: Sequence[ReplayResult], comparisons: Mapping[str, AgainstModel], whole_timeline: bool
) -> None:
    """Print the results; ``whole_timeline``: print the whole timeline even for many pods."""
    alone = len(results) == 1
    for result in results:
        _print_heading(result)
        if alone or result.broken:
            if whole_timeline or len(result.histories) <= _MAX_PODS:
                _print_timeline(result.timeline)
                _print_verdicts(result, result.verdicts if alone else result.broken)
                click.echo()
            else:
                _print_pods(result, alone)
        if (comparison := comparisons.get(result.scenario.file)) is not None:
            for line in comparison_lines(comparison, whole=alone):
                click.echo(line)
    if len(results) > 1:
        ok = sum(not result.broken for result in results)
        click.echo(f"{len(results)} scenarios: {ok} as expected, {len(results) - ok} not")
    if len(results) > 1 and comparisons:
        differing = sum(bool(comparison.differing) for comparison in comparisons.values())
        click.echo(f"{differing} of them end otherwise with the model of the built-in controller")


def _print_heading(result: ReplayResult) -> None:
    about = visible(" ".join(result.scenario.about.split()))
    click.echo(f"{_mark(not result.broken)}  {click.style(visible(result.scenario.name), bold=True)}: {about}")


def _mark(ok: bool) -> str:
    return click.style("ok", fg="green") if ok else click.style("FAILED", fg="red", bold=True)


# A line per pod


def _print_pods(result: ReplayResult, alone: bool) -> None:
    """Print the outcome of each pod; for several files only failures."""
    names = {history.name for history in result.histories}
    failed = {verdict.pod for verdict in result.broken}
    width = min(max(len(visible(name)) for name in names), _MAX_WIDTH)
    for history in result.histories if alone else ():
        mark = f"{_mark(history.name not in failed)}{'' if history.name in failed else '    '}"
        click.echo(f"  {mark}  {visible(history.name):<{width}}  {visible(_became(history))}")
    others = [verdict for verdict in result.verdicts if verdict.pod not in names]
    _print_verdicts(result, [verdict for verdict in (others if alone else ()) if verdict.met])
    _print_verdicts(result, result.broken)
    click.echo(f"{many(len(result.histories), 'pod')}: --timeline shows what happened second by second")


def _became(history: PodTimeline) -> str:
    """Return the outcome of a pod, and when it came."""
    evicted = history.of(What.EVICTED)
    told = [happens("evicted", seconds_of(evicted))] if evicted else []
    if not evicted and (gone := history.of(What.GONE)):
        told.append(f"gone at {seconds_of(gone)}, not evicted")
    elif history.ends.startswith("on "):
        told.append(f"{'then on' if evicted else 'stays on'} {history.ends.removeprefix('on ')}")
        told += _due(history)
    elif history.ends != "gone":
        told.append(history.ends)
    return ", ".join(told)


def _due(history: PodTimeline) -> list[str]:
    """Return when the pod is due, if the last entry about its deadline says that it has one."""
    said = history.of(What.SCHEDULED, What.CANCELLED, What.DROPPED, What.SAID_EVICTED)
    return [f"due at {said[-1].due_at or 0.0:.3f}"] if said and said[-1].what is What.SCHEDULED else []


# Second by second


def _print_timeline(entries: Sequence[TimelineEntry]) -> None:
    subjects = {entry: visible(_subject(entry)) for entry in entries}
    width = min(max((len(subjects[entry]) for entry in entries if entry.what is not What.STEP), default=0), _MAX_WIDTH)
    for entry in entries:
        what = click.style(f"{entry.what.value:<13}", fg=_COLOURS.get(entry.what))
        click.echo(f"{entry.at:>11.3f}  {what}  {subjects[entry]:<{width}}  {visible(_detail(entry))}".rstrip())


def _subject(entry: TimelineEntry) -> str:
    """Return the name of a pod or node; with the UID if the pod was recreated under its name."""
    return entry.subject if not entry.uid or entry.uid.endswith("-1") else f"{entry.subject} [{entry.uid}]"


def _detail(entry: TimelineEntry) -> str:
    parts = []
    if entry.due_at is not None:
        parts.append(f"for {entry.due_at:.3f}:")
    if entry.late_seconds is not None:
        parts.append(f"{entry.late_seconds:.3f} s late:")
    return " ".join([*parts, entry.why])


# Expectations


def _print_verdicts(result: ReplayResult, verdicts: Sequence[Verdict]) -> None:
    if not result.verdicts:
        click.echo("  nothing is expected here, so that nothing can fail")
    for verdict in verdicts:
        if verdict.met:
            click.echo(f"  {_mark(True)}      {visible(f'{verdict.pod}: {verdict.expected}')}")
            continue
        place = f"{result.scenario.file}:{verdict.line}" if verdict.line else result.scenario.file
        click.echo(f"  {_mark(False)}  {visible(f'{verdict.pod} ({place})')}")
        click.echo(f"            expected: {visible(verdict.expected)}")
        click.echo(f"            seen:     {visible(verdict.seen)}")
