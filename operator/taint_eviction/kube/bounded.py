"""Bounds on what a reader remembers and measure, and on how often they log the same thing."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from taint_eviction.runtime.ports import Clock

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class BoundedDict(OrderedDict[KeyT, ValueT]):
    """A dict of at most ``max_entries``: setting an entry makes it the newest, and drops the oldest one if there are
    too many.
    """

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._max_entries:
            self.popitem(last=False)


class Shared(Generic[KeyT, ValueT]):
    """Values by what they are made of, so that equal ones are kept once: ``max_bytes`` of them, the newest.

    ``make`` makes a value, which must not be None; ``size`` estimates the bytes of a key with its value. A value that
    alone needs a hundredth of all bytes is not kept: strangers choose how long most of them are.
    """

    def __init__(self, make: Callable[[KeyT], ValueT], size: Callable[[KeyT], int], max_bytes: int) -> None:
        self.make = make
        self._size = size
        self._max_bytes = max_bytes
        self._values: dict[KeyT, ValueT] = {}
        self._bytes = 0

    def __call__(self, key: KeyT) -> ValueT:
        """Return the value for ``key``; raise what ``make`` raises, and ``TypeError`` for a key without a hash."""
        value = self._values.get(key)
        if value is None:
            value = self.make(key)
            size = self._size(key)
            if size * 100 <= self._max_bytes:
                self._values[key] = value
                self._bytes += size
                while self._bytes > self._max_bytes:
                    oldest = next(iter(self._values))
                    del self._values[oldest]
                    self._bytes -= self._size(oldest)
        return value


class FirstValues:
    """Values of a label: the first ``max_values`` that are seen, then "other" for each new one."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._seen: set[str] = set()

    def label(self, value: str) -> str:
        """Return the value itself, or "other"."""
        if len(self._seen) < self._max_values:
            self._seen.add(value)
        return value if value in self._seen else "other"


class Throttle:
    """Lets one of many calls pass every ``seconds``, the first one at once."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._passed_at = float("-inf")

    def passes(self) -> bool:
        """Return whether this call may pass."""
        now = self._clock.now().at
        if now - self._passed_at < self._seconds:
            return False
        self._passed_at = now
        return True
