"""The timed-worker queue: what is due when, keyed by namespace/name.

Dedupe rule, in one sentence: **a key has at most one entry, the entry belongs to one UID, and scheduling again replaces
it, whoever it belonged to and whether the new time is earlier or later.**

Passive and synchronous: it never waits and never acts. Only its owner cancels an entry: another UID's entry stays. An
entry leaves by ``pop_due`` or ``cancel`` and nothing of it remains, so a pod that is recreated under the same name
always gets an entry of its own.

Reference: ``TimedWorkerQueue`` in pkg/controller/tainteviction. Before Kubernetes 1.33 it kept a key after its work ran
until the pod's end was noticed, and indefinitely where the name's next pod was there by then
(kubernetes/kubernetes#107543, #110401, #125332; read and measured in 1.32.13). Since then work that ends removes the
key, even if it belongs to another pod by then, and a later pod does not take over a key that is there (1.36.2).
"""

from collections.abc import Iterator
from typing import NamedTuple

from sortedcontainers import SortedList

from taint_eviction.core.objects import NamespacedName, PodRef


class Entry(NamedTuple):
    """One pod and when it is due. Ordered by time; ties by ``order``, in which entries were scheduled."""

    fire_at: float
    order: int
    ref: PodRef


class TimedWorkerQueue:
    """What is due when; see the module for the dedupe rule."""

    def __init__(self) -> None:
        self._entries: dict[NamespacedName, Entry] = {}
        self._in_order: SortedList[Entry] = SortedList()
        self._scheduled = 0

    def __len__(self) -> int:
        """Count the entries."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in no particular order."""
        return iter(self._entries.values())

    def schedule(self, ref: PodRef, fire_at: float) -> None:
        """Make ``ref`` due at ``fire_at``. The same pod for the same time again changes nothing, not even its turn."""
        replaced = self._entries.get(ref.key)
        if replaced is not None:
            if replaced.fire_at == fire_at and replaced.ref.uid == ref.uid:
                return
            self._in_order.remove(replaced)
        self._scheduled += 1
        entry = self._entries[ref.key] = Entry(fire_at, self._scheduled, ref)
        self._in_order.add(entry)

    def cancel(self, ref: PodRef) -> None:
        """Drop the entry of exactly this pod (key and UID); another UID's entry stays."""
        entry = self._entries.get(ref.key)
        if entry is not None and entry.ref.uid == ref.uid:
            del self._entries[ref.key]
            self._in_order.remove(entry)

    def pop_due(self, now: float) -> Entry | None:
        """Remove and return the most overdue entry with ``fire_at <= now``; None if nothing is due."""
        if not self._entries or self._in_order[0].fire_at > now:
            return None
        entry: Entry = self._in_order.pop(0)
        del self._entries[entry.ref.key]
        return entry

    def next_fire_at(self) -> float | None:
        """Return when the next entry is due, None if there is none."""
        return self._in_order[0].fire_at if self._entries else None
