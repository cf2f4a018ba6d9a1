"""What ``resume`` and ``breaker reset`` make of the leader's answer on the pods that they would let go."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause, Release
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction_ctl.cli.asking import Ask, Document, Unanswered
from taint_eviction_ctl.cli.control_state import Reached
from taint_eviction_ctl.cli.releasing import Going, count_going, told
from taint_eviction_lab.simulation.virtual_loop import run_virtually

RELEASE = Release(frozenset([EVERYTHING]))
PAUSED = ControlState(Pause())
RESET = parse_rfc3339("2030-01-01T00:00:30Z") or 0.0
HEAD = {"apiVersion": None, "now": None, "version": None, "identity": "a", "leading": None}
NOT_READ = "the leader has not read the pauses and the breaker's state as they are now"


def answer(*names: str, **fields: Any) -> Document:
    """The leader's answer while all evictions are paused, with these pods on one page."""
    return {
        "identity": "a",
        "release": {},
        "ordersKnown": True,
        "pauses": [{"scope": "all", "name": None}],
        "breaker": {"open": False},
        "pendingTotal": 3,
        "pendingNodes": 2,
        "stillHeld": 1,
        "withoutOwner": 1,
        "pending": [{"name": name} for name in names],
        "continue": None,
    } | fields


def counted(
    monkeypatch: pytest.MonkeyPatch, *answers: Document | Unanswered, standing: ControlState = PAUSED
) -> Going | str:
    """Count with these answers, of which the last one repeats."""
    left = list(answers)

    async def asking(_path: str, _query: Mapping[str, str | int]) -> Document:
        said = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(said, Unanswered):
            raise said
        return said

    def asking_leader(*_: object) -> Ask:
        return asking

    monkeypatch.setattr("taint_eviction_ctl.cli.releasing.asking_leader", asking_leader)

    class Anywhere:
        calls = where = None

    return run_virtually(count_going(cast(Reached, Anywhere()), {}, standing, RELEASE), 0.0)


def test_the_numbers_are_the_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods of all pages are there, for their budgets."""
    found = counted(monkeypatch, answer("x", "y", **{"continue": "t"}), answer("z"))
    assert found == Going(3, 2, 1, 1, [{"name": "x"}, {"name": "y"}, {"name": "z"}], breaker_open=False, head=HEAD)


def test_the_numbers_are_known_although_a_later_page_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what needs the pods themselves is not known then."""
    found = counted(monkeypatch, answer("x", **{"continue": "t"}), Unanswered("too many requests"))
    assert found == Going(3, 2, 1, 1, None, breaker_open=False, head=HEAD)


def test_a_leader_that_has_not_read_the_pauses_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads them every two seconds; until then it would count too many pods, or too few."""
    assert isinstance(counted(monkeypatch, answer(pauses=[]), answer(ordersKnown=False), answer("x")), Going)
    assert counted(monkeypatch, answer(pauses=[])) == NOT_READ


def open_since(since: str | None) -> dict[str, Any]:
    """The breaker of a leader, open since a time."""
    return {"open": True, "since": since}


@pytest.mark.parametrize(
    ("standing", "breaker", "is_read"),
    [
        (replace(PAUSED, reset_epoch=RESET), open_since("2030-01-01T00:00:00Z"), False),
        (replace(PAUSED, reset_epoch=RESET), open_since("2030-01-01T00:01:00Z"), True),
        (replace(PAUSED, reset_epoch=RESET), {"open": False, "since": None}, True),
        (PAUSED, open_since("2030-01-01T00:00:00Z"), True),
        (replace(PAUSED, reset_epoch=RESET), open_since(None), True),
        (replace(PAUSED, latch=Latch(RESET, "")), {"open": False, "since": None}, False),
        (replace(PAUSED, latch=Latch(RESET, "")), open_since("2030-01-01T00:00:30Z"), True),
    ],
)
def test_a_leader_that_has_not_read_a_reset_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, standing: ControlState, breaker: dict[str, Any], is_read: bool
) -> None:
    """Otherwise it would count no pod, and all would leave a second later. It may have opened again by itself."""
    found = counted(monkeypatch, answer(breaker=breaker), standing=standing)
    assert (found == NOT_READ) is not is_read


@pytest.mark.parametrize(
    ("without_owner", "clause"),
    [
        (0, "3 pods leave now from 2 nodes, 1 stays held;"),
        (1, "3 pods leave now from 2 nodes (1 has no owner and will not come back), 1 stays held;"),
        (2, "3 pods leave now from 2 nodes (2 have no owner and will not come back), 1 stays held;"),
        (None, "(how many of them have no owner is not known: the leader is of another version), 1 stays held;"),
    ],
)
def test_pods_that_nothing_recreates_are_told_before_they_go(without_owner: int | None, clause: str) -> None:
    """A controller of an earlier version does not say their number, which is not the same as none."""
    going = Going(3, 2, 1, without_owner, None, breaker_open=False, head=HEAD)
    assert clause in run_virtually(told(cast(Reached, None), going), 0.0)


def test_of_pods_that_nothing_recreates_the_first_five_are_named() -> None:
    """They have to be saved before they go. Others have an owner, or the leader does not say whose they are."""

    def row(name: str, **owner: str | None) -> Mapping[str, Any]:
        return {"namespace": "shop", "name": name, "mode": "evict", **owner}

    rows = [row("web", owner="ReplicaSet/web"), row("untold"), *(row(f"bare-{n}", owner=None) for n in range(6))]
    going = Going(8, 2, 0, 6, rows, breaker_open=False, head=HEAD)
    named = "shop/bare-0, shop/bare-1, shop/bare-2, shop/bare-3, shop/bare-4, …"
    said = run_virtually(told(cast(Reached, None), going), 0.0)
    assert f"(6 have no owner and will not come back: {named}); no budget would be violated" in said


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (answer(release=None), "the controller is of another version, and cannot say it"),
        ({"release": {}}, "the leader's answer is not that of this version"),
        (Unanswered("nobody holds the Lease"), "nobody holds the Lease"),
    ],
)
def test_a_number_that_is_not_known_has_a_reason(
    monkeypatch: pytest.MonkeyPatch, said: Document | Unanswered, why: str
) -> None:
    """An older controller would answer with all pods that it knows."""
    assert counted(monkeypatch, said) == why
