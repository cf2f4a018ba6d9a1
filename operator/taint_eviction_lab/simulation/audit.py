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

    When a call has ``ARRIVED``, it is ``CARRIED_OUT`` or ``REFUSED`` at the same instant. For the caller it ends as
    ``ANSWERED``, or as ``FAILED``: it was refused, got no answer, or was carried out although its answer is a failure.
    ``SAW`` is no call: a watch delivered an object.
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
    """One phase of one call (the ``process``'s call with this ``number``).

    ``uid`` is the UID that the call names, "" if it names none. ``body`` is its result (lists, objects, None), or the
    failure.
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
