"""Which nodes are marked as out of service, so that pods leave them without further guards.
With the taint node.kubernetes.io/out-of-service, a person or a remediator states that the machine is off. The pod
garbage collector then force-deletes the node's pods and frees their volumes, but only pods that are terminating
already. So while the node is not ready, its pods are deleted at once (``EvictionPolicy.handling``). For these nodes the
breaker counts nodes only: it opens, and also holds these pods, when the taint is new on more nodes than its threshold
allows. Their pods need not be listed for that, and their evictions do not stabilize.

On a node that is ready it is a taint like any other, and was probably forgotten.

Reference: pkg/controller/podgc; https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/
"""

from collections.abc import Callable, Mapping

from taint_eviction.core.events import ReadyOutOfService
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.objects import OUT_OF_SERVICE, Taint


class OutOfServiceNodes:
    """The names of the nodes that have a taint with this key, with any effect."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        # Nodes that are ready in spite of the taint: those not yet reported, and those reported. Each is reported once.
        self._unreported: set[str] = set()
        self._reported: set[str] = set()

    def observe(self, name: str, known: KnownNode | None) -> None:
        """Observe a node as it is known; None: it is gone."""
        if known is None or not any(taint.key == OUT_OF_SERVICE for taint in known.node.taints):
            for names in (self._names, self._unreported, self._reported):
                names.discard(name)
            return
        self._names.add(name)
        if not known.live_node.is_ready:
            self._unreported.discard(name)
        elif name not in self._reported:
            self._unreported.add(name)

    def report(self) -> list[ReadyOutOfService]:
        """Return the nodes that are ready and were not reported; the leader calls this often."""
        if not self._unreported:
            return []
        names, self._unreported = sorted(self._unreported), set()
        self._reported.update(names)
        return [ReadyOutOfService(name) for name in names]

    def names(self) -> list[str]:
        """Return the names in order."""
        return sorted(self._names)

    def newly(
        self, nodes: Mapping[str, KnownNode], counts_from: float, may_be_old: Callable[[str, Taint], bool]
    ) -> int:
        """Count the nodes with a NoExecute taint of this key that began after ``counts_from``; 0 if all of them are
        ready. A taint that ``may_be_old`` does not count. If all these nodes are ready, the taint is like any other. If
        one is not ready, the ready ones count as well: somebody may have tainted nodes by mistake.
        """
        if not any(nodes[name].out_of_service for name in self._names):
            return 0
        return sum(
            any(
                taint.key == OUT_OF_SERVICE and since.start_at > counts_from and not may_be_old(name, taint)
                for taint, since in nodes[name].sightings.items()
            )
            for name in self._names
        )
