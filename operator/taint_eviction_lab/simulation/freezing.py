"""Freezes one process of a simulated world: its steps wait until it is thawed, and then run in their order.

The context in which a callback was scheduled says to which process it belongs (``FREEZER``); tasks and timers inherit
the context. Callbacks that belong to no process, as the API server's side of a call, continue meanwhile.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

FREEZER: ContextVar["Freezer | None"] = ContextVar("FREEZER", default=None)


class Freezer:
    """Holds the steps of one process while it is frozen."""

    def __init__(self) -> None:
        self.frozen = False
        self._held: list[Turn] = []

    def freeze(self) -> None:
        """Let no step run from now on."""
        self.frozen = True

    def thaw(self) -> None:
        """Run all steps that should have run meanwhile, in their order, and allow all later ones."""
        self.frozen = False
        held, self._held = self._held, []
        loop = asyncio.get_running_loop()
        for turn in held:
            # This bypasses the virtual loop's own ``call_soon``, which would wrap the turn in another turn.
            asyncio.BaseEventLoop.call_soon(loop, turn, context=turn.context)  # type: ignore[arg-type]

    def hold(self, turn: "Turn") -> None:
        """Keep a turn for later."""
        self._held.append(turn)


class Turn:
    """One callback of a process that can be frozen; a cancelled one never runs, not even after a thaw."""

    __slots__ = ("args", "callback", "context", "freezer", "handle")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context, freezer: Freezer) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.freezer = freezer
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        """Run, or wait for the thaw."""
        if self.handle is not None and self.handle.cancelled():
            return
        if self.freezer.frozen:
            self.freezer.hold(self)
        else:
            self.callback(*self.args)
