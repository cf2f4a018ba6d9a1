"""The demo's views: one fact a line as JSON, plain lines, and a table that is redrawn in place."""

import io
import json
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

from taint_eviction_lab.cli.demo import demo
from taint_eviction_lab.cli.demo_views import DemoTable, JsonLines, LiveTable, PlainLines, table_rows
from taint_eviction_lab.simulation.demo import API, CACHE, QUEUE, SHOPS, WEB, DemoFact, Side

PODS = (WEB, CACHE, API, QUEUE, *SHOPS)
VERDICT = ("Built-in 1.36: cache 4 s late", "This controller: each pod in its time", "All went as told.")
FACTS = (
    DemoFact(1.0, Side.BOTH, "step", "node-a is tainted"),
    DemoFact(1.0, Side.BUILT_IN, "due", "counts down for cache, 10 s", "cache", due_at=11.0),
    DemoFact(4.02, Side.OWN, "evicted", "web is evicted", "web", "uid-1"),
    DemoFact(4.1, Side.BUILT_IN, "gave up", "api is given up", "api"),
    DemoFact(4.2, Side.OWN, "evicted", "queue-0 is evicted", "queue-0"),
    DemoFact(4.3, Side.OWN, "recreated", "queue-0 is recreated", "queue-0"),
    DemoFact(4.4, Side.BUILT_IN, "evicted", "", "shop-3"),
)


def table(now: float = 5.0) -> DemoTable:
    """Make the table of a story that is at this second."""
    return DemoTable("model of built-in 1.36", PODS, lambda: now)


def shown(now: float = 5.0) -> list[list[str]]:
    """Show all facts and return the cells of the rows."""
    known = table(now)
    for fact in FACTS:
        known.take_in(fact)
    return [re.split(r"\s{2,}", row.plain.strip()) for row in table_rows(known)]


def test_json_is_one_fact_a_line_and_then_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line is a JSON object with the time, the side, what happened, and the pod."""
    view = JsonLines()
    for fact in FACTS[:3]:
        view.show(fact)
    view.conclude(VERDICT, as_told=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(fact["at"], fact["side"], fact["what"], fact["pod"]) for fact in told[:3]] == [
        (1.0, "both", "step", ""),
        (1.0, "built-in", "due", "cache"),
        (4.02, "this one", "evicted", "web"),
    ]
    assert told[3] == {"what": "verdict", "as_told": True, "lines": list(VERDICT)}


def test_plain_lines_name_time_where_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line is readable by itself, a fact without a text has no line, and the verdict comes last."""
    with PlainLines(table()) as view:
        for fact in FACTS:
            view.show(fact)
        view.conclude(VERDICT, as_told=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:6] == [
        "   1.0 s  both      node-a is tainted",
        "   1.0 s  built-in  counts down for cache, 10 s",
        "   4.0 s  this one  web is evicted",
    ]
    assert not [line for line in lines if "shop-3" in line]
    assert lines[-3:] == [f" {line}" for line in VERDICT]
    assert max(map(len, lines)) < 80


def test_table_says_of_each_pod_whether_it_runs() -> None:
    """Each pod has a state for each controller, and the pods of the shop share a row."""
    assert shown() == [
        ["pod", "what it tolerates", "model of built-in 1.36 this controller"],
        ["web", "tolerates no taint", "runs", "evicted at 4.0 s"],
        ["cache", "tolerates it for 10 s runs, 6 s left", "runs"],
        ["api", "tolerates no taint", "runs, given up", "runs"],
        ["queue-0 2 s; is recreated", "runs", "runs again"],
        ["shop", "8 pods on 8 nodes", "1 evicted, 7 run", "8 run"],
    ]
    assert shown(11.2)[2][1] == "tolerates it for 10 s runs, due now"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 12)])
def test_live_table_keeps_its_height_and_never_wraps(width: int, height: int) -> None:
    """Each frame has as many lines as the first one, fits the screen (or 16 lines), and shows the newest line."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, height=height)
    view = LiveTable(table(), screen)
    heights = []
    for number in range(40):
        view.show(DemoFact(float(number), Side.OWN, "step", f"line {number} " + "and so on " * 20))
        frame = screen.render_lines(view._draw())
        heights.append(len(frame))
        assert any(f"line {number} " in "".join(part.text for part in line) for line in frame)
    view.conclude(VERDICT, as_told=False)
    heights.append(len(screen.render_lines(view._draw())))
    assert set(heights) == {heights[0]}
    assert heights[0] < max(height, 16)


def test_a_version_that_is_not_modelled_is_refused() -> None:
    """The error names the versions that are modelled."""
    result = CliRunner().invoke(demo, ["--built-in", "1.28"])
    assert result.exit_code == 2
    assert "a version of Kubernetes from 1.32 to 1.38" in result.stderr
