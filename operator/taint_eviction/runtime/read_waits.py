"""For how long the answer to a read is waited for: longer each time after one that had none.

A busy API server keeps a request in its queue for up to 15 s by default (API Priority and Fairness), and forgets it
when its sender stops waiting. So a read that is given up after the same time each time would never be answered.
Pure: the caller makes the read and says how it ended.
"""

from collections.abc import Hashable

# Longer than a request is queued by default, and no longer than a peer that is gone remains undetected.
_LONGEST_SECONDS = 30.0
# Reads to remember. One that is forgotten is waited for as at first.
_MAX_READS = 1_000


class ReadWaits:
    """The reads without an answer that one process makes again. ``timeout_seconds``: how long it waits at first."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._longer: dict[Hashable, float] = {}

    def seconds(self, read: Hashable) -> float:
        """Return how long to wait for the next answer to a read."""
        return self._longer.get(read, self._timeout_seconds)

    def unanswered(self, read: Hashable, waited_seconds: float) -> None:
        """Note that so long a wait for the answer to a read was in vain: the next one is twice as long."""
        longest = max(self._timeout_seconds, _LONGEST_SECONDS)
        longer = max(self.seconds(read), min(2.0 * waited_seconds, longest))
        self._longer.pop(read, None)
        self._longer[read] = longer
        if len(self._longer) > _MAX_READS:
            del self._longer[next(iter(self._longer))]

    def answered(self, read: Hashable, after_seconds: float) -> None:
        """Note an answer to a read. Only one that came soon shows that the next one need not be waited for longer."""
        if after_seconds < self._timeout_seconds:
            self._longer.pop(read, None)
