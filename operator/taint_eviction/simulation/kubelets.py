"""Kubelets, as far as deletions need them: they end terminating pods of their node, unless they are frozen.

A pod goes when its kubelet has ended it and no finalizer holds it. Pods of nodes that do not exist have no kubelet.
"""

import asyncio
from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction.simulation import kubernetes_json as kube
from taint_eviction.simulation.cluster import Change, SimulatedCluster


class Kubelets:
    """One for each node; ``seconds`` is how long a pod takes to end."""

    def __init__(self, cluster: SimulatedCluster, seconds: float = 0.0) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._frozen: set[str] = set()
        # UIDs whose end is under way, and those that have ended and wait for their finalizers.
        self._ending: set[str] = set()
        self._ended: set[str] = set()
        cluster.subscribe(self._notice)

    def freeze(self, node_name: str) -> None:
        """Let this node's kubelet do nothing from now on: its pods stay Terminating."""
        self._frozen.add(node_name)

    def thaw(self, node_name: str) -> None:
        """Let it take up what it missed."""
        self._frozen.discard(node_name)
        for pod in list(self._cluster.pods.values()):
            self._consider(pod)

    def _notice(self, change: Change) -> None:
        if change.is_pod and change.event_type == "MODIFIED":
            self._consider(change.body)

    def _consider(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if not kube.is_terminating(pod):
            return
        seconds = 0.0 if uid in self._ended else self._seconds
        if uid not in self._ending and self._works(kube.node_name_of(pod)):
            self._ending.add(uid)
            key = NamespacedName(pod["metadata"]["namespace"], pod["metadata"]["name"])
            # Never within the write that is being told of: every subscriber hears of that one first.
            asyncio.get_running_loop().call_later(seconds, self._end, key, uid)

    def _works(self, node_name: str | None) -> bool:
        return node_name in self._cluster.nodes and node_name not in self._frozen

    def _end(self, key: NamespacedName, uid: str) -> None:
        self._ending.discard(uid)
        pod = self._cluster.pods.get(key)
        if pod is not None and pod["metadata"]["uid"] == uid and self._works(kube.node_name_of(pod)):
            self._ended.add(uid)
            if not pod["metadata"].get("finalizers"):
                self._cluster.remove_pod(key)
