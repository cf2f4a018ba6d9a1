"""Lines in files of bounded size, and what ends the writing."""

import errno
import os
from io import FileIO
from pathlib import Path

import pytest

from taint_eviction.reporting.rotating_lines import Lines, RotatingLines


def rotating(path: Path, max_bytes: int = 30, head: bytes = b"") -> RotatingLines:
    """Make lines in a file whose head says whether the file continues another."""
    return RotatingLines(path, max_bytes, "the log", lambda continues: head + b"again\n" * continues)


def test_lines_are_written_at_once_and_appended_to_the_file(tmp_path: Path) -> None:
    """A crash loses no line, and a restart continues the file."""
    file = tmp_path / "log"
    for line in (b"one\n", b"two\n"):
        lines = rotating(file)
        lines.write(line)
        assert file.read_bytes().endswith(line)
        lines.close()
    assert file.read_bytes() == b"one\ntwo\n"


def test_a_line_that_a_crash_has_cut_stays_alone(tmp_path: Path) -> None:
    """The next line begins below, after a new head; on the same line, both would be lost."""
    file = tmp_path / "log"
    file.write_bytes(b"head\none\ntw")
    lines = rotating(file, head=b"head\n")
    lines.write(b"three\n")
    lines.close()
    assert file.read_bytes() == b"head\none\ntw\nhead\nthree\n"


def test_a_file_that_is_full_at_the_start_is_not_continued(tmp_path: Path) -> None:
    """This process does not know what the process before it knew."""
    file = tmp_path / "log"
    file.write_bytes(b"x" * 30 + b"\n")
    lines = rotating(file, head=b"head\n")
    lines.write(b"one\n")
    lines.close()
    assert file.read_bytes() == b"head\none\n"


def test_a_full_file_becomes_the_previous_file(tmp_path: Path) -> None:
    """There are at most two files, of the given size at most, and each begins with its head."""
    lines = rotating(tmp_path / "log", 20, b"head\n")
    for number in range(12):
        lines.write(b"line %2d\n" % number)
    lines.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "log.1"]
    assert (tmp_path / "log.1").read_bytes() == b"head\nagain\nline 10\n"
    assert (tmp_path / "log").read_bytes() == b"head\nagain\nline 11\n"


def test_a_head_that_is_longer_than_a_file_may_be_is_not_written_for_each_line(tmp_path: Path) -> None:
    """In a large cluster all that a journal knows may need more than its bound: the file grows to twice that."""
    lines = rotating(tmp_path / "log", 20, b"head of the cluster\n")
    for number in range(10):
        lines.write(b"line %d\n" % number)
    lines.close()
    head = "head of the cluster\nagain\n"
    assert (tmp_path / "log.1").read_text() == head + "line 4\nline 5\nline 6\n"
    assert (tmp_path / "log").read_text() == head + "line 7\nline 8\nline 9\n"


def test_a_file_that_cannot_be_opened_ends_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line says what ends and where; nothing is raised then or later."""
    lines = rotating(tmp_path / "none" / "log")
    lines.write(b"line\n")
    assert f"the log ends here, the controller continues: {tmp_path / 'none' / 'log'}: No such file" in caplog.text
    assert len(caplog.records) == 1


def test_a_full_disk_ends_the_log_for_good(caplog: pytest.LogCaptureFixture) -> None:
    """No later line is written, because the lines in between would be missing."""
    lines = Lines(FileIO("/dev/full", "wb"), "the log", "/dev/full")
    lines.write(b"line\n")
    lines.write(b"line\n")
    assert [record.getMessage() for record in caplog.records] == [
        f"the log ends here, the controller continues: /dev/full: {os.strerror(errno.ENOSPC)}"
    ]
    assert lines.ended == f"the log has ended, and continues after a restart: /dev/full: {os.strerror(errno.ENOSPC)}"


class Cutting:
    """A file with room for this many bytes."""

    def __init__(self, room: int) -> None:
        self.written, self._room = b"", room

    def write(self, data: bytes) -> int:
        """Write as much as there is room for."""
        taken = data[: self._room - len(self.written)]
        self.written += taken
        return len(taken)

    def close(self) -> None:
        """Do nothing."""


def test_a_line_that_was_cut_is_the_last(caplog: pytest.LogCaptureFixture) -> None:
    """A further line would be joined to it."""
    file = Cutting(8)
    lines = Lines(file, "the log", "stdout")
    for _ in range(3):
        lines.write(b"line\n")
    assert file.written == b"line\nlin"
    assert "the log ends here, the controller continues: stdout: No space left" in caplog.text


def test_a_log_that_has_ended_does_not_rotate(tmp_path: Path) -> None:
    """The file that is there stays as it is."""
    file = tmp_path / "log"
    lines = rotating(file, 5)
    lines.write(b"one\n")
    lines.close()
    lines.write(b"two\n")
    assert [found.name for found in tmp_path.iterdir()] == ["log"]
