"""Nodes and pods as the JSON that reads as them."""

from datetime import UTC, datetime
from typing import Any

from taint_eviction.core.objects import Node, Pod, Taint, Toleration

CONDITION = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


def node_as_json(node: Node) -> dict[str, Any]:
    """Write what the tests of the runtime give to nodes: name, UID, readiness, taints and who wrote them."""
    metadata: dict[str, Any] = {"name": node.name, "uid": node.uid}
    if node.taints_written_at is not None:
        fields: dict[str, Any] = {"f:spec": {"f:taints": {}}}
        entry = {"manager": "kubectl-taint", "operation": "Update", "fieldsV1": fields}
        metadata["managedFields"] = [{**entry, "time": _time(node.taints_written_at)}]
    conditions = []
    if node.ready is not None and node.ready.since is not None:
        ready = {"type": "Ready", "status": node.ready.status, "lastTransitionTime": _time(node.ready.since)}
        conditions = [ready]
    spec = {"taints": [_taint(taint) for taint in node.taints]}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}


def pod_as_json(pod: Pod, graceful: bool = False) -> dict[str, Any]:
    """Write what the tests of the runtime give to pods; a DELETE removes it at once unless it is ``graceful``."""
    conditions = [CONDITION] if pod.marked else []
    if pod.bound_at is not None:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _time(pod.bound_at)}
        conditions = [*conditions, scheduled]
    metadata: dict[str, Any] = {**pod.ref.key._asdict(), "uid": pod.ref.uid, "labels": dict(pod.labels)}
    if pod.terminating:
        metadata["deletionTimestamp"] = _time(0.0)
    spec = {"nodeName": pod.node_name or "", "terminationGracePeriodSeconds": 30 if graceful else 0}
    tolerations = [_toleration(toleration) for toleration in pod.tolerations]
    return {"metadata": metadata, "spec": {**spec, "tolerations": tolerations}, "status": {"conditions": conditions}}


def _taint(taint: Taint) -> dict[str, Any]:
    fields = {"key": taint.key, "effect": taint.effect, "value": taint.value}
    return fields if taint.time_added is None else {**fields, "timeAdded": _time(taint.time_added)}


def _toleration(toleration: Toleration) -> dict[str, Any]:
    fields = {name: getattr(toleration, name) for name in ("key", "operator", "value", "effect")}
    return {**fields, "tolerationSeconds": toleration.toleration_seconds}


def _time(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).isoformat()
