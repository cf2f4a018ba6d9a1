"""Finds out what time it is at the API server to a few hundredths of a second, before anything is dated by it.

An answer's ``Date`` is cut off to whole seconds. Asking again until it changes shows where the second begins; without
that every deadline after a restart could be up to a second later than it need be.
"""

import asyncio
import contextlib

from taint_eviction.adapters.api_calls import ApiCalls, Call
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed

_ASK_EVERY_SECONDS = 0.02
# A second and a little: by then a Date must have changed.
_LONGEST_SECONDS = 1.1


async def sharpen(calls: ApiCalls, clock: ServerClock) -> None:
    """Ask until the API server's second has turned; give up silently where it does not answer: it is only sharper."""
    with contextlib.suppress(TimeoutError, CallFailed):
        async with asyncio.timeout(_LONGEST_SECONDS):
            await calls.make(Call("get", "version", url_path="/version"))
            turns = clock.seconds_heard
            while clock.seconds_heard == turns:
                await asyncio.sleep(_ASK_EVERY_SECONDS)
                await calls.make(Call("get", "version", url_path="/version"))
