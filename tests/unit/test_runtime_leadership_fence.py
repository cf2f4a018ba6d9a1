"""Holding the Lease, losing it, and the fence: never do two act at the same time."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.builders import EPOCH
from tests.unit.runtime_fakes import (
    EFFECT_WITHOUT_ANSWER,
    HANGS,
    LOST_ANSWER,
    How,
    at,
    now,
    refused,
    slow,
    slow_start,
    times_out,
    until,
    virtually,
)
from tests.unit.test_runtime_leadership import Candidate, Lease, record

from taint_eviction.runtime.leadership import LeaseRecord

# Holding


@virtually
async def test_a_leader_renews_every_retry_period_by_one_write() -> None:
    """Optimistically: no read; acquire time and transitions stay."""
    lease = Lease(record(holder=""))
    a = Candidate(lease)
    async with a.standing():
        await until(9)
        assert a.store.sent() == [(0, "GET"), *((at, "PUT") for at in (0, 2, 4, 6, 8))]
        assert lease.record == LeaseRecord("a", 15, EPOCH, EPOCH + 8, 4, "6")


@virtually
async def test_a_renewal_that_meets_a_foreign_write_reads_and_renews() -> None:
    """Somebody labelled the Lease: 409, read, still mine, renewed in the same attempt."""
    lease = Lease()
    a = Candidate(lease)
    async with a.standing():
        at(3, lambda: lease.put(replace(lease.record or record())))
        await until(4)
        assert (a.store.verbs()[-3:], a.acts, lease.history[-1][0]) == (["PUT", "GET", "PUT"], True, 4)


@virtually
async def test_a_renewal_whose_answer_was_lost_is_repeated() -> None:
    """The next one meets its own forerunner, reads, and goes on."""
    lease = Lease()
    a = Candidate(lease)
    async with a.standing():
        await until(1)
        a.store.will("PUT", LOST_ANSWER)
        await until(30)
        assert (a.acts, lease.history[-1][1].transitions) == (True, 0)


@virtually
async def test_a_deleted_lease_is_created_again_by_the_next_renewal() -> None:
    """Somebody ran kubectl delete lease: 404 must lead to a new lease at once, before another candidate makes one."""
    lease = Lease()
    a = Candidate(lease)
    async with a.standing():
        await until(3)
        lease.delete()
        await until(4)
        assert (lease.record is not None, a.acts) == (True, True)


@virtually
async def test_a_standby_does_not_take_a_deleted_lease_before_the_old_one_is_over() -> None:
    """Its holder acts until its next renewal; if it is gone, the standby leads when the duration is over."""
    lease = Lease(record("b"))
    a = Candidate(lease)
    async with a.standing():
        at(3, lease.delete)
        await until(14.9)
        assert (a.acts, lease.record) == (False, None)
        await until(20)
        assert (a.acts, a.elector.holder) == (True, "a")


@virtually
async def test_anothers_lease_observed_is_lost_at_once() -> None:
    """Whoever wrote it over: the first renewal sees it, and nothing is done after that."""
    lease = Lease()
    a = Candidate(lease)
    async with a.standing():
        at(3, lambda: lease.put(record()))
        await until(4)
        assert (a.acts, a.elector.leading, a.elector.holder) == (False, False, "b")
        await until(10)
        assert (lease.record or record()).holder == "b"


@virtually
@pytest.mark.parametrize("how", [HANGS, EFFECT_WITHOUT_ANSWER, refused(500), refused(403), times_out(3)])
async def test_who_cannot_renew_may_not_act_exactly_after_the_renew_deadline(how: How) -> None:
    """Counted from the start of the last renewal that was answered, whatever goes wrong and whoever notices."""
    a = Candidate(Lease())
    async with a.standing():
        await until(5)
        a.store.cut(how)
        await until(13.999999)
        assert a.acts is True
        await until(14)
        assert a.acts is False
        await until(17)
        assert a.elector.leading is False


@virtually
async def test_one_attempt_that_hangs_does_not_cost_the_lease() -> None:
    """A single connection that went dead: there is time for another attempt before the renew deadline."""
    a = Candidate(Lease())
    async with a.standing():
        await until(1)
        a.store.will("PUT", HANGS)
        for seconds in range(2, 40):
            await until(seconds)
            assert a.acts


@virtually
@pytest.mark.parametrize("how", [slow, lambda seconds: How(effect_after=seconds / 2, answer_after=seconds / 2)])
@pytest.mark.parametrize("seconds", [2.8, 4.5])
async def test_whose_calls_are_slow_leads_without_a_break(seconds: float, how: Callable[[float], How]) -> None:
    """It takes a read and a write to lead; from then on each renewal is sent before the last one has run out."""
    a = Candidate(Lease())
    a.store.cut(how(seconds))
    async with a.standing():
        await until(2 * seconds - 0.01)
        assert a.acts is False
        for tenth in range(600):
            await until(2 * seconds + tenth / 10)
            assert a.acts is True, now()
    assert [verb for _, verb in a.store.sent()[:4]] == ["GET", "PUT", "PUT", "PUT"]
    assert [sent_at for sent_at, _ in a.store.sent()[:4]] == pytest.approx([turn * seconds for turn in range(4)])


@virtually
async def test_a_renewal_counts_from_when_its_write_was_sent() -> None:
    """Not from a read before it, which promises nothing to anybody."""
    lease = Lease()
    a = Candidate(lease)
    a.store.will("GET", slow(4.5))
    async with a.standing():
        await until(5)
        a.store.cut()
        await until(14.499999)
        assert a.acts is True
        await until(14.5)
        assert a.acts is False


@virtually
async def test_a_renewal_that_took_long_to_fail_is_repeated_at_once() -> None:
    """The retry period counts from attempt to attempt, as one that hangs has used it up: 3 s are left, not 1."""
    a = Candidate(Lease())
    async with a.standing():
        await until(1)
        a.store.will("PUT", HANGS)
        await until(9)
        assert a.store.sent("PUT") == [(0, "PUT"), (2, "PUT"), (7, "PUT"), (9, "PUT")]
        assert a.acts


@virtually
@pytest.mark.parametrize("seconds", [2.8, 4.5])
async def test_a_slow_renewal_whose_answer_is_lost_costs_the_lead_for_a_while_at_most(seconds: float) -> None:
    """What was written stays known to nobody: the fence falls in time, and the lease is taken up again."""
    a, b = Candidate(lease := Lease(), "a"), Candidate(lease, "b", seed=1)
    for one in (a, b):
        one.store.cut(slow(seconds))
    async with a.standing():
        await until(3.5 * seconds)
        async with b.standing():
            a.store.will("PUT", How(answer_after=seconds, failure="connection reset"))
            acted_at = []
            for tenth in range(600):
                await until(3.5 * seconds + tenth / 10)
                assert not b.acts
                acted_at += [now()] if a.acts else []
    gaps = [later - earlier for earlier, later in itertools.pairwise(acted_at)]
    assert max(gaps) <= 3 * seconds
    assert {each.holder for _, each in lease.history} == {"a"}


@virtually
async def test_who_has_lost_the_lease_stands_again() -> None:
    """An outage of a minute costs leadership, not the process."""
    a = Candidate(Lease())
    async with a.standing():
        at(5, a.store.cut)
        at(65, a.store.ever.clear)
        at(65, lambda: setattr(a.store, "ever", {}))
        await until(64)
        assert a.elector.leading is False
        await until(80)
        assert a.acts


@virtually
async def test_a_frozen_process_may_not_act_when_it_wakes() -> None:
    """Stopped for 30 s between two renewals, another leads since: the fence falls before anything has run."""
    a = Candidate(Lease())
    async with a.standing():
        await until(5)
        a.clock.ahead = 30
        assert a.acts is False
        await slow_start()
        assert a.acts is False


@virtually
async def test_a_process_frozen_in_a_renewal_may_not_act_by_its_late_answer() -> None:
    """The answer was given before the freeze and is read after it: it is as old as its question."""
    a = Candidate(Lease())
    async with a.standing():
        await until(1)
        a.store.will("PUT", slow(0.5))
        at(2.25, setattr, a.clock, "ahead", 30)
        at(2.25, a.store.cut)
        await until(2.5)
        assert a.acts is False
        await until(4)
        assert a.acts is False


@virtually
async def test_a_process_frozen_while_acquiring_may_not_act_by_its_late_answer() -> None:
    """The same for the first answer: it leads in name for a moment, and stands again."""
    a = Candidate(Lease())
    a.store.will("PUT", slow(0.5))
    at(0.25, setattr, a.clock, "ahead", 30)
    at(0.25, a.store.cut, times_out(1.5))
    at(1.9, setattr, a.store, "ever", {})
    async with a.standing():
        for tenth in range(20):
            await until(tenth / 10)
            assert a.acts is False
        await until(10)
        assert a.acts


@virtually
async def test_an_expired_lease_that_is_still_believed_in_is_counted() -> None:
    """For liveness: how long it has believed to lead with a lease that has run out."""
    a = Candidate(Lease())
    async with a.standing():
        await until(1)
        assert a.elector.expired_seconds() == 0
        a.clock.ahead = 40
        assert a.elector.expired_seconds() == 26
    assert a.elector.expired_seconds() == 0


@virtually
async def test_a_bug_in_the_store_ends_it() -> None:
    """What is no failure of the world is raised, and nobody leads."""
    a = Candidate(Lease())

    async def broken() -> LeaseRecord | None:
        raise ZeroDivisionError("a bug")

    a.store.read = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await a.elector.run()
    assert a.acts is False


# Never two


FARES = [
    *[How()] * 6,
    slow(1),
    slow(4.5),
    slow(6),
    slow(12),
    How(effect_after=3),
    How(effect_after=12),
    How(effect_after=20),
    LOST_ANSWER,
    EFFECT_WITHOUT_ANSWER,
    HANGS,
    refused(500),
    times_out(4),
]


@pytest.mark.parametrize("seed", range(40))
def test_never_do_two_act_at_the_same_time(seed: int) -> None:
    """Three candidates on one Lease: random failures, delays, late effects, suspended hosts; seeds repeat."""

    @virtually
    async def some_minutes() -> None:
        rng = random.Random(seed)
        lease = Lease()
        candidates = [Candidate(lease, name, seed=seed * 3 + i) for i, name in enumerate("abc")]
        led: set[str] = set()
        async with contextlib.AsyncExitStack() as stack:
            for one in candidates:
                await stack.enter_async_context(one.standing())
            for step in range(2000):
                await asyncio.sleep(0.3)
                suspended = rng.choice([0, 5, 12, 30]) if step % 100 == 99 else 0
                for one in candidates:
                    one.clock.ahead += suspended
                    if step % 10 == 0:
                        one.store.will("PUT", rng.choice(FARES))
                        one.store.will("GET", rng.choice(FARES))
                acting = [one.elector.identity for one in candidates if one.acts]
                assert len(acting) <= 1, f"seed {seed} at {now()} s: {acting}"
                led.update(acting)
        assert led

    some_minutes()
