"""When the circuit breaker opens, as operators configure it. Values only: ``breaker`` counts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeThreshold:
    """How many nodes are too many: a number, a share of all nodes in percent, or whichever is exceeded first.

    None: no such bound. A share counts from ``min_nodes`` nodes on, so that two nodes of three are not yet a surge.
    """

    number: int | None = None
    percent: float | None = None
    min_nodes: int = 3

    def exceeded_by(self, count: int, total: int) -> bool:
        """Return whether ``count`` of ``total`` nodes are more than it allows."""
        if self.number is not None and count > self.number:
            return True
        return self.percent is not None and count >= self.min_nodes and 100 * count > self.percent * total

    def too_few(self, count: int, total: int) -> bool:
        """Return whether the share alone would be too large: it does not count of so few nodes."""
        if self.percent is None or count >= self.min_nodes or self.exceeded_by(count, total):
            return False
        return 100 * count > self.percent * total

    def __str__(self) -> str:
        """Return the allowed number in words."""
        parts = [] if self.number is None else [f"{self.number}"]
        if self.percent is not None:
            parts.append(f"{self.percent:g} %")
        return " or ".join(parts) or "any number"

    def problems(self, what: str) -> list[str]:
        """Return everything that is wrong with it, one sentence each; ``what`` names it."""
        found = []
        if self.number is not None and self.number < 0:
            found.append(f"{what}: the number of nodes must not be negative, as {self.number} is")
        if self.percent is not None and not 0 <= self.percent < 100:
            found.append(f"{what}: the percentage must be at least 0 and less than 100, not {self.percent:g}")
        if self.min_nodes < 1:
            found.append(f"{what}: a percentage can count from 1 node on, not from {self.min_nodes}")
        return found


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When evictions stop until a person resets the breaker; off by default, as in Kubernetes.

    ``nodes``: how many newly tainted nodes within ``window_seconds`` it tolerates; ``lifecycle_nodes``: the same for
    nodes that stopped being ready within that time of each other, and are still not ready when an eviction because of
    that is about to be sent, None: any number. ``zone``: the same for the nodes of each zone, None: zones are not
    judged separately. ``without_control_plane``: both counts leave out control-plane nodes. ``max_due``: how many pods
    may be due at once, None: any number. ``settle_seconds``: how long each eviction waits, so that a surge of taints is
    noticed before its first pods are evicted; ``list_wait_seconds``: how long an eviction waits at most for the first
    lists of newly tainted nodes. ``closes_by_itself``: a breaker that a controller opened closes when its cause is
    gone; otherwise a person resets it.
    """

    enabled: bool = False
    nodes: NodeThreshold = NodeThreshold(percent=25.0)
    lifecycle_nodes: NodeThreshold | None = NodeThreshold(percent=55.0)
    zone: NodeThreshold | None = None
    without_control_plane: bool = False
    window_seconds: float = 300.0
    max_due: int | None = None
    settle_seconds: float = 2.0
    list_wait_seconds: float = 10.0
    closes_by_itself: bool = False

    def problems(self) -> list[str]:
        """Return everything that is wrong with its thresholds, one sentence each."""
        found = self.nodes.problems("breaker")
        if self.lifecycle_nodes is not None:
            found += self.lifecycle_nodes.problems("breaker, not-ready and unreachable nodes")
        if self.zone is not None:
            found += self.zone.problems("breaker, nodes of a zone (--breaker-zone)")
        return found
