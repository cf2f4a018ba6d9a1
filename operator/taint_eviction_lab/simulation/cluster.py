"""The cluster of a replay: the fake API server's own, in virtual time, with everything recorded.

There is no HTTP. UIDs are deterministic: namespace, name and a serial number. The kubelets end terminating pods at
once; pods become ready ``ready_seconds`` after they were bound. ``node_steps`` and ``pod_steps`` have what a scenario's
steps do; ``api`` and ``watches`` connect the controller.
"""

import asyncio
import contextvars
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy

from fake_apiserver.budgets import PodHealth
from fake_apiserver.clock import Timer, WallClock
from fake_apiserver.cluster import FakeCluster
from fake_apiserver.defaults import Identities
from fake_apiserver.node_lifecycle import NodeLifecycleSettings
from fake_apiserver.records import Selection, StoredObject
from fake_apiserver.registry import WriteOptions
from fake_apiserver.resources import RESOURCES
from fake_apiserver.selectors import FieldTerm, LabelSelector
from taint_eviction.core.objects import NamespacedName
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.recorder import ClusterRecorder, JsonObject, RecordedChange
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import ServerClocks, server_time, virtual_now

FIRST_VERSION = 100
# The disruption controller has counted this long after a change.
_COUNTING_SECONDS = 0.1

# Callbacks of the cluster run in no process's context: they continue while processes are frozen.
_SERVER = contextvars.Context()

_NODES, _PODS, _BUDGETS = RESOURCES["nodes"], RESOURCES["pods"], RESOURCES["poddisruptionbudgets"]
BUDGETS = _BUDGETS.plural


class Impossible(Exception):
    """The cluster, in its state at that moment, cannot perform a step."""


def later(seconds: float, act: Callable[..., object], *args: object) -> Timer:
    """Call a function this many virtual seconds later, on the cluster's side."""
    return asyncio.get_running_loop().call_later(seconds, act, *args, context=_SERVER.copy())


def bound_to(node_name: str | None) -> Selection:
    """Select the pods bound to one node, or to any node if ``node_name`` is None."""
    return Selection(_PODS, fields=(FieldTerm("spec.nodeName", node_name is not None, node_name or ""),))


class _SerialUids(Identities):
    def __init__(self) -> None:
        super().__init__(0)
        self._serials: dict[str, int] = {}

    def uid(self, namespace: str, name: str) -> str:
        bearer = f"{namespace}-{name}" if namespace else name
        self._serials[bearer] = self._serials.get(bearer, 0) + 1
        return f"{bearer}-{self._serials[bearer]}"


class _MaxScale:
    """A workload wants as many pods as it ever had at once; steps of the scenario recreate what was evicted."""

    def __init__(self) -> None:
        self._max: dict[str, int] = {}

    def __call__(self, budget: StoredObject, selector: LabelSelector, pods: Sequence[PodHealth]) -> int:
        alive = sum(pod.alive for pod in pods)
        self._max[budget.uid] = max(alive, self._max.get(budget.uid, 0))
        return self._max[budget.uid]


class SimulatedCluster(FakeCluster):
    """The cluster. ``default_toleration_seconds``: what admission gives to pods, None: nothing. ``clocks`` give the
    times in objects.
    """

    def __init__(
        self,
        timeline: Timeline,
        default_toleration_seconds: int | None = 300,
        ready_seconds: float = 0.0,
        clocks: ServerClocks | None = None,
        node_lifecycle: NodeLifecycleSettings | None = None,
    ) -> None:
        self.clocks = clocks or ServerClocks()
        self.ready_seconds = ready_seconds
        self.recorder = ClusterRecorder()
        self._timeline = timeline
        super().__init__(
            clock=WallClock(source=self.clocks.epoch),
            call_later=later,
            identities=_SerialUids(),
            recorder=self.recorder.notice,
            scale=_MaxScale(),
            history_size=sys.maxsize,
            first_resource_version=FIRST_VERSION,
            node_lifecycle=node_lifecycle,
            machine_clock=WallClock(source=lambda: server_time(virtual_now())),
        )
        self.admission.default_toleration_seconds = default_toleration_seconds
        self.budgets.delay_seconds = _COUNTING_SECONDS
        self.kubelets.finish_after_seconds = 0.0
        self.kubelets.registered_only = True
        self.kubelets.resume()
        self.recorder.subscribe(self._note_end)

    def _note_end(self, change: RecordedChange) -> None:
        if change.is_pod and change.event_type == "DELETED":
            metadata = change.body["metadata"]
            subject = f"{metadata['namespace']}/{metadata['name']}"
            self._timeline.add(TimelineEntry(virtual_now(), What.GONE, subject, metadata["uid"]))

    def bodies(self, selection: Selection) -> list[JsonObject]:
        """List the selected objects as they are now."""
        return [self.recorder.body(record) for record in self.store.select(selection)]

    def nodes(self) -> list[JsonObject]:
        """List all nodes."""
        return self.bodies(Selection(_NODES))

    def pods(self) -> list[JsonObject]:
        """List all pods."""
        return self.bodies(Selection(_PODS))

    def pods_at(self, at: float, node_name: str) -> list[JsonObject]:
        """List a node's pods as they were at an instant; pods that a scenario gives exist at any earlier instant."""
        version = max(self.recorder.version_at(max(at, 0.0)), FIRST_VERSION)
        return [self.recorder.body(record) for record in self.store.select_at(bound_to(node_name), version) or ()]

    def node(self, name: str) -> JsonObject | None:
        """Return a node, None if there is none of this name."""
        record = self.store.get("nodes", "", name)
        return None if record is None else self.recorder.body(record)

    def pod(self, key: NamespacedName) -> JsonObject | None:
        """Return a pod, None if there is none of this name."""
        record = self.store.get("pods", *key)
        return None if record is None else self.recorder.body(record)

    def record(self, plural: str, name: str, namespace: str = "") -> StoredObject:
        """Return the current record, for a write; raise ``StatusError`` (404) if there is none of this name.

        The rules of an API server do not cover malformed objects, since it stores none. So what a scenario gives
        verbatim is repaired first, in a write of its own.
        """
        record = super().record(plural, name, namespace)
        if plural not in ("nodes", "pods"):
            return record
        body = self.recorder.body(record)
        sound = kube.sound(body)
        return record if sound == body else self.store.commit(record.resource, deepcopy(sound))

    def body(self, plural: str, name: str, namespace: str = "") -> JsonObject:
        """Return an object, repaired for a write; raise ``StatusError`` (404) if there is none of this name."""
        return self.recorder.body(self.record(plural, name, namespace))


def create_budget(cluster: SimulatedCluster, body: JsonObject) -> None:
    """Create a PodDisruptionBudget without a status."""
    cluster.registry.create(_BUDGETS, body["metadata"]["namespace"], deepcopy(body), WriteOptions())
