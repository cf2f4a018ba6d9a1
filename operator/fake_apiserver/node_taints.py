"""What the node lifecycle controller writes, as kube-controller-manager: taints of nodes, and conditions.

NoSchedule taints follow a node's conditions. NoExecute taints are swapped: the new one comes first, and the old one
goes in a second write. Not here: when (``node_lifecycle``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .clock import WallClock
from .eviction import set_condition
from .registry import Registry, WriteOptions
from .status import JsonObject, StatusError

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
OTHER_KEY = {NOT_READY: UNREACHABLE, UNREACHABLE: NOT_READY}
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_KEY_OF = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
_NO_SCHEDULE_KEYS = frozenset({*_KEY_OF.values(), _UNSCHEDULABLE})
_MANAGER = "kube-controller-manager"


@dataclass(frozen=True, slots=True)
class LifecycleWriter:
    """Writes; what the API server refuses is left out, and the next pass tries again. `clock` dates what is written."""

    registry: Registry
    clock: WallClock

    def swap(self, node: str, effect: str, added: list[str], removed: list[str]) -> bool:
        """Sets taints of now in one write, and then removes others in another one; whether both were possible."""
        now = self.clock.timestamp()
        new = [{"key": key, "effect": effect, "timeAdded": now} for key in added]
        return self._replace_taints(node, effect, added, new) and self._replace_taints(node, effect, removed, [])

    def _replace_taints(self, node: str, effect: str, keys: list[str], new: list[JsonObject]) -> bool:
        gone = {(key, effect) for key in keys}

        def change(obj: JsonObject) -> None:
            spec = obj.setdefault("spec", {})
            spec["taints"] = [taint for taint in _taints(obj) if (taint["key"], taint["effect"]) not in gone] + new

        return not gone or self._write("nodes", "", node, change, WriteOptions(_MANAGER))

    def sync_no_schedule(self, name: str) -> None:
        """Gives a node the NoSchedule taints that its conditions call for, and no others of these keys."""
        record = self.registry.store.get("nodes", "", name)
        if record is None:
            return
        node = record.decode()
        conditions: list[JsonObject] = (node.get("status") or {}).get("conditions") or []
        kinds = [(condition.get("type"), condition.get("status")) for condition in conditions]
        wanted = [_KEY_OF[kind] for kind in kinds if kind in _KEY_OF]
        if (node.get("spec") or {}).get("unschedulable"):
            wanted.append(_UNSCHEDULABLE)
        present = [taint["key"] for taint in _taints(node) if taint["effect"] == "NoSchedule"]
        stale = [key for key in present if key in _NO_SCHEDULE_KEYS and key not in wanted]
        self.swap(name, "NoSchedule", [key for key in wanted if key not in present], stale)

    def set_condition(self, plural: str, namespace: str, name: str, condition: JsonObject) -> None:
        """Writes one condition of a node or pod."""
        status = WriteOptions(_MANAGER, "status")
        self._write(plural, namespace, name, lambda obj: set_condition(obj, condition), status)

    def _write(
        self, plural: str, namespace: str, name: str, change: Callable[[JsonObject], None], options: WriteOptions
    ) -> bool:
        record = self.registry.store.get(plural, namespace, name)
        if record is None:
            return True
        obj = record.decode()
        change(obj)
        try:
            self.registry.replace(record, obj, options)
        except StatusError:
            return False
        return True


def key_for(status: str) -> str | None:
    """The key that a status of Ready calls for; None if it is True."""
    return _KEY_OF.get(("Ready", status))


def has_no_execute(node: JsonObject, key: str) -> bool:
    """Whether a node has the NoExecute taint of this key."""
    return any(taint["key"] == key and taint["effect"] == "NoExecute" for taint in _taints(node))


def _taints(node: JsonObject) -> list[JsonObject]:
    return (node.get("spec") or {}).get("taints") or []
