"""What the circuit breaker counts, as a table of zones, so that people can judge whether it should be open.
The table always shows the present, also while the breaker is open. It costs a look at each node, so it is made only on
request. Bounded: a few zones, and a few names of each.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from taint_eviction.core.breaker import Breaker
from taint_eviction.core.breaker_policy import NodeThreshold
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.unready_nodes import Evictions

MAX_ZONES, MAX_NAMES = 20, 10


@dataclass(frozen=True, slots=True)
class ZoneRow:
    """A zone, "" for nodes without one; None: all nodes.

    ``nodes``: the nodes that count (see ``unready_nodes``); all other figures are about these. ``not_ready``: nodes
    that are not ready, for any time; ``newly_not_ready``: within the window. ``newly_tainted``: nodes with pods to
    evict that others than the node lifecycle controller tainted. ``counted``: nodes that were lost together and from
    which pods are to be evicted, due or not yet; ``names``: some of them. ``threshold``: the largest allowed number of
    these, None: any number.
    """

    zone: str | None
    nodes: int
    not_ready: int
    newly_not_ready: int
    newly_tainted: int
    counted: int
    threshold: NodeThreshold | None
    names: tuple[str, ...]


def zone_rows(breaker: Breaker, nodes: Mapping[str, KnownNode], evictions: Evictions, now: Moment) -> list[ZoneRow]:
    """Make the table: first the row of all nodes, then those of zones, the worst first."""
    unready, newest_old = breaker.unready, breaker.newest_old(now)
    tainted, _ = breaker.newly_tainted(nodes, now)
    counted = counted_nodes(breaker, nodes, evictions, now)
    columns = (
        tuple(unready.not_ready()),
        [name for name, lost_at in unready.lost.items() if lost_at > newest_old],
        tainted,
        counted,
    )

    def row(zone: str | None, total: int, counts: tuple[int, ...], names: Iterable[str]) -> ZoneRow:
        not_ready, newly_not_ready, newly_tainted, lost = counts
        some = tuple(sorted(names)[:MAX_NAMES])
        return ZoneRow(zone, total, not_ready, newly_not_ready, newly_tainted, lost, unready.threshold(zone), some)

    by_zone = [Counter(map(unready.zone_of, column)) for column in columns]
    rows = [
        row(zone, total, tuple(column[zone] for column in by_zone), [n for n in counted if unready.zone_of(n) == zone])
        for zone, total in unready.zones.items()
    ]
    rows.sort(key=lambda row: (-row.counted, -row.newly_not_ready, -row.newly_tainted, -row.not_ready, row.zone or ""))
    whole = tuple(column.total() - column[None] for column in by_zone)
    return [row(None, unready.total, whole, counted), *rows[:MAX_ZONES]]


def counted_nodes(
    breaker: Breaker, nodes: Mapping[str, KnownNode], evictions: Evictions, now: Moment
) -> frozenset[str]:
    """Return the nodes of the largest outage that causes evictions, and the nodes that count by their taints."""
    unready, known_at = breaker.unready, breaker.known_at(now)
    _, by_taint = breaker.newly_tainted(nodes, now)
    together = sorted(unready.together(known_at), key=lambda lost: -lost.count)
    worst = next((lost for lost in together if unready.has_caused(lost, evictions(lost.name, False))), None)
    return frozenset(by_taint if worst is None else by_taint | unready.names(worst, known_at))
