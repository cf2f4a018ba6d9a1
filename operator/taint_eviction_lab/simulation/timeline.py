"""The timeline: what happened in a replay, as values, in the order in which it happened.

Two sides write it: the API server (calls as they arrive, objects as they change) and the controller (its reports of
scheduled, cancelled and completed evictions). Expectations about evictions read the API server's entries only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from taint_eviction.core.control_state import PauseScope

# The subject of entries about the circuit breaker.
BREAKER = "breaker"
# The subject of entries about orders to adopt nothing.
ADOPTION = "adoption"
# The end of the text of a call to the eviction API, as opposed to a DELETE.
BY_EVICTION = ", by the eviction API"
# The end of the text of a call by the model of the built-in controller.
BY_BUILT_IN = ", by the built-in controller"


class What(Enum):
    """Kinds of entries; the value is how it is written for people."""

    STEP = "step"
    # A step that is impossible in the cluster of the model with which a replay is compared.
    LEFT_OUT = "left out"
    STARTED = "started"
    KILLED = "killed"
    # The simulated API server's own record.
    EVICTED = "evicted"
    DELETED_AGAIN = "deleted again"
    DELETE_MISSED = "delete missed"
    # The eviction API refused because of budgets.
    BLOCKED = "blocked"
    MARKED = "marked"
    UNMARKED = "unmarked"
    ADOPTED = "adopted"
    NOTED = "noted"
    GIVEN_BACK = "given back"
    CALL_FAILED = "call failed"
    GONE = "gone"
    BREAKER_OPENED = "opened"
    BREAKER_CLOSED = "closed"
    # Somebody orders that nothing is adopted, or allows adoption again; the leader confirms the order.
    ADOPTION_ENDED = "adoption ended"
    ADOPTION_ALLOWED = "adoption allowed"
    ADOPTION_CONFIRMED = "adoption's end confirmed"
    # The control state says that somebody adopts, or that nobody does any more.
    ADOPTS = "adopts"
    ADOPTS_NO_MORE = "adopts no more"
    # Reports of the controller.
    TAINTED = "tainted"
    CLEARED = "cleared"
    REWRITTEN = "rewritten"
    STRAY = "stray"
    READY_OUT_OF_SERVICE = "ready, though out of service"
    SCHEDULED = "scheduled"
    # A deadline that has lost its reason, and one whose pod is gone.
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    SAID_EVICTED = "says evicted"
    REFUSED = "refused"
    LOOPS = "loops"
    SAID_ADOPTED = "says adopted"
    ADOPTION_REFUSED = "adoption refused"
    SAID_GIVEN_BACK = "says given back"
    PAUSED = "paused"
    RESUMED = "resumed"
    SAID_OPEN = "says open"
    SAID_CLOSED = "says closed"
    # Any other of its events, as a sentence.
    TOLD = "told"
    EVENT = "event"
    # Reports of the model of the built-in controller.
    TIMER_SET = "timer set"
    TIMER_CANCELLED = "timer ended"
    GAVE_UP = "gave up"
    BUILT_IN_EVENT = "its event"
    # What a dry run found out about the built-in controller.
    COMPARED = "compared"


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One event: at this second of the scenario, for this pod (``namespace/name``), node, or the breaker. ``uid`` is ""
    if it does not matter which pod of this name it was. ``due_at``: for ``SCHEDULED``, the deadline, and
    ``held_seconds``, how much of that is due to the owner's hold. ``late_seconds``: for ``SAID_EVICTED``, how long
    after the deadline. ``scope``: what ``PAUSED`` and ``RESUMED`` are about. ``why`` is for people.
    """

    at: float
    what: What
    subject: str
    uid: str = ""
    why: str = ""
    due_at: float | None = None
    late_seconds: float | None = None
    held_seconds: float = 0.0
    scope: PauseScope | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the entry for machines; fields without a value are left out."""
        fields = {
            "at": self.at,
            "what": self.what.value,
            "subject": self.subject,
            "uid": self.uid or None,
            "dueAt": self.due_at,
            "heldSeconds": self.held_seconds or None,
            "lateSeconds": self.late_seconds,
            "why": self.why or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


class Timeline:
    """All entries of one replay."""

    def __init__(self) -> None:
        self._entries: list[TimelineEntry] = []

    def add(self, entry: TimelineEntry) -> None:
        """Add what has just happened."""
        self._entries.append(entry)

    def __iter__(self) -> Iterator[TimelineEntry]:
        """Yield the entries in the order in which they happened."""
        return iter(self._entries)

    def about(self, subject: str, *kinds: What) -> list[TimelineEntry]:
        """List the entries of these kinds about one pod or node."""
        return [entry for entry in self._entries if entry.subject == subject and entry.what in kinds]
