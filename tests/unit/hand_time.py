"""A wall clock and timers that a test moves by hand, for the fake API server's cluster."""

from collections.abc import Callable


class _Timer:
    """One call to come; ``at`` is when."""

    def __init__(self, at: float, act: Callable[[], object]) -> None:
        self.at, self.act, self.cancelled = at, act, False

    def cancel(self) -> None:
        """It does not come."""
        self.cancelled = True


class HandTime:
    """Wall clock and timers that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._timers: list[_Timer] = []

    def call_later(self, seconds: float, act: Callable[[], object]) -> _Timer:
        """Take a call."""
        timer = _Timer(self.seconds + seconds, act)
        self._timers.append(timer)
        return timer

    def pass_by(self, seconds: float) -> None:
        """Let so much time pass, and do what is due, one after the other."""
        until = self.seconds + seconds
        while due := [timer for timer in self._timers if timer.at <= until]:
            first = min(due, key=lambda timer: timer.at)
            self._timers.remove(first)
            self.seconds = first.at
            if not first.cancelled:
                first.act()
        self.seconds = until
