"""One outage, one countdown: which lifecycle taint goes on from where it was when it is set again.

Where kube-controller-manager restarts or changes its leader, its node lifecycle controller takes every node for new: it
removes the NoExecute taints of nodes that are down, and sets them again a moment later, or minutes later where they are
many. The outage is the same. So a taint that comes back with the same key keeps the start it had, if meanwhile the node
was never ready, some other node was ready throughout, and not too much time passed. If no node was, the node lifecycle
controller took its taints back on purpose (it sets none while all zones are down), and they start anew.

Never early: where anything is in doubt, the taint starts anew. While it is absent, nothing of it is due.

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
    """What is remembered of lifecycle taints that were removed, and since when which nodes are ready.

    ``max_gap_seconds``: for how long a taint may be absent and still go on; 0: it always starts anew.
    """

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        # By node: since when this process knows it to be ready without a break. Nodes that are exempt are not there.
        self._ready_since: dict[str, float] = {}
        # By node, by key and value: the taints that were removed while it was not ready, and has not been since.
        self._removed: dict[str, dict[tuple[str, str], _RemovedTaint]] = {}
        # By node: when a list after a gap showed such a taint again. Who was ready is known at the end of the list.
        self._undecided: dict[str, float] = {}

    def observe(self, fact: NodeSeen, before: Node | None, now: Moment) -> bool:
        """Take in whether a node is ready; return whether it was in an outage without a break since ``before``.

        ``before``: the node as it was known, None: not, or another node had its name.
        """
        self._note_ready(fact, before, now)
        goes_on = before is not None and _goes_on(before.ready, fact)
        if not goes_on:
            self._removed.pop(fact.node.name, None)
        return goes_on

    def note_removed(
        self, name: str, before: Mapping[Taint, Sighting], after: Mapping[Taint, Sighting], at: float
    ) -> None:
        """Remember the lifecycle taints of a node that are gone or start later; they were there ``at`` that instant.

        Where one is swapped for the other, the other starts a window of its own, and this one is not remembered.
        """
        present = {taint.key for taint in after if taint.key in LIFECYCLE_KEYS}
        for taint, since in before.items():
            kept = after.get(taint)
            removed = taint.key in LIFECYCLE_KEYS and (kept is None or kept.start_at > since.start_at)
            if removed and present <= {taint.key}:
                self._removed.setdefault(name, {})[taint.key, taint.value] = _RemovedTaint(since, at)

    def may_go_on(self, name: str, taint: Taint, before: Mapping[Taint, Sighting]) -> bool:
        """Tell whether a taint may be one with another that is, or was, on its node ``before``."""
        if taint.effect != NO_EXECUTE or taint.key not in LIFECYCLE_KEYS:
            return False
        alike = any((other.key, other.value) == (taint.key, taint.value) for other in before)
        return alike or (taint.key, taint.value) in self._removed.get(name, ())

    def resume(self, fact: NodeSeen, sightings: dict[Taint, Sighting], now: Moment) -> dict[Taint, Sighting]:
        """Return a node's sightings, with the start of the outage for taints that are one with those remembered."""
        name = fact.node.name
        remembered = self._removed.get(name, {})
        if fact.after_gap and any((taint.key, taint.value) in remembered for taint in sightings):
            self._undecided.setdefault(name, now.at)
        return sightings if name in self._undecided else self._resumed(name, sightings, now.at)

    def settle(self, name: str, sightings: dict[Taint, Sighting]) -> dict[Taint, Sighting]:
        """Do the same for a node that is ``undecided``, once all nodes are known as they are after the gap."""
        return self._resumed(name, sightings, self._undecided.pop(name))

    def absent(self, name: str, at: float) -> list[Taint]:
        """Return the taints of a node that were removed, and would go on if they were set again now."""
        return [
            Taint(key, NO_EXECUTE, value)
            for (key, value), removed in self._removed.get(name, {}).items()
            if self._is_one(name, removed, at)
        ]

    def undecided(self) -> list[str]:
        """Name the nodes for which it is open whether a taint goes on."""
        return list(self._undecided)

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self._ready_since.pop(name, None)
        self._removed.pop(name, None)
        self._undecided.pop(name, None)

    def _note_ready(self, fact: NodeSeen, before: Node | None, now: Moment) -> None:
        node = fact.node
        if node.exempt or node.ready is None or not node.ready.is_true:
            self._ready_since.pop(node.name, None)
            return
        known_since, dated = self._ready_since.get(node.name), node.ready.since
        dated_at = now.at if dated is None else now.instant_of(dated + TRUNCATION_SECONDS)
        if before is None:
            # A watch brings a node that is new, a list may bring one that has long been ready.
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
            remembered.clear()  # The other one, if it comes, is a swap.
        return resumed

    def _is_one(self, name: str, before: _RemovedTaint, at: float) -> bool:
        """Tell whether a taint that is back at this instant belongs to the outage that it was removed in."""
        if not 0 <= at - before.there_at <= self._max_gap_seconds or not self._max_gap_seconds:
            return False
        ready = self._ready_since.items()
        return any(since < before.there_at for witness, since in ready if witness != name)


def _goes_on(before: Readiness | None, fact: NodeSeen) -> bool:
    """Tell whether a node that was not ready before has not been ready since.

    A watch would have shown it. What a list or a live read shows may have changed more than once: the condition must be
    what it was, and after a gap its lastTransitionTime has to say so.
    """
    after = fact.node.ready
    if before is None or after is None or before.is_true or after.is_true:
        return False
    if fact.after_gap and after.since is None:
        return False
    unwatched = fact.after_gap or fact.asked_at is not None
    return not unwatched or (before.status, before.since) == (after.status, after.since)
