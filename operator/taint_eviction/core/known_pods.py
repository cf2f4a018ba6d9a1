"""Which pods are known: one record a pod, found by its key.

A record begins when its pod is seen, and ends in one place (``close``): as soon as the pod is no longer known and
nothing of it is unfinished. Work in flight is unfinished, and so is a condition that is to be taken back. Until then
the record of a pod that was released, is gone, or has a successor under its name is kept aside.

Keeps order among facts that come late, twice or out of order. Decides nothing.

Invariants: one known pod a key; a pod is listed under exactly the node to which it is bound.
"""

from collections.abc import Iterator

from taint_eviction.core.facts import PodSeen, PodsSwept
from taint_eviction.core.gone_objects import GoneObjects, list_is_newer
from taint_eviction.core.instants import Moment, sight
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.pod_record import PodRecord


class KnownPods:
    """The records of the known pods by key, and of those that are unfinished; ``gone`` remembers pods that are gone."""

    def __init__(self, gone: GoneObjects) -> None:
        self.known: dict[NamespacedName, PodRecord] = {}
        self._by_node: dict[str, dict[NamespacedName, PodRecord]] = {}
        self._unfinished: dict[NamespacedName, list[PodRecord]] = {}
        self._gone = gone

    def __iter__(self) -> Iterator[PodRecord]:
        """Go through all records, of pods that are no longer known, too."""
        yield from self.known.values()
        for records in self._unfinished.values():
            yield from records

    def find(self, ref: PodRef) -> PodRecord | None:
        """Return the record of exactly this pod (key and UID), None if there is none."""
        record = self.known.get(ref.key)
        if record is not None and record.ref.uid == ref.uid:
            return record
        return next((kept for kept in self._unfinished.get(ref.key, ()) if kept.ref.uid == ref.uid), None)

    def knows(self, record: PodRecord) -> bool:
        """Tell whether the pod of a record is still known."""
        return self.known.get(record.ref.key) is record

    def on_node(self, name: str) -> list[PodRecord]:
        """List the known pods that are bound to a node of this name."""
        return list(self._by_node.get(name, {}).values())

    def put(self, fact: PodSeen, now: Moment) -> tuple[PodRecord, list[PodRecord]] | None:
        """Take in a pod; return its record and those of pods that had its name before. None if the fact is old news.

        The latter are no longer known, and are to be closed.
        """
        pod, before = fact.pod, self.known.get(fact.pod.ref.key)
        last = None if before is None else (before.pod.resource_version, before.seen_at)
        if self._gone.is_old(pod.ref.uid, pod.resource_version, last, fact.asked_at):
            return None
        predecessors: list[PodRecord] = []
        if before is not None and before.ref.uid == pod.ref.uid:
            record = before
            self._unlist(record)
        else:
            if before is not None:
                self.leave(before)
            record = self._kept_aside(pod.ref) or PodRecord(pod, now.at)
            record.bound = None
            predecessors = list(self._unfinished.get(pod.ref.key, ()))
            for each in predecessors:
                self._gone.remember(each.ref.uid, now)
            self.known[pod.ref.key] = record
        if pod.node_name is None:
            record.bound = None
        elif record.bound is None or record.pod.node_name != pod.node_name:
            record.bound = sight(now, pod.bound_at, pod.bound_time_source, fact.absent_at)
        record.pod, record.seen_at = pod, now.at
        if pod.node_name is not None:
            self._by_node.setdefault(pod.node_name, {})[pod.ref.key] = record
        return record, predecessors

    def _kept_aside(self, ref: PodRef) -> PodRecord | None:
        """Take the record of a pod that is seen again out of those kept aside."""
        record = self.find(ref)
        if record is not None:
            self._forget_aside(record)
        return record

    def lose(self, ref: PodRef, now: Moment) -> PodRecord | None:
        """Note that a pod no longer exists; return its record, None if there is none. It is to be closed."""
        self._gone.remember(ref.uid, now)
        record = self.find(ref)
        if record is not None:
            self.leave(record)
        return record

    def leave(self, record: PodRecord) -> None:
        """Know a pod no more, and keep its record aside until it is closed."""
        if self.knows(record):
            del self.known[record.ref.key]
            self._unlist(record)
            self._unfinished.setdefault(record.ref.key, []).append(record)

    def close(self, record: PodRecord) -> None:
        """End the record of a pod that is no longer known, unless something of it is unfinished."""
        unfinished = record.in_flight or record.taking_back or record.condition.take_back_at is not None
        if not (self.knows(record) or unfinished):
            self._forget_aside(record)

    def _forget_aside(self, record: PodRecord) -> None:
        aside = self._unfinished[record.ref.key]
        aside.remove(record)
        if not aside:
            del self._unfinished[record.ref.key]

    def is_gone(self, record: PodRecord) -> bool:
        """Tell whether a pod is known to be gone for good: its deletion was seen, or its name has another pod."""
        holder = self.known.get(record.ref.key)
        return record.ref.uid in self._gone or (holder is not None and holder is not record)

    def absent(self, fact: PodsSwept) -> list[PodRecord]:
        """List the known pods that a list of pods (one node's, or all bound ones) proves to be gone."""
        if fact.node_name is None:
            candidates = [record for record in self.known.values() if record.pod.node_name is not None]
        else:
            candidates = self.on_node(fact.node_name)
        return [
            record
            for record in candidates
            if record.ref.uid not in fact.present and list_is_newer(fact, record.pod.resource_version, record.seen_at)
        ]

    def _unlist(self, record: PodRecord) -> None:
        node_name = record.pod.node_name
        if node_name is None:
            return
        siblings = self._by_node[node_name]
        del siblings[record.ref.key]
        if not siblings:
            del self._by_node[node_name]
