"""The one waiting loop: exact in time, bounded in work, and ended by our own bugs only."""

import asyncio
import random
from dataclasses import replace

import pytest
from tests.amount import by_day
from tests.unit.builders import node, pod, ref, taint, tolerates
from tests.unit.runtime_fakes import (
    HANGS,
    Body,
    How,
    admitted,
    at,
    now,
    refused,
    running,
    slow,
    times_out,
    until,
    virtually,
)

from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.controller import Controller
from taint_eviction.core.events import BreakerOpened, Eviction, Work, WorkOutcome
from taint_eviction.core.facts import NodeSeen, PodSeen
from taint_eviction.runtime.workers import Worker


class AttemptsUnderWay:
    """Stands in for the evictor: takes ``seconds`` for each piece of work and keeps account of it."""

    def __init__(self, it: Body, seconds: float = 1.0) -> None:
        self.it, self.seconds = it, seconds
        self.begun: list[tuple[float, str]] = []
        self.under_way: list[Work] = []
        self.most = self.max_retries = 0
        self.doubles: list[str] = []
        self._inner = it.evictor.carry_out
        it.evictor.carry_out = self.carry_out  # type: ignore[method-assign]

    async def carry_out(self, work: Work, worker: Worker) -> WorkOutcome:
        """Do it, in so many seconds more."""
        self.begun.append((now(), work.ref.uid))
        if isinstance(work, Eviction):
            evictions = [other for other in self.under_way if isinstance(other, Eviction)]
            self.doubles += [other.ref.uid for other in evictions if other.ref.uid == work.ref.uid]
        self.under_way.append(work)
        self.most = max(self.most, self.it.driver.workers.taken)
        self.max_retries = max(self.max_retries, self.it.driver.workers.retrying)
        try:
            await asyncio.sleep(self.seconds)
            return await self._inner(work, worker)
        finally:
            self.under_way.remove(work)


def body(*seconds: float, workers: int = 20, on: str = "n1") -> Body:
    """A body with a pod for each of these tolerations; UIDs are u0, u1..."""
    it = Body(workers)
    it.api.put(node(taint(), name=on))
    it.api.put(*(pod(tolerates(int(s)), name=f"p{i}", uid=f"u{i}", on=on) for i, s in enumerate(seconds)))
    for fact in it.api.facts():
        it.live.observe(fact)
    return it


# In time


@pytest.mark.parametrize(("webhooks", "evicted_at"), [(10.2, 20), (30.5, 61), (55.0, 126), (70.0, None)])
@virtually
async def test_a_deletion_that_webhooks_hold_up_is_waited_for_longer_each_time(
    webhooks: float, evicted_at: int | None
) -> None:
    """An API server waits 10 s for a webhook that hangs, and ends a request whose sender waits no longer; after 60 s
    it ends any request.
    """
    it = body(0)
    it.api.ever["DELETE"] = admitted(webhooks)
    async with running(it.driver.run()):
        await until(400)
    assert [int(instant) for instant, _ in it.api.deleted] == ([] if evicted_at is None else [evicted_at])


@virtually
async def test_a_deadline_is_hit_exactly() -> None:
    """Whatever the fraction of a second at which its tolerance began: lateness 0."""
    it = Body()
    it.sees(node(taint()))
    async with running(it.driver.run()):
        for number, begins_at in enumerate((0.1, 0.123457, 0.5, 0.999999, 1.7)):
            at(begins_at, it.sees, pod(tolerates(30), name=f"p{number}", uid=f"u{number}"))
        await until(40)
    assert [instant for instant, _ in it.api.deleted] == [30.1, 30.123457, 30.5, 30.999999, 31.7]


@virtually
async def test_what_is_due_at_once_begins_at_once() -> None:
    """An untolerated taint seen between two looks does not wait for the next one."""
    it = Body()
    async with running(it.driver.run()):
        at(0.3, it.sees, node(taint()), pod())
        await until(0.3)
        assert it.api.deleted == [(0.3, "a")]


@virtually
async def test_a_deadline_between_the_look_and_the_wait_is_not_missed() -> None:
    """Time passes while work is begun: the deadline that this skips is due at the next look, which comes at once."""
    it = body(0, 10)
    begin = it.live.take_due

    def take_due(max_works: int, max_retries: int) -> list[Work]:
        begun = begin(max_works, max_retries)
        if begun and now() == 0:
            it.clock.ahead = 10
        return begun

    it.live.take_due = take_due  # type: ignore[method-assign]
    async with running(it.driver.run()):
        await until(0)
        assert it.api.deleted == [(0, "u0"), (0, "u1")]


@virtually
async def test_a_clock_that_jumped_is_noticed_within_half_a_second() -> None:
    """Suspended for an hour: timers of the loop know nothing of it, the next bounded wait does."""
    it = body(3600)
    async with running(it.driver.run()):
        await until(10.2)
        it.clock.ahead = 3600
        await until(10.7)
    assert [uid for _, uid in it.api.deleted] == ["u0"]


@virtually
async def test_the_most_overdue_goes_first() -> None:
    """W14: after a hold, in the order of their deadlines."""
    it = body(3, 1, 4, 2, 0, workers=2)
    it.gate.open = False
    attempts = AttemptsUnderWay(it)
    async with running(it.driver.run()):
        await until(5)
        it.gate.open = True
        await until(10)
    assert [uid for _, uid in attempts.begun] == ["u4", "u1", "u3", "u0", "u2"]


@virtually
async def test_the_heart_beats_at_least_twice_a_second() -> None:
    """With nothing to do, with all workers busy, and behind a closed gate."""
    it = body(100)
    async with running(it.driver.run()):
        for seconds in range(1, 10):
            await until(seconds)
            assert it.driver.beat_age_seconds() <= 0.5
            it.gate.open = seconds < 5


# In bounds


@virtually
async def test_no_more_workers_than_were_granted() -> None:
    """Fifty at once, four hands, half a second each."""
    it = body(*[0] * 50, workers=4)
    attempts = AttemptsUnderWay(it, 0.5)
    async with running(it.driver.run()):
        await until(20)
    assert (attempts.most, len(it.api.deleted), it.api.deleted[-1][0]) == (4, 50, 6.5)


@virtually
async def test_few_begin_and_each_that_ends_lets_one_more_take_part() -> None:
    """Twenty at once, twenty hands, 0.05 s each: 4, 8, 8; and after a pause again 4."""
    it = body(*[0] * 20, *[5] * 8)
    attempts = AttemptsUnderWay(it, 0.05)
    async with running(it.driver.run()):
        await until(10)
    begun = [round(instant, 3) for instant, _ in attempts.begun]
    assert {instant: begun.count(instant) for instant in begun} == {0: 4, 0.05: 8, 0.1: 8, 5: 4, 5.05: 4}


@virtually
async def test_calls_that_hang_hold_the_rest_up_for_a_moment_only() -> None:
    """The first four hang: 0.2 s later all hands take part; and each is lent to the others after a second."""
    it = body(*[0] * 30)
    attempts = AttemptsUnderWay(it, 60)
    async with running(it.driver.run()):
        await until(30)
    begun = [round(instant, 3) for instant, _ in attempts.begun]
    assert begun == [0] * 4 + [0.2] * 16 + [1.0] * 4 + [1.2] * 6


@virtually
async def test_while_many_wait_few_begin_at_a_time_and_a_hundred_lend_at_most() -> None:
    """All hang for ten minutes: 50 in three seconds, then four a second, until 100 wait and all hands are busy."""
    it = body(*[0] * 300)
    attempts = AttemptsUnderWay(it, 600)
    async with running(it.driver.run()):
        await until(3.9)
        assert (it.driver.in_flight, it.driver.workers.lent) == (64, 60)
        await until(4.9)
        assert (it.driver.in_flight, it.driver.workers.lent) == (68, 64)
        await until(100)
        assert (it.driver.in_flight, it.driver.workers.lent, it.driver.workers.taken) == (120, 100, 20)
    assert attempts.most == 20


@virtually
async def test_an_unrelated_pod_waits_a_second_at_most_for_any_number_of_calls_that_hang() -> None:
    """Whenever it comes: not until the calls time out."""
    it = body(*[0] * 60)
    it.sees(node(taint(), name="n2"))
    attempts = AttemptsUnderWay(it, 0)
    it.api.ever["DELETE"] = times_out(10)
    due = {f"web-{number}": 0.5 + 2.37 * number for number in range(20)}
    async with running(it.driver.run()):
        for uid, due_at in due.items():
            await until(due_at)
            it.sees(pod(name=uid, uid=uid, on="n2"))
        await until(60)
    begun = {uid: instant for instant, uid in reversed(attempts.begun)}
    assert max(begun[uid] - due_at for uid, due_at in due.items()) <= 1


@virtually
async def test_what_has_waited_for_long_takes_a_worker_again_before_its_next_step() -> None:
    """Two hands: both conditions take 4 s, and so do those of whoever got their hands; nobody jumps the queue."""
    it = body(*[0] * 6, workers=2)
    it.api.ever["PATCH"] = slow(4)
    attempts = AttemptsUnderWay(it, 0)
    async with running(it.driver.run()):
        await until(30)
    assert [instant for instant, _ in attempts.begun] == [0, 0, 1, 1, 2, 2]
    assert [instant for instant, _ in it.api.deleted] == [4, 4, 5, 5, 6, 6]
    assert attempts.most == 2


@virtually
async def test_untainted_while_it_waits_for_a_worker_calls_off() -> None:
    """It decides anew once it has one: the watch told of the untaint while both hands were busy with others."""
    it = body(0, 0, 0, workers=2)
    it.api.will("PATCH", slow(1.5), *[slow(0.9)] * 2)
    it.api.ever["DELETE"] = slow(0.9)
    async with running(it.driver.run()):
        at(1.6, it.sees, node())
        await until(10)
    assert [uid for _, uid in it.api.deleted] == ["u1"]


@virtually
async def test_retries_that_wait_for_long_do_not_count_against_their_half() -> None:
    """W8: of 180 that hang again half of the workers are busy at most, and a stranger's retry soon gets one."""
    it = body(*[0] * 180)
    it.sees(node(taint(), name="n2"))
    it.api.ever["DELETE"] = times_out(10)
    attempts = AttemptsUnderWay(it, 0)
    async with running(it.driver.run()):
        await until(60)
        assert it.driver.workers.lent > 20
        it.api.will("GET node", refused(500))
        it.sees(pod(name="late", uid="late", on="n2"))
        await until(65)
    assert attempts.max_retries <= 10
    first, again = [instant for instant, uid in attempts.begun if uid == "late"]
    assert first == 60
    assert again - first <= 1


@virtually
async def test_at_stop_those_that_have_lent_their_worker_may_end_as_well() -> None:
    """And whatever has not by the end of the grace is cut off: nothing is sent after that, so the Lease may go."""
    it = body(0, 0, workers=2)
    it.api.will("PATCH", slow(3), slow(60), slow(60))
    async with running(it.driver.run()):
        await until(2)
        assert it.driver.workers.lent == 2
        assert await it.driver.stop(5) is False
        await until(100)
    assert (now(), it.api.deleted, it.driver.in_flight) == (100, [(3, "u0")], 0)


@virtually
async def test_retries_hold_no_more_than_half_of_the_few_that_begin() -> None:
    """W8: of twenty retries two begin and hang; the others 0.2 s later, as far as half of all hands go."""
    it = body(*[0] * 20)
    it.api.ever["PATCH"] = it.api.ever["GET pod"] = refused(403)
    async with running(it.driver.run()):
        await until(0.01)
        attempts = AttemptsUnderWay(it, 60)
        await until(5)
    first = attempts.begun[0][0]
    assert len([uid for instant, uid in attempts.begun if instant < first + 0.19]) == 2
    assert attempts.max_retries == 10


@virtually
async def test_events_may_be_told_of_while_few_take_part_only_if_those_are_not_all_busy() -> None:
    """Four of twenty hands are busy, and no more may be: there is no time for words."""
    it = body(*[0] * 5)
    AttemptsUnderWay(it, 0.1)
    async with running(it.driver.run()):
        await until(0.05)
        assert it.driver.saturated
        await until(0.15)
        assert not it.driver.saturated


@virtually
async def test_retries_hold_no_more_than_half_of_the_workers() -> None:
    """W8: twenty that hang until they fail leave half of the hands to those that have not been tried."""
    it = body(*[0] * 20, workers=4)
    it.api.ever["PATCH"] = times_out(10)
    it.api.ever["GET pod"] = times_out(10)
    attempts = AttemptsUnderWay(it, 0)
    async with running(it.driver.run()):
        await until(110)
        assert attempts.max_retries == 2
        it.api.ever.clear()
        it.sees(*(pod(name=f"new{number}", uid=f"new{number}") for number in range(2)))
        await until(110)
        assert sorted(uid for _, uid in it.api.deleted) == ["new0", "new1"]


@virtually
async def test_first_tries_go_before_retries() -> None:
    """W8: one free hand, an old failure and a fresh deadline, both due."""
    it = body(0, 1, workers=2)
    it.api.will("GET node", refused(500, retry_after=1))
    attempts = AttemptsUnderWay(it, 0)
    async with running(it.driver.run()):
        at(0.9, setattr, it.gate, "open", False)
        at(3, setattr, it.gate, "open", True)
        await until(4)
    assert [uid for _, uid in attempts.begun] == ["u0", "u1", "u0"]


@virtually
async def test_retries_that_are_due_while_none_may_begin_do_not_spin() -> None:
    """All hands that retries may have hang, and more retries are overdue: the loop still waits."""
    it = body(*[0] * 10, workers=4)
    it.api.ever["GET node"] = refused(500)
    async with running(it.driver.run()):
        at(0.05, it.api.ever.update, {"GET node": HANGS})
        await until(1)
        assert (it.driver.in_flight, it.driver.saturated) == (2, False)
        before = it.clock.reads
        await until(11)
        assert it.clock.reads - before < 200
        for task in asyncio.all_tasks():
            if task.get_name() == "read node n1":
                task.cancel()


@virtually
async def test_a_thousand_refusals_do_not_spin() -> None:
    """W8: refused for good, each pod is asked for with growing pauses: a bounded number of calls a second."""
    it = body(*[0] * 50, workers=10)
    it.api.ever["DELETE"] = refused(403)
    async with running(it.driver.run()):
        await until(600)
    calls = len(it.api.sent("DELETE"))
    assert 50 * 20 < calls < 50 * 60


@virtually
@pytest.mark.parametrize("seed", by_day(range(20), 4))
async def test_never_two_for_one_pod(seed: int) -> None:
    """Whatever changes and fails meanwhile: a pod is in at most one pair of hands."""
    rng = random.Random(seed)
    it = body(*[rng.randrange(20) for _ in range(20)], workers=6)
    it.api.graceful = True
    it.sees(*it.api.pods.values())
    for verb in ("GET node", "PATCH", "DELETE", "GET pod", "UNMARK"):
        it.api.will(verb, *(rng.choice([slow(0.3), refused(500), times_out(3), How(1, 1)]) for _ in range(100)))
    attempts = AttemptsUnderWay(it, 0)

    def tolerate(number: int) -> None:
        it.sees(replace(it.api.pods[ref(f"p{number}").key], tolerations=(tolerates(rng.randrange(30)),)))

    for _ in range(30):
        at(rng.random() * 30, it.sees, rng.choice([node(taint()), node(), node(taint(), taint("k2"))]))
        at(rng.random() * 30, tolerate, rng.randrange(20))
    at(31, it.sees, node(taint()))
    async with running(it.driver.run()):
        await until(1000)
    assert attempts.doubles == []
    assert attempts.most <= 6
    assert attempts.max_retries <= 3
    assert (it.driver.in_flight, it.in_flight(), it.brain.attempts.next_at(it.clock.now())) == (0, [], None)
    assert all(one.terminating for one in it.api.pods.values())


@virtually
async def test_untainting_amid_a_thousand_stops_the_rest() -> None:
    """W14: what has not been sent when the taint goes is never sent; what is under way decides again.

    By then 4, 8, and eight times 10 have gone.
    """
    it = body(*[0] * 1000, workers=10)
    it.api.ever["PATCH"] = slow(0.1)
    at(1.05, it.sees, node())
    async with running(it.driver.run()):
        await until(1.05)
        deleted, patched = len(it.api.deleted), len(it.api.sent("PATCH"))
        await until(60)
    assert (deleted, len(it.api.deleted)) == (92, 92)
    assert (patched, len(it.api.sent("PATCH"))) == (102, 102)
    assert len(it.api.sent("UNMARK")) == 10


# The gate


@virtually
async def test_a_closed_gate_takes_nothing_and_an_opened_one_acts_within_half_a_second() -> None:
    """A standby keeps its queue; taking over needs no list and no nudge."""
    it = body(0, 1)
    it.gate.open = False
    async with running(it.driver.run()):
        await until(10.1)
        assert (it.api.calls, it.driver.in_flight) == ([], 0)
        it.gate.open = True
        await until(10.6)
        assert len(it.api.deleted) == 2


@virtually
async def test_a_gate_that_closes_in_flight_begins_again_where_it_opens() -> None:
    """Held is no failure: a first try stays one, and is not punished with a wait."""
    it = body(0)
    it.api.will("PATCH", slow(1))
    async with running(it.driver.run()):
        at(0.5, setattr, it.gate, "open", False)
        at(20, setattr, it.gate, "open", True)
        await until(20.5)
    assert len(it.api.deleted) == 1
    assert [work.tries for work in it.in_flight() if isinstance(work, Eviction)] == []


# Namesakes


@virtually
async def test_a_recreated_pod_is_evicted_while_its_forerunner_is_still_in_flight() -> None:
    """W1, W3: A's DELETE is slow; B comes under its name, gets its own work, and A's late end takes nothing from it."""
    it = body(0)
    it.api.will("DELETE", slow(5))
    b = pod(tolerates(2), name="p0", uid="b")

    def recreate() -> None:
        it.api.put(b)
        it.live.observe(PodSeen(it.api.pods[b.ref.key]))

    async with running(it.driver.run()):
        at(1, recreate)
        await until(10)
    assert it.api.deleted == [(0, "u0"), (3, "b")]


@virtually
async def test_a_pod_that_moved_to_a_clean_node_under_the_same_name_lives() -> None:
    """W2: A waits in the queue; B of the same name runs on a clean node when A's time comes."""
    it = body(5)
    it.api.put(node(name="n2"))
    b = pod(tolerates(2), name="p0", uid="b", on="n2")
    async with running(it.driver.run()):
        at(1, it.sees, b)
        at(1, it.live.observe, NodeSeen(node(name="n2")))
        await until(20)
    assert (it.api.deleted, it.brain.pods.find(ref("p0", "u0"))) == ([], None)


@virtually
async def test_the_breaker_looks_while_all_workers_are_busy() -> None:
    """A wave that comes then is seen at once, and what they have not sent yet is held."""
    breaker = BreakerPolicy(enabled=True, nodes=NodeThreshold(number=1), settle_seconds=0)
    it = Body(2, Controller(breaker=breaker))
    it.api.ever["GET node"] = slow(1)
    it.sees(node(taint()), pod(uid="u0"), pod(name="p1", uid="u1"))
    it.lists_pods()
    async with running(it.driver.run()):
        await until(0.2)
        assert it.driver.saturated
        it.sees(node(taint(), name="n2"), pod(name="p2", uid="u2", on="n2"))
        await until(0.3)
        assert [effect for _, effect in it.reporter.of(BreakerOpened)] != []
        await until(5)
    assert it.api.deleted == []
