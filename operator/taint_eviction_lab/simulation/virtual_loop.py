"""An asyncio event loop whose time is virtual: when nothing is ready, it jumps to the next timer.

Time advances only by waiting, in whole microseconds, so an hour passes as fast as its callbacks run, and two runs of
the same coroutine see the same times. Asyncio chooses the order of timers for one instant, the same in every run.

Steps of a frozen process wait until it is thawed (``freezing``).

Nothing outside can wake the loop: no sockets, no threads. A loop in which nothing is ready and nothing scheduled would
never wake, so it raises ``Deadlock``. A loop that turns without ever waiting would stay at one instant, so it raises
``TimeStandsStill``. Both are bugs of the code that runs in the loop.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVar

from taint_eviction_lab.simulation.freezing import FREEZER

ResultT = TypeVar("ResultT")

_TICKS_PER_SECOND = 1_000_000
# A timer that is this close counts as reached: binary fractions of a second are not exact.
_REACHED_TICKS = 1e-3
_REACHED_SECONDS = 1e-9
# No correct code needs more turns than this without waiting.
_MAX_TURNS_AT_AN_INSTANT = 1_000_000
# So many timers, of which more than half were cancelled, are looked through for these.
_MANY_TIMERS = 100
_LONGEST_JUMP_SECONDS = 86_400.0


class Deadlock(RuntimeError):
    """Everything waits for an event that never comes."""


class TimeStandsStill(RuntimeError):
    """Something keeps the loop busy without ever waiting."""


class _Turn(asyncio.Handle):
    """A callback; it is made for each step of a simulation, and leaves out what asyncio notes for debugging."""

    __slots__ = ()

    _context: Context

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], loop: "VirtualLoop", context: Context
    ) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._source_traceback, self._repr = False, None, None


class _TimedTurn(asyncio.TimerHandle):
    """A callback with its time; see above."""

    __slots__ = ()
    _context: Context

    def __init__(
        self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], loop: "VirtualLoop", context: Context
    ) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._source_traceback, self._repr = False, None, None
        self._when, self._scheduled = when, True


class _Instant(float):
    """When a timer runs. A heap compares numbers faster than timers, and leaves them in the same order."""

    __slots__ = ("timer",)
    timer: _TimedTurn


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop; ``start`` is the time at which it begins. It takes its turns as asyncio's loops do, but never waits."""

    # Of asyncio's loop.
    _ready: deque[_Turn | _TimedTurn]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self._ticks = round(start * _TICKS_PER_SECOND)
        self._now = self._ticks / _TICKS_PER_SECOND
        self._turns = 0
        self._timers: list[_Instant] = []

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def call_soon(  # type: ignore[override]  # the stubs' type of args cannot be passed on
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run the callback in the next turn, or at the thaw of a process that is frozen then."""
        turn = _Turn(callback, args, self, copy_context() if context is None else context)
        self._ready.append(turn)
        return turn

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback after a time, or at the thaw of a process that is frozen then."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback at an instant, or at the thaw of a process that is frozen then."""
        timer = _TimedTurn(when, callback, args, self, copy_context() if context is None else context)
        instant = _Instant(when)
        instant.timer = timer
        heapq.heappush(self._timers, instant)
        return timer

    def _write_to_self(self) -> None:
        """Wake nobody: the loop never waits. asyncio calls this to end generators that are left alone."""

    def _run_once(self) -> None:
        """Take one turn: let time pass if nothing is ready, and run what is ready then."""
        self._forget_cancelled()
        if self._ready or self._stopping:
            self._stand_still()
        else:
            self._jump()
        reached, timers, ready = self._now + _REACHED_SECONDS, self._timers, self._ready
        while timers and timers[0] < reached:
            timer = heapq.heappop(timers).timer
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            turn = ready.popleft()
            if turn._cancelled:
                continue
            freezer = turn._context.get(FREEZER)
            if freezer is not None and freezer.frozen:
                freezer.hold(partial(ready.append, turn))
            else:
                turn._run()

    def _forget_cancelled(self) -> None:
        timers = self._timers
        if len(timers) > _MANY_TIMERS and self._timer_cancelled_count > len(timers) / 2:
            self._timers = [instant for instant in timers if not instant.timer._cancelled]
            heapq.heapify(self._timers)
            self._timer_cancelled_count = 0
            return
        while timers and timers[0].timer._cancelled:
            heapq.heappop(timers)
            self._timer_cancelled_count -= 1

    def _jump(self) -> None:
        """Let the time pass until the next timer."""
        if not self._timers:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise Deadlock(f"nothing is ready or scheduled any more at {self._now:g} s; waiting: {', '.join(waiting)}")
        if (seconds := min(self._timers[0] - self._now, _LONGEST_JUMP_SECONDS)) <= 0:
            self._stand_still()
            return
        ticks = seconds * _TICKS_PER_SECOND - _REACHED_TICKS
        self._ticks += max(1, -int(-ticks // 1))
        self._now = self._ticks / _TICKS_PER_SECOND
        self._turns = 0

    def _stand_still(self) -> None:
        self._turns += 1
        if self._turns > _MAX_TURNS_AT_AN_INSTANT:
            self._turns = 0  # so that the running tasks can still be cancelled
            raise TimeStandsStill(f"at {self._now:g} s the loop turns without ever waiting")


def run_virtually(main: Coroutine[Any, Any, ResultT], start: float = 0.0) -> ResultT:
    """Run ``main`` to its end on a virtual loop of its own, beginning at ``start``, and return its result."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start)) as runner:
        return runner.run(main)
