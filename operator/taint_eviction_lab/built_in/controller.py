"""The model: what it knows about nodes and pods, and when it adds work to its queue or cancels it.
It reads what its informers have, and reacts to changes of NoExecute taints, of tolerations and of a pod's node, and to
nothing else: it does not notice that a pod was replaced under its name if a single change shows both. Node updates are
handled before pod updates. Handling takes no time here.

Reference: pkg/controller/tainteviction/taint_eviction.go.
"""

import asyncio
from collections.abc import Sequence

from taint_eviction.core.matching import matches
from taint_eviction.core.objects import NO_EXECUTE, NamespacedName, Node, Pod, Taint, Toleration
from taint_eviction_lab.built_in.doors import BuiltInReporter, PodClient
from taint_eviction_lab.built_in.pod_deletion import PodDeletion, go_int64
from taint_eviction_lab.built_in.timers import TimerQueue
from taint_eviction_lab.built_in.version import BuiltInVersion

_NANOSECONDS = 10**9


class BuiltInController:
    """One process of the built-in controller, from the moment it leads; ``deletion`` deletes pods."""

    def __init__(self, version: BuiltInVersion, client: PodClient, reporter: BuiltInReporter) -> None:
        self.deletion = PodDeletion(version, client, reporter)
        self._reporter = reporter
        self._queue = TimerQueue(self.deletion.delete, version.keeps_key)
        # What the informers have.
        self._nodes: dict[str, Node] = {}
        self._pods: dict[NamespacedName, Pod] = {}
        self._pods_on: dict[str, dict[NamespacedName, None]] = {}
        # The work to handle: names only, each once.
        self._node_updates: dict[str, None] = {}
        self._pod_updates: dict[tuple[NamespacedName, str], None] = {}
        self._tainted: dict[str, tuple[Taint, ...]] = {}
        self._synced = False
        self._handling: asyncio.Handle | None = None

    @property
    def busy(self) -> bool:
        """Return whether a timer is set or a pod is being deleted."""
        return self._queue.busy

    def synced(self) -> None:
        """Begin: the informers have listed nodes and pods."""
        self._synced = True
        self._wake()

    async def stop(self) -> None:
        """End: timers and calls under way are cancelled, and everything is forgotten with the process."""
        self._synced = False
        await self._queue.cancel_all()

    # Changes from the informers; None: the object was deleted

    def node_changed(self, name: str, node: Node | None) -> None:
        """Observe a node; only its NoExecute taints matter."""
        before = self._nodes.pop(name, None)
        if node is not None:
            self._nodes[name] = node
        if before is None or node is None or _no_execute(before) != _no_execute(node):
            self._node_updates[name] = None
            self._wake()

    def pod_changed(self, key: NamespacedName, pod: Pod | None) -> None:
        """Observe a pod; only its tolerations and its node matter."""
        before = self._pods.pop(key, None)
        if before is not None:
            self._pods_on[before.node_name or ""].pop(key)
        if pod is not None:
            self._pods[key] = pod
            self._pods_on.setdefault(pod.node_name or "", {})[key] = None
        if pod is not None and before is not None and _alike(before, pod):
            return
        if (seen := pod or before) is not None:
            self._pod_updates[key, seen.node_name or ""] = None
            self._wake()

    def known_nodes(self) -> list[str]:
        """List the nodes that the informer has."""
        return list(self._nodes)

    def known_pods(self) -> list[NamespacedName]:
        """List the pods that the informer has."""
        return list(self._pods)

    # Handling

    def _wake(self) -> None:
        if self._synced and self._handling is None:
            self._handling = asyncio.get_running_loop().call_soon(self._handle)

    def _handle(self) -> None:
        self._handling = None
        while self._synced and (self._node_updates or self._pod_updates):
            if self._node_updates:
                name = next(iter(self._node_updates))
                del self._node_updates[name]
                self._handle_node(name)
            else:
                key, node_name = next(iter(self._pod_updates))
                del self._pod_updates[key, node_name]
                self._handle_pod(key, node_name)

    def _handle_node(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            # The timers of its pods keep running.
            self._tainted.pop(name, None)
            return
        taints = _no_execute(node)
        if taints:
            self._tainted[name] = taints
        else:
            self._tainted.pop(name, None)
        now = asyncio.get_running_loop().time()
        for key in list(self._pods_on.get(name, ())):
            if taints:
                self._process(self._pods[key], taints, now)
            else:
                self._cancel(key)

    def _handle_pod(self, key: NamespacedName, node_name: str) -> None:
        pod = self._pods.get(key)
        if pod is None:
            self._cancel(key)
        elif pod.node_name == node_name and (taints := self._tainted.get(node_name)):
            self._process(pod, taints, asyncio.get_running_loop().time())

    def _process(self, pod: Pod, taints: Sequence[Taint], now: float) -> None:
        key, used = pod.ref.key, _matching(taints, pod.spec_tolerations)
        if used is None:
            self._cancel(key)
            self._queue.add(key, now, now)
            return
        tolerance = _min_toleration_seconds(used)
        if tolerance is None:
            self._cancel(key)
            return
        if self._queue.has_timer(key):
            # Kubernetes compares when the timer was set with now, each plus the new tolerance: now is always later.
            return
        if self._queue.add(key, now, now + tolerance):
            self._reporter.armed(key, now + tolerance)

    def _cancel(self, key: NamespacedName) -> None:
        if self._queue.cancel(key):
            self._reporter.cancelled(key)
            self.deletion.post(key, f"Cancelling deletion of Pod {key}")


def _no_execute(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.taints if taint.effect == NO_EXECUTE)


def _alike(before: Pod, after: Pod) -> bool:
    return (before.spec_tolerations, before.node_name) == (after.spec_tolerations, after.node_name)


def _matching(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> list[Toleration] | None:
    """Return for each taint the first toleration that matches; None if one has none."""
    used = [next((each for each in tolerations if matches(each, taint)), None) for taint in taints]
    found = [toleration for toleration in used if toleration is not None]
    return found if len(found) == len(taints) else None


def _min_toleration_seconds(used: Sequence[Toleration]) -> float | None:
    """Return the shortest tolerance, None for none: as Go computes it, in nanoseconds that wrap around."""
    seconds = [each.toleration_seconds for each in used if each.toleration_seconds is not None]
    if not seconds:
        return None
    nanoseconds = go_int64(min(seconds) * _NANOSECONDS) if min(seconds) > 0 else 0
    return None if nanoseconds < 0 else nanoseconds / _NANOSECONDS
