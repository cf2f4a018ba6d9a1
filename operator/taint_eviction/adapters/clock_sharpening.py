"""Learns the time of the API server's clock before anything is dated by it.

The ``Date`` of a single answer may be wrong, and is truncated to whole seconds. The median of several answers, spread
evenly over one second, is right: half a second behind, wherever in a second the first one fell.
"""

import asyncio
import contextlib

from taint_eviction.adapters.api_calls import ApiCalls, ApiRequest
from taint_eviction.runtime.clock import MIN_ANSWERS
from taint_eviction.runtime.ports import CallFailed

# A further answer would fall into the same part of its second as the first one.
_ASK_EVERY_SECONDS = 1.0 / MIN_ANSWERS
_LONGEST_SECONDS = 2.0


async def sharpen(calls: ApiCalls) -> None:
    """Make as many calls as a median needs; give up silently if the API server does not answer in time."""
    with contextlib.suppress(TimeoutError, CallFailed):
        async with asyncio.timeout(_LONGEST_SECONDS):
            for number in range(MIN_ANSWERS):
                await asyncio.sleep(_ASK_EVERY_SECONDS if number else 0.0)
                await calls.make(ApiRequest("get", "version", url_path="/version"))
