"""How late the event loop wakes up."""

import asyncio

import pytest

from taint_eviction.core.instants import Moment
from taint_eviction.reporting import loop_lag


class SteppingClock:
    """A clock that shows the given instants one after the other."""

    def __init__(self, *instants: float) -> None:
        self._instants = iter(instants)

    def now(self) -> Moment:
        """Return the next instant, and 0 after the last one."""
        at = next(self._instants, 0.0)
        return Moment(at, at)


async def test_the_lag_is_the_time_beyond_the_requested_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lag is in seconds, and not negative where a clock is coarse."""
    monkeypatch.setattr(loop_lag, "_EVERY_SECONDS", 0.0)
    lags: list[float] = []
    enough = asyncio.Event()

    def lagged(seconds: float) -> None:
        lags.append(seconds)
        if len(lags) == 2:
            enough.set()

    task = asyncio.create_task(loop_lag.measure_loop_lag(SteppingClock(1.0, 1.25, 5.0, 4.0), lagged))
    await enough.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert lags[:2] == [0.25, 0.0]
