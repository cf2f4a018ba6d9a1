"""The circuit breaker: if many nodes are tainted at once, or many pods are due, evictions stop until it is reset.

A node counts if a new taint (by the taint's own time, not by when this process saw it) evicts a pod from it that was
there before the taint: anybody may create others. The breaker remembers which taints did, so that a node still counts
after its pods are gone. A taint that was removed, or that was there before the last reset, does not count.

Nodes that the node lifecycle controller taints are counted by their conditions (``unready_nodes``), and only once an
eviction because of the taint is due: until then the nodes may become ready again. The taint itself counts only where
the condition says nothing.
The breaker judges by what is known to exist, not by what has been listed: evictions wait for the first lists of newly
tainted nodes (``eviction_queue``). If that wait ends without a node's list, the node counts, unless no pod on the
listed nodes with the same taint is to be evicted.

A taint that was on its node before this process started, and has no ``timeAdded``, is dated by the last write of its
manager, which may have written something else. So it counts as new only if it evicts a pod that does not tolerate it at
all and was on the node before that date: an older taint would have evicted that pod long ago. A taint that this process
saw appear is new.
Pure: the caller passes what is known and the time. ``guards`` says what an open breaker blocks.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.control_state import Latch, is_same_time
from taint_eviction.core.facts import PodsSwept
from taint_eviction.core.instants import TRUNCATION_SECONDS, Moment, Sighting
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.objects import LIFECYCLE_KEYS, Node, Taint
from taint_eviction.core.out_of_service import OutOfServiceNodes
from taint_eviction.core.unready_nodes import Evictions, UnreadyNodes, is_dated, no_evictions


@dataclass(frozen=True, slots=True)
class TaintSurge:
    """What the breaker counts: newly tainted nodes (by the node lifecycle controller, by others), all nodes, due pods.

    ``nodes``: those tainted by others. ``unlisted``: newly tainted nodes whose pods have not been listed since.
    ``out_of_service``: nodes that are newly out of service, see ``OutOfServiceNodes.newly``.
    """

    nodes: int
    lifecycle_nodes: int
    total: int
    due: int
    unlisted: int = 0
    out_of_service: int = 0


class TriedBefore(NamedTuple):
    """How many pods a former leader had tried to evict in vain by ``epoch``, or let through for another reason, of
    those that count as due together.
    """

    pods: int
    epoch: float


class Breaker:
    """Counts, opens and closes. ``latch`` is set while it is open.

    ``unlisted``: the nodes whose pods have not been listed since they were tainted, with that instant, oldest first.
    ``closed``: the latch that this process has closed itself, as long as the cluster may still have it, and when; None:
    there is none. ``controller``: the identity of this process, for its latches.
    """

    def __init__(
        self,
        policy: BreakerPolicy,
        out_of_service: OutOfServiceNodes | None = None,
        controller: str = "this controller",
    ) -> None:
        self.policy = policy
        self.controller = controller
        self._out_of_service = out_of_service or OutOfServiceNodes()
        self.latch: Latch | None = None
        self.closed: tuple[Latch, float] | None = None
        # Taints from before the last reset by a person do not count. API server's time, as in the latch.
        self.reset_epoch: float | None = None
        self._stored_closed_epoch: float | None = None
        # Number of due pods that a person knows of (a reset, the end of a pause): these may all be evicted.
        self._known_due = 0.0
        self.unlisted: dict[str, float] = {}
        # The end of the last wait for lists that did not come: nodes that were unlisted by then still count.
        self._waited_until = -math.inf
        self._evicting: dict[str, set[Taint]] = {}
        # Undated taints from before this process started, with how it first saw them: at the latest by the time of
        # their manager's last write.
        self._found: dict[str, dict[Taint, Sighting]] = {}
        # Whether something may have raised a count or a share since the last evaluation.
        self._dirty = False
        self.unready = UnreadyNodes(policy)
        # From this instant on the breaker may close by itself. The cause of a latch found in the cluster may not have
        # been listed yet. Unless this process saw a cause, it counts as gone only after a full window.
        self._may_close_at: float | None = None
        # Whether the latch is from an earlier leadership of this process, and was not written: others have led since.
        self._is_doubtful = False

    def evicts(self, node_name: str, taint: Taint, untolerated_since: float = math.inf) -> None:
        """Note that a pod is to be evicted, now or later, because of this taint.

        ``untolerated_since``: since when the pod has been on the node, if it does not tolerate the taint; infinite if
        it tolerates the taint for a time, or if its owner holds it.
        """
        found = self._found.get(node_name, {}).get(taint)
        if found is not None and untolerated_since > found.start_at + TRUNCATION_SECONDS:
            return
        taints = self._evicting.setdefault(node_name, set())
        if taint not in taints:
            taints.add(taint)
            self._dirty = True

    def node_changed(self, name: str, taints: Collection[Taint]) -> None:
        """Note a node's NoExecute taints, whose start may have changed; none if the node is gone."""
        self._dirty = True
        kept = self._evicting.pop(name, set()).intersection(taints)
        if kept:
            self._evicting[name] = kept
        found = {taint: since for taint, since in self._found.pop(name, {}).items() if taint in taints}
        if found:
            self._found[name] = found

    def node_found(self, name: str, taints: Mapping[Taint, Sighting]) -> None:
        """Note the NoExecute taints of a node that was there when this process started."""
        undated = {taint: since for taint, since in taints.items() if taint.time_added is None}
        if undated:
            self._found[name] = undated

    def listed(self, fact: PodsSwept) -> list[str]:
        """Note the end of a list of pods, a node's or of all bound ones; return the nodes whose first list it is."""
        names = list(self.unlisted) if fact.node_name is None else [fact.node_name]
        listed = [name for name in names if self.unlisted.get(name, math.inf) <= fact.asked_at]
        for name in listed:
            del self.unlisted[name]
        return listed

    def lists_overdue(self, waited_until: float) -> None:
        """Note when evictions stopped waiting for the lists of newly tainted nodes."""
        self._dirty |= waited_until > self._waited_until
        self._waited_until = waited_until

    def acknowledge_backlog(self) -> None:
        """Note that a person knows of all pods that are due at the next count."""
        self._known_due = math.inf

    def acknowledge(self, pods: int) -> None:
        """Note that a person knows of so many more due pods: those that a pause has held until now."""
        self._known_due += pods

    def know(self, pods: int) -> None:
        """Note that a person knows of so many due pods at least."""
        self._known_due = max(self._known_due, pods)

    def old_until(self, name: str, taint: Taint, epoch: float, now: Moment) -> float:
        """Return up to which instant a node's taint may have begun by ``epoch``. One without any date is seen later;
        one that managedFields date later is new.
        """
        found, at = self._found.get(name, {}).get(taint), now.instant_of(epoch)
        return at if found is None or found.object_time is not None else max(at, found.start_at)

    def too_many_due(self, due: int) -> bool:
        """Return whether so many due pods are more than it allows, beside those of which a person knows."""
        return self.policy.max_due is not None and due - self._known_due > self.policy.max_due

    def count_due(self, due: int) -> None:
        """Note how many pods are due. A person knows of at most that many from now on."""
        self._known_due = min(self._known_due, due)

    @property
    def known_due(self) -> float:
        """How many due pods a person knows of; infinite: all that are due at the next evaluation."""
        return self._known_due

    @property
    def needs_evaluation(self) -> bool:
        """Return whether it has to evaluate before anything is evicted."""
        return self.policy.enabled and (self._dirty or self.unready.needs_evaluation)

    def surge(self, nodes: Mapping[str, KnownNode], due: int, now: Moment) -> TaintSurge:
        """Count what is new since the window began. While the breaker is open, the window does not move."""
        by_people, by_lifecycle = self.newly_tainted(nodes, now)
        unlisted = sum(1 for _ in self._awaited(nodes, now))
        newly_off = self._newly_out_of_service(nodes, now)
        return TaintSurge(len(by_people), len(by_lifecycle), len(nodes), due, unlisted, newly_off)

    def _newly_out_of_service(self, nodes: Mapping[str, KnownNode], now: Moment) -> int:
        if not self._out_of_service.names():
            return 0

        def may_be_old(name: str, taint: Taint) -> bool:
            """Return whether a taint may be older than its date: no pod proves the opposite."""
            return taint in self._found.get(name, ()) and taint not in self._evicting.get(name, ())

        return self._out_of_service.newly(nodes, self.counts_from(now), may_be_old)

    def _judge_out_of_service(self, nodes: Mapping[str, KnownNode], now: Moment) -> bool:
        """Return whether too many nodes are newly out of service. An open breaker, whatever opened it, then holds their
        pods until a person resets it, even if the count falls.
        """
        too_many = self.policy.nodes.exceeded_by(self._newly_out_of_service(nodes, now), len(nodes))
        if too_many and self.latch is not None:
            self.latch = replace(self.latch, out_of_service=True)
        return too_many

    def newly_tainted(self, nodes: Mapping[str, KnownNode], now: Moment) -> tuple[set[str], set[str]]:
        """Return the nodes newly tainted by others, and by the node lifecycle controller where its taints count."""
        counts_from = self.counts_from(now)
        by_people, by_lifecycle = set(), set()
        overdue = _overdue(nodes, self.unlisted, self._waited_until, self._evicting)
        for name, taints in (self._evicting | overdue).items():
            node = nodes[name].node
            new = [taint for taint in taints if nodes[name].sightings[taint].start_at > counts_from]
            if any(is_by_people(taint, node) for taint in new):
                by_people.add(name)
            elif new and not is_dated(node) and self.unready.zone_of(name) is not None:
                by_lifecycle.add(name)
        return by_people, by_lifecycle

    def unlisted_since(self, nodes: Mapping[str, KnownNode], now: Moment) -> float:
        """Return since when newly tainted nodes have waited for the lists of their pods; infinite if none waits."""
        return next(self._awaited(nodes, now), math.inf) if self.policy.enabled else math.inf

    def _awaited(self, nodes: Mapping[str, KnownNode], now: Moment) -> Iterator[float]:
        counts_from = self.counts_from(now)
        for name, since in self.unlisted.items():
            if name in nodes and any(taint.start_at > counts_from for taint in nodes[name].sightings.values()):
                yield since

    def counts_from(self, now: Moment) -> float:
        """Return the instant up to which taints and outages are old: before the window, or before the last reset."""
        counts_from = now.at - self.policy.window_seconds
        if self.latch is not None:
            counts_from = min(counts_from, now.instant_of(self.latch.since_epoch) - self.policy.window_seconds)
        return max(counts_from, self.acknowledged_at(now))

    def acknowledged_at(self, now: Moment) -> float:
        """Return the instant of the last reset by a person, who knows what began before it."""
        return -math.inf if self.reset_epoch is None else now.instant_of(self.reset_epoch)

    def evaluate(
        self, nodes: Mapping[str, KnownNode], due: int, now: Moment, evictions: Evictions = no_evictions
    ) -> None:
        """Open if a threshold is exceeded. Close if the policy allows that without a person and the cause is gone."""
        self.count_due(due)
        too_many_off = self._judge_out_of_service(nodes, now)
        if not self.policy.enabled:
            return
        too_many_due = self.too_many_due(due)
        if self.latch is None:
            if self._dirty or too_many_due or self.unready.needs_evaluation:
                counts = self._dirty or too_many_due
                cause = (
                    _cause(self.policy, self.surge(nodes, due, now), self.unready.total, too_many_due)
                    if counts
                    else None
                )
                cause = cause or self.unready.too_much(evictions, True, self.acknowledged_at(now))
                self._dirty = self.unready.dirty = False
                if cause is not None:
                    self.latch = Latch(now.server_epoch, cause, out_of_service=too_many_off, controller=self.controller)
                    self._may_close_at = now.at
        elif self.latch.controller and (self.policy.closes_by_itself or self._is_doubtful):
            cause = _cause(self.policy, self.surge(nodes, due, now), self.unready.total, too_many_due)
            was_doubtful, self._is_doubtful = self._is_doubtful, False
            if cause or self.unready.too_much(evictions, False, self.acknowledged_at(now)):
                self._may_close_at = now.at
            elif was_doubtful:
                self._end()
            elif self._may_close_at is None:
                self._may_close_at = now.at + self.policy.window_seconds
            elif now.at >= self._may_close_at:
                self.close(now.server_epoch)

    def begin_term(self, stored: Latch | None) -> None:
        """Note that another leadership begins, while the cluster has this latch; None: it has none.

        Others have led since, and judged by themselves. So a latch that this process has opened in an earlier one, and
        has not written, stays only if its cause does; and one that it has closed, without writing that, is open.
        """
        latch = self.latch
        self._is_doubtful = stored is None and latch is not None and latch.controller == self.controller
        if self.closed is not None and stored is not None:
            self.closed = self._may_close_at = None
            self.latch = stored

    def close(self, epoch: float) -> None:
        """Close without a person, who would know of what is left: the nodes that counted still do, within the window.

        Until that is written, the cluster still has the latch.
        """
        if self.latch is not None:
            self.closed = self.latch, epoch
        self._end()

    def _end(self) -> None:
        self.latch = self._may_close_at = None
        self._dirty = True

    def read(self, stored: Latch | None, closed_epoch: float | None, by_itself: bool = False) -> None:
        """Note what the cluster has: a latch, or when it was last closed; None: it has none of that. ``by_itself``: no
        person has closed it.

        The latch that this process has closed itself is old news until the closing has been written. Every other one
        counts, whatever its date is: somebody has opened the breaker. A person's replaces that of a controller. Either
        keeps that too many nodes were out of service.
        """
        if self.closed is not None and (stored is None or not stored.is_same(self.closed[0])):
            self.closed = None
        before, self._stored_closed_epoch = self._stored_closed_epoch, closed_epoch
        # The same closing, read again, does not close a breaker that has opened at the same instant.
        if closed_epoch is not None and (before is None or not is_same_time(before, closed_epoch)):
            self._take_closing(closed_epoch, by_itself)
        if stored is None or self.closed is not None:
            return
        known = self.latch
        if known is None or not stored.controller:
            self._may_close_at = None
            self.latch = stored
        if self.latch is not None and known is not None and (known.out_of_service or stored.out_of_service):
            self.latch = replace(self.latch, out_of_service=True)

    def _take_closing(self, closed_epoch: float, by_itself: bool) -> None:
        if by_itself:
            if self.latch is not None and closed_epoch >= self.latch.since_epoch:
                self._end()
            return
        last_reset = -math.inf if self.reset_epoch is None else self.reset_epoch
        if closed_epoch >= (last_reset if self.latch is None else self.latch.since_epoch):
            self.reset(max(closed_epoch, last_reset))

    def closing_written(self, closed: Latch) -> None:
        """Note that the cluster no longer has a latch that this process has closed: if it is seen again, it is new."""
        if self.closed is not None and self.closed[0] is closed:
            self.closed = None

    def reset(self, epoch: float) -> None:
        """Close, as a person has: ignore taints from before ``epoch`` (API server's time)."""
        if self.latch is not None:
            self.acknowledge_backlog()
        self.latch = self._may_close_at = None
        self.reset_epoch = epoch

    def correct(self) -> None:
        """Close after a person corrected an unreadable state, and evaluate again. The person knows what was held."""
        self.acknowledge_backlog()
        self.latch = self._may_close_at = None
        self._dirty = True

    def date_back(self, epoch: float) -> None:
        """Move dates after ``epoch``, the API server's current time, back to it: the writer's clock was ahead."""
        if self.latch is not None and self.latch.since_epoch > epoch:
            self.latch = replace(self.latch, since_epoch=epoch)
        if self.reset_epoch is not None:
            self.reset_epoch = min(self.reset_epoch, epoch)


def is_by_people(taint: Taint, node: Node) -> bool:
    """Return whether somebody other than the node lifecycle controller set a taint.
    That controller dates its own taints, and sets none on ready nodes."""
    return taint.key not in LIFECYCLE_KEYS or (taint.time_added is None and node.is_ready)


def _kind(taint: Taint) -> tuple[str, str]:
    """Return the fields of a NoExecute taint that a toleration matches."""
    return taint.key, taint.value


def _overdue(
    nodes: Mapping[str, KnownNode],
    unlisted: Mapping[str, float],
    waited_until: float,
    evicting: Mapping[str, Collection[Taint]],
) -> dict[str, set[Taint]]:
    """Return the nodes whose lists did not come in time, with the taints that may evict pods from them."""
    missing = [name for name, since in unlisted.items() if since <= waited_until and name in nodes]
    if not missing:
        return {}
    evicted = {_kind(taint) for taints in evicting.values() for taint in taints}
    listed = (known.sightings for name, known in nodes.items() if name not in unlisted)
    tolerated = {_kind(taint) for taints in listed for taint in taints} - evicted
    return {name: {taint for taint in nodes[name].sightings if _kind(taint) not in tolerated} for name in missing}


def _cause(policy: BreakerPolicy, surge: TaintSurge, counting: int, too_many_due: bool) -> str | None:
    """Return which threshold is exceeded, with figures; None if none is. ``counting``: how many nodes count for
    outages.
    """
    window = f"newly tainted within {policy.window_seconds:g} s"
    if policy.nodes.exceeded_by(surge.out_of_service, surge.total):
        return f"{surge.out_of_service} of {surge.total} nodes out of service, {window}, more than {policy.nodes}"
    if policy.nodes.exceeded_by(surge.nodes, surge.total):
        return f"{surge.nodes} of {surge.total} nodes {window}, more than {policy.nodes}"
    lifecycle = policy.lifecycle_nodes
    if lifecycle is not None and lifecycle.exceeded_by(surge.lifecycle_nodes, counting):
        seen = f"{surge.lifecycle_nodes} of {counting} nodes not ready or unreachable"
        return f"{seen}, {window}, more than {lifecycle}"
    if too_many_due:
        return f"{surge.due} pods due at once, more than {policy.max_due}"
    return None
