"""What follows from a fact or an outcome, for the body to carry out or tell: closed unions of values.

``Effect``: has happened in the brain; goes to log, metrics and Kubernetes events, and never blocks an eviction.
``Work``: is to be done on the cluster now. ``Outcome``: how a piece of work ended.
"""

from dataclasses import dataclass

from taint_eviction.core.decision import Evict, StayReason
from taint_eviction.core.objects import PodRef, Taint

# Effects


@dataclass(frozen=True, slots=True)
class NodeTainted:
    """A node has NoExecute taints now and had none: its pods matter from now on."""

    name: str


@dataclass(frozen=True, slots=True)
class NodeCleared:
    """A node has no NoExecute taint any more, or no longer exists."""

    name: str


@dataclass(frozen=True, slots=True)
class TaintRewritten:
    """A taint's value was changed while it stayed: its tolerances start anew, for ever if that goes on."""

    node_name: str
    taint: Taint


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A pod has a deadline. ``before_at`` is the one it had so far, None where it had none."""

    ref: PodRef
    node_name: str
    decision: Evict
    before_at: float | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A pod had a deadline and has none any more. ``reason`` None: the pod itself is gone or no longer watched."""

    ref: PodRef
    node_name: str
    reason: StayReason | None


@dataclass(frozen=True, slots=True)
class Evicted:
    """The API server has accepted a pod's deletion, ``late_seconds`` after its deadline."""

    ref: PodRef
    node_name: str
    decision: Evict
    late_seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod's eviction failed for the ``tries``-th time since ``since_at``; it is tried again at ``retry_at``."""

    ref: PodRef
    node_name: str
    message: str
    tries: int
    since_at: float
    retry_at: float


Effect = NodeTainted | NodeCleared | TaintRewritten | Scheduled | Cancelled | Evicted | Refused


# Work


@dataclass(frozen=True, slots=True)
class Eviction:
    """Evict this pod now. ``tries`` counts the attempts that failed before, 0 for the first."""

    ref: PodRef
    node_name: str
    decision: Evict
    marked: bool
    tries: int


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Take the DisruptionTarget condition back from a pod whose eviction was called off.

    ``node_name`` is "" where the pod is not known any more.
    """

    ref: PodRef
    node_name: str
    tries: int


Work = Eviction | TakeBack


# Outcomes


@dataclass(frozen=True, slots=True)
class Done:
    """The API server did it."""


@dataclass(frozen=True, slots=True)
class PodIsGone:
    """There is no such pod (404), or its name belongs to another UID (409 or 422): nothing left to do."""


@dataclass(frozen=True, slots=True)
class CalledOff:
    """Not wanted any more when it was decided again just before a call: nothing was sent after that."""


@dataclass(frozen=True, slots=True)
class Held:
    """Still wanted, but not allowed just now (not leading): to be taken up again as if it had not been begun."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not work: to be tried again at ``retry_at``. ``message`` is the server's own where it gave one."""

    message: str
    retry_at: float


Outcome = Done | PodIsGone | CalledOff | Held | Failed
