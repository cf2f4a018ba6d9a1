"""The demo's views: one fact a line as JSON, plain lines, and a table that is redrawn in place."""

import io
import json
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

from taint_eviction_lab.cli.demo import demo
from taint_eviction_lab.cli.demo_views import DemoTable, Documents, LiveTable, PlainLines, table_rows
from taint_eviction_lab.simulation.demo import API, CACHE, QUEUE, SHOPS, WEB, DemoFact, Side, late_by

PODS = (WEB, CACHE, API, QUEUE, *SHOPS)
VERDICT = ("Built-in 1.36: cache 4 s late", "This controller: each pod in its time", "All went as told.")
FACTS = (
    DemoFact(1.0, Side.BOTH, "step", "node-a is tainted"),
    DemoFact(1.0, Side.BUILT_IN, "due", "counts down for cache, 10 s", "cache", due_at=11.0),
    DemoFact(1.04, Side.BOTH, "deadline", "", "web", due_at=1.04),
    DemoFact(1.04, Side.BUILT_IN, "evicted", "web is evicted", "web"),
    DemoFact(4.02, Side.OWN, "evicted", "web is evicted", "web", "uid-1"),
    DemoFact(4.1, Side.BUILT_IN, "gave up", "api is given up", "api"),
    DemoFact(4.2, Side.OWN, "evicted", "queue-0 is evicted", "queue-0"),
    DemoFact(4.3, Side.OWN, "recreated", "queue-0 is recreated", "queue-0"),
    DemoFact(4.4, Side.BUILT_IN, "evicted", "", "shop-3"),
)


def table(now: float = 5.0) -> DemoTable:
    """Make the table of a story that is at this second."""
    return DemoTable("built-in 1.36 (model)", PODS, lambda: now)


def shown(now: float = 5.0, width: int | None = None) -> list[list[str]]:
    """Show all facts and return the cells of the rows."""
    known = table(now)
    for fact in FACTS:
        known.take_in(fact)
    return [re.split(r"\s{2,}", row.plain.strip()) for row in table_rows(known, width)]


def test_json_is_one_fact_a_line_and_then_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line is a JSON object with the time, the side, what happened, and the pod."""
    view = Documents("json")
    for fact in (*FACTS[:2], FACTS[4]):
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
    assert lines[3:7] == [
        "   1.0 s  both      node-a is tainted",
        "   1.0 s  built-in  counts down for cache, 10 s",
        "   1.0 s  built-in  web is evicted",
        "   4.0 s  this one  web is evicted",
    ]
    assert not [line for line in lines if "shop-3" in line]
    assert lines[-3:] == [f" {line}" for line in VERDICT]
    assert max(map(len, lines)) < 80


def test_table_says_of_each_pod_when_it_was_due_and_how_late_it_went() -> None:
    """Each pod has a state for each controller, and the pods of the shop share a row."""
    assert shown() == [
        ["pod", "what it tolerates", "due at", "built-in 1.36 (model) this controller"],
        ["web", "tolerates no taint", "1.0 s", "1.0 s, 0.0 s late", "4.0 s, 3.0 s late"],
        ["cache", "tolerates it for 10 s", "runs, 6 s left", "runs"],
        ["api", "no taint; is refused", "runs, given up", "runs"],
        ["queue-0 2 s; is recreated", "runs", "runs again"],
        ["shop", "8 pods on 8 nodes", "never", "1 evicted, 7 run", "8 run"],
    ]
    assert shown(11.2)[2][2] == "runs, due now"


def test_below_80_columns_what_pods_tolerate_is_left_out() -> None:
    """When they are due, and what became of them, is worth more."""
    assert shown(width=80) == shown()
    assert shown(width=60)[1] == ["web", "1.0 s", "1.0 s, 0.0 s late", "4.0 s, 3.0 s late"]


def test_green_is_as_due_and_red_is_wrong() -> None:
    """An eviction in its time is right; one that is late, never or by mistake is wrong."""
    known = table()
    for fact in FACTS:
        known.take_in(fact)
    styles = {row[0][0]: [style for _, style in row[3:]] for row in known.lines()[1:]}
    assert styles["web"] == ["green", "red"]
    assert styles["cache"] == ["yellow", ""]
    assert styles["api"] == ["red", ""]
    assert styles["shop"] == ["red", "green"]


@pytest.mark.parametrize(("at", "due_at"), [(12.46, 11.04), (25.02, 12.04), (1.06, 1.04), (0.96, 1.04)])
def test_figures_add_up_as_they_are_shown(at: float, due_at: float) -> None:
    """Whoever subtracts the two instants gets what is said; nothing is less than 0 late."""
    late = float(late_by(at, due_at).removesuffix(" s late"))
    assert late == pytest.approx(max(0.0, float(f"{at:.1f}") - float(f"{due_at:.1f}")))


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (60, 24), (40, 12)])
def test_every_line_stays_above_the_table(width: int, height: int) -> None:
    """The lines scroll, and none is cut: what does not fit goes on below its beginning."""
    file = io.StringIO()
    words = "and so on " * 12
    with LiveTable(table(), Console(file=file, width=width, height=height)) as view:
        for number in range(40):
            view.show(DemoFact(float(number), Side.OWN, "step", f"line {number} {words}"))
        view.conclude(VERDICT, as_told=False)
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    joined = " ".join(text.split())
    assert all(f"line {number} {words}".strip() in joined for number in range(40))
    assert joined.endswith(" ".join(VERDICT))
    assert joined.index("line 39 ") < joined.index("due at")


def test_a_version_that_is_not_modelled_is_refused() -> None:
    """The error names the versions that are modelled."""
    result = CliRunner().invoke(demo, ["--built-in", "1.28"])
    assert result.exit_code == 2
    assert "a version of Kubernetes from 1.32 to 1.38" in result.stderr
