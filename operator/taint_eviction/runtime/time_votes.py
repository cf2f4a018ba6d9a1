"""Asks API servers for the time, each time on a connection of its own: a balancer chooses a server for each connection.

Does not count the votes (``clock``), and does not know how a connection is opened (``adapters``).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed

logger = logging.getLogger(__name__)

# How long nothing is dated for want of votes.
LONGEST_SECONDS = 10.0

# The same for a person who waits for a command.
COMMAND_SECONDS = 3.0

# Five answers that are spread over a second: that of one of them falls close behind the beginning of a second.
_ASK_EVERY_SECONDS = 0.2

# Connections to a server that hangs are replaced, but not without bound.
_MAX_UNDER_WAY = 10

# The same after a start without enough votes, as while the API server was away.
_ASK_LATE_SECONDS = 1.0

# How often another connection is opened while votes disagree.
_ASK_AGAIN_SECONDS = 60.0

# Opens a connection and makes one call on it; the answer votes. Raises ``CallFailed``.
Ask = Callable[[], Awaitable[None]]


async def learn_time(clock: ServerClock, ask: Ask, max_seconds: float = LONGEST_SECONDS) -> None:
    """Return once enough connections have voted, or after ``max_seconds``; then the votes that there are count."""
    known = asyncio.Event()

    async def ask_once() -> None:
        with contextlib.suppress(CallFailed):
            await ask()
        if clock.decided:
            known.set()

    clock.wait_for_votes()
    asked: list[asyncio.Task[None]] = []
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max_seconds), asyncio.TaskGroup() as group:
                while not clock.decided:
                    if sum(not task.done() for task in asked) < _MAX_UNDER_WAY:
                        asked.append(group.create_task(ask_once(), name="ask for the time"))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_ASK_EVERY_SECONDS):
                            await known.wait()
                for task in asked:
                    task.cancel()
    finally:
        clock.stop_waiting()


async def keep_asking(clock: ServerClock, ask: Ask) -> None:
    """Open another connection every second if the start ended without enough votes, until there are enough; then every
    minute while votes disagree. Runs until cancelled.
    """
    while not clock.decided:
        await asyncio.sleep(_ASK_LATE_SECONDS)
        if clock.short_of_votes:
            with contextlib.suppress(CallFailed):
                await ask()
    logged = False
    while True:
        await asyncio.sleep(_ASK_AGAIN_SECONDS)
        if not clock.votes_disagree:
            logged = False
            continue
        if not logged:
            logger.warning(
                "the clocks of API servers disagree by %.0f s, or all were stepped: deadlines follow the time that "
                "was known before, until all servers have agreed on another one for ten minutes",
                clock.disagreement_seconds(),
            )
            logged = True
        with contextlib.suppress(CallFailed):
            await ask()
