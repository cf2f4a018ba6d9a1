"""The clocks of a simulated world: the API servers', the hosts', and the controllers', all derived from one virtual
time.

The controller reads the production ``ServerClock``. Its monotonic clock begins anywhere and may run fast or slow, its
host's wall clock may be wrong or be stepped, and it learns the API server's time from the ``Date`` of answers, cut off
to seconds. Several API servers answer in turn, each with a clock of its own.
"""

import asyncio
import math
from dataclasses import dataclass
from datetime import UTC, datetime

from taint_eviction.runtime.clock import ServerClock

# Second 0 of every scenario: 2030-01-01T00:00:00Z.
SCENARIO_EPOCH = 1893456000.0

# The fraction of a second that the API server's clock shows at second 0, so that times cut off to seconds lose a part.
SUBSECOND = 0.5


def virtual_now() -> float:
    """Return the virtual time: seconds since second 0 of the scenario."""
    return asyncio.get_running_loop().time()


def timestamp(at: float) -> str:
    """Write an instant of the scenario as the API server does: RFC 3339, whole seconds, cut off."""
    return datetime.fromtimestamp(date_of(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def server_time(at: float) -> float:
    """Return the right time at this instant: seconds since the epoch."""
    return SCENARIO_EPOCH + SUBSECOND + at


def date_of(at: float) -> int:
    """Return the right ``Date`` of an answer given at this instant: whole seconds since the epoch, cut off."""
    return int(server_time(at) // 1)


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """The clocks of a scenario: ``api_servers`` behind one address; ``drift_ppm``: how fast the controllers' monotonic
    clocks run, in millionths; negative: slow. ``per_request``: the balancer before the servers chooses one for each
    request, and not for each connection.
    """

    api_servers: int = 1
    drift_ppm: float = 0.0
    per_request: bool = False


RIGHT_CLOCKS = ClockSettings()


class ServerClocks:
    """The clocks of the API servers behind a balancer, which chooses one for each connection of a process, in turn, or
    for each request (``per_request``). The first server handles all writes of other clients.
    """

    def __init__(self, servers: int = 1, per_request: bool = False) -> None:
        self._ahead_seconds = [0.0] * servers
        self.per_request = per_request
        self._away_until = [-math.inf] * servers

    def step(self, seconds: float, server: int | None) -> None:
        """Set the clock of a server (counted from 1) forward, or back if negative; None: of all servers."""
        for number in range(1, len(self._ahead_seconds) + 1):
            if server in (None, number):
                self._ahead_seconds[number - 1] += seconds

    def stop(self, server: int, for_seconds: float) -> None:
        """Take a server (counted from 1) away for a time: its connections end, and it gets no new ones."""
        self._away_until[server - 1] = virtual_now() + for_seconds

    def is_away(self, server: int) -> bool:
        """Return whether a server (counted from 0) is away."""
        return virtual_now() < self._away_until[server]

    def after(self, server: int) -> int:
        """Return the server whose turn it is after this one (counted from 0), passing over those that are away."""
        number = len(self._ahead_seconds)
        turns = [(server + turn) % number for turn in range(1, number + 1)]
        return next((turn for turn in turns if not self.is_away(turn)), turns[0])

    def date(self, server: int) -> int:
        """Return the ``Date`` of an answer given now by ``server`` (counted from 0)."""
        return date_of(virtual_now() + self._ahead_seconds[server])

    def epoch(self) -> float:
        """Return the time by which objects are dated: seconds since the epoch."""
        return server_time(virtual_now()) + self._ahead_seconds[0]


class HostClock:
    """A host's wall clock, ``ahead_seconds`` of the right time until it is stepped, and the ``speed`` of its quartz."""

    def __init__(self, ahead_seconds: float = 0.0, drift_ppm: float = 0.0) -> None:
        self.ahead_seconds = ahead_seconds
        self.speed = 1.0 + drift_ppm / 1e6

    def step(self, seconds: float) -> None:
        """Set the clock forward, or back if negative."""
        self.ahead_seconds += seconds

    def read(self) -> float:
        """Read the clock: seconds since the epoch."""
        return server_time(virtual_now()) + self.ahead_seconds


class ProcessClock:
    """The clock of one controller process, and the conversion of its instants to the scenario's seconds.

    ``monotonic_offset`` is what the process's monotonic clock shows at second 0: no two processes share one.
    """

    def __init__(self, host: HostClock, monotonic_offset: float) -> None:
        self._offset, self._speed = monotonic_offset, host.speed
        self.server_clock = ServerClock(monotonic=self._monotonic, wall=host.read)

    def scenario_second(self, instant: float) -> float:
        """Convert an instant of this process to the scenario's time."""
        return round((instant - self._offset) / self._speed, 6)

    def _monotonic(self) -> float:
        return virtual_now() * self._speed + self._offset
