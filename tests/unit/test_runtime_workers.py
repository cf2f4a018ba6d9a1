"""Workers: held from step to step, lent while an attempt waits for long, and never more than there are."""

import asyncio

from tests.unit.runtime_fakes import now, slow_start, until, virtually

from taint_eviction.runtime.workers import Worker, Workers


class Freed:
    """Counts how often it is told that a worker may be free."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        """Count."""
        self.times += 1


def leave(*workers: Worker) -> None:
    """End all these attempts."""
    for worker in workers:
        worker.leave()


@virtually
async def test_a_worker_is_lent_once_its_attempt_has_waited_for_a_second() -> None:
    """From the last step on; and whoever has waited for one is told."""
    freed = Freed()
    workers = Workers(2, freed, 100)
    quick, slow = workers.assign(), workers.assign()
    await until(0.9)
    await quick.take()
    await until(1)
    assert (workers.busy, workers.taken, workers.lent, freed.times) == (1, 1, 1, 1)
    await until(1.9)
    assert (workers.busy, workers.taken, workers.lent) == (0, 0, 2)
    leave(quick, slow)
    assert (workers.busy, workers.taken, workers.lent) == (0, 0, 0)


@virtually
async def test_attempts_that_wait_long_are_counted_by_namespace() -> None:
    """Those of pods that are worked through are not, nor is what has no namespace."""
    workers = Workers(20, Freed(), 100)
    slow = [workers.assign("tenant") for _ in range(3)]
    busy = [workers.assign("shop") for _ in range(3)] + [workers.assign() for _ in range(3)]
    await until(0.9)
    for worker in busy[:3]:
        await worker.take()
    assert workers.waiting_long == {}
    await until(1)
    assert workers.waiting_long == {"tenant": 3}
    slow.pop().leave()
    assert workers.waiting_long == {"tenant": 2}
    leave(*slow, *busy)


@virtually
async def test_who_has_lent_its_worker_waits_for_one_in_turn() -> None:
    """First come, first served, and never more than there are."""
    workers = Workers(1, Freed(), 100)
    first, second = workers.assign(), None
    await until(1)
    second = workers.assign()
    await until(2)
    third = workers.assign()
    taken: list[tuple[float, str]] = []

    async def take(name: str, worker: Worker) -> None:
        await worker.take()
        taken.append((now(), name))
        await asyncio.sleep(0.5)
        worker.leave()

    async with asyncio.TaskGroup() as group:
        group.create_task(take("second", second))
        await slow_start()
        group.create_task(take("first", first))
        await until(2.25)
        assert (taken, workers.taken) == ([], 1)
        third.leave()
    assert taken == [(2.25, "second"), (2.75, "first")]
    assert (workers.taken, workers.lent) == (0, 0)


@virtually
async def test_who_is_cancelled_while_it_waits_for_a_worker_leaves_none_behind() -> None:
    """Before it was granted one, and in the very turn in which it is."""
    workers = Workers(1, Freed(), 100)
    lent = [workers.assign()]
    await until(1)
    lent.append(workers.assign())
    await until(2)
    busy = workers.assign()
    early, late = (asyncio.create_task(worker.take()) for worker in lent)
    await slow_start()
    early.cancel()
    await slow_start()
    busy.leave()
    late.cancel()
    await asyncio.wait((early, late))
    assert (early.cancelled(), late.cancelled()) == (True, True)
    leave(*lent)
    assert (workers.busy, workers.taken, workers.lent) == (0, 0, 0)


@virtually
async def test_a_hundred_are_lent_at_most() -> None:
    """What waits beyond that holds its worker; and goes on with it, or lends it once another has come back."""
    workers = Workers(60, Freed(), 100)
    waiting = [workers.assign() for _ in range(60)]
    await until(1)
    waiting += [workers.assign() for _ in range(60)]
    await until(2)
    assert (workers.busy, workers.taken, workers.lent) == (0, 20, 100)
    await waiting[0].take()
    assert (workers.busy, workers.taken, workers.lent) == (1, 20, 100)
    waiting[1].leave()
    assert (workers.busy, workers.taken, workers.lent) == (1, 19, 100)
    leave(*waiting)
    assert (workers.busy, workers.taken, workers.lent) == (0, 0, 0)


@virtually
async def test_a_worker_goes_to_the_next_where_who_waits_for_it_has_just_been_cut_off() -> None:
    """An attempt that is cancelled waits until it has its turn in the loop."""
    workers = Workers(1, Freed(), 100)
    cut_off, waits = workers.assign(), None
    await until(1)
    waits = workers.assign()
    await until(2)
    busy = workers.assign()
    cut_off_takes, waits_takes = asyncio.create_task(cut_off.take()), asyncio.create_task(waits.take())
    await slow_start()
    cut_off_takes.cancel()
    busy.leave()
    await waits_takes
    assert (workers.busy, cut_off_takes.cancelled()) == (1, True)
    leave(cut_off, waits)
    assert (workers.busy, workers.taken, workers.lent) == (0, 0, 0)
