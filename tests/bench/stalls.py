"""How long a process's event loop does not answer, measured over HTTP every few milliseconds from a thread."""

import http.client
import threading
from types import TracebackType
from typing import Self

from tests.bench.processes import now

_EVERY_SECONDS = 0.01


class Stalls:
    """Sends requests to /healthz repeatedly during the block.

    ``worst``: the longest wait for an answer, in seconds. ``noise``: how much too long a thread that only sleeps has
    slept at most meanwhile, which is the share of the machine itself.
    """

    def __init__(self, port: int) -> None:
        self.worst = 0.0
        self.noise = 0.0
        self._port = port
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._ask), threading.Thread(target=self._sleep)]

    def __enter__(self) -> Self:
        """Start the requests."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the requests."""
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while not self._end.wait(_EVERY_SECONDS):
            asked_at = now()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.worst = max(self.worst, now() - asked_at)
        connection.close()

    def _sleep(self) -> None:
        while True:
            asked_at = now()
            ended = self._end.wait(_EVERY_SECONDS)
            if ended:
                return
            self.noise = max(self.noise, now() - asked_at - _EVERY_SECONDS)
