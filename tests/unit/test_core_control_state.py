"""A known pause ends in time, whatever happens to the clock that dated it."""

import pytest
from tests.unit.builders import EPOCH, moment

from taint_eviction.core.control_state import EVERYTHING, ControlState, Pause, PauseEnds, PauseScope
from taint_eviction.core.instants import Moment

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
