"""Zones as the node lifecycle controller sees them: their states, and the queues through which it taints their nodes.

Times are seconds of any monotonic clock and come from the caller. A node that was served stays a member, so that it is
served only once, until it is removed. Reference: kubernetes/pkg/controller/nodelifecycle/scheduler, and
`ComputeZoneState` beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum

from .status import JsonObject

# The tolerance for accumulated rounding errors.
_ROUNDING = 1e-3
# A zone is partially disrupted if at least this number and this share of its nodes are not ready.
_MIN_DISRUPTED, _DISRUPTED_SHARE = 3, 0.55
_ZONE_LABELS = tuple(
    (f"failure-domain.beta.kubernetes.io/{part}", f"topology.kubernetes.io/{part}") for part in ("region", "zone")
)


class ZoneState(StrEnum):
    """How much of a zone is ready."""

    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


def zone_state(ready: list[bool]) -> ZoneState:
    """The state of a zone, by which of its nodes are ready."""
    unready = ready.count(False)
    if unready == len(ready):
        return ZoneState.FULL
    if unready >= _MIN_DISRUPTED and unready / len(ready) >= _DISRUPTED_SHARE:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


def zone_of(node: JsonObject) -> str:
    """The zone's key: region and zone; "" without labels. The old labels outrank the new ones."""
    labels = node["metadata"].get("labels") or {}
    parts = [labels.get(old, labels.get(new, "")) for old, new in _ZONE_LABELS]
    return ":".join(parts) if any(parts) else ""


class TaintRate:
    """Holds at most one token; `per_second` 0 never gives any. `drained_at` None: it begins with one."""

    def __init__(self, per_second: float, drained_at: float | None = None) -> None:
        self.per_second = per_second
        self._taken_at = -math.inf if drained_at is None else drained_at

    def next_at(self) -> float:
        """When there is a token."""
        return self._taken_at + 1.0 / self.per_second if self.per_second > 0 else math.inf

    def take(self, now: float) -> bool:
        """Takes the token if there is one."""
        if now < self.next_at() - _ROUNDING:
            return False
        self._taken_at = now
        return True


class ZoneTaintQueue:
    """First come, first served, one for each token."""

    def __init__(self, per_second: float) -> None:
        self._bucket = TaintRate(per_second)
        self._members: set[str] = set()
        self._waiting: dict[str, None] = {}

    def add(self, node: str) -> None:
        """At the end, unless it is a member already."""
        if node not in self._members:
            self._members.add(node)
            self._waiting[node] = None

    def remove(self, node: str) -> None:
        """No member any more; idempotent."""
        self._members.discard(node)
        self._waiting.pop(node, None)

    def next_at(self) -> float:
        """When the next node can be served; infinity where none waits, or the rate is 0."""
        return self._bucket.next_at() if self._waiting else math.inf

    def serve(self, now: float, act: Callable[[str], bool]) -> None:
        """Acts on nodes as long as there are tokens; one for which `act` fails waits on, at the head."""
        while self._waiting and self._bucket.take(now):
            node = next(iter(self._waiting))
            if act(node):
                del self._waiting[node]

    def change_rate(self, per_second: float, now: float) -> None:
        """Another rate begins with a token only if there is one at the moment: a rate of 0 leaves none."""
        if per_second != self._bucket.per_second:
            has_token = self._bucket.take(now)
            self._bucket = TaintRate(per_second, None if has_token else now)
