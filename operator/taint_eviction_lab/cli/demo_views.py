"""The demo's views: a table that updates in a terminal, plain lines when piped, or documents for programs."""

import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from types import TracebackType
from typing import Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from taint_eviction.cli.visible import visible
from taint_eviction_ctl.cli.documents import stream_document
from taint_eviction_lab.simulation.demo import IN_TIME_SECONDS, SHOP, DemoFact, DemoPod, Side, late_by

_RIGHT, _WRONG, _WAITS = "green", "red", "yellow"
_STYLES = {"gave up": "red", "stopped": "green", "step": "bold"}
_TITLE = "The same happens in two clusters. Which controller evicts what?"
_ABOUT = "Left: a model of the one in Kubernetes. Right: this one itself. In real time."
_WHY_LATE = (
    "This controller waits half a second before each eviction, in which its breaker sees a surge. After its restart it"
    " is up to 1.2 s later, and never early: Kubernetes dates in whole seconds, and the time of the API server is known"
    " to a fifth of one."
)


class View(AbstractContextManager["View"], Protocol):
    """Shows facts as they happen, between enter and exit."""

    def show(self, fact: DemoFact) -> None:
        """Show one more fact."""
        ...

    def conclude(self, verdict: Sequence[str], as_told: bool) -> None:
        """Show the verdict."""
        ...


class DemoTable:
    """The pods of both clusters as they are, from the facts; ``now`` is the story's second."""

    def __init__(self, name: str, pods: Sequence[DemoPod], now: Callable[[], float]) -> None:
        self.name = name
        self._rows = [pod for pod in pods if not pod.name.startswith(SHOP)]
        self._shops = [pod for pod in pods if pod.name.startswith(SHOP)]
        self._now = now
        self._evicted: dict[tuple[Side, str], list[float]] = {}
        self._due: dict[tuple[Side, str], float] = {}
        self._deadlines: dict[str, float] = {}
        self._back: set[tuple[Side, str]] = set()
        self._given_up: set[tuple[Side, str]] = set()

    def take_in(self, fact: DemoFact) -> None:
        """Add a fact."""
        key = fact.side, fact.pod
        match fact.what:
            case "evicted":
                self._evicted.setdefault(key, []).append(fact.at)
                self._due.pop(key, None)
                self._back.discard(key)
            case "recreated":
                self._back.add(key)
            case "deadline" if fact.due_at is not None:
                self._deadlines[fact.pod] = fact.due_at
            case "due" if fact.due_at is not None:
                self._due[key] = fact.due_at
            case "not due":
                self._due.pop(key, None)
            case "gave up":
                self._due.pop(key, None)
                self._given_up.add(key)

    def lines(self) -> list[list[tuple[str, str]]]:
        """Return header and rows, each a list of (text, style), all of the same width."""
        header = [
            *(("pod", "dim"), ("what it tolerates", "dim"), ("due at", "dim")),
            *((self.name, "dim"), ("this controller", "dim")),
        ]
        rows = [
            [(pod.name, "bold"), (pod.about, ""), (self._deadline(pod), ""), *self._cells(pod)] for pod in self._rows
        ]
        shop = [(SHOP, "bold"), (self._shops[0].about, ""), ("never", ""), *map(self._shop, _SIDES)]
        return [header, *rows, shop]

    def _deadline(self, pod: DemoPod) -> str:
        due_at = self._deadlines.get(pod.name)
        return "" if due_at is None else f"{due_at:.1f} s"

    def _cells(self, pod: DemoPod) -> list[tuple[str, str]]:
        return [self._cell(side, pod) for side in _SIDES]

    def _cell(self, side: Side, pod: DemoPod) -> tuple[str, str]:
        key = side, pod.name
        evicted = self._evicted.get(key, [])
        if evicted and key not in self._back:
            if len(evicted) > 1:
                return f"{evicted[-1]:.1f} s, once more", _RIGHT
            at, due_at = evicted[0], self._deadlines.get(pod.name, evicted[0])
            return f"{at:.1f} s, {late_by(at, due_at)}", _RIGHT if at - due_at <= IN_TIME_SECONDS else _WRONG
        if key in self._due:
            left = self._due[key] - self._now()
            return f"runs, {left:.0f} s left" if left >= 0.5 else "runs, due now", _WAITS
        if key in self._given_up:
            return "runs, given up", _WRONG
        return "runs again" if evicted else "runs", ""

    def _shop(self, side: Side) -> tuple[str, str]:
        evicted = sum((side, pod.name) in self._evicted for pod in self._shops)
        if evicted == 0:
            return f"{len(self._shops)} run", _RIGHT
        left = len(self._shops) - evicted
        return f"{evicted} evicted" + (f", {left} run" if left else ""), _WRONG


_SIDES = (Side.BUILT_IN, Side.OWN)
_COLUMNS = (8, 22, 8, 22, 19)
# The column that says least, for terminals that are narrower than all columns.
_ABOUT_COLUMN = 1


def table_rows(table: DemoTable, width: int | None = None) -> list[Text]:
    """Return the lines of the table, all of the same width; ``width``: that of the terminal, None: any."""
    left_out = _ABOUT_COLUMN if width is not None and width < 1 + sum(_COLUMNS) else None
    rows = []
    for cells in table.lines():
        row = Text(" ", no_wrap=True, overflow="ellipsis")
        for number, ((text, style), wide) in enumerate(zip(cells, _COLUMNS, strict=True)):
            if number != left_out:
                row.append(f"{visible(text):<{wide}}", style=style)
        rows.append(row)
    return rows


def make_view(output: str, table: DemoTable) -> View:
    """Choose the view: documents; for ``table``, one that fits stdout."""
    if output != "table":
        return Documents(output)
    return LiveTable(table) if sys.stdout.isatty() else PlainLines(table)


class _Quiet:
    """A view that does nothing at enter and exit."""

    def __enter__(self) -> "View":
        return self  # type: ignore[return-value]  # Its subclasses have the other methods of a view.

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Documents(_Quiet):
    """One document per fact, as JSON or YAML."""

    def __init__(self, output: str) -> None:
        self._output = output

    def show(self, fact: DemoFact) -> None:
        """Print a fact."""
        due_at = None if fact.due_at is None else round(fact.due_at, 3)
        said = {**asdict(fact), "side": fact.side.value, "at": round(fact.at, 3), "due_at": due_at}
        stream_document(said, self._output)

    def conclude(self, verdict: Sequence[str], as_told: bool) -> None:
        """Print the verdict."""
        stream_document({"what": "verdict", "as_told": as_told, "lines": list(verdict)}, self._output)


class PlainLines(_Quiet):
    """One line per fact, in columns, and the table at the end."""

    def __init__(self, table: DemoTable) -> None:
        self._table = table

    def __enter__(self) -> View:
        click.echo(f"{_TITLE}\n{_ABOUT}\n")
        return self

    def show(self, fact: DemoFact) -> None:
        """Print a fact."""
        self._table.take_in(fact)
        if fact.text:
            click.echo(visible(_line(fact)))
            sys.stdout.flush()

    def conclude(self, verdict: Sequence[str], as_told: bool) -> None:
        """Print the table and the verdict."""
        click.echo()
        for row in table_rows(self._table):
            click.echo(row.plain.rstrip())
        click.echo()
        for text in (_WHY_LATE, "", *verdict):
            click.echo("\n".join(_indented(text, _WIDTH)))


# How wide texts are at most.
_WIDTH = 79
# Where the text of a line begins.
_TEXT_AT = 20


def _line(fact: DemoFact) -> str:
    return f"{max(0.0, fact.at):6.1f} s  {fact.side.value:<8}  {fact.text}"


class LiveTable:
    """The table, redrawn in place at the foot of the screen; the lines scroll above it, and stay there to be read."""

    def __init__(self, table: DemoTable, console: Console | None = None) -> None:
        self._table = table
        self._end: list[Text] = []
        self._console = console or Console()
        self._live = Live(console=self._console, refresh_per_second=8, get_renderable=self._draw)

    def __enter__(self) -> "LiveTable":
        for line, style in ((_TITLE, "bold"), (_ABOUT, "dim"), ("", "")):
            self._console.print(Text(line and f" {line}", style=style))
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, fact: DemoFact) -> None:
        """Add a fact to the table and the lines."""
        self._table.take_in(fact)
        if fact.text:
            hanging = textwrap.wrap(visible(_line(fact)), self._console.width, subsequent_indent=" " * _TEXT_AT)
            self._console.print(Text("\n".join(hanging), style=_STYLES.get(fact.what, "")))

    def conclude(self, verdict: Sequence[str], as_told: bool) -> None:
        """Put below the table why this controller is late at all, and the verdict."""
        style = _RIGHT if as_told else _WRONG
        said = [("", ""), (_WHY_LATE, "dim"), ("", ""), *((line, "bold") for line in verdict[:-1])]
        said.append((verdict[-1], f"bold {style}"))
        self._end = [Text(line, style=style) for text, style in said for line in _indented(text, self._console.width)]

    def _draw(self) -> Group:
        return Group(Text(""), *table_rows(self._table, self._console.width), *self._end)


def _indented(text: str, width: int) -> list[str]:
    """Wrap a text below the table, which begins at the second column."""
    return textwrap.wrap(visible(text), min(width, _WIDTH), initial_indent=" ", subsequent_indent=" ") or [""]
