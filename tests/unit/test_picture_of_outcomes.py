"""Outcomes as ``/history`` answers them, drawn: numbers, times, what a dry run told, and what is no answer."""

from typing import Any

import pytest

from taint_eviction_ctl.picture.lanes import MAX_OPEN
from taint_eviction_ctl.picture.of_outcomes import picture_of_outcomes
from taint_eviction_ctl.picture.page import render_page
from taint_eviction_ctl.picture.scene import Kind
from taint_eviction_ctl.picture.summary import tiles

UID = "2f6a1c3e-1b2c-4d5e-8f90-a1b2c3d4e5f6"


def outcome(name: str, **fields: Any) -> dict[str, Any]:
    """Write the outcome of a pod that tolerated a taint for a minute and was evicted 2 s late."""
    times = {"since": "2030-01-01T12:00:00.000000Z", "deadline": "2030-01-01T12:01:00.000000Z"}
    pod = {"namespace": "shop", "name": name, "uid": f"uid-{name}", "node": "n1", "owner": "ReplicaSet/web"}
    why = {"taint": "k=v:NoExecute", "toleration": "k:NoExecute for 60 s", "byDefault": False, "heldSeconds": 0}
    told = {"time": "2030-01-01T12:01:02.000000Z", "outcome": "evicted", "answer": "accepted", "dryRun": False}
    return {**times, **pod, **why, **told, **fields}


def test_an_eviction_has_its_tolerance_and_its_lateness() -> None:
    """On an axis whose second 0 is the beginning of the oldest tolerance."""
    picture = picture_of_outcomes([outcome("web")], "")
    (row,) = picture.rows
    assert [(bar.kind, bar.begin, bar.end) for bar in row.bars] == [(Kind.COUNTDOWN, 0, 60), (Kind.LATE, 60, 62)]
    assert (row.left_at, row.late_seconds, picture.epoch) == (62, 2, 1893499200)


def test_a_hold_is_drawn_after_the_tolerance() -> None:
    """The deadline includes it."""
    (row,) = picture_of_outcomes([outcome("web", heldSeconds=20)], "").rows
    assert [(bar.kind, bar.begin, bar.end) for bar in row.bars][:2] == [
        (Kind.COUNTDOWN, 0, 40),
        (Kind.HELD, 40, 60),
    ]


@pytest.mark.parametrize(
    ("told", "mark"),
    [("deleted", Kind.GONE), ("gone", Kind.GONE), ("refused", Kind.REFUSED), ("blocked", Kind.BLOCKED)],
)
def test_what_was_not_evicted_by_the_controller_is_not_counted_so(told: str, mark: Kind) -> None:
    """Each outcome keeps its name, and has no lateness."""
    (row,) = picture_of_outcomes([outcome("web", outcome=told, answer="no")], "").rows
    assert (row.outcome, row.left_at, [each.kind for each in row.marks]) == (told, None, [mark])


def test_a_dry_run_evicts_nobody_in_the_picture() -> None:
    """Its outcome is marked, and no tile counts it as an eviction."""
    picture = picture_of_outcomes([outcome("web", dryRun=True)], "")
    assert tiles(picture) == [
        *(("pods", "1"), ("evicted", "0"), ("stayed", "0"), ("refused at least once", "0")),
        ("evicted (dry run)", "1"),
    ]


def test_tiles_count_outcomes_and_lateness() -> None:
    """By nearest rank; a pod that was refused is counted as such."""
    pods = [outcome(f"web-{late}", time=f"2030-01-01T12:01:{late:02}Z") for late in range(1, 11)]
    picture = picture_of_outcomes([*pods, outcome("api", outcome="refused", answer="500")], "")
    assert tiles(picture) == [
        *(("pods", "11"), ("evicted", "10"), ("stayed", "0"), ("refused at least once", "1")),
        *(("late, p50", "5 s"), ("late, p99", "10 s")),
    ]
    assert 'class="curve"' in render_page(picture)


def test_the_page_says_what_was_asked_and_is_whole_without_its_script() -> None:
    """Names, reasons, the clock and short UIDs are markup; nothing in it is read from a script."""
    outcomes = [outcome("web", uid=UID), outcome("web", uid=UID.replace("2f6a1c3e", "99999999"))]
    page = render_page(picture_of_outcomes(outcomes, "at most 2 outcomes of node <n1>")).partition("<script>")[0]
    assert "<b>Asked:</b> at most 2 outcomes of node &lt;n1&gt;" in page
    assert '<div>shop/web <span class="quiet">2f6a1c3e</span></div>' in page
    assert UID not in page
    assert "<small>12:01:00</small>" in page
    assert "evicted second 62 (2030-01-01 12:01:02 UTC), 2.00 s late" in page
    assert '<details class="node" open><summary class="row group"><div title="n1">n1' in page


def test_many_pods_open_as_a_summary() -> None:
    """Their nodes are closed, and tell when their pods went."""
    page = render_page(picture_of_outcomes([outcome(f"web-{n}") for n in range(MAX_OPEN + 1)], ""))
    assert '<details class="node"><summary' in page
    assert page.count('<span class="when"') == 1


def test_no_outcome_is_said_to_be_none() -> None:
    """An empty page would be a riddle."""
    assert "No replica that answered remembers such an outcome." in render_page(picture_of_outcomes([], ""))


@pytest.mark.parametrize("wrong", [{"time": "yesterday"}, {"outcome": "eaten"}, {"heldSeconds": "x"}])
def test_what_is_no_outcome_is_an_error(wrong: dict[str, Any]) -> None:
    """The command says that this is not the answer of a controller."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        picture_of_outcomes([outcome("web", **wrong)], "")
