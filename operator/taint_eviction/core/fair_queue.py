"""The order of the pods that are due: nodes take turns, on each node its namespaces do, and of these pods the most
overdue is first, so that neither many pods of a node nor many of a namespace keep others waiting.
A flow contains the due pods of one node and namespace with one rule of the policy: limits and pauses apply to a flow as
a whole. If a limit is used up, its flows wait aside; once the limit has room, it calls the first of them, which
takes part again. A flow that is held waits until ``reconsider`` is called. Every waiting pod can be cancelled.
Exempt flows come before all others, the most overdue first. No limit applies to them, and their evictions take no turn
from their node and namespace.
Namespaces whose calls hang (``put_last``) come after all others on all nodes, and so do their exempt flows: an
admission webhook of theirs must not keep others waiting.
A node that comes later takes part from the current turn on: it neither overtakes the others indefinitely, nor waits
until they are done. So while a node waits, every other node gets at most one turn more than this node. The same holds
for the namespaces of a node. In each turn, nodes with a namespace that has not yet had its turn there are first, and of
these and the others the one with the most overdue pod.
Passive: the caller passes the time, and says what holds and limits a flow. The entries are hints; the truth is in the
pods' records. Only the turns are kept here alone.
"""

import heapq
from collections.abc import Callable, Sized
from typing import NamedTuple

from taint_eviction.core.limits import Token, TokenBucket
from taint_eviction.core.objects import NamespacedName, PodRef

# A queue with few live entries or places may hold this many stale ones. An item is stale if its owner no longer refers
# to it.
_SLACK = 64


def _outnumber(kept: Sized, live: int) -> bool:
    """Return whether stale items outnumber the live ones."""
    return len(kept) > 2 * live + _SLACK


class FlowKey(NamedTuple):
    """What the pods of a flow have in common; ``rule`` is the name of the policy's rule, "" where none matched.

    ``bypasses_limits``: its pods are evicted first, and without limits.
    """

    node_name: str
    namespace: str
    rule: str
    bypasses_limits: bool = False


class _Entry(NamedTuple):
    fire_at: float
    order: int
    ref: PodRef
    flow: "_Flow"


class _Flow:
    """One flow. ``place`` is its place in a queue, None while it is held or empty.
    The queue is that of the limit ``keeper``, which keeps the flow back, or, if that is None, the queue of ready flows;
    then ``called_by`` is the limit that called it last, if any.
    """

    __slots__ = ("blocked", "called_by", "entries", "keeper", "key", "live", "place")

    def __init__(self, key: FlowKey, blocked: bool) -> None:
        self.key = key
        self.blocked = blocked
        self.entries: list[_Entry] = []
        self.live = 0
        self.place: _Place | None = None
        self.keeper: TokenBucket | None = None
        self.called_by: TokenBucket | None = None


# A node, by its name, or a namespace on a node, by both names.
_Sharer = tuple[str, ...]


class _Turns:
    """How many turns nodes have had, and namespaces on each node."""

    def __init__(self) -> None:
        # By those who take turns with each other: all nodes (no name), or all namespaces of a node (its name).
        self._current: dict[_Sharer, int] = {}
        self._next: dict[_Sharer, int] = {}

    def __len__(self) -> int:
        return len(self._next)

    def next(self, sharer: _Sharer) -> int:
        """Return which turn is the next of a node or namespace."""
        return max(self._current.get(sharer[:-1], 0), self._next.get(sharer, 0))

    def has_had(self, sharer: _Sharer) -> bool:
        """Return whether a node or namespace has had the current turn."""
        return self.next(sharer) > self._current.get(sharer[:-1], 0)

    def count(self, sharer: _Sharer) -> None:
        """Note that a node or namespace has had its turn."""
        turn = self.next(sharer)
        self._current[sharer[:-1]] = turn
        self._next[sharer] = turn + 1

    def keep(self, sharers: set[_Sharer]) -> None:
        """Forget all others."""
        self._current = {group: turn for group, turn in self._current.items() if not group or group in sharers}
        self._next = {sharer: turn for sharer, turn in self._next.items() if sharer in sharers}


class _Place(NamedTuple):
    last: bool
    turn: int
    has_had_turn_on_node: bool
    fire_at: float
    order: int
    flow: _Flow


class _Kept:
    """The flows that one limit keeps back; ``call_at``: when it calls the first, None: not before it has room again."""

    __slots__ = ("call_at", "places")

    def __init__(self) -> None:
        self.places: list[_Place] = []
        self.call_at: float | None = None


def _sharers(key: FlowKey) -> tuple[_Sharer, _Sharer]:
    """Return the node of a flow, and its namespace on that node."""
    return (key.node_name,), (key.node_name, key.namespace)


class FairQueue:
    """The due pods in their flows. ``is_blocked`` tells whether a flow waits; ``buckets`` returns what limits it.

    ``passes_over`` tells whether a pod whose turn it is leaves the queue by now, without a turn and without a token.
    """

    def __init__(
        self,
        is_blocked: Callable[[FlowKey], bool],
        buckets: Callable[[str, str, str, float], tuple[TokenBucket, ...]],
        passes_over: Callable[[PodRef, float], bool] = lambda ref, now: False,
    ) -> None:
        self._is_blocked = is_blocked
        self._buckets = buckets
        self._passes_over = passes_over
        self._entries: dict[NamespacedName, _Entry] = {}
        self._flows: dict[FlowKey, _Flow] = {}
        self._ready: list[_Place] = []
        self._kept: dict[TokenBucket, _Kept] = {}
        self._calls: list[tuple[float, int, TokenBucket]] = []
        self._turns = _Turns()
        self._last: frozenset[str] = frozenset()
        self._counted = 0
        self._blocked = 0
        # How many pods are in flows that bypass limits and are not held.
        self.bypasses_limits = 0

    def __len__(self) -> int:
        """Count the pods, held ones included."""
        return len(self._entries)

    @property
    def free(self) -> int:
        """Count the pods whose flows are not held."""
        return len(self._entries) - self._blocked

    def add(self, ref: PodRef, key: FlowKey, fire_at: float) -> None:
        """Add a pod; no pod with the same key may be present."""
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow(key, self._is_blocked(key))
        entry = self._entries[ref.key] = _Entry(fire_at, self._count(), ref, flow)
        heapq.heappush(flow.entries, entry)
        flow.live += 1
        self._blocked += flow.blocked
        self.bypasses_limits += key.bypasses_limits and not flow.blocked
        if flow.place is None or fire_at < flow.place.fire_at:
            flow.keeper = None
            self._put(flow)

    def discard(self, ref: PodRef) -> None:
        """Remove exactly this pod, if it is here."""
        entry = self._entries.get(ref.key)
        if entry is not None and entry.ref.uid == ref.uid:
            del self._entries[ref.key]
            self._leave(entry.flow)

    def take(self, now: float, only_bypassing: bool = False) -> tuple[PodRef, tuple[Token, ...]] | None:
        """Remove and return the next pod, with a reserved token of each of its limits; None if none may be evicted."""
        while (flow := self._called_first(now)) is not None:
            if flow.key.bypasses_limits:
                return self._serve(flow), ()
            if only_bypassing:
                return None
            if self._passes_over(ref := flow.entries[0].ref, now):
                self.discard(ref)
                continue
            buckets = self._buckets(flow.key.node_name, flow.key.namespace, flow.key.rule, now)
            lacking = next((bucket for bucket in buckets if not bucket.has_room(now)), None)
            if lacking is None:
                tokens = tuple(bucket.begin() for bucket in buckets)
                return self._serve(flow), tokens
            flow.keeper = lacking
            self._put(flow)
            self._answer(flow)
            self.freed(lacking)
        return None

    def freed(self, bucket: TokenBucket) -> None:
        """Note that a limit may have room now, or earlier than expected."""
        kept, at = self._kept.get(bucket), bucket.room_at()
        if kept is not None and kept.call_at != at:
            kept.call_at = at
            if at is not None:
                heapq.heappush(self._calls, (at, self._count(), bucket))

    def next_at(self, now: float, only_bypassing: bool = False) -> float | None:
        """Return when the next pod may be taken if only time passes; None: not before something else happens."""
        first = self._first(self._ready)
        if only_bypassing:
            return now if first is not None and first.key.bypasses_limits else None
        if first is not None:
            return now
        call = self._next_call()
        return None if call is None else max(now, call[0])

    def put_last(self, namespaces: frozenset[str]) -> None:
        """Put the flows of these namespaces after all others, and those of no other ones."""
        moved_up, self._last = self._last - namespaces, namespaces
        for flow in self._flows.values() if moved_up else ():
            if flow.key.namespace in moved_up and flow.place is not None:
                self._put(flow)

    def next_is_last(self) -> bool | None:
        """Return whether the next flow belongs to a namespace that comes after all others; None: there is none."""
        flow = self._first(self._ready)
        return None if flow is None else flow.key.namespace in self._last

    def holds(self, key: FlowKey) -> bool:
        """Return whether a flow was held when that was checked last."""
        flow = self._flows.get(key)
        return flow is not None and flow.blocked

    def reconsider(self) -> int:
        """Check again for every flow whether it is held, and what limits it. Return how many pods are held no longer;
        those that bypass limits do not count.
        """
        self._ready, self._kept, self._calls, self._blocked, self.bypasses_limits = [], {}, [], 0, 0
        released = 0
        for flow in self._flows.values():
            was_blocked = flow.blocked
            flow.blocked, flow.place, flow.keeper, flow.called_by = self._is_blocked(flow.key), None, None, None
            if flow.blocked:
                self._blocked += flow.live
            elif flow.key.bypasses_limits:
                self.bypasses_limits += flow.live
            elif was_blocked:
                released += flow.live
            self._put(flow)
        return released

    # The places of flows

    def _put(self, flow: _Flow) -> None:
        """Place a flow by the turns of its node and namespace, and its most overdue pod; a held flow has no place."""
        if flow.blocked:
            return
        places = self._ready if flow.keeper is None else self._kept.setdefault(flow.keeper, _Kept()).places
        flow.place = self._place(flow)
        heapq.heappush(places, flow.place)
        if _outnumber(places, len(self._flows)):
            places[:] = [place for place in places if place.flow.place is place]
            heapq.heapify(places)

    def _place(self, flow: _Flow) -> _Place:
        while self._entries.get(flow.entries[0].ref.key) is not flow.entries[0]:
            heapq.heappop(flow.entries)
        node, namespace = _sharers(flow.key)
        turns = (-1, False) if flow.key.bypasses_limits else (self._turns.next(node), self._turns.has_had(namespace))
        last = flow.key.namespace in self._last
        return _Place(last, *turns, flow.entries[0].fire_at, flow.entries[0].order, flow)

    def _first(self, places: list[_Place]) -> _Flow | None:
        """Return the first flow; correct outdated places on the way."""
        while places:
            place, flow = places[0], places[0].flow
            if flow.place is place and place[:-1] == self._place(flow)[:-1]:
                return flow
            heapq.heappop(places)
            if flow.place is place:
                self._put(flow)
                self._answer(flow)  # It is no longer the first of the flows kept by the limit that called it.
        return None

    def _called_first(self, now: float) -> _Flow | None:
        """Return the first ready flow, after every limit with room has called the first flow that it keeps back."""
        while True:
            while (call := self._next_call()) is not None and call[0] <= now:
                self._call(call[2], now)
            flow = self._first(self._ready)
            if (call := self._next_call()) is None or call[0] > now:
                return flow

    def _next_call(self) -> tuple[float, int, TokenBucket] | None:
        while self._calls:
            at, _, bucket = self._calls[0]
            if bucket in self._kept and self._kept[bucket].call_at == at:
                return self._calls[0]
            heapq.heappop(self._calls)
        return None

    def _call(self, bucket: TokenBucket, now: float) -> None:
        """Let the first flow that a limit keeps back take part, if there is room for one."""
        kept = self._kept[bucket]
        kept.call_at = None
        flow = self._first(kept.places)
        if flow is None:
            del self._kept[bucket]
        elif bucket.has_room(now):
            flow.keeper, flow.called_by = None, bucket
            self._put(flow)
        else:
            self.freed(bucket)

    def _answer(self, flow: _Flow) -> None:
        """Let the limit that called a flow, if one did, call the next."""
        bucket, flow.called_by = flow.called_by, None
        if bucket is not None:
            self.freed(bucket)

    # How pods leave

    def _serve(self, flow: _Flow) -> PodRef:
        entry = heapq.heappop(flow.entries)
        del self._entries[entry.ref.key]
        if not flow.key.bypasses_limits:
            self._count_turn(flow.key)
        self._leave(flow)
        return entry.ref

    def _count_turn(self, key: FlowKey) -> None:
        for sharer in _sharers(key):
            self._turns.count(sharer)
        if _outnumber(self._turns, 2 * len(self._flows)):
            self._turns.keep({sharer for key in self._flows for sharer in _sharers(key)})

    def _leave(self, flow: _Flow) -> None:
        flow.live -= 1
        self._blocked -= flow.blocked
        self.bypasses_limits -= flow.key.bypasses_limits and not flow.blocked
        if flow.live == 0:
            del self._flows[flow.key]
            flow.place = None
            self._answer(flow)
        elif _outnumber(flow.entries, flow.live):
            flow.entries = [entry for entry in flow.entries if self._entries.get(entry.ref.key) is entry]
            heapq.heapify(flow.entries)
        if not self.free:
            self._ready, self._kept, self._calls, self._turns = [], {}, [], _Turns()

    def _count(self) -> int:
        self._counted += 1
        return self._counted
