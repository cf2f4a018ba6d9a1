"""A dictionary of bounded size, and a throttle that lets one call pass in each span."""

from taint_eviction.adapters.bounded import BoundedDict, Throttle
from taint_eviction.core.instants import Moment


class SettableClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> Moment:
        return Moment(self.at, 1_900_000_000.0 + self.at)


def test_the_entry_that_was_set_least_recently_is_dropped() -> None:
    """Setting an entry again makes it the newest."""
    remembered: BoundedDict[str, int] = BoundedDict(2)
    remembered["a"], remembered["b"] = 1, 2
    remembered["a"] = 3
    remembered["c"] = 4
    assert list(remembered.items()) == [("a", 3), ("c", 4)]


def test_one_call_passes_in_each_span() -> None:
    """The first call passes at once, and a call that does not pass does not prolong the span."""
    clock = SettableClock()
    throttle = Throttle(clock, 60.0)
    passed = []
    for clock.at in (0.0, 59.9, 60.0, 61.0, 119.9, 120.0):
        if throttle.passes():
            passed.append(clock.at)
    assert passed == [0.0, 60.0, 120.0]
