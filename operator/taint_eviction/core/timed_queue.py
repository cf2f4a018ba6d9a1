"""The timed-worker queue: what is due when, keyed by namespace/name.

Dedupe rule, in one sentence: **a key has at most one entry, the entry belongs to one UID, and scheduling again replaces
it, whoever it belonged to and whether the new time is earlier or later.**

Passive and synchronous: it never waits and never acts. Only its owner cancels an entry: another UID's entry stays. An
entry leaves by ``pop_due`` or ``cancel`` and nothing of it remains, so a pod that is recreated under the same name
always gets an entry of its own.

The entries that are due in the earliest second, or before it, form a heap. The entries of each later second are kept in
the order of scheduling, and form the heap when their second is the earliest: with a million entries, a single heap
costs four times as much, because each step down the heap reads another part of memory. Entries that were replaced or
cancelled stay where they are until they reach the top or outnumber the live ones (``stale <= live + _SLACK``); an entry
is stale if its key has another.

Reference: ``TimedWorkerQueue`` in pkg/controller/tainteviction. Before Kubernetes 1.33 it kept a key after its work ran
until the pod's end was noticed, and indefinitely where the name's next pod was there by then
(kubernetes/kubernetes#107543, #110401, #125332; read and measured in 1.32.13). Since then work that ends removes the
key, even if it belongs to another pod by then, and a later pod does not take over a key that is there (1.36.2).
"""

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

from taint_eviction.core.objects import NamespacedName, PodRef

# Stale entries that a small queue may carry before it is rebuilt.
_SLACK = 64


class Entry(NamedTuple):
    """One pod and when it is due. Ordered by time; ties by ``order``, in which entries were scheduled."""

    fire_at: float
    order: int
    ref: PodRef


class TimedWorkerQueue:
    """What is due when; see the module for the dedupe rule."""

    def __init__(self) -> None:
        self._entries: dict[NamespacedName, Entry] = {}
        self._front: list[Entry] = []
        self._front_second = -math.inf
        self._seconds: list[int] = []
        self._by_second: dict[int, list[Entry]] = {}
        self._stale = 0
        self._scheduled = 0

    def __len__(self) -> int:
        """Count live entries."""
        return len(self._entries)

    def __contains__(self, ref: PodRef) -> bool:
        """Return whether exactly this pod (key and UID) has an entry."""
        return self.get(ref) is not None

    def __iter__(self) -> Iterator[Entry]:
        """Yield the live entries in no particular order."""
        return iter(self._entries.values())

    def get(self, ref: PodRef) -> Entry | None:
        """Return the entry of exactly this pod, None if its key has none or another UID's."""
        entry = self._entries.get(ref.key)
        return entry if entry is not None and entry.ref.uid == ref.uid else None

    def schedule(self, ref: PodRef, fire_at: float) -> Entry | None:
        """Make ``ref`` due at ``fire_at``; return the entry that this replaced, None if the key had none.

        Scheduling the same pod for the same time changes nothing, not even its turn.
        """
        replaced = self._entries.get(ref.key)
        if replaced is not None and replaced.fire_at == fire_at and replaced.ref.uid == ref.uid:
            return replaced
        self._scheduled += 1
        entry = self._entries[ref.key] = Entry(fire_at, self._scheduled, ref)
        self._hold(entry)
        if replaced is not None:
            self._outdate()
        return replaced

    def cancel(self, ref: PodRef) -> Entry | None:
        """Drop the entry of exactly this pod and return it; None, and no change, if there is none of this UID."""
        entry = self.get(ref)
        if entry is not None:
            del self._entries[ref.key]
            self._outdate()
        return entry

    def pop_due(self, now: float) -> Entry | None:
        """Remove and return the most overdue entry with ``fire_at <= now``; None if nothing is due."""
        entry = self._first()
        if entry is None or entry.fire_at > now:
            return None
        heapq.heappop(self._front)
        del self._entries[entry.ref.key]
        self._prune()
        return entry

    def next_fire_at(self) -> float | None:
        """Return when the next entry is due, None if there is none."""
        entry = self._first()
        return None if entry is None else entry.fire_at

    def _first(self) -> Entry | None:
        while self._front or self._seconds:
            if not self._front:
                self._front_second = heapq.heappop(self._seconds)
                self._front = self._by_second.pop(self._front_second)
                heapq.heapify(self._front)
            entry = self._front[0]
            if self._entries.get(entry.ref.key) is entry:
                return entry
            heapq.heappop(self._front)
            self._stale -= 1
        return None

    def _hold(self, entry: Entry) -> None:
        second = int(entry.fire_at)
        if second <= self._front_second:
            heapq.heappush(self._front, entry)
        elif (entries := self._by_second.get(second)) is not None:
            entries.append(entry)
        else:
            self._by_second[second] = [entry]
            heapq.heappush(self._seconds, second)

    def _outdate(self) -> None:
        self._stale += 1
        self._prune()

    def _prune(self) -> None:
        if self._stale > len(self._entries) + _SLACK:
            self._front, self._seconds, self._by_second, self._stale = [], [], {}, 0
            for entry in self._entries.values():
                self._hold(entry)
