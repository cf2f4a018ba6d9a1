"""SIGTERM and SIGINT: the first asks for an end in good order, a second ends the process at once."""

import asyncio
import os
import signal


class StopSignals:
    """Sets ``stop`` when the process is told to end."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def install(self) -> None:
        """Put the handlers in place, in the running loop; again after somebody else has replaced them."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told, number)

    def _told(self, number: int) -> None:
        if self._stop.is_set():
            os._exit(128 + number)
        self._stop.set()
