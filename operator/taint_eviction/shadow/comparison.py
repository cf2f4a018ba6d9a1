"""The comparison of one eviction here and by the built-in controller: the result, and why they differ."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from taint_eviction.core.built_in import SAME_SECONDS
from taint_eviction.core.decision import Evict, Stay
from taint_eviction.core.guards import WaitReason
from taint_eviction.core.instants import TRUNCATION_SECONDS, Moment
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.core.sentences import tolerated
from taint_eviction.core.status import Pending

# The built-in controller is recognized by its reason for the condition DisruptionTarget.
BUILT_IN_REASON = "DeletionByTaintManager"
# This controller sets it, too, under a name of its own in managedFields.
_OWN_MANAGER = "taint-eviction-controller"

# The condition stays on a pod after a failed eviction; the disruption controller resets it after 2 minutes.
_MARK_COUNTS_SECONDS = 120.0


class ComparisonResult(Enum):
    """The result of a comparison; the value is its name in metrics and documents.
    SAME: both within 2 s, or cancelled by then. LATER, NEVER: when the built-in controller did an eviction that was due
    here. BUILT_IN_ONLY: it evicted a pod that would have stayed here at that time. SOMEBODY_ELSE: before either.
    """

    SAME = "same"
    LATER = "later"
    NEVER = "never"
    BUILT_IN_ONLY = "built_in_only"
    SOMEBODY_ELSE = "somebody_else"


class DifferenceReason(Enum):
    """Why both differ, as far as can be seen from outside; the value is the second half of a sentence."""

    BEGUN_ANEW = "as if its countdown had begun anew (a restart or a new leader), or it was slow"
    OLD_DEADLINE = "it kept the deadline from before tolerations or taints changed"
    SLOW = "it was slow"
    GAVE_UP = "it set its condition and did not delete the pod, as after five refused tries"
    FORGOTTEN = "it did nothing to the pod"
    CEILING = "it does not know the rule of the policy that shortens the toleration"
    EARLIER = "it read or counted something else than this controller"
    GUARD = "the eviction was held back here"
    READING = "the pod stays, as it is read here"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one eviction.
    ``at_epoch``: when the result was known, by the API server's clock. ``seconds``: for LATER, by how much; for NEVER,
    for how long it had been due; for BUILT_IN_ONLY, how far away the deadline here was, None if there was none.
    ``reason`` is None if both did the same, or somebody else came first. ``detail``: further details for people, "" for
    none. ``by``: who ended the pod, "" if that is not known.
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
        """Return the reason, for people."""
        return ": ".join(filter(None, (self.reason and self.reason.value, self.detail)))


class PodEnd(NamedTuple):
    """How a pod ended: when its deletion was requested, and by whom.
    ``by``: the manager that set the condition, "" if that is not known. ``reason``: that of the condition, "" for none.
    """

    at: float
    by: str = ""
    reason: str = ""
    marked_at: float | None = None

    def is_built_in(self, expected_at: Iterable[float]) -> bool:
        """Return whether the built-in controller ended the pod; ``expected_at``: when its eviction was to be expected.
        Its condition may remain from a failed eviction, so the condition must be recent, or the pod must end in time.
        """
        if self.reason != BUILT_IN_REASON or self.by == _OWN_MANAGER:
            return False
        return self._recent or any(is_same(self.at, at) for at in expected_at)

    @property
    def writer(self) -> tuple[str, str]:
        """Return who else ended the pod, and the reason of the condition; "" for both if nothing tells it.

        A deletion names nobody: only who set a condition right before it is known.
        """
        is_built_in = self.reason == BUILT_IN_REASON and self.by != _OWN_MANAGER
        return ("", "") if is_built_in or not self._recent else (self.by, self.reason)

    @property
    def _recent(self) -> bool:
        return self.marked_at is None or self.at - self.marked_at <= _MARK_COUNTS_SECONDS


def marked_by_built_in(pod: Pod) -> bool:
    """Return whether the built-in controller has set its condition on a pod."""
    disruption = pod.disruption
    return disruption is not None and disruption.reason == BUILT_IN_REASON and disruption.by != _OWN_MANAGER


def end_of(pod: Pod, now: Moment) -> PodEnd:
    """Return how a pod ended that is terminating, or that is gone and was last seen as ``pod``."""
    asked_at = pod.deletion_asked_at
    at = now.at if asked_at is None else min(now.at, now.instant_of(asked_at + TRUNCATION_SECONDS))
    if pod.disruption is None:
        return PodEnd(at)
    since = pod.disruption.since
    return PodEnd(at, pod.disruption.by, pod.disruption.reason, None if since is None else now.instant_of(since))


def is_same(one_at: float, other_at: float) -> bool:
    """Return whether two instants are those of one eviction."""
    return abs(one_at - other_at) <= SAME_SECONDS


def lateness_reason(decision: Evict, seconds: float, at: float, earlier_deadlines: Iterable[float]) -> DifferenceReason:
    """Return why the built-in controller evicted ``seconds`` later than this one."""
    if any(is_same(at, deadline) for deadline in earlier_deadlines):
        return DifferenceReason.OLD_DEADLINE
    toleration, ceiling = decision.deciding.toleration, decision.deciding.ceiling
    tolerated_for = 0 if toleration is None else toleration.toleration_seconds or 0
    if ceiling is not None and is_same(at, decision.deciding.start_at + tolerated_for):
        return DifferenceReason.CEILING
    return DifferenceReason.BEGUN_ANEW if seconds <= tolerated_for + SAME_SECONDS else DifferenceReason.SLOW


def held_back(pending: Pending, decision: Evict, at: float, leads: bool) -> str | None:
    """Return which guard here would have held an eviction at ``at``, None if none would."""
    if decision.fire_at > at + SAME_SECONDS:
        owners = decision.held_seconds and decision.fire_at - decision.held_seconds <= at + SAME_SECONDS
        return "its owner holds it, by the annotation taint-eviction/hold" if owners else None
    held = pending.wait_reason
    if held is None or held.is_passing:
        return None
    # A replica that does not lead begins nothing, whatever the limits are.
    waits_long = leads and at - decision.fire_at > SAME_SECONDS
    return held.value if held is not WaitReason.LIMITED or waits_long else None


def reading(decision: Evict | Stay) -> str:
    """Return a sentence on how this controller reads the taints and tolerations."""
    if isinstance(decision, Stay):
        return decision.reason.value
    verdict = decision.deciding
    how = tolerated(verdict.taint, verdict.toleration, verdict.by_default, verdict.ceiling)
    return f"{how}, since {verdict.start_source.value}"
