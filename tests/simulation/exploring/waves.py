"""Judges the circuit breaker by what really happened: it opens for every wave that a process has seen, and for no less.

Two counts. What a process must count: nodes all of whose taints are new and that have a pod to go which it knows. What
it may count at most: nodes that were tainted, or written while tainted, within the window or shortly before.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.exploring.told import Breach, shown
from tests.simulation.exploring.truth import NEVER, NodeState, PodState, Truth, due_at

from taint_eviction.core.breaker import BreakerPolicy, NodeThreshold
from taint_eviction.core.orders import Latch
from taint_eviction.simulation.audit import Trace
from taint_eviction.simulation.virtual_clock import server_time

_LIFECYCLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# A wave that is seen is acted on at the next look.
_LOOK_SECONDS = 0.6
# How old may be what a process goes by; how far a time that is told by objects or clocks may be off.
_OLD_SECONDS = 60.0
_OFF_SECONDS = 3.0
# What has been so for so long is known to whoever looks.
_LONG_SECONDS = 20.0


@dataclass
class _Seen:
    """What one process has seen: the latest of each object, with when it was; a node's also since when tainted.

    ``began_at``: since when it acts, as far as has been noticed.
    """

    nodes: dict[str, tuple[float, NodeState]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    pods: dict[str, tuple[float, PodState]] = field(default_factory=dict)
    reset_at: float = -NEVER
    wave_at: float | None = None
    began_at: float = NEVER
    unsure: bool = False


class WaveJudge:
    """Judges all processes; ``acts_since`` tells since when one acts, and so looks out for waves."""

    def __init__(
        self, policy: BreakerPolicy, truth: Truth, acts_since: Callable[[str, float], float], breach: Breach
    ) -> None:
        self._policy = policy
        self._truth = truth
        self._acts_since = acts_since
        self._breach = breach
        self._seen: dict[str, _Seen] = {}

    def trace(self, trace: Trace) -> None:
        """Take in what a process is shown."""
        if not self._policy.enabled:
            return
        if not (bodies := shown(trace)):
            return
        seen = self._seen.setdefault(trace.process, _Seen())
        self._begin(seen, trace)
        for body in bodies:
            self._take_in(body["metadata"], seen, trace.at)
        self._look(seen, trace)

    def _take_in(self, metadata: dict[str, str], seen: _Seen, at: float) -> None:
        version, state = int(metadata["resourceVersion"]), self._truth.versions.get(metadata["resourceVersion"])
        if state is None or version < seen.versions.get(metadata["uid"], 0):
            return
        seen.versions[metadata["uid"]] = version
        if isinstance(state, PodState):
            seen.pods[metadata["uid"]] = at, state
            return
        since, before = seen.nodes.get(metadata["name"], (at, state))
        seen.nodes[metadata["name"]] = (since if before.taints and before.uid == state.uid else at), state

    def _begin(self, seen: _Seen, trace: Trace) -> None:
        """Forget a wave that was over when the process that had seen it before began to act."""
        began_at = self._acts_since(trace.process, trace.at)
        if began_at > trace.at or began_at == seen.began_at:
            return
        seen.began_at = began_at
        if seen.wave_at is not None and seen.wave_at < began_at and not self._must_see(seen, began_at):
            seen.wave_at = None

    def _look(self, seen: _Seen, trace: Trace) -> None:
        """Take in what is seen now; once an acting process has looked, the window stands still."""
        since = NEVER if seen.wave_at is None else max(seen.wave_at, self._acts_since(trace.process, trace.at))
        looked = since + _LOOK_SECONDS < trace.at
        exceeded = self._must_see(seen, since if looked else trace.at)
        if looked:
            seen.unsure |= not exceeded and self._policy.closes_by_itself
        elif not exceeded:
            if seen.wave_at is not None and self._policy.closes_by_itself:
                # It may have opened and closed again: what had been there by then it does not count any more.
                seen.reset_at = max(seen.reset_at, trace.at + _LOOK_SECONDS)
            seen.wave_at = None
        elif seen.wave_at is None:
            seen.wave_at = trace.at

    def _must_see(self, seen: _Seen, at: float) -> bool:
        """Tell whether what a process has seen is a wave, whatever else it knows."""
        newest_old = max(at - self._policy.window_seconds, seen.reset_at)
        new = []
        for name, (since, node) in seen.nodes.items():
            there = self._truth.node_now(name)
            if there is None or there.uid != node.uid or not node.taints:
                continue
            if min(node.taints.values()) > newest_old and self._has_who_goes(seen, name, since, node):
                new.append(node)
        return self._is_wave(*_counted(new), len(seen.nodes))

    def _has_who_goes(self, seen: _Seen, name: str, since: float, node: NodeState) -> bool:
        return any(
            at >= since and pod.node == name and uid not in self._truth.gone and due_at(node, pod) < NEVER
            for uid, (at, pod) in seen.pods.items()
        )

    def reset(self, trace: Trace, epoch: float) -> None:
        """Take in that a process has read of a reset."""
        seen = self._seen.setdefault(trace.process, _Seen())
        seen.reset_at = epoch - server_time(0.0)
        if seen.wave_at is not None and seen.wave_at <= seen.reset_at + _OFF_SECONDS:
            seen.wave_at = None
            self._look(seen, trace)

    def check_sent(self, trace: Trace) -> None:
        """Check that who sends this has seen no wave."""
        seen = self._seen.get(trace.process)
        if seen is None or seen.unsure:
            return
        self._begin(seen, trace)
        self._look(seen, trace)
        if seen.wave_at is None:
            return
        if trace.at > max(seen.wave_at, self._acts_since(trace.process, trace.at)) + _LOOK_SECONDS:
            self._breach("in a wave", trace, f"{trace.process} saw it at {seen.wave_at:.3f}")

    def check_opened(self, trace: Trace, latch: Latch) -> None:
        """Check that there is a cause for it; one by due pods is not judged."""
        if self._policy.most_due is not None:
            return
        opened_at = latch.since_epoch - server_time(0.0)
        newest_old = opened_at - self._policy.window_seconds - _OFF_SECONDS
        count, total = 0, 0
        for name in self._truth.nodes:
            states = self._truth.node_states(name, opened_at - _OLD_SECONDS)
            total += all(states)
            count += any(state is not None and state.taints and state.since > newest_old for state in states)
        thresholds = [self._policy.nodes, self._policy.lifecycle_nodes]
        if not any(one is not None and _exceeds(one, count, total) for one in thresholds):
            self._breach("opened for nothing", trace, f"at most {count} nodes of {total} were new: {latch.cause}")

    def check_closed(self, trace: Trace, latch: Latch) -> None:
        """Check that what opened it is gone where no human closed it: nodes and pods that have long been so count."""
        newest_old = latch.since_epoch - server_time(0.0) - self._policy.window_seconds
        long_ago = trace.at - _LONG_SECONDS
        still_there = []
        for name in self._truth.nodes:
            node = self._truth.node_now(name)
            if node is None or not node.taints or node.since > long_ago or min(node.taints.values()) <= newest_old:
                continue
            pods = [pod for _, pod in self._truth.living() if pod.node == name and pod.since <= long_ago]
            if any(due_at(node, pod) < NEVER for pod in pods):
                still_there.append(node)
        by_people, by_lifecycle = _counted(still_there)
        if self._is_wave(by_people, by_lifecycle, len(self._truth.nodes)):
            self._breach("closed too early", trace, f"{by_people} and {by_lifecycle} nodes are as they were")

    def _is_wave(self, by_people: int, by_lifecycle: int, total: int) -> bool:
        lifecycle = self._policy.lifecycle_nodes
        return _exceeds(self._policy.nodes, by_people, total) or (
            lifecycle is not None and _exceeds(lifecycle, by_lifecycle, total)
        )


def _counted(nodes: list[NodeState]) -> tuple[int, int]:
    """Count those whose taints are all by people, and those whose taints are all by the nodes' lifecycle."""
    by_people = sum(all(key not in _LIFECYCLE for key, _, _ in node.taints) for node in nodes)
    by_lifecycle = sum(all(key in _LIFECYCLE for key, _, _ in node.taints) for node in nodes)
    return by_people, by_lifecycle


def _exceeds(threshold: NodeThreshold, count: int, total: int) -> bool:
    if threshold.number is not None and count > threshold.number:
        return True
    return threshold.percent is not None and count >= threshold.least and count * 100 > threshold.percent * total
