"""The only reader of clocks: a monotonic clock, and the API server's time anchored to it.

``now`` is the API server's time: the monotonic clock plus an *anchor*, which votes decide. A balancer chooses an API
server for each connection, and one connection that is kept alive may carry nearly all calls; so each connection has
one vote, however many answers it brings. A ``Date`` is cut off to whole seconds and arrives late: a right answer is a
little behind, and never ahead.

- *The vote of a connection* is the highest ``Date − monotonic`` of its answers of the last two minutes, else its latest
  of the last ten. Where its answers lie more than 2 s apart, a proxy behind it balances single requests: the lowest.
- *At the start* (``time_votes``) five connections decide. If they agree, the anchor is the highest vote; otherwise ten
  decide, and it is the lowest: an anchor that is behind makes evictions late, one that is ahead makes them early. Until
  then there is no anchor: no object is dated, and nothing ends by its date (``Moment.dates_objects``).
- *Later* the anchor follows the highest of the votes near it. An API server whose quartz runs fast would take it along,
  away from the others; so where votes close behind it have disagreed with it for ten minutes, the lowest of them count.
  Before that a vote takes it no further ahead of them than 2 s.
  Votes elsewhere move it only after those of ten minutes, of three new connections at least, have agreed on another
  value.

The host's wall clock is used until the first vote; its offset is measured, and nothing else depends on it. The
monotonic clock is CLOCK_BOOTTIME where there is one: it continues while the machine is suspended.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from taint_eviction.core.instants import Moment

logger = logging.getLogger(__name__)

# Votes and anchors that lie no further apart agree. A host clock that is off by more, and an anchor that has moved by
# more, are logged, once each time.
TOLERATED_SECONDS = 2.0

# Of the answers of this time the highest counts, of those of the longer time the latest.
_VOTE_SECONDS = 120.0
_WINDOW_SECONDS = 600.0

# How many votes decide at the start: if they agree, and if they do not.
_ENOUGH_VOTES = 5
_MOST_VOTES = 10

# Votes that are at most so far behind the anchor may be right where it has followed a quartz that runs fast: it cannot
# get so far away in the ten minutes in which they must disagree with it.
_BEHIND_SECONDS = 2 * TOLERATED_SECONDS

# A right answer is no further behind: dates are cut off to seconds.
_CUT_OFF_SECONDS = 1.0

# How many connections must have been opened while all votes agreed on another value.
_NEW_CONNECTIONS = 3

# The answers of a connection are kept in spans of this length, which bounds their number.
_SPAN_SECONDS = 10.0

# All votes are counted at most this often.
_COUNT_SECONDS = 1.0

# Where connections are opened all the time, the latest count.
_MAX_CONNECTIONS = 500

# Where there is one, the clock that also counts the time for which the machine is suspended.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_monotonic() -> float:
    """Read the monotonic clock, in seconds."""
    return time.clock_gettime(_MONOTONIC)  # noqa: TID251 - this is the clock reader


def read_wall() -> float:
    """Read the host's wall clock, in seconds since the epoch."""
    return time.time()  # noqa: TID251 - this is the clock reader


@dataclass(slots=True)
class _Span:
    """The lowest and the highest ``Date − monotonic`` of some seconds of one connection."""

    since_at: float
    lowest: float
    highest: float


class _Connection:
    """One connection: what its answers said."""

    def __init__(self, opened_at: float) -> None:
        self.opened_at = opened_at
        self.heard_at = opened_at
        self._latest = 0.0
        self._spans: deque[_Span] = deque()

    def hear(self, at: float, anchor: float) -> None:
        """Take ``Date − monotonic`` of an answer that has just arrived."""
        self.heard_at, self._latest = at, anchor
        if self._spans and at < self._spans[-1].since_at + _SPAN_SECONDS:
            span = self._spans[-1]
            span.lowest, span.highest = min(span.lowest, anchor), max(span.highest, anchor)
        else:
            self._spans.append(_Span(at, anchor, anchor))

    def range(self, at: float) -> tuple[float, float]:
        """Return the lowest and the highest of the answers that count at this instant."""
        while self._spans and self._spans[0].since_at < at - _VOTE_SECONDS:
            self._spans.popleft()
        if not self._spans:
            return self._latest, self._latest
        return min(span.lowest for span in self._spans), max(span.highest for span in self._spans)


def _vote(lowest: float, highest: float) -> float:
    """Return the vote of a connection whose answers that count lie between these."""
    return highest if highest - lowest <= TOLERATED_SECONDS else lowest


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
        self._connections: dict[int, _Connection] = {}
        # When an answer last had an audit ID.
        self._audited_at = -math.inf
        self._anchor: float | None = None
        # Whether the votes of the start are complete, and whether the clock waits until they are.
        self._decided = False
        self._waits = False
        self._has_waited = False
        # Since when votes close behind the anchor have disagreed with it, None: none does.
        self._behind_since: float | None = None
        # On which other value the votes agree, and since when.
        self._elsewhere: tuple[float, float] | None = None
        self._counted_at = -math.inf
        self._apart_seconds = 0.0
        self._logged_anchor = 0.0
        self._offset_logged = False

    def now(self) -> Moment:
        """Read the clock; without an anchor the server's time is the host's, and dates no object."""
        at = self._monotonic()
        if self._anchor is None:
            return Moment(at, self._wall(), dates_objects=False)
        return Moment(at, at + self._anchor)

    @property
    def anchored(self) -> bool:
        """Return whether the API server's time is known."""
        return self._anchor is not None

    @property
    def decided(self) -> bool:
        """Return whether enough connections have voted."""
        return self._decided

    @property
    def heard(self) -> bool:
        """Return whether any connection has voted."""
        return bool(self._connections)

    @property
    def short_of_votes(self) -> bool:
        """Return whether the wait for votes has ended without enough of them."""
        return self._has_waited and not self._decided

    def wait_for_votes(self) -> None:
        """Set no anchor before enough connections have voted from now on, until ``stop_waiting``."""
        self._waits, self._decided = True, False
        self._connections.clear()

    def stop_waiting(self) -> None:
        """Use the votes that there are: the lowest of them if they disagree."""
        self._waits, self._has_waited = False, True
        at = self._monotonic()
        if self._anchor is not None:
            self._count(at)  # Some came when enough had voted, and may be sharper.
        elif votes := self._votes(at):
            self._decide(votes)

    def heard_date(self, epoch: float, connection: int = 0, audited: bool = True) -> None:
        """Take the ``Date`` (Unix time) of an answer that has just arrived on a connection.

        ``audited``: it has an audit ID, so it is the API server's own. Others vote only where none has one.
        """
        at = self._monotonic()
        if not self._may_vote(at, audited):
            return
        voter = self._connections.pop(connection, None) or _Connection(at)
        self._connections[connection] = voter  # The latest is the last.
        voter.hear(at, epoch - at)
        if not self._decided:
            self._decide(self._votes(at))
        else:
            self._note_vote(at, _vote(*voter.range(at)))
            if at >= self._counted_at + _COUNT_SECONDS:
                self._count(at)
        if self._anchor is not None:
            self._log_move(self._anchor)
            self._log_offset(self._wall() - (at + self._anchor))

    @property
    def audited(self) -> bool:
        """Return whether the API server's answers have audit IDs; if not, a proxy may have removed them."""
        return self._audited_at > -math.inf

    def disagreement_seconds(self) -> float:
        """Return how far the answers that count, and the anchor, lie apart; up to 2 s means nothing."""
        return self._apart_seconds

    @property
    def votes_disagree(self) -> bool:
        """Return whether API servers, or they and the anchor, disagree."""
        return self._apart_seconds > TOLERATED_SECONDS

    def host_offset_seconds(self) -> float:
        """Return how far the host's wall clock is ahead of the API server's (negative: behind), 0 while unknown.

        A difference of up to a second means nothing: dates are whole seconds.
        """
        return 0.0 if self._anchor is None else self._wall() - (self._monotonic() + self._anchor)

    # Votes

    def _may_vote(self, at: float, audited: bool) -> bool:
        if not audited:
            return self._audited_at < at - _WINDOW_SECONDS
        if self._audited_at < at - _WINDOW_SECONDS:
            self._connections.clear()  # These were plain answers, perhaps of a proxy.
        self._audited_at = at
        return True

    def _votes(self, at: float) -> Mapping[int, float]:
        for number, voter in list(self._connections.items()):
            if voter.heard_at >= at - _WINDOW_SECONDS and len(self._connections) <= _MAX_CONNECTIONS:
                break
            del self._connections[number]
        ranges = {number: voter.range(at) for number, voter in self._connections.items()}
        ends = [end for ends in ranges.values() for end in ends] + ([] if self._anchor is None else [self._anchor])
        # There are none where all answers came before the machine was suspended.
        self._apart_seconds = max(ends) - min(ends) if ends else 0.0
        return {number: _vote(*ends) for number, ends in ranges.items()}

    def _decide(self, votes: Mapping[int, float]) -> None:
        """Count the votes of the start: the highest if they agree, otherwise the lowest."""
        lowest, highest = min(votes.values()), max(votes.values())
        agree = highest - lowest <= TOLERATED_SECONDS
        self._decided = len(votes) >= (_ENOUGH_VOTES if agree else _MOST_VOTES)
        if self._waits and not self._decided:
            return
        if self._anchor is None:
            self._logged_anchor = highest if agree else lowest
        self._anchor = highest if agree else lowest

    def _count(self, at: float) -> None:
        """Follow the highest of the votes near the anchor; the lowest, if they have disagreed for long."""
        assert self._anchor is not None
        self._counted_at = at
        anchor = self._anchor
        votes = [vote for vote in self._votes(at).values() if -_BEHIND_SECONDS <= vote - anchor <= TOLERATED_SECONDS]
        highest = max((vote for vote in votes if anchor - vote <= TOLERATED_SECONDS), default=anchor)
        lowest = min(votes, default=anchor)
        if highest - lowest <= TOLERATED_SECONDS:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = at
        elif at - self._behind_since > _WINDOW_SECONDS:  # By then no answer that came late counts any more.
            highest = max(vote for vote in votes if vote <= lowest + _CUT_OFF_SECONDS)
        if highest > anchor and highest - lowest > TOLERATED_SECONDS:
            # A vote that is ahead of the others takes the anchor along no further than they tolerate.
            highest = max([anchor, *(vote for vote in votes if vote <= lowest + TOLERATED_SECONDS)])
        self._anchor = highest

    def _note_vote(self, at: float, vote: float) -> None:
        """Move the anchor to where the votes of ten minutes agree that it should be."""
        assert self._anchor is not None
        if abs(vote - self._anchor) <= TOLERATED_SECONDS:
            self._elsewhere = None
        elif self._elsewhere is None or abs(vote - self._elsewhere[0]) > TOLERATED_SECONDS:
            self._elsewhere = vote, at
        elif self._elsewhere[1] <= at - _WINDOW_SECONDS:
            votes = self._votes(at)
            opened = [voter.opened_at for voter in self._connections.values()]
            if sum(opened_at >= self._elsewhere[1] for opened_at in opened) >= _NEW_CONNECTIONS:
                self._anchor, self._elsewhere = max(votes.values()), None

    # What is logged

    def _log_move(self, anchor: float) -> None:
        moved = anchor - self._logged_anchor
        if abs(moved) > TOLERATED_SECONDS:
            self._logged_anchor = anchor
            logger.warning(
                "the API server's clock has moved %.0f s %s: the clocks of all API servers were stepped, or the first "
                "ones that answered were wrong; known deadlines do not move",
                abs(moved),
                "forward" if moved > 0 else "back",
            )
            self.on_moved()

    def _log_offset(self, offset: float) -> None:
        off = abs(offset) > TOLERATED_SECONDS
        if off and not self._offset_logged:
            logger.warning(
                "this host's clock is %.0f s %s the API server's: deadlines follow the API server's",
                abs(offset),
                "ahead of" if offset > 0 else "behind",
            )
        self._offset_logged = off


def _nothing() -> None:
    pass
