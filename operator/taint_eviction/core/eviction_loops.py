"""Which DaemonSets recreate their pods on a tainted node, where they are evicted again and again. A DaemonSet recreates
a missing pod on the same node. If the pod tolerates the node's taint for a limited time, or not at all, it is evicted
there again, and so on (kubernetes#92960, kubernetes#122912). Each such loop is reported once. This module knows the
evictions of this process only: a new leader counts from zero. It neither evicts pods nor holds them.

Invariant: bounded, in time (a loop without an eviction for ten minutes has ended) and in number.
"""

from typing import NamedTuple

from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import ControllerRef

# This many evictions within this many seconds, of pods of one DaemonSet from one node, are a loop.
LOOP_EVICTIONS = 3
LOOP_SECONDS = 600.0

_DAEMON_SET = "DaemonSet"

# The number of pairs of a DaemonSet and a node that are remembered.
_MAX_REMEMBERED = 20_000


class _Series(NamedTuple):
    """The latest evictions of one DaemonSet from one node, oldest first; ``told``: the loop has been reported."""

    evicted_at: tuple[float, ...]
    told: bool


class EvictionLoops:
    """Counts evictions by DaemonSet and node; see the module."""

    def __init__(self) -> None:
        # In the order of their latest evictions.
        self._series: dict[tuple[str, str], _Series] = {}

    def evicted(self, controller: ControllerRef | None, node_name: str, now: Moment) -> bool:
        """Note the eviction of a pod of ``controller``; return whether it shows a loop that has not been reported."""
        if controller is None or controller.kind != _DAEMON_SET:
            return False
        self._forget_ended(now.at)
        before = self._series.pop((controller.uid, node_name), None) or _Series((), told=False)
        latest = (*before.evicted_at, now.at)[-LOOP_EVICTIONS:]
        loops = len(latest) == LOOP_EVICTIONS and latest[-1] - latest[0] <= LOOP_SECONDS
        self._series[controller.uid, node_name] = _Series(latest, before.told or loops)
        if len(self._series) > _MAX_REMEMBERED:
            del self._series[next(iter(self._series))]
        return loops and not before.told

    def count(self, now: Moment) -> int:
        """Count the loops that have not ended."""
        self._forget_ended(now.at)
        return sum(series.told for series in self._series.values())

    def _forget_ended(self, now: float) -> None:
        while self._series:
            oldest = next(iter(self._series))
            if now - self._series[oldest].evicted_at[-1] <= LOOP_SECONDS:
                return
            del self._series[oldest]
