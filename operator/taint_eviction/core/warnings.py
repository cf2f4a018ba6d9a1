"""What people should know and no eviction waits for: told once, while it lasts. Pure; holds nothing and evicts nothing.

*Eviction loops.* A DaemonSet recreates a missing pod on the same node. If the pod tolerates the node's taint for a
limited time, or not at all, it is evicted there again, and so on (kubernetes#92960, kubernetes#122912). The evictions
of this process count: a new leader counts from zero. Bounded, in time (a loop without an eviction for ten minutes has
ended) and in number.

*Stray taints.* The node lifecycle controller sets ``not-ready`` and ``unreachable`` while a node is not ready, and
removes them within seconds when it is ready again. If one stays, somebody else has set it, or that controller does not
run. The taint still evicts pods, like any taint. The time counts from when this process saw the node ready with the
taint; no other clock is used. Nothing is kept about nodes or taints that are gone.
"""

from collections.abc import Collection
from typing import NamedTuple

from taint_eviction.core.events import LOOP_EVICTIONS, LOOP_SECONDS, StrayTaint
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import LIFECYCLE_KEYS, ControllerRef, Node, Taint

_DAEMON_SET = "DaemonSet"

# The number of pairs of a DaemonSet and a node that are remembered.
_MAX_REMEMBERED = 20_000

# For this long a lifecycle taint on a ready node is normal.
_STRAY_SECONDS = 60.0


class _Series(NamedTuple):
    """The latest evictions of one DaemonSet from one node, oldest first; ``told``: the loop has been reported."""

    evicted_at: tuple[float, ...]
    told: bool


class EvictionLoops:
    """Counts evictions by DaemonSet and node; see the module."""

    def __init__(self) -> None:
        # In the order of their latest evictions.
        self._series: dict[tuple[str, str, str], _Series] = {}

    def evicted(self, namespace: str, controller: ControllerRef | None, node_name: str, now: Moment) -> bool:
        """Note the eviction of a pod of ``controller``; return whether it shows a loop that has not been reported.

        The owner of a pod may name the DaemonSet of another namespace, whose loop that does not show.
        """
        if controller is None or controller.kind != _DAEMON_SET:
            return False
        self._forget_ended(now.at)
        key = namespace, controller.uid, node_name
        before = self._series.pop(key, None) or _Series((), told=False)
        latest = (*before.evicted_at, now.at)[-LOOP_EVICTIONS:]
        loops = len(latest) == LOOP_EVICTIONS and latest[-1] - latest[0] <= LOOP_SECONDS
        self._series[key] = _Series(latest, before.told or loops)
        if len(self._series) > _MAX_REMEMBERED:
            del self._series[next(iter(self._series))]
        return loops and not before.told

    def count(self, now: Moment) -> int:
        """Count the loops that have not ended."""
        self._forget_ended(now.at)
        return sum(series.told for series in self._series.values())

    def _forget_ended(self, now: float) -> None:
        while self._series:
            oldest = next(iter(self._series))
            if now - self._series[oldest].evicted_at[-1] <= LOOP_SECONDS:
                return
            del self._series[oldest]


class StrayTaints:
    """Remembers lifecycle taints on ready nodes, by node and key; see the module."""

    def __init__(self) -> None:
        # Since when, until it is reported.
        self._since: dict[tuple[str, str], tuple[float, Taint]] = {}
        self._told: set[tuple[str, str]] = set()

    def node_seen(self, node: Node, taints: Collection[Taint], now: Moment) -> None:
        """Observe a node as it is known now, with its NoExecute ``taints``."""
        present = {taint.key: taint for taint in taints}
        for key in LIFECYCLE_KEYS:
            pair = node.name, key
            if key not in present:
                self._forget(pair)
            elif not node.is_ready:
                self._since.pop(pair, None)
            elif pair not in self._told:
                self._since.setdefault(pair, (now.at, present[key]))

    def node_gone(self, name: str) -> None:
        """Forget a node."""
        for key in LIFECYCLE_KEYS:
            self._forget((name, key))

    def _forget(self, pair: tuple[str, str]) -> None:
        self._since.pop(pair, None)
        self._told.discard(pair)

    def tell(self, now: Moment) -> list[StrayTaint]:
        """Return the taints that have stayed for too long and were not reported; the leader calls this often."""
        if not self._since:
            return []
        due = [pair for pair, (since, _) in self._since.items() if now.at - since > _STRAY_SECONDS]
        self._told.update(due)
        return [StrayTaint(node_name, self._since.pop((node_name, key))[1]) for node_name, key in due]
