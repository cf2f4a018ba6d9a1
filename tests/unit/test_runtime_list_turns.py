"""Turns of lists: one after a pause, then more, first lists before others, and none held up by one that hangs."""

import asyncio
import contextlib

import pytest
from tests.unit.runtime_fakes import now, slow_start, until, virtually

from taint_eviction.runtime.list_turns import ListTurns


class Takers:
    """Takes turns of given lengths, and remembers when each began."""

    def __init__(self, most: int) -> None:
        self.turns = ListTurns(most)
        self.began: list[tuple[str, float]] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def _take(self, name: str, seconds: float, urgent: bool) -> None:
        async with self.turns.turn(urgent=urgent):
            self.began.append((name, now()))
            await asyncio.sleep(seconds)

    def want(self, name: str, seconds: float, urgent: bool = False) -> None:
        """Want a turn that lasts so long."""
        self._tasks[name] = asyncio.create_task(self._take(name, seconds, urgent))

    async def leave(self, name: str) -> None:
        """Want no turn any more, or end the one that is on."""
        self._tasks[name].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._tasks[name]

    async def end(self) -> list[tuple[str, float]]:
        """Wait until all have had theirs; return when each began."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return self.began


@virtually
async def test_one_begins_and_each_that_ends_lets_one_more_take_part() -> None:
    """One, then two, then three of five, all within the first moment."""
    takers = Takers(5)
    for name in "abcdefg":
        takers.want(name, 0.05)
    assert [round(at, 3) for _, at in await takers.end()] == [0, 0.05, 0.05, 0.1, 0.1, 0.1, 0.1]


@virtually
async def test_one_that_hangs_holds_the_rest_up_for_a_moment_only() -> None:
    """A fifth of a second later all take part, and the others pass by."""
    takers = Takers(3)
    takers.want("hangs", 100)
    for name in "abcd":
        takers.want(name, 0.9)
    assert await takers.end() == [("hangs", 0), ("a", 0.2), ("b", 0.2), ("c", 1.0), ("d", 1.1)]


@virtually
@pytest.mark.parametrize("most", [1, 2, 5])
async def test_never_more_than_granted(most: int) -> None:
    """However often more are let in."""
    takers = Takers(most)
    for number in range(20):
        takers.want(str(number), 1, urgent=True)
    await slow_start()
    for _ in range(100):
        takers.turns.let_more()
    await slow_start()
    assert len(takers.began) == most
    assert len(await takers.end()) == 20


@virtually
async def test_after_a_pause_they_begin_anew() -> None:
    """A pause is when nobody takes part or waits; what was let in before counts no more."""
    takers = Takers(5)
    for name in "abc":
        takers.want(name, 0.1)
    await until(10)
    for name in "def":
        takers.want(name, 0.1)
    assert [round(at, 3) for _, at in await takers.end()] == [0, 0.1, 0.1, 10, 10.1, 10.1]


@virtually
async def test_who_leaves_while_waiting_keeps_nobody_from_a_turn() -> None:
    """Nor does it take one along."""
    takers = Takers(1)
    for name in "abc":
        takers.want(name, 1)
    await until(0.5)
    await takers.leave("b")
    await until(3)
    assert takers.began == [("a", 0), ("c", 1)]


@virtually
async def test_crowded_is_when_more_want_a_turn_than_ever_have_one() -> None:
    """Waiting ones count."""
    takers = Takers(2)
    takers.want("a", 1)
    takers.want("b", 1)
    await slow_start()
    assert not takers.turns.crowded
    takers.want("c", 1)
    await slow_start()
    assert takers.turns.crowded
    await until(3)
    assert not takers.turns.crowded


@virtually
async def test_urgent_ones_go_first_and_the_others_leave_them_a_quarter() -> None:
    """Six of eight turns at most are held by others, and who is urgent overtakes all who wait."""
    takers = Takers(8)
    for number in range(12):
        takers.want(f"other-{number}", 0.5)
    await until(0.3)
    assert len(takers.began) == 6
    takers.want("urgent", 0.1, urgent=True)
    await slow_start()
    assert takers.began[-1] == ("urgent", 0.3)
    await takers.end()


@virtually
async def test_one_that_takes_long_lends_its_turn() -> None:
    """After a second, and twenty of them at most: those beyond hold their turns until others have ended."""
    takers = Takers(1)
    for number in range(23):
        takers.want(str(number), 100)
    await until(99)
    assert [at for _, at in takers.began] == [*range(21)]
    await until(101.5)
    assert takers.began[21:] == [("21", 100.0), ("22", 101.0)]
    await takers.leave("22")
    await takers.leave("21")
    await takers.end()
