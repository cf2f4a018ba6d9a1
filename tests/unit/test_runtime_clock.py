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


def ahead(host: Host) -> float:
    """Return how far the clock is ahead of the API server's, which is ``WALL`` at 100."""
    now = host.clock.now()
    return now.server_epoch - (WALL + now.at - 100)


def answers(host: Host, *off_seconds: float, every: float = 1.0) -> None:
    """Let answers come whose dates are off by so much."""
    for off in off_seconds:
        host.passes(every)
        host.clock.heard_date(WALL + host.monotonic - 100 + off)


def test_the_median_of_the_answers_counts() -> None:
    """Of an even number the lower one."""
    host = Host()
    answers(host, -0.9, -0.1, -0.5, -0.3, -0.7)
    assert ahead(host) == pytest.approx(-0.5)
    answers(host, -0.2)
    assert ahead(host) == pytest.approx(-0.5)
    answers(host, -0.2)
    assert ahead(host) == pytest.approx(-0.3)


def test_of_fewer_than_five_answers_the_lowest_counts() -> None:
    """Each of them may be the wrong one."""
    host = Host()
    answers(host, 7200, -0.5, 7200, 7200)
    assert ahead(host) == pytest.approx(-0.5)


@pytest.mark.parametrize("off", [7200.0, -7200.0, 3.0])
def test_one_wrong_date_changes_nothing(off: float) -> None:
    """Nor do some, while most are right."""
    host = Host()
    answers(host, *[-0.5] * 9, off, off, off)
    assert ahead(host) == pytest.approx(-0.5)


def test_one_of_three_servers_whose_clock_is_ahead_changes_little() -> None:
    """They answer in turn: what is cut off less counts, but nothing that is ahead."""
    host = Host()
    answers(host, *[-0.9, -0.1, 3600, -0.5, -0.3, 3600] * 50)
    assert -0.5 <= ahead(host) <= 0


def test_a_stepped_server_is_followed_within_minutes() -> None:
    """Once most of the answers of ten minutes say so; and an old one says nothing any more after that."""
    host = Host()
    answers(host, *[-0.5] * 300, every=2.0)
    answers(host, *[-60.5] * 149, every=2.0)
    assert ahead(host) == pytest.approx(-0.5)
    answers(host, *[-60.5] * 3, every=2.0)
    assert ahead(host) == pytest.approx(-60.5)


def test_a_monotonic_clock_that_runs_fast_is_followed() -> None:
    """50 millionths for 30 days are 129 s: after ten minutes an answer counts no more."""
    host, fast = Host(), 1.00005
    for _ in range(30 * 24 * 60):
        host.monotonic += 60 * fast
        host.wall += 60
        host.clock.heard_date(host.wall - 0.5)
    now = host.clock.now()
    assert host.monotonic - 100 - (host.wall - WALL) == pytest.approx(129.6)
    assert -0.5 <= now.server_epoch - host.wall <= -0.45


def test_after_a_long_silence_the_last_anchor_stays() -> None:
    """Nothing that comes alone counts more than what was known, unless it is behind."""
    host = Host()
    answers(host, *[-0.5] * 9)
    host.passes(3600)
    assert ahead(host) == pytest.approx(-0.5)
    answers(host, 7200, 7200, 7200, 7200)
    assert ahead(host) == pytest.approx(-0.5)
    answers(host, *[-0.4] * 5)
    assert ahead(host) == pytest.approx(-0.4)


def test_so_many_answers_cost_no_more_memory() -> None:
    """Of thousands in a storm the latest thousand count."""
    host = Host()
    answers(host, *[-0.5] * 1000, *[-3.0] * 499, every=0.001)
    assert ahead(host) == pytest.approx(-0.5)
    answers(host, *[-3.0] * 2, every=0.001)
    assert ahead(host) == pytest.approx(-3.0)


def test_a_move_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Of more than two seconds, and of those once; the host's clock, which is still right, is told as well."""
    host, moves = Host(), []
    host.clock.on_moved = lambda: moves.append(host.monotonic)
    answers(host, *[-0.9, -0.1] * 5)
    answers(host, *[99.5] * 30)
    answers(host, *[98.0] * 70)
    assert len(moves) == 1
    moved, off = caplog.messages
    assert moved.startswith("the API server's clock has moved 100 s forward")
    assert off.startswith("this host's clock is 100 s behind")
    answers(host, *[-0.5] * 110)
    assert len(moves) == 2


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 2)), min_size=1, max_size=30))
def test_never_ahead_of_the_server(answers: list[tuple[float, float]]) -> None:
    """Whatever the delays, dates are cut off and late: no median of them is ahead."""
    host = Host()
    true_anchor = WALL + 0.75 - host.monotonic
    for pause, latency in answers:
        host.passes(pause)
        date = (host.monotonic + true_anchor) // 1
        host.passes(latency)
        host.clock.heard_date(date)
        now = host.clock.now()
        assert -1e-6 <= now.at + true_anchor - now.server_epoch <= 3 + 1e-6


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
        assert 0 <= after.at - before.at < 1800
        assert after.server_epoch - before.server_epoch == pytest.approx(after.at - before.at, abs=1e-3)
        assert clock.host_offset_seconds() == pytest.approx(7200 + 3600, abs=600)
        assert 0 <= read_monotonic() - monotonic < 1800


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
