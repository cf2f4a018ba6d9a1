"""In which order the pods of a node leave: who waits for pods of earlier tiers, for whom, and until when at most.

A due pod waits while a pod of an earlier tier of its node is due and not gone, is being deleted and its
deletionTimestamp is less than 30 s past, or will be due within ``order_wait_seconds``. Pods that were created after the
waiting one was due do not count: a ReplicaSet may send new ones for ever. Without a kubelet nothing is unmounted: when
the node has not been ready for 60 s, or is out of service, nobody waits any more.

The wait for the first tier ends ``order_wait_seconds`` after the waiting pod was due, that for the second tier as much
later, and so on. The time in which the pod itself was blocked does not count, and the grace periods of the pods that
leave are added: the longest of each tier, an hour in all. A new process continues the wait, and no event has to come
for it to end. But where it would be over already when this process learns that the pod is due, it begins then: the pod
was blocked for a time that this process does not know, or nobody was there, or its deadline was moved into the past.
Until the pods of a newly tainted node have been listed, there may be some of earlier tiers.

The entries are made from records (``note``), and can be made again at any time; the longest grace period of each tier,
and when deadlines became known, are kept here alone. ``wait`` is the truth; the followers and the two queues say only
when to ask again. Choosing the next pod costs the same however many wait. Passive: ``eviction_queue`` asks before a pod
may go.
"""

import itertools
import math
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sortedcontainers import SortedList

from taint_eviction.core.fair_queue import FlowKey
from taint_eviction.core.known_nodes import KnownNodes
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.core.tiers import Tier
from taint_eviction.core.timed_queue import TimedWorkerQueue

# So long after its deletionTimestamp a pod is waited for: its kubelet reports its end a moment later.
PAST_GRACE_SECONDS = 30.0
# For so long after the node's condition Ready stopped being True, pods still wait.
UNREADY_SECONDS = 60.0
_MAX_GRACE_SECONDS = 3600.0


class TierWait(NamedTuple):
    """For whom a pod waits: ``ref`` and ``others`` more pods of ``tier``; and until when, at most.
    ``ref`` None: the pods of its node have not been listed yet.
    """

    ref: PodRef | None
    tier: Tier
    others: int
    until: float


class Leaving(NamedTuple):
    """A pod that leaves its node.

    ``due_at``: when it is due, minus infinity: its deletion has been accepted. ``created_at``: minus infinity if that
    is not known. ``ends_at``: when it counts as gone; infinite: when it is gone. ``flow``: its flow, None: it does not
    wait for others. ``known_at``: since when it has been known that the pod is due then.
    """

    ref: PodRef
    node_name: str
    tier: Tier
    due_at: float
    created_at: float = -math.inf
    ends_at: float = math.inf
    flow: FlowKey | None = None
    known_at: float = -math.inf


class _Follower(NamedTuple):
    """A pod that waits, as it was known when it began to. ``waits_from``: from when on its wait counts."""

    leaving: Leaving
    waits_from: float

    @property
    def ref(self) -> PodRef:
        return self.leaving.ref

    @property
    def place(self) -> tuple[float, NamespacedName]:
        """Its place among those that wait."""
        return self.waits_from, self.leaving.ref.key


# Pods in the order of an instant.
_InOrder: TypeAlias = "SortedList[tuple[float, NamespacedName]]"
_LAST_NAME = NamespacedName("\U0010ffff", "")


def _by_tier() -> tuple[_InOrder, ...]:
    return tuple(SortedList() for _ in Tier)


@dataclass(slots=True)
class _NodePods:
    """The pods of one node: those for which others wait by now, by tier, the oldest first; and those that wait, by tier
    and flow, in the order in which their waits began. ``graces``: the longest grace period of each tier. ``count``: of
    pods that leave, and of those that wait. ``applies_until``: until when there is an order, by what was known of the
    node last.
    """

    waited_for: tuple[_InOrder, ...] = field(default_factory=_by_tier)
    followers: dict[tuple[Tier, FlowKey | None], _InOrder] = field(default_factory=dict)
    graces: list[float] = field(default_factory=lambda: [0.0] * len(Tier))
    count: int = 0
    applies_until: float = math.inf


class LeavingOrder:
    """Who waits for whom; see the module.

    ``unlisted``: the newly tainted nodes whose pods have not been listed. ``blocked_seconds``: for how long guards have
    blocked a flow between two instants.
    """

    def __init__(
        self,
        policy: EvictionPolicy,
        nodes: KnownNodes,
        unlisted: Container[str],
        blocked_seconds: Callable[[FlowKey, float, float], float],
    ) -> None:
        self.enabled = policy.orders
        self._seconds = policy.order_wait_seconds
        self._nodes = nodes
        self._unlisted = unlisted
        self._blocked_seconds = blocked_seconds
        self._pods: dict[str, _NodePods] = {}
        self._leaving: dict[NamespacedName, Leaving] = {}
        self._followers: dict[NamespacedName, _Follower] = {}
        # When a pod begins to be waited for, or no longer is; when a pod that waits is to ask again.
        self._changes, self._rechecks = TimedWorkerQueue(), TimedWorkerQueue()
        # The nodes on which pods wait for fewer pods than before, perhaps.
        self._changed: dict[str, None] = {}

    # What is known

    def note(self, leaving: Leaving, grace_seconds: float, now: float) -> None:
        """Note that a pod leaves, and how; ``grace_seconds``: its grace period, 0 as long as that is not known."""
        before = self._leaving.get(leaving.ref.key)
        if before is not None and before.ref == leaving.ref and before.created_at > -math.inf:
            leaving = leaving._replace(created_at=before.created_at)
        is_known = before is not None and (before.ref, before.due_at) == (leaving.ref, leaving.due_at)
        leaving = leaving._replace(known_at=before.known_at if before is not None and is_known else now)
        if before == leaving:
            return
        if before is not None:
            self.forget(before.ref)
        self._leaving[leaving.ref.key] = leaving
        pods = self._pods.setdefault(leaving.node_name, _NodePods(applies_until=self._applies_until(leaving.node_name)))
        pods.count += 1
        pods.graces[leaving.tier] = max(pods.graces[leaving.tier], grace_seconds)
        self._place(leaving, now)
        if leaving.ref.key in self._followers:
            self._rechecks.schedule(leaving.ref, now)

    def forget(self, ref: PodRef) -> None:
        """Note that a pod does not leave its node, or has left it."""
        leaving = self._leaving.get(ref.key)
        if leaving is not None and leaving.ref.uid == ref.uid:
            del self._leaving[ref.key]
            self._changes.cancel(ref)
            self._unplace(leaving)
            self._count_out(leaving.node_name)

    def node_changed(self, name: str) -> None:
        """Note that a node may have changed, or that its pods have been listed."""
        pods = self._pods.get(name)
        if pods is None:
            return
        self._changed[name] = None
        if (applies_until := self._applies_until(name)) != pods.applies_until:
            pods.applies_until = applies_until
            for _, key in itertools.chain(*pods.followers.values()):
                self._rechecks.schedule(self._followers[key].ref, -math.inf)

    def change_policy(self, policy: EvictionPolicy) -> None:
        """Apply another policy; the caller then notes all pods again."""
        if (policy.orders, policy.order_wait_seconds) == (self.enabled, self._seconds):
            return
        self.enabled, self._seconds = policy.orders, policy.order_wait_seconds
        for leaving in list(self._leaving.values()):
            self.forget(leaving.ref)
        for follower in self._followers.values():
            self._rechecks.schedule(follower.ref, -math.inf)

    def _place(self, leaving: Leaving, now: float) -> None:
        """Let others wait for a pod from when it will be due soon until it counts as gone."""
        waited_for_from = leaving.due_at - self._seconds
        if now < waited_for_from:
            self._changes.schedule(leaving.ref, waited_for_from)
        elif now < leaving.ends_at:
            self._pods[leaving.node_name].waited_for[leaving.tier].add((leaving.created_at, leaving.ref.key))
            if leaving.ends_at < math.inf:
                self._changes.schedule(leaving.ref, leaving.ends_at)

    def _unplace(self, leaving: Leaving) -> None:
        self._pods[leaving.node_name].waited_for[leaving.tier].discard((leaving.created_at, leaving.ref.key))
        self._changed[leaving.node_name] = None

    def _count_out(self, name: str) -> None:
        self._pods[name].count -= 1
        if not self._pods[name].count:
            del self._pods[name]
            self._changed.pop(name, None)

    # Who waits

    def wait(self, ref: PodRef, now: float) -> TierWait | None:
        """Return for whom a due pod waits; None: for nobody."""
        leaving = self._leaving.get(ref.key)
        if leaving is None or leaving.ref.uid != ref.uid or leaving.flow is None or leaving.flow.bypasses_limits:
            return None
        if now >= (applies_until := self._applies_until(leaving.node_name)):
            return None
        waits = self._waits(leaving, leaving.flow, now)
        first = next(waits, None)
        if first is None:
            return None
        # Later tiers are waited for longer.
        *_, last = first, *waits
        return first._replace(until=min(applies_until, last.until))

    def _waits(self, leaving: Leaving, flow: FlowKey, now: float) -> Iterator[TierWait]:
        """Yield for whom a pod waits, one tier after the other."""
        pods = self._pods[leaving.node_name]
        for tier, until in self._ends(leaving, flow, now):
            if older := pods.waited_for[tier].bisect_right((self._waits_from(leaving, flow), _LAST_NAME)):
                _, oldest = pods.waited_for[tier][0]
                yield TierWait(self._leaving[oldest].ref, tier, older - 1, until)
            elif tier is Tier.WORKLOADS and leaving.node_name in self._unlisted:
                yield TierWait(None, tier, 0, until)

    def _ends(self, leaving: Leaving, flow: FlowKey, now: float) -> Iterator[tuple[Tier, float]]:
        """Yield until when a pod waits for each tier at most, but for those for which it waits no more."""
        graces, since = self._pods[leaving.node_name].graces, self._waits_from(leaving, flow)
        ends_at = since + self._blocked_seconds(flow, since, now)
        for tier in list(Tier)[: leaving.tier]:
            ends_at += self._seconds
            if now < (until := ends_at + min(_MAX_GRACE_SECONDS, sum(graces[: tier + 1]))):
                yield tier, until

    def _waits_from(self, leaving: Leaving, flow: FlowKey) -> float:
        """Return from when on the wait of a pod counts: when it was due, or when that became known, if the first wait
        would have been over then.
        """
        blocked_seconds = self._blocked_seconds(flow, leaving.due_at, leaving.known_at)
        is_over = leaving.known_at >= leaving.due_at + blocked_seconds + self._seconds
        return leaving.known_at if is_over else leaving.due_at

    def _applies_until(self, name: str) -> float:
        """Return until when there is an order on a node: infinite while the node is ready."""
        known = self._nodes.known.get(name)
        if known is None or known.out_of_service:
            return -math.inf
        if known.live_node.is_ready or known.unready_since is None:
            return math.inf
        return known.unready_since + UNREADY_SECONDS

    # When to ask again

    def follow(self, ref: PodRef, now: float) -> None:
        """Note that a pod waits; ``next_released`` returns it when it is to ask again."""
        leaving = self._leaving[ref.key]
        waits_from = leaving.due_at if leaving.flow is None else self._waits_from(leaving, leaving.flow)
        follower = self._followers[ref.key] = _Follower(leaving, waits_from)
        pods = self._pods[leaving.node_name]
        pods.followers.setdefault((leaving.tier, leaving.flow), SortedList()).add(follower.place)
        pods.count += 1
        recheck_at = now
        if leaving.flow is not None and any(self._waits(leaving, leaving.flow, now)):
            # When the wait for one tier is over, the pods of others may have gone meanwhile. A tier may also have no
            # pod now, and one when its wait ends.
            recheck_at = min(until for _, until in self._ends(leaving, leaving.flow, now))
        self._rechecks.schedule(ref, min(recheck_at, self._applies_until(leaving.node_name)))

    def unfollow(self, ref: PodRef) -> None:
        """Note that a pod waits no more."""
        follower = self._followers.pop(ref.key)
        self._rechecks.cancel(ref)
        leaving = follower.leaving
        followers, place = self._pods[leaving.node_name].followers, (leaving.tier, leaving.flow)
        followers[place].remove(follower.place)
        if not followers[place]:
            del followers[place]
        self._count_out(leaving.node_name)

    def next_at(self) -> float | None:
        """Return when ``next_released`` may return a pod, or the order changes; None: not by time alone."""
        if self._changed:
            return -math.inf
        instants = (self._changes.next_fire_at(), self._rechecks.next_fire_at())
        return min((at for at in instants if at is not None), default=None)

    def next_released(self, now: float) -> PodRef | None:
        """Return a pod that waits, and may go by now or is to ask again; None: there is none. The caller calls
        ``unfollow`` for it before it asks for the next.
        """
        while (entry := self._changes.pop_due(now)) is not None:
            leaving = self._leaving[entry.ref.key]
            if now < leaving.ends_at:
                self._place(leaving, now)
            else:
                self._unplace(leaving)
        if (entry := self._rechecks.pop_due(now)) is not None:
            return entry.ref
        for name in list(self._changed):
            # Whoever began to wait earlier waits for no more pods, and no longer, but for the time in which it was
            # blocked: if the first of a flow waits, the others of its tier do.
            firsts = (self._followers[each[0][1]].ref for each in self._pods[name].followers.values())
            if (free := next((ref for ref in firsts if self.wait(ref, now) is None), None)) is not None:
                return free
            del self._changed[name]
        return None
