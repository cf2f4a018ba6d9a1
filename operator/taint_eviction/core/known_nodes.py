"""Which nodes are known, and since when each of their NoExecute taints has been there.

Keeps order among facts that come late, twice or out of order: by resourceVersion, by UID, and by when a request was
sent. Decides nothing.

Invariant: a sighting lives as long as the taint is seen on that node (same UID, key, value, effect, timeAdded). Its
start is never before the node was last seen without the taint, and moves only if a list after a gap shows that the
taint may have been removed and set again. Within one outage (``outages``) a lifecycle taint keeps its start in spite of
both.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from taint_eviction.core.decision import SeenTaint
from taint_eviction.core.facts import NodeGone, NodeSeen, NodesHeard, NodesSwept
from taint_eviction.core.gone_objects import GoneObjects, list_is_newer
from taint_eviction.core.instants import Moment, Sighting, TimeSource, sight
from taint_eviction.core.objects import NO_EXECUTE, NOT_READY, Node, Readiness, Taint
from taint_eviction.core.outages import Outages

# A node whose kubelet says for so long that it is not ready counts as lost, as one whose kubelet says nothing does.
_FALSE_SECONDS = 300.0


@dataclass(slots=True)
class KnownNode:
    """A node as it is known, and since when each of its NoExecute taints has been there. Another value takes its place
    when anything of it changes.

    ``asked_at``: when the latest live read or list that showed it was requested, None: only the watch has shown it.
    ``shutting_down``: its kubelet shuts it down gracefully, or did so until the node became ready again and the taint
    not-ready, which the node lifecycle controller removes some seconds later, is still there. ``ahead``: the node from
    a live read that is ahead of the watch, of which only the condition Ready and the labels count; None: there is none.
    ``unready_since``: since when its condition Ready has not been True, None: it is. ``status_since``: since when the
    latest known condition Ready has had its status, never too early.

    What follows from that for the node's pods: ``live_node``: the node with its latest known condition Ready, and its
    latest known labels. ``taints``: the NoExecute taints with their sightings, in the object's order.
    ``out_of_service``: see ``Node``. ``lost_at``: see ``lost_from``.
    """

    node: Node
    seen_at: float
    sightings: dict[Taint, Sighting] = field(default_factory=dict)
    asked_at: float | None = None
    shutting_down: bool = False
    ahead: Node | None = None
    unready_since: float | None = None
    status_since: float = math.inf
    live_node: Node = field(init=False)
    taints: tuple[SeenTaint, ...] = field(init=False)
    out_of_service: bool = field(init=False)
    lost_at: float = field(init=False)

    def __post_init__(self) -> None:
        node, ahead = self.node, self.ahead
        self.live_node = node if ahead is None else replace(node, ready=ahead.ready, labels=ahead.labels)
        self.taints = tuple([SeenTaint(taint, since) for taint, since in self.sightings.items()])
        self.out_of_service = self.live_node.is_out_of_service
        self.lost_at = lost_from(self)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What a fact changed about a node's NoExecute taints.

    ``rewritten``: taints whose value was changed while they stayed, which restarts the countdowns of pods.
    """

    was_tainted: bool
    is_tainted: bool
    rewritten: tuple[Taint, ...] = ()


class KnownNodes:
    """The known nodes by name; ``gone`` remembers those that no longer exist.

    ``outage_gap_seconds``: for how long a lifecycle taint may be absent and still keep its start, 0: it never does.
    """

    def __init__(self, gone: GoneObjects, outage_gap_seconds: float = 0.0) -> None:
        self.known: dict[str, KnownNode] = {}
        self._gone = gone
        self._outages = Outages(outage_gap_seconds)
        # How far the watch of nodes has come: the latest instant at which it was alive, and its version then.
        self._heard_at = float("-inf")
        self._heard_version: int | None = None

    def taints_on(self, name: str | None) -> tuple[SeenTaint, ...] | None:
        """Return a node's NoExecute taints; None if the node is not known."""
        known = None if name is None else self.known.get(name)
        return None if known is None else known.taints

    def recently_removed(self, name: str, now: Moment) -> list[Taint]:
        """Return the lifecycle taints of a node that were removed, and may be set again within one outage."""
        return self._outages.recently_removed(name, now.at)

    def tainted(self) -> Iterator[str]:
        """Yield the names of the nodes that have a NoExecute taint."""
        return (name for name, known in self.known.items() if known.sightings)

    def hear(self, fact: NodesHeard, now: Moment) -> None:
        """Note how far the watch of nodes has come."""
        self._heard_at, self._heard_version = now.at, fact.version

    def knows(self, name: str, uid: str, version: int) -> bool:
        """Return whether the node with this UID is known as of this version or a later one."""
        known = self.known.get(name)
        return known is not None and known.node.uid == uid and version <= self._version_of(known)

    def is_behind(self, node: Node) -> bool:
        """Return whether a read returned a version of the node that the watch has not brought yet."""
        known = self.known.get(node.name)
        same = known is not None and known.node.uid == node.uid
        return known is not None and same and (node.resource_version or 0) > self._version_of(known)

    def _version_of(self, known: KnownNode) -> int:
        """Return the version up to which a node is known; 0 if that is not known."""
        return max(known.node.resource_version or 0, self._heard_version or 0)

    def upsert(self, fact: NodeSeen, now: Moment) -> NodeChange | None:
        """Observe a node; None if the fact is outdated or changes nothing that matters for decisions on its pods."""
        node, known = fact.node, self.known.get(fact.node.name)
        last = None if known is None else (known.node.resource_version, known.seen_at)
        if self._gone.is_old(node.uid, node.resource_version, last, fact.asked_at):
            return None
        if fact.after_gap:
            self._heard_version = None  # Versions may have gone back meanwhile, if the storage was restored.
        was_tainted = known is not None and bool(known.sightings)
        same = known if known is not None and known.node.uid == node.uid else None
        if known is not None and same is None:
            self._gone.remember(known.node.uid, now)
            self._outages.forget(node.name)
        if same is not None and self._is_for_the_watch_to_bring(fact, same):
            return self._drop_absent(fact, same, now)
        ahead = None
        if same is not None and same.ahead is not None and fact.asked_at is None:
            is_ahead = (node.resource_version or 0) < (same.ahead.resource_version or 0)
            ahead = same.ahead if is_ahead else None
        before = {} if same is None else same.sightings
        absent_at, asked_at = self._last_seen(same), fact.asked_at
        is_one_outage = self._outages.observe(fact, None if same is None else same.node, now)
        sightings = {
            taint: _taint_sighting(node, taint, before.get(taint), absent_at, fact, now)
            for taint in node.taints
            if taint.effect == NO_EXECUTE
        }
        if is_one_outage:
            self._outages.note_removed(node.name, before, sightings, self._last_there(same))
            sightings = self._outages.resume(fact, sightings, now)
        if asked_at is None and same is not None:
            asked_at = same.asked_at
        shutting_down = _shutting_down(node, sightings, before=same is not None and same.shutting_down)
        unready_since = _unready_since(node, same, absent_at, now)
        status_since = _status_since((ahead or node).ready, same, sightings, absent_at, now)
        after = KnownNode(node, now.at, sightings, asked_at, shutting_down, ahead, unready_since, status_since)
        self.known[node.name] = after
        changed = same is None or _starts(sightings) != _starts(before) or _differ(same, after)
        return NodeChange(was_tainted, bool(sightings), _rewritten(before, sightings)) if changed else None

    def resume_outages(self) -> list[str]:
        """At the end of a list after a gap, let the taints that it showed again keep their start; return the nodes'
        names.
        """
        resumed = []
        for name in self._outages.undecided():
            known = self.known[name]
            sightings = self._outages.resume_undecided(name, known.sightings)
            if sightings != known.sightings:
                self.known[name] = replace(known, sightings=sightings)
                resumed.append(name)
        return resumed

    def _last_seen(self, known: KnownNode | None) -> float:
        """Return the latest instant at which a node was certainly as it is known: any change came later."""
        if known is None:
            return float("-inf")
        return self._heard_at if known.asked_at is None else max(self._heard_at, known.asked_at)

    def _last_there(self, known: KnownNode | None) -> float:
        """Return the latest instant at which the known state of a node was confirmed."""
        last_seen = self._last_seen(known)
        return last_seen if known is None or known.asked_at is not None else max(last_seen, known.seen_at)

    def _is_for_the_watch_to_bring(self, fact: NodeSeen, known: KnownNode) -> bool:
        """Return whether an answer is ahead of the watch and shows a taint that may have been set again meanwhile.

        Without ``timeAdded`` only the watch can show that, and its events would be dropped as older than the answer.
        The same holds for the events of this and all other nodes that show whether an outage continued meanwhile.
        """
        if fact.asked_at is None or fact.after_gap or not self.is_behind(fact.node):
            return False
        return any(
            taint.time_added is None
            if taint in known.sightings
            else self._outages.may_go_on(fact.node.name, taint, known.sightings)
            for taint in fact.node.taints
        )

    def _drop_absent(self, fact: NodeSeen, known: KnownNode, now: Moment) -> NodeChange | None:
        """Observe only which taints are absent from an answer that is ahead of the watch: these evict no pod any more.
        Also observe whether the node is ready, which decides how pods leave a node that is out of service, or lost, and
        its labels, which decide on rules and pauses.
        """
        node, asked_at = fact.node, known.asked_at
        sightings = {taint: since for taint, since in known.sightings.items() if taint in node.taints}
        status_since = _status_since(node.ready, known, sightings, self._last_seen(known), now)
        fewer = len(sightings) < len(known.sightings)
        if fewer:
            self._outages.note_removed(node.name, known.sightings, sightings, self._last_there(known))
            if all(taint in sightings for taint in node.taints if taint.effect == NO_EXECUTE):
                asked_at = fact.asked_at
        after = replace(known, sightings=sightings, asked_at=asked_at, ahead=node, status_since=status_since)
        self.known[node.name] = after
        return NodeChange(bool(known.sightings), bool(sightings)) if fewer or _differ(known, after) else None

    def drop(self, fact: NodeGone, now: Moment) -> KnownNode | None:
        """Forget a node and return it; None if it is not known, was recreated, or was seen after the request."""
        known = self.known.get(fact.name)
        if fact.uid is not None:
            self._gone.remember(fact.uid, now)
        if known is None or (fact.uid is not None and known.node.uid != fact.uid):
            return None
        if fact.asked_at is not None and known.seen_at > fact.asked_at:
            return None
        self._gone.remember(known.node.uid, now)
        self._outages.forget(fact.name)
        return self.known.pop(fact.name)

    def absent(self, fact: NodesSwept) -> list[KnownNode]:
        """List the known nodes that a list of all nodes proves to be gone."""
        return [
            known
            for known in self.known.values()
            if known.node.uid not in fact.present and list_is_newer(fact, known.node.resource_version, known.seen_at)
        ]


def _taint_sighting(
    node: Node, taint: Taint, before: Sighting | None, absent_at: float, fact: NodeSeen, now: Moment
) -> Sighting:
    """Keep a taint's sighting, or make a new one if the taint may have been removed and set again unseen.
    An answer beside an open watch does not change ``object_time`` either: a list after the next gap is compared
    with what the watch has shown.
    """
    dated = taint.time_added is not None
    object_time = taint.time_added if dated else node.taints_written_at
    if before is None:
        return sight(now, object_time, TimeSource.TIME_ADDED if dated else TimeSource.MANAGED_FIELDS, absent_at)
    if object_time is None or (before.object_time is not None and object_time <= before.object_time):
        return before
    if fact.after_gap:
        again = sight(now, object_time, TimeSource.MANAGED_FIELDS)
        if again.start_at > before.start_at:
            return again
    elif fact.asked_at is not None:
        return before
    return Sighting(before.start_at, before.source, object_time)


def _unready_since(node: Node, before: KnownNode | None, absent_at: float, now: Moment) -> float | None:
    """Return since when a node has not been ready; it may have changed from False to Unknown since."""
    if node.is_ready:
        return None
    if before is not None and before.unready_since is not None:
        return before.unready_since
    since = None if node.ready is None else node.ready.since
    return sight(now, since, TimeSource.FIRST_SIGHT, absent_at).start_at


def _status_since(
    ready: Readiness | None, before: KnownNode | None, sightings: dict[Taint, Sighting], absent_at: float, now: Moment
) -> float:
    """Return since when a condition Ready has had its status; ``before``: what was known of the node.

    The kubelet dates it, and its clock may be behind: it is no older than the taint not-ready, which follows from it.
    """
    if ready is None:
        return math.inf
    last = None if before is None else before.live_node.ready
    if before is not None and last is not None and (last.status, last.since) == (ready.status, ready.since):
        since = before.status_since
    else:
        since = sight(now, ready.since, TimeSource.FIRST_SIGHT, absent_at).start_at
    return max([since, *(each.start_at for taint, each in sightings.items() if taint.key == NOT_READY)])


def _shutting_down(node: Node, sightings: dict[Taint, Sighting], *, before: bool) -> bool:
    """Return whether the kubelet shuts the node down gracefully; ``before``: it did so far. See ``KnownNode``."""
    ready_again = before and node.is_ready and any(taint.key == NOT_READY for taint in sightings)
    return node.is_shutting_down or ready_again


def lost_from(known: KnownNode) -> float:
    """Return from when on a node counts as lost if it stays as it is; infinite: it does not."""
    match None if known.live_node.ready is None else known.live_node.ready.status:
        case "Unknown":
            return -math.inf
        case "False":
            return known.status_since + _FALSE_SECONDS
        case _:
            return math.inf


def _differ(before: KnownNode, after: KnownNode) -> bool:
    """Return whether pods of a node are handled differently, apart from its taints."""
    return (
        before.live_node.labels != after.live_node.labels
        or before.shutting_down != after.shutting_down
        or before.out_of_service != after.out_of_service
        or before.lost_at != after.lost_at
    )


def _starts(sightings: dict[Taint, Sighting]) -> dict[Taint, float]:
    """Reduce sightings to their starts, which decide: a newer object time alone moves no deadline."""
    return {taint: since.start_at for taint, since in sightings.items()}


def _rewritten(before: dict[Taint, Sighting], after: dict[Taint, Sighting]) -> tuple[Taint, ...]:
    values = {(taint.key, taint.effect): taint.value for taint in before}
    return tuple(taint for taint in after if values.get((taint.key, taint.effect), taint.value) != taint.value)
