"""Faults of calls: rules that pick calls, and what happens to the picked calls.

A rule applies to a number of calls, for a span of time, or both, whichever ends first. The first rule that picks a call
decides what happens to it; a call counts for one rule only.
"""

import fnmatch
from dataclasses import dataclass
from enum import Enum


class CallKind(Enum):
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
    ADOPT = "adopt"
    GIVE_BACK = "giveBack"
    LIST_ADOPTED = "listAdopted"
    WATCH_NODES = "watchNodes"
    WATCH_PODS = "watchPods"
    VERSION = "version"
    READ_LEASE = "readLease"
    WRITE_LEASE = "writeLease"
    READ_CONTROL_STATE = "readControlState"
    WRITE_CONTROL_STATE = "writeControlState"


# The calls that read objects; those about the Lease have bounds of their own.
READS = frozenset(
    {
        CallKind.LIST_NODES,
        CallKind.LIST_PODS,
        CallKind.LIST_CACHED_PODS,
        CallKind.READ_NODE,
        CallKind.READ_POD,
        CallKind.LIST_ADOPTED,
        CallKind.READ_CONTROL_STATE,
    }
)

# The calls that change something.
CHANGES = frozenset(
    {
        CallKind.MARK,
        CallKind.UNMARK,
        CallKind.DELETE,
        CallKind.EVICT,
        CallKind.ADOPT,
        CallKind.GIVE_BACK,
        CallKind.WRITE_LEASE,
        CallKind.WRITE_CONTROL_STATE,
    }
)


@dataclass(frozen=True, slots=True)
class CallFault:
    """What happens to a call.

    ``connect_seconds``: the time for its connection, before it is sent. ``delay_seconds``: the delay until it
    arrives, even if its process has stopped waiting or was killed by then; ``back_seconds``: the delay of its answer.
    ``fails``: it is answered with ``status`` (None: no answer, the connection breaks), ``message`` and
    ``retry_after_seconds``. ``hangs``: it is never answered. ``takes_effect``: the call does what it should although
    its answer is a failure, or none. ``date_ahead_seconds``: how far the ``Date`` of its answer is ahead of the API
    server's clock (negative: behind).
    """

    connect_seconds: float = 0.0
    delay_seconds: float = 0.0
    back_seconds: float = 0.0
    fails: bool = False
    hangs: bool = False
    takes_effect: bool = False
    status: int | None = None
    message: str = ""
    retry_after_seconds: float | None = None
    date_ahead_seconds: float = 0.0


NO_FAULT = CallFault()


@dataclass(frozen=True, slots=True)
class Picked:
    """The calls that a rule picks: of these kinds, to objects whose name matches the pattern; at most ``times``, before
    ``until``.
    """

    calls: frozenset[CallKind]
    pattern: str = "*"
    times: int | None = None
    until: float | None = None


@dataclass(slots=True)
class _Rule:
    picked: Picked
    fault: CallFault
    left: int | None


class CallFaults:
    """All rules in force, in the order in which they were added."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []

    def add(self, picked: Picked, fault: CallFault) -> None:
        """Add a rule."""
        self._rules.append(_Rule(picked, fault, picked.times))

    def clear(self) -> None:
        """Remove all rules: everything works again."""
        self._rules.clear()

    def next(self, call: CallKind, subject: str, now: float) -> CallFault:
        """Return what happens to a call that is made now; ``subject`` is the object's name, "" if there is none."""
        if not self._rules:
            return NO_FAULT
        self._rules = [
            rule for rule in self._rules if rule.left != 0 and (rule.picked.until is None or now < rule.picked.until)
        ]
        for rule in self._rules:
            if call in rule.picked.calls and fnmatch.fnmatchcase(subject, rule.picked.pattern):
                if rule.left is not None:
                    rule.left -= 1
                return rule.fault
        return NO_FAULT
