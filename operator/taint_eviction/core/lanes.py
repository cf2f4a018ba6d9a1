"""Who goes first among the pods that are due: nodes take turns, and of a node's pods the most overdue goes first.

A lane has the due pods of one node and namespace that one rule of the policy governs: limits and pauses hold for a lane
as a whole. A lane whose limit is used up waits aside with all others that this limit keeps; once it has room, the first
of them is called and takes part again. One that is held waits until that is reconsidered. Whoever waits stays
cancellable.

Nodes that come later take part from the turn that is on: they neither overtake for ever nor wait for those before to
be done. In one turn the node with the most overdue pod is first, so while a node waits no other has more than one turn
more than it.

Passive: it is told the time, and what holds and limits a lane.
"""

import heapq
from collections.abc import Callable, Iterator, Sized
from typing import NamedTuple

from taint_eviction.core.limits import Token, TokenBucket
from taint_eviction.core.objects import PodRef

# Stale entries and places that few live ones may carry along; they are recognised by not being their owner's.
_SLACK = 64


def _outnumber(held: Sized, live: int) -> bool:
    """Tell whether what is stale among those held outnumbers the live ones."""
    return len(held) > 2 * live + _SLACK


class LaneKey(NamedTuple):
    """What a lane's pods have in common; ``rule`` is the name of the policy's rule, "" where none matched."""

    node_name: str
    namespace: str
    rule: str


class _Entry(NamedTuple):
    fire_at: float
    order: int
    ref: PodRef
    lane: "_Lane"


class _Lane:
    """``place`` is where it stands, None where it is held or empty.

    It stands with the lanes that ``keeper`` keeps, or with those that are ready (None), then perhaps ``called_by`` a
    limit that had kept it.
    """

    __slots__ = ("called_by", "entries", "held", "keeper", "key", "live", "place")

    def __init__(self, key: LaneKey, held: bool) -> None:
        self.key = key
        self.held = held
        self.entries: list[_Entry] = []
        self.live = 0
        self.place: _Place | None = None
        self.keeper: TokenBucket | None = None
        self.called_by: TokenBucket | None = None


class _Place(NamedTuple):
    turn: int
    fire_at: float
    order: int
    lane: _Lane


class _Kept:
    """The lanes that one limit keeps; ``call_at`` is when the first is to be called, None: not before it is freed."""

    __slots__ = ("call_at", "places")

    def __init__(self) -> None:
        self.places: list[_Place] = []
        self.call_at: float | None = None


class DueLanes:
    """The due pods in their lanes. ``is_held`` tells whether a lane is held, ``buckets`` what limits it at a time."""

    def __init__(
        self,
        is_held: Callable[[LaneKey], bool],
        buckets: Callable[[LaneKey, float], tuple[TokenBucket, ...]],
    ) -> None:
        self._is_held = is_held
        self._buckets = buckets
        self._entries: dict[str, _Entry] = {}
        self._lanes: dict[LaneKey, _Lane] = {}
        self._ready: list[_Place] = []
        self._kept: dict[TokenBucket, _Kept] = {}
        self._calls: list[tuple[float, int, TokenBucket]] = []
        self._turn = 0
        self._next_turns: dict[str, int] = {}
        self._counted = 0
        self._held = 0

    def __len__(self) -> int:
        """Count the pods, held ones included."""
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        """Go through the UIDs of the pods."""
        return iter(self._entries)

    @property
    def free(self) -> int:
        """Count the pods whose lanes are not held."""
        return len(self._entries) - self._held

    def add(self, ref: PodRef, key: LaneKey, fire_at: float) -> None:
        """Let a pod wait; of one UID only once."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, self._is_held(key))
        entry = self._entries[ref.uid] = _Entry(fire_at, self._count(), ref, lane)
        heapq.heappush(lane.entries, entry)
        lane.live += 1
        self._held += lane.held
        if lane.place is None or fire_at < lane.place.fire_at:
            lane.keeper = None
            self._put(lane)

    def discard(self, ref: PodRef) -> None:
        """Let go of a pod, if it is here."""
        entry = self._entries.pop(ref.uid, None)
        if entry is not None:
            self._leave(entry.lane)

    def take(self, now: float) -> tuple[PodRef, tuple[Token, ...]] | None:
        """Take out the pod whose turn it is, with a token of each of its limits spoken for; None if none may go."""
        while (lane := self._called_first(now)) is not None:
            buckets = self._buckets(lane.key, now)
            lacking = next((bucket for bucket in buckets if not bucket.has_room(now)), None)
            if lacking is None:
                tokens = tuple(bucket.begin() for bucket in buckets)
                return self._serve(lane), tokens
            lane.keeper = lacking
            self._put(lane)
            self._answer(lane)
            self.freed(lacking)
        return None

    def freed(self, bucket: TokenBucket) -> None:
        """Note that a limit may have room now, or earlier than it said before."""
        kept, at = self._kept.get(bucket), bucket.room_at()
        if kept is not None and kept.call_at != at:
            kept.call_at = at
            if at is not None:
                heapq.heappush(self._calls, (at, self._count(), bucket))

    def next_at(self, now: float) -> float | None:
        """Say when the next may be taken, as far as time alone decides; None: not before something else happens."""
        if self._first(self._ready) is not None:
            return now
        call = self._next_call()
        return None if call is None else max(now, call[0])

    def reconsider(self) -> None:
        """Ask anew for every lane whether it is held, and what limits it."""
        self._ready, self._kept, self._calls, self._held = [], {}, [], 0
        for lane in self._lanes.values():
            lane.held, lane.place, lane.keeper, lane.called_by = self._is_held(lane.key), None, None, None
            self._held += lane.live if lane.held else 0
            self._put(lane)

    # Where lanes stand

    def _put(self, lane: _Lane) -> None:
        """Let a lane stand where its most overdue pod and its node's turn put it; held ones stand nowhere."""
        if lane.held:
            return
        places = self._ready if lane.keeper is None else self._kept.setdefault(lane.keeper, _Kept()).places
        lane.place = self._place(lane)
        heapq.heappush(places, lane.place)
        if _outnumber(places, len(self._lanes)):
            places[:] = [place for place in places if place.lane.place is place]
            heapq.heapify(places)

    def _place(self, lane: _Lane) -> _Place:
        while self._entries.get(lane.entries[0].ref.uid) is not lane.entries[0]:
            heapq.heappop(lane.entries)
        turn = max(self._turn, self._next_turns.get(lane.key.node_name, 0))
        return _Place(turn, lane.entries[0].fire_at, lane.entries[0].order, lane)

    def _first(self, places: list[_Place]) -> _Lane | None:
        """Find the lane that stands first; places that are no longer true are put right on the way."""
        while places:
            place, lane = places[0], places[0].lane
            if lane.place is place and place[:3] == self._place(lane)[:3]:
                return lane
            heapq.heappop(places)
            if lane.place is place:
                self._put(lane)
                self._answer(lane)  # It is no longer the first of those that the limit kept which called it.
        return None

    def _called_first(self, now: float) -> _Lane | None:
        """Find the ready lane that stands first, once every limit that has room has called the first that it keeps."""
        while True:
            while (call := self._next_call()) is not None and call[0] <= now:
                self._call(call[2], now)
            lane = self._first(self._ready)
            if (call := self._next_call()) is None or call[0] > now:
                return lane

    def _next_call(self) -> tuple[float, int, TokenBucket] | None:
        while self._calls:
            at, _, bucket = self._calls[0]
            if bucket in self._kept and self._kept[bucket].call_at == at:
                return self._calls[0]
            heapq.heappop(self._calls)
        return None

    def _call(self, bucket: TokenBucket, now: float) -> None:
        """Let the first lane that a limit keeps take part, if there is room for one."""
        kept = self._kept[bucket]
        kept.call_at = None
        lane = self._first(kept.places)
        if lane is None:
            del self._kept[bucket]
        elif bucket.has_room(now):
            lane.keeper, lane.called_by = None, bucket
            self._put(lane)
        else:
            self.freed(bucket)

    def _answer(self, lane: _Lane) -> None:
        """Let the limit that called a lane, if one did, call the next."""
        bucket, lane.called_by = lane.called_by, None
        if bucket is not None:
            self.freed(bucket)

    # How pods leave

    def _serve(self, lane: _Lane) -> PodRef:
        entry = heapq.heappop(lane.entries)
        del self._entries[entry.ref.uid]
        self._turn = max(self._turn, self._next_turns.get(lane.key.node_name, 0))
        self._next_turns[lane.key.node_name] = self._turn + 1
        if _outnumber(self._next_turns, len(self._lanes)):
            waiting = {key.node_name for key in self._lanes}
            self._next_turns = {name: turn for name, turn in self._next_turns.items() if name in waiting}
        self._leave(lane)
        return entry.ref

    def _leave(self, lane: _Lane) -> None:
        lane.live -= 1
        self._held -= lane.held
        if lane.live == 0:
            del self._lanes[lane.key]
            lane.place = None
            self._answer(lane)
        elif _outnumber(lane.entries, lane.live):
            lane.entries = [entry for entry in lane.entries if self._entries.get(entry.ref.uid) is entry]
            heapq.heapify(lane.entries)
        if not self.free:
            self._ready, self._kept, self._calls, self._next_turns, self._turn = [], {}, [], {}, 0

    def _count(self) -> int:
        self._counted += 1
        return self._counted
