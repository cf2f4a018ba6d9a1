"""Lifecycle taints on nodes that are ready: reported once, and otherwise handled like any taint.
The node lifecycle controller sets ``not-ready`` and ``unreachable`` while a node is not ready, and removes them within
seconds when it is ready again. If one stays, somebody else has set it, or that controller does not run. The taint still
evicts pods, so it is reported. The time counts from when this process saw the node ready with the taint; no other clock
is used.
This module holds no eviction. Invariant: it keeps nothing about nodes or taints that are gone.
"""

from collections.abc import Collection

from taint_eviction.core.effects import StrayTaint
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import LIFECYCLE_KEYS, Node, Taint

# For this long a lifecycle taint on a ready node is normal.
_STRAY_SECONDS = 60.0


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
