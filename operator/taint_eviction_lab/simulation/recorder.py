"""The state at any instant: every version of every node and pod, and when it was written.
The store reports each change to it, within the write. It decodes each version once: readers share the object and
never change it.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fake_apiserver.records import Change, StoredObject
from taint_eviction_lab.simulation.virtual_clock import virtual_now

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """One write at the instant ``at``. ``event_type`` is ADDED, MODIFIED or DELETED; ``body`` is the written object."""

    event_type: str
    body: JsonObject
    is_pod: bool
    at: float


class ClusterRecorder:
    """Records nodes and pods; ``subscribe`` passes on their changes."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[RecordedChange], None]] = []
        self._bodies: dict[int, JsonObject] = {}
        self._latest: dict[tuple[str, str, str], JsonObject] = {}
        self._written_at: list[float] = []
        self._versions: list[int] = []

    def notice(self, change: Change) -> None:
        """Record a change and pass it on."""
        record, plural = change.new, change.new.resource.plural
        if plural not in ("nodes", "pods"):
            return
        body = self._bodies[record.resource_version] = record.decode()
        self._latest[plural, record.namespace, record.name] = body
        at = virtual_now()
        self._written_at.append(at)
        self._versions.append(record.resource_version)
        recorded = RecordedChange(change.type, body, plural == "pods", at)
        for subscriber in tuple(self._subscribers):
            subscriber(recorded)

    def subscribe(self, subscriber: Callable[[RecordedChange], None]) -> None:
        """Call this subscriber for every later change, within the write."""
        self._subscribers.append(subscriber)

    def body(self, record: StoredObject) -> JsonObject:
        """Return the object of a record; callers must not change it."""
        found = self._bodies.get(record.resource_version)
        return record.decode() if found is None else found

    def latest(self, plural: str, namespace: str, name: str) -> JsonObject | None:
        """Return the object that has or last had this name; None if there never was one."""
        return self._latest.get((plural, namespace, name))

    def version_at(self, at: float) -> int:
        """Return the latest resourceVersion of any node or pod at an instant; 0 before all writes."""
        count = bisect_right(self._written_at, at)
        return self._versions[count - 1] if count else 0
