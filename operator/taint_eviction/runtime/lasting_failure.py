"""A failure that lasts: it is logged when it begins and once a minute, not each time that a call fails.

Many parts may fail for the same reason: of their lines, a few in a minute are logged.
"""

_REPEAT_SECONDS = 60.0
_FEW_LINES = 10


class LastingFailure:
    """``since_at``: since when it lasts, None: there is none."""

    def __init__(self) -> None:
        self.since_at: float | None = None
        self._logged_at = 0.0

    def goes_on(self, at: float) -> bool:
        """Note that the failure begins or lasts; return whether to log that."""
        if self.since_at is None:
            self.since_at = at
        elif at - self._logged_at < _REPEAT_SECONDS:
            return False
        self._logged_at = at
        return True

    def ends(self) -> bool:
        """Note that there is no failure; return whether there was one."""
        lasted, self.since_at = self.since_at is not None, None
        return lasted


class FewLines:
    """Lets ten lines in a minute pass, and counts the others."""

    def __init__(self) -> None:
        self._since_at = float("-inf")
        self._passed = self._held = 0

    def passes(self, at: float) -> int | None:
        """Return how many lines were held back since the last one that passed; None: this one is held back, too."""
        if at - self._since_at >= _REPEAT_SECONDS:
            self._since_at, self._passed = at, 0
        if self._passed >= _FEW_LINES:
            self._held += 1
            return None
        self._passed += 1
        held, self._held = self._held, 0
        return held
