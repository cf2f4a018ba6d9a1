"""Slow start: a few after a pause, then more, then all."""

import asyncio
import contextlib

import pytest
from tests.unit.runtime_fakes import now, slow_start, until, virtually

from taint_eviction.runtime.slow_start import SlowStart


class Takers:
    """Takes turns of given lengths, and remembers when each began."""

    def __init__(self, most: int) -> None:
        self.slow_start = SlowStart(1, most)
        self.began: list[tuple[str, float]] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def _take(self, name: str, seconds: float) -> None:
        async with self.slow_start.turn():
            self.began.append((name, now()))
            await asyncio.sleep(seconds)

    def want(self, name: str, seconds: float) -> None:
        """Want a turn that lasts so long."""
        self._tasks[name] = asyncio.create_task(self._take(name, seconds))

    async def leave(self, name: str) -> None:
        """Want no turn any more, or end the one that is on."""
        self._tasks[name].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._tasks[name]

    async def end(self) -> list[tuple[str, float]]:
        """Wait until all have had theirs; return when each began."""
        await asyncio.gather(*self._tasks.values())
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
        takers.want(name, 1)
    assert await takers.end() == [("hangs", 0), ("a", 0.2), ("b", 0.2), ("c", 1.2), ("d", 1.2)]


@virtually
@pytest.mark.parametrize("most", [1, 2, 5])
async def test_never_more_than_granted(most: int) -> None:
    """However often more are let in."""
    takers = Takers(most)
    for number in range(20):
        takers.want(str(number), 1)
    await slow_start()
    takers.slow_start.let_more(100)
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
    assert not takers.slow_start.crowded
    takers.want("c", 1)
    await slow_start()
    assert takers.slow_start.crowded
    await until(3)
    assert not takers.slow_start.crowded


# Without turns


@virtually
async def test_who_chooses_its_own_work_reads_how_much_may_run() -> None:
    """A few after a pause, one more for each that ends, all a moment later; each step is announced."""
    announced: list[tuple[float, int]] = []
    it = SlowStart(4, 20, lambda: announced.append((now(), it.allowed)))
    assert (it.few, it.allowed) == (4, 4)
    it.begin()
    await until(0.1)
    it.let_more()
    await until(10)
    assert announced == [(0.1, 5), (0.2, 20)]
    it.pause()
    assert it.allowed == 4


@virtually
async def test_a_pause_ends_the_moment_after_which_all_may_run() -> None:
    """Work that follows it starts slowly for a moment of its own."""
    it = SlowStart(1, 5)
    it.begin()
    await until(0.1)
    it.pause()
    it.begin()
    await until(0.25)
    assert it.allowed == 1
    await until(0.35)
    assert it.allowed == 5
