"""SIGTERM and SIGINT: the first one asks for an orderly end, the second ends the process at once."""

import asyncio
import os
import signal


class StopSignals:
    """Sets ``stop`` at the first signal."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def install(self) -> None:
        """Set the handlers in the running loop; again after others have replaced them."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._handle, number)

    def _handle(self, number: int) -> None:
        if self._stop.is_set():
            os._exit(128 + number)
        self._stop.set()
