"""How the waiting loop ends: stopped, cancelled, or by a bug of our own; and what it leaves then."""

import asyncio

import pytest
from tests.unit.builders import node, pod, taint, tolerates
from tests.unit.runtime_fakes import (
    HANGS,
    Body,
    now,
    running,
    slow,
    slow_start,
    until,
    virtually,
)

from taint_eviction.core.events import Work, WorkOutcome
from taint_eviction.runtime.workers import Worker


def body(*seconds: float, workers: int = 20, on: str = "n1") -> Body:
    """A body with a pod for each of these tolerations; UIDs are u0, u1..."""
    it = Body(workers)
    it.api.put(node(taint(), name=on))
    it.api.put(*(pod(tolerates(int(s)), name=f"p{i}", uid=f"u{i}", on=on) for i, s in enumerate(seconds)))
    for fact in it.api.facts():
        it.live.observe(fact)
    return it


@virtually
async def test_a_bug_in_an_eviction_ends_the_loop_with_it() -> None:
    """Ours, not the world's: visible at once, and the other evictions are cancelled and awaited."""
    it = body(0, 0)

    async def carry_out(work: Work, worker: Worker) -> WorkOutcome:
        if work.ref.uid == "u0":
            await asyncio.sleep(1)
            raise ZeroDivisionError("a bug")
        await asyncio.sleep(1000)
        raise AssertionError

    it.evictor.carry_out = carry_out  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await it.driver.run()
    assert (now(), it.driver.in_flight, it.in_flight()) == (1, 0, [])


@virtually
async def test_a_bug_in_a_teller_ends_the_loop_with_it() -> None:
    """Telling what happened is our own code as well."""
    it = body(0)
    it.reporter.report = lambda effect, now: 1 / 0  # type: ignore[method-assign, assignment]
    with pytest.raises(ZeroDivisionError):
        await it.driver.run()


@virtually
async def test_a_bug_while_stopping_is_not_swallowed() -> None:
    """The last eviction fails with a bug within the grace: whoever stops is told."""
    it = body(0)

    async def carry_out(work: Work, worker: Worker) -> WorkOutcome:
        await asyncio.sleep(1)
        raise ZeroDivisionError("a bug")

    it.evictor.carry_out = carry_out  # type: ignore[method-assign]
    async with running(it.driver.run()) as loop:
        await until(0.5)
        with pytest.raises(ZeroDivisionError):
            await asyncio.gather(it.driver.stop(5), loop)


@virtually
async def test_cancelled_it_cancels_what_is_in_flight_and_settles_it() -> None:
    """No task is left, and all is due again for whoever runs next."""
    it = body(0, 0, 0)
    it.api.ever["PATCH"] = HANGS
    async with running(it.driver.run()):
        await until(1)
        assert it.driver.in_flight == 3
    assert (it.driver.in_flight, it.in_flight(), it.brain.attempts.next_at(it.clock.now())) == (0, [], 0)


@virtually
async def test_an_eviction_that_somebody_else_cancels_is_taken_up_again() -> None:
    """A task of ours cancelled by a stranger is neither a bug nor lost."""
    it = body(0)
    it.api.will("PATCH", HANGS)
    async with running(it.driver.run()):
        await until(1)
        [stranger] = [task for task in asyncio.all_tasks() if task.get_name().startswith("evict ")]
        stranger.cancel()
        await until(1)
        assert it.api.deleted == [(1, "u0")]


@virtually
async def test_stop_begins_nothing_more_and_lets_what_is_in_flight_end() -> None:
    """Both calls of an eviction that has begun are made; one that is due a moment later is not."""
    it = body(0, 1)
    it.api.will("PATCH", slow(3))
    async with running(it.driver.run()) as loop:
        await until(0.5)
        assert await it.driver.stop(20) is True
        assert (now(), it.api.deleted) == (3, [(3, "u0")])
        await slow_start()
        assert loop.done()
        await until(10)
    assert len(it.api.deleted) == 1


@virtually
async def test_stop_cuts_off_what_has_not_ended_within_the_grace() -> None:
    """Exactly after the grace, and it says so."""
    it = body(0, 0)
    it.api.will("DELETE", HANGS, slow(2))
    async with running(it.driver.run()):
        await until(1)
        assert await it.driver.stop(5) is False
        assert (now(), len(it.api.deleted), it.driver.in_flight) == (6, 1, 0)


@virtually
async def test_stop_with_nothing_in_flight_is_immediate() -> None:
    """Also before the loop has run at all, and twice."""
    it = body(5)
    assert await it.driver.stop(20) is True
    assert await it.driver.stop(20) is True
    await it.driver.run()
    assert (now(), it.api.calls) == (0, [])
