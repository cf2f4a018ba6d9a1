"""Many evictions at once in few log lines: above 20 lines in a second, one line for each node and second.
When a second needs no more lines than that, the storm is over, and a summary of each node follows. The first 20 pods of
a storm still have their own lines, and every pod is in the audit log. Refusals count as well: a webhook that is down
refuses every pod. This module does not write the lines of single pods.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_LINES = 20
_SECONDS = 1.0


@dataclass(slots=True)
class StormTally:
    """A storm on one node, from ``first_at`` to ``last_at``; ``refusal``: the text of the last refusal."""

    first_at: float
    last_at: float
    evicted: int = 0
    refused: int = 0
    refusal: str = ""

    @property
    def seconds(self) -> float:
        """How long the storm took on this node."""
        return self.last_at - self.first_at

    def include(self, later: "StormTally") -> None:
        """Add the counts of a later second."""
        self.last_at = later.last_at
        self.evicted += later.evicted
        self.refused += later.refused
        self.refusal = later.refusal or self.refusal


# Writes a line about the node of this name; True: its storm is over.
Tell = Callable[[str, StormTally, bool], None]


@dataclass(slots=True)
class _Second:
    """The evictions since ``began_at``, by node, and how many log lines they would need."""

    began_at: float
    lines: int = 0
    nodes: dict[str, StormTally] = field(default_factory=dict)


class EvictionStorm:
    """Counts evictions; ``tell`` writes a log line. Instants are monotonic."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._second: _Second | None = None
        # By node, since the storm began; None: there is none.
        self._storm: dict[str, StormTally] | None = None

    def takes(self, node_name: str, at: float, *, refusal: str | None = None, told: bool = True) -> bool:
        """Count an eviction, or its ``refusal``; return whether it needs no line of its own.

        ``told`` False: it has no line outside a storm either, and does not count towards one.
        """
        if self._second is not None and at >= self._second.began_at + _SECONDS:
            self.end_second()
        if self._second is None:
            self._second = _Second(at)
            self._wake(self._second)
        self._second.lines += told
        is_refused = refusal is not None
        now = StormTally(at, at, not is_refused, is_refused, refusal or "")
        self._second.nodes.setdefault(node_name, StormTally(at, at)).include(now)
        if self._storm is None and self._second.lines > MAX_LINES:
            self._storm = {}
        return self._storm is not None

    def end_second(self) -> None:
        """Log the second that is over, and the storm if it is over, too."""
        second, self._second = self._second, None
        if self._storm is None:
            return
        for name, tally in ({} if second is None else second.nodes).items():
            self._tell(name, tally, False)
            self._storm.setdefault(name, StormTally(tally.first_at, tally.last_at)).include(tally)
        if second is not None and second.lines > MAX_LINES:
            self._wake(None)
            return
        storm, self._storm = self._storm, None
        for name, tally in storm.items():
            self._tell(name, tally, True)

    def _wake(self, second: _Second | None) -> None:
        """End this second although nothing more happens; without an event loop, the next eviction ends it."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().call_later(_SECONDS, self._end, second)

    def _end(self, second: _Second | None) -> None:
        if self._second is second:
            self.end_second()
