"""A known pause ends in time, whatever happens to the clock that dated it; what pauses by selectors cover, and what is
paused instead of all else.
"""

import pytest
from tests.unit.builders import EPOCH, moment

from taint_eviction.core.control_state import (
    EVERYTHING,
    MAX_SELECTOR,
    ControlState,
    Pause,
    PauseEnds,
    PauseScope,
    Release,
    selector_scope,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import ZONE_LABEL

N1 = PauseScope("node", "n1")


def left(ends: PauseEnds, control_state: ControlState, now: Moment) -> dict[PauseScope, float]:
    """For how many seconds each pause with an end is still in force."""
    pauses = ends.as_counted(control_state, now).pauses()
    untils = {scope: pause.until_epoch for scope, pause in pauses.items()}
    return {scope: round(until - now.server_epoch, 3) for scope, until in untils.items() if until is not None}


@pytest.mark.parametrize("since", [EPOCH, None])
@pytest.mark.parametrize("stepped", [-3600.0, -2.5, 0.0, 2.5, 3600.0])
def test_a_known_pause_ends_in_time_although_the_clock_is_stepped(stepped: float, since: float | None) -> None:
    """The pause may have only an end and no start, and another pause may have no end."""
    ends, paused = PauseEnds(), ControlState(Pause(since, "", EPOCH + 1800), {"n1": Pause(EPOCH)})
    assert left(ends, paused, moment(5.0)) == {EVERYTHING: 1795.0}
    assert left(ends, paused, Moment(65.0, EPOCH + 65.0 + stepped)) == {EVERYTHING: 1735.0}


def test_a_small_change_of_the_clock_does_not_move_an_end() -> None:
    """The pause stays as it was written, so that it does not seem to have changed."""
    ends, paused = PauseEnds(), ControlState(Pause(EPOCH, "", EPOCH + 1800))
    assert ends.as_counted(paused, moment(5.0)) is paused
    assert ends.as_counted(paused, Moment(65.0, EPOCH + 66.9)) is paused


def test_a_pause_that_seems_to_begin_later_begins_when_it_is_first_read() -> None:
    """The writer's clock was ahead; the pause lasts as long as intended."""
    ends, paused = PauseEnds(), ControlState(Pause(EPOCH + 3600, "", EPOCH + 5400))
    assert [left(ends, paused, moment(at)) for at in (5.0, 65.0)] == [{EVERYTHING: 1800.0}, {EVERYTHING: 1740.0}]


def test_an_extended_pause_counts_from_its_beginning() -> None:
    """A pause that was ended and set again counts from its new beginning."""
    ends, stepped = PauseEnds(), Moment(65.0, EPOCH + 3665.0)
    left(ends, ControlState(nodes={"n1": Pause(EPOCH, "", EPOCH + 1800)}), moment(5.0))
    assert left(ends, ControlState(nodes={"n1": Pause(EPOCH, "", EPOCH + 2800)}), stepped) == {N1: 2735.0}
    assert left(ends, ControlState(), stepped) == {}
    anew = ControlState(nodes={"n1": Pause(EPOCH + 3660, "", EPOCH + 5460)})
    assert left(ends, anew, stepped) == {N1: 1795.0}


# Selectors


def test_the_scope_of_a_selector_has_one_name() -> None:
    """One person pauses, and another resumes with a selector that is written in another way."""
    assert selector_scope(" zone in (b,a), pool == gpu") == selector_scope("pool=gpu,zone in (a,b)")
    assert str(selector_scope("pool==gpu")) == "evictions from nodes that match pool=gpu"
    assert str(selector_scope("")) == "evictions from all nodes"
    assert str(selector_scope(f"{ZONE_LABEL}=a")) == "evictions from nodes in zone a"
    assert str(selector_scope(f"{ZONE_LABEL} notin (b,a)")) == "evictions from nodes outside of zones a, b"
    assert str(selector_scope(f"{ZONE_LABEL}!=")) == f"evictions from nodes that match {ZONE_LABEL}!="
    assert str(selector_scope(ZONE_LABEL)) == f"evictions from nodes that match {ZONE_LABEL}"
    assert selector_scope("!pool").selects({"zone": "a"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pool in gpu", "a label selector (key=value, .*values in parentheses are missing"),
        ("pool=gpu,pool=web", "a label selector for nodes: it can match nothing: pool=gpu and pool=web"),
        ("a" * (MAX_SELECTOR + 1), f"a label selector of at most {MAX_SELECTOR} characters"),
        (",".join(f"k{number}!=v" for number in range(70)), f"a label selector of at most {MAX_SELECTOR} characters"),
    ],
)
def test_what_no_node_can_match_is_no_scope(text: str, expected: str) -> None:
    """Nor is what is longer than can be stored and read again."""
    with pytest.raises(ValueError, match=expected.replace("(", "\\(", 1)):
        selector_scope(text)


@pytest.mark.parametrize(
    ("only", "instead"),
    [
        (["topology.kubernetes.io/zone=a"], ["topology.kubernetes.io/zone notin (a)"]),
        (["zone=a", "zone=b"], ["zone notin (a,b)"]),
        (["pool"], ["!pool"]),
        (["pool=gpu,rack notin (r1,r2)"], ["pool notin (gpu)", "rack in (r1,r2)"]),
        (["pool=gpu", "!pool"], ["pool,pool notin (gpu)"]),
        (["pool", "!pool"], []),
    ],
)
def test_instead_of_all_the_nodes_that_no_selector_matches_are_paused(only: list[str], instead: list[str]) -> None:
    """Nodes without the label are among them; together they are just those that none of the selectors matches."""
    scopes = frozenset(map(selector_scope, only))
    release = Release(frozenset([EVERYTHING, *scopes]), only=scopes)
    kept = ControlState(Pause(), {"n1": Pause()}, selectors={"rack=r9": Pause()})
    after = release.after(kept, (), Pause(EPOCH))
    assert sorted(after.selectors) == sorted([*instead, "rack=r9"])
    assert (after.cluster, after.nodes) == (None, {"n1": Pause()})
    for labels in ({}, {"zone": "a"}, {"zone": "c"}, {"pool": "gpu", "rack": "r3"}, {"pool": "x", "rack": "r1"}):
        paused = any(selector_scope(each).selects(labels) for each in instead)
        assert paused is not any(scope.selects(labels) for scope in scopes), labels


def test_a_selector_without_a_complement_cannot_be_released_alone() -> None:
    """No selector says "not more than 5, or without the label"; and some would need too many."""
    with pytest.raises(ValueError, match="no selector matches all that size>5 does not"):
        Release(only=frozenset([selector_scope("size>5")])).others(())
    many = frozenset(selector_scope(",".join(f"{key}{number}" for number in range(11))) for key in "ab")
    with pytest.raises(ValueError, match="121 selectors with 242 terms would be needed"):
        Release(only=many).others(())
