"""A failure that lasts: it is logged when it begins and once a minute, not each time that a call fails."""

_REPEAT_SECONDS = 60.0


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
