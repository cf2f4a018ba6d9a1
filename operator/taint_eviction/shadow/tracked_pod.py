"""The pods that the shadow remembers while their evictions are compared."""

from collections import OrderedDict, deque

from taint_eviction.core.decision import Evict
from taint_eviction.core.objects import NamespacedName, Pod
from taint_eviction.shadow.comparison import marked_by_built_in

_MAX_DEADLINES = 8


class TrackedPod:
    """One pod (one UID) that is to be evicted, here or by the built-in controller.

    ``pod``: as it was last seen, at ``seen_at``. ``deadlines``: all its deadlines here, the latest last.
    ``cancelled_at``: when the latest was cancelled. ``evicted_at``: when it was evicted here, by ``decision``;
    ``called_off_at``: when that was no longer wanted. ``marked``: the built-in controller has set its condition.
    ``compared``: the outcome of this eviction is known.
    """

    __slots__ = (
        "called_off_at",
        "cancelled_at",
        "compared",
        "deadlines",
        "decision",
        "evicted_at",
        "marked",
        "pod",
        "seen_at",
    )

    def __init__(self, pod: Pod, seen_at: float) -> None:
        self.pod = pod
        self.seen_at = seen_at
        self.deadlines: deque[float] = deque(maxlen=_MAX_DEADLINES)
        self.cancelled_at: float | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin to compare another eviction of the same pod: the outcome of the last one is known."""
        self.decision: Evict | None = None
        self.evicted_at: float | None = None
        self.called_off_at: float | None = None
        self.marked = marked_by_built_in(self.pod)
        self.compared = False

    @property
    def is_open(self) -> bool:
        """Return whether it was evicted here, and the built-in controller's action is not known yet."""
        return self.evicted_at is not None and not self.compared

    @property
    def earlier_deadlines(self) -> list[float]:
        """List the deadlines that it had before the latest."""
        return list(self.deadlines)[:-1]


class TrackedPods:
    """All tracked pods, in the order in which they were added; found by UID, name and node.
    So a fact about one node costs only a look at that node's pods.
    """

    def __init__(self) -> None:
        self._by_uid: OrderedDict[str, TrackedPod] = OrderedDict()
        self._uids: dict[NamespacedName, str] = {}
        # By node; for a pod that is not bound, by None.
        self._on_nodes: dict[str | None, dict[str, TrackedPod]] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: str) -> TrackedPod | None:
        """Return the pod of this UID."""
        return self._by_uid.get(uid)

    def named(self, key: NamespacedName) -> TrackedPod | None:
        """Return the latest pod of this name."""
        return self._by_uid.get(self._uids.get(key, ""))

    def on_node(self, name: str | None) -> list[TrackedPod]:
        """Return the pods of a node, or of all nodes if ``name`` is None."""
        return list((self._by_uid if name is None else self._on_nodes.get(name, {})).values())

    def oldest(self) -> TrackedPod:
        """Return the pod that was added first."""
        return next(iter(self._by_uid.values()))

    def add(self, tracked: TrackedPod) -> None:
        """Add a pod."""
        ref = tracked.pod.ref
        self._by_uid[ref.uid] = tracked
        self._uids[ref.key] = ref.uid
        self._on_nodes.setdefault(tracked.pod.node_name, {})[ref.uid] = tracked

    def see(self, tracked: TrackedPod, pod: Pod, at: float) -> None:
        """Note the present state of a pod."""
        if pod.node_name != tracked.pod.node_name:
            self._leave_node(tracked)
            self._on_nodes.setdefault(pod.node_name, {})[pod.ref.uid] = tracked
        tracked.pod, tracked.seen_at = pod, at

    def remove(self, tracked: TrackedPod) -> None:
        """Remove a pod."""
        ref = tracked.pod.ref
        del self._by_uid[ref.uid]
        self._leave_node(tracked)
        if self._uids.get(ref.key) == ref.uid:
            del self._uids[ref.key]

    def _leave_node(self, tracked: TrackedPod) -> None:
        on_node = self._on_nodes[tracked.pod.node_name]
        del on_node[tracked.pod.ref.uid]
        if not on_node:
            del self._on_nodes[tracked.pod.node_name]
