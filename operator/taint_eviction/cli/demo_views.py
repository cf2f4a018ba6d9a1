"""How the demo is shown: a table that updates in a terminal, plain lines when piped, JSON a fact a line."""

import json
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict
from types import TracebackType
from typing import Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from taint_eviction.simulation.demo import PODS, DemoFact

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
        """Show one more."""
        ...


def make_view(output: str) -> View:
    """Choose the view: ``json``, or for ``table`` what fits where it goes."""
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
        """Print it."""
        click.echo(json.dumps({**asdict(fact), "at": round(fact.at, 3)}))
        sys.stdout.flush()


class PlainLines(_Quiet):
    """One fact a line, in columns."""

    def show(self, fact: DemoFact) -> None:
        """Print it."""
        if fact.what == "deleted":
            return  # the controller's own word follows
        click.echo(f"{max(0.0, fact.at):6.2f} s  {fact.what:<10} {fact.pod or fact.node:<7} {fact.text}")
        sys.stdout.flush()


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
        """Take it into the picture."""
        if fact.what == "deleted":
            return
        self._facts.append(fact)
        if fact.pod:
            self._states[fact.pod] = fact

    def _draw(self) -> Group:
        pods = Table("pod", "what it tolerates", "state", "since", "why", title="node-a and its pods", expand=True)
        for pod in PODS:
            fact = self._states.get(pod.name)
            colour = _COLOURS.get(fact.what, "") if fact else ""
            state = (fact.what, f"{max(0.0, fact.at):.1f} s", fact.text) if fact else ("runs", "", "")
            pods.add_row(pod.name, pod.about, Text(state[0], style=colour), state[1], state[2])
        lines = [
            Text(f"{max(0.0, f.at):6.2f} s  {f.what:<10} {f.pod or f.node:<7} {f.text}", style=_COLOURS.get(f.what, ""))
            for f in self._facts[-_LINES:]
        ]
        return Group(pods, *lines)
