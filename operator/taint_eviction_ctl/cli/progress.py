"""Progress on stderr while much is read; nothing in the first two seconds."""

import sys
from collections.abc import Callable

import click

from taint_eviction.runtime.clock import read_monotonic

_PATIENCE_SECONDS = 2.0
_BETWEEN_SECONDS = 1.0


class Progress:
    """Says how many objects have been read: in place on a terminal, otherwise a line a second."""

    def __init__(self, clock: Callable[[], float] = read_monotonic) -> None:
        self._clock = clock
        self._began_at = clock()
        self._next_at = self._began_at + _PATIENCE_SECONDS
        self._reported = False

    def __call__(self, count: int) -> None:
        """Report how many objects have been read so far."""
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at = now + _BETWEEN_SECONDS
        self._reported = True
        in_place = sys.stderr.isatty()
        text = f"read {_objects(count)}, {now - self._began_at:.0f} s …"
        click.echo(f"\r{text}" if in_place else text, err=True, nl=not in_place)

    def done(self, count: int) -> None:
        """Report the end, if there was any report before."""
        if self._reported:
            text = f"read {_objects(count)} in {self._clock() - self._began_at:.1f} s"
            click.echo(f"\r{text}" if sys.stderr.isatty() else text, err=True)


def _objects(count: int) -> str:
    return "1 object" if count == 1 else f"{count:,} objects"
