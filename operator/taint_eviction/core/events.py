"""What follows from a fact or an outcome, for the runtime to carry out or report.

``Event``: it has happened; it is reported, and never blocks an eviction. Each says itself what it is called, how it
reads as a sentence, and what its fields are. Log, journal and timeline are made from these, so a new event is a class
here and the line that makes it. ``Work``: it is to be done on the cluster now. ``WorkOutcome``: how a piece of work
ended. These two are closed unions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from taint_eviction.core.control_state import Latch, Pause, PauseScope
from taint_eviction.core.decision import Evict, StayReason, TaintVerdict
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import OUT_OF_SERVICE, ControllerRef, PodRef, Taint
from taint_eviction.core.sentences import began, bracketed, tolerated

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
    BlockReason.EVACUATION: "the virtual machine in it is moving away (KubeVirt)",
}


class Block(NamedTuple):
    """The eviction API's refusal. ``budget`` is the PodDisruptionBudget's name, "" if the server named none."""

    reason: BlockReason
    budget: str

    def __str__(self) -> str:
        return self.reason.text + (f" ({self.budget})" if self.budget else "")


# Events

# This many evictions within this many seconds, of pods of one DaemonSet from one node, are a loop.
LOOP_EVICTIONS = 3
LOOP_SECONDS = 600.0

Fields = dict[str, Any]


class Times(NamedTuple):
    """How a sentence shows times: ``text`` writes seconds since the epoch, and None for a time that is not known."""

    now: Moment
    text: Callable[[float | None], str | None]

    def of(self, instant: float) -> str | None:
        """Return an instant as text."""
        return self.text(self.now.epoch_of(instant))


class Event(ABC):
    """Something that has happened; ``name`` is its kind in one word.

    ``own``: this process did it, so that no other replica can report it. Every replica sees the others. ``usual``: it
    happens every day, and nobody need look at it.
    """

    __slots__ = ()
    name: ClassVar[str]
    own: ClassVar[bool] = False
    usual: ClassVar[bool] = False

    def sentence(self, times: Times, dry_run: bool) -> str:
        """Return what has happened, for people."""
        return f"dry run: {self._said(times)}" if dry_run else self._said(times)

    def fields(self) -> Fields:
        """Return what has happened, for machines: instants (``…_at``), Unix times (``…_epoch``), numbers and texts."""
        return self._subject() | self._details()

    @abstractmethod
    def _said(self, times: Times) -> str: ...

    def _subject(self) -> Fields:
        return {}

    def _details(self) -> Fields:
        return {}


def pod_named(ref: PodRef, node_name: str) -> Fields:
    """Return the fields that name a pod and its node."""
    return {"pod": str(ref), "uid": ref.uid, "node": node_name}


def taint_named(verdict: TaintVerdict) -> Fields:
    """Return the fields that name a taint, the toleration that counts for it, None if no toleration matches, and the
    rule that shortens it, if one does.
    """
    ceiling = verdict.ceiling
    most = {} if ceiling is None else {"ceiling_rule": ceiling.rule, "ceiling_seconds": ceiling.seconds}
    toleration = None if verdict.toleration is None else str(verdict.toleration)
    return {"taint": str(verdict.taint), "toleration": toleration, **most}


def tolerance(verdict: TaintVerdict) -> str:
    """Return the clause on a taint: whether it is tolerated, and by which toleration."""
    return f"taint {tolerated(verdict.taint, verdict.toleration, verdict.by_default, verdict.ceiling)}"


@dataclass(frozen=True, slots=True)
class _NodeEvent(Event):
    node_name: str

    def _subject(self) -> Fields:
        return {"node": self.node_name}


class NodeTainted(_NodeEvent):
    """A node has NoExecute taints and had none before: the controller needs to know its pods from now on."""

    __slots__ = ()
    name = "tainted"
    usual = True

    def _said(self, times: Times) -> str:
        return f"node {self.node_name} has NoExecute taints: watching its pods"


class NodeCleared(_NodeEvent):
    """A node has no NoExecute taint any more, or no longer exists."""

    __slots__ = ()
    name = "cleared"
    usual = True

    def _said(self, times: Times) -> str:
        return f"node {self.node_name} no longer has NoExecute taints"


class ReadyOutOfService(_NodeEvent):
    """A node is ready although it has the taint out-of-service: probably somebody forgot to remove the taint."""

    __slots__ = ()
    name = "ready_out_of_service"

    def _said(self, times: Times) -> str:
        return (
            f"node {self.node_name} is ready, but has the taint {OUT_OF_SERVICE}: the taint keeps pods away until"
            " somebody removes it"
        )


@dataclass(frozen=True, slots=True)
class _TaintEvent(_NodeEvent):
    taint: Taint

    def _details(self) -> Fields:
        return {"taint": str(self.taint)}


class TaintRewritten(_TaintEvent):
    """A taint's value was changed while it stayed: the countdowns of its pods restart, with every such change."""

    __slots__ = ()
    name = "rewritten"

    def _said(self, times: Times) -> str:
        return (
            f"the value of taint {self.taint} on node {self.node_name} has changed: its tolerations start again, and"
            " never end if this repeats"
        )


class StrayTaint(_TaintEvent):
    """A taint of the node lifecycle controller stays on a node that reports that it is ready; see ``warnings``."""

    __slots__ = ()
    name = "stray_taint"

    def _said(self, times: Times) -> str:
        return (
            f"node {self.node_name} has reported for more than a minute that it is ready, and still has taint"
            f" {self.taint}, which evicts pods as any taint does: remove it, or see why the node lifecycle controller"
            " does not"
        )


@dataclass(frozen=True, slots=True)
class _PodEvent(Event):
    ref: PodRef
    node_name: str

    def _subject(self) -> Fields:
        return pod_named(self.ref, self.node_name)

    def __str__(self) -> str:
        return f"pod {self.ref} (uid {self.ref.uid}) on node {self.node_name}"


@dataclass(frozen=True, slots=True)
class Scheduled(_PodEvent):
    """A pod has a deadline. ``before_at`` is its previous deadline, None if it had none."""

    name = "scheduled"
    usual = True
    decision: Evict
    before_at: float | None = None

    def _said(self, times: Times) -> str:
        before = "" if self.before_at is None else f" instead of {times.of(self.before_at)}"
        return f"{self} is due at {times.of(self.decision.fire_at)}{before}: {_because(self.decision, times)}"

    def _details(self) -> Fields:
        held = {"held_seconds": self.decision.held_seconds} if self.decision.held_seconds else {}
        return {**_deciding(self.decision), "due_at": self.decision.fire_at, **held}


@dataclass(frozen=True, slots=True)
class Cancelled(_PodEvent):
    """A pod no longer has a deadline. ``reason`` None: the pod itself is gone.
    ``late_seconds``: how long after the deadline that is, negative if before it; None: not stated. Beside another
    controller that evicts, it shows whether both would have decided alike. ``decision`` is the one that no longer
    holds; ``controller`` is the pod's owner.
    """

    name = "cancelled"
    usual = True
    reason: StayReason | None
    late_seconds: float | None = field(default=None, compare=False)
    decision: Evict | None = field(default=None, compare=False)
    controller: ControllerRef | None = field(default=None, compare=False)

    @property
    def why(self) -> str:
        """The reason as the second half of a sentence."""
        return "it is gone" if self.reason is None else self.reason.value

    def _said(self, times: Times) -> str:
        late = self._deleted_late_seconds
        when = "" if late is None else f", {abs(late):.2f} s {'before' if late < 0 else 'after'} its deadline"
        return f"{self} is no longer due: {self.why}{when}"

    def _details(self) -> Fields:
        late = self._deleted_late_seconds
        when = {} if late is None else {"deleted_late_seconds": round(late, 3)}
        return {"reason": "pod_gone" if self.reason is None else self.reason.name.lower(), **when}

    @property
    def _deleted_late_seconds(self) -> float | None:
        """For comparison with another controller that deleted the pod: whether it was early or late."""
        return self.late_seconds if self.reason is StayReason.TERMINATING else None


@dataclass(frozen=True, slots=True)
class Evicted(_PodEvent):
    """The API server has accepted a pod's deletion, ``late_seconds`` after its deadline.

    ``held_by``: which guards have blocked it since then, as far as this process knows.
    """

    name = "evicted"
    usual = True
    own = True
    decision: Evict
    late_seconds: float
    controller: ControllerRef | None = field(default=None, compare=False)
    held_by: tuple[str, ...] = field(default=(), compare=False)

    def sentence(self, times: Times, dry_run: bool) -> str:
        """Return what has happened; in a dry run, what would have."""
        said = Event.sentence(self, times, dry_run)
        return said.replace(" was evicted ", " would be evicted ", 1) if dry_run else said

    def _said(self, times: Times) -> str:
        deadline = times.of(self.decision.due_at)
        why = _because(self.decision, times)
        return f"{self} was evicted {self.late_seconds:.2f} s after its deadline {deadline}: {why}"

    def _details(self) -> Fields:
        late = {"late_seconds": round(self.late_seconds, 3)}
        return {**_deciding(self.decision), "due_at": self.decision.due_at, **late}


@dataclass(frozen=True, slots=True)
class Refused(_PodEvent):
    """A pod's eviction failed for the ``tries``-th time since ``since_at``; it is tried again at ``retry_at``.

    ``block``: a budget forbids it for now. None: the attempt failed for another reason.
    """

    name = "refused"
    own = True
    message: str
    tries: int
    since_at: float
    retry_at: float
    block: Block | None = None
    decision: Evict | None = field(default=None, compare=False)
    controller: ControllerRef | None = field(default=None, compare=False)

    def _said(self, times: Times) -> str:
        tried = f"attempt {self.tries} since {times.of(self.since_at)}"
        block = "" if self.block is None else f"{self.block}: "
        wait = max(0.0, self.retry_at - times.now.at)
        return f"{self} could not be evicted ({tried}), next attempt in {wait:.1f} s: {block}{self.message}"

    def _details(self) -> Fields:
        block = {} if self.block is None else {"block": self.block.reason.value, "budget": self.block.budget}
        return {"tries": self.tries, "error": self.message, "retry_at": self.retry_at, **block}


@dataclass(frozen=True, slots=True)
class EvictionLoop(_PodEvent):
    """A DaemonSet, ``controller``, recreates its pods on a tainted node, and they are evicted again and again.

    ``ref`` is the pod that was evicted last, because of ``taint``. See ``warnings``.
    """

    name = "eviction_loop"
    own = True
    controller: ControllerRef
    taint: Taint

    def _said(self, times: Times) -> str:
        return (
            f"{self.controller} recreates its pod {self.ref} on node {self.node_name}, and taint {self.taint} evicts it"
            f" again, {LOOP_EVICTIONS} times within {LOOP_SECONDS / 60:g} minutes: give the {self.controller.kind} a"
            " toleration for the taint, without tolerationSeconds, or remove the taint"
        )

    def _details(self) -> Fields:
        return {"controller": str(self.controller), "taint": str(self.taint)}


@dataclass(frozen=True, slots=True)
class CountdownAdopted(_PodEvent):
    """This controller alone counts down for a pod: ``tolerations`` of its tolerations have a mark and a note now."""

    name = "adopted"
    usual = True
    own = True
    tolerations: int

    def _said(self, times: Times) -> str:
        return f"{self}: its countdown is taken over from the built-in controller"

    def _details(self) -> Fields:
        return {"tolerations": self.tolerations}


@dataclass(frozen=True, slots=True)
class AdoptionRefused(_PodEvent):
    """A pod's countdown could not be taken over before the built-in controller's timer, in ``tries`` tries."""

    name = "adoption_refused"
    own = True
    message: str
    tries: int

    def _said(self, times: Times) -> str:
        return (
            f"{self}: its countdown could not be taken over in time ({self.tries} tries), so the built-in controller"
            f" evicts it past all guards: {self.message}"
        )

    def _details(self) -> Fields:
        return {"tries": self.tries, "error": self.message}


class GivenBack(_PodEvent):
    """A pod whose countdown was taken over has its ``tolerationSeconds`` back. ``node_name`` "": it is not bound."""

    __slots__ = ()
    name = "given_back"
    usual = True
    own = True

    def _said(self, times: Times) -> str:
        return f"{self} has its tolerationSeconds back"


@dataclass(frozen=True, slots=True)
class _ScopeEvent(Event):
    scope: PauseScope

    def _subject(self) -> Fields:
        kind, name = self.scope
        return {"scope": str(self.scope), "scope_kind": kind} | ({kind: name} if name else {})


@dataclass(frozen=True, slots=True)
class Paused(_ScopeEvent):
    """People have paused the evictions in ``scope``."""

    name = "paused"
    pause: Pause

    def _said(self, times: Times) -> str:
        return f"{self.scope} are paused{bracketed(self.pause, times.text)}"

    def _details(self) -> Fields:
        return {"since_epoch": self.pause.since_epoch, "reason": self.pause.reason}


class Resumed(_ScopeEvent):
    """People have ended the pause of the evictions in ``scope``."""

    __slots__ = ()
    name = "resumed"

    def _said(self, times: Times) -> str:
        return f"{self.scope} are no longer paused"


@dataclass(frozen=True, slots=True)
class BreakerOpened(Event):
    """The circuit breaker holds all evictions back."""

    name = "breaker_opened"
    latch: Latch

    def _said(self, times: Times) -> str:
        return f"the circuit breaker is open: no pod is evicted{bracketed(self.latch, times.text)}"

    def _details(self) -> Fields:
        return {"since_epoch": self.latch.since_epoch, "cause": self.latch.cause}


@dataclass(frozen=True, slots=True)
class BreakerClosed(Event):
    """The circuit breaker no longer holds evictions."""

    name = "breaker_closed"

    def _said(self, times: Times) -> str:
        return "the circuit breaker is closed: evictions continue"


def _deciding(decision: Evict) -> Fields:
    return {**taint_named(decision.deciding), "time_source": decision.deciding.start_source.value}


def _because(decision: Evict, times: Times) -> str:
    """Return the deciding taint, the toleration that counts, and the start time with its source."""
    verdict = decision.deciding
    overruled = "" if verdict.overruled is None else f", which comes before [{verdict.overruled}]"
    start = began(f"{times.of(verdict.start_at)}", verdict.start_source.value)
    held = f", and its owner holds it for {decision.held_seconds:g} s" if decision.held_seconds else ""
    return f"{tolerance(verdict)}{overruled}, since {start}{held}"


# Work


@dataclass(frozen=True, slots=True)
class Eviction:
    """Evict this pod now. ``tries`` counts the attempts that failed before, 0 for the first; ``hung`` those of them
    whose request to end the pod had no answer.

    ``by_eviction_api``: ask the eviction API for it, so that budgets hold; else delete it.
    """

    ref: PodRef
    node_name: str
    decision: Evict
    marked: bool
    tries: int
    by_eviction_api: bool = False
    hung: int = 0


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

    answer: ClassVar[str | None] = "accepted"


@dataclass(frozen=True, slots=True)
class PodIsGone:
    """The pod no longer exists (404), or its name belongs to another UID (409 or 422): nothing is left to do."""

    answer: ClassVar[str | None] = "no such pod, or its name belongs to another UID"


@dataclass(frozen=True, slots=True)
class CalledOff:
    """The work is no longer wanted, or has another deadline, by the decision just before a call: no call was made."""

    answer: ClassVar[str | None] = None


@dataclass(frozen=True, slots=True)
class CutOff:
    """The attempt was cancelled. The last request may have taken effect. The core decides on the pod again."""

    answer: ClassVar[str | None] = None


@dataclass(frozen=True, slots=True)
class Suspended:
    """The work is still wanted, but not allowed now (not leading, or paused): it is queued again as if it had not
    begun.
    """

    answer: ClassVar[str | None] = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed and is retried at ``retry_at``. ``message`` is the server's own if it gave one.
    ``block``: a budget forbids the eviction for now. None: the attempt failed for another reason. ``denied``: an
    admission webhook or policy of somebody else denied the request. ``unanswered``: no answer came. ``evacuates``:
    admission did so because it moves the virtual machine in the pod away. ``certain``: the API server answered that it
    did nothing. ``late``: the attempt took long, as where an admission webhook does not answer the API server.
    """

    message: str
    retry_at: float
    block: Block | None = None
    denied: bool = False
    unanswered: bool = False
    evacuates: bool = False
    certain: bool = False
    late: bool = False

    @property
    def answer(self) -> str | None:
        """What the API server answered to the last call; None, of any outcome, if there was no call or no answer."""
        return self.message

    @property
    def refuses(self) -> bool:
        """Return whether somebody refused the eviction: a budget or admission, and not a server in trouble."""
        return self.block is not None or self.denied


WorkOutcome = Done | PodIsGone | CalledOff | CutOff | Suspended | Failed
