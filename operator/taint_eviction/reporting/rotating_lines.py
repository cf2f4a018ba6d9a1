"""Files to which lines are appended, for journal and audit log: of bounded size, and never a reason to stop.

If a file can no longer be written (a full disk, a pipe without a reader), an error is logged, no more lines are
written, and the controller continues. This module does not know the contents of the lines.
"""

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

logger = logging.getLogger(__name__)

DEFAULT_MAX_BYTES = 64 * 2**20


class _File(Protocol):
    """The methods of an unbuffered binary file that are used."""

    def write(self, data: bytes, /) -> int | None: ...

    def close(self) -> None: ...


class Lines:
    """Lines that are written to an unbuffered ``file``. ``what`` and ``where`` name them when writing ends.

    ``ended``: why no more lines are written, "" while they are.
    """

    def __init__(self, file: _File | None, what: str, where: str) -> None:
        self._file = file
        self._what = what
        self._where = where
        self.ended = ""

    def write(self, line: bytes) -> None:
        """Append one or more lines."""
        if self._file is None:
            return
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file; later lines are dropped."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _give_up(self, error: OSError) -> None:
        why = f"{self._where}: {error.strerror or error}"
        self.ended = f"{self._what} has ended, and continues after a restart: {why}"
        logger.error("%s ends here, the controller continues: %s", self._what, why)
        self.close()


class RotatingLines(Lines):
    """Lines in a file. A full file is renamed to ``FILE.1``, and a new one begins. ``max_bytes`` bounds each of the
    two, unless what comes before the first line needs more than half of that: then the file grows to twice as much.

    Existing content stays; after an incomplete last line, a new line begins. ``begin`` returns what comes before the
    first line; its argument tells whether this file continues another one that this process has written.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        what: str,
        begin: Callable[[bool], bytes] = lambda _continues: b"",
    ) -> None:
        super().__init__(None, what, str(path))
        self._path = path
        self._max_bytes = max_bytes
        self._begin = begin
        self._size = 0
        self._bound = max_bytes
        self._begun = False
        self._open("ab")

    def write(self, line: bytes) -> None:
        """Append a line."""
        if self._file is None:
            return
        if self._size and self._size + len(line) > self._bound:
            self._rotate()
        elif not self._begun:
            self._append(self._begin(False))
        self._begun = True
        self._append(line)

    def _append(self, data: bytes) -> None:
        if data:
            super().write(data)
            self._size += len(data)

    def _rotate(self) -> None:
        self.close()
        try:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        except OSError as error:
            self._give_up(error)
            return
        self._open("wb")
        self._append(self._begin(self._begun))
        # Otherwise each line could begin another file, with all that comes before the first line.
        self._bound = max(self._max_bytes, 2 * self._size)

    def _open(self, mode: str) -> None:
        try:
            self._file = file = self._path.open(mode, buffering=0)
            self._size = os.fstat(file.fileno()).st_size
        except OSError as error:
            self._give_up(error)
        else:
            if self._size and self._is_cut():
                self._append(b"\n")

    def _is_cut(self) -> bool:
        """Return whether the last line has no newline; False if the file cannot be read."""
        try:
            with self._path.open("rb") as written:
                written.seek(-1, os.SEEK_END)
                return written.read(1) != b"\n"
        except OSError:
            return False
