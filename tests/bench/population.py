"""The nodes and pods of a figure; the objects are the same on the embedded API server and on a real one."""

from dataclasses import asdict, dataclass
from typing import Any

TAINT_KEY = "bench.taint-eviction/drain"
LABEL = "bench.taint-eviction/run"
NAMESPACE = "default"

_POD_BYTES = 6_000
# An API server adds about this much to a pod.
_OWN_BYTES = 2_000

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Population:
    """The numbers of nodes and of pods, which are spread over the nodes in turn.

    ``seconds``: how long pods tolerate the taint of this benchmark; 0: not at all, None: indefinitely. ``spread``: the
    pods of a node tolerate it from ``seconds`` to ``spread`` seconds longer, evenly.
    """

    nodes: int
    pods: int
    seconds: int | None = 0
    spread: int = 0

    def scaled(self, scale: float) -> "Population":
        """Return a population of another size, with the same tolerations."""
        nodes, pods = max(3, round(self.nodes * scale)), max(6, round(self.pods * scale))
        return Population(nodes, pods, self.seconds, self.spread)

    def as_json(self) -> Json:
        """Return the arguments for ``Population(**json)``."""
        return asdict(self)

    def node_name(self, run: str, index: int) -> str:
        """Return the name of a node."""
        return f"{run}-node-{index}"

    def node_names(self, run: str) -> list[str]:
        """Return the names of all nodes."""
        return [self.node_name(run, index) for index in range(self.nodes)]

    def pods_on(self, nodes: int) -> int:
        """Return the number of pods on the first ``nodes`` nodes."""
        return sum(len(range(index, self.pods, self.nodes)) for index in range(nodes))

    def node(self, run: str, index: int, timestamp: str) -> Json:
        """Return a ready node."""
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
        """Return a bound pod."""
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
