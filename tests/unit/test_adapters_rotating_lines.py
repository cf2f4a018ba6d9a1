"""Lines in files of bounded size, and what ends them."""

import errno
import os
from io import FileIO
from pathlib import Path

import pytest

from taint_eviction.adapters.rotating_lines import Lines, RotatingLines


def rotating(path: Path, max_bytes: int = 30, head: bytes = b"") -> RotatingLines:
    """Lines in a file that begins with a head, which tells whether it continues."""
    return RotatingLines(path, max_bytes, "the log", lambda continues: head + b"again\n" * continues)


def test_lines_are_written_at_once_and_after_those_that_were_there(tmp_path: Path) -> None:
    """A crash loses nothing, a restart goes on."""
    file = tmp_path / "log"
    for line in (b"one\n", b"two\n"):
        lines = rotating(file)
        lines.write(line)
        assert file.read_bytes().endswith(line)
        lines.close()
    assert file.read_bytes() == b"one\ntwo\n"


def test_a_line_that_a_crash_has_cut_stays_alone(tmp_path: Path) -> None:
    """The next one would be glued to it, and both were lost; it begins below, behind a head of its own."""
    file = tmp_path / "log"
    file.write_bytes(b"head\none\ntw")
    lines = rotating(file, head=b"head\n")
    lines.write(b"three\n")
    lines.close()
    assert file.read_bytes() == b"head\none\ntw\nhead\nthree\n"


def test_a_file_that_is_full_at_the_start_is_continued_by_nobody(tmp_path: Path) -> None:
    """What a process before this one knew is not known here."""
    file = tmp_path / "log"
    file.write_bytes(b"x" * 30 + b"\n")
    lines = rotating(file, head=b"head\n")
    lines.write(b"one\n")
    lines.close()
    assert file.read_bytes() == b"head\none\n"


def test_a_full_file_becomes_the_one_before(tmp_path: Path) -> None:
    """Two files at most, of the given size at most, and each begins with its head."""
    lines = rotating(tmp_path / "log", 20, b"head\n")
    for number in range(12):
        lines.write(b"line %2d\n" % number)
    lines.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "log.1"]
    assert (tmp_path / "log.1").read_bytes() == b"head\nagain\nline 10\n"
    assert (tmp_path / "log").read_bytes() == b"head\nagain\nline 11\n"


def test_what_cannot_be_opened_ends_it_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line says what and where; nothing is raised then or later."""
    lines = rotating(tmp_path / "none" / "log")
    lines.write(b"line\n")
    assert f"the log ends here, the controller continues: {tmp_path / 'none' / 'log'}: No such file" in caplog.text
    assert len(caplog.records) == 1


def test_a_full_disk_ends_it_for_good(caplog: pytest.LogCaptureFixture) -> None:
    """What is written after it would miss what came between."""
    lines = Lines(FileIO("/dev/full", "wb"), "the log", "/dev/full")
    lines.write(b"line\n")
    lines.write(b"line\n")
    assert [record.getMessage() for record in caplog.records] == [
        f"the log ends here, the controller continues: /dev/full: {os.strerror(errno.ENOSPC)}"
    ]


class Cutting:
    """A file with room for so many bytes more."""

    def __init__(self, room: int) -> None:
        self.written, self._room = b"", room

    def write(self, data: bytes) -> int:
        """Take what there is room for."""
        taken = data[: self._room - len(self.written)]
        self.written += taken
        return len(taken)

    def close(self) -> None:
        """Do nothing."""


def test_a_line_that_was_cut_is_the_last(caplog: pytest.LogCaptureFixture) -> None:
    """Another one would be glued to it."""
    file = Cutting(8)
    lines = Lines(file, "the log", "stdout")
    for _ in range(3):
        lines.write(b"line\n")
    assert file.written == b"line\nlin"
    assert "the log ends here, the controller continues: stdout: No space left" in caplog.text


def test_a_file_that_has_ended_does_not_rotate(tmp_path: Path) -> None:
    """What is there already stays as it is."""
    file = tmp_path / "log"
    lines = rotating(file, 5)
    lines.write(b"one\n")
    lines.close()
    lines.write(b"two\n")
    assert [found.name for found in tmp_path.iterdir()] == ["log"]
