"""What is known of the cluster: nodes and their taints, pods by node, and since when each has been so.

Keeps order among facts that come late, twice or out of order: by resourceVersion, by UID, and by when a question was
asked. Decides nothing: that is ``decision``'s and ``controller``'s business.

Invariants: one pod a key; a pod is listed under exactly the node it is bound to; a sighting lives as long as the taint
is seen on that node (same UID, key, value, effect, timeAdded).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from taint_eviction.core.decision import SeenTaint
from taint_eviction.core.facts import NodeGone, NodeSeen, NodesSwept, PodSeen, PodsSwept
from taint_eviction.core.instants import Moment, Sighting, TimeSource, sight
from taint_eviction.core.objects import NO_EXECUTE, NamespacedName, Node, Pod, PodRef, Taint

# UIDs of objects that are gone are remembered, so that a late fact does not bring them back; at most this many.
_REMEMBERED_GONE = 20_000


@dataclass(slots=True)
class KnownNode:
    """A node, and since when each of its NoExecute taints has been there."""

    node: Node
    seen_at: float
    sightings: dict[Taint, Sighting] = field(default_factory=dict)

    @property
    def taints(self) -> tuple[SeenTaint, ...]:
        """The NoExecute taints with their sightings, in the object's order."""
        return tuple(SeenTaint(taint, since) for taint, since in self.sightings.items())


@dataclass(slots=True)
class KnownPod:
    """A pod, and since when it has been bound to its node (None while it is not)."""

    pod: Pod
    seen_at: float
    bound: Sighting | None = None


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What a fact changed about a node's NoExecute taints.

    ``rewritten``: taints whose value was changed while they stayed, which starts their tolerances anew.
    """

    was_tainted: bool
    is_tainted: bool
    rewritten: tuple[Taint, ...] = ()


class Cluster:
    """What is known; fed by ``controller`` only."""

    def __init__(self) -> None:
        self.nodes: dict[str, KnownNode] = {}
        self.pods: dict[NamespacedName, KnownPod] = {}
        self._pods_by_node: dict[str, dict[NamespacedName, KnownPod]] = {}
        self._gone: dict[str, float] = {}

    def pod(self, ref: PodRef) -> KnownPod | None:
        """Return exactly this pod (key and UID), None if it is not known."""
        known = self.pods.get(ref.key)
        return known if known is not None and known.pod.ref.uid == ref.uid else None

    def pods_on(self, node_name: str) -> list[KnownPod]:
        """List the known pods that are bound to a node of this name."""
        return list(self._pods_by_node.get(node_name, {}).values())

    def taints_on(self, node_name: str | None) -> tuple[SeenTaint, ...] | None:
        """Return a node's NoExecute taints, None if no such node is known."""
        known = None if node_name is None else self.nodes.get(node_name)
        return None if known is None else known.taints

    def tainted_nodes(self) -> Iterator[str]:
        """Go through the names of the nodes that have a NoExecute taint."""
        return (name for name, known in self.nodes.items() if known.sightings)

    # Nodes

    def put_node(self, fact: NodeSeen, now: Moment) -> NodeChange | None:
        """Take in a node; None if the fact is old news or changes nothing about NoExecute taints."""
        node, known = fact.node, self.nodes.get(fact.node.name)
        last = None if known is None else (known.node.resource_version, known.seen_at)
        if self._is_old(node.uid, node.resource_version, last, fact.asked_at):
            return None
        if known is not None and known.node.uid != node.uid:
            self._remember_gone(known.node.uid, now)
        before = known.sightings if known is not None and known.node.uid == node.uid else {}
        sightings = {
            taint: _taint_sighting(node, taint, before.get(taint), fact, now)
            for taint in node.taints
            if taint.effect == NO_EXECUTE
        }
        changed = known is None or known.node.uid != node.uid or _starts(sightings) != _starts(known.sightings)
        was_tainted = known is not None and bool(known.sightings)
        self.nodes[node.name] = KnownNode(node, now.at, sightings)
        return NodeChange(was_tainted, bool(sightings), _rewritten(before, sightings)) if changed else None

    def drop_node(self, fact: NodeGone, now: Moment) -> KnownNode | None:
        """Forget a node and return it; None if it is not known, was recreated, or was seen after the question."""
        known = self.nodes.get(fact.name)
        if fact.uid is not None:
            self._remember_gone(fact.uid, now)
        if known is None or (fact.uid is not None and known.node.uid != fact.uid):
            return None
        if fact.asked_at is not None and known.seen_at > fact.asked_at:
            return None
        self._remember_gone(known.node.uid, now)
        return self.nodes.pop(fact.name)

    def absent_nodes(self, fact: NodesSwept) -> list[KnownNode]:
        """List the known nodes that a list of all nodes proves to be gone."""
        return [
            known
            for known in self.nodes.values()
            if known.node.uid not in fact.present and list_is_newer(fact, known.node.resource_version, known.seen_at)
        ]

    # Pods

    def put_pod(self, fact: PodSeen, now: Moment) -> tuple[KnownPod, KnownPod | None] | None:
        """Take in a pod; return what is known now and what it replaced (None: nothing). None if it is old news."""
        pod, before = fact.pod, self.pods.get(fact.pod.ref.key)
        last = None if before is None else (before.pod.resource_version, before.seen_at)
        if self._is_old(pod.ref.uid, pod.resource_version, last, fact.asked_at):
            return None
        bound = None
        if pod.node_name is not None:
            same = before is not None and before.pod.ref == pod.ref and before.pod.node_name == pod.node_name
            bound = before.bound if same and before is not None else None
            bound = bound or sight(now, pod.bound_at, pod.bound_time_source)
        if before is not None:
            self._unlist(before)
            if before.pod.ref.uid != pod.ref.uid:
                self._remember_gone(before.pod.ref.uid, now)
        known = self.pods[pod.ref.key] = KnownPod(pod, now.at, bound)
        if pod.node_name is not None:
            self._pods_by_node.setdefault(pod.node_name, {})[pod.ref.key] = known
        return known, before

    def drop_pod(self, ref: PodRef, now: Moment) -> KnownPod | None:
        """Forget a pod that is gone for good, and return it; None if exactly this pod is not known."""
        self._remember_gone(ref.uid, now)
        return self.release_pod(ref)

    def is_gone(self, ref: PodRef) -> bool:
        """Tell whether this pod is known to be gone for good: its deletion was seen, or its name has another bearer."""
        holder = self.pods.get(ref.key)
        return ref.uid in self._gone or (holder is not None and holder.pod.ref.uid != ref.uid)

    def release_pod(self, ref: PodRef) -> KnownPod | None:
        """Forget a pod that may still exist, and return it; None if exactly this pod is not known."""
        known = self.pod(ref)
        if known is not None:
            del self.pods[ref.key]
            self._unlist(known)
        return known

    def absent_pods(self, fact: PodsSwept) -> list[KnownPod]:
        """List the known pods that a list of pods (one node's, or all bound ones) proves to be gone."""
        if fact.node_name is None:
            candidates = [known for known in self.pods.values() if known.pod.node_name is not None]
        else:
            candidates = self.pods_on(fact.node_name)
        return [
            known
            for known in candidates
            if known.pod.ref.uid not in fact.present and list_is_newer(fact, known.pod.resource_version, known.seen_at)
        ]

    def _unlist(self, known: KnownPod) -> None:
        node_name = known.pod.node_name
        if node_name is None:
            return
        siblings = self._pods_by_node[node_name]
        del siblings[known.pod.ref.key]
        if not siblings:
            del self._pods_by_node[node_name]

    # Order

    def _is_old(
        self, uid: str, version: int | None, last: tuple[int | None, float] | None, asked_at: float | None
    ) -> bool:
        """Tell whether a fact about ``uid`` at ``version`` is older than the ``last`` of its name (version, seen at).

        Versions grow with time across UIDs, too, so a late fact about the previous bearer of a name is old as well. An
        answer with a lower version than what was seen before the question means that the API server's storage went
        back (was restored): then the answer is right.
        """
        gone_at = self._gone.get(uid)
        if gone_at is not None:
            if asked_at is None or asked_at <= gone_at:
                return True
            del self._gone[uid]
        if last is None:
            return False
        last_version, seen_at = last
        if version is None or last_version is None or version >= last_version:
            return False
        return asked_at is None or seen_at >= asked_at

    def _remember_gone(self, uid: str, now: Moment) -> None:
        self._gone[uid] = now.at
        if len(self._gone) > _REMEMBERED_GONE:
            del self._gone[next(iter(self._gone))]


def list_is_newer(fact: NodesSwept | PodsSwept, version: int | None, seen_at: float) -> bool:
    """Tell whether a list that lacks an object proves it gone, and is not merely older than the object's last sight."""
    if seen_at < fact.asked_at:
        return True
    if version is None or fact.resource_version is None:
        return False
    return version <= fact.resource_version


def _taint_sighting(node: Node, taint: Taint, before: Sighting | None, fact: NodeSeen, now: Moment) -> Sighting:
    """Keep a taint's sighting, or take a new one where it may have been removed and set again unseen."""
    dated = taint.time_added is not None
    object_time = taint.time_added if dated else node.taints_written_at
    if before is None:
        return sight(now, object_time, TimeSource.TIME_ADDED if dated else TimeSource.MANAGED_FIELDS)
    if object_time is None or (before.object_time is not None and object_time <= before.object_time):
        return before
    if fact.continuous and fact.asked_at is None:
        return Sighting(before.start_at, before.source, object_time)
    again = sight(now, object_time, TimeSource.MANAGED_FIELDS)
    return again if again.start_at > before.start_at else Sighting(before.start_at, before.source, object_time)


def _starts(sightings: dict[Taint, Sighting]) -> dict[Taint, float]:
    """Reduce sightings to what decides: a newer object time alone moves no deadline."""
    return {taint: since.start_at for taint, since in sightings.items()}


def _rewritten(before: dict[Taint, Sighting], after: dict[Taint, Sighting]) -> tuple[Taint, ...]:
    values = {(taint.key, taint.effect): taint.value for taint in before}
    return tuple(taint for taint in after if values.get((taint.key, taint.effect), taint.value) != taint.value)
