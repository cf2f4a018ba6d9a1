"""Pods that are due and stay: pictures show what holds them, and for how long."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.planning.shop import NOON_TEXT, SHOP, budget, inventory_of, node, planned, pod, run, tolerates
from tests.stage.catalogue import scenario_file

from taint_eviction.core.control_state import EVERYTHING, PauseScope
from taint_eviction.core.label_selectors import parse_selector
from taint_eviction.core.policy import EvictionMode, PolicyRule
from taint_eviction_ctl.picture.of_plan import picture_of_plan
from taint_eviction_ctl.picture.scene import Kind, Mark, Picture, PodRow
from taint_eviction_lab.picture.of_replay import picture_of_replay
from taint_eviction_lab.picture.overdue import BREAKER, Holds
from taint_eviction_lab.simulation.scenario import read_scenario
from taint_eviction_lab.wiring import replay_scenario

Drawn = dict[str, list[tuple[str, float, float]]]
PAST_DEADLINE = (Kind.HELD, Kind.LATE, Kind.BLOCKED, Kind.RETRYING)


def replayed(name: str) -> Picture:
    """Play a scenario of the catalogue and draw it."""
    text = scenario_file(name).read_text(encoding="utf-8")
    return picture_of_replay(replay_scenario(read_scenario(text, name)))


def overdue(picture: Picture) -> Drawn:
    """List the bars after each pod's deadline, to the second."""
    return {
        row.pod.rpartition("/")[2]: [
            (bar.kind.value, round(bar.begin), round(bar.end)) for bar in row.bars if bar.kind in PAST_DEADLINE
        ]
        for row in picture.rows
    }


# Replays


@pytest.mark.parametrize(
    ("name", "holds", "pods"),
    [
        (
            "pause-of-a-node",
            [("evictions from node node-1", 6, 60)],
            {"web-0": [("held", 10, 60)], "db-0": [("late", 10, 10)]},
        ),
        (
            "breaker-closes-by-itself",
            [(f"{BREAKER}: 3 of 8 nodes newly tainted within 300 s, more than 25 %", 10, 100)],
            {"web-1": [("late", 10, 10), ("held", 10, 100), ("late", 100, 100)]},
        ),
        ("budget-blocks-then-frees", [], {"web-1": [("blocked", 10, 50)]}),
        ("hold-for-a-span", [], {"batch-1": [("held", 70, 670), ("late", 670, 670)]}),
    ],
)
def test_a_replay_shows_what_held_each_pod(name: str, holds: list[tuple[str, int, int]], pods: Drawn) -> None:
    """Pauses and breaker are bands; each pod has bars for the time past its deadline, by what it waited for."""
    picture = replayed(name)
    assert [(band.text, round(band.begin or 0), round(band.end or 0)) for band in picture.holds] == holds
    drawn = overdue(picture)
    assert {pod: [bar for bar in drawn[pod] if bar[0] != "late" or bar in bars] for pod, bars in pods.items()} == pods


def test_a_pod_that_is_still_held_at_the_end_has_that_outcome() -> None:
    """A pod whose node was untainted under the pause is cancelled, and is drawn as held until then."""
    picture = replayed("breaker-does-not-close-by-itself")
    assert {row.outcome for row in picture.rows} >= {"held"}
    (cancelled,) = replayed("pause-then-untaint").rows
    assert cancelled.outcome == "cancelled"
    assert cancelled.bars[-1].kind is Kind.HELD


def test_a_pod_is_drawn_from_its_creation_to_its_end() -> None:
    """Two pods of one name can be told apart, as in the scenario of the stale key."""
    picture = replayed("recreate-statefulset-pod-is-evicted-again")
    exists = [(bar.begin, round(bar.end)) for row in picture.rows for bar in row.bars if bar.kind is Kind.EXISTS]
    assert exists == [(0.0, 10), (30.0, 40)]


# Plans


def test_a_plan_marks_pods_that_are_blocked_or_paused() -> None:
    """Both are outcomes of their own, and a paused pod has the reason."""
    web = {"matchLabels": {"app": "web"}}
    objects = (
        node("node-1", "k=v:NoExecute"),
        pod("blocked", labels={"app": "web"}),
        pod("paused", labels={"tier": "gold"}),
        pod("goes"),
    )
    rules = (PolicyRule("freeze", pod_selector=parse_selector("tier=gold"), pause=True),)
    plan = planned(inventory_of(*objects, budget("b", web, minAvailable=1)), None, *rules, mode=EvictionMode.EVICT)
    rows = {row.pod: row for row in picture_of_plan(plan).rows}
    assert {name: row.outcome for name, row in rows.items()} == {
        "shop/blocked": "blocked",
        "shop/paused": "held",
        "shop/goes": "leaves",
    }
    assert [mark.kind for row in rows.values() for mark in row.marks] == [Kind.BLOCKED, Kind.EVICTED, Kind.HELD]
    assert "paused by rule freeze" in rows["shop/paused"].why


def test_a_plan_draws_what_owners_hold_beyond_the_tolerance(tmp_path: Path) -> None:
    """The tolerance ends where the hold begins."""
    held = pod("held", "node-1", tolerates(60), annotations={"taint-eviction/hold": "30s"})
    text = json.dumps([node("node-1"), held])
    page = tmp_path / "plan.html"
    run("-", "--taint", "node-1=maintenance:NoExecute", "--honour-holds", "1m", "--html", str(page), stdin=text)
    bars = re.findall(r'class="bar (\w+)" style="--t:([\d.]+);--u:([\d.]+)"', page.read_text())
    assert [(kind, round(float(since)), round(float(until))) for kind, since, until in bars] == [
        ("countdown", 0, 60),
        ("held", 60, 90),
    ]


def test_a_plan_says_what_was_asked_and_which_budgets_break(tmp_path: Path) -> None:
    """The page has the changes, the choice of nodes, the input, and budgets that are violated or that block."""
    web = {"matchLabels": {"app": "web"}}
    pods = [pod(f"web-{index}", labels={"app": "web"}) for index in range(2)]
    text = json.dumps([node("node-1", labels={"pool": "web"}), *pods, budget("tight", web, minAvailable=1)])
    page = tmp_path / "plan.html"
    asked = ("-", "--now", NOON_TEXT, "--taint", "*=k=v:NoExecute", "-l", "pool", "--at", "1h", "--html", str(page))
    run(*asked, stdin=text)
    head = page.read_text().partition("</header>")[0]
    assert (
        "<b>Asked:</b> taint * k=v:NoExecute; on nodes with the labels pool; at 2026-03-01 13:00:00 UTC;"
        " with --eviction-mode=delete; in stdin (1 node, 2 pods)</p>"
    ) in head
    assert "<li>budget shop/tight would be violated at 2026-03-01 13:00:00 UTC: 0 healthy, 1 needed</li>" in head
    run(*asked, "--eviction-mode", "evict", stdin=text)
    assert "<li>budget shop/tight would block 1 of 2 pods that would leave</li>" in page.read_text()


def test_a_plan_is_drawn_though_nobody_reads_its_text(tmp_path: Path) -> None:
    """With ``plan --html … | head`` the reader of the text closes the pipe."""
    page = tmp_path / "plan.html"
    command = (sys.executable, "-m", "taint_eviction", "plan", SHOP, "--html", str(page))
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        assert subprocess.run(command, stdout=closed, check=False).returncode == 0
    assert "<h1>What if: evictions ahead</h1>" in page.read_text()


# Bars


def test_holds_that_overlap_are_bars_one_after_the_other() -> None:
    """After the last hold, the pod is drawn as its marks say: here it is retried."""
    holds, row = Holds(), PodRow("shop/web", "n1", "due", "", deadline=10.0)
    holds.begin(EVERYTHING, 0.0, "")
    holds.begin(PauseScope("node", "n1"), 15.0, "repairs")
    holds.begin(PauseScope("node", "n1"), 16.0, "told of by another process, too")
    holds.begin(PauseScope("namespace", "other"), 0.0, "")
    holds.end(EVERYTHING, 20.0)
    holds.end(PauseScope("node", "n1"), 30.0)
    holds.end(PauseScope("node", "never begun"), 31.0)
    row.marks.append(Mark(35.0, Kind.REFUSED, ""))
    holds.overdue(row, 40.0)
    assert [(bar.kind, bar.begin, bar.end) for bar in row.bars] == [
        (Kind.HELD, 10.0, 20.0),
        (Kind.HELD, 20.0, 30.0),
        (Kind.RETRYING, 30.0, 40.0),
    ]
    assert [band.end for band in holds.bands()] == [20.0, None, 30.0]
