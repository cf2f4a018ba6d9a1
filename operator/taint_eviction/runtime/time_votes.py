"""Asks API servers for the time, each time on a connection of its own: a balancer chooses a server for each connection.

Does not count the votes (``clock``), and does not know how a connection is opened (``kube``).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed

logger = logging.getLogger(__name__)

# How long votes are waited for once there is one.
_LONGEST_SECONDS = 10.0

# How long a person waits for the votes that a command asks for.
COMMAND_SECONDS = 3.0

# Five answers that are spread over a second: that of one of them falls close behind the beginning of a second.
_OWN_ANSWERS = 5
_ASK_EVERY_SECONDS = 0.2

# Connections to a server that hangs are replaced, but not without bound.
_MAX_UNDER_WAY = 10

# How often the time is asked for while no API server answers, and where too few have voted in the end.
_ASK_LATE_SECONDS = 1.0

# How often another connection is opened while votes disagree; and while they agree, perhaps because one connection
# carries all calls, and leads to a server whose clock goes wrong.
_ASK_AGAIN_SECONDS = 60.0
_ASK_SELDOM_SECONDS = 300.0

# Opens a connection and makes one call on it; the answer votes. Raises ``CallFailed`` if there is none.
Ask = Callable[[], Awaitable[None]]


async def learn_time(clock: ServerClock, ask: Ask, max_seconds: float | None = None) -> None:
    """Return once enough connections have voted; then, or when it ends otherwise, the votes that there are count.

    ``max_seconds``: it ends after so long. None: it ends 10 s after the first answer, however long that takes: an API
    server that is back before the others may be the one that is wrong.
    """
    answers = 0
    known = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def ask_once() -> None:
        nonlocal answers
        with contextlib.suppress(CallFailed):
            await ask()
            answers += 1
        if clock.decided and answers >= _OWN_ANSWERS:
            known.set()

    clock.wait_for_votes()
    asked: set[asyncio.Task[None]] = set()
    began = loop.time()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max_seconds) as limit, asyncio.TaskGroup() as group:
                while not known.is_set():
                    is_answered = clock.heard or answers > 0
                    if is_answered and limit.when() is None:
                        limit.reschedule(loop.time() + _LONGEST_SECONDS)
                    if len(asked) < _MAX_UNDER_WAY:
                        asking = group.create_task(ask_once(), name="ask for the time")
                        asked.add(asking)
                        asking.add_done_callback(asked.discard)
                    is_away = not is_answered and loop.time() >= began + _LONGEST_SECONDS
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_ASK_LATE_SECONDS if is_away else _ASK_EVERY_SECONDS):
                            await known.wait()
                for task in asked:
                    task.cancel()
    finally:
        clock.stop_waiting()


async def keep_asking(clock: ServerClock, ask: Ask) -> None:
    """Open another connection every second if the start ended without enough votes, until there are enough; then every
    five minutes, and every minute while votes disagree. Runs until cancelled.
    """
    while not clock.decided:
        await asyncio.sleep(_ASK_LATE_SECONDS)
        if clock.short_of_votes:
            with contextlib.suppress(CallFailed):
                await ask()
    logged = False
    quiet_seconds = 0.0
    while True:
        await asyncio.sleep(_ASK_AGAIN_SECONDS)
        quiet_seconds += _ASK_AGAIN_SECONDS
        if not clock.votes_disagree:
            logged = False
            if quiet_seconds < _ASK_SELDOM_SECONDS:
                continue
        elif not logged:
            logger.warning(
                "the clocks of API servers disagree by %.0f s, or all were stepped: deadlines follow the time that "
                "was known before, until all servers have agreed on another one for ten minutes",
                clock.disagreement_seconds(),
            )
            logged = True
        quiet_seconds = 0.0
        with contextlib.suppress(CallFailed):
            await ask()
