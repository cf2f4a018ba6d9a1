"""What etcd and the watch cache are to a real server: objects, one counter of versions, a bounded history.

It knows no HTTP, no validation and no defaults: whatever is committed is taken as it is.

Invariants: every write gets the next resourceVersion; a record is never changed, only replaced; the history of a
kind holds every change after its `compacted` version; subscribers receive each change synchronously and in order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .records import Change, ChangeType, Selection, StoredObject, record_of
from .resources import RESOURCES, Kinds, ResourceType
from .status import JsonObject

Subscriber = Callable[[Change], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A backup of the store: the records are shared, since they never change."""

    resource_version: int
    records: dict[str, dict[str, StoredObject]]


class _Table:
    """All objects of one kind: by key, in key order, and pods by node."""

    def __init__(self, resource: ResourceType) -> None:
        self.resource = resource
        self.by_key: dict[str, StoredObject] = {}
        self.by_node: dict[str, dict[str, StoredObject]] = {}
        self._order: list[str] = []

    def put(self, record: StoredObject) -> None:
        key = record.key
        old = self.by_key.get(key)
        if old is None:
            insort(self._order, key)
        self.by_key[key] = record
        if self.resource.plural == "pods":
            if old is not None:
                self._forget_node(old)
            self.by_node.setdefault(record.node_name, {})[key] = record

    def drop(self, record: StoredObject) -> None:
        key = record.key
        del self.by_key[key]
        del self._order[bisect_left(self._order, key)]
        if self.resource.plural == "pods":
            self._forget_node(record)

    def _forget_node(self, record: StoredObject) -> None:
        pods = self.by_node[record.node_name]
        del pods[record.key]
        if not pods:
            del self.by_node[record.node_name]

    def candidates(self, selection: Selection, start_key: str = "") -> Iterator[StoredObject]:
        """In key order, from a key on: a superset of what is selected, found by the best index there is."""
        if selection.node is not None and self.resource.plural == "pods":
            pods = self.by_node.get(selection.node, {})
            yield from (record for key, record in sorted(pods.items()) if key >= start_key)
            return
        start, end = bisect_left(self._order, start_key), len(self._order)
        if selection.namespace is not None and self.resource.namespaced:
            start = max(start, bisect_left(self._order, selection.namespace + "/"))
            end = bisect_left(self._order, selection.namespace + "0")  # "0" is the character after "/"
        for index in range(start, end):
            yield self.by_key[self._order[index]]


class ObjectStore:
    """`history_size` bounds, per kind, how many changes a watch can go back before it gets 410."""

    def __init__(
        self, history_size: int = 10_000, first_resource_version: int = 1000, kinds: Kinds = RESOURCES
    ) -> None:
        self.kinds = kinds
        self.resource_version = first_resource_version
        self._tables = {plural: _Table(resource) for plural, resource in kinds.items()}
        self._history_size = history_size
        self._history: dict[str, deque[Change]] = {plural: deque() for plural in kinds}
        self._compacted = dict.fromkeys(kinds, first_resource_version)
        self._subscribers: list[Subscriber] = []
        self._cached: dict[str, int] = {}

    def get(self, plural: str, namespace: str, name: str) -> StoredObject | None:
        """The current record, None where there is no such object."""
        table = self._tables[plural]
        return table.by_key.get(table.resource.key(namespace, name))

    def count(self, plural: str) -> int:
        return len(self._tables[plural].by_key)

    def select(self, selection: Selection) -> list[StoredObject]:
        """All matching records in key order, as of now."""
        return list(self.walk(selection))

    def walk(self, selection: Selection, start_key: str = "") -> Iterator[StoredObject]:
        """As `select`, from a key on and lazily: nothing may be written meanwhile."""
        candidates = self._tables[selection.resource.plural].candidates(selection, start_key)
        if not selection.is_filtered:
            return candidates
        return (record for record in candidates if selection.matches(record))

    def select_at(
        self, selection: Selection, resource_version: int, start_key: str = ""
    ) -> Iterator[StoredObject] | None:
        """As `walk`, as of an earlier version; None where the history does not reach back to it."""
        changes = self.changes_since(selection.resource.plural, resource_version)
        if changes is None:
            return None
        if not changes:
            return self.walk(selection, start_key)
        records = {record.key: record for record in self.walk(selection, start_key)}
        for change in reversed(changes):
            if change.new.key < start_key:
                continue
            records.pop(change.new.key, None)
            if change.old is not None and selection.matches(change.old):
                records[change.old.key] = change.old
        return (records[key] for key in sorted(records))

    def commit(self, resource: ResourceType, obj: JsonObject) -> StoredObject:
        """Creates or replaces; stamps the next resourceVersion into the object given."""
        obj["metadata"]["resourceVersion"] = str(self._next_version())
        table, metadata = self._tables[resource.plural], obj["metadata"]
        old = table.by_key.get(resource.key(metadata.get("namespace", ""), metadata["name"]))
        record = record_of(resource, obj, old)
        table.put(record)
        self._publish("ADDED" if old is None else "MODIFIED", old, record)
        return record

    def remove(self, record: StoredObject) -> StoredObject:
        """Takes the object away and returns its last state with the version of the deletion."""
        obj = record.decode()
        obj["metadata"]["resourceVersion"] = str(self._next_version())
        last = record_of(record.resource, obj, record)
        self._tables[record.resource.plural].drop(record)
        self._publish("DELETED", record, last)
        return last

    def _next_version(self) -> int:
        self.resource_version += 1
        return self.resource_version

    def _publish(self, change_type: ChangeType, old: StoredObject | None, new: StoredObject) -> None:
        change = Change(change_type, old, new)
        history = self._history[new.resource.plural]
        history.append(change)
        while len(history) > self._history_size:
            self._compacted[new.resource.plural] = history.popleft().resource_version
        for subscriber in tuple(self._subscribers):
            subscriber(change)

    def lag(self, plural: str) -> None:
        """From now on the watch cache of a kind stands still: reads that accept any version see this one."""
        self._cached.setdefault(plural, self.resource_version)

    def catch_up(self, plural: str) -> None:
        """Ends `lag`; idempotent."""
        self._cached.pop(plural, None)

    def cached_version(self, plural: str) -> int:
        """What reads with resourceVersion=0 see: the present, or an earlier version while the cache lags."""
        return self._cached.get(plural, self.resource_version)

    def get_at(self, plural: str, namespace: str, name: str, resource_version: int) -> StoredObject | None:
        """As `get`, as of an earlier version that the history reaches back to."""
        found = self.get(plural, namespace, name)
        for change in reversed(self.changes_since(plural, resource_version) or []):
            if (change.new.namespace, change.new.name) == (namespace, name):
                found = change.old
        return found

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Calls for each change from now on, within the write; returns what ends it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def changes_since(self, plural: str, resource_version: int) -> list[Change] | None:
        """Changes after a version, oldest first; None where the history does not reach back to it."""
        if resource_version < self._compacted[plural]:
            return None
        found: list[Change] = []
        for change in reversed(self._history[plural]):
            if change.resource_version <= resource_version:
                break
            found.append(change)
        return found[::-1]

    def compacted(self, plural: str) -> int:
        """The oldest version that a watch can start from."""
        return self._compacted[plural]

    def compact(self) -> None:
        """Forgets all history, as a restarted server or a compacted etcd has: older versions get 410 from now on."""
        self._cached.clear()
        for plural, history in self._history.items():
            history.clear()
            self._compacted[plural] = self.resource_version

    def snapshot(self) -> Snapshot:
        return Snapshot(self.resource_version, {p: dict(table.by_key) for p, table in self._tables.items()})

    def restore(self, snapshot: Snapshot, *, rewind_version: bool = False) -> None:
        """Puts the objects back as they were, without telling any watcher, and compacts.

        The counter of versions continues, as with `etcdutl --bump-revision`, unless `rewind_version`.
        """
        for plural, records in snapshot.records.items():
            table = _Table(self.kinds[plural])
            for record in records.values():
                table.put(record)
            self._tables[plural] = table
        self.resource_version = snapshot.resource_version if rewind_version else self.resource_version + 1
        self.compact()
