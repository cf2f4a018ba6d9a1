"""Measures how late the event loop wakes up: what keeps it busy keeps evictions waiting.

Does not judge: that is the liveness probe's and the alerts' business.
"""

import asyncio
from collections.abc import Callable

from taint_eviction.runtime.ports import Clock

_EVERY_SECONDS = 0.5


async def measure_loop_lag(clock: Clock, lagged: Callable[[float], None]) -> None:
    """Give ``lagged`` a measurement every half second, in seconds and never negative, until cancelled."""
    while True:
        wanted_at = clock.now().at + _EVERY_SECONDS
        await asyncio.sleep(_EVERY_SECONDS)
        lagged(max(0.0, clock.now().at - wanted_at))
