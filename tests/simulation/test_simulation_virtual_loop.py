"""The virtual event loop: its time passes only while tasks wait."""

import asyncio
import time

import pytest

from taint_eviction_lab.simulation import virtual_loop
from taint_eviction_lab.simulation.virtual_loop import Deadlock, TimeStandsStill, run_virtually


def now() -> float:
    """Read the loop's clock."""
    return asyncio.get_running_loop().time()


def test_sleeping_lets_exactly_that_time_pass() -> None:
    """The loop's times are exact to the microsecond, and start at the given time."""

    async def main() -> list[float]:
        seen = [now()]
        for seconds in (0.1, 0.2, 3600.0, 86_400.0 * 40):
            await asyncio.sleep(seconds)
            seen.append(now())
        return seen

    assert run_virtually(main(), -5.0) == [-5.0, -4.9, -4.7, 3595.3, 3_459_595.3]


def test_an_hour_of_half_second_waits_passes_in_a_moment() -> None:
    """Virtual waiting takes no real time."""

    async def main() -> float:
        never = asyncio.Event()
        while now() < 3600:
            try:
                async with asyncio.timeout(0.5):
                    await never.wait()
            except TimeoutError:
                continue
        return now()

    begun = time.monotonic()  # noqa: TID251 - that real time does not pass is the point
    assert run_virtually(main()) == 3600.0
    assert time.monotonic() - begun < 1800.0  # noqa: TID251


def test_timers_run_in_the_order_of_their_times() -> None:
    """Timers run by their times, whatever the order in which they were set."""

    async def main() -> list[str]:
        seen: list[str] = []

        async def note(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append(f"{name} at {now():g}")

        await asyncio.gather(note("c", 30), note("a", 10), note("b", 20))
        return seen

    assert run_virtually(main()) == ["a at 10", "b at 20", "c at 30"]


def test_a_wait_too_short_to_see_still_ends() -> None:
    """A task that repeatedly waits for less than a microsecond still makes progress."""

    async def main() -> float:
        until = now() + 1e-9
        while now() < until:  # noqa: ASYNC110 - such loops are what is tested
            await asyncio.sleep(max(0.0, until - now()) or 1e-12)
        return now()

    assert run_virtually(main()) == pytest.approx(1e-6)


def test_a_deadlock_is_an_error_that_names_the_waiting_tasks() -> None:
    """If tasks wait and no timer is set, nothing can ever happen, and the loop raises at once."""

    async def main() -> None:
        await asyncio.sleep(7)
        await asyncio.create_task(asyncio.Event().wait(), name="a pod that never comes")

    with pytest.raises(Deadlock, match=r"at 7 s; waiting: .*a pod that never comes"):
        run_virtually(main())


def test_a_loop_that_never_waits_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that stays busy at one instant would hang a replay, so the loop raises."""
    monkeypatch.setattr(virtual_loop, "_MAX_TURNS_AT_AN_INSTANT", 100)

    async def main() -> None:
        while True:  # noqa: ASYNC110 - such loops are what is tested
            await asyncio.sleep(0)

    with pytest.raises(TimeStandsStill, match="at 0 s"):
        run_virtually(main())


def test_the_exception_of_a_coroutine_is_raised() -> None:
    """The loop raises the exception of its coroutine."""

    async def fail() -> None:
        await asyncio.sleep(1)
        raise LookupError("no such pod")

    with pytest.raises(LookupError, match="no such pod"):
        run_virtually(fail())
