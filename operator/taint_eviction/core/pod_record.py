"""One pod, one record: what was observed of it, the decision, its state, and the condition that may still be on it. The
record of a pod is all that the core knows of that pod. Queues hold hints only: they find the record that is next, and
can be rebuilt from the records at any time (``EvictionQueue.place``, ``TakeBacks.place``). A record belongs to one UID.
This module only defines the values. ``known_pods`` writes what was observed, ``reconciler`` and ``eviction_queue`` set
the states of pods that wait, ``attempts`` of those in flight, ``take_backs`` the condition.

    waiting -> settling -> queued -> in flight -> deleted
                                     in flight -> retrying -> queued

A pod that no longer has to leave changes to ``stays`` from any of these states; if its attempt was held back, it waits
again. Without a breaker, no pod settles.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from taint_eviction.core.decision import Evict, StayReason
from taint_eviction.core.effects import Eviction, TakeBack
from taint_eviction.core.failed_attempts import FailedAttempts
from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.instants import Sighting
from taint_eviction.core.limits import Token
from taint_eviction.core.objects import Pod


class WaitReason(Enum):
    """Why a due pod is not evicted now, although no request was refused."""

    ORDERS_UNKNOWN = "whether evictions are paused has not been read yet"
    BREAKER_OPEN = "the circuit breaker is open"
    PAUSED = "all evictions are paused"
    NODE_PAUSED = "evictions from its node are paused"
    NAMESPACE_PAUSED = "evictions in its namespace are paused"
    RULE_PAUSED = "a rule of the policy pauses it"
    SETTLING = "it waits for a moment, in case many nodes are being tainted"
    UNLISTED = "it waits until the pods of newly tainted nodes have been listed"
    LIMITED = "it waits for its turn: a limit, or all workers are busy"


class Step(Enum):
    """How far work in flight has come. The last request may have taken effect, whatever the answer is."""

    BEGUN = "nothing has been sent yet"
    MARKING = "the condition is being set"
    ENDING = "the pod's deletion is being asked for"


# States


class Schedule(NamedTuple):
    """The flow in which an eviction waits, and when it is to begin.
    ``retry``: it has failed before. ``next_taint_at``: when another taint will be the effective one
    (``policy``), if the pod still waits then; None: never. ``unanswered``: the last call of a retry had no answer.
    ``came_later``: the pod was bound to its node after the taint that evicts it began.
    """

    flow: FlowKey
    fire_at: float
    retry: bool
    next_taint_at: float | None
    unanswered: bool = False
    came_later: bool = False


@dataclass(frozen=True, slots=True)
class Stays:
    """The pod is left alone. ``reason`` None: nothing is decided, because it is new or no longer watched."""

    reason: StayReason | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The pod waits for its deadline; with a breaker, until the deadline became known, if that is later."""

    until: float
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Settling:
    """The pod is due, and waits until ``until`` in case more nodes are tainted, then for the lists of their pods."""

    until: float
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Queued:
    """The pod is due and waits for its turn.

    ``wait_reason`` is computed on request and not stored, because whole flows wait for the same reason.
    """

    schedule: Schedule
    wait_reason: WaitReason = WaitReason.LIMITED


@dataclass(frozen=True, slots=True)
class InFlight:
    """A worker is evicting the pod.
    ``schedule``: that of the eviction. ``tokens``: its tokens from the limits, None: the policy has changed since it
    began.
    """

    work: Eviction
    schedule: Schedule
    tokens: tuple[Token, ...] | None = ()
    step: Step = Step.BEGUN


@dataclass(frozen=True, slots=True)
class Retrying:
    """The last attempt failed, or was refused by a budget; the next may begin at ``at``."""

    at: float
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Deleted:
    """The API server accepted the pod's deletion at ``at``; it is not requested again."""

    at: float


WaitingState = Waiting | Settling | Queued | Retrying
PendingState = WaitingState | InFlight
PodState = Stays | PendingState | Deleted

UNDECIDED = Stays(None)
_STAYS = {reason: Stays(reason) for reason in StayReason}


def stays(reason: StayReason) -> Stays:
    """Return the state of a pod that stays; there is one value for all pods that stay for the same reason."""
    return _STAYS[reason]


# What belongs to a record


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether a DisruptionTarget condition from this controller may be on a pod.
    ``may_be_there``: this process was about to write it, so it may be there whatever the answer was.
    ``take_back_at``: when it is to be taken back, after ``tries`` failed attempts; None: it is not. ``turn``: the order
    in which that was decided.
    """

    may_be_there: bool = False
    take_back_at: float | None = None
    tries: int = 0
    turn: int = 0


NO_CONDITION = Condition()


class PodRecord:
    """What is known of one pod; ``ref`` never changes.

    ``seen_at``: when it was last seen. ``bound``: since when it has been bound to its node, None: it is not bound.
    ``decision``: the decision to evict it, None: it stays. ``turn``: its order among the pods that wait in the same
    place; ``schedule_turn``: the order in which their schedules were made. ``known_since``: its deadline, and since
    when the deadline has been known; None: it need not settle. ``asked``: its deletion was requested, so if the pod is
    seen terminating the request took effect, even if no answer came. ``taking_back``: its condition is being taken
    back, beside whatever its state is; None: it is not. ``evacuating_since``: when this leader first heard
    that the virtual machine in it moves away, None: never. ``reported_fire_at``: the deadline of the eviction
    that was last reported as done.
    """

    __slots__ = (
        "asked",
        "bound",
        "condition",
        "decision",
        "evacuating_since",
        "failures",
        "known_since",
        "pod",
        "ref",
        "reported_fire_at",
        "schedule_turn",
        "seen_at",
        "state",
        "taking_back",
        "turn",
    )

    def __init__(self, pod: Pod, seen_at: float, bound: Sighting | None = None) -> None:
        self.pod = pod
        self.ref = pod.ref
        self.seen_at = seen_at
        self.bound = bound
        self.state: PodState = UNDECIDED
        self.decision: Evict | None = None
        self.turn = self.schedule_turn = 0
        self.known_since: tuple[float, float] | None = None
        self.failures: FailedAttempts | None = None
        self.evacuating_since: float | None = None
        self.asked = False
        self.reported_fire_at: float | None = None
        self.condition = NO_CONDITION
        self.taking_back: TakeBack | None = None

    @property
    def node_name(self) -> str:
        """The name of its node, "" while it is not bound."""
        return self.pod.node_name or ""

    @property
    def deleted(self) -> bool:
        """Return whether the API server has accepted its deletion."""
        return isinstance(self.state, Deleted)

    @property
    def in_flight(self) -> bool:
        """Return whether a worker is working on the pod."""
        return isinstance(self.state, InFlight)
