"""Which nodes are not ready, since when, and how many of them became unready together.

The node lifecycle controller taints a few nodes of an outage at a time (0.1 a second and zone, or fewer), but sets the
conditions of all at once. So an outage is counted by the condition Ready. A node whose condition is missing, or does
not say since when, is not counted here: ``breaker`` counts it by its taint.

A node's outage begins when its condition stops being True (it may be False or Unknown). An observation overrides a
date: an outage begins no earlier than the node was last known to be ready. But a watch that is behind shows late what
began together, so nodes also count together if the dates of their conditions are close together.

Nodes with the label node.kubernetes.io/exclude-disruption count neither as not ready nor among all nodes; nor do those
of the control plane if the policy says so. Pure: an observation costs the same however many nodes there are.

Reference: pkg/controller/nodelifecycle/node_lifecycle_controller.go
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.facts import NodeSeen
from taint_eviction.core.instants import TRUNCATION_SECONDS, Moment
from taint_eviction.core.objects import LIFECYCLE_KEYS, Node, Readiness
from taint_eviction.core.pods import PodRecord

# The pods of a node that are to be evicted; True: only those that are due and whose flow is not held.
Evictions = Callable[[str, bool], Iterable[PodRecord]]


@dataclass(frozen=True, slots=True)
class LostNodes:
    """Nodes that stopped being ready within the window around one of them, ``name``, and are still not ready.
    ``count`` of ``total`` nodes: of those in ``zone``, or, if that is None, of all nodes.
    """

    name: str
    lost_at: float
    count: int
    total: int
    zone: str | None


@dataclass(frozen=True, slots=True)
class _SeenNode:
    """A node as last observed; ``lost_at`` None: it is ready, or does not say since when it is not ready."""

    uid: str
    zone: str
    counts: bool
    ready: Readiness | None
    seen_at: float
    lost_at: float | None


class UnreadyNodes:
    """The nodes that count, and the outages among them."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._nodes: dict[str, _SeenNode] = {}
        # Nodes that count, by zone; and of these the ones that are not ready, with the instant at which that began.
        self._zones: Counter[str] = Counter()
        self.lost: dict[str, float] = {}
        # The same, by the date of the condition only.
        self._dated: dict[str, float] = {}
        self._lost_in: Counter[str] = Counter()
        # Whether, since the last evaluation (``Breaker.evaluate``), an outage may have become too large or evictions
        # due.
        self.dirty = False
        self._heard_at = -math.inf

    # What is seen

    def hear(self, now: Moment) -> None:
        """Note that the watch of nodes has brought everything so far."""
        self._heard_at = now.at

    def see(self, fact: NodeSeen, now: Moment) -> None:
        """Observe a node."""
        node, before = fact.node, self._nodes.get(fact.node.name)
        same = before if before is not None and before.uid == node.uid else None
        counts = not node.excluded_from_disruption and not (self._policy.without_control_plane and node.control_plane)
        seen_at = now.at if fact.asked_at is None else fact.asked_at
        seen = _SeenNode(node.uid, node.zone, counts, node.ready, seen_at, self._lost_at(fact, same, now))
        if before is not None and (before.zone, before.counts, before.lost_at) == (node.zone, counts, seen.lost_at):
            self._nodes[node.name] = seen
            return
        self.forget(node.name)
        self._nodes[node.name] = seen
        if counts:
            self._zones[node.zone] += 1
            if seen.lost_at is not None:
                self.lost[node.name] = seen.lost_at
                self._dated[node.name] = _dated_at(node.ready, now)
                self._lost_in[node.zone] += 1

    def forget(self, name: str) -> None:
        """Note that a node is gone."""
        before = self._nodes.pop(name, None)
        if before is not None and before.counts:
            self._zones[before.zone] -= 1
            self._lost_in[before.zone] -= self.lost.pop(name, None) is not None
            self._dated.pop(name, None)
        self.dirty = True

    def _lost_at(self, fact: NodeSeen, same: _SeenNode | None, now: Moment) -> float | None:
        ready = fact.node.ready
        if ready is None or ready.is_true or ready.since is None:
            return None
        was = None if same is None else same.ready
        if same is not None and was is not None and same.lost_at is not None:
            # Across a gap of the watch, a later date may mean that the node was ready in between; with the same status
            # it does.
            stayed = ready.since == was.since or (ready.status != was.status and not fact.after_gap)
            if stayed:
                return same.lost_at
        lost_at = _dated_at(ready, now)
        if same is not None and was is not None and was.is_true:
            lost_at = max(lost_at, same.seen_at, self._heard_at)
        return lost_at

    # What follows

    @property
    def total(self) -> int:
        """Count the nodes that count."""
        return self._zones.total()

    @property
    def zones(self) -> Mapping[str, int]:
        """Count the nodes that count by zone, "" for those without one."""
        return +self._zones

    def zone_of(self, name: str) -> str | None:
        """Return the zone of a node, "" for none; None: the node does not count."""
        seen = self._nodes.get(name)
        return seen.zone if seen is not None and seen.counts else None

    def not_ready(self) -> Iterator[str]:
        """Yield the nodes that count and are not ready, for any time."""
        return (name for name, seen in self._nodes.items() if seen.counts and seen.ready and not seen.ready.is_true)

    @property
    def needs_evaluation(self) -> bool:
        """Return whether the result of ``too_much`` may have changed: most outages are too small to matter."""
        return self.dirty and (
            self._is_exceeded(None, len(self.lost))
            or (self._policy.zone is not None and any(self._is_exceeded(*zone) for zone in self._lost_in.items()))
        )

    def _is_exceeded(self, zone: str | None, count: int) -> bool:
        threshold, total = self.threshold(zone), self.total if zone is None else self._zones[zone]
        return threshold is not None and threshold.exceeded_by(count, total)

    def together(self, acknowledged_at: float) -> Iterator[LostNodes]:
        """Yield the nodes that are not ready, each with how many others became unready within its window.
        The window is the policy's, before and after that node's outage began. Outages that began by ``acknowledged_at``
        are known to people and do not count. First for all nodes, then for zones if they have a threshold.
        """
        for zone, nodes in self._groups(acknowledged_at):
            yield from self._counted(nodes, zone)

    def _groups(self, acknowledged_at: float) -> Iterator[tuple[str | None, Mapping[str, float]]]:
        lost = {name: at for name, at in self.lost.items() if at > acknowledged_at}
        yield None, lost
        if self._policy.zone is None:
            return
        by_zone: dict[str, dict[str, float]] = {}
        for name, at in lost.items():
            by_zone.setdefault(self._nodes[name].zone, {})[name] = at
        by_zone.pop("", None)
        yield from by_zone.items()

    def _counted(self, lost: Mapping[str, float], zone: str | None) -> Iterator[LostNodes]:
        total = self.total if zone is None else self._zones[zone]
        seen, dated = sorted(lost.values()), sorted(self._dated[name] for name in lost)
        for name, at in lost.items():
            count = max(self._number_within(seen, at), self._number_within(dated, self._dated[name]))
            yield LostNodes(name, at, count, total, zone)

    def _number_within(self, starts: Sequence[float], at: float) -> int:
        window = self._policy.window_seconds
        return bisect_right(starts, at + window) - bisect_left(starts, at - window)

    def too_much(self, evictions: Evictions, due: bool, acknowledged_at: float) -> str | None:
        """Return which outage exceeds its threshold and causes an eviction (``due``: soon), as a sentence; None if none
        does.
        """
        for zone, nodes in self._groups(acknowledged_at):
            if not self._is_exceeded(zone, len(nodes)):
                continue
            for lost in self._counted(nodes, zone):
                if self._is_exceeded(zone, lost.count) and self.has_caused(lost, evictions(lost.name, due)):
                    return self._cause(lost)
        return None

    def _cause(self, lost: LostNodes) -> str:
        where = "" if lost.zone is None else f" of zone {lost.zone}"
        within = f"stopped being ready within {self._policy.window_seconds:g} s of {lost.name}"
        threshold = self.threshold(lost.zone)
        return f"{lost.count} of {lost.total} nodes{where} {within} and still are not, more than {threshold}"

    def threshold(self, zone: str | None) -> NodeThreshold | None:
        """Return how many nodes of a zone (None: of all nodes) may be lost."""
        return self._policy.lifecycle_nodes if zone is None else self._policy.zone if zone else None

    def names(self, lost: LostNodes, acknowledged_at: float) -> set[str]:
        """Return the names of the nodes of an outage."""
        window, dated_at = self._policy.window_seconds, self._dated[lost.name]
        return {
            name
            for name, at in self.lost.items()
            if at > acknowledged_at and min(abs(at - lost.lost_at), abs(self._dated[name] - dated_at)) <= window
        }

    def has_caused(self, lost: LostNodes, evictions: Iterable[PodRecord]) -> bool:
        """Return whether the outage of a node caused one of these evictions from it.
        The eviction of a pod that came long after the node was lost was not caused by the outage.
        """
        return any(
            record.decision is not None
            and record.decision.deciding.taint.key in LIFECYCLE_KEYS
            and record.bound is not None
            and record.bound.start_at <= lost.lost_at + self._policy.window_seconds
            for record in evictions
        )


def _dated_at(ready: Readiness | None, now: Moment) -> float:
    """Return the instant at which a condition says that it changed; now if it has no date, or a later one."""
    since = None if ready is None else ready.since
    return now.at if since is None else min(now.at, now.instant_of(since + TRUNCATION_SECONDS))


def no_evictions(_: str, __: bool) -> Iterable[PodRecord]:
    """Return no pods: an ``Evictions`` for which none is to be evicted."""
    return ()


def is_dated(node: Node) -> bool:
    """Return whether a node's condition is dated, or says that the node is ready."""
    return node.ready is not None and (node.ready.is_true or node.ready.since is not None)
