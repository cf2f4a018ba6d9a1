"""What is said of a pod that is Terminating on a dead node: at first, with the taint out-of-service, and later."""

from typing import Any

import click

from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction_ctl.cli.failover_views import stuck_lines
from taint_eviction_ctl.failover.document import stuck_document
from taint_eviction_ctl.failover.findings import FailoverCase
from taint_eviction_ctl.failover.objects import read_node_lease, read_node_object, read_pod_object

NAME = "dead-node"
# 2030-01-01 03:52 UTC: the node has been silent for 45 minutes, and the pod Terminating for 40.
_NOW = 1_893_469_920.0
_TAINT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


def dead_node() -> str:
    """Return what is read at three moments, as one text with a heading for each."""
    stuck, tainted = _case(), _case(_TAINT)
    moments = {
        "status --stuck": stuck_document([stuck], [], [], _NOW),
        "status --stuck, with the taint": stuck_document([tainted], ["worker-7"], [], _NOW),
        "status --stuck, later": stuck_document([], ["worker-7"], [], _NOW),
    }
    lines: list[str] = []
    for name, document in moments.items():
        lines += [f"== {name}", *map(click.unstyle, stuck_lines(document))]
    return "\n".join([*lines, ""])


def _case(*taints: dict[str, str]) -> FailoverCase:
    def ago(minutes: float) -> str:
        return format_rfc3339(_NOW - 60 * minutes)

    asked: dict[str, Any] = {"deletionTimestamp": ago(39.5), "deletionGracePeriodSeconds": 30}
    metadata: dict[str, Any] = {
        "namespace": "shop",
        "name": "db-0",
        "uid": "a",
        "creationTimestamp": ago(9000),
        **asked,
    }
    metadata["ownerReferences"] = [{"kind": "StatefulSet", "name": "db", "uid": "b", "controller": True}]
    pod = {"metadata": metadata, "spec": {"nodeName": "worker-7"}, "status": {"phase": "Running"}}
    message = "Kubelet stopped posting node status."
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": ago(45), "message": message}
    node = {"metadata": {"name": "worker-7"}, "spec": {"taints": list(taints)}, "status": {"conditions": [ready]}}
    lease = {"spec": {"renewTime": f"{ago(45.7)[:-1]}.000000Z", "leaseDurationSeconds": 40}}
    return FailoverCase(read_pod_object(pod), _NOW, read_node_object(node), True, read_node_lease(lease))
