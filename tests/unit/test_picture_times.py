"""Times in pictures: spans in two units, instants from now or as seconds, the marks of the axis."""

import pytest

from taint_eviction_ctl.picture.scene import Picture
from taint_eviction_ctl.picture.times import instant, span, ticks


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0 s"), (0.254, "0.25 s"), (12.4, "12 s"), (60, "1 m"), (90, "1 m 30 s"), (3600, "1 h")),
        *((5400, "1 h 30 m"), (90000, "1 d 1 h"), (-90, "1 m 30 s"), (4e9, "100 years")),
    ],
)
def test_a_span_has_two_units_at_most(seconds: float, text: str) -> None:
    """The larger ones; no more digits than are of use."""
    assert span(seconds) == text


def test_an_instant_of_a_plan_is_counted_from_now() -> None:
    """With the clock behind it."""
    plan = Picture("", "", -1, 10, epoch=1893499200, ahead=True)
    assert instant(plan, 0) == "now (2030-01-01 12:00:00 UTC)"
    assert instant(plan, 300) == "in 5 m (2030-01-01 12:05:00 UTC)"
    assert instant(plan, 4e9) == "in 100 years"
    assert instant(plan, -300) == "5 m ago (2030-01-01 11:55:00 UTC)"


def test_the_axis_has_the_clock_beside_seconds_where_there_is_one() -> None:
    """A scenario has seconds of its own alone; over days the clock has dates."""
    assert list(ticks(Picture("", "", -4, 100))) == [
        (0, "0 s", ""),
        (30, "30 s", ""),
        (60, "1 m", ""),
        (90, "1 m 30 s", ""),
    ]
    assert list(ticks(Picture("", "", 0, 100, epoch=1893499200)))[1] == (30, "30 s", "12:00:30")
    assert list(ticks(Picture("", "", 0, 4 * 86400, epoch=1893499200)))[1] == (86400, "1 d", "01-02 12:00")
