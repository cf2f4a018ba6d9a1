"""The version of Kubernetes that the model represents, and how versions differ."""

import re
from dataclasses import dataclass

_WRITTEN = re.compile(r"1\.(\d\d?)", re.ASCII)
_FIRST, _LAST = 32, 38
_STALE_KEY_UNTIL = 33
_METRIC_IN_SECONDS_FROM = 38


@dataclass(frozen=True, slots=True, order=True)
class BuiltInVersion:
    """A minor version of Kubernetes, 1.32 to 1.38."""

    minor: int

    @property
    def keeps_key(self) -> bool:
        """Return whether the key of an evicted pod stays in the queue until its end is noticed (#107543)."""
        return self.minor < _STALE_KEY_UNTIL

    @property
    def measures_seconds(self) -> bool:
        """Return whether the duration metric is in seconds.

        This is the change of #141311, which was not merged yet when it was read; 1.38 itself was not read.
        """
        return self.minor >= _METRIC_IN_SECONDS_FROM

    def __str__(self) -> str:
        return f"1.{self.minor}"


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """The model in a scenario: beside this project's controller, or in its place (``alone``)."""

    version: BuiltInVersion
    alone: bool = False


# The version that was measured, and whose source was read completely.
MEASURED = BuiltInVersion(36)


def read_version(text: str) -> BuiltInVersion:
    """Read ``1.36``; raise ``ValueError`` with what is expected instead."""
    found = _WRITTEN.fullmatch(text)
    if found is None or not _FIRST <= int(found[1]) <= _LAST:
        raise ValueError(f"a version of Kubernetes from 1.{_FIRST} to 1.{_LAST}")
    return BuiltInVersion(int(found[1]))
