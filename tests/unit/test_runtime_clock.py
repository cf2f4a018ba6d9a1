"""The clock: the API server's time by the votes of connections, and a host's wall clock that changes nothing."""

import logging
import math

import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime_fakes import virtually

from taint_eviction.core.instants import Moment
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
    assert (host.clock.anchored, host.clock.host_offset_seconds()) == (False, 0)
    assert host.clock.now() == Moment(100, WALL, dates_objects=False)


def test_an_answer_replaces_the_hosts_time() -> None:
    """The first answer anchors the clock, whatever the host says."""
    host = Host()
    host.clock.heard_date(WALL - 3600)
    assert host.clock.anchored
    assert host.clock.now() == Moment(100, WALL - 3600)


def ahead(host: Host) -> float:
    """Return how far the clock is ahead of the API server's, which is ``WALL`` at 100."""
    now = host.clock.now()
    return now.server_epoch - (WALL + now.at - 100)


def answers(host: Host, *off_seconds: float, every: float = 1.0, connection: int = 1) -> None:
    """Let answers come on one connection whose dates are off by so much."""
    for off in off_seconds:
        host.passes(every)
        hear(host, off, connection)


def hear(host: Host, off: float, connection: int = 1, audited: bool = True) -> None:
    """Let an answer come now whose date is off by so much."""
    host.clock.heard_date(WALL + host.monotonic - 100 + off, connection, audited)


def decided(*off_seconds: float) -> Host:
    """Return a host after a start in which each of these votes came on a connection of its own."""
    host = Host()
    for number, off in enumerate(off_seconds, 1):
        hear(host, off, number)
    assert host.clock.decided
    return host


# The start


def test_five_votes_that_agree_set_the_highest() -> None:
    """None of them is ahead, so the highest is the nearest; until there are five, nothing is known."""
    host = Host()
    host.clock.wait_for_votes()
    for connection, off in enumerate((-0.9, -0.1, -0.5, -1.7), 1):
        hear(host, off, connection)
        assert not host.clock.anchored
        assert not host.clock.now().dates_objects
    hear(host, -0.3, 5)
    assert host.clock.now().dates_objects
    assert ahead(host) == pytest.approx(-0.1)


def test_votes_that_disagree_set_the_lowest_of_ten() -> None:
    """An anchor that is behind makes evictions late, one that is ahead makes them early."""
    host = Host()
    host.clock.wait_for_votes()
    for connection in range(1, 10):
        hear(host, 3600 if connection % 3 else -0.4, connection)
        assert not host.clock.anchored
    hear(host, 3600, 10)
    assert ahead(host) == pytest.approx(-0.4)


def test_many_answers_on_one_connection_are_one_vote() -> None:
    """A connection that is kept alive brings nearly all answers."""
    host = Host()
    host.clock.wait_for_votes()
    answers(host, *[3600] * 50)
    assert not host.clock.anchored


def test_without_enough_votes_the_lowest_counts_in_the_end() -> None:
    """Also that of an answer that comes later; and nothing at all, if nobody has answered."""
    host = Host()
    host.clock.wait_for_votes()
    host.clock.stop_waiting()
    assert not host.clock.anchored
    hear(host, 3600, 1)
    assert ahead(host) == pytest.approx(3600)
    hear(host, -0.2, 2)
    assert ahead(host) == pytest.approx(-0.2)


def test_votes_before_a_long_suspension_do_not_count_at_its_end() -> None:
    """The machine slept within the start: all that was said is over ten minutes old, so nothing is known."""
    host = Host()
    host.clock.wait_for_votes()
    hear(host, 3600, 1)
    host.passes(601)
    host.clock.stop_waiting()
    assert (host.clock.anchored, host.clock.votes_disagree) == (False, False)
    hear(host, -0.2, 2)
    assert ahead(host) == pytest.approx(-0.2)


# Votes


def test_a_connection_votes_the_highest_of_two_minutes() -> None:
    """A date that was cut off less is nearer; after two minutes it counts no more."""
    host = Host()
    answers(host, -0.9, -0.1, -0.5)
    assert ahead(host) == pytest.approx(-0.1)
    answers(host, *[-0.6] * 130)
    assert ahead(host) == pytest.approx(-0.6)


def test_a_connection_whose_answers_lie_apart_votes_the_lowest() -> None:
    """A proxy behind it chooses a server for each request."""
    host = Host()
    answers(host, -0.5, 3600, -0.3, -0.7, 3600)
    assert ahead(host) == pytest.approx(-0.7)


def test_a_connection_without_answers_for_ten_minutes_votes_no_more() -> None:
    """Until then its latest answer counts."""
    host = decided(*[-0.5] * 5)
    for _ in range(58):
        answers(host, -1.2, every=10.0, connection=6)
    assert ahead(host) == pytest.approx(-0.5)
    answers(host, *[-1.2] * 30)
    assert ahead(host) == pytest.approx(-1.2)


def test_only_answers_with_an_audit_id_vote() -> None:
    """Others may come from a proxy; they vote while there is no other, and then no more."""
    host = Host()
    hear(host, 3600, 1, audited=False)
    assert ahead(host) == pytest.approx(3600)
    assert not host.clock.audited
    for connection in range(2, 7):
        hear(host, -0.5, connection)
    hear(host, 7200, 1, audited=False)
    assert ahead(host) == pytest.approx(-0.5)
    assert host.clock.audited
    assert not host.clock.votes_disagree


def test_plain_answers_vote_no_more_once_audit_ids_are_back() -> None:
    """For ten minutes a proxy has answered alone, and dates a second ahead."""
    host = decided(*[-0.5] * 5)
    host.passes(601)
    for connection in range(10, 15):
        hear(host, 1.0, connection, audited=False)
        host.passes(1)
    assert ahead(host) == pytest.approx(1.0)
    for _ in range(3):
        answers(host, -0.5)
    assert ahead(host) == pytest.approx(-0.5)


# Later


@pytest.mark.parametrize("off", [7200.0, -7200.0, 3.0])
def test_one_wrong_answer_changes_nothing(off: float) -> None:
    """Nor do some, on one connection."""
    host = decided(*[-0.5] * 5)
    answers(host, off, off, off)
    assert ahead(host) == pytest.approx(-0.5)


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_one_server_that_is_wrong_changes_nothing_as_long_as_others_vote(off: float) -> None:
    """Nearly all answers come on one connection to it, and one new connection a minute leads to another server."""
    host = decided(*[-0.5] * 5)
    for minute in range(60):
        answers(host, *[off] * 59, connection=1)
        answers(host, -0.5, connection=100 + minute)
    assert ahead(host) == pytest.approx(-0.5)
    assert host.clock.votes_disagree
    assert host.clock.disagreement_seconds() == pytest.approx(abs(off) + math.copysign(0.5, off))


def test_one_server_that_runs_fast_does_not_take_the_anchor_along() -> None:
    """The quartz of one of three runs 50 millionths fast: it is 13 s ahead after three days."""
    host = decided(*[-0.1] * 5)
    for minute in range(3 * 24 * 60):
        host.passes(60)
        for connection, off in ((1, -0.1), (2, -0.3), (3, minute * 60 * 50e-6)):
            hear(host, off, connection)
        assert ahead(host) <= 2.1
    assert ahead(host) == pytest.approx(-0.1)


@pytest.mark.parametrize("offs", [(-0.1, -0.1, 2.6), (-0.1, 1.5, 3.3)])
def test_servers_that_are_a_little_ahead_take_the_anchor_along_no_further_than_others_tolerate(
    offs: tuple[float, ...],
) -> None:
    """A date is cut off: one that is 2.6 s ahead looks close at first, as does one that is close to another."""
    host = decided(*[-0.1] * 5)
    for second in range(500):
        host.passes(1)
        for connection, off in enumerate(offs):
            hear(host, off - (0.97 - second % 98 / 100 if off > 0 else 0.0), connection)
        assert ahead(host) <= 2.0


def test_an_answer_that_came_late_changes_nothing() -> None:
    """Nor while it is the only one of its connection that counts."""
    host = decided(*[-0.5] * 5)
    hear(host, -3.5, 6)
    answers(host, *[-0.5] * 700)
    assert ahead(host) == pytest.approx(-0.5)


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_servers_that_are_all_stepped_are_followed_after_ten_minutes(off: float) -> None:
    """Once three new connections say the same; a step forward two minutes later, for the lowest of those counts."""
    host = decided(*[-0.5] * 5)
    answers(host, *[-0.5] * 120)
    for minute in range(10):
        answers(host, *[off] * 59, connection=1)
        answers(host, off, connection=100 + minute)
    assert ahead(host) == pytest.approx(-0.5)
    answers(host, *[off] * 130)
    assert ahead(host) == pytest.approx(off)
    answers(host, *[off] * 600)
    assert not host.clock.votes_disagree


def test_without_new_connections_nothing_is_followed() -> None:
    """The kept-alive ones may all lead to one server."""
    host = decided(*[-0.5] * 5)
    for _ in range(1000):
        for connection in range(1, 6):
            answers(host, 3600, connection=connection)
    assert ahead(host) == pytest.approx(-0.5)


def test_a_silence_is_no_agreement() -> None:
    """After an hour without an answer, votes elsewhere must agree for ten minutes as well."""
    host = decided(*[-0.5] * 5)
    host.passes(3600)
    for connection in range(10, 30):
        answers(host, 7200, connection=connection)
    assert ahead(host) == pytest.approx(-0.5)


def test_a_monotonic_clock_that_runs_fast_is_followed() -> None:
    """50 millionths for 30 days are 129 s: the anchor is never more than a tenth of a second off."""
    host, fast = decided(*[0.0] * 5), 1.00005
    for minute in range(30 * 24 * 60):
        host.monotonic += 60 * fast
        host.wall += 60
        host.clock.heard_date(host.wall, 1 + minute // 100)
    now = host.clock.now()
    assert host.monotonic - 100 - (host.wall - WALL) == pytest.approx(129.6)
    assert 0 <= now.server_epoch - host.wall <= 0.1


def test_connections_without_end_cost_no_more_memory() -> None:
    """Of thousands in a storm the latest count, and what an early one said is forgotten."""
    host = decided(*[-0.5] * 5)
    hear(host, 7200, 6)
    for connection in range(10, 3010):
        answers(host, -0.5, every=0.01, connection=connection)
    answers(host, -0.4, connection=1)
    assert ahead(host) == pytest.approx(-0.4)
    assert not host.clock.votes_disagree


def test_a_move_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """And counted; the host's clock, which is still right, is reported as well."""
    host, moves = decided(*[-0.5] * 5), []
    host.clock.on_moved = lambda: moves.append(host.monotonic)
    for minute in range(15):
        answers(host, *[100.0] * 60, connection=100 + minute)
    assert len(moves) == 1
    moved, off = caplog.messages
    assert moved.startswith("the API server's clock has moved 100 s forward")
    assert off.startswith("this host's clock is 100 s behind")


# What never happens


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 0.9), st.integers(1, 7)), min_size=1, max_size=30))
def test_never_ahead_of_the_server(answers: list[tuple[float, float, int]]) -> None:
    """Whatever the delays, dates are cut off and late: no vote is ahead."""
    host = Host()
    true_anchor = WALL + 0.75 - host.monotonic
    for pause, latency, connection in answers:
        host.passes(pause)
        date = (host.monotonic + true_anchor) // 1
        host.passes(latency)
        host.clock.heard_date(date, connection)
        now = host.clock.now()
        assert -1e-6 <= now.at + true_anchor - now.server_epoch <= 1.9 + 1e-6


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
