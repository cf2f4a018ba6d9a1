"""The demo's views: a table that updates in a terminal, plain lines when piped, or JSON."""

import json
import sys
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
from taint_eviction_lab.simulation.demo import SHOP, DemoFact, DemoPod, Side

_STYLES = {"evicted": "red", "runs": "green", "gave up": "bold red", "stopped": "bold green", "step": "bold"}
# How many lines of recent facts are shown; fewer in a terminal of fewer than 24 lines.
_LINES, _MIN_LINES = 13, 4
_TITLE = "The same happens in two clusters. Which controller evicts what?"
_ABOUT = "Left: a model of the one in Kubernetes. Right: this one itself. In real time."


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
            case "due" if fact.due_at is not None:
                self._due[key] = fact.due_at
            case "not due":
                self._due.pop(key, None)
            case "gave up":
                self._due.pop(key, None)
                self._given_up.add(key)

    def lines(self) -> list[list[tuple[str, str]]]:
        """Return header and rows, each a list of (text, style), all of the same width."""
        header = [("pod", "dim"), ("what it tolerates", "dim"), (self.name, "dim"), ("this controller", "dim")]
        rows = [
            [(pod.name, "bold"), (pod.about, ""), self._cell(Side.BUILT_IN, pod), self._cell(Side.OWN, pod)]
            for pod in self._rows
        ]
        shop = [(SHOP, "bold"), (self._shops[0].about, ""), self._shop(Side.BUILT_IN), self._shop(Side.OWN)]
        return [header, *rows, shop]

    def _cell(self, side: Side, pod: DemoPod) -> tuple[str, str]:
        key = side, pod.name
        evicted = self._evicted.get(key, [])
        if evicted and key not in self._back:
            again = "again " if len(evicted) > 1 else ""
            return f"evicted {again}at {evicted[-1]:.1f} s", _STYLES["evicted"]
        if key in self._due:
            left = self._due[key] - self._now()
            return f"runs, {left:.0f} s left" if left >= 0.5 else "runs, due now", "yellow"
        if key in self._given_up:
            return "runs, given up", _STYLES["gave up"]
        return "runs again" if evicted else "runs", _STYLES["runs"]

    def _shop(self, side: Side) -> tuple[str, str]:
        evicted = sum((side, pod.name) in self._evicted for pod in self._shops)
        if evicted == 0:
            return f"{len(self._shops)} run", _STYLES["runs"]
        left = len(self._shops) - evicted
        return f"{evicted} evicted" + (f", {left} run" if left else ""), _STYLES["evicted"]


_COLUMNS = (8, 22, 23, 23)


def table_rows(table: DemoTable) -> list[Text]:
    """Return the lines of the table, all of the same width."""
    rows = []
    for cells in table.lines():
        row = Text(" ", no_wrap=True, overflow="ellipsis")
        for (text, style), width in zip(cells, _COLUMNS, strict=True):
            row.append(f"{visible(text):<{width}}", style=style)
        rows.append(row)
    return rows


def make_view(output: str, table: DemoTable) -> View:
    """Choose the view: ``json``; for ``table``, one that fits stdout."""
    if output == "json":
        return JsonLines()
    return LiveTable(table) if sys.stdout.isatty() else PlainLines(table)


class _Quiet:
    """A view that does nothing at enter and exit."""

    def __enter__(self) -> "View":
        return self  # type: ignore[return-value]  # Its subclasses have the other methods of a view.

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class JsonLines(_Quiet):
    """One line per fact, as JSON."""

    def show(self, fact: DemoFact) -> None:
        """Print a fact."""
        due_at = None if fact.due_at is None else round(fact.due_at, 3)
        self._print({**asdict(fact), "side": fact.side.value, "at": round(fact.at, 3), "due_at": due_at})

    def conclude(self, verdict: Sequence[str], as_told: bool) -> None:
        """Print the verdict."""
        self._print({"what": "verdict", "as_told": as_told, "lines": list(verdict)})

    def _print(self, document: object) -> None:
        click.echo(json.dumps(document))
        sys.stdout.flush()


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
        for line in verdict:
            click.echo(f" {visible(line)}")


def _line(fact: DemoFact) -> str:
    return f"{max(0.0, fact.at):6.1f} s  {fact.side.value:<8}  {fact.text}"


class LiveTable:
    """The table and the latest lines, redrawn in place: a constant number of lines that fit the screen."""

    def __init__(self, table: DemoTable, console: Console | None = None) -> None:
        self._table = table
        self._facts: list[DemoFact] = []
        self._verdict: list[Text] = []
        self._console = console or Console()
        self._live = Live(console=self._console, refresh_per_second=8, get_renderable=self._draw)

    def __enter__(self) -> "LiveTable":
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
            self._facts.append(fact)

    def conclude(self, verdict: Sequence[str], as_told: bool) -> None:
        """Put the verdict below the last lines."""
        style = "bold green" if as_told else "bold red"
        self._verdict = [Text(""), *(_cut(f" {visible(line)}", style) for line in verdict)]

    def _draw(self) -> Group:
        title = _cut(f" {_TITLE}", "bold")
        about = _cut(f" {_ABOUT}", "dim")
        rows = table_rows(self._table)
        # Title, about, two blank lines, and the one below for the cursor.
        room = max(_MIN_LINES, min(_LINES, self._console.size.height - len(rows) - 5)) - len(self._verdict)
        latest = self._facts[-room:] if room > 0 else []
        shown = [_cut(visible(_line(fact)), _STYLES.get(fact.what, "")) for fact in latest]
        blank = [Text("") for _ in range(room - len(shown))]
        return Group(title, about, Text(""), *rows, Text(""), *shown, *self._verdict, *blank)


def _cut(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
