"""Progress on stderr: nothing for those who need not wait."""

import pytest

from taint_eviction.cli.progress import Progress


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        """The instant it was moved to."""
        return self.at


def test_what_takes_less_than_two_seconds_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither meanwhile nor in the end."""
    clock = Hand()
    progress = Progress(clock)
    clock.at += 1.9
    progress(500)
    progress.done(500)
    assert capsys.readouterr() == ("", "")


def test_what_takes_longer_says_how_far_it_is_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, where results are not; a line each where that is no terminal."""
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
