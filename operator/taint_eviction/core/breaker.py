"""The circuit breaker: if many nodes are tainted at once, or many pods are due, evictions stop until it is reset.

A node counts if a new taint (by the taint's own time, not by when this process saw it) evicts a pod from it. The
breaker remembers which taints did, so that a node still counts after its pods are gone. A taint that was removed, or
that was there before the last reset, does not count.

It judges by what is known to exist, not by what has been listed: evictions wait for the first lists of newly tainted
nodes (``eviction_queue``). If that wait ends without a node's list, the node counts, unless no pod of the listed nodes
with the same taint has to leave.

A taint that was there before this process, and does not say since when, is dated by the last write of its manager,
which may have written something else. So it is new only if it evicts no pod that does not tolerate it at all and is
older than that date: such a pod would have been evicted long ago. A taint that this process saw appear is new.

Pure: the caller passes what is known and the time. What an open breaker holds back: ``suspension``.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from taint_eviction.core.control_state import Latch
from taint_eviction.core.facts import PodsSwept
from taint_eviction.core.instants import TRUNCATION_SECONDS, Moment, Sighting
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.objects import NOT_READY, UNREACHABLE, Taint

_LIFECYCLE_KEYS = frozenset({NOT_READY, UNREACHABLE})


@dataclass(frozen=True, slots=True)
class NodeThreshold:
    """How many nodes are too many: a number, a share of all nodes in percent, or whichever is exceeded first.

    None: no such bound. A share counts from ``min_nodes`` nodes on, so that two nodes of three are not yet a surge.
    """

    number: int | None = None
    percent: float | None = None
    min_nodes: int = 3

    def exceeded_by(self, count: int, total: int) -> bool:
        """Tell whether ``count`` of ``total`` nodes are more than it allows."""
        if self.number is not None and count > self.number:
            return True
        return self.percent is not None and count >= self.min_nodes and 100 * count > self.percent * total

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
        if self.min_nodes < 1:
            found.append(f"{what}: a share counts from 1 node on at the earliest, not {self.min_nodes}")
        return found


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When evictions stop by themselves until somebody resets the breaker; off by default, as in Kubernetes.

    ``nodes``: how many newly tainted nodes within ``window_seconds`` it tolerates; ``lifecycle_nodes``: the same for
    nodes that the node lifecycle controller tainted (not-ready, unreachable), None: they are exempt. ``max_due``: how
    many pods may be due at once, None: any number. ``settle_seconds``: how long each eviction waits, so that a surge of
    taints shows itself before its first pods are gone; ``list_wait_seconds``: how long an eviction waits at most for
    the first lists of newly tainted nodes. ``closes_by_itself``: it closes when the cause, which this process must have
    seen, is gone; otherwise a human resets it.
    """

    enabled: bool = False
    nodes: NodeThreshold = NodeThreshold(percent=25.0)
    lifecycle_nodes: NodeThreshold | None = NodeThreshold(percent=55.0)
    window_seconds: float = 300.0
    max_due: int | None = None
    settle_seconds: float = 2.0
    list_wait_seconds: float = 10.0
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
        if not 0 <= self.list_wait_seconds < math.inf:
            found.append(f"the breaker's wait for lists must not be negative, as {self.list_wait_seconds:g} s is")
        if self.max_due is not None and self.max_due < 0:
            found.append(f"the breaker's number of due pods must not be negative, as {self.max_due} is")
        return found


@dataclass(frozen=True, slots=True)
class TaintSurge:
    """What the breaker counts: newly tainted nodes (by the node lifecycle controller, by others), all nodes, due pods.

    ``nodes``: those tainted by others. ``unlisted``: newly tainted nodes whose pods have not been listed since.
    """

    nodes: int
    lifecycle_nodes: int
    total: int
    due: int
    unlisted: int = 0


class Breaker:
    """Counts, opens and closes. ``latch`` is set while it is open.

    ``unlisted``: the nodes whose pods have not been listed since they were tainted, with that instant, oldest first.
    """

    def __init__(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self.latch: Latch | None = None
        # Taints from before the last reset by a human do not count; in the API server's time, as the latch.
        self.reset_epoch: float | None = None
        # Due pods of which a human knows (a reset, the end of a pause): they may all be evicted.
        self._known_due = 0.0
        self.unlisted: dict[str, float] = {}
        # Until when evictions waited for lists in vain: nodes that were unlisted by then count all the same.
        self._waited_until = -math.inf
        self._evicting: dict[str, set[Taint]] = {}
        # Taints that were there before this process and have no date, with the time of their manager's last write.
        self._found: dict[str, dict[Taint, float]] = {}
        # Whether something may have raised a count or a share since the last evaluation.
        self._news = False
        # From when on it may close by itself. The cause of a latch that was found in the cluster may not have been
        # listed yet, so unless it was seen it counts as gone only after a full window.
        self._may_close_at: float | None = None

    def evicts(self, node_name: str, taint: Taint, untolerated_since: float = math.inf) -> None:
        """Note that a pod is to be evicted, now or later, because of this taint.

        ``untolerated_since``: since when the pod, which does not tolerate the taint, has been on the node; infinite: it
        tolerates the taint for a time, or its owner holds it.
        """
        found_at = self._found.get(node_name, {}).get(taint, math.inf)
        if untolerated_since > found_at + TRUNCATION_SECONDS:
            return
        taints = self._evicting.setdefault(node_name, set())
        if taint not in taints:
            taints.add(taint)
            self._news = True

    def node_changed(self, name: str, taints: Collection[Taint]) -> None:
        """Note a node's NoExecute taints, which may have another start than before; none if the node is gone."""
        self._news = True
        kept = self._evicting.pop(name, set()).intersection(taints)
        if kept:
            self._evicting[name] = kept
        found = {taint: at for taint, at in self._found.pop(name, {}).items() if taint in taints}
        if found:
            self._found[name] = found

    def node_found(self, name: str, taints: Mapping[Taint, Sighting]) -> None:
        """Note the NoExecute taints of a node that was there when this process started."""
        undated = {taint: since.start_at for taint, since in taints.items() if taint.time_added is None}
        if undated:
            self._found[name] = undated

    def listed(self, fact: PodsSwept) -> None:
        """Note the end of a list of pods: of a node's, or of all bound ones."""
        names = list(self.unlisted) if fact.node_name is None else [fact.node_name]
        for name in names:
            if self.unlisted.get(name, math.inf) <= fact.asked_at:
                del self.unlisted[name]

    def presume(self, waited_until: float) -> None:
        """Note until when evictions waited in vain for the lists of newly tainted nodes."""
        self._news |= waited_until > self._waited_until
        self._waited_until = waited_until

    def know_backlog(self) -> None:
        """Note that a human knows of all pods that are due at the next count."""
        self._known_due = math.inf

    def count_due(self, due: int) -> None:
        """Take in how many pods are due; no more than those are left of which a human knows."""
        self._known_due = min(self._known_due, due)

    @property
    def has_news(self) -> bool:
        """Tell whether it has to evaluate before anything is evicted."""
        return self.policy.enabled and self._news

    def surge(self, nodes: Mapping[str, KnownNode], due: int, now: Moment) -> TaintSurge:
        """Count what is new since the window began; the window stands still while the breaker is open."""
        newest_old = self._newest_old(now)
        by_people = by_lifecycle = 0
        for name, taints in (self._evicting | self._presumed(nodes)).items():
            new = [taint.key for taint in taints if nodes[name].sightings[taint].start_at > newest_old]
            if new and _LIFECYCLE_KEYS.issuperset(new):
                by_lifecycle += 1
            elif new:
                by_people += 1
        return TaintSurge(by_people, by_lifecycle, len(nodes), due, sum(1 for _ in self._awaited(nodes, now)))

    def unlisted_since(self, nodes: Mapping[str, KnownNode], now: Moment) -> float:
        """Return since when a newly tainted node has waited for the list of its pods; infinite: there is none."""
        return next(self._awaited(nodes, now), math.inf) if self.policy.enabled else math.inf

    def _awaited(self, nodes: Mapping[str, KnownNode], now: Moment) -> Iterator[float]:
        newest_old = self._newest_old(now)
        for name, since in self.unlisted.items():
            if name in nodes and any(taint.start_at > newest_old for taint in nodes[name].sightings.values()):
                yield since

    def _presumed(self, nodes: Mapping[str, KnownNode]) -> dict[str, set[Taint]]:
        """Return the nodes whose lists did not come in time, with the taints that may evict pods of theirs."""
        missing = [name for name, since in self.unlisted.items() if since <= self._waited_until and name in nodes]
        if not missing:
            return {}
        evicting = {_kind(taint) for taints in self._evicting.values() for taint in taints}
        listed = (known.sightings for name, known in nodes.items() if name not in self.unlisted)
        tolerated = {_kind(taint) for taints in listed for taint in taints} - evicting
        return {name: {taint for taint in nodes[name].sightings if _kind(taint) not in tolerated} for name in missing}

    def _newest_old(self, now: Moment) -> float:
        newest_old = now.at - self.policy.window_seconds
        if self.latch is not None:
            newest_old = min(newest_old, now.instant_of(self.latch.since_epoch) - self.policy.window_seconds)
        if self.reset_epoch is not None:
            newest_old = max(newest_old, now.instant_of(self.reset_epoch))
        return newest_old

    def evaluate(self, nodes: Mapping[str, KnownNode], due: int, now: Moment) -> None:
        """Open if there is too much; close if that is allowed without a human and the cause is gone."""
        self.count_due(due)
        if not self.policy.enabled:
            return
        max_due = self.policy.max_due
        too_many_due = max_due is not None and due - self._known_due > max_due
        if self.latch is None:
            if self._news or too_many_due:
                self._news = False
                cause = self._cause(self.surge(nodes, due, now), too_many_due)
                self.latch = None if cause is None else Latch(now.server_epoch, cause)
                self._may_close_at = now.at
        elif self.policy.closes_by_itself and not self.latch.unreadable:
            if self._cause(self.surge(nodes, due, now), too_many_due) is not None:
                self._may_close_at = now.at
            elif self._may_close_at is None:
                self._may_close_at = now.at + self.policy.window_seconds
            elif now.at >= self._may_close_at:
                self.reset(now.server_epoch)

    def reset(self, epoch: float) -> None:
        """Close, and ignore taints from before ``epoch`` (API server's time)."""
        if self.latch is not None:
            self.know_backlog()
        self.latch = self._may_close_at = None
        self.reset_epoch = epoch

    def correct(self) -> None:
        """Close after a human corrected what could not be read, and evaluate again. The human knows what was held."""
        self.know_backlog()
        self.latch = self._may_close_at = None
        self._news = True

    def date_back(self, epoch: float) -> None:
        """Move what is dated after ``epoch``, the API server's now, back to it: somebody's clock was ahead."""
        if self.latch is not None and self.latch.since_epoch > epoch:
            self.latch = replace(self.latch, since_epoch=epoch)
        if self.reset_epoch is not None:
            self.reset_epoch = min(self.reset_epoch, epoch)

    def _cause(self, surge: TaintSurge, too_many_due: bool) -> str | None:
        """Say what is too much, with figures; None if nothing is."""
        policy = self.policy
        window = f"newly tainted within {policy.window_seconds:g} s"
        if policy.nodes.exceeded_by(surge.nodes, surge.total):
            return f"{surge.nodes} of {surge.total} nodes {window}, more than {policy.nodes}"
        lifecycle = policy.lifecycle_nodes
        if lifecycle is not None and lifecycle.exceeded_by(surge.lifecycle_nodes, surge.total):
            seen = f"{surge.lifecycle_nodes} of {surge.total} nodes not ready or unreachable"
            return f"{seen}, {window}, more than {lifecycle}"
        if too_many_due:
            return f"{surge.due} pods due at once, more than {policy.max_due}"
        return None


def _kind(taint: Taint) -> tuple[str, str]:
    """Return by what a toleration matches a NoExecute taint."""
    return taint.key, taint.value
