"""What a scenario's steps do to nodes, as writes by the fake API server's rules.

A step raises ``StatusError`` if the API server refuses it, ``Impossible`` if it cannot be performed.
"""

from typing import assert_never

from fake_apiserver.ownership import Manager, track
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.cluster import Impossible, SimulatedCluster
from taint_eviction_lab.simulation.kubernetes_json import JsonObject
from taint_eviction_lab.simulation.virtual_clock import timestamp, virtual_now

_REGISTERED_BY, _TAINTED_BY = Manager("kubelet", "v1"), Manager(do.KUBECTL, "v1")
_WRITTEN = "taint-eviction-lab/written"

NodeAction = do.WriteNode | do.SetReady | do.CreateNode | do.DeleteNode | do.RecreateNode | do.FreezeKubelet
TaintAction = do.AddTaints | do.RemoveTaints | do.SetTaints


def change_node(cluster: SimulatedCluster, action: NodeAction) -> None:
    """Create, write or delete a node, or freeze its kubelet."""
    match action:
        case do.WriteNode():
            node = cluster.body("nodes", action.node)
            annotations = {**(node["metadata"].get("annotations") or {}), _WRITTEN: f"{virtual_now():g}"}
            cluster.update("nodes", kube.with_metadata(node, annotations=annotations), manager=action.manager)
        case do.SetReady():
            node = cluster.body("nodes", action.node)
            ready = kube.with_readiness(node, action.status, action.message, cluster.clock.timestamp())
            cluster.update("nodes", ready, manager="kubelet")
        case do.CreateNode():
            create_node(cluster, action.body)
        case do.DeleteNode():
            cluster.delete("nodes", action.node)
        case do.RecreateNode():
            _recreate_node(cluster, action.node, list(action.taints))
        case do.FreezeKubelet():
            cluster.body("nodes", action.node)
            (cluster.kubelets.freeze if action.frozen else cluster.kubelets.thaw)(action.node)
        case _:
            assert_never(action)


def change_taints(cluster: SimulatedCluster, action: TaintAction) -> None:
    """Write a node's whole list of taints; nothing is written if nothing changes."""
    node = cluster.body("nodes", action.node)
    present = kube.taints_of(node)
    match action:
        case do.AddTaints():
            taints = kube.add_taints(present, _dated(action.taints))
        case do.SetTaints():
            taints = _dated(action.taints)
        case do.RemoveTaints():
            taints = [] if action.taints is None else present
            for key, effect in action.taints or ():
                if (remaining := kube.remove_taints(taints, key, effect)) == taints:
                    raise Impossible(f"node {action.node!r} has no taint {key!r} at this moment")
                taints = remaining
        case _:
            assert_never(action)
    cluster.update("nodes", kube.with_spec(node, taints=taints or None), manager=action.manager)


def _dated(taints: tuple[JsonObject, ...] | list[JsonObject]) -> list[JsonObject]:
    """Replace ``timeAdded: now`` by the current time."""
    now = timestamp(virtual_now())
    return [{**taint, "timeAdded": now} if taint.get("timeAdded") == "now" else taint for taint in taints]


def create_node(cluster: SimulatedCluster, body: JsonObject) -> None:
    """Create a node.

    If its managedFields are not given, the kubelet owns what it registers, and kubectl owns the taints.
    """
    if any(taint.get("timeAdded") == "now" for taint in kube.taints_of(body)):
        body = kube.with_spec(body, taints=_dated(kube.taints_of(body)))
    if "managedFields" not in body["metadata"]:
        labels = {"kubernetes.io/hostname": body["metadata"]["name"], **(body["metadata"].get("labels") or {})}
        body, now = kube.with_metadata(body, labels=labels), cluster.clock.timestamp()
        registered = kube.with_spec(body, taints=None)
        track(None, registered, _REGISTERED_BY, now, status_is_reset=True)
        body = kube.with_metadata(body, managedFields=registered["metadata"]["managedFields"])
        track(registered, body, _TAINTED_BY, now)
    cluster.put("nodes", body)


def _recreate_node(cluster: SimulatedCluster, name: str, taints: list[JsonObject]) -> None:
    """Create a node of the same name with another UID and only ``taints``; delete the old one if it exists."""
    last = cluster.recorder.latest("nodes", "", name)
    if last is None:
        raise Impossible(f"there has never been a node {name!r}")
    if cluster.node(name) is not None:
        cluster.delete("nodes", name)
    kept = ("name", "labels", "annotations")
    metadata = {key: value for key, value in last["metadata"].items() if key in kept}
    create_node(cluster, {"metadata": metadata, "spec": {"taints": taints} if taints else {}})
