"""An oracle for when pods are evicted: it computes each answer from scratch, in a few plain lines.

It knows the true cluster, what the controller has observed of the cluster, and how the controller's work ended. It
shares no code with ``core.decision``, ``core.matching`` or ``core.cluster``.
"""

from dataclasses import dataclass, field, replace

from tests.unit.builders import EPOCH

from taint_eviction.core.control_state import ControlState
from taint_eviction.core.events import Eviction, Work
from taint_eviction.core.objects import MARK_SECONDS, Node, Pod, Taint


def key_of(work: Work) -> str:
    """Return what tells apart the work in flight: a pod may have a take-back and an eviction at the same time."""
    return work.ref.uid if isinstance(work, Eviction) else f"take-back of {work.ref.uid}"


@dataclass
class ExpectedDecisions:
    """The true cluster, by name (``nodes`` and ``pods``), and what the controller must decide about it."""

    now: float = 0.0
    version: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    taint_starts: dict[tuple[str, Taint], float] = field(default_factory=dict)
    watched: set[str] = field(default_factory=set)
    bound_since: dict[str, float] = field(default_factory=dict)
    retry_at: dict[str, float] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    in_flight: dict[str, Work] = field(default_factory=dict)
    outdated: set[str] = field(default_factory=set)
    control_state: ControlState = field(default_factory=ControlState)

    def next_version(self) -> int:
        """Return the next resource version; versions grow with time across all objects."""
        self.version += 1
        return self.version

    def node_told(self, name: str) -> None:
        """Note that the controller has observed a node: when its taints start, and whether its pods are watched."""
        node = self.nodes.get(name)
        here = {(node.uid, taint): taint for taint in node.taints} if node else {}
        uids = {uid for uid, _ in here}
        for old in [key for key in self.taint_starts if key not in here and (key[0] in uids or self.was_on(key, name))]:
            del self.taint_starts[old]
        for key, taint in here.items():
            first = self.now if taint.time_added is None else min(self.now, taint.time_added + 1 - EPOCH)
            self.taint_starts.setdefault(key, first)
        if here:
            self.watched.add(name)

    @staticmethod
    def was_on(key: tuple[str, Taint], name: str) -> bool:
        """Return whether a taint's start belongs to a node of this name, by the spelling of the node's UID."""
        return key[0].startswith(f"{name}-")

    def known(self) -> dict[str, Pod]:
        """Return the pods on watched nodes, by UID."""
        return {pod.ref.uid: pod for pod in self.pods.values() if pod.node_name in self.watched}

    def pods_told(self) -> None:
        """Note that the controller has observed all pods on watched nodes: a binding keeps its first start, and pods
        that are gone are forgotten.
        """
        known = self.known()
        self.bound_since = {uid: since for uid, since in self.bound_since.items() if uid in known}
        for uid, pod in known.items():
            first = self.now if pod.bound_at is None else min(self.now, pod.bound_at + 1 - EPOCH)
            self.bound_since.setdefault(uid, first)
        self.accepted &= set(known)
        due = self.due()
        self.retry_at = {uid: at for uid, at in self.retry_at.items() if uid in due or uid in self.in_flight}

    def leaves_at(self, pod: Pod) -> float | None:
        """Compute from scratch when a pod on a watched node must be evicted; None means never."""
        node = self.nodes.get(pod.node_name or "")
        if node is None or pod.terminating or pod.mirror:
            return None
        deadlines = []
        for taint in node.taints:
            fitting = [one for one in pod.tolerations if one.key in {"", taint.key}]
            seconds = fitting[0].toleration_seconds if fitting else 0
            if seconds not in (None, MARK_SECONDS):
                start = max(self.taint_starts[node.uid, taint], self.bound_since[pod.ref.uid])
                deadlines.append(start + max(0, seconds or 0))
        return min(deadlines, default=None)

    def wanted(self) -> dict[str, float]:
        """Return the deadline of each pod that must be evicted, by UID."""
        known = {uid: self.leaves_at(pod) for uid, pod in self.known().items() if uid not in self.accepted}
        return {uid: at for uid, at in known.items() if at is not None}

    def due(self) -> dict[str, float]:
        """Return the pods that are due now, with their deadlines."""
        return {uid: at for uid, at in self.wanted().items() if at <= self.now}

    def free(self) -> set[str]:
        """Return the UIDs of the pods that no pause holds."""
        if self.control_state.cluster is not None:
            return set()
        return {uid for uid, pod in self.known().items() if pod.node_name not in self.control_state.nodes}

    def takeable(self) -> set[str]:
        """Return the pods whose eviction may begin now: due, not in flight, not paused, and not before their retry."""
        due = (set(self.due()) - set(self.in_flight)) & self.free()
        return {uid for uid in due if self.retry_at.get(uid, self.now) <= self.now}

    def goes_on(self, key: str) -> bool:
        """Return whether work in flight may go on. An eviction may as long as the pod's deadline is the one for which
        the eviction began.
        """
        work = self.in_flight[key]
        uid = work.ref.uid
        due_at = self.due().get(uid)
        if not isinstance(work, Eviction):
            return due_at is None
        return due_at == work.decision.fire_at and uid in self.free() and uid not in self.outdated

    def evictions_in_flight(self) -> list[Eviction]:
        """Return the evictions that have not ended."""
        return [work for work in self.in_flight.values() if isinstance(work, Eviction)]

    def holder(self, uid: str) -> Pod | None:
        """Find the pod of this UID in the true cluster."""
        return next((pod for pod in self.pods.values() if pod.ref.uid == uid), None)

    def change(self, pod: Pod, *, terminating: bool | None = None, marked: bool | None = None) -> Pod:
        """Change a pod of the true cluster; the pod gets a new version."""
        changed = replace(
            pod,
            resource_version=self.next_version(),
            terminating=pod.terminating if terminating is None else terminating,
            marked=pod.marked if marked is None else marked,
        )
        self.pods[pod.ref.key.name] = changed
        return changed
