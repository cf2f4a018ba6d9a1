"""The clock: the API server's time by its answers, and a host's wall clock that changes nothing."""

import logging

import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime_fakes import virtually

from taint_eviction.runtime.clock import ServerClock, read_monotonic, read_wall

WALL = 1_900_000_000.0


class Host:
    """A host's two clocks."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 100.0, WALL
        self.clock = ServerClock(lambda: self.monotonic, lambda: self.wall)

    def passes(self, seconds: float) -> None:
        """Let time pass on both."""
        self.monotonic += seconds
        self.wall += seconds


def test_the_host_serves_until_the_first_answer() -> None:
    """Before any answer the server's time is the host's, and the offset is unknown: 0."""
    host = Host()
    assert (host.clock.anchored, host.clock.now(), host.clock.host_offset_seconds()) == (False, (100, WALL), 0)


def test_an_answer_replaces_the_hosts_time() -> None:
    """The first answer anchors the clock, whatever the host says."""
    host = Host()
    host.clock.heard_date(WALL - 3600)
    assert (host.clock.anchored, host.clock.now()) == (True, (100, WALL - 3600))


def test_the_largest_date_minus_monotonic_wins() -> None:
    """A date that was cut off less, or came faster, sharpens the clock; one that was cut off more does not blunt it."""
    host = Host()
    host.clock.heard_date(WALL)
    host.passes(0.25)
    host.clock.heard_date(WALL + 1)
    assert host.clock.now().server_epoch == WALL + 1
    host.passes(0.5)
    host.clock.heard_date(WALL + 1)
    assert host.clock.now().server_epoch == WALL + 1.5


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 2)), min_size=1, max_size=30))
def test_never_ahead_of_the_server_and_ever_sharper(answers: list[tuple[float, float]]) -> None:
    """Whatever the delays, dates are cut off and late: the estimate stays behind the server and only comes closer."""
    host = Host()
    true_anchor, behind = WALL + 0.75 - host.monotonic, float("inf")
    for pause, latency in answers:
        host.passes(pause)
        date = (host.monotonic + true_anchor) // 1
        host.passes(latency)
        host.clock.heard_date(date)
        now = host.clock.now()
        assert -1e-6 <= now.at + true_anchor - now.server_epoch <= behind + 1e-6
        behind = now.at + true_anchor - now.server_epoch


def test_a_stepped_wall_clock_moves_neither_instants_nor_the_servers_time() -> None:
    """Once an answer was heard, an hour's step of the host's clock changes the measured offset and nothing else."""
    host = Host()
    host.clock.heard_date(WALL)
    before = host.clock.now()
    host.wall += 3600
    assert (host.clock.now(), host.clock.host_offset_seconds()) == (before, 3600)


@virtually
async def test_freezegun_moves_the_wall_clock_and_not_the_monotonic_one() -> None:
    """The production readers: an hour's step of the wall clock is not seen by the monotonic one."""
    with freeze_time("2030-01-01T00:00:00Z") as frozen:
        clock = ServerClock()
        clock.heard_date(read_wall() - 7200)
        before, monotonic = clock.now(), read_monotonic()
        frozen.tick(3600)
        after = clock.now()
        assert 0 <= after.at - before.at < 5
        assert after.server_epoch - before.server_epoch == pytest.approx(after.at - before.at, abs=1e-3)
        assert clock.host_offset_seconds() == pytest.approx(7200 + 3600, abs=5)
        assert 0 <= read_monotonic() - monotonic < 5


@pytest.mark.parametrize(("off", "words"), [(3600, "3600 s ahead of"), (-90, "90 s behind")])
def test_an_offset_is_told_once(off: float, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """A host clock that is off is logged with figure and direction, and not again with each sharper answer."""
    host = Host()
    host.wall += off
    for number in range(20):
        host.clock.heard_date(WALL + number)
        host.passes(0.99)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert words in caplog.text


def test_a_host_clock_that_is_right_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whole-second dates and latency look like an offset of up to 2 s: that is not worth a line."""
    host = Host()
    host.passes(1.9)
    host.clock.heard_date(WALL)
    assert caplog.records == []


def test_a_host_clock_that_steps_later_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A step while running is logged with the next answer, even one that sharpens nothing."""
    host = Host()
    host.clock.heard_date(WALL)
    host.wall += 3600
    host.passes(1)
    host.clock.heard_date(WALL + 1)
    assert "3600 s ahead of" in caplog.text
