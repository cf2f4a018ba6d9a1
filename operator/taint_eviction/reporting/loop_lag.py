"""Measures how late the event loop wakes up: while it is busy, evictions wait.

This module sets no threshold: the liveness probe and the alerts do.
"""

import asyncio
from collections.abc import Callable

from taint_eviction.runtime.ports import Clock

_EVERY_SECONDS = 0.5


async def measure_loop_lag(clock: Clock, lagged: Callable[[float], None]) -> None:
    """Call ``lagged`` every half second with the lag in seconds, never negative, until cancelled."""
    while True:
        wanted_at = clock.now().at + _EVERY_SECONDS
        await asyncio.sleep(_EVERY_SECONDS)
        lagged(max(0.0, clock.now().at - wanted_at))
