"""The circuit breaker: when many nodes are tainted at once, or many pods due, evictions stop until somebody has looked.

A node counts if taints on it that are new (by their own time, not by when this process saw them) make a pod of it go.
The breaker remembers which taints those were, so that a node whose pods are gone already still counts; a taint that was
removed, or was there before the last reset, does not.

Pure: it is told what is known and what time it is. What an open breaker holds back is ``brakes``' business.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from taint_eviction.core.cluster import KnownNode
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NOT_READY, UNREACHABLE, Taint
from taint_eviction.core.orders import Latch

_LIFECYCLE_KEYS = frozenset({NOT_READY, UNREACHABLE})


@dataclass(frozen=True, slots=True)
class NodeThreshold:
    """How many nodes are too many: a number, a share of all nodes in percent, or whichever comes first. None: no such.

    A share counts from ``least`` nodes on, so that two nodes of three are not yet a wave.
    """

    number: int | None = None
    percent: float | None = None
    least: int = 3

    def exceeded_by(self, count: int, total: int) -> bool:
        """Tell whether so many nodes of so many are more than it allows."""
        if self.number is not None and count > self.number:
            return True
        return self.percent is not None and count >= self.least and 100 * count > self.percent * total

    def __str__(self) -> str:
        """Say what it allows."""
        parts = [] if self.number is None else [f"{self.number}"]
        if self.percent is not None:
            parts.append(f"{self.percent:g} %")
        return " or ".join(parts) or "any number"

    def problems(self, what: str) -> list[str]:
        """Say everything that is wrong with it, a sentence each; ``what`` names it."""
        found = []
        if self.number is not None and self.number < 0:
            found.append(f"{what}: a number of nodes is not negative, as {self.number} is")
        if self.percent is not None and not 0 <= self.percent < 100:
            found.append(f"{what}: more than {self.percent:g} % of the nodes can never be; write less than 100")
        if self.least < 1:
            found.append(f"{what}: a share counts from 1 node on at the earliest, not {self.least}")
        return found


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When evictions stop by themselves, until somebody has looked; off by default, as Kubernetes knows no such thing.

    ``nodes``: more nodes than that newly tainted within ``window_seconds`` open it; ``lifecycle_nodes`` is the same for
    nodes that the node lifecycle controller has tainted (not-ready, unreachable), None: they are exempt. ``most_due``:
    more pods than that due at once open it, None: any number may be. ``settle_seconds``: how long each eviction waits,
    so that a wave is seen before its first pods are gone. ``closes_by_itself``: once the cause, which the process
    must have seen, is gone; else a human resets it.
    """

    enabled: bool = False
    nodes: NodeThreshold = NodeThreshold(percent=25.0)
    lifecycle_nodes: NodeThreshold | None = NodeThreshold(percent=55.0)
    window_seconds: float = 300.0
    most_due: int | None = None
    settle_seconds: float = 2.0
    closes_by_itself: bool = False

    def problems(self) -> list[str]:
        """Say everything that is wrong with these values, a sentence each."""
        found = self.nodes.problems("breaker")
        if self.lifecycle_nodes is not None:
            found += self.lifecycle_nodes.problems("breaker, not-ready and unreachable nodes")
        if not 0 < self.window_seconds < math.inf:
            found.append(f"the breaker's window must be more than 0 seconds, not {self.window_seconds:g}")
        if not 0 <= self.settle_seconds < math.inf:
            found.append(f"the breaker's settling must not be negative, as {self.settle_seconds:g} s is")
        if self.most_due is not None and self.most_due < 0:
            found.append(f"the breaker's number of due pods must not be negative, as {self.most_due} is")
        return found


@dataclass(frozen=True, slots=True)
class Wave:
    """What the breaker sees: nodes newly tainted (by the node lifecycle controller, by others) of all; pods due now."""

    nodes: int
    lifecycle_nodes: int
    total: int
    due: int


class Breaker:
    """Counts, opens and closes. ``latch`` is set while it is open."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self.latch: Latch | None = None
        # What was there when a human last said that all is well; in the API server's time, as the latch.
        self.reset_epoch: float | None = None
        # So many due pods a human knows of (a reset, a resumed pause): they may be worked off, however many they are.
        self._known_due = 0.0
        self._evicting: dict[str, set[Taint]] = {}
        # Something that may have raised a count or a share since the last look.
        self._news = False
        # From when on it may close by itself. The cause of a latch that was found in the cluster may not have been
        # listed yet, so unless it is seen it is taken for gone only after a whole window.
        self._may_close_at: float | None = None

    def evicts(self, node_name: str, taint: Taint) -> None:
        """Note that a pod is to go, or will have to, because of this taint."""
        taints = self._evicting.setdefault(node_name, set())
        if taint not in taints:
            taints.add(taint)
            self._news = True

    def node_changed(self, name: str, taints: Collection[Taint]) -> None:
        """Note that a node has these NoExecute taints now, perhaps since another time, or that it is gone (none)."""
        self._news = True
        kept = self._evicting.pop(name, set()).intersection(taints)
        if kept:
            self._evicting[name] = kept

    def know_backlog(self) -> None:
        """Note that a human knows of all that is due when it is counted next."""
        self._known_due = math.inf

    def count_due(self, due: int) -> None:
        """Take in how many pods are due; of those that a human knows of there are never more than that left."""
        self._known_due = min(self._known_due, due)

    def wave(self, nodes: Mapping[str, KnownNode], due: int, now: Moment) -> Wave:
        """Count what is new: since the window began, which stands still while the breaker is open."""
        newest_old = now.at - self.policy.window_seconds
        if self.latch is not None:
            newest_old = min(newest_old, now.instant_of(self.latch.since_epoch) - self.policy.window_seconds)
        if self.reset_epoch is not None:
            newest_old = max(newest_old, now.instant_of(self.reset_epoch))
        by_people = by_lifecycle = 0
        for name, taints in self._evicting.items():
            new = [taint.key for taint in taints if nodes[name].sightings[taint].start_at > newest_old]
            if new and _LIFECYCLE_KEYS.issuperset(new):
                by_lifecycle += 1
            elif new:
                by_people += 1
        return Wave(by_people, by_lifecycle, len(nodes), due)

    def look(self, nodes: Mapping[str, KnownNode], due: int, now: Moment) -> None:
        """Open if what is seen is too much; close where that may be done without a human and the cause is gone."""
        self.count_due(due)
        if not self.policy.enabled:
            return
        most_due = self.policy.most_due
        too_many_due = most_due is not None and due - self._known_due > most_due
        if self.latch is None:
            if self._news or too_many_due:
                self._news = False
                cause = self._cause(self.wave(nodes, due, now), too_many_due)
                self.latch = None if cause is None else Latch(now.server_epoch, cause)
                self._may_close_at = now.at
        elif self.policy.closes_by_itself and not self.latch.unreadable:
            if self._cause(self.wave(nodes, due, now), too_many_due) is not None:
                self._may_close_at = now.at
            elif self._may_close_at is None:
                self._may_close_at = now.at + self.policy.window_seconds
            elif now.at >= self._may_close_at:
                self.reset(now.server_epoch)

    def reset(self, epoch: float) -> None:
        """Close, and take what was there until ``epoch`` (API server's time) for known."""
        if self.latch is not None:
            self.know_backlog()
        self.latch = self._may_close_at = None
        self.reset_epoch = epoch

    def _cause(self, wave: Wave, too_many_due: bool) -> str | None:
        """Say what is too much, with figures; None if nothing is."""
        policy = self.policy
        window = f"newly tainted within {policy.window_seconds:g} s"
        if policy.nodes.exceeded_by(wave.nodes, wave.total):
            return f"{wave.nodes} of {wave.total} nodes {window}, more than {policy.nodes}"
        lifecycle = policy.lifecycle_nodes
        if lifecycle is not None and lifecycle.exceeded_by(wave.lifecycle_nodes, wave.total):
            seen = f"{wave.lifecycle_nodes} of {wave.total} nodes not ready or unreachable"
            return f"{seen}, {window}, more than {lifecycle}"
        if too_many_due:
            return f"{wave.due} pods due at once, more than {policy.most_due}"
        return None
