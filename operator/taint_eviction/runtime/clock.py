"""The only reader of clocks: a monotonic clock, and the API server's time anchored to it.

``now`` is the API server's time: the largest ``Date − monotonic`` seen. Dates are cut off to whole seconds and arrive
late, so the estimate is never ahead of the server, and every answer can only sharpen it. The host's wall clock serves
until the first answer; how far it is off is measured, and nothing else depends on it.

The monotonic clock is CLOCK_BOOTTIME where there is one: it goes on while the machine is suspended.
"""

import logging
import time
from collections.abc import Callable

from taint_eviction.core.instants import Moment

logger = logging.getLogger(__name__)

# A host clock that is off by more than this is told, once each time it gets there.
TOLERATED_OFFSET_SECONDS = 2.0


def read_monotonic() -> float:
    """Read the monotonic clock that also counts the time a machine is suspended, in seconds."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()  # noqa: TID251 - this is the clock reader


def read_wall() -> float:
    """Read the host's wall clock, in seconds since the epoch."""
    return time.time()  # noqa: TID251 - this is the clock reader


class ServerClock:
    """The API server's time, as far as its answers have told it.

    ``seconds_heard`` counts the different seconds that its answers were dated to.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = read_monotonic,
        wall: Callable[[], float] = read_wall,
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._anchor: float | None = None
        self._offset_told = False
        self._newest_date = float("-inf")
        self.seconds_heard = 0

    def now(self) -> Moment:
        """Read the clock; before the first answer the server's time is the host's."""
        at = self._monotonic()
        return Moment(at, self._wall() if self._anchor is None else at + self._anchor)

    @property
    def anchored(self) -> bool:
        """Tell whether an answer of the API server has been heard."""
        return self._anchor is not None

    def heard_date(self, epoch: float) -> None:
        """Take in the ``Date`` (seconds since the epoch) of an answer that has just arrived."""
        if epoch > self._newest_date:
            self._newest_date = epoch
            self.seconds_heard += 1
        anchor = epoch - self._monotonic()
        if self._anchor is None or anchor > self._anchor:
            self._anchor = anchor
        self._tell_offset()

    def host_offset_seconds(self) -> float:
        """Return how far the host's wall clock is ahead of the API server's (negative: behind), 0 while unknown.

        Differences of up to a second say nothing: dates are whole seconds.
        """
        return 0.0 if self._anchor is None else self._wall() - (self._monotonic() + self._anchor)

    def _tell_offset(self) -> None:
        offset = self.host_offset_seconds()
        off = abs(offset) > TOLERATED_OFFSET_SECONDS
        if off and not self._offset_told:
            logger.warning(
                "this host's clock is %.0f s %s the API server's: deadlines follow the API server's",
                abs(offset),
                "ahead of" if offset > 0 else "behind",
            )
        self._offset_told = off
