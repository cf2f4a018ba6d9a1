"""A simulated process that can be killed: one task, the calls that it makes, and a freezer around it."""

import asyncio

from taint_eviction_lab.simulation.calls import SimulatedCalls
from taint_eviction_lab.simulation.freezing import Freezer


class Killable:
    """A process with ``_calls`` that runs as ``_task`` and can be frozen by ``freezer``; subclasses set these."""

    freezer: Freezer
    _calls: SimulatedCalls
    _task: asyncio.Task[None]

    def fall_silent(self) -> None:
        """Send nothing from this moment on; the process is killed next."""
        self._calls.close()

    async def kill(self) -> None:
        """End the process at once; raise the bug that had already ended it, if one did."""
        self.fall_silent()
        self._task.cancel()
        self.freezer.thaw()
        await asyncio.wait([self._task])
        self.check()

    def check(self) -> None:
        """Raise the bug that has ended the process, if one did."""
        if self._task.done() and not self._task.cancelled() and (bug := self._task.exception()) is not None:
            raise bug
