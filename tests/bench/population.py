"""Which nodes and pods a figure is measured with; the same objects on the embedded API server and on a real one."""

from dataclasses import asdict, dataclass
from typing import Any

TAINT_KEY = "bench.taint-eviction/drain"
LABEL = "bench.taint-eviction/run"
NAMESPACE = "default"

_POD_BYTES = 6_000
# What an API server adds to it is about this much.
_OWN_BYTES = 2_000

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Population:
    """So many nodes, and pods spread over them in turn.

    ``seconds``: how long pods tolerate the taint of this benchmark: 0 not at all, None indefinitely. ``spread``: the
    pods of a node get from ``seconds`` to so many seconds more, evenly.
    """

    nodes: int
    pods: int
    seconds: int | None = 0
    spread: int = 0

    def scaled(self, scale: float) -> "Population":
        """Return fewer or more of the same."""
        nodes, pods = max(3, round(self.nodes * scale)), max(6, round(self.pods * scale))
        return Population(nodes, pods, self.seconds, self.spread)

    def as_json(self) -> Json:
        """Return what ``Population(**json)`` makes the same of."""
        return asdict(self)

    def node_name(self, run: str, index: int) -> str:
        """Name a node."""
        return f"{run}-node-{index}"

    def node_names(self, run: str) -> list[str]:
        """Name all nodes."""
        return [self.node_name(run, index) for index in range(self.nodes)]

    def pods_on(self, nodes: int) -> int:
        """Count the pods on the first so many nodes."""
        return sum(len(range(index, self.pods, self.nodes)) for index in range(nodes))

    def node(self, run: str, index: int, timestamp: str) -> Json:
        """Make a node that is ready."""
        name = self.node_name(run, index)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {LABEL: run, "kubernetes.io/hostname": name}},
            "spec": {},
            "status": {
                "conditions": [{**ready, "lastHeartbeatTime": timestamp, "lastTransitionTime": timestamp}],
                "capacity": {"cpu": "32", "memory": "128Gi", "pods": "250"},
            },
        }

    def pod(self, run: str, index: int) -> Json:
        """Make a bound pod."""
        padding = {"name": "PADDING", "value": "x" * (_POD_BYTES - _OWN_BYTES)}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{run}-pod-{index:06d}", "namespace": NAMESPACE, "labels": {LABEL: run}},
            "spec": {
                "nodeName": self.node_name(run, index % self.nodes),
                "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "env": [padding]}],
                "tolerations": self._tolerations(index),
            },
        }

    def _tolerations(self, index: int) -> list[Json]:
        if self.seconds == 0:
            return []
        toleration: Json = {"key": TAINT_KEY, "operator": "Exists", "effect": "NoExecute"}
        if self.seconds is None:
            return [toleration]
        of_a_node = max(1, self.pods // self.nodes)
        return [{**toleration, "tolerationSeconds": self.seconds + index // self.nodes * self.spread // of_a_node}]
