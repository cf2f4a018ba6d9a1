"""An asyncio event loop whose time is virtual: when nothing is ready, it jumps to the next timer.

Time advances only by waiting, in whole microseconds, so an hour passes as fast as its callbacks run, and two runs of
the same coroutine see the same times. Asyncio chooses the order of timers for one instant, the same in every run.

Steps of a frozen process wait until it is thawed (``freezing``).

Nothing outside can wake the loop: no sockets, no threads. A loop in which nothing is ready and nothing scheduled would
never wake, so it raises ``Deadlock``. A loop that turns without ever waiting would stay at one instant, so it raises
``TimeStandsStill``. Both are bugs of the code that runs in the loop.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, copy_context
from typing import Any, TypeVar

from taint_eviction_lab.simulation.freezing import FREEZER, Turn

ResultT = TypeVar("ResultT")

_TICKS_PER_SECOND = 1_000_000
# A timer that is this close counts as reached: binary fractions of a second are not exact.
_REACHED_TICKS = 1e-3
# No correct code needs more turns than this without waiting.
_MAX_TURNS_AT_AN_INSTANT = 1_000_000


class Deadlock(RuntimeError):
    """Everything waits for an event that never comes."""


class TimeStandsStill(RuntimeError):
    """Something keeps the loop busy without ever waiting."""


class _JumpingSelector(selectors.BaseSelector):
    """A selector without an outside world: waiting means advancing the time."""

    def __init__(self, advance: Callable[[float | None], None]) -> None:
        self._advance = advance
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Register a file object, as the loop's own wake-up pipe; it will never be ready."""
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[fileobj] = selectors.SelectorKey(fileobj, number, events, data)
        return self._keys[fileobj]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Unregister a file object."""
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let ``timeout`` seconds pass at once; None: indefinitely."""
        self._advance(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return what is registered."""
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; ``start`` is the time at which it begins."""

    def __init__(self, start: float = 0.0) -> None:
        self._ticks = round(start * _TICKS_PER_SECOND)
        self._turns = 0
        super().__init__(_JumpingSelector(self._advance))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._ticks / _TICKS_PER_SECOND

    def call_soon(  # type: ignore[override]  # the stubs' type of args cannot be passed on
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run the callback in the next turn, or at the thaw of a process that is frozen then."""
        context = copy_context() if context is None else context
        freezer = context.get(FREEZER)
        if freezer is None:
            return super().call_soon(callback, *args, context=context)
        turn = Turn(callback, args, context, freezer)
        turn.handle = super().call_soon(turn, context=context)
        return turn.handle

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback at an instant, or at the thaw of a process that is frozen then."""
        context = copy_context() if context is None else context
        freezer = context.get(FREEZER)
        if freezer is None:
            return super().call_at(when, callback, *args, context=context)
        turn = Turn(callback, args, context, freezer)
        handle = super().call_at(when, turn, context=context)
        turn.handle = handle
        return handle

    def _advance(self, seconds: float | None) -> None:
        if seconds is None:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise Deadlock(
                f"nothing is ready or scheduled any more at {self.time():g} s; waiting: {', '.join(waiting)}"
            )
        if seconds > 0:
            ticks = seconds * _TICKS_PER_SECOND - _REACHED_TICKS
            self._ticks += max(1, -int(-ticks // 1))
            self._turns = 0
            return
        self._turns += 1
        if self._turns > _MAX_TURNS_AT_AN_INSTANT:
            self._turns = 0  # so that the running tasks can still be cancelled
            raise TimeStandsStill(f"at {self.time():g} s the loop turns without ever waiting")


def run_virtually(main: Coroutine[Any, Any, ResultT], start: float = 0.0) -> ResultT:
    """Run ``main`` to its end on a virtual loop of its own, beginning at ``start``, and return its result."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start)) as runner:
        return runner.run(main)
