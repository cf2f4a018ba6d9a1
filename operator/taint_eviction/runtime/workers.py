"""Workers, and how an attempt holds one: an attempt that waits long for an answer lends its worker to others.

An attempt holds a worker from its start and takes it again before each step. If a step takes longer than a second, the
worker is lent, so that a call without an answer does not hold up other attempts. At most 100 are lent at a time: the
service accounts of kube-system share one flow of API Priority and Fairness.

Does not choose what is attempted, nor when (``driver``). Invariant: no more workers are taken than exist.
"""

import asyncio
from collections.abc import Callable

_LENT_AFTER_SECONDS = 1.0
_MAX_LENT = 100


class Workers:
    """A fixed number of workers; ``freed`` is called whenever one may have become free."""

    def __init__(self, number: int, freed: Callable[[], None]) -> None:
        self.number = number
        self._freed = freed
        self._busy: set[Worker] = set()
        self._waiting_long: set[Worker] = set()
        # Attempts that have their answer and need a worker again, first come, first served.
        self._returning: dict[Worker, asyncio.Future[None]] = {}

    @property
    def busy(self) -> int:
        """Count the workers of attempts that have not waited long."""
        return len(self._busy)

    @property
    def taken(self) -> int:
        """Count the workers that nobody else can have."""
        return len(self._busy) + max(0, len(self._waiting_long) - _MAX_LENT)

    @property
    def lent(self) -> int:
        """Count the workers that are lent."""
        return min(len(self._waiting_long), _MAX_LENT)

    def assign(self) -> "Worker":
        """Assign a worker that is free."""
        worker = Worker(self)
        self._busy.add(worker)
        worker.arm()
        return worker

    def lend(self, worker: "Worker") -> None:
        """Lend a worker to others as long as its attempt waits."""
        self._busy.discard(worker)
        self._waiting_long.add(worker)
        self._grant()

    async def take_again(self, worker: "Worker") -> None:
        """Wait until an attempt whose worker may be lent has one again."""
        if worker in self._busy:
            return
        self._waiting_long.discard(worker)
        granted = self._returning[worker] = asyncio.get_running_loop().create_future()
        self._grant()
        try:
            await granted
        finally:
            self._returning.pop(worker, None)

    def leave(self, worker: "Worker") -> None:
        """Free what an attempt has that has ended."""
        self._busy.discard(worker)
        self._waiting_long.discard(worker)
        self._grant()

    def _grant(self) -> None:
        while self._returning and self.taken < self.number:
            worker = next(iter(self._returning))
            granted = self._returning.pop(worker)
            if not granted.cancelled():
                self._busy.add(worker)
                granted.set_result(None)
        self._freed()


class Worker:
    """The claim of one attempt to a worker."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._timer: asyncio.TimerHandle | None = None

    async def take(self) -> None:
        """Hold a worker for the next step; it is lent when the step takes long."""
        self.disarm()
        await self._workers.take_again(self)
        self.arm()

    def leave(self) -> None:
        """End the attempt."""
        self.disarm()
        self._workers.leave(self)

    def arm(self) -> None:
        """Start the time after which the worker is lent."""
        self._timer = asyncio.get_running_loop().call_later(_LENT_AFTER_SECONDS, self._workers.lend, self)

    def disarm(self) -> None:
        """Stop that time."""
        if self._timer is not None:
            self._timer.cancel()
