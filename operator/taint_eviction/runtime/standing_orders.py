"""Keeps the brain's orders (pauses, the breaker's latch) and those in the cluster the same.

Reads every few seconds, each time in less than that, so that a pause is in force everywhere soon; what cannot be read
leaves the last orders known in force. Writes only what the breaker of the acting process did. Decides nothing.
"""

import asyncio
import contextlib
import logging
from dataclasses import replace

from taint_eviction.core.orders import Orders
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.ports import CallFailed, Gate, OrdersStore

logger = logging.getLogger(__name__)

# A failure that lasts is told again after so long.
_TELL_AGAIN_SECONDS = 60.0


class StandingOrders:
    """Reads and writes the orders of one controller; ``writes`` False: a dry run, which keeps its latch to itself."""

    def __init__(
        self, store: OrdersStore, live: LiveController, gate: Gate, *, poll_seconds: float, writes: bool
    ) -> None:
        self._store = store
        self._live = live
        self._gate = gate
        self._poll_seconds = poll_seconds
        self._writes = writes
        self._read_at: float | None = None
        self._began_at = live.clock.now().at
        self._told_at: float | None = None
        self._kept = Orders()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_again_and_again(), name="orders")
            if self._writes:
                group.create_task(self._write_again_and_again(), name="latch")

    def age_seconds(self) -> float:
        """Return how many seconds ago the orders were last read; since the start where they never were."""
        return self._live.clock.now().at - (self._began_at if self._read_at is None else self._read_at)

    async def _read_again_and_again(self) -> None:
        while True:
            asked_at = self._live.clock.now().at
            await self._read()
            # Until they are known nothing is evicted at all.
            every = self._poll_seconds if self._read_at is not None else self._poll_seconds / 8
            await asyncio.sleep(max(0.0, asked_at + every - self._live.clock.now().at))

    async def _read(self) -> None:
        asked_at = self._live.clock.now().at
        try:
            async with asyncio.timeout(self._poll_seconds):
                orders = await self._store.read()
        except (CallFailed, TimeoutError) as failure:
            self._tell(str(failure) or f"no answer within {self._poll_seconds:g} s", asked_at)
            return
        if self._told_at is not None:
            logger.info("the orders (pauses, breaker) can be read again")
        self._read_at, self._told_at = asked_at, None
        self._kept = orders or Orders()
        self._live.order(self._kept)

    def _tell(self, failure: str, at: float) -> None:
        if self._told_at is not None and at - self._told_at < _TELL_AGAIN_SECONDS:
            return
        self._told_at = at
        held = "nothing is evicted until they can be" if self._read_at is None else "the last ones known stay in force"
        logger.error("the orders (pauses, breaker) cannot be read, %s: %s", held, failure)

    async def _write_again_and_again(self) -> None:
        while True:
            with contextlib.suppress(CallFailed):  # Counted and told where calls are made; tried again with each turn.
                await self._write()
            await asyncio.sleep(self._poll_seconds / 4)

    async def _write(self) -> None:
        """Keep in the cluster what the breaker of this process did and what the last read did not have."""
        breaker, kept = self._live.controller.dispatch.brakes.breaker, self._kept
        if self._read_at is None or not self._gate.may_act():
            return
        if breaker.latch is not None and kept.latch is None:
            latch = breaker.latch
            await self._store.write_latch(latch)
            self._kept = replace(self._kept, latch=latch)
        elif breaker.latch is None and kept.latch is not None and breaker.reset_epoch is not None:
            await self._store.write_reset(breaker.reset_epoch)
            self._kept = replace(self._kept, latch=None)
