"""Stand-ins for what happens around pods: kubelets that end them, and a StatefulSet that brings them back.

They act through the registry like any client, but without HTTP, and pause while the server is down.
Every wait is a timer, so nothing here blocks and `suspend` leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from .clock import CallLater, Timer, call_later
from .deletion import DeleteOptions, delete
from .eviction import bind, set_condition
from .records import Change, Selection, StoredObject
from .registry import Registry, WriteOptions
from .resources import RESOURCES
from .selectors import FieldTerm, LabelSelector, labels_match
from .status import JsonObject, StatusError

PODS = RESOURCES["pods"]
_STATUS = WriteOptions(manager="kubelet", subresource="status")
NodeChoice = str | Callable[[JsonObject], str | None] | None
"""Where a recreated pod goes: a node, a choice made when it is created, or None to leave it unbound."""


@dataclass(slots=True)
class Kubelets:
    """One for every node, whether the node has an object or not, but for the frozen ones, which do nothing."""

    registry: Registry
    call_later: CallLater = call_later
    finish_after_seconds: float = 0.05
    """How long a pod takes to end; never longer than its grace period."""
    start_after_seconds: float | None = None
    """When bound pods become Running and Ready; None leaves their status to other writers."""
    frozen_nodes: set[str] = field(default_factory=set)
    finish_after_seconds_by_node: dict[str, float] = field(default_factory=dict)
    registered_only: bool = False
    """Whether a node without an object has no kubelet, as a machine that was taken away."""
    _timers: dict[tuple[str, str], Timer] = field(default_factory=dict)
    _suspended: bool = True

    def notice(self, change: Change) -> None:
        """Subscribed to the store."""
        if self._suspended:
            return
        if change.new.resource.plural == "nodes" and change.type == "ADDED" and self.registered_only:
            self._catch_up_on(change.new.name)
        elif change.new.resource.plural == "pods":
            if change.type == "DELETED":
                self._cancel(change.new.uid)
            else:
                self._consider(change.new)

    def freeze(self, node: str) -> None:
        """From now on no pod ends or starts on this node, not even one that is already ending or starting."""
        self.frozen_nodes.add(node)
        for record in self.registry.store.select(Selection(PODS)):
            if record.node_name == node:
                self._cancel(record.uid)

    def thaw(self, node: str) -> None:
        """The kubelet is back and does what it missed."""
        self.frozen_nodes.discard(node)
        self.catch_up()

    def resume(self) -> None:
        """Continue after the server is up again, with what became due while it was down."""
        self._suspended = False
        self.catch_up()

    def suspend(self) -> None:
        """With the server down: forgets its timers."""
        self._suspended = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def catch_up(self) -> None:
        """Looks at all pods again, unless the server is down, in which case `resume` will."""
        if self._suspended:
            return
        for record in self.registry.store.select(Selection(PODS)):
            self._consider(record)

    def _catch_up_on(self, node: str) -> None:
        for record in self.registry.store.select(Selection(PODS, fields=(FieldTerm("spec.nodeName", True, node),))):
            self._consider(record)

    def _works(self, node: str) -> bool:
        if not node or node in self.frozen_nodes:
            return False
        return not self.registered_only or self.registry.store.get("nodes", "", node) is not None

    def _consider(self, record: StoredObject) -> None:
        node = record.node_name
        if not self._works(node):
            return
        if b'"deletionTimestamp":' in record.tail:
            metadata = record.decode()["metadata"]
            grace = metadata.get("deletionGracePeriodSeconds", 0)
            if grace:
                delay = self.finish_after_seconds_by_node.get(node, self.finish_after_seconds)
                self._schedule(record, "finish", min(delay, grace), self._finish)
        elif self.start_after_seconds is not None and record.field("status.phase") == "Pending":
            self._schedule(record, "start", self.start_after_seconds, self._start)

    def _schedule(
        self, record: StoredObject, what: str, delay_seconds: float, act: Callable[[StoredObject], None]
    ) -> None:
        timer_key = (record.uid, what)
        if timer_key in self._timers:
            return

        def fire() -> None:
            self._timers.pop(timer_key, None)
            current = self.registry.store.get("pods", record.namespace, record.name)
            if current is not None and current.uid == record.uid and self._works(current.node_name):
                act(current)

        self._timers[timer_key] = self.call_later(delay_seconds, fire)

    def _cancel(self, uid: str) -> None:
        for what in ("finish", "start"):
            if timer := self._timers.pop((uid, what), None):
                timer.cancel()

    def _finish(self, record: StoredObject) -> None:
        delete(self.registry, record, DeleteOptions(grace_period_seconds=0, uid=record.uid))

    def _start(self, record: StoredObject) -> None:
        if b'"deletionTimestamp":' not in record.tail:
            self.registry.replace(record, running(record.decode(), self.registry.clock.timestamp()), _STATUS)


def running(pod: JsonObject, timestamp: str) -> JsonObject:
    """A pod's object with the status of one that runs and is ready."""
    status = pod.setdefault("status", {})
    status |= {"phase": "Running", "startTime": timestamp}
    for name in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        condition = {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": timestamp}
        set_condition(pod, condition)
    return pod


@dataclass(slots=True)
class Recreation:
    """Brings namespace/name back, `after_seconds` after it is gone, each time with a new uid, `times` times."""

    namespace: str
    name: str
    node: NodeChoice
    after_seconds: float
    times: int | None
    template: JsonObject | None = None
    waiting: JsonObject | None = None
    """The pod that is about to be created, None while there is one."""


@dataclass(slots=True)
class Recreations:
    """All pods that are recreated, as by a StatefulSet."""

    registry: Registry
    call_later: CallLater = call_later
    _wanted: dict[tuple[str, str], Recreation] = field(default_factory=dict)
    _timers: set[Timer] = field(default_factory=set)
    _suspended: bool = True

    def add(self, recreation: Recreation) -> Recreation:
        self._wanted[recreation.namespace, recreation.name] = recreation
        return recreation

    def drop(self, namespace: str, name: str) -> None:
        """Stop recreating this pod; idempotent."""
        self._wanted.pop((namespace, name), None)

    def missing(self, namespace: str, selector: LabelSelector) -> int:
        """How many of the selected pods are gone at the moment and will be back."""
        waiting = [r.waiting for r in self._wanted.values() if r.namespace == namespace and r.waiting is not None]
        return sum(labels_match(selector, pod["metadata"].get("labels") or {}) for pod in waiting)

    def notice(self, change: Change) -> None:
        """Subscribed to the store."""
        if change.type != "DELETED" or change.new.resource.plural != "pods":
            return
        recreation = self._wanted.get((change.new.namespace, change.new.name))
        if recreation is not None and recreation.times != 0:
            recreation.waiting = fresh_pod(recreation.template or change.new.decode())
            if not self._suspended:
                self._schedule(recreation)

    def resume(self) -> None:
        self._suspended = False
        for recreation in self._wanted.values():
            if recreation.waiting is not None:
                self._schedule(recreation)

    def suspend(self) -> None:
        self._suspended = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _schedule(self, recreation: Recreation) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            self._create(recreation)

        timer = self.call_later(recreation.after_seconds, fire)
        self._timers.add(timer)

    def _create(self, recreation: Recreation) -> None:
        """Created unbound, then bound, as the scheduler does it: watchers see both."""
        if recreation.waiting is None or recreation.times == 0:
            return
        pod, recreation.waiting = recreation.waiting, None
        if recreation.times is not None:
            recreation.times -= 1
        try:
            options = WriteOptions(manager="kube-controller-manager")
            record = self.registry.create(PODS, recreation.namespace, pod, options)
        except StatusError:
            # Another client was faster: a pod of that name exists, as wanted.
            return
        node = recreation.node(record.decode()) if callable(recreation.node) else recreation.node
        if node:
            binding = {"metadata": {"name": record.name}, "target": {"kind": "Node", "name": node}}
            bind(self.registry, record, binding)


def fresh_pod(template: JsonObject) -> JsonObject:
    """A pod to be created from one that was: what the server or the scheduler had set is left out."""
    pod = deepcopy(template)
    metadata = pod["metadata"]
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    spec = {name: value for name, value in pod.get("spec", {}).items() if name != "nodeName"}
    return {"metadata": {name: metadata[name] for name in kept if name in metadata}, "spec": spec}
