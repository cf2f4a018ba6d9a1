"""Many evictions at once as few lines of the log: above 20 in a second, a line for each node and second.

When a second has no more than that, the storm is over, and a summary of each node follows. The first 20 pods of a storm
still have their own lines, and each pod of it stays in the audit log. Not here: the lines of single pods.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_LINES = 20
_SECONDS = 1.0

# What a summary says of a node: its name, pods evicted, pods refused, seconds; and whether the storm is over.
Tell = Callable[[str, int, int, float, bool], None]


@dataclass(slots=True)
class _Tally:
    first_at: float
    last_at: float
    evicted: int = 0
    refused: int = 0

    def add(self, at: float, refused: bool) -> None:
        self.last_at = at
        self.refused += refused
        self.evicted += not refused


@dataclass(slots=True)
class _Second:
    """What happened since ``began_at``, by node."""

    began_at: float
    nodes: dict[str, _Tally] = field(default_factory=dict)

    @property
    def evicted(self) -> int:
        return sum(tally.evicted for tally in self.nodes.values())


class EvictionStorm:
    """Counts evictions; ``tell`` writes a line of the log. Instants are monotonic."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._second: _Second | None = None
        # By node, since the storm began; None: there is none.
        self._storm: dict[str, _Tally] | None = None

    def takes(self, node_name: str, at: float, *, refused: bool = False) -> bool:
        """Count an eviction, or one that was refused; return whether it needs no line of its own."""
        if self._second is not None and at >= self._second.began_at + _SECONDS:
            self.end_second()
        if self._second is None:
            self._second = _Second(at)
            self._wake(self._second)
        self._second.nodes.setdefault(node_name, _Tally(at, at)).add(at, refused)
        if self._storm is None and self._second.evicted > MAX_LINES:
            self._storm = {}
        return self._storm is not None

    def end_second(self) -> None:
        """Tell of the second that is over, and of the storm, if that is over, too."""
        second, self._second = self._second, None
        if self._storm is None:
            return
        for name, tally in ({} if second is None else second.nodes).items():
            self._tell(name, tally.evicted, tally.refused, tally.last_at - tally.first_at, False)
            whole = self._storm.setdefault(name, _Tally(tally.first_at, tally.last_at))
            whole.last_at = tally.last_at
            whole.evicted += tally.evicted
            whole.refused += tally.refused
        if second is not None and second.evicted > MAX_LINES:
            self._wake(None)
            return
        storm, self._storm = self._storm, None
        for name, tally in storm.items():
            self._tell(name, tally.evicted, tally.refused, tally.last_at - tally.first_at, True)

    def _wake(self, second: _Second | None) -> None:
        """Let this second end, though nothing more happens; without a loop, the next eviction ends it."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().call_later(_SECONDS, self._end, second)

    def _end(self, second: _Second | None) -> None:
        if self._second is second:
            self.end_second()
