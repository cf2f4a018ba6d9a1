"""The built-in controller's timers, as far as they can be known from here, and which countdowns are late enough.

A timer of the built-in controller is never moved later once it is armed, whatever changes; only a moment at which no
first match of the node's taints is finite cancels it. So *its timer* is the earliest moment at which it can fire: the
least, over all moments since the pod was bound or last had no finite first match for 10 s, of that moment plus the
least finite seconds matched then.

``Countdowns`` follows the facts that the core has just observed. It reads no clock and changes no pod (``adoption``
says what to write, ``runtime.adopter`` writes it). The answers to this controller's own writes are no facts here: a
mark counts as cancelling a timer only once a watch or a list has brought it.

Reference: ``processPodOnNode`` in pkg/controller/tainteviction.
"""

import math
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from taint_eviction.core.adoption import builtin_seconds, has_countdown
from taint_eviction.core.decision import SeenTaint
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, NodesSwept, PodGone, PodSeen
from taint_eviction.core.instants import TRUNCATION_SECONDS, Moment, Sighting
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.objects import NamespacedName, PodRef, Taint, Toleration
from taint_eviction.core.pods import KnownPods, PodRecord

# For so long no first match must be finite, before the next countdown gets a timer of its own: the built-in controller
# may miss a moment that is shorter.
_CLEAR_SECONDS = 10.0

# How soon after a countdown has begun its pod must be seen, so that its tolerations count as those at the beginning.
_LISTED_SECONDS = 3.0

# A countdown is taken over this long before its timer, at least, and a third of its tolerance, at most.
_LEAST_BEFORE_SECONDS = 10.0
_SHARE = 1 / 3

# Marks a second: what is assumed until there is a figure, what is assumed at least, and of how many seconds' marking
# the figure is made.
_ASSUMED_RATE, _LEAST_RATE = 20.0, 5.0
_RATE_SECONDS, _LEAST_RATE_SECONDS = 10.0, 1.0
# Other calls need time, too: so many times what the marks before a countdown need is planned for them.
_ROOM = 2.0


@dataclass(slots=True)
class _Countdown:
    """What is known of the timer of one pod, and of its predecessors under the name: timers go by names.

    ``seconds``: the least finite seconds that a taint of the node matches now, None: none. ``timer_at`` with
    ``tolerance_seconds``: its timer, infinite: none is armed. ``clear_at``: since when nothing finite has matched.
    ``is_anew``: it runs, and when it began none was armed. ``followed_from``: from then on this process saw all moments
    that count, but for those in later gaps of the watch of nodes; minus infinity: it may have missed some.
    ``begins_at``: when it is to be taken over, as last estimated.
    """

    ref: PodRef
    tolerations: Sequence[Toleration]
    seconds: float | None = None
    timer_at: float = math.inf
    tolerance_seconds: float = 0.0
    clear_at: float | None = None
    is_anew: bool = False
    followed_from: float = -math.inf
    begins_at: float = -math.inf

    def goes_on(self, seconds: float | None, now: float, gap_at: float) -> None:
        """Note what matches from now on. ``gap_at``: when the last gap of the watch of nodes ended."""
        self.seconds = seconds
        if seconds is None:
            self.clear_at = now if self.clear_at is None else self.clear_at
            self.is_anew = False
            return
        if self.is_over(now, gap_at):
            self.timer_at, self.followed_from, self.is_anew = math.inf, now, True
        self.clear_at = None
        self.may_fire(now + seconds, seconds)

    def may_fire(self, at: float, tolerance_seconds: float) -> None:
        """Note a moment at which a timer may fire."""
        if at < self.timer_at:
            self.timer_at, self.tolerance_seconds = at, tolerance_seconds

    def is_over(self, now: float, gap_at: float) -> bool:
        """Return whether no timer can be armed any more; one may have been in a gap that ended at ``gap_at``."""
        return now >= self.over_at(gap_at)

    def over_at(self, gap_at: float) -> float:
        """Return the instant from which no timer can be armed; infinite while something finite matches."""
        return math.inf if self.clear_at is None else max(self.clear_at, gap_at) + _CLEAR_SECONDS


class Late(NamedTuple):
    """A countdown that is to be taken over now, before ``timer_at``."""

    timer_at: float
    ref: PodRef


class MarkRate:
    """How many marks a second this process has written, over its last 10 s of marking."""

    def __init__(self) -> None:
        self._under_way = 0
        self._since_at = 0.0
        self._busy_seconds = 0.0
        # When the marks were written, in seconds of marking.
        self._marks: deque[float] = deque()

    def begins(self, now: float) -> None:
        """Note that a mark is about to be written."""
        if self._under_way == 0:
            self._since_at = now
        self._under_way += 1

    def ends(self, now: float, done: bool) -> None:
        """Note that a write has ended; ``done``: it marked a pod."""
        self._under_way -= 1
        self._busy_seconds += now - self._since_at
        self._since_at = now
        if done:
            self._marks.append(self._busy_seconds)
        while self._marks and self._marks[0] < self._busy_seconds - _RATE_SECONDS:
            self._marks.popleft()

    @property
    def per_second(self) -> float:
        """Return the rate; an assumed one until there is a figure."""
        if self._busy_seconds < _LEAST_RATE_SECONDS:
            return _ASSUMED_RATE
        return max(_LEAST_RATE, len(self._marks) / min(self._busy_seconds, _RATE_SECONDS))


class Countdowns:
    """The timers of the pods of tainted nodes, also of those whose countdowns are not taken over: one that terminates
    leaves its timer to its successor.
    """

    def __init__(self, nodes: KnownNodes, pods: KnownPods, before_seconds: float, from_seconds: float) -> None:
        self._nodes = nodes
        self._pods = pods
        self._before_seconds = before_seconds
        self._from_seconds = from_seconds
        self._countdowns: dict[NamespacedName, _Countdown] = {}
        # When nodes were last listed at the start, or after a gap that the watch could not resume over.
        self._gap_at = -math.inf
        # By node: its taints as last seen; and those that were found, or that appeared soon after a gap, each with the
        # moment before which others may have come and gone.
        self._taints: dict[str, tuple[Taint, ...]] = {}
        self._found: dict[str, dict[Taint, float]] = {}

    # What was seen

    def observed(self, fact: Fact, now: Moment) -> bool:
        """Follow a fact that the core has observed; return whether a countdown may have changed."""
        match fact:
            case NodeSeen():
                return self._node_seen(fact, now)
            case NodeGone():
                self._forget_node(fact.name)  # Its pods may be there again, under a node of the same name.
            case NodesSwept():
                for name in list(self._taints):
                    self._forget_node(name)
                self._forget_over(now.at)
            case PodSeen():
                return self._pod_seen(fact, now)
            case PodGone() if (countdown := self._of(fact.ref)) is not None:
                countdown.goes_on(None, now.at, self._gap_at)
        return False

    def _forget_node(self, name: str) -> None:
        if self._nodes.taints_on(name) is None:
            self._taints.pop(name, None)
            self._found.pop(name, None)

    def _node_seen(self, fact: NodeSeen, now: Moment) -> bool:
        name = fact.node.name
        seen = self._nodes.taints_on(name) or ()
        taints, before = tuple(each.taint for each in seen), self._taints.get(name)
        found = {taint: at for taint, at in self._found.get(name, {}).items() if taint in taints}
        if fact.after_gap:
            self._gap_at = now.at
        if fact.after_gap or (before is None and fact.asked_at is not None):
            found = dict.fromkeys(taints, now.at)  # Others may have come and gone before, or meanwhile.
        elif now.at - self._gap_at < _CLEAR_SECONDS:
            # The built-in controller may not have seen that the node was clean in between.
            found |= {taint: self._gap_at for taint in taints if taint not in (before or ())}
        self._taints[name], self._found[name] = taints, found
        if taints == before and not fact.after_gap:
            return False
        new = [each for each in seen if each.taint not in (before or ())]
        for record in self._pods.on_node(name):
            countdown = self._follow(record, record.pod.spec_tolerations, seen, now)
            if countdown is not None and countdown.seconds is not None:
                _date_back(countdown, record, [(taint, since, now.at) for taint, since in new], now)
        return True

    def _pod_seen(self, fact: PodSeen, now: Moment) -> bool:
        record, pod = self._pods.find(fact.pod.ref), fact.pod
        if record is None or pod.node_name is None or pod.node_name != record.pod.node_name:
            return False
        before = self._of(pod.ref)
        taints = self._nodes.taints_on(pod.node_name) or ()
        if before is not None and before.tolerations == pod.spec_tolerations:
            if before.seconds is not None or _least_seconds(before.tolerations, taints) is None:
                return False
            before = None  # It was not watched when its node became tainted.
        known = self._countdowns.get(pod.ref.key)
        if before is None and known is not None and known.is_over(now.at, self._gap_at):
            del self._countdowns[pod.ref.key]
        countdown = self._follow(record, pod.spec_tolerations, taints, now)
        if countdown is not None and before is not None and fact.asked_at is not None:
            countdown.followed_from = -math.inf  # A list shows a change that the watch has not brought.
        if record.pod.spec_tolerations != pod.spec_tolerations:
            self._follow(record, record.pod.spec_tolerations, taints, now)  # The fact is older than what is known.
        return countdown is not None

    def _follow(
        self, record: PodRecord, tolerations: Sequence[Toleration], seen: tuple[SeenTaint, ...], now: Moment
    ) -> _Countdown | None:
        """Note which taints of its node a pod's tolerations match now; None: nothing about it matters."""
        countdown = self._countdowns.get(record.ref.key)
        if countdown is None and not seen:
            return None
        seconds = _least_seconds(tolerations, seen)
        if countdown is not None:
            countdown.ref, countdown.tolerations = record.ref, tolerations
            countdown.goes_on(seconds, now.at, self._gap_at)
            return countdown
        countdown = self._countdowns[record.ref.key] = _Countdown(record.ref, tolerations, seconds)
        # A pod that was bound later has had no moment before.
        bound, bound_at = record.bound, -math.inf
        if bound is not None and bound.object_time is not None and now.dates_objects:
            bound_at = now.instant_of(bound.object_time)
        found = self._found.get(record.node_name, {})
        if all(bound_at >= found.get(taint, -math.inf) for taint, _ in seen):
            countdown.followed_from = now.at
        if seconds is None:
            countdown.clear_at = now.at
            return countdown
        _date_back(countdown, record, [(taint, since, since.start_at) for taint, since in seen], now)
        return countdown

    def _of(self, ref: PodRef) -> _Countdown | None:
        countdown = self._countdowns.get(ref.key)
        return countdown if countdown is not None and countdown.ref == ref else None

    def returns_at(self, ref: PodRef, now: float, marked_at: float) -> float:
        """Return the earliest instant at which the marks of a pod may be removed: no timer from before them is armed
        then. Infinite: this is not known yet.

        Either nothing finite has matched for 10 s, or that was so when the current countdown began. A current countdown
        that is late is taken over first. ``marked_at``: when this process first saw a mark of the pod.
        """
        countdown, at = self._of(ref), marked_at + _CLEAR_SECONDS
        if countdown is None:
            return at
        if countdown.clear_at is not None:
            return max(at, countdown.over_at(self._gap_at))
        return at if countdown.is_anew and now < countdown.begins_at else math.inf

    # What is late

    def timer_at(self, ref: PodRef) -> float:
        """Return the timer of a countdown that is to be taken over; infinite: there is none."""
        countdown, record = self._of(ref), self._pods.find(ref)
        if countdown is None or countdown.seconds is None or record is None or not has_countdown(record.pod):
            return math.inf
        return countdown.timer_at

    def late(self, now: float, rate: float, passed_over: Collection[PodRef]) -> tuple[list[Late], float]:
        """Return the countdowns that are to be taken over now, nearest timer first, and when the next one will be.

        ``passed_over`` are not returned now, though they count among those that are to be taken over. Nor are those
        that wait for the end of a call, which nothing announces: then the next one is to be looked for at once.
        """
        waiting = sorted(self._running(now), key=_timer_of)
        room = _ROOM * len(waiting) / rate
        found: list[Late] = []
        next_at = later_at = math.inf
        # From the latest timer on, since those with the same timer count together.
        for count in range(len(waiting), 0, -1):
            countdown = waiting[count - 1]
            timer_at = countdown.timer_at
            if timer_at < later_at:
                later_at, room = timer_at, _ROOM * count / rate
            begins_at = -math.inf
            if countdown.followed_from >= self._gap_at:
                share = countdown.tolerance_seconds * _SHARE
                begins_at = timer_at - max(_LEAST_BEFORE_SECONDS, min(self._before_seconds, share)) - room
            countdown.begins_at = begins_at
            if begins_at > now:
                next_at = min(next_at, begins_at)
            elif not self._is_free(countdown.ref):
                next_at = now
            elif countdown.ref not in passed_over:
                found.append(Late(timer_at, countdown.ref))
        found.reverse()
        return found, next_at

    def _running(self, now: float) -> Iterator[_Countdown]:
        """Yield each countdown that this controller takes over."""
        for countdown, record in self._forget_over(now):
            seconds = countdown.seconds  # 0: a taint that nothing tolerates leaves no countdown.
            if seconds is None or seconds <= 0 or seconds < self._from_seconds:
                continue
            # On a node that is gone nothing can be marked.
            if record.node_name in self._nodes.known and has_countdown(record.pod):
                yield countdown

    def _forget_over(self, now: float) -> list[tuple[_Countdown, PodRecord]]:
        """Forget the countdowns that are over, of pods that are gone or whose node is clean.

        Return the others of pods that are known.
        """
        known = self._pods.known
        kept: list[tuple[_Countdown, PodRecord]] = []
        for key, countdown in list(self._countdowns.items()):
            record = known.get(key)
            if record is None or (record.ref is not countdown.ref and record.ref != countdown.ref):
                countdown.goes_on(None, now, self._gap_at)
                record = None
            over = countdown.is_over(now, self._gap_at)
            if over and (record is None or not self._nodes.taints_on(record.node_name)):
                del self._countdowns[key]
            elif record is not None:
                kept.append((countdown, record))
        return kept

    def _is_free(self, ref: PodRef) -> bool:
        """Return whether nobody is evicting the pod already."""
        record = self._pods.find(ref)
        return record is not None and not (record.in_flight or record.deleted)


def _least_seconds(tolerations: Sequence[Toleration], seen: tuple[SeenTaint, ...]) -> float | None:
    return builtin_seconds(tolerations, [each.taint for each in seen])


def _date_back(
    countdown: _Countdown, record: PodRecord, taints: Sequence[tuple[Taint, Sighting, float]], now: Moment
) -> None:
    """Note that a timer may run since each of these taints began, at the latest at the instant beside it.

    A watch that lags shows a taint long after its date; the built-in controller may have seen it at once.
    """
    bound = record.bound
    for taint, since, latest in taints:
        tolerance = builtin_seconds(countdown.tolerations, [taint])
        if tolerance is None:
            continue
        starts_at = _dated(since, latest, now)
        if bound is not None:
            starts_at = max(starts_at, _dated(bound, bound.start_at, now))
        countdown.may_fire(starts_at + tolerance, tolerance)
        if now.at - starts_at > _LISTED_SECONDS:
            countdown.followed_from = -math.inf  # Its tolerations may have been others until now.


def _dated(since: Sighting, latest: float, now: Moment) -> float:
    """Return when something began by its object's time, or ``latest`` if that is earlier."""
    if since.object_time is None or not now.dates_objects:
        return latest
    return min(latest, now.instant_of(since.object_time + TRUNCATION_SECONDS))


def _timer_of(countdown: _Countdown) -> float:
    return countdown.timer_at
