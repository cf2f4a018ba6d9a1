"""Objects by the thousand for benchmarks and the demo: nodes, and pods of a given size, running on them."""

from __future__ import annotations

from collections.abc import Iterator

from .clock import WallClock
from .kubelet import running
from .registry import Registry, WriteOptions
from .resources import RESOURCES
from .status import JsonObject

_WRITE = WriteOptions(manager="simulation", keep_status=True)
_NAMESPACES = 10


def node_object(name: str, timestamp: str) -> JsonObject:
    """A node that is ready."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": timestamp}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {},
        "status": {
            "conditions": [{**ready, "lastHeartbeatTime": timestamp, "message": "kubelet is posting ready status"}],
            "addresses": [{"type": "Hostname", "address": name}],
            "capacity": {"cpu": "32", "memory": "128Gi", "pods": "250"},
            "nodeInfo": {"kubeletVersion": "v1.36.0", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }


def pod_object(namespace: str, name: str, node: str, *, pod_bytes: int = 0, timestamp: str = "") -> JsonObject:
    """A pod that runs on a node; padded by an environment variable to about `pod_bytes` of JSON."""
    container: JsonObject = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    labels = {"app": name.rpartition("-")[0] or name}
    pod: JsonObject = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "containers": [container]},
    }
    # What the server itself will add is about this much.
    padding = pod_bytes - 2_000
    if padding > 0:
        container["env"] = [{"name": "PADDING", "value": "x" * padding}]
    return running(pod, timestamp) if timestamp else pod


def populate(registry: Registry, *, nodes: int, pods: int, pod_bytes: int = 6_000) -> None:
    """Creates node-0… and pods spread over them in turn, in ten namespaces; blocks until all are there."""
    clock: WallClock = registry.clock
    timestamp = clock.timestamp()
    names = [f"node-{index}" for index in range(nodes)]
    for name in names:
        registry.create(RESOURCES["nodes"], "", node_object(name, timestamp), _WRITE)
    for pod in _pods(names, pods, pod_bytes, timestamp):
        registry.create(RESOURCES["pods"], pod["metadata"]["namespace"], pod, _WRITE)


def _pods(nodes: list[str], pods: int, pod_bytes: int, timestamp: str) -> Iterator[JsonObject]:
    for index in range(pods):
        # Namespace by namespace, so that keys arrive nearly in order.
        namespace = f"ns-{index * _NAMESPACES // max(1, pods)}"
        node = nodes[index % len(nodes)] if nodes else ""
        yield pod_object(namespace, f"pod-{index:06d}", node, pod_bytes=pod_bytes, timestamp=timestamp)
