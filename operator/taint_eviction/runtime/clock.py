"""The only reader of clocks: a monotonic clock, and the API server's time anchored to it.

``now`` is the API server's time: the median of ``Date − monotonic`` over its latest answers. The median ignores a wrong
``Date`` now and then, one of three API servers whose clock is ahead, and a monotonic clock that runs a little fast. It
follows a server whose clock is stepped within minutes. A ``Date`` is cut off to whole seconds and arrives late, so the
median is about half a second behind, and never ahead while most answers are right. The host's wall clock is used until
the first answer; its offset is measured, and nothing else depends on it.

The monotonic clock is CLOCK_BOOTTIME where there is one: it continues while the machine is suspended.
"""

import logging
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable

from taint_eviction.core.instants import Moment

logger = logging.getLogger(__name__)

# A host clock that is off by more than this, and an anchor that has moved by more, are logged, once each time.
TOLERATED_OFFSET_SECONDS = 2.0

# How long an answer counts, and how many answers count at most.
WINDOW_SECONDS = 600.0
MAX_ANSWERS = 1000

# The median of fewer says nothing: one of two or three may be wrong.
MIN_ANSWERS = 5


# Where there is one, the clock that also counts the time for which the machine is suspended.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_monotonic() -> float:
    """Read the monotonic clock, in seconds."""
    return time.clock_gettime(_MONOTONIC)  # noqa: TID251 - this is the clock reader


def read_wall() -> float:
    """Read the host's wall clock, in seconds since the epoch."""
    return time.time()  # noqa: TID251 - this is the clock reader


class _Anchors:
    """``Date − monotonic`` of the latest answers, in the order in which they came and in that of their values."""

    def __init__(self) -> None:
        self._by_age: deque[tuple[float, float]] = deque()
        self._ordered: list[float] = []

    def add(self, at: float, anchor: float) -> None:
        """Add that of an answer which arrived at the instant ``at``, and drop those that no longer count."""
        self._by_age.append((at, anchor))
        insort(self._ordered, anchor)
        while len(self._by_age) > MAX_ANSWERS or self._by_age[0][0] < at - WINDOW_SECONDS:
            del self._ordered[bisect_left(self._ordered, self._by_age.popleft()[1])]

    def median(self) -> float | None:
        """Return the median, of an even number the lower one; None if there are too few."""
        return self._ordered[(len(self._ordered) - 1) // 2] if len(self._ordered) >= MIN_ANSWERS else None


class ServerClock:
    """The API server's time, as known from its answers. ``on_moved`` is called when the anchor has moved."""

    def __init__(
        self,
        monotonic: Callable[[], float] = read_monotonic,
        wall: Callable[[], float] = read_wall,
    ) -> None:
        self.on_moved: Callable[[], None] = _nothing
        self._monotonic = monotonic
        self._wall = wall
        self._anchors = _Anchors()
        self._anchor: float | None = None
        self._logged_anchor = 0.0
        self._offset_logged = False

    def now(self) -> Moment:
        """Read the clock; before the first answer the server's time is the host's."""
        at = self._monotonic()
        return Moment(at, self._wall() if self._anchor is None else at + self._anchor)

    @property
    def anchored(self) -> bool:
        """Return whether the API server has answered."""
        return self._anchor is not None

    def heard_date(self, epoch: float) -> None:
        """Take the ``Date`` (Unix time) of an answer that has just arrived.

        While there are too few for a median, the lowest counts: it is ahead only if all of them are.
        """
        at = self._monotonic()
        anchor = epoch - at
        self._anchors.add(at, anchor)
        if self._anchor is None:
            self._anchor = self._logged_anchor = anchor
        median = self._anchors.median()
        self._anchor = min(self._anchor, anchor) if median is None else median
        self._log_move()
        self._log_offset(self._wall() - (at + self._anchor))

    def host_offset_seconds(self) -> float:
        """Return how far the host's wall clock is ahead of the API server's (negative: behind), 0 while unknown.

        A difference of up to a second means nothing: dates are whole seconds.
        """
        return 0.0 if self._anchor is None else self._wall() - (self._monotonic() + self._anchor)

    def _log_move(self) -> None:
        moved = 0.0 if self._anchor is None else self._anchor - self._logged_anchor
        if abs(moved) > TOLERATED_OFFSET_SECONDS:
            self._logged_anchor += moved
            logger.warning(
                "the API server's clock has moved %.0f s %s: its clock was stepped, its answers were late or misdated, "
                "or this host's monotonic clock drifts; known deadlines do not move",
                abs(moved),
                "forward" if moved > 0 else "back",
            )
            self.on_moved()

    def _log_offset(self, offset: float) -> None:
        off = abs(offset) > TOLERATED_OFFSET_SECONDS
        if off and not self._offset_logged:
            logger.warning(
                "this host's clock is %.0f s %s the API server's: deadlines follow the API server's",
                abs(offset),
                "ahead of" if offset > 0 else "behind",
            )
        self._offset_logged = off


def _nothing() -> None:
    pass
