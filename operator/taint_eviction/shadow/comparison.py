"""What became of one eviction here and by the built-in controller: the result, as a value, and why they differ."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from taint_eviction.core.decision import Evict, Stay
from taint_eviction.core.instants import TRUNCATION_SECONDS, Moment
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.core.pod_record import WaitReason
from taint_eviction.core.sentences import tolerated
from taint_eviction.core.status import Pending

# By its reason for the condition DisruptionTarget the built-in controller is known.
BUILT_IN_REASON = "DeletionByTaintManager"

# Two evictions that are no further apart are the same one.
SAME_SECONDS = 2.0

# The condition stays on a pod after its eviction was given up; the disruption controller resets it after 2 minutes.
_MARK_COUNTS_SECONDS = 120.0

# What holds a pod for a moment only: it would have been evicted all the same.
PASSING = frozenset({WaitReason.SETTLING, WaitReason.UNLISTED, WaitReason.ORDERS_UNKNOWN})


class ComparisonResult(Enum):
    """What became of an eviction; the value is its name in metrics and documents.

    SAME: both within 2 s, or called off by then. LATER, NEVER: what the built-in controller did of an eviction that was
    due here. BUILT_IN_ONLY: it evicted a pod that would have stayed here at that time. SOMEBODY_ELSE: before either.
    """

    SAME = "same"
    LATER = "later"
    NEVER = "never"
    BUILT_IN_ONLY = "built_in_only"
    SOMEBODY_ELSE = "somebody_else"


class DifferenceReason(Enum):
    """Why both differ, as far as it can be seen from outside; the value says it in a sentence's second half."""

    BEGUN_ANEW = "as if its countdown had begun anew (a restart or a new leader), or it was slow"
    OLD_DEADLINE = "it kept the deadline from before tolerations or taints changed"
    SLOW = "it was slow"
    GAVE_UP = "it set its condition and did not delete the pod, as after five refused tries"
    FORGOTTEN = "it did nothing to the pod"
    EARLIER = "it read or counted something else than this controller"
    GUARD = "the eviction was held back here"
    READING = "the pod stays, as it is read here"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of one eviction.

    ``at_epoch``: when that was known, by the API server's clock. ``seconds``: of LATER, by how much; of NEVER, for how
    long it had been due; of BUILT_IN_ONLY, how far away the deadline here was, None where there was none.
    ``reason`` is None where both did the same, or somebody else came first. ``detail``: what ``reason`` leaves open,
    for people, "" for nothing. ``by``: who ended the pod, "" where nothing tells.
    """

    ref: PodRef
    node_name: str
    result: ComparisonResult
    at_epoch: float
    seconds: float | None = None
    reason: DifferenceReason | None = None
    detail: str = ""
    by: str = ""

    @property
    def text(self) -> str:
        """Say why, for people."""
        return ": ".join(filter(None, (self.reason and self.reason.value, self.detail)))


class PodEnd(NamedTuple):
    """How a pod ended: when its deletion was asked for, and by whom.

    ``by``: the manager that set the condition, "" where nothing tells. ``reason``: that of the condition, "" for none.
    """

    at: float
    by: str = ""
    reason: str = ""
    marked_at: float | None = None

    def is_built_in(self, expected_at: Iterable[float]) -> bool:
        """Tell whether the built-in controller did it; ``expected_at``: when it may have been expected to.

        Its condition may be left from an eviction that it gave up, so it has to be recent, or the pod to end in time.
        """
        if self.reason != BUILT_IN_REASON:
            return False
        recent = self.marked_at is None or self.at - self.marked_at <= _MARK_COUNTS_SECONDS
        return recent or any(is_same(self.at, at) for at in expected_at)


def end_of(pod: Pod, now: Moment) -> PodEnd:
    """Say how a pod ended that is terminating, or was as ``pod`` when it was seen last and is gone."""
    asked_at = pod.deletion_asked_at
    at = now.at if asked_at is None else min(now.at, now.instant_of(asked_at + TRUNCATION_SECONDS))
    if pod.disruption is None:
        return PodEnd(at)
    since = pod.disruption.since
    return PodEnd(at, pod.disruption.by, pod.disruption.reason, None if since is None else now.instant_of(since))


def is_same(one_at: float, other_at: float) -> bool:
    """Tell whether two instants are those of one eviction."""
    return abs(one_at - other_at) <= SAME_SECONDS


def lateness_reason(decision: Evict, seconds: float, at: float, earlier_deadlines: Iterable[float]) -> DifferenceReason:
    """Say why the built-in controller came so many ``seconds`` later than this one."""
    if any(is_same(at, deadline) for deadline in earlier_deadlines):
        return DifferenceReason.OLD_DEADLINE
    toleration = decision.deciding.toleration
    tolerated_for = 0 if toleration is None else toleration.toleration_seconds or 0
    return DifferenceReason.BEGUN_ANEW if seconds <= tolerated_for + SAME_SECONDS else DifferenceReason.SLOW


def held_back(pending: Pending, decision: Evict, at: float, leads: bool) -> str | None:
    """Say which guard here would have kept an eviction from being done at ``at``, None if none would."""
    if decision.fire_at > at + SAME_SECONDS:
        owners = decision.held_seconds and decision.fire_at - decision.held_seconds <= at + SAME_SECONDS
        return "its owner holds it, by the annotation taint-eviction/hold" if owners else None
    held = pending.wait_reason
    if held is None or held in PASSING:
        return None
    # A replica that does not lead begins nothing, whatever the limits are.
    waits_long = leads and at - decision.fire_at > SAME_SECONDS
    return held.value if held is not WaitReason.LIMITED or waits_long else None


def reading(decision: Evict | Stay) -> str:
    """Say how taints and tolerations are read here."""
    if isinstance(decision, Stay):
        return decision.reason.value
    verdict = decision.deciding
    return f"{tolerated(verdict.taint, verdict.toleration, verdict.by_default)}, since {verdict.start_source.value}"
