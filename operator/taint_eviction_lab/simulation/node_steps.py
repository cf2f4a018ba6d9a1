"""What a scenario's steps do to nodes, as writes by the fake API server's rules.

A step raises ``StatusError`` if the API server refuses it, ``Impossible`` if it cannot be performed.
"""

from fake_apiserver.ownership import Manager, track
from taint_eviction.core.text import JsonObject
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.cluster import Impossible, SimulatedCluster
from taint_eviction_lab.simulation.virtual_clock import timestamp, virtual_now

# The manager in managedFields that changes taints, if a scenario names none.
KUBECTL = "kubectl-taint"
_REGISTERED_BY, _TAINTED_BY = Manager("kubelet", "v1"), Manager(KUBECTL, "v1")


def write_taints(cluster: SimulatedCluster, name: str, taints: list[JsonObject], manager: str) -> None:
    """Write a node's whole list of taints; nothing is written if nothing changes."""
    cluster.update("nodes", kube.with_spec(cluster.body("nodes", name), taints=taints or None), manager=manager)


def dated(taints: tuple[JsonObject, ...] | list[JsonObject]) -> list[JsonObject]:
    """Replace ``timeAdded: now`` by the current time."""
    now = timestamp(virtual_now())
    return [{**taint, "timeAdded": now} if taint.get("timeAdded") == "now" else taint for taint in taints]


def create_node(cluster: SimulatedCluster, body: JsonObject) -> None:
    """Create a node.

    If its managedFields are not given, the kubelet owns what it registers, and kubectl owns the taints.
    """
    if any(taint.get("timeAdded") == "now" for taint in kube.taints_of(body)):
        body = kube.with_spec(body, taints=dated(kube.taints_of(body)))
    if "managedFields" not in body["metadata"]:
        labels = {"kubernetes.io/hostname": body["metadata"]["name"], **(body["metadata"].get("labels") or {})}
        body, now = kube.with_metadata(body, labels=labels), cluster.clock.timestamp()
        registered = kube.with_spec(body, taints=None)
        track(None, registered, _REGISTERED_BY, now, status_is_reset=True)
        body = kube.with_metadata(body, managedFields=registered["metadata"]["managedFields"])
        track(registered, body, _TAINTED_BY, now)
    cluster.put("nodes", body)


def recreate_node(cluster: SimulatedCluster, name: str, taints: list[JsonObject]) -> None:
    """Create a node of the same name with another UID and only ``taints``; delete the old one if it exists."""
    last = cluster.recorder.latest("nodes", "", name)
    if last is None:
        raise Impossible(f"there has never been a node {name!r}")
    if cluster.node(name) is not None:
        cluster.delete("nodes", name)
    kept = ("name", "labels", "annotations")
    metadata = {key: value for key, value in last["metadata"].items() if key in kept}
    create_node(cluster, {"metadata": metadata, "spec": {"taints": taints} if taints else {}})
