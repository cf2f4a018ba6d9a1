"""Which nodes that have NoExecute taints, or are not ready, the circuit breaker does not count, and why.
This is for people who expect another number. Like ``breaker_table``, it is computed on request and shows the present.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum

from taint_eviction.core.breaker import Breaker, is_by_people
from taint_eviction.core.instants import Moment
from taint_eviction.core.known_nodes import KnownNode
from taint_eviction.core.unready_nodes import Evictions


class NotCounted(Enum):
    """Why nodes are not counted, for people."""

    EXCLUDED = "they have the label node.kubernetes.io/exclude-disruption"
    CONTROL_PLANE = "they are of the control plane"
    UNLISTED = "their pods have not been listed yet"
    KNOWN = "they were tainted or lost before the last reset"
    OLD = "they were tainted or lost before the window"
    NO_EVICTION = "no pod has to leave them because of that"
    UNDATED = "their taints may be older than the controller, and do not say since when they are there"
    APART = "they were not lost together with those that are counted, or their pods came later"


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
        yield NotCounted.EXCLUDED if node.exempt else NotCounted.CONTROL_PLANE
    if node.name in breaker.unlisted:
        yield NotCounted.UNLISTED
    starts = [sighting.start_at for sighting in known.sightings.values()]
    began_at = max([*starts, *filter(None, [breaker.unready.lost.get(node.name)])], default=now.at)
    if began_at <= breaker.known_at(now):
        yield NotCounted.KNOWN
    elif began_at <= breaker.newest_old(now):
        yield NotCounted.OLD
    if not any(True for _ in evictions(node.name, False)):
        yield NotCounted.NO_EVICTION
    yield NotCounted.UNDATED if by_people else NotCounted.APART
