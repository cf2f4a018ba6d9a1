"""What the circuit breaker counts: against each of its thresholds, and as a table of zones, so that people can judge
whether it should be open; and which nodes it does not count, and why, for people who expect another number.
All of it shows the present, also while the breaker is open. It costs a look at each node, so it is made only on
request. Bounded: a few zones, and a few names of each.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from taint_eviction.core.breaker import Breaker, TaintSurge, is_by_people
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
    unready, counts_from = breaker.unready, breaker.counts_from(now)
    tainted, _ = breaker.newly_tainted(nodes, now)
    counted = counted_nodes(breaker, nodes, evictions, now)
    columns = (
        tuple(unready.not_ready()),
        [name for name, lost_at in unready.lost.items() if lost_at > counts_from],
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
    unready, acknowledged_at = breaker.unready, breaker.acknowledged_at(now)
    _, by_taint = breaker.newly_tainted(nodes, now)
    together = sorted(unready.together(acknowledged_at), key=lambda lost: -lost.count)
    worst = next((lost for lost in together if unready.has_caused(lost, evictions(lost.name, False))), None)
    return frozenset(by_taint if worst is None else by_taint | unready.names(worst, acknowledged_at))


# Which nodes are not counted


class NotCounted(Enum):
    """Why nodes are not counted, for people."""

    EXCLUDED = "excluded by the label node.kubernetes.io/exclude-disruption"
    CONTROL_PLANE = "part of the control plane"
    UNLISTED = "pods not listed yet"
    KNOWN = "tainted or lost before the last reset"
    OLD = "tainted or lost before the window"
    NO_EVICTION = "no pod has to leave because of that"
    UNDATED = "no taint says since when it is there: it may be older than the controller"
    APART = "not lost together with those that are counted, or pods came later"


def uncounted_nodes(
    breaker: Breaker, nodes: Mapping[str, KnownNode], counted: Collection[str], evictions: Evictions, now: Moment
) -> dict[NotCounted, list[str]]:
    """Return, by reason, the tainted or unready nodes that are not in ``counted`` and not newly tainted by people."""
    by_people, _ = breaker.newly_tainted(nodes, now)
    found: dict[NotCounted, list[str]] = {}
    for name, known in nodes.items():
        if name not in counted and name not in by_people and (known.sightings or _is_lost(known)):
            reason = next(_reasons(breaker, known, evictions, now))
            found.setdefault(reason, []).append(name)
    return {reason: sorted(found[reason]) for reason in NotCounted if reason in found}


def _is_lost(known: KnownNode) -> bool:
    return known.node.ready is not None and not known.node.ready.is_true


def _reasons(breaker: Breaker, known: KnownNode, evictions: Evictions, now: Moment) -> Iterator[NotCounted]:
    """Yield the reasons why a node is not counted; the first is the one to report."""
    node, by_people = known.node, any(is_by_people(taint, known.node) for taint in known.sightings)
    if not by_people and breaker.unready.zone_of(node.name) is None:
        yield NotCounted.EXCLUDED if node.excluded_from_disruption else NotCounted.CONTROL_PLANE
    if node.name in breaker.unlisted:
        yield NotCounted.UNLISTED
    starts = [sighting.start_at for sighting in known.sightings.values()]
    began_at = max([*starts, *filter(None, [breaker.unready.lost.get(node.name)])], default=now.at)
    if began_at <= breaker.acknowledged_at(now):
        yield NotCounted.KNOWN
    elif began_at <= breaker.counts_from(now):
        yield NotCounted.OLD
    if not any(True for _ in evictions(node.name, False)):
        yield NotCounted.NO_EVICTION
    yield NotCounted.UNDATED if by_people else NotCounted.APART


# Each threshold


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that opens the breaker, as it is now.

    ``counted`` of ``total``: nodes newly tainted by people, nodes lost together, the same in the worst zone, nodes
    newly out of service, or due pods that no person knows of. ``threshold``: how many it tolerates. ``zone``: the name
    of that zone. ``uncounted``: how many more tainted or lost nodes do not count, by reason.
    """

    kind: Literal["tainted", "lost", "zone", "out of service", "due"]
    counted: int
    total: int
    threshold: NodeThreshold
    uncounted: Mapping[NotCounted, int]
    zone: str | None = None

    @property
    def exceeded(self) -> bool:
        """Return whether there are too many. A breaker opens because of lost nodes only once a pod of theirs is due."""
        return self.threshold.exceeded_by(self.counted, self.total)


def criteria(
    breaker: Breaker,
    surge: TaintSurge,
    zones: Iterable[ZoneRow],
    uncounted: Mapping[NotCounted, Collection[str]],
    nodes: Mapping[str, KnownNode],
) -> list[Criterion]:
    """Return what opens a breaker of this policy; nodes of a zone, or out of service, only if some count.

    ``surge``, ``zones``, ``uncounted``: what the other functions have found.
    """
    policy, by_people = breaker.policy, {reason: _by_people(names, nodes) for reason, names in uncounted.items()}
    others = {reason: len(names) - by_people[reason] for reason, names in uncounted.items()}
    found = [Criterion("tainted", surge.nodes, surge.total, policy.nodes, _some(by_people))]
    if policy.lifecycle_nodes is not None:
        lost = surge.lifecycle_nodes, breaker.unready.total
        found.append(Criterion("lost", *lost, policy.lifecycle_nodes, _some(others)))
    worst = next((row for row in zones if row.zone and row.counted), None)
    if policy.zone is not None and worst is not None:
        found.append(Criterion("zone", worst.counted, worst.nodes, policy.zone, {}, worst.zone))
    if surge.out_of_service:
        found.append(Criterion("out of service", surge.out_of_service, surge.total, policy.nodes, {}))
    if policy.max_due is not None:
        unknown = max(0, surge.due - int(min(surge.due, breaker.known_due)))
        found.append(Criterion("due", unknown, surge.due, NodeThreshold(policy.max_due), {}))
    return found


def _by_people(names: Iterable[str], nodes: Mapping[str, KnownNode]) -> int:
    return sum(any(is_by_people(taint, nodes[name].node) for taint in nodes[name].sightings) for name in names)


def _some(counts: Mapping[NotCounted, int]) -> dict[NotCounted, int]:
    return {reason: count for reason, count in counts.items() if count}
