"""Progress on stderr, which stays empty where nobody has to wait."""

import pytest

from taint_eviction_ctl.cli.progress import Progress


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        """The instant it was moved to."""
        return self.at


def test_work_of_less_than_two_seconds_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed while the work lasts, or at its end."""
    clock = Hand()
    progress = Progress(clock)
    clock.at += 1.9
    progress(500)
    progress.done(500)
    assert capsys.readouterr() == ("", "")


def test_longer_work_prints_its_progress_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress goes to stderr, away from results, and has a line each time if stderr is no terminal."""
    clock = Hand()
    progress = Progress(clock)
    for tenths in range(50):
        clock.at = 100 + tenths / 10
        progress(tenths * 100)
    progress.done(5000)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "read 2,000 objects, 2 s …",
        "read 3,000 objects, 3 s …",
        "read 4,000 objects, 4 s …",
        "read 5,000 objects in 4.9 s",
    ]
