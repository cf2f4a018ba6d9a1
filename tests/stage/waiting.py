"""How tests wait: for conditions, as long as a machine under any load may need, and never for a fixed time.

``PATIENCE_SECONDS`` only bounds a test that would hang. No test passes or fails by how soon something happens:
benchmarks measure this, and tests on a virtual clock assert it exactly.
"""

import asyncio
import contextlib
import inspect
import secrets
import socket
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 60.0
# How often a condition is asked for: less and less, since many of them are requests, and each costs two processes time.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.05
# Linux takes the ports of connections from 32768 on, and macOS from 49152 on.
_FIRST_PORT, _PORTS = 10_000, 22_000


async def until(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition, or a coroutine that it returns, is true; raise TimeoutError if it never is."""
    pause = _FIRST_PAUSE_SECONDS
    async with asyncio.timeout(seconds):
        while True:
            held = condition()
            if await held if inspect.isawaitable(held) else held:
                return
            await asyncio.sleep(pause)
            pause = min(1.1 * pause, _LONGEST_PAUSE_SECONDS)


async def sleep_until(at: float) -> None:
    """Wait until an instant of the loop's clock."""
    await asyncio.sleep(at - now())


def now() -> float:
    """Return the time of the loop's clock, with which the API server records the arrival of requests."""
    return asyncio.get_running_loop().time()


def free_port() -> int:
    """Return a port on which no process listens, and which the kernel gives to no connection meanwhile."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
