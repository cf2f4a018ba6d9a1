"""A cluster without HTTP: the store, its write rules, and the stand-ins for controllers and kubelets.

Everything is synchronous. Clocks and timers come from outside, so that one cluster can serve HTTP in real time and
another one replays in virtual time. Objects that are created here keep the status (and uid) that they come with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .budgets import Budgets, PodHealth, Scale
from .clock import CallLater, WallClock, call_later
from .defaults import Admission, Identities
from .deletion import DeleteOptions, delete
from .kubelet import Kubelets, NodeChoice, Recreation, Recreations
from .node_heartbeats import NodeHeartbeats
from .node_lifecycle import NodeLifecycleController, NodeLifecycleSettings
from .node_taints import LifecycleWriter
from .records import Selection, StoredObject, copied
from .registry import Registry, WriteOptions
from .resources import ResourceType, with_custom
from .selectors import LabelSelector, parse_field_selector, parse_label_selector
from .status import JsonObject, already_exists
from .store import ObjectStore, Subscriber
from .strategic import strategic_merge_patch
from .strategies import as_stored

Objects = list[JsonObject]


class FakeCluster:
    """Starts empty.

    `recorder` receives each change before any other subscriber, within the write and in order. `scale` returns the
    desired number of pods for a budget: by default those that exist or will be recreated. With `node_lifecycle` nodes
    have Leases, and those whose kubelets are silent are tainted; None for neither. `machine_clock` is the clock of
    kubelets and kube-controller-manager: by default the server's. `custom` are kinds besides those of the table.
    """

    def __init__(
        self,
        *,
        clock: WallClock | None = None,
        call_later: CallLater = call_later,
        identities: Identities | None = None,
        recorder: Subscriber | None = None,
        scale: Scale | None = None,
        history_size: int = 10_000,
        first_resource_version: int = 1000,
        custom: Iterable[ResourceType] = (),
        node_lifecycle: NodeLifecycleSettings | None = None,
        machine_clock: WallClock | None = None,
    ) -> None:
        self.clock = clock or WallClock()
        self.store = ObjectStore(history_size, first_resource_version, with_custom(custom))
        self.admission = Admission()
        self.registry = Registry(self.store, self.clock, self.admission, identities or Identities())
        self.kubelets = Kubelets(self.registry, call_later)
        self.recreations = Recreations(self.registry, call_later)
        self.budgets = Budgets(self.registry, scale=scale or self._scale, call_later=call_later)
        if recorder is not None:
            self.store.subscribe(recorder)
        for subscriber in (self.kubelets.notice, self.recreations.notice, self.budgets.notice):
            self.store.subscribe(subscriber)
        self.node_lifecycle = (
            None
            if node_lifecycle is None
            else self._node_lifecycle(node_lifecycle, machine_clock or self.clock, call_later)
        )

    def _node_lifecycle(
        self, settings: NodeLifecycleSettings, clock: WallClock, call_later: CallLater
    ) -> NodeLifecycleController:
        heartbeats = NodeHeartbeats(self.registry, self.kubelets, clock, call_later, settings.renew_seconds)
        controller = NodeLifecycleController(LifecycleWriter(self.registry, clock), heartbeats, call_later, settings)
        self.store.subscribe(heartbeats.notice)
        self.store.subscribe(controller.notice)
        return controller

    def _scale(self, budget: StoredObject, selector: LabelSelector, pods: Sequence[PodHealth]) -> int:
        return len(pods) + self.recreations.missing(budget.namespace, selector)

    def put(self, plural: str, obj: Mapping[str, Any]) -> StoredObject:
        """Stores a copy of a new object unchecked, malformed as it may be, as if from a backup; raises 409.

        What metadata lacks (uid, creationTimestamp) is completed, and well-formed parts get the form that every later
        write would give them; nothing is refused.
        """
        resource, given = self.store.kinds[plural], copied(obj)
        namespace, name = given["metadata"].get("namespace", ""), given["metadata"]["name"]
        if self.store.get(plural, namespace, name) is not None:
            raise already_exists(resource.group, plural, name)
        identity = {"uid": self.registry.identities.uid(namespace, name), "creationTimestamp": self.clock.timestamp()}
        return self.store.commit(
            resource, as_stored(resource, {**given, "metadata": {**identity, **given["metadata"]}})
        )

    def create(
        self, plural: str, obj: Mapping[str, Any], *, manager: str = "simulation", managed_fields: bool = True
    ) -> JsonObject:
        """Creates a copy of an object, in `default` where it names no namespace; returns it completed."""
        resource, given = self.store.kinds[plural], copied(obj)
        namespace = (given.get("metadata") or {}).get("namespace") or ("default" if resource.namespaced else "")
        options = WriteOptions(manager, keep_status=True, track_fields=managed_fields)
        return self.registry.create(resource, namespace, given, options).decode()

    def get(self, plural: str, name: str, namespace: str = "") -> JsonObject | None:
        """The current object, None where there is none; `namespace` "" is `default` for namespaced kinds."""
        self._write_leases(plural)
        record = self.store.get(plural, self._namespace(plural, namespace), name)
        return record.decode() if record is not None else None

    def record(self, plural: str, name: str, namespace: str = "") -> StoredObject:
        """The current record; raises 404."""
        return self.registry.get(self.store.kinds[plural], self._namespace(plural, namespace), name)

    def list(
        self, plural: str, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        """Current objects in key order; `namespace` None means all."""
        self._write_leases(plural)
        resource = self.store.kinds[plural]
        fields = parse_field_selector(field_selector, resource)
        selection = Selection(resource, namespace, parse_label_selector(label_selector), fields)
        return [record.decode() for record in self.store.select(selection)]

    def _write_leases(self, plural: str) -> None:
        if plural == "leases" and self.node_lifecycle is not None:
            self.node_lifecycle.heartbeats.write_leases()

    def update(self, plural: str, obj: Mapping[str, Any], *, manager: str = "simulation") -> JsonObject:
        """Replaces an object whole, spec and status at once, whatever its resourceVersion; raises 404."""
        metadata = obj["metadata"]
        record = self.record(plural, metadata["name"], metadata.get("namespace", ""))
        return self.registry.replace(record, copied(obj), self._options(manager)).decode()

    def patch(
        self, plural: str, name: str, patch: Mapping[str, Any], namespace: str = "", *, manager: str = "simulation"
    ) -> JsonObject:
        """A strategic merge patch of the whole object, status included; raises 404."""
        record = self.record(plural, name, namespace)

        def change(obj: JsonObject) -> JsonObject:
            return strategic_merge_patch(obj, copied(patch))

        return self.registry.patch(record, change, self._options(manager)).decode()

    def delete(
        self, plural: str, name: str, namespace: str = "", *, grace_period_seconds: int | None = None
    ) -> JsonObject:
        """As a client deletes: pods gracefully; returns the object or Status. Raises 404."""
        record = self.record(plural, name, namespace)
        return delete(self.registry, record, DeleteOptions(grace_period_seconds))

    def taint(
        self,
        node: str,
        key: str,
        value: str = "",
        effect: str = "NoExecute",
        *,
        time_added: str | None = None,
        manager: str = "kubectl-taint",
    ) -> JsonObject:
        """Sets a taint, in place of one with the same key and effect; `time_added` RFC 3339, None leaves it out."""
        taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
        if time_added is not None:
            taint["timeAdded"] = time_added

        def change(taints: Objects) -> Objects:
            return [*(t for t in taints if (t["key"], t["effect"]) != (key, effect)), taint]

        return self._change_taints(node, change, manager)

    def untaint(self, node: str, key: str, effect: str | None = None, *, manager: str = "kubectl-taint") -> JsonObject:
        """Takes the taints of a key off a node, of all effects where None is given; idempotent."""

        def change(taints: Objects) -> Objects:
            return [t for t in taints if t["key"] != key or effect not in {None, t["effect"]}]

        return self._change_taints(node, change, manager)

    def _change_taints(self, node: str, change: Callable[[Objects], Objects], manager: str) -> JsonObject:
        record = self.record("nodes", node, "")

        def changed(obj: JsonObject) -> JsonObject:
            spec = obj.setdefault("spec", {})
            if taints := change(spec.get("taints") or []):
                spec["taints"] = taints
            else:
                spec.pop("taints", None)
            return obj

        return self.registry.patch(record, changed, self._options(manager)).decode()

    def recreate_when_gone(
        self,
        namespace: str,
        name: str,
        *,
        node: NodeChoice = None,
        after_seconds: float = 0.0,
        times: int | None = None,
        template: JsonObject | None = None,
    ) -> Recreation:
        """Each time pod namespace/name is gone, creates it again with a new uid, and binds it if a node is chosen.

        `template` None takes the pod that went; `times` None means each time, see also `recreations.drop`.
        """
        recreation = Recreation(
            namespace, name, node, after_seconds, times, None if template is None else copied(template)
        )
        return self.recreations.add(recreation)

    @staticmethod
    def _options(manager: str) -> WriteOptions:
        return WriteOptions(manager, keep_status=True)

    def _namespace(self, plural: str, namespace: str) -> str:
        return (namespace or "default") if self.store.kinds[plural].namespaced else ""
