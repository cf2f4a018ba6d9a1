"""Which fields of nodes and pods the watch filter keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from taint_eviction.kopf_shell.kept_fields import node_fields, pod_fields
from taint_eviction.kube.kubernetes_objects import read_node, read_pod

TAINTS = [{"key": "broken", "effect": "NoExecute"}]
OWNER = {"manager": "kubectl-taint", "operation": "Update", "time": "t1"}


def test_of_a_node_identity_taints_and_readiness_are_kept() -> None:
    """The condition Ready has its times, but not that of the last heartbeat."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "t"}
    node = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "labels": {}, "creationTimestamp": "t"},
        "spec": {"taints": TAINTS, "unschedulable": True, "podCIDR": "10.0.0.0/24"},
        "status": {
            "conditions": [{**ready, "lastHeartbeatTime": "t", "message": "m"}, {"type": "MemoryPressure"}],
            "images": [],
        },
    }
    assert node_fields(node) == {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {"taints": TAINTS},
        "status": {"conditions": [ready]},
    }


def test_all_labels_of_a_node_are_kept() -> None:
    """Rules and pauses may select nodes by any of them; an empty mapping is the same as none."""
    node = {"metadata": {"labels": {"topology.kubernetes.io/zone": "a", "pool": "gpu"}, "annotations": {"a": "b"}}}
    assert node_fields(node) == {"metadata": {"labels": {"topology.kubernetes.io/zone": "a", "pool": "gpu"}}}
    assert node_fields({"metadata": {"labels": {}}}) == {"metadata": {}}


def test_the_message_of_a_nodes_readiness_is_kept_where_the_node_is_shutting_down() -> None:
    """Any other message may change as often as it likes."""
    ready = {"type": "Ready", "status": "False", "message": "node is shutting down"}
    assert node_fields({"status": {"conditions": [ready]}}) == {"status": {"conditions": [ready]}}
    other = {**ready, "message": "container runtime is down"}
    assert node_fields({"status": {"conditions": [other]}}) == {
        "status": {"conditions": [{"type": "Ready", "status": "False"}]}
    }


def test_of_managed_fields_the_times_of_the_owners_of_taints_are_kept() -> None:
    """Only of entries without a subresource, and only while there are taints that they date."""
    fields: dict[str, Any] = {"f:spec": {"f:taints": {}, "f:unschedulable": {}}, "f:metadata": {}}
    entries = [
        {**OWNER, "fieldsV1": fields},
        {**OWNER, "fieldsV1": fields, "subresource": "status"},
        {"manager": "kubelet", "time": "t2", "fieldsV1": {"f:status": {}}},
        "odd",
    ]
    node: dict[str, Any] = {"metadata": {"managedFields": entries}, "spec": {"taints": TAINTS}}
    kept = [{"time": "t1", "fieldsV1": {"f:spec": {"f:taints": {}}}}]
    assert node_fields(node)["metadata"] == {"managedFields": kept}
    assert node_fields({**node, "spec": {}})["metadata"] == {}


def test_of_a_pod_everything_that_decides_is_kept() -> None:
    """Identity, node, tolerations, phase, times, and the two conditions that are read."""
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "DisruptionTarget", "Ready")]
    metadata = {"name": "p", "namespace": "d", "uid": "u", "creationTimestamp": "t", "deletionTimestamp": "t"}
    spec = {"nodeName": "n1", "tolerations": [{"operator": "Exists", "tolerationSeconds": 9223372036854775807}]}
    status = {"phase": "Running", "startTime": "t"}
    mirror = {"kubernetes.io/config.mirror": "hash"}
    pod = {
        "metadata": {**metadata, "annotations": {**mirror, "other": "x"}, "finalizers": ["f"]},
        "spec": {**spec, "containers": [{}]},
        "status": {**status, "conditions": conditions, "podIP": "10.0.0.1"},
    }
    assert pod_fields(pod) == {
        "metadata": {**metadata, "annotations": mirror},
        "spec": spec,
        "status": {**status, "conditions": conditions[:2]},
    }


def test_of_a_pods_owners_the_one_that_controls_it_is_kept() -> None:
    """With what names it."""
    owner = {"kind": "DaemonSet", "name": "agents", "uid": "u", "controller": True}
    references = [{**owner, "apiVersion": "apps/v1", "blockOwnerDeletion": True}, {**owner, "controller": False}, "odd"]
    assert pod_fields({"metadata": {"ownerReferences": references}}) == {"metadata": {"ownerReferences": [owner]}}
    assert pod_fields({"metadata": {"ownerReferences": references[1:]}}) == {"metadata": {}}


def test_of_a_pods_managed_fields_the_writers_of_disruption_target_are_kept() -> None:
    """Who wrote the condition's reason, and not when: that time changes with other conditions."""
    target = 'k:{"type":"DisruptionTarget"}'
    entries = [
        {**OWNER, "fieldsV1": {"f:status": {"f:conditions": {target: {"f:reason": {}, "f:status": {}}}}}},
        {**OWNER, "fieldsV1": {"f:status": {"f:conditions": {target: {"f:status": {}}}}}},
    ]
    kept = {"manager": "kubectl-taint", "fieldsV1": {"f:status": {"f:conditions": {target: {"f:reason": {}}}}}}
    assert pod_fields({"metadata": {"managedFields": entries}}) == {"metadata": {"managedFields": [kept]}}


def test_parts_of_another_shape_stay_as_they_are() -> None:
    """Whoever reads the object finds the same fault in it as in the whole object."""
    odd: dict[str, Any] = {
        "metadata": {"annotations": 7, "managedFields": "x"},
        "spec": [],
        "status": {"conditions": 1},
    }
    assert pod_fields(odd) == odd
    assert node_fields({"metadata": "x", "spec": 7, "status": None}) == {"metadata": "x", "spec": 7, "status": None}


class Asked(dict[str, Any]):
    """A JSON object that notes the paths of the fields that are asked for."""

    def __init__(self, body: dict[str, Any], path: str, noted: set[str]) -> None:
        super().__init__({name: noting(value, f"{path}.{name}", noted) for name, value in body.items()})
        self.path, self.noted = path, noted

    def get(self, name: str, default: Any = None) -> Any:
        """Note the field, and return its value."""
        self.noted.add(f"{self.path}.{name}")
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        """Do the same."""
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        """Note the field, and return whether it is there."""
        self.noted.add(f"{self.path}.{name}")
        return super().__contains__(name)


def noting(value: Any, path: str, noted: set[str]) -> Any:
    """Return JSON whose objects note what is asked for; the entries of a list share a path."""
    if isinstance(value, list):
        return [noting(entry, path, noted) for entry in value]
    return Asked(value, path, noted) if isinstance(value, dict) else value


def paths(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of all fields."""
    for entry in value if isinstance(value, list) else [value]:
        for name, inner in entry.items() if isinstance(entry, dict) else ():
            yield f"{path}.{name}"
            yield from paths(inner, f"{path}.{name}")


def lost(read: Callable[[Any], Any], fields: Callable[[Any], Any], *bodies: dict[str, Any]) -> set[str]:
    """Return the paths of fields that are read of these objects, and not kept of any of them."""
    noted: set[str] = set()
    for body in bodies:
        read(noting(body, "", noted))
    return noted - {path for body in bodies for path in paths(fields(body), "")}


def test_every_field_that_is_read_of_a_node_is_kept() -> None:
    """The filter would hide the changes of any other; a write to a subresource is left out as a whole."""
    write = {"time": "2024-05-01T10:00:00Z", "fieldsV1": {"f:spec": {"f:taints": {}}}}
    taint = {"key": "broken", "effect": "NoExecute", "value": "v", "timeAdded": "2024-05-01T10:00:00Z"}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "t", "message": "node is shutting down"}
    node = {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}, "managedFields": [write]},
        "spec": {"taints": [taint]},
        "status": {"conditions": [ready]},
    }
    assert lost(read_node, node_fields, node) == {".metadata.managedFields.subresource"}


def test_every_field_that_is_read_of_a_pod_is_kept() -> None:
    """A second pod has no condition PodScheduled: other fields date its binding."""
    target = 'k:{"type":"DisruptionTarget"}'
    write = {"manager": "m", "fieldsV1": {"f:status": {"f:conditions": {target: {"f:reason": {}}}}}}
    notes = {"kubernetes.io/config.mirror": "h", "taint-eviction/hold": "10m", "taint-eviction/seconds": "[]"}
    metadata: dict[str, Any] = {"name": "p", "namespace": "d", "uid": "u", "resourceVersion": "1"}
    metadata |= {
        "creationTimestamp": "t",
        "deletionTimestamp": "2024-05-01T10:00:00Z",
        "deletionGracePeriodSeconds": 30,
    }
    owner = {"kind": "Job", "name": "j", "uid": "u", "controller": True}
    toleration = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3}
    conditions = [
        {"type": kind, "status": "True", "reason": "r", "lastTransitionTime": "2024-05-01T10:00:00Z"}
        for kind in ("PodScheduled", "DisruptionTarget")
    ]
    pod = {
        "metadata": {
            **metadata,
            "annotations": notes,
            "labels": {"a": "b"},
            "managedFields": [write],
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "n", "tolerations": [toleration], "priority": 1},
        "status": {"phase": "Running", "startTime": "t", "conditions": conditions},
    }
    undated = {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"startTime": "t"}}
    assert lost(read_pod, pod_fields, pod, undated) == set()
