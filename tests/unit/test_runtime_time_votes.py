"""Asking API servers for the time: connections of its own at the start, and one a minute while votes disagree."""

import asyncio
import logging
from collections.abc import Callable

import pytest
from tests.unit.runtime_fakes import now, running, until, virtually

from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.runtime.time_votes import Ask, keep_asking, learn_time

EPOCH = 1_900_000_000.0


class Servers:
    """API servers of which a balancer chooses one for each connection; ``answer`` says what the n-th one does."""

    def __init__(self, answer: Callable[[int], float | None] = lambda _: 0.0) -> None:
        self.clock = ServerClock(monotonic=now, wall=lambda: EPOCH + now())
        self.asked_at: list[float] = []
        self._answer = answer

    async def ask(self) -> None:
        """Ask on a new connection; None: it hangs."""
        self.asked_at.append(now())
        number = len(self.asked_at)
        off = self._answer(number)
        if off is None:
            await asyncio.sleep(10)
            raise CallFailed("no answer")
        await asyncio.sleep(0.01)
        self.clock.heard_date(EPOCH + now() + off, number)


def ahead(servers: Servers) -> float:
    """Return how far the clock is ahead."""
    return round(servers.clock.now().server_epoch - EPOCH - now(), 3)


@virtually
async def test_five_connections_within_a_second_suffice() -> None:
    """They are spread, so that one of them falls close behind the beginning of a second."""
    servers = Servers()
    await learn_time(servers.clock, servers.ask)
    assert servers.asked_at == [0, 0.2, 0.4, 0.6, 0.8]
    assert (now(), ahead(servers)) == (0.81, 0)


@virtually
async def test_votes_that_came_before_do_not_replace_them() -> None:
    """Calls before the start open several connections within a moment: none falls close behind a second's beginning."""
    servers = Servers()
    for connection in range(100, 106):
        servers.clock.heard_date(EPOCH + now() - 0.9, connection)
    await learn_time(servers.clock, servers.ask)
    assert (len(servers.asked_at), ahead(servers)) == (5, 0)


@virtually
async def test_ten_connections_are_asked_where_servers_disagree() -> None:
    """The lowest counts."""
    servers = Servers(lambda number: 3600 if number % 3 == 1 else 0)
    await learn_time(servers.clock, servers.ask)
    assert len(servers.asked_at) == 10
    assert (now(), ahead(servers)) == (1.81, 0)


@virtually
async def test_connections_that_hang_are_replaced() -> None:
    """One server of three is dead: the others' votes come a moment later."""
    servers = Servers(lambda number: None if number % 3 == 1 else 0)
    await learn_time(servers.clock, servers.ask)
    assert now() == 1.41
    assert len(servers.asked_at) == 8


@virtually
async def test_after_ten_seconds_the_lowest_of_the_votes_that_there_are_counts() -> None:
    """Two have answered, an hour apart; no more than ten connections hang at a time."""
    servers = Servers({1: 3600.0, 2: 0.0}.get)
    await learn_time(servers.clock, servers.ask)
    assert (now(), ahead(servers)) == (10.2, 0)
    assert len(servers.asked_at) == 12


@virtually
async def test_without_any_answer_a_command_ends_when_it_wants_to() -> None:
    """Then nothing is dated, until somebody answers."""
    servers = Servers(lambda _: None)
    await learn_time(servers.clock, servers.ask, 3)
    assert (now(), servers.clock.anchored) == (3, False)


def away_until(servers: Servers, second: float) -> Ask:
    """Return how these servers are asked while none of them answers before this second."""

    async def ask() -> None:
        if now() < second:
            servers.asked_at.append(now())
            raise CallFailed("connection refused")
        await servers.ask()

    return ask


@virtually
async def test_after_an_outage_at_the_start_as_many_vote_as_at_any_start() -> None:
    """The first to answer is an hour ahead, and nothing is dated by it; meanwhile the time was asked for once a second
    at most."""
    servers = Servers(lambda number: 3600 if number % 3 == 2 else 0)
    async with running(learn_time(servers.clock, away_until(servers, 30))) as learning:
        await until(29.9)
        assert len(servers.asked_at) < 50 + 20 + 1
        await until(31)
        assert servers.clock.heard
        assert not servers.clock.now().dates_objects
        await until(33)
        assert learning.done()
        assert ahead(servers) == 0


@virtually
async def test_after_an_outage_at_the_start_one_vote_counts_ten_seconds_after_it_came() -> None:
    """That of another call, since those that ask for the time still hang; later the lowest of more counts."""
    servers = Servers(lambda _: None)
    async with running(learn_time(servers.clock, servers.ask)) as learning:
        await until(60)
        servers.clock.heard_date(EPOCH + now() + 3600, 100)
        await until(69.9)
        assert not servers.clock.anchored
        await until(71.1)
        assert learning.done()
        assert ahead(servers) == 3600


@virtually
async def test_ten_seconds_after_an_answer_without_a_date_nothing_is_waited_for() -> None:
    """Where a proxy removes dates, the time is never known."""
    servers = Servers()

    async def ask() -> None:
        await asyncio.sleep(0.01)

    await learn_time(servers.clock, ask)
    assert (round(now(), 1), servers.clock.anchored) == (10.2, False)


@virtually
async def test_too_few_votes_are_not_the_last_word() -> None:
    """The only one that there was in ten seconds is an hour too high; others are asked until enough have voted."""
    servers = Servers(lambda number: 3600 if number == 1 else None if number < 60 else 0)
    async with running(keep_asking(servers.clock, servers.ask)):
        await learn_time(servers.clock, servers.ask)
        assert ahead(servers) == 3600
        servers.asked_at += [0.0] * 60
        await until(now() + 12)
        assert ahead(servers) == 0


@virtually
async def test_a_bug_ends_it() -> None:
    """Only failed calls are expected."""
    servers = Servers()

    async def ask() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as raised:
        await learn_time(servers.clock, ask)
    assert raised.group_contains(ZeroDivisionError)


@virtually
async def test_while_votes_disagree_one_more_connection_is_opened_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """That is logged once, and ends when they agree again."""
    caplog.set_level(logging.WARNING, "taint_eviction.runtime.time_votes")
    servers = Servers()
    await learn_time(servers.clock, servers.ask)
    async with running(keep_asking(servers.clock, servers.ask)):
        await until(200)
        assert len(servers.asked_at) == 5
        servers.clock.heard_date(EPOCH + now() + 3600, 100)
        await until(200 + 300)
        assert len(servers.asked_at) == 10
        assert caplog.messages == [
            "the clocks of API servers disagree by 3600 s, or all were stepped: deadlines follow the time that was "
            "known before, until all servers have agreed on another one for ten minutes"
        ]
        await until(200 + 601 + 120)
        asked = len(servers.asked_at)
        await until(200 + 601 + 120 + 1500)
        assert len(servers.asked_at) == asked + 5


@virtually
async def test_one_kept_alive_connection_to_a_server_that_runs_fast_does_not_take_the_clock_along() -> None:
    """It carries all calls from the start on; other connections, one in five minutes, lead to each of three servers."""
    servers = Servers(lambda number: 0.0 if number % 3 else (now() - 5) * 1e-3)
    await learn_time(servers.clock, servers.ask)
    async with running(keep_asking(servers.clock, servers.ask)):
        for second in range(10, 20_000, 10):
            await until(second)
            servers.clock.heard_date(EPOCH + now() + (now() - 5) * 1e-3, 1000)
    assert abs(ahead(servers)) <= 0.1
