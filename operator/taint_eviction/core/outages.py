"""One outage, one countdown: which lifecycle taints keep their start when they are removed and set again. When
kube-controller-manager restarts or changes its leader, its node lifecycle controller treats every node as new: it
removes the NoExecute taints of nodes that are down, and sets them again a moment later, or minutes later if there are
many. The outage is the same. So a taint that comes back with the same key keeps its start, if meanwhile the node was
never ready, some other node was ready throughout, and not too much time passed. If no node was ready, the node
lifecycle controller removed its taints on purpose (it sets none while all zones are down), and their countdowns
restart. No pod is evicted early: in case of doubt, the countdown restarts. While a taint is absent, no pod is due
because of it.

Reference: ``processNoTaintBaseEviction`` and ``handleDisruption`` in pkg/controller/nodelifecycle.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from taint_eviction.core.facts import NodeSeen
from taint_eviction.core.instants import TRUNCATION_SECONDS, Moment, Sighting, TimeSource
from taint_eviction.core.objects import LIFECYCLE_KEYS, NO_EXECUTE, Node, Readiness, Taint


@dataclass(frozen=True, slots=True)
class _RemovedTaint:
    """A taint that was removed: its sighting, and the latest instant at which it is known to have been there."""

    since: Sighting
    there_at: float


class Outages:
    """Remembers the lifecycle taints that were removed, and since when each ready node has been ready.
    ``max_gap_seconds``: for how long a taint may be absent and still keep its start; 0: it never keeps it.
    """

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        # By node: since when this process has known it to be ready without a break. Exempt nodes are left out.
        self._ready_since: dict[str, float] = {}
        # By node, by key and value: the taints that were removed while the node was not ready, if it has not been ready
        # since.
        self._removed: dict[str, dict[tuple[str, str], _RemovedTaint]] = {}
        # By node: when a list after a gap showed such a taint again. Only the end of the list shows which nodes were
        # ready.
        self._undecided: dict[str, float] = {}

    def observe(self, fact: NodeSeen, before: Node | None, now: Moment) -> bool:
        """Note whether a node is ready; return whether it has been in one outage without a break since ``before``.
        ``before``: the node as it was known. None: it was not known, or another node had its name.
        """
        self._note_ready(fact, before, now)
        goes_on = before is not None and _goes_on(before.ready, fact)
        if not goes_on:
            self._removed.pop(fact.node.name, None)
        return goes_on

    def note_removed(
        self, name: str, before: Mapping[Taint, Sighting], after: Mapping[Taint, Sighting], at: float
    ) -> None:
        """Remember a node's lifecycle taints that are gone or have a later start; they were still there at the instant
        ``at``. If one lifecycle taint replaces the other, the new one starts its own countdown, and the old one is not
        remembered.
        """
        present = {taint.key for taint in after if taint.key in LIFECYCLE_KEYS}
        for taint, since in before.items():
            kept = after.get(taint)
            removed = taint.key in LIFECYCLE_KEYS and (kept is None or kept.start_at > since.start_at)
            if removed and present <= {taint.key}:
                self._removed.setdefault(name, {})[taint.key, taint.value] = _RemovedTaint(since, at)

    def may_go_on(self, name: str, taint: Taint, before: Mapping[Taint, Sighting]) -> bool:
        """Return whether a taint may continue another one that is, or was, on its node ``before``."""
        if taint.effect != NO_EXECUTE or taint.key not in LIFECYCLE_KEYS:
            return False
        alike = any((other.key, other.value) == (taint.key, taint.value) for other in before)
        return alike or (taint.key, taint.value) in self._removed.get(name, ())

    def resume(self, fact: NodeSeen, sightings: dict[Taint, Sighting], now: Moment) -> dict[Taint, Sighting]:
        """Return a node's sightings; taints that continue a remembered one get the start of the outage."""
        name = fact.node.name
        remembered = self._removed.get(name, {})
        if fact.after_gap and any((taint.key, taint.value) in remembered for taint in sightings):
            self._undecided.setdefault(name, now.at)
        return sightings if name in self._undecided else self._resumed(name, sightings, now.at)

    def resume_undecided(self, name: str, sightings: dict[Taint, Sighting]) -> dict[Taint, Sighting]:
        """Do the same for a node that is ``undecided``, once all nodes have been observed after the gap."""
        return self._resumed(name, sightings, self._undecided.pop(name))

    def recently_removed(self, name: str, at: float) -> list[Taint]:
        """Return the taints of a node that were removed not long ago, while it was not ready, as it has been since."""
        return [
            Taint(key, NO_EXECUTE, value)
            for (key, value), removed in self._removed.get(name, {}).items()
            if at - removed.there_at <= self._max_gap_seconds
        ]

    def undecided(self) -> list[str]:
        """Return the nodes for which it is undecided whether a taint keeps its start."""
        return list(self._undecided)

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self._ready_since.pop(name, None)
        self._removed.pop(name, None)
        self._undecided.pop(name, None)

    def _note_ready(self, fact: NodeSeen, before: Node | None, now: Moment) -> None:
        node = fact.node
        if node.excluded_from_disruption or node.ready is None or not node.ready.is_true:
            self._ready_since.pop(node.name, None)
            return
        known_since, dated = self._ready_since.get(node.name), node.ready.since
        dated_at = now.at if dated is None else now.instant_of(dated + TRUNCATION_SECONDS)
        if before is None:
            # A node that a watch adds is new; a node in a list may have been ready for long.
            listed = fact.after_gap or fact.asked_at is not None
            self._ready_since[node.name] = min(now.at, dated_at) if listed else now.at
        elif known_since is None or before.ready is None or before.ready.since != dated:
            self._ready_since[node.name] = now.at
        elif fact.after_gap:
            self._ready_since[node.name] = max(known_since, dated_at)

    def _resumed(self, name: str, sightings: dict[Taint, Sighting], at: float) -> dict[Taint, Sighting]:
        remembered = self._removed.get(name)
        if not remembered:
            return sightings
        resumed = dict(sightings)
        for taint, since in sightings.items():
            before = remembered.pop((taint.key, taint.value), None)
            if before is not None and before.since.start_at < since.start_at and self._is_one(name, before, at):
                resumed[taint] = Sighting(before.since.start_at, TimeSource.OUTAGE, since.object_time)
        if any(taint.key in LIFECYCLE_KEYS for taint in sightings):
            remembered.clear()  # If the other taint comes, it is a swap.
        return resumed

    def _is_one(self, name: str, before: _RemovedTaint, at: float) -> bool:
        """Return whether a taint that is back at this instant belongs to the outage during which it was removed."""
        if not 0 <= at - before.there_at <= self._max_gap_seconds or not self._max_gap_seconds:
            return False
        ready = self._ready_since.items()
        return any(since < before.there_at for witness, since in ready if witness != name)


def _goes_on(before: Readiness | None, fact: NodeSeen) -> bool:
    """Return whether a node that was not ready before has not been ready since.

    A watch would have shown that the node was ready. A list or a live read may hide several changes: the condition must
    be the same as before, and after a gap so must its lastTransitionTime.
    """
    after = fact.node.ready
    if before is None or after is None or before.is_true or after.is_true:
        return False
    if fact.after_gap and after.since is None:
        return False
    unwatched = fact.after_gap or fact.asked_at is not None
    return not unwatched or (before.status, before.since) == (after.status, after.since)
