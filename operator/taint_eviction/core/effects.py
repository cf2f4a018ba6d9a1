"""What follows from a fact or an outcome, for the runtime to carry out or report: closed unions of values.

``Effect``: has happened in the core; goes to log, metrics and Kubernetes events, and never blocks an eviction.
``Work``: is to be done on the cluster now. ``WorkOutcome``: how a piece of work ended.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from taint_eviction.core.control_state import Latch, Pause, PauseScope
from taint_eviction.core.decision import Evict, StayReason
from taint_eviction.core.objects import ControllerRef, PodRef, Taint

# What the eviction API may say


class BlockReason(Enum):
    """Why the eviction API lets a pod stay for now; nothing is wrong with the call."""

    BUDGET = "budget"
    BUDGET_NOT_READY = "budget_not_ready"
    BUDGET_OVERLOADED = "budget_overloaded"
    BUDGET_NEGATIVE = "budget_negative"
    SEVERAL_BUDGETS = "several_budgets"

    @property
    def text(self) -> str:
        """Say it in a sentence's second half."""
        return _BLOCKS[self]


_BLOCKS = {
    BlockReason.BUDGET: "its PodDisruptionBudget allows no disruption now",
    BlockReason.BUDGET_NOT_READY: "its PodDisruptionBudget has not been counted yet",
    BlockReason.BUDGET_OVERLOADED: "its PodDisruptionBudget has too many disruptions under way",
    BlockReason.BUDGET_NEGATIVE: "its PodDisruptionBudget is exceeded already",
    BlockReason.SEVERAL_BUDGETS: "more than one PodDisruptionBudget covers it, which the eviction API always refuses",
}


class Block(NamedTuple):
    """What the eviction API said. ``budget`` is the PodDisruptionBudget's name, "" where the server named none."""

    reason: BlockReason
    budget: str


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
    """A taint's value was changed while it stayed: its tolerances start anew, again and again if that goes on."""

    node_name: str
    taint: Taint


@dataclass(frozen=True, slots=True)
class StrayTaint:
    """A taint of the node lifecycle controller stays on a node that reports that it is ready; see ``stray_taints``."""

    node_name: str
    taint: Taint


@dataclass(frozen=True, slots=True)
class ReadyOutOfService:
    """A node is ready though somebody said that it is out of service: probably the taint was forgotten."""

    node_name: str


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A pod has a deadline. ``before_at`` is the one it had so far, None where it had none."""

    ref: PodRef
    node_name: str
    decision: Evict
    before_at: float | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A pod had a deadline and has none any more. ``reason`` None: the pod itself is gone or no longer watched.

    ``late_seconds``: how long after the deadline that is, negative for before it; None: not said. Beside a controller
    that evicts, too, it tells whether both would have come to the same. ``decision`` is the one that no
    longer holds, ``controller`` the pod's.
    """

    ref: PodRef
    node_name: str
    reason: StayReason | None
    late_seconds: float | None = field(default=None, compare=False)
    decision: Evict | None = field(default=None, compare=False)
    controller: ControllerRef | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Evicted:
    """The API server has accepted a pod's deletion, ``late_seconds`` after its deadline."""

    ref: PodRef
    node_name: str
    decision: Evict
    late_seconds: float
    controller: ControllerRef | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod's eviction failed for the ``tries``-th time since ``since_at``; it is tried again at ``retry_at``.

    ``block``: a budget forbids it for now, None: something is wrong.
    """

    ref: PodRef
    node_name: str
    message: str
    tries: int
    since_at: float
    retry_at: float
    block: Block | None = None
    decision: Evict | None = field(default=None, compare=False)
    controller: ControllerRef | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class EvictionLoop:
    """A DaemonSet, ``controller``, recreates its pods on a tainted node, and they are evicted again and again.

    ``ref`` is the pod that was evicted last, because of ``taint``. See ``eviction_loops``.
    """

    ref: PodRef
    node_name: str
    controller: ControllerRef
    taint: Taint


@dataclass(frozen=True, slots=True)
class Paused:
    """People have paused the evictions in ``scope``."""

    scope: PauseScope
    pause: Pause


@dataclass(frozen=True, slots=True)
class Resumed:
    """People have ended the pause of the evictions in ``scope``."""

    scope: PauseScope


@dataclass(frozen=True, slots=True)
class BreakerOpened:
    """The circuit breaker holds all evictions back."""

    latch: Latch


@dataclass(frozen=True, slots=True)
class BreakerClosed:
    """The circuit breaker lets evictions go on."""


@dataclass(frozen=True, slots=True)
class CountdownAdopted:
    """A pod's countdown is this controller's alone now: so many of its tolerations lost their seconds to a note."""

    ref: PodRef
    node_name: str
    tolerations: int


@dataclass(frozen=True, slots=True)
class AdoptionRefused:
    """A pod's countdown could not be adopted, for the ``tries``-th time: it is still the built-in controller's."""

    ref: PodRef
    node_name: str
    message: str
    tries: int


@dataclass(frozen=True, slots=True)
class GivenBack:
    """An adopted pod has its seconds back. ``node_name`` is "" if it is bound to none."""

    ref: PodRef
    node_name: str


AdoptionEffect = CountdownAdopted | AdoptionRefused | GivenBack
PodEffect = Scheduled | Cancelled | Evicted | Refused | EvictionLoop | AdoptionEffect
NodeEffect = NodeTainted | NodeCleared | TaintRewritten | StrayTaint | ReadyOutOfService
Effect = NodeEffect | PodEffect | Paused | Resumed | BreakerOpened | BreakerClosed


# Work


@dataclass(frozen=True, slots=True)
class Eviction:
    """Evict this pod now. ``tries`` counts the attempts that failed before, 0 for the first.

    ``by_eviction_api``: ask the eviction API for it, so that budgets hold; else delete it.
    """

    ref: PodRef
    node_name: str
    decision: Evict
    marked: bool
    tries: int
    by_eviction_api: bool = False


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
    """No longer wanted, or with another deadline, when it was decided again just before a call: no call followed."""


@dataclass(frozen=True, slots=True)
class CutOff:
    """The attempt was cancelled: what was sent last may have been done. The pod is decided anew."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """Still wanted, but not allowed now (not leading, or paused): it is queued again as if it had not begun."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not work: to be tried again at ``retry_at``. ``message`` is the server's own where it gave one.

    ``block``: a budget forbids the eviction for now, None: something else is wrong.
    """

    message: str
    retry_at: float
    block: Block | None = None


WorkOutcome = Done | PodIsGone | CalledOff | CutOff | Suspended | Failed
