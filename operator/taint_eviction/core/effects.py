"""What follows from a fact or an outcome, for the runtime to carry out or report: closed unions of values.

``Effect``: it has happened in the core; it is reported in log, metrics and Kubernetes events, and never blocks an
eviction. ``Work``: it is to be done on the cluster now. ``WorkOutcome``: how a piece of work ended.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from taint_eviction.core.control_state import Latch, Pause, PauseScope
from taint_eviction.core.decision import Evict, StayReason
from taint_eviction.core.objects import ControllerRef, PodRef, Taint

# What the eviction API may say


class BlockReason(Enum):
    """Why the eviction API refuses to evict a pod for now, although the request is valid."""

    BUDGET = "budget"
    BUDGET_NOT_READY = "budget_not_ready"
    BUDGET_OVERLOADED = "budget_overloaded"
    BUDGET_NEGATIVE = "budget_negative"
    SEVERAL_BUDGETS = "several_budgets"
    EVACUATION = "evacuation"

    @property
    def text(self) -> str:
        """Return the reason as the second half of a sentence."""
        return _BLOCKS[self]


_BLOCKS = {
    BlockReason.BUDGET: "its PodDisruptionBudget allows no disruption now",
    BlockReason.BUDGET_NOT_READY: "its PodDisruptionBudget has not been counted yet",
    BlockReason.BUDGET_OVERLOADED: "its PodDisruptionBudget has too many disruptions under way",
    BlockReason.BUDGET_NEGATIVE: "its PodDisruptionBudget is exceeded already",
    BlockReason.SEVERAL_BUDGETS: "more than one PodDisruptionBudget covers it, which the eviction API always refuses",
    BlockReason.EVACUATION: "the virtual machine in it is being moved to another node",
}


class Block(NamedTuple):
    """The eviction API's refusal. ``budget`` is the PodDisruptionBudget's name, "" if the server named none."""

    reason: BlockReason
    budget: str


# Effects


@dataclass(frozen=True, slots=True)
class NodeTainted:
    """A node has NoExecute taints and had none before: the controller needs to know its pods from now on."""

    name: str


@dataclass(frozen=True, slots=True)
class NodeCleared:
    """A node has no NoExecute taint any more, or no longer exists."""

    name: str


@dataclass(frozen=True, slots=True)
class TaintRewritten:
    """A taint's value was changed while it stayed: the countdowns of its pods restart, with every such change."""

    node_name: str
    taint: Taint


@dataclass(frozen=True, slots=True)
class StrayTaint:
    """A taint of the node lifecycle controller stays on a node that reports that it is ready; see ``warnings``."""

    node_name: str
    taint: Taint


@dataclass(frozen=True, slots=True)
class ReadyOutOfService:
    """A node is ready although it has the taint out-of-service: probably somebody forgot to remove the taint."""

    node_name: str


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A pod has a deadline. ``before_at`` is its previous deadline, None if it had none."""

    ref: PodRef
    node_name: str
    decision: Evict
    before_at: float | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A pod no longer has a deadline. ``reason`` None: the pod itself is gone.
    ``late_seconds``: how long after the deadline that is, negative if before it; None: not stated. Beside another
    controller that evicts, it shows whether both would have decided alike. ``decision`` is the one that no longer
    holds; ``controller`` is the pod's owner.
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

    ``block``: a budget forbids it for now. None: the attempt failed for another reason.
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

    ``ref`` is the pod that was evicted last, because of ``taint``. See ``warnings``.
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
    """The circuit breaker no longer holds evictions."""


@dataclass(frozen=True, slots=True)
class CountdownAdopted:
    """This controller alone counts down for a pod: ``tolerations`` of its tolerations have a mark and a note now."""

    ref: PodRef
    node_name: str
    tolerations: int


@dataclass(frozen=True, slots=True)
class AdoptionRefused:
    """A pod's countdown could not be taken over before the built-in controller's timer, in ``tries`` tries."""

    ref: PodRef
    node_name: str
    message: str
    tries: int


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A pod whose countdown was taken over has its ``tolerationSeconds`` back. ``node_name`` "": it is not bound."""

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
    """Take the DisruptionTarget condition back from a pod whose eviction was cancelled.
    ``node_name`` is "" if the pod is no longer known.
    """

    ref: PodRef
    node_name: str
    tries: int


Work = Eviction | TakeBack


# Outcomes


@dataclass(frozen=True, slots=True)
class Done:
    """The API server accepted the request."""


@dataclass(frozen=True, slots=True)
class PodIsGone:
    """The pod no longer exists (404), or its name belongs to another UID (409 or 422): nothing is left to do."""


@dataclass(frozen=True, slots=True)
class CalledOff:
    """The work is no longer wanted, or has another deadline, by the decision just before a call: no call was made."""


@dataclass(frozen=True, slots=True)
class CutOff:
    """The attempt was cancelled. The last request may have taken effect. The core decides on the pod again."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """The work is still wanted, but not allowed now (not leading, or paused): it is queued again as if it had not
    begun.
    """


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed and is retried at ``retry_at``. ``message`` is the server's own if it gave one.
    ``block``: a budget forbids the eviction for now. None: the attempt failed for another reason. ``denied``: an
    admission webhook or policy of somebody else denied the request. ``unanswered``: no answer came. ``evacuates``:
    admission did so because it moves the virtual machine in the pod away. ``certain``: the API server answered that it
    did nothing.
    """

    message: str
    retry_at: float
    block: Block | None = None
    denied: bool = False
    unanswered: bool = False
    evacuates: bool = False
    certain: bool = False

    @property
    def refuses(self) -> bool:
        """Return whether somebody refused the eviction: a budget or admission, and not a server in trouble."""
        return self.block is not None or self.denied


WorkOutcome = Done | PodIsGone | CalledOff | CutOff | Suspended | Failed
