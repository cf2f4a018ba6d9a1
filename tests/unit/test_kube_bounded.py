"""A dictionary of bounded size, and a throttle that lets one call pass in each span."""

from taint_eviction.core.instants import Moment
from taint_eviction.kube.bounded import BoundedDict, Shared, Throttle


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


def sharing(max_bytes: int) -> tuple[Shared[str, list[str]], list[str]]:
    """Return a cache of lists of one text, each as large as the text, and the texts that lists were made of."""
    made: list[str] = []

    def make(text: str) -> list[str]:
        made.append(text)
        return [text]

    return Shared(make, len, max_bytes), made


def test_equal_values_are_made_once() -> None:
    """The second time the first value is returned."""
    shared, made = sharing(1000)
    assert shared("abc") is shared("abc")
    assert made == ["abc"]


def test_the_oldest_values_go_when_all_together_are_too_long() -> None:
    """At most so many bytes are kept."""
    shared, made = sharing(1000)
    texts = [f"{number:010}" for number in range(101)]
    for text in texts:
        shared(text)
    shared(texts[-1])
    shared(texts[0])
    assert made == [*texts, texts[0]]


def test_a_long_value_is_not_kept() -> None:
    """It would push out all others."""
    shared, made = sharing(1000)
    shared("a")
    shared("x" * 11)
    shared("x" * 11)
    shared("a")
    assert made == ["a", "x" * 11, "x" * 11]
