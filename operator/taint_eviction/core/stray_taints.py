"""Lifecycle taints on nodes that report that they are ready: told once, and otherwise taints like any other.

The node lifecycle controller sets ``not-ready`` and ``unreachable`` while a node is not ready, and removes them within
seconds when it is ready again. One that stays was set by somebody else, or that controller does not run. It evicts all
the same, so somebody must be told. The time counts from when this process saw it so: no other clock has a say.

Holds nobody back. Invariant: nothing is kept of a node that is gone, or of a taint that is.
"""

from collections.abc import Collection

from taint_eviction.core.effects import StrayTaint
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import LIFECYCLE_KEYS, Node, Taint

# So long a node may be ready before its lifecycle taint is no longer an ordinary sight.
_STRAY_SECONDS = 60.0


class StrayTaints:
    """Remembers lifecycle taints on ready nodes, by node and key; see the module."""

    def __init__(self) -> None:
        # Since when, until it is told.
        self._since: dict[tuple[str, str], tuple[float, Taint]] = {}
        self._told: set[tuple[str, str]] = set()

    def node_seen(self, node: Node, taints: Collection[Taint], now: Moment) -> None:
        """Take in a node as it is known now, with its NoExecute ``taints``."""
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
        """Return those that have been there for too long and were not told; to be asked often, by who leads."""
        if not self._since:
            return []
        due = [pair for pair, (since, _) in self._since.items() if now.at - since > _STRAY_SECONDS]
        self._told.update(due)
        return [StrayTaint(node_name, self._since.pop((node_name, key))[1]) for node_name, key in due]
