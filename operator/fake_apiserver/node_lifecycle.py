"""A stand-in for kube-controller-manager's node lifecycle controller, which taints nodes that are not ready.

Every period it looks at all nodes: a kubelet that was silent for the grace period makes Ready Unknown. A node that is
not ready gets a NoSchedule taint as soon as its condition is written, and a NoExecute taint through the queue of its
zone, whose rate depends on how much of the zone, and of the cluster, is ready. `stop` discards its state.

A pass takes no time here, and what was queued in a pass is served 0.1 s later at the earliest. Nodes of a zone are
queued in the order of their names; in Kubernetes in none. Not here: the pressure conditions of silent nodes, events of
nodes, and pods that are bound to a node that is not ready.

Reference: kubernetes/pkg/controller/nodelifecycle of 1.36.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .clock import CallLater, Timer, parse_timestamp
from .node_heartbeats import NodeHeartbeats, ready_condition
from .node_taints import NOT_READY, OTHER_KEY, UNREACHABLE, LifecycleWriter, has_no_execute, key_for
from .node_zones import ZoneState, ZoneTaintQueue, zone_of, zone_state
from .records import Change, Selection
from .resources import RESOURCES
from .selectors import FieldTerm
from .status import JsonObject
from .store import ObjectStore

EXCLUDED_LABEL = "node.kubernetes.io/exclude-disruption"
# How often the queues are served.
_SERVING_SECONDS = 0.1
_STARTUP_GRACE_SECONDS = 60.0
_ROUNDING = 1e-3
_NODES, _PODS = RESOURCES["nodes"], RESOURCES["pods"]


@dataclass(frozen=True, slots=True)
class NodeLifecycleSettings:
    """Those of kube-controller-manager 1.36 and of kubelets, by their default values."""

    period_seconds: float = 5.0
    grace_period_seconds: float = 50.0
    """40 s before 1.32."""
    taints_per_second: float = 0.1
    slow_taints_per_second: float = 0.01
    """In large zones that are partially disrupted; in others then none."""
    large_zone: int = 50
    """Zones with more nodes than this are large."""
    renew_seconds: float = 10.0
    """How often kubelets renew their Leases."""


@dataclass(slots=True)
class _Health:
    """The last heartbeat of a kubelet, and when it was first seen."""

    heartbeat: str | None
    renewed_at: float | None
    probed_at: float


@dataclass(slots=True)
class NodeLifecycleController:
    """Does nothing before `start`. Its clock is that of the kubelets, not the API server's."""

    writer: LifecycleWriter
    heartbeats: NodeHeartbeats
    call_later: CallLater
    settings: NodeLifecycleSettings = field(default_factory=NodeLifecycleSettings)
    zone_states: dict[str, ZoneState] = field(default_factory=dict)
    _queues: dict[str, ZoneTaintQueue] = field(default_factory=dict)
    _health: dict[str, _Health] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)
    _nodes: dict[int, JsonObject] = field(default_factory=dict)
    _changed: dict[str, None] = field(default_factory=dict)
    _timers: dict[str, Timer] = field(default_factory=dict)
    _serving_at: float = math.inf
    _running: bool = False

    def start(self) -> None:
        """Begins with a pass in which every node is new."""
        self._running = True
        for record in self._store.select(Selection(_NODES)):
            self.writer.sync_no_schedule(record.name)
        self._monitor()

    def stop(self) -> None:
        """Ends at once and forgets everything; the taints stay."""
        self._running = False
        for timer in self._timers.values():
            timer.cancel()
        for memory in (self._timers, self.zone_states, self._queues, self._health, self._changed, self._nodes):
            memory.clear()
        self._known.clear()
        self._serving_at = math.inf

    def resume(self) -> None:
        """With the server up: kubelets renew and post, and then the controller starts."""
        self.heartbeats.resume()
        self.start()

    def suspend(self) -> None:
        """With the server down: neither can do anything, and the controller loses its Lease."""
        self.stop()
        self.heartbeats.suspend()

    def restart(self, after_seconds: float = 0.0) -> None:
        """Another leader takes over, after this time."""
        self.stop()
        self._timers["start"] = self.call_later(after_seconds, self.start)

    def notice(self, change: Change) -> None:
        """Subscribed to the store."""
        if self._running and change.new.resource.plural == "nodes" and change.type != "DELETED":
            if not self._changed:
                # Not within the write: others are still to hear of it.
                self._timers["changed"] = self.call_later(0.0, self._sync_changed)
            self._changed[change.new.name] = None

    # Looking at nodes

    def _monitor(self) -> None:
        nodes = self._read_nodes()
        self._get_to_know(nodes)
        ready_by_zone: dict[str, list[bool]] = {}
        for node in nodes:
            status = self._observe(node)
            if EXCLUDED_LABEL not in (node["metadata"].get("labels") or {}):
                ready_by_zone.setdefault(zone_of(node), []).append(status == "True")
            if status is not None:
                self._taint_or_clear(node, status)
        self._judge_zones(ready_by_zone, nodes)
        self._arm()
        self._timers["monitor"] = self.call_later(self.settings.period_seconds, self._monitor)

    def _read_nodes(self) -> list[JsonObject]:
        """All nodes as they are now, for reading only; decoded once a version, since a pass finds most as they were."""
        before, self._nodes = self._nodes, {}
        for record in self._store.select(Selection(_NODES)):
            known = before.get(record.resource_version)
            self._nodes[record.resource_version] = record.decode() if known is None else known
        return list(self._nodes.values())

    def _get_to_know(self, nodes: list[JsonObject]) -> None:
        for node in nodes:
            name, zone = _name(node), zone_of(node)
            if zone not in self.zone_states:
                self.zone_states[zone] = ZoneState.INITIAL
                self._queues[zone] = ZoneTaintQueue(self.settings.taints_per_second)
            if name not in self._known:
                self._clear(node)
        self._known = {_name(node) for node in nodes}

    def _observe(self, node: JsonObject) -> str | None:
        """Reads the heartbeats of a node, and writes Ready=Unknown if there are none; returns the status."""
        name, now, condition = _name(node), self._now(), ready_condition(node)
        health = self._health_of(node, condition)
        renewed_at = self.heartbeats.renewed_at(name)
        if renewed_at is not None and (health.renewed_at is None or health.renewed_at < renewed_at):
            health.renewed_at, health.probed_at = renewed_at, now
        status = None if condition is None else str(condition.get("status"))
        grace = _STARTUP_GRACE_SECONDS if condition is None else self.settings.grace_period_seconds
        # Real passes drift, so that one that is due together with the grace period comes after it.
        if status == "Unknown" or now - health.probed_at < grace - _ROUNDING:
            return status
        self._write_unknown(node, condition)
        if status == "True":
            self._mark_pods_not_ready(name)
        return "Unknown"

    def _health_of(self, node: JsonObject, condition: JsonObject | None) -> _Health:
        heartbeat = None if condition is None else condition.get("lastHeartbeatTime") or ""
        health = self._health.get(_name(node))
        if health is None:
            created_at = parse_timestamp(node["metadata"]["creationTimestamp"]).timestamp()
            health = _Health(heartbeat, None, created_at if condition is None else self._now())
        elif heartbeat is not None and health.heartbeat != heartbeat:
            health.probed_at = self._now()
        health.heartbeat = heartbeat
        self._health[_name(node)] = health
        return health

    def _write_unknown(self, node: JsonObject, condition: JsonObject | None) -> None:
        reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
        heartbeat = None if condition is None else condition.get("lastHeartbeatTime")
        if condition is None:
            reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
            heartbeat = node["metadata"]["creationTimestamp"]
        unknown = {"type": "Ready", "status": "Unknown", "reason": reason, "message": message}
        times = {"lastHeartbeatTime": heartbeat, "lastTransitionTime": self.writer.clock.timestamp()}
        self._health[_name(node)].heartbeat = heartbeat or ""
        self.writer.set_condition("nodes", "", _name(node), {**unknown, **times})

    def _mark_pods_not_ready(self, node: str) -> None:
        for pod in self._store.select(Selection(_PODS, fields=(FieldTerm("spec.nodeName", True, node),))):
            if (ready := ready_condition(pod.decode())) is not None:
                times = {"lastTransitionTime": self.writer.clock.timestamp()}
                self.writer.set_condition("pods", pod.namespace, pod.name, {**ready, "status": "False", **times})

    # Taints

    def _taint_or_clear(self, node: JsonObject, status: str) -> None:
        key = key_for(status)
        if key is None:
            self._clear(node)
        elif has_no_execute(node, OTHER_KEY[key]):
            self.writer.swap(_name(node), "NoExecute", [key], [OTHER_KEY[key]])
        else:
            queue = self._queues[zone_of(node)]
            if not has_no_execute(node, key):
                queue.remove(_name(node))
            queue.add(_name(node))

    def _clear(self, node: JsonObject) -> None:
        """Takes both NoExecute taints off a node, in two writes, and the node off its queue."""
        for key in (UNREACHABLE, NOT_READY):
            if has_no_execute(node, key):
                self.writer.swap(_name(node), "NoExecute", [], [key])
        self._queues[zone_of(node)].remove(_name(node))

    def _taint_queued(self, name: str) -> bool:
        record = self._store.get("nodes", "", name)
        condition = None if record is None else ready_condition(record.decode())
        key = None if condition is None else key_for(str(condition.get("status")))
        return key is None or self.writer.swap(name, "NoExecute", [key], [OTHER_KEY[key]])

    def _sync_changed(self) -> None:
        changed, self._changed = self._changed, {}
        for name in changed:
            self.writer.sync_no_schedule(name)

    # Zones

    def _judge_zones(self, ready_by_zone: dict[str, list[bool]], nodes: list[JsonObject]) -> None:
        states = {zone: zone_state(ready) for zone, ready in ready_by_zone.items()}
        for zone in self.zone_states.keys() - states.keys():
            del self.zone_states[zone]
        all_are_lost = all(state is ZoneState.FULL for state in states.values())
        all_were_lost = all(state is ZoneState.FULL for state in self.zone_states.values())
        if all_are_lost and all_were_lost:
            return
        if all_are_lost:
            for node in nodes:
                self._clear(node)
            for zone in states:
                self._queues[zone].change_rate(0.0, self._now())
        else:
            for zone, state in states.items():
                if all_were_lost or state is not self.zone_states[zone]:
                    rate = self._rate(state, len(ready_by_zone[zone]))
                    self._queues[zone].change_rate(rate, self._now())
            if all_were_lost:
                for health in self._health.values():
                    health.probed_at = self._now()
        self.zone_states.update(states)

    def _rate(self, state: ZoneState, nodes: int) -> float:
        if state is not ZoneState.PARTIAL:
            return self.settings.taints_per_second
        return self.settings.slow_taints_per_second if nodes > self.settings.large_zone else 0.0

    def _arm(self) -> None:
        """Schedules the service of the queues for when the first of them has a node and a token."""
        now = self._now()
        next_at = min((queue.next_at() for queue in self._queues.values()), default=math.inf)
        if next_at == math.inf:
            return
        rounds = max(1, math.ceil(max(0.0, next_at - now) / _SERVING_SECONDS - _ROUNDING))
        serving_at = now + rounds * _SERVING_SECONDS
        if serving_at < self._serving_at - _ROUNDING:
            if (timer := self._timers.get("serve")) is not None:
                timer.cancel()
            self._serving_at = serving_at
            self._timers["serve"] = self.call_later(rounds * _SERVING_SECONDS, self._serve)

    def _serve(self) -> None:
        self._serving_at = math.inf
        for queue in self._queues.values():
            queue.serve(self._now(), self._taint_queued)
        self._arm()

    def _now(self) -> float:
        return self.heartbeats.now()

    @property
    def _store(self) -> ObjectStore:
        return self.writer.registry.store


def _name(node: JsonObject) -> str:
    return str(node["metadata"]["name"])
