"""Clocks that tests move by hand."""

from taint_eviction.core.instants import Moment

EPOCH = 1_900_000_000.0


class HandClock:
    """A clock that is moved by hand: it shows the instant ``at``, and the API server's time ``epoch`` + ``at``."""

    def __init__(self, at: float = 100.0, epoch: float = EPOCH) -> None:
        self.at = at
        self.epoch = epoch

    def now(self) -> Moment:
        """Return the instant to which the clock was moved."""
        return Moment(self.at, self.epoch + self.at)
