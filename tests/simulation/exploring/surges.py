"""The oracle's part about the breaker: it must open for every surge that a process has seen, and for nothing smaller.

There are two counts. A process must count nodes whose taints are all new and that have a known pod from before them
which must be evicted; if the process found a node with undated taints, only a pod that would be gone if they were old
counts. A process may at most count nodes that were tainted, or written while tainted, within the window or shortly
before.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.simulation.exploring.excuses import Disturbances
from tests.simulation.exploring.out_of_service import OUT_OF_SERVICE
from tests.simulation.exploring.seen import Breach, shown
from tests.simulation.exploring.truth import (
    LIFECYCLE_KEYS,
    NEVER,
    NodeState,
    PodState,
    TaintIdentity,
    Truth,
    due_at,
    tolerated_for,
    tolerates,
)

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.control_state import Latch
from taint_eviction_lab.simulation.audit import Trace
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.virtual_clock import server_time

# A process acts on a surge at its next evaluation, within this time.
_LOOK_SECONDS = 0.6
# How old the states may be by which a process decides; how wrong a time of objects or clocks may be.
_OLD_SECONDS = 60.0
_OFF_SECONDS = 3.0
# How late a process's view of the API server's time is at most: a reset covers taints that came this soon after it.
_LATE_SECONDS = 1.0
# A state that has lasted this long is known to every process that evaluates.
_LONG_SECONDS = 20.0


@dataclass
class _Seen:
    """What one process has seen: the latest state of each object, with when; for a node, since when it is tainted.

    ``found``: by node, the taints without a date that it had when it was seen first. ``lost``: since when the process
    has seen that a node is not ready. ``began_at``: since when the process acts, as far as the oracle has noticed.
    """

    nodes: dict[str, tuple[float, NodeState]] = field(default_factory=dict)
    found: dict[str, set[TaintIdentity]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    pods: dict[str, tuple[float, PodState]] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    reset_at: float = -NEVER
    surge_at: float | None = None
    began_at: float = NEVER
    unsure: bool = False


class SurgeJudge:
    """Judges all processes.

    ``acts_since`` returns since when a process acts, and so evaluates the breaker. ``disturbances``: the faults; None:
    any.
    """

    def __init__(
        self,
        policy: BreakerPolicy,
        truth: Truth,
        acts_since: Callable[[str, float], float],
        breach: Breach,
        disturbances: Disturbances | None,
    ) -> None:
        self._policy = policy
        self._watched = disturbances is not None and disturbances.watched
        self._behind_seconds = 0.0 if disturbances is None else disturbances.behind_seconds
        self._pods_behind_seconds = 0.0 if disturbances is None else disturbances.pods_behind_seconds
        self._truth = truth
        self._acts_since = acts_since
        self._breach = breach
        self._seen: dict[str, _Seen] = {}

    def trace(self, trace: Trace) -> None:
        """Note what a process sees."""
        if not self._policy.enabled:
            return
        if not (bodies := shown(trace)):
            return
        seen = self._seen.setdefault(trace.process, _Seen())
        self._begin(seen, trace)
        for body in bodies:
            self._take_in(body["metadata"], seen, trace)
        self._look(seen, trace)

    def _take_in(self, metadata: dict[str, str], seen: _Seen, trace: Trace) -> None:
        version, state = int(metadata["resourceVersion"]), self._truth.versions.get(metadata["resourceVersion"])
        at = trace.at
        if state is None or version < seen.versions.get(metadata["uid"], 0):
            return
        if trace.call is CallKind.READ_NODE and isinstance(state, NodeState):
            _, before = seen.nodes.get(metadata["name"], (at, state))
            if not state.taints.items() <= before.taints.items():
                return  # It is for the watch to bring what may have been set again meanwhile.
        seen.versions[metadata["uid"]] = version
        if trace.call is CallKind.LIST_NODES and isinstance(state, NodeState):
            state = _as_known(state, seen.nodes.get(metadata["name"]))
        if isinstance(state, PodState):
            seen.pods[metadata["uid"]] = at, state
            return
        if state.lost_at is None:
            seen.lost.pop(metadata["name"], None)
        else:
            seen.lost.setdefault(metadata["name"], at)
        undated = {identity for identity in state.taints if not identity[2]}
        seen.found[metadata["name"]] = undated & seen.found.get(metadata["name"], undated)
        since, before = seen.nodes.get(metadata["name"], (at, state))
        seen.nodes[metadata["name"]] = (since if before.taints and before.uid == state.uid else at), state

    def _begin(self, seen: _Seen, trace: Trace) -> None:
        """Forget a surge that was over when the process that had seen it began to act."""
        began_at = self._acts_since(trace.process, trace.at)
        if began_at > trace.at or began_at == seen.began_at:
            return
        seen.began_at = began_at
        if seen.surge_at is not None and seen.surge_at < began_at and not self._must_see(seen, began_at):
            seen.surge_at = None

    def _look(self, seen: _Seen, trace: Trace) -> None:
        """Judge what is seen now; after an acting process has evaluated the surge, the window no longer moves."""
        since = NEVER if seen.surge_at is None else max(seen.surge_at, self._acts_since(trace.process, trace.at))
        looked = since + _LOOK_SECONDS < trace.at
        exceeded = self._must_see(seen, since if looked else trace.at)
        if looked:
            seen.unsure |= not exceeded and self._policy.closes_by_itself
        elif not exceeded:
            seen.surge_at = None
        elif seen.surge_at is None:
            seen.surge_at = trace.at

    def _must_see(self, seen: _Seen, at: float) -> bool:
        """Return whether what a process has seen must count as a surge, whatever else the process knows."""
        counts_from = max(at - self._policy.window_seconds, seen.reset_at + _LATE_SECONDS)
        new = []
        for name, (since, node) in seen.nodes.items():
            there = self._truth.node_now(name)
            if there is None or there.uid != node.uid or not node.taints:
                continue
            if min(node.taints.values()) > counts_from and self._has_who_goes(seen, name, since, node):
                new.append(node)
        new = [node for node in new if not node.has_condition or not _is_by_lifecycle(node)]
        return self._is_surge(*_counted(new), len(seen.nodes))

    def _has_who_goes(self, seen: _Seen, name: str, since: float, node: NodeState) -> bool:
        """Return whether a process has seen a pod that must be evicted, unchanged since before the node's taints."""
        before_at, found = min(node.taints.values()) - self._pods_behind_seconds, seen.found[name]
        return any(
            at >= since and pod.node == name and uid not in self._truth.gone and due_at(node, pod) < NEVER
            for uid, (at, pod) in seen.pods.items()
            if max(pod.bound_at, pod.edited_at) < before_at and _counts(found, node, pod)
        )

    def reset(self, trace: Trace, epoch: float) -> None:
        """Note that a process has read of a reset."""
        seen = self._seen.setdefault(trace.process, _Seen())
        # The person's own clock may be fast: a reset that is dated ahead counts from when it was first read.
        seen.reset_at = max(seen.reset_at, min(epoch - server_time(0.0), trace.at))
        if seen.surge_at is not None and seen.surge_at <= seen.reset_at + _OFF_SECONDS:
            seen.surge_at = None
            self._look(seen, trace)

    def check_sent(self, trace: Trace) -> None:
        """Check that the process that sends this call has seen no surge."""
        seen = self._seen.get(trace.process)
        if seen is None or seen.unsure:
            return
        self._begin(seen, trace)
        self._check_judged(seen, trace)
        self._check_outage(seen, trace)
        self._look(seen, trace)
        if seen.surge_at is None:
            return
        if trace.at > max(seen.surge_at, self._acts_since(trace.process, trace.at)) + _LOOK_SECONDS:
            self._breach("in a surge", trace, f"{trace.process} saw it at {seen.surge_at:.3f}")

    def blocks_bypassing(self, trace: Trace) -> bool:
        """Return whether more nodes than the threshold are newly out of service, as the process must have seen.

        A taint without a date may have been on its node for hours when the process found it there, even if its manager
        has just written the node: it is new only if a pod proves that. Otherwise each restart of a controller would
        hold up the pods of the next node that fails.
        """
        seen = self._seen.get(trace.process)
        if seen is None or self._acts_since(trace.process, trace.at) > trace.at - _LOOK_SECONDS:
            return False
        counts_from = max(trace.at - self._policy.window_seconds, seen.reset_at) + _OFF_SECONDS
        unready, count = False, 0
        for name, (_, node) in seen.nodes.items():
            states = self._truth.node_states(name, trace.at - _LOOK_SECONDS)
            if all(state == node and state.carries(OUT_OF_SERVICE) for state in states):
                began_at, identity = min((at, each) for each, at in node.taints.items() if each[0] == OUT_OF_SERVICE)
                is_new = identity not in seen.found[name] or self._is_proved(seen, name, node, identity)
                count += is_new and began_at > counts_from
                unready |= node.unready_at < NEVER
        return unready and _exceeds(self._policy.nodes, count, len(self._truth.nodes))

    def _is_proved(self, seen: _Seen, name: str, node: NodeState, identity: TaintIdentity) -> bool:
        """Return whether a pod that a process has seen proves that an undated taint of its node is new."""
        pods = (pod for uid, (_, pod) in seen.pods.items() if uid not in self._truth.gone and pod.node == name)
        return any(due_at(node, pod) < NEVER and _would_be_gone({identity}, node, pod) for pod in pods)

    def _check_judged(self, seen: _Seen, trace: Trace) -> None:
        """Check that no pod is evicted before the breaker has judged all nodes, listed or not, that were tainted before
        the pod was due.
        """
        if self._policy.closes_by_itself or self._acts_since(trace.process, trace.at) > trace.at:
            return
        pod = self._truth.pods[trace.uid][-1]
        due = due_at(self._truth.node_now(pod.node), pod)
        if trace.at > due + self._policy.list_wait_seconds:
            return
        counts_from = max(trace.at - self._policy.window_seconds, seen.reset_at + _OFF_SECONDS)
        new = []
        for name, (since, node) in seen.nodes.items():
            there = self._truth.node_now(name)
            if there is None or not there.taints or (there.uid, there.taints) != (node.uid, node.taints):
                continue
            known = since <= trace.at - _LOOK_SECONDS
            known = known and not (there.has_condition and _is_by_lifecycle(there))
            if known and counts_from < min(there.taints.values()) <= due and self._has_had_who_goes(seen, name, there):
                new.append(there)
        if self._is_surge(*_counted(new), len(seen.nodes)):
            self._breach("before it was judged", trace, f"{len(new)} nodes of {len(seen.nodes)} had been tainted")

    def _check_outage(self, seen: _Seen, trace: Trace) -> None:
        """Check that no pod is evicted because its node is lost while this process has seen too many lost nodes."""
        pod, threshold = self._truth.pods[trace.uid][-1], self._policy.lifecycle_nodes
        there = self._truth.node_now(pod.node)
        if self._policy.closes_by_itself or threshold is None or there is None or there.lost_at is None:
            return
        acting = max(self._acts_since(trace.process, trace.at), seen.reset_at)
        soon = trace.at - _LOOK_SECONDS
        if acting > soon or not there.taints or any(key not in LIFECYCLE_KEYS for key, _, _ in there.taints):
            return
        window = self._policy.window_seconds - _OFF_SECONDS
        if pod.bound_at > there.lost_at + window or pod.node not in seen.lost or there.lost_at <= seen.reset_at + 1.0:
            return
        count = 0
        for name, seen_at in seen.lost.items():
            node = self._truth.node_now(name)
            if node is None or node.lost_at is None or seen_at > soon or node.lost_at <= seen.reset_at + _LATE_SECONDS:
                continue
            count += abs(node.lost_at - there.lost_at) <= window
        if _exceeds(threshold, count, len(seen.nodes)):
            self._breach("in an outage", trace, f"{count} of {len(seen.nodes)} nodes were lost with {pod.node}")

    def _has_had_who_goes(self, seen: _Seen, name: str, node: NodeState) -> bool:
        """Return whether the node has a pod from before its taint that must be evicted, and a late watch has shown."""
        before_at, found = min(node.taints.values()) - self._pods_behind_seconds, seen.found[name]
        return any(
            pod.node == name and max(pod.since, pod.edited_at) < before_at and due_at(node, pod) < NEVER
            for _, pod in self._truth.living()
            if _counts(found, node, pod)
        )

    def check_opened(self, trace: Trace, latch: Latch) -> None:
        """Check that the breaker opened for a cause; with a threshold for due pods this is not judged."""
        if self._policy.max_due is not None:
            return
        opened_at = latch.since_epoch - server_time(0.0)
        # A taint never starts before the node was last seen without it.
        counts_from = opened_at - self._policy.window_seconds - _OFF_SECONDS - self._behind_seconds
        count, total = 0, 0
        for name in self._truth.nodes:
            states = self._truth.node_states(name, opened_at - _OLD_SECONDS)
            total += all(states)
            if self._watched and states[-1] is not None and states[-1].has_condition:
                states = self._truth.node_states(name, opened_at - _OFF_SECONDS - self._behind_seconds)
            count += any(state is not None and self._may_seem_new(name, state, counts_from) for state in states)
        thresholds = [self._policy.nodes, self._policy.lifecycle_nodes]
        if not any(one is not None and _exceeds(one, count, total) for one in thresholds):
            self._breach("opened for nothing", trace, f"at most {count} nodes of {total} were new: {latch.cause}")

    def _may_seem_new(self, name: str, node: NodeState, counts_from: float) -> bool:
        """Return whether a node may count: if it was tainted since then, or written where nothing else can be known.

        A new process may take the last write of a taint's manager for the taint's date only while there are pods that
        do not tolerate the taint at all: otherwise these pods would be gone long ago.
        """
        if node.has_condition and _is_by_lifecycle(node):
            return node.lost_at is not None
        if any(began_at > counts_from for began_at in node.taints.values()):
            return True
        if not node.taints or node.since <= counts_from:
            return False
        pods = [pod for uid in self._truth.pods for pod in self._truth.pod_states(uid, counts_from) if pod.node == name]
        return not self._watched or any(
            tolerated_for(pod, node, key, value) <= 0 for pod in pods for key, value, _ in node.taints
        )

    def cause(self, trace: Trace, latch: Latch, reset_at: float) -> str:
        """Return what keeps the breaker from closing by itself, "" for nothing: what has long been so counts.

        ``reset_at``: when the breaker was last closed before, by a person or by itself: taints of that time are known.
        Taints without a date that the process found at its start count only if a pod proves that they are new: the
        process has no other sign. So a breaker may close after a restart although its cause persists.
        """
        seen = self._seen.get(trace.process, _Seen())
        window_began_at = latch.since_epoch - server_time(0.0) - self._policy.window_seconds
        counts_from = max(window_began_at, reset_at + _LATE_SECONDS)
        long_ago = trace.at - _LONG_SECONDS
        still_there = []
        for name in self._truth.nodes:
            node = self._truth.node_now(name)
            if node is None or not node.taints or node.since > long_ago or min(node.taints.values()) <= counts_from:
                continue
            if node.has_condition and _is_by_lifecycle(node):
                continue
            pods = [pod for _, pod in self._truth.living() if pod.node == name and pod.since <= long_ago]
            found = seen.found.get(name, set())
            if any(due_at(node, pod) < NEVER and _counts(found, node, pod) for pod in pods):
                still_there.append(node)
        by_people, by_lifecycle = _counted(still_there)
        is_surge = self._is_surge(by_people, by_lifecycle, len(self._truth.nodes))
        return f"{by_people} and {by_lifecycle} nodes still count" if is_surge else ""

    def _is_surge(self, by_people: int, by_lifecycle: int, total: int) -> bool:
        lifecycle = self._policy.lifecycle_nodes
        return _exceeds(self._policy.nodes, by_people, total) or (
            lifecycle is not None and _exceeds(lifecycle, by_lifecycle, total)
        )


def _as_known(state: NodeState, before: tuple[float, NodeState] | None) -> NodeState:
    """Return a listed node as a process must read it. If an undated taint was removed and set again since the process
    last saw the node, a list does not show this.
    """
    if before is None or before[1].uid != state.uid:
        return state
    known = before[1].taints
    undated = {identity: known.get(identity, at) for identity, at in state.taints.items() if not identity[2]}
    return replace(state, taints={**state.taints, **undated})


def _counts(found: set[TaintIdentity], node: NodeState, pod: PodState) -> bool:
    """Return whether a pod that must be evicted makes its node count for a process that found these undated taints."""
    return not found or _would_be_gone(found, node, pod)


def _would_be_gone(found: set[TaintIdentity], node: NodeState, pod: PodState) -> bool:
    """Return whether a pod tolerates none of these taints and is older than the last write of the taints."""
    tolerated = any(tolerates(one, key, value) for key, value, _ in found for one in pod.tolerations)
    return not tolerated and not pod.held_seconds and pod.bound_at < node.written_at - _OFF_SECONDS


def _counted(nodes: list[NodeState]) -> tuple[int, int]:
    """Count the nodes with taints of people only, and those with taints of the node lifecycle controller only."""
    by_people = sum(all(not _is_dated_by_lifecycle(node, *taint) for taint in node.taints) for node in nodes)
    return by_people, sum(map(_is_by_lifecycle, nodes))


def _is_by_lifecycle(node: NodeState) -> bool:
    """Return whether all taints of a node are the node lifecycle controller's; then its condition counts, if any."""
    return all(_is_dated_by_lifecycle(node, *taint) for taint in node.taints)


def _is_dated_by_lifecycle(node: NodeState, key: str, value: str, added: str) -> bool:
    """Return whether the node lifecycle controller set a taint. It dates its taints, so people set an undated taint on
    a ready node.
    """
    is_ready = node.has_condition and node.lost_at is None
    return key in LIFECYCLE_KEYS and (bool(added) or not is_ready)


def _exceeds(threshold: NodeThreshold, count: int, total: int) -> bool:
    if threshold.number is not None and count > threshold.number:
        return True
    return threshold.percent is not None and count >= threshold.min_nodes and count * 100 > threshold.percent * total
