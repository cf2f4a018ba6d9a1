"""Freezes one process of a simulated world: its steps wait until it is thawed, and then run in their order.

The context in which a callback was scheduled says to which process it belongs (``FREEZER``); tasks and timers inherit
the context. Callbacks that belong to no process, as the API server's side of a call, continue meanwhile.
"""

from collections.abc import Callable
from contextvars import ContextVar

FREEZER: ContextVar["Freezer | None"] = ContextVar("FREEZER", default=None)


class Freezer:
    """Holds the steps of one process while it is frozen."""

    def __init__(self) -> None:
        self.frozen = False
        self._held: list[Callable[[], object]] = []

    def freeze(self) -> None:
        """Let no step run from now on."""
        self.frozen = True

    def thaw(self) -> None:
        """Run all steps that should have run meanwhile, in their order, and allow all later ones."""
        self.frozen = False
        held, self._held = self._held, []
        for run_soon in held:
            run_soon()

    def hold(self, run_soon: Callable[[], object]) -> None:
        """Keep a step for later: ``run_soon`` lets it run in the next turn of the loop."""
        self._held.append(run_soon)
