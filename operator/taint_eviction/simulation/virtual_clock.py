"""The clocks of a simulated world: the API server's, the host's, and the controller's own, all off one virtual time.

The controller reads the production ``ServerClock``: it has a monotonic clock that begins anywhere and a host's wall
clock that may be off or step, and learns the API server's time from the ``Date`` of answers, cut off to seconds.
"""

import asyncio
from datetime import UTC, datetime

from taint_eviction.runtime.clock import ServerClock

# Second 0 of every scenario: 2030-01-01T00:00:00Z.
SCENARIO_EPOCH = 1893456000.0

# How far into its second the API server's clock is at second 0: times cut off to whole seconds lose something.
SUBSECOND = 0.5


def virtual_now() -> float:
    """Return the virtual time: seconds since second 0 of the scenario."""
    return asyncio.get_running_loop().time()


def timestamp(at: float) -> str:
    """Write an instant of the scenario as the API server does: RFC 3339, whole seconds, cut off."""
    return datetime.fromtimestamp(date_of(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def server_time(at: float) -> float:
    """Return the API server's time at this instant: seconds since the epoch."""
    return SCENARIO_EPOCH + SUBSECOND + at


def date_of(at: float) -> int:
    """Return the ``Date`` of an answer given at this instant: whole seconds since the epoch, cut off."""
    return int(server_time(at) // 1)


class HostClock:
    """A host's wall clock; ``ahead_seconds`` of the API server's, until it steps."""

    def __init__(self, ahead_seconds: float = 0.0) -> None:
        self.ahead_seconds = ahead_seconds

    def step(self, seconds: float) -> None:
        """Set the clock forward (back where negative)."""
        self.ahead_seconds += seconds

    def read(self) -> float:
        """Read the clock: seconds since the epoch."""
        return server_time(virtual_now()) + self.ahead_seconds


class ProcessClock:
    """The clock of one controller process, and the way back from its instants to those of the scenario.

    ``monotonic_offset`` is what the process's monotonic clock shows at second 0: no two processes share one.
    """

    def __init__(self, host: HostClock, monotonic_offset: float) -> None:
        self._offset = monotonic_offset
        self.server_clock = ServerClock(monotonic=self._monotonic, wall=host.read)

    def scenario_second(self, instant: float) -> float:
        """Carry an instant of this process over to the scenario's time."""
        return round(instant - self._offset, 6)

    def heard_answer_of(self, answered_at: float) -> None:
        """Take in an answer that the API server gave at this instant of the scenario."""
        self.server_clock.heard_date(date_of(answered_at))

    def _monotonic(self) -> float:
        return virtual_now() + self._offset
