"""The demo's views: a table that updates in a terminal, plain lines when piped, or JSON."""

import json
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from types import TracebackType
from typing import Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from taint_eviction.cli.visible import visible
from taint_eviction_lab.simulation.demo import PODS, DemoFact

_COLOURS = {
    "tainted": "bold red",
    "untainted": "bold green",
    "scheduled": "yellow",
    "cancelled": "green",
    "evicted": "red",
    "created": "cyan",
}
_LINES = 14


class View(AbstractContextManager["View"], Protocol):
    """Shows facts as they happen, between enter and exit."""

    def show(self, fact: DemoFact) -> None:
        """Show one more fact."""
        ...


def make_view(output: str) -> View:
    """Choose the view: ``json``; for ``table``, one that fits stdout."""
    if output == "json":
        return JsonLines()
    return LiveTable() if sys.stdout.isatty() else PlainLines()


class _Quiet:
    """Needs nothing at enter and exit."""

    def __enter__(self) -> "View":
        return self  # type: ignore[return-value]  # Its subclasses show.

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class JsonLines(_Quiet):
    """One fact a line, as JSON."""

    def show(self, fact: DemoFact) -> None:
        """Print a fact."""
        click.echo(json.dumps({**asdict(fact), "at": round(fact.at, 3)}))
        sys.stdout.flush()


class PlainLines(_Quiet):
    """One fact a line, in columns."""

    def show(self, fact: DemoFact) -> None:
        """Print a fact."""
        if fact.what == "deleted":
            return  # The controller's log line follows.
        click.echo(visible(_line(fact)))
        sys.stdout.flush()


def _line(fact: DemoFact) -> str:
    return f"{max(0.0, fact.at):6.2f} s  {fact.what:<10} {fact.pod or fact.node:<7} {fact.text}"


class LiveTable:
    """The pods as they are and the latest facts, redrawn in place."""

    def __init__(self, console: Console | None = None) -> None:
        self._facts: list[DemoFact] = []
        self._states: dict[str, DemoFact] = {}
        self._live = Live(console=console or Console(), refresh_per_second=8, get_renderable=self._draw)

    def __enter__(self) -> "LiveTable":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, fact: DemoFact) -> None:
        """Put a fact into the table."""
        if fact.what == "deleted":
            return
        fact = replace(fact, text=visible(fact.text))
        self._facts.append(fact)
        if fact.pod:
            self._states[fact.pod] = fact

    def _draw(self) -> Group:
        pods = Table("pod", "what it tolerates", "state", "since", "why", title="node-a and its pods", expand=True)
        for pod in PODS:
            last = self._states.get(pod.name)
            colour = _COLOURS.get(last.what, "") if last else ""
            state = (last.what, f"{max(0.0, last.at):.1f} s", last.text) if last else ("runs", "", "")
            pods.add_row(pod.name, pod.about, Text(state[0], style=colour), state[1], state[2])
        lines = [Text(_line(fact), style=_COLOURS.get(fact.what, "")) for fact in self._facts[-_LINES:]]
        return Group(pods, *lines)
