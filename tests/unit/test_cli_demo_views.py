"""The demo's views: one fact a line as JSON, plain lines, and a table that is redrawn in place."""

import io
import json

import pytest
from rich.console import Console

from taint_eviction_lab.cli.demo_views import JsonLines, LiveTable, PlainLines
from taint_eviction_lab.simulation.demo import PODS, DemoFact

FACTS = (
    DemoFact(1.0, "tainted", "maintenance=now:NoExecute", node="node-a"),
    DemoFact(4.02, "evicted", "0.02 s after its deadline", "db-0", "node-a", "uid-1"),
)


def test_json_is_one_fact_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line is a JSON object with the time, what happened, and to whom."""
    view = JsonLines()
    for fact in FACTS:
        view.show(fact)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(fact["at"], fact["what"], fact["pod"], fact["node"]) for fact in told] == [
        (1.0, "tainted", "", "node-a"),
        (4.02, "evicted", "db-0", "node-a"),
    ]


def test_plain_lines_name_time_what_and_whom(capsys: pytest.CaptureFixture[str]) -> None:
    """A line is readable without its neighbours."""
    view = PlainLines()
    for fact in FACTS:
        view.show(fact)
    assert capsys.readouterr().out.splitlines() == [
        "  1.00 s  tainted    node-a  maintenance=now:NoExecute",
        "  4.02 s  evicted    db-0    0.02 s after its deadline",
    ]


def test_table_shows_every_pod_and_the_latest_facts() -> None:
    """In a terminal all pods are there from the start, with the state that the facts gave them."""
    screen = io.StringIO()
    with LiveTable(Console(file=screen, force_terminal=True, width=140)) as view:
        for fact in FACTS:
            view.show(fact)
    shown = screen.getvalue()
    assert all(pod.name in shown for pod in PODS)
    assert "0.02 s after its deadline" in shown
