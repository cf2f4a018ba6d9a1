"""Follows the pods that are to be evicted, here or by the built-in controller, and compares the outcomes.
It observes facts before the core does, so that ``explain`` returns the decision on a pod right before its end; and it
observes the effects of a dry run. An eviction counts once: when its pod ends, when it is no longer wanted, or when the
built-in controller is no longer expected to act. It remembers a bounded number of pods; dropped ones count as
``unseen``.
An end between two sightings (across a gap of a watch) counts only if the built-in controller had set its condition
before.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from taint_eviction.core.built_in import SAME_SECONDS
from taint_eviction.core.decision import Evict, Stay, StayReason
from taint_eviction.core.events import BreakerOpened, Cancelled, Event, Evicted, Scheduled
from taint_eviction.core.facts import Fact, PodGone, PodSeen, PodsReleased, PodsSwept
from taint_eviction.core.gone_objects import list_is_newer
from taint_eviction.core.guards import WaitReason
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, Pod, PodRef
from taint_eviction.core.status import Explanation, Status
from taint_eviction.shadow.comparison import (
    Comparison,
    ComparisonResult,
    DifferenceReason,
    PodEnd,
    end_of,
    held_back,
    is_same,
    lateness_reason,
    marked_by_built_in,
    reading,
)
from taint_eviction.shadow.totals import ComparisonTotals
from taint_eviction.shadow.tracked_pod import TrackedPod, TrackedPods

MAX_TRACKED = 20_000

# How much longer than the toleration this module waits for the built-in controller: it may count again, or be slow.
PATIENCE_SECONDS = 600.0
_MAX_TOLERATED_SECONDS = 86_400

# How many pods are checked in one pass.
_SLICE = 500

# After this time a brief hold would have opened the breaker.
_PASSING_SECONDS = 15.0


class Shadow:
    """Compares; see the module.

    ``status`` returns the core's answers, ``leads`` whether this replica acts. ``compared`` is called with each
    comparison. ``totals`` and ``evicted_epochs`` (by UID, when pods were evicted here that were not yet compared) come
    from an earlier process.
    """

    def __init__(
        self,
        status: Callable[[], Status],
        leads: Callable[[], bool],
        compared: Callable[[Comparison, Moment], None],
        totals: ComparisonTotals | None = None,
        evicted_epochs: Mapping[str, float] | None = None,
    ) -> None:
        self.totals = totals or ComparisonTotals()
        self._status = status
        self._leads = leads
        self._compared = compared
        self._evicted_epochs = dict(evicted_epochs or {})
        self._begun_at: float | None = None
        self._tracked = TrackedPods()
        # The names of all pods that were tracked lately.
        self._names: OrderedDict[NamespacedName, None] = OrderedDict()
        # By UID: pods that were evicted here, and are checked in turn.
        self._open: OrderedDict[str, TrackedPod] = OrderedDict()
        # By UID: pods that ended while they were held here only briefly: when, and by whom.
        self._passing: dict[str, tuple[TrackedPod, PodEnd, Evict]] = {}

    # What was seen

    def observed(self, fact: Fact, now: Moment) -> None:
        """Observe a fact, before the core does."""
        if self._begun_at is None:
            self._begun_at = now.at
            self.totals.since_epoch = self.totals.since_epoch or now.server_epoch
        match fact:
            case PodSeen():
                self._seen(fact.pod, now)
            case PodGone():
                tracked = self._tracked.get(fact.ref.uid)
                if tracked is not None:
                    self._ended(tracked, end_of(tracked.pod, now), now)
                    self._forget(tracked)
            case PodsSwept():
                for tracked in [each for each in self._tracked.on_node(fact.node_name) if _lacks(fact, each)]:
                    self._vanished(tracked, now)
            case PodsReleased():
                for tracked in self._tracked.on_node(fact.node_name):
                    self._vanished(tracked, now)
            case _:
                pass

    def _seen(self, pod: Pod, now: Moment) -> None:
        before = self._tracked.named(pod.ref.key)
        if before is not None and before.pod.ref.uid != pod.ref.uid:
            self._vanished(before, now)
        is_marked = marked_by_built_in(pod)
        tracked = self._tracked.get(pod.ref.uid)
        if tracked is None:
            if not is_marked:
                return
            if self._known(pod.ref, now) is None:
                self._seen_first(pod, now)
                return
            tracked = self._track(pod, now)
        elif (pod.resource_version or 0) < (tracked.pod.resource_version or 0):
            return
        self._tracked.see(tracked, pod, now.at)
        tracked.marked = tracked.marked or is_marked
        if pod.terminating:
            self._ended(tracked, end_of(pod, now), now)

    def _seen_first(self, pod: Pod, now: Moment) -> None:
        """Compare a pod that the built-in controller has evicted before its node's pods were listed here."""
        end = end_of(pod, now)
        if not pod.terminating or pod.deletion_asked_at is None or end.at < (self._begun_at or 0.0):
            return
        tracked, known = self._track(pod, now), self._status().as_if_alive(pod, now)
        tracked.compared = True
        if known.decision in (Stay(StayReason.NODE_CLEAN), Stay(StayReason.NODE_UNKNOWN)):
            self.totals.unseen += 1  # The taint was also removed before any of this was seen.
            return
        # Otherwise its end is unrelated to the taints that the node has now.
        if min((each.start_at for each in known.decision.verdicts), default=end.at) <= end.at + SAME_SECONDS:
            self._ended_before(tracked, end, known, now)

    def _vanished(self, tracked: TrackedPod, now: Moment) -> None:
        """Note that a pod is gone or no longer watched, and that its end was not seen."""
        end = end_of(tracked.pod, now)
        if end.marked_at is not None and end.is_built_in(_expected_at(tracked)):
            self._ended(tracked, end._replace(at=min(end.at, max(end.marked_at, tracked.seen_at))), now)
        elif tracked.is_open:
            self.totals.unseen += 1
        self._forget(tracked)

    # What was done here

    def report(self, effect: Event, now: Moment) -> None:
        """Observe an effect of the dry run."""
        match effect:
            case Scheduled():
                self._scheduled(effect, now)
            case Evicted():
                tracked = self._tracked_by(effect.ref, now)
                if tracked is not None and not tracked.compared and tracked.evicted_at is None:
                    epoch = self._evicted_epochs.pop(effect.ref.uid, None)
                    tracked.evicted_at = now.at if epoch is None else min(now.at, now.instant_of(epoch))
                    tracked.decision = effect.decision
                    self._open[effect.ref.uid] = tracked
            case Cancelled():
                tracked = self._tracked.get(effect.ref.uid)
                if tracked is not None:
                    tracked.cancelled_at = now.at
            case BreakerOpened():
                passing, self._passing = self._passing, {}
                for tracked, end, decision in passing.values():
                    guard = WaitReason.BREAKER_OPEN.value
                    self._only_built_in(tracked, end, decision, DifferenceReason.GUARD, guard, now)
            case _:
                pass

    def _scheduled(self, effect: Scheduled, now: Moment) -> None:
        tracked = self._tracked_by(effect.ref, now)
        if tracked is None or tracked.pod.terminating:
            return
        if tracked.is_open:
            if effect.decision.fire_at <= now.at:
                return  # It is still due: a dry run begins again if a list shows that the deletion changed nothing.
            self._call_off(tracked, now.at, "its deadline was moved", now)
        if tracked.evicted_at is not None:
            tracked.begin_anew()
            self._open.pop(effect.ref.uid, None)
        tracked.deadlines.append(effect.decision.fire_at)
        tracked.cancelled_at = None

    # Outcomes

    def _ended(self, tracked: TrackedPod, end: PodEnd, now: Moment) -> None:
        if tracked.compared:
            return
        tracked.compared = True
        is_built_in = end.is_built_in(_expected_at(tracked))
        if tracked.evicted_at is None or tracked.decision is None:
            known = self._known(tracked.pod.ref, now)
            if known is None or known.decision == Stay(StayReason.TERMINATING):
                return
            if is_built_in:
                self._ended_before(tracked, end, known, now)
            elif known.pending is not None:
                self._somebody_else(tracked, end, now)
            return
        late_seconds = end.at - tracked.evicted_at
        if is_built_in:
            self._agree(tracked, end, tracked.decision, late_seconds, now)
        elif late_seconds <= SAME_SECONDS:
            self._somebody_else(tracked, end, now)
        else:
            self._never(tracked, late_seconds, "until somebody else deleted it", now)

    def _somebody_else(self, tracked: TrackedPod, end: PodEnd, now: Moment) -> None:
        by, reason = end.writer
        self._found(tracked, now, ComparisonResult.SOMEBODY_ELSE, by=by, detail=reason)

    def _ended_before(self, tracked: TrackedPod, end: PodEnd, known: Explanation, now: Moment) -> None:
        """Compare a pod that the built-in controller evicted before it was evicted here."""
        deadline_at = tracked.deadlines[-1] if tracked.deadlines else None
        if isinstance(known.decision, Stay):
            called_off = tracked.cancelled_at is not None and is_same(tracked.cancelled_at, end.at)
            if called_off and deadline_at is not None and deadline_at <= end.at + SAME_SECONDS:
                self._found(tracked, now, ComparisonResult.SAME, by=end.by)
                return
            kept = any(is_same(end.at, deadline) for deadline in tracked.deadlines)
            why = DifferenceReason.OLD_DEADLINE if kept else DifferenceReason.READING
            self._only_built_in(tracked, end, None, why, reading(known.decision), now)
        elif known.pending is not None:
            self._ended_while_pending(tracked, end, known, now)

    def _ended_while_pending(self, tracked: TrackedPod, end: PodEnd, known: Explanation, now: Moment) -> None:
        pending = known.pending
        if pending is None:
            return
        decision = pending.decision
        guard = held_back(pending, decision, end.at, self._leads())
        if guard is not None:
            self._only_built_in(tracked, end, decision, DifferenceReason.GUARD, guard, now)
        elif decision.fire_at > end.at + SAME_SECONDS:
            kept = any(is_same(end.at, deadline) for deadline in tracked.earlier_deadlines)
            why = DifferenceReason.OLD_DEADLINE if kept else DifferenceReason.EARLIER
            self._only_built_in(tracked, end, decision, why, reading(decision), now)
        elif pending.wait_reason is not None and pending.wait_reason.is_passing:
            self._passing[tracked.pod.ref.uid] = tracked, end, decision
        else:
            self._agree(tracked, end, decision, end.at - decision.fire_at, now)

    def _agree(self, tracked: TrackedPod, end: PodEnd, decision: Evict, late_seconds: float, now: Moment) -> None:
        """Note that both evicted a pod."""
        if late_seconds <= SAME_SECONDS:
            self._found(tracked, now, ComparisonResult.SAME, by=end.by)
            return
        why = lateness_reason(decision, late_seconds, end.at, tracked.earlier_deadlines)
        self._found(tracked, now, ComparisonResult.LATER, seconds=late_seconds, reason=why, by=end.by)

    def _only_built_in(
        self,
        tracked: TrackedPod,
        end: PodEnd,
        decision: Evict | None,
        why: DifferenceReason,
        detail: str,
        now: Moment,
    ) -> None:
        seconds = None if decision is None else decision.fire_at - end.at
        result = ComparisonResult.BUILT_IN_ONLY
        self._found(tracked, now, result, seconds=seconds, reason=why, detail=detail, by=end.by)

    def _never(self, tracked: TrackedPod, seconds: float, detail: str, now: Moment) -> None:
        why = DifferenceReason.GAVE_UP if tracked.marked else DifferenceReason.FORGOTTEN
        self._found(tracked, now, ComparisonResult.NEVER, seconds=seconds, reason=why, detail=detail)

    def _found(self, tracked: TrackedPod, now: Moment, result: ComparisonResult, **more: Any) -> None:
        tracked.compared = True
        self._evicted_epochs.pop(tracked.pod.ref.uid, None)
        comparison = Comparison(tracked.pod.ref, tracked.pod.node_name or "", result, now.server_epoch, **more)
        self._compared(comparison, now)  # Before it is counted: a new file of the journal begins with the totals.
        self.totals.add(comparison)

    # The passing of time

    def advance(self, now: Moment) -> None:
        """Check pods that were evicted here and still exist, and pods that were held briefly. Call this often."""
        for uid, (tracked, end, decision) in list(self._passing.items()):
            if now.at >= end.at + _PASSING_SECONDS:
                del self._passing[uid]
                self._agree(tracked, end, decision, end.at - decision.fire_at, now)
        for uid in list(islice(self._open, _SLICE)):
            tracked = self._open.pop(uid)
            self._follow_up(tracked, now)
            if tracked.is_open:
                self._open[uid] = tracked

    def _follow_up(self, tracked: TrackedPod, now: Moment) -> None:
        if tracked.evicted_at is None or tracked.decision is None or tracked.compared:
            return
        known = self._known(tracked.pod.ref, now)
        wanted = known is not None and isinstance(known.decision, Evict) and known.decision.fire_at <= now.at
        if wanted:
            tracked.called_off_at = None
        elif tracked.called_off_at is None:
            tracked.called_off_at = now.at
        if tracked.called_off_at is not None:
            # Requests that the built-in controller had sent by then may still arrive.
            if now.at >= tracked.called_off_at + SAME_SECONDS:
                why = "" if known is None else f" ({reading(known.decision)})"
                self._call_off(tracked, tracked.called_off_at, f"until it no longer had to leave{why}", now)
        elif now.at - tracked.evicted_at >= _patience(tracked.decision):
            self._never(tracked, now.at - tracked.evicted_at, "", now)

    def _call_off(self, tracked: TrackedPod, called_off_at: float, detail: str, now: Moment) -> None:
        seconds = called_off_at - (tracked.evicted_at or 0.0)
        if seconds > SAME_SECONDS:
            self._never(tracked, seconds, detail, now)
        else:
            self._found(tracked, now, ComparisonResult.SAME)

    def outstanding(self, now: Moment) -> int:
        """Count the pods that were evicted here, and that the built-in controller has not evicted so far."""
        return sum(now.at - (each.evicted_at or 0.0) > SAME_SECONDS for each in self._open.values() if each.is_open)

    @property
    def unseen(self) -> int:
        """Count the evictions here for which the built-in controller's action was not seen."""
        return self.totals.unseen + len(self._evicted_epochs)

    # What is remembered

    def _known(self, ref: PodRef, now: Moment) -> Explanation | None:
        known = self._status().explain(ref.key, now)
        return known if known is not None and known.record.ref.uid == ref.uid else None

    def _tracked_by(self, ref: PodRef, now: Moment) -> TrackedPod | None:
        tracked = self._tracked.get(ref.uid)
        if tracked is None and (known := self._known(ref, now)) is not None:
            tracked = self._track(known.record.pod, now)
        return tracked

    @property
    def begun_at(self) -> float | None:
        """When this process observed the first fact, None: none so far."""
        return self._begun_at

    def has_followed(self, key: NamespacedName) -> bool:
        """Return whether a pod of this name was followed by this process; of others it has compared nothing."""
        return key in self._names

    def _track(self, pod: Pod, now: Moment) -> TrackedPod:
        tracked = TrackedPod(pod, now.at)
        self._names[pod.ref.key] = None
        self._names.move_to_end(pod.ref.key)
        if len(self._names) > MAX_TRACKED:
            self._names.popitem(last=False)
        self._tracked.add(tracked)
        if len(self._tracked) > MAX_TRACKED:
            oldest = self._tracked.oldest()
            self.totals.unseen += oldest.is_open
            self._forget(oldest)
        return tracked

    def _forget(self, tracked: TrackedPod) -> None:
        self._tracked.remove(tracked)
        self._open.pop(tracked.pod.ref.uid, None)


def _expected_at(tracked: TrackedPod) -> list[float]:
    return [*tracked.deadlines, *([] if tracked.evicted_at is None else [tracked.evicted_at])]


def _lacks(fact: PodsSwept, tracked: TrackedPod) -> bool:
    absent = tracked.pod.ref.uid not in fact.present
    return absent and list_is_newer(fact, tracked.pod.resource_version, tracked.seen_at)


def _patience(decision: Evict) -> float:
    """Return for how long to wait for the built-in controller: it may restart any of the tolerations."""
    tolerations = [verdict.toleration for verdict in decision.verdicts if verdict.toleration is not None]
    longest = max((each.toleration_seconds or 0 for each in tolerations), default=0)
    return PATIENCE_SECONDS + min(max(longest, 0), _MAX_TOLERATED_SECONDS)
