"""When and why a pod is evicted: a pure function of the pod and its node's taints.
It reads no clock: the result is an instant, and the same whether it is computed early, late or twice. ``known_nodes``
and ``pods`` say what is known and since when, and ``reconciler`` acts on the result.

Reference: ``getMinTolerationTime`` and ``processPodOnNode`` in pkg/controller/tainteviction.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import NamedTuple

from taint_eviction.core.instants import FAR_FUTURE_SECONDS, TRUNCATION_SECONDS, Sighting, TimeSource
from taint_eviction.core.matching import matching
from taint_eviction.core.objects import (
    MARK_SECONDS,
    NO_EXECUTE,
    NOT_READY,
    OUT_OF_SERVICE,
    UNREACHABLE,
    Pod,
    Taint,
    Toleration,
)

# Of so many later tolerations that match, one is named whose seconds are others. Nothing is decided by it, and with a
# ceiling a hundred thousand in one pod may have the same.
_MOST_LATER = 16


class StayReason(Enum):
    """Why a pod is left alone."""

    NOT_BOUND = "it is not bound to a node"
    MIRROR = "it is a mirror pod: its kubelet owns it"
    TERMINATING = "it is being deleted already"
    FINISHED = "it has finished, and finished pods are kept"
    NODE_UNKNOWN = "its node does not exist or has not been seen"
    NODE_CLEAN = "its node has no NoExecute taint"
    TOLERATED = "it tolerates every NoExecute taint of its node indefinitely"
    HELD = "its owner holds it indefinitely, by the annotation taint-eviction/hold"
    SHUTTING_DOWN = "its node shuts down gracefully, or is ready again: the kubelet ends what must end"


@dataclass(frozen=True, slots=True)
class DecisionPolicy:
    """What operators may choose about decisions; the defaults are Kubernetes' own.

    ``evict_finished``: evict pods in phase Succeeded or Failed too (their logs go with them).
    ``default_not_ready_seconds`` and ``default_unreachable_seconds``: for how long pods without a matching toleration
    tolerate these taints, None: not at all. ``max_hold_seconds``: how long after its deadline the annotation
    ``taint-eviction/hold`` may keep a pod; 0: the annotation is ignored, infinite: indefinitely. ``wait_for_shutdown``:
    while a kubelet shuts its node down gracefully, the taint not-ready evicts no pod from it; False: it does, as
    upstream. ``outage_gap_seconds``: how long the taints not-ready and unreachable may be absent in one outage while
    their countdowns continue: 30 minutes cover the time that a restarted node lifecycle controller needs for many
    nodes; 0: the countdowns always restart.
    """

    evict_finished: bool = True
    default_not_ready_seconds: int | None = None
    default_unreachable_seconds: int | None = None
    max_hold_seconds: float = 0.0
    wait_for_shutdown: bool = False
    outage_gap_seconds: float = 1800.0

    def default_seconds(self, taint_key: str) -> int | None:
        """Return for how long a pod without a matching toleration tolerates a taint with this key; None: not at all."""
        if taint_key == NOT_READY:
            return self.default_not_ready_seconds
        return self.default_unreachable_seconds if taint_key == UNREACHABLE else None


class SeenTaint(NamedTuple):
    """A NoExecute taint and since when it has been on its node."""

    taint: Taint
    since: Sighting


class Ceiling(NamedTuple):
    """The most seconds for which a rule of the policy lets pods tolerate a taint; ``rule`` is its name."""

    rule: str
    seconds: int


@dataclass(frozen=True, slots=True)
class TaintVerdict:
    """What one taint means for one pod.

    ``toleration`` is the first one that matches, None if none does. ``overruled`` is the first later one in the pod's
    list that also matches and has other seconds: the result would differ, but only the first toleration counts.
    ``start_at`` is when the toleration began to run, according to ``start_source``. ``fire_at`` is when it expires,
    None for never. ``by_default``: the pod has no such toleration; the policy adds it to pods that lack one.
    ``left_to_kubelet``: it would expire, but the kubelet shuts the node down and ends the pod. ``held_seconds``: how
    much longer the pod's owner holds it (taint-eviction/hold), infinite: indefinitely. ``came_later``: the pod was
    surely bound to the node after the taint began. ``ceiling``: what shortens the toleration, None: nothing does.
    """

    taint: Taint
    toleration: Toleration | None
    overruled: Toleration | None
    start_at: float
    start_source: TimeSource
    fire_at: float | None
    by_default: bool = False
    left_to_kubelet: bool = False
    held_seconds: float = 0.0
    came_later: bool = False
    ceiling: Ceiling | None = None

    @property
    def due_at(self) -> float | None:
        """When the pod has to leave because of this taint: after toleration and hold; None for never."""
        return None if self.fire_at is None or self.held_seconds == math.inf else self.fire_at + self.held_seconds


@dataclass(frozen=True, slots=True)
class Stay:
    """The pod stays on its node. ``verdicts`` has one for each NoExecute taint that was considered."""

    reason: StayReason
    verdicts: tuple[TaintVerdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Evict:
    """The pod is evicted at ``fire_at``, because of the verdict ``deciding``; ``verdicts`` includes that one.
    ``fire_at`` is the earliest ``due_at`` of all verdicts. Once another taint is due, its verdict may become
    ``deciding``: see ``policy`` on the effective taint.
    """

    fire_at: float
    deciding: TaintVerdict
    verdicts: tuple[TaintVerdict, ...]

    @property
    def due_at(self) -> float:
        """When the deciding taint is due: the eviction is late only after this instant."""
        due_at = self.deciding.due_at
        return self.fire_at if due_at is None else due_at

    @property
    def runs_from_start(self) -> bool:
        """Whether the pod may stay for some time after the taint began. Only then it matters when that was."""
        return self.due_at > self.deciding.start_at

    @property
    def held_seconds(self) -> float:
        """How much later than the deciding taint's deadline the eviction is because the pod's owner holds it."""
        return self.deciding.held_seconds


Decision = Stay | Evict


def no_ceiling(_taint_key: str) -> Ceiling | None:
    """Return that nothing shortens a toleration."""
    return None


def decide(
    pod: Pod,
    bound: Sighting | None,
    taints: Sequence[SeenTaint] | None,
    policy: DecisionPolicy,
    ceiling_of: Callable[[str], Ceiling | None] = no_ceiling,
    *,
    shutting_down: bool = False,
    out_of_service: bool = False,
) -> Decision:
    """Decide on ``pod``, bound to its node since ``bound``, while that node has these NoExecute ``taints``.

    ``bound`` is None only for pods without a node; ``taints`` is None if the node is not known. The earliest instant at
    which the pod stops tolerating any taint decides; without a matching toleration that is the start of the taint.
    ``ceiling_of`` returns for the key of a taint what shortens the pod's toleration of it.
    ``shutting_down``: the node's kubelet says that it shuts the node down gracefully. ``out_of_service``: somebody says
    that the machine is off, and the node is not ready; no owner holds a pod against that taint.
    """
    reason = _left_alone(pod, policy)
    if reason is not None:
        return Stay(reason)
    if bound is None:
        return Stay(StayReason.NOT_BOUND)
    if taints is None:
        return Stay(StayReason.NODE_UNKNOWN)
    if not taints:
        return Stay(StayReason.NODE_CLEAN)
    verdicts = tuple([judge(pod.tolerations, seen, bound, policy, ceiling_of(seen.taint.key)) for seen in taints])
    if shutting_down and policy.wait_for_shutdown:
        verdicts = tuple(map(_left_to_kubelet, verdicts))
    if held_seconds := min(pod.hold_seconds or 0.0, policy.max_hold_seconds):
        verdicts = tuple(
            each if out_of_service and each.taint.key == OUT_OF_SERVICE else replace(each, held_seconds=held_seconds)
            for each in verdicts
        )
    fire_at, deciding = None, None
    for verdict in verdicts:
        due_at = verdict.due_at
        if due_at is not None and (fire_at is None or due_at < fire_at):
            fire_at, deciding = due_at, verdict
    if fire_at is None or deciding is None:
        return Stay(_why_it_stays(verdicts), verdicts)
    return Evict(fire_at, deciding, verdicts)


def _why_it_stays(verdicts: Iterable[TaintVerdict]) -> StayReason:
    """Return why a pod stays although its node is tainted: none of these taints ever evicts it."""
    if any(verdict.fire_at is not None for verdict in verdicts):
        return StayReason.HELD
    left_to_kubelet = any(verdict.left_to_kubelet for verdict in verdicts)
    return StayReason.SHUTTING_DOWN if left_to_kubelet else StayReason.TOLERATED


def _left_alone(pod: Pod, policy: DecisionPolicy) -> StayReason | None:
    if pod.node_name is None:
        return StayReason.NOT_BOUND
    if pod.mirror:
        return StayReason.MIRROR
    if pod.terminating:
        return StayReason.TERMINATING
    if pod.finished and not policy.evict_finished:
        return StayReason.FINISHED
    return None


def judge(
    tolerations: Sequence[Toleration],
    seen: SeenTaint,
    bound: Sighting,
    policy: DecisionPolicy,
    ceiling: Ceiling | None = None,
) -> TaintVerdict:
    """Return what one taint means for a pod with these tolerations that has been on the node since ``bound``."""

    def spans(toleration: Toleration) -> float | None:
        own = _spans(toleration)
        return own if own is None or ceiling is None else min(own, float(ceiling.seconds))

    found = matching(tolerations, seen.taint)
    first = next(found, None)
    later = islice(found, _MOST_LATER)
    overruled = None if first is None else next((other for other in later if spans(other) != spans(first)), None)
    default_seconds = policy.default_seconds(seen.taint.key) if first is None else None
    by_default = default_seconds is not None
    if by_default:
        first = Toleration(seen.taint.key, "Exists", "", NO_EXECUTE, default_seconds)
    start = bound if bound.start_at > seen.since.start_at else seen.since
    span = 0.0 if first is None else spans(first)
    fire_at = None if span is None else start.start_at + span
    return TaintVerdict(
        seen.taint,
        first,
        overruled,
        start.start_at,
        start.source,
        fire_at,
        by_default,
        came_later=_came_later(bound, seen.since),
        ceiling=None if first is None or span == _spans(first) else ceiling,
    )


def _came_later(bound: Sighting, since: Sighting) -> bool:
    """Return whether a pod was surely bound after a taint began: what was seen is no proof against older dates."""
    if bound.object_time is None or (since.object_time is not None and bound.object_time <= since.object_time):
        return False
    return bound.start_at > since.start_at + TRUNCATION_SECONDS


def _left_to_kubelet(verdict: TaintVerdict) -> TaintVerdict:
    """Return the verdict while the kubelet shuts the node down: not-ready follows from that and evicts no pod."""
    if verdict.taint.key != NOT_READY or verdict.fire_at is None:
        return verdict
    return replace(verdict, fire_at=None, left_to_kubelet=True)


def _spans(toleration: Toleration) -> float | None:
    seconds = counted_seconds(toleration.toleration_seconds)
    return None if seconds is None else float(seconds)


def counted_seconds(seconds: int | None) -> int | None:
    """Return for how many seconds a matching toleration tolerates, clamped to a sane range; None: indefinitely.

    MaxInt64 means indefinitely, too; where it is a mark, the noted seconds are here in its place.
    """
    if seconds is None or seconds == MARK_SECONDS:
        return None
    return min(max(seconds, 0), int(FAR_FUTURE_SECONDS))
