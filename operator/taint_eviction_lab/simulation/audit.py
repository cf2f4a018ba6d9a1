"""The reports to an auditor of a simulated world: every call when it is sent, arrives, is carried out and is answered.
They are complete, independent of the controller's own reports, and make no judgement.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from taint_eviction_lab.simulation.faults import CallKind


class Phase(Enum):
    """How far a call has come.

    Once it has ``ARRIVED`` it is ``CARRIED_OUT`` or ``REFUSED`` at the same instant. The caller hears of it when it is
    ``ANSWERED``, or has ``FAILED`` for it: refused, unanswered, or carried out with a failure for an answer. ``SAW``:
    no call, but a watch brought an object.
    """

    SENT = "sent"
    ARRIVED = "arrived"
    CARRIED_OUT = "carried out"
    REFUSED = "refused"
    ANSWERED = "answered"
    FAILED = "failed"
    SAW = "saw"


@dataclass(frozen=True, slots=True)
class Trace:
    """One moment of one call (``number``, of the ``process``).

    ``uid`` is the UID it was asked for, "" where the call names none. ``body`` is what it was carried out with
    (lists, objects, None), or the failure.
    """

    process: str
    number: int
    phase: Phase
    call: CallKind | None
    subject: str
    uid: str
    at: float
    body: Any = None


Auditor = Callable[[Trace], None]


def unaudited(trace: Trace) -> None:
    """Ignore the trace."""
