"""Workers, and how an attempt holds one: an attempt that waits long for an answer lends its worker to others.

An attempt holds a worker from its start and takes it again before each step. If a step takes longer than a second, the
worker is lent, so that a call without an answer does not hold up other attempts. A bounded number is lent at a time:
the service accounts of kube-system share one flow of API Priority and Fairness.

Retries never hold more than half of the workers: they wait longer for theirs. While a retry waits for an answer and has
lent its worker, it does not count against that half.

Does not choose what is attempted, nor when (``driver``). Invariant: no more workers are taken than exist.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

_LENT_AFTER_SECONDS = 1.0


class Workers:
    """A fixed number of workers, of which at most ``max_lent`` are lent at a time.

    ``freed`` is called whenever one may have become free.
    """

    def __init__(self, number: int, freed: Callable[[], None], max_lent: int) -> None:
        self.number = number
        self._max_lent = max_lent
        self._freed = freed
        # When each is lent, by the loop's clock; soonest first, because all steps have the same time. So one timer, at
        # the first of these instants, serves all.
        self._busy: dict[Worker, float] = {}
        self._timer: asyncio.TimerHandle | None = None
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
        return len(self._busy) + max(0, len(self._waiting_long) - self._max_lent)

    @property
    def retrying(self) -> int:
        """Count the workers that retries hold, with as many of those beyond ``max_lent`` as retries may hold."""
        beyond = max(0, len(self._waiting_long) - self._max_lent)
        waiting = sum(worker.is_retry for worker in self._waiting_long) if beyond else 0
        return sum(worker.is_retry for worker in self._busy) + min(beyond, waiting)

    @property
    def lent(self) -> int:
        """Count the workers that are lent."""
        return min(len(self._waiting_long), self._max_lent)

    @property
    def waiting_long(self) -> Counter[str]:
        """How many attempts of each namespace have waited long."""
        return Counter(worker.namespace for worker in self._waiting_long if worker.namespace)

    def assign(self, namespace: str = "", *, is_retry: bool = False) -> "Worker":
        """Assign a worker that is free; ``namespace``: that of the attempt's pod, "" if there is none."""
        worker = Worker(self, namespace, is_retry)
        self._hold(worker)
        return worker

    async def take_again(self, worker: "Worker") -> None:
        """Wait until an attempt whose worker may be lent has one again; its next step begins."""
        if self._busy.pop(worker, None) is not None:
            self._hold(worker)
            return
        self._waiting_long.discard(worker)
        granted = self._returning[worker] = asyncio.get_running_loop().create_future()
        self._grant()
        try:
            await granted
        finally:
            self._returning.pop(worker, None)

    def detach(self, worker: "Worker") -> None:
        """Free what an attempt has that has ended."""
        self._busy.pop(worker, None)
        self._waiting_long.discard(worker)
        if not self._busy and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._grant()

    def _hold(self, worker: "Worker") -> None:
        """Keep a worker busy from now on, until its step takes long."""
        loop = asyncio.get_running_loop()
        lent_at = self._busy[worker] = loop.time() + _LENT_AFTER_SECONDS
        if self._timer is None:
            self._timer = loop.call_at(lent_at, self._lend)

    def _lend(self) -> None:
        """Lend the workers whose steps take long, as long as their attempts wait."""
        loop = asyncio.get_running_loop()
        while self._busy and self._busy[worker := next(iter(self._busy))] <= loop.time():
            del self._busy[worker]
            self._waiting_long.add(worker)
            self._grant()
        self._timer = loop.call_at(next(iter(self._busy.values())), self._lend) if self._busy else None

    def _grant(self) -> None:
        for worker, granted in list(self._returning.items()):
            if self.taken >= self.number:
                break
            if worker.is_retry and self.retrying >= self.number // 2:
                continue
            del self._returning[worker]
            if not granted.cancelled():
                self._hold(worker)
                granted.set_result(None)
        self._freed()


class Worker:
    """The claim of one attempt to a worker; ``is_retry``: the attempt was made before, or takes something back."""

    def __init__(self, workers: Workers, namespace: str, is_retry: bool) -> None:
        self.namespace = namespace
        self.is_retry = is_retry
        self._workers = workers

    async def take(self) -> None:
        """Hold a worker for the next step; it is lent when the step takes long."""
        await self._workers.take_again(self)

    def leave(self) -> None:
        """End the attempt."""
        self._workers.detach(self)
