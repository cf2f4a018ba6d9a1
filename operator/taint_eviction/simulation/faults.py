"""What can go wrong with calls: rules that pick calls, and what happens to those.

A rule holds for a number of calls, for a span of time, or both, whichever ends first. The first rule that picks a call
decides on it; one call spends one rule.
"""

import fnmatch
from dataclasses import dataclass
from enum import Enum


class Call(Enum):
    """The calls that the runtime can make; the value is how scenarios write them."""

    LIST_NODES = "listNodes"
    LIST_PODS = "listPods"
    LIST_CACHED_PODS = "listCachedPods"
    READ_NODE = "readNode"
    READ_POD = "readPod"
    MARK = "mark"
    UNMARK = "unmark"
    DELETE = "delete"
    EVICT = "evict"
    WATCH_NODES = "watchNodes"
    WATCH_PODS = "watchPods"
    VERSION = "version"
    READ_LEASE = "readLease"
    WRITE_LEASE = "writeLease"
    READ_ORDERS = "readOrders"
    WRITE_ORDERS = "writeOrders"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens to a call.

    ``delay_seconds``: it takes so much longer to arrive; ``back_seconds``: so much longer its answer. ``fails``: it is
    answered with ``status`` (None: no answer, the connection breaks), ``message`` and ``retry_after_seconds``.
    ``hangs``: it is never answered. ``takes_effect``: the call does what it should although its answer is a failure,
    or none.
    """

    delay_seconds: float = 0.0
    back_seconds: float = 0.0
    fails: bool = False
    hangs: bool = False
    takes_effect: bool = False
    status: int | None = None
    message: str = ""
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Picked:
    """Which calls: of these kinds, to objects whose name matches the pattern; at most ``times``, before ``until``."""

    calls: frozenset[Call]
    pattern: str = "*"
    times: int | None = None
    until: float | None = None


@dataclass(slots=True)
class _Rule:
    picked: Picked
    trouble: Trouble
    left: int | None


class Faults:
    """All rules that hold, in the order in which they came."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []

    def add(self, picked: Picked, trouble: Trouble) -> None:
        """Add a rule."""
        self._rules.append(_Rule(picked, trouble, picked.times))

    def clear(self) -> None:
        """Drop all rules: everything works again."""
        self._rules.clear()

    def next(self, call: Call, subject: str, now: float) -> Trouble:
        """Say what happens to a call that is made now; ``subject`` is the object's name, "" where there is none."""
        self._rules = [
            rule for rule in self._rules if rule.left != 0 and (rule.picked.until is None or now < rule.picked.until)
        ]
        for rule in self._rules:
            if call in rule.picked.calls and fnmatch.fnmatchcase(subject, rule.picked.pattern):
                if rule.left is not None:
                    rule.left -= 1
                return rule.trouble
        return Trouble()
