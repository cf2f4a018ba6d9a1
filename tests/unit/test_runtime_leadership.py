"""Leader election: client-go's semantics on virtual time, and the fence."""

import contextlib
import itertools
import logging
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.unit.builders import EPOCH
from tests.unit.runtime_fakes import (
    HANGS,
    LOST_ANSWER,
    FakeClock,
    How,
    Wire,
    at,
    now,
    refused,
    running,
    slow,
    until,
    virtually,
)

from taint_eviction.core.breaker import TriedBefore
from taint_eviction.runtime.leadership import Elector, LeaseRecord, NoElection
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction.settings import ElectionSettings


class Lease:
    """The Lease in the API server; ``history`` has every record with when it was written."""

    def __init__(self, record: LeaseRecord | None = None) -> None:
        self.version = 0
        self.record: LeaseRecord | None = None
        self.history: list[tuple[float, LeaseRecord]] = []
        if record is not None:
            self.put(record)

    def put(self, record: LeaseRecord) -> LeaseRecord:
        """Store a record whatever is there."""
        self.version += 1
        self.record = replace(record, version=str(self.version))
        self.history.append((now(), self.record))
        return self.record

    def swap(self, record: LeaseRecord) -> LeaseRecord:
        """Store a record against its version."""
        if self.record is None and record.version:
            raise CallFailed("leases not found", reason=FailureReason.NOT_FOUND)
        if (self.record.version if self.record else "") != record.version:
            raise CallFailed("the object has been modified", reason=FailureReason.CONFLICT)
        return self.put(record)

    def delete(self) -> None:
        """Delete the Lease."""
        self.record = None


class FakeLeaseStore(Wire):
    """One candidate's door to the Lease."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.lease = lease

    async def read(self) -> LeaseRecord | None:
        """Read."""
        return await self.carry("GET", "", lambda: self.lease.record)

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create or swap."""
        return await self.carry("PUT", "", lambda: self.lease.swap(record))

    def cut(self, how: How = HANGS) -> None:
        """Let everything fare so from now on."""
        self.ever = {"GET": how, "PUT": how}


class Candidate:
    """An elector with its own clock and its own door."""

    def __init__(self, lease: Lease, name: str = "a", seed: int = 0, **settings: float) -> None:
        self.clock, self.store = FakeClock(), FakeLeaseStore(lease)
        chosen = replace(ElectionSettings(), **settings)  # type: ignore[arg-type]
        self.elector = Elector(name, self.store, self.clock, chosen, rng=random.Random(seed))

    @property
    def acts(self) -> bool:
        """Tell whether it may act."""
        return self.elector.may_act()

    @contextlib.asynccontextmanager
    async def standing(self) -> AsyncIterator[None]:
        """Stand for election meanwhile."""
        async with running(self.elector.run()):
            yield


def record(holder: str = "b", duration: int = 15, transitions: int = 3) -> LeaseRecord:
    """Somebody's lease."""
    return LeaseRecord(holder, duration, EPOCH - 100, EPOCH - 1, transitions)


# Standing by


@virtually
async def test_a_standby_says_once_who_leads(caplog: pytest.LogCaptureFixture) -> None:
    """And again when another one leads; who leads itself says no such thing."""
    caplog.set_level(logging.INFO)
    lease = Lease(record("b"))
    a = Candidate(lease, seed=1)
    for seconds in range(2, 60, 2):
        at(seconds, lambda holder: lease.put(record(holder)), "b" if seconds < 30 else "c")
    async with a.standing():
        await until(29)
        assert caplog.messages == ["a is a standby: b leads"]
        await until(59)
        assert caplog.messages == ["a is a standby: b leads", "a is a standby: c leads"]
        await until(90)
        assert caplog.messages[2:] == ["a leads now"]
        at(91, lease.put, record("b"))
        await until(99)
    assert caplog.messages[3:] == ["a no longer leads", "a is a standby: b leads"]


@virtually
async def test_an_api_server_that_is_away_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """And when it is back; not at each of forty tries."""
    caplog.set_level(logging.INFO)
    a = Candidate(Lease(record("b")))
    async with a.standing():
        await until(1)
        a.store.cut(refused(503))
        await until(120)
        a.store.ever.clear()
        await until(130)
    away = [message for message in caplog.messages if message.startswith("the lease")]
    assert len([message for message in away if "503" in message]) == 2
    assert away[-1] == "the lease can be read and written again"


# Acquiring


@virtually
async def test_a_missing_lease_is_created() -> None:
    """At once, with no transition counted."""
    lease = Lease()
    a = Candidate(lease)
    async with a.standing():
        await until(0)
        assert (a.acts, a.elector.holder) == (True, "a")
        assert lease.history == [(0, LeaseRecord("a", 15, EPOCH, EPOCH, 0, "1"))]


@virtually
async def test_a_released_lease_is_taken_at_once() -> None:
    """An empty holder is nobody, however young the lease; the transition is counted."""
    lease = Lease(record(holder="", duration=1))
    a = Candidate(lease)
    async with a.standing():
        await until(0)
        assert a.acts
        assert lease.record == LeaseRecord("a", 15, EPOCH, EPOCH, 4, "2")


@virtually
async def test_expiry_is_judged_from_when_i_last_saw_it_change() -> None:
    """Not from the timestamps in it, which are ages old here, or in the future."""
    for renewed in (EPOCH - 1e6, EPOCH + 1e6):
        begin, lease = now(), Lease(replace(record(), renewed_epoch=renewed))
        a = Candidate(lease)
        async with a.standing():
            await until(begin + 14.9)
            assert a.acts is False
            await until(begin + 15 + 4.4)
            assert a.acts is True
        assert lease.history[-1][1].transitions == 4 or lease.history[1][1].transitions == 4


@virtually
async def test_a_lease_that_changes_is_waited_for_anew() -> None:
    """Each change seen starts the wait again, and the holder's own duration counts."""
    lease = Lease(record(duration=30))
    a = Candidate(lease)
    at(20, lambda: lease.put(record(duration=30)))
    async with a.standing():
        await until(50)
        assert a.acts is False
        await until(20 + 30 + 2 * 4.4)
        assert a.acts is True


@virtually
async def test_a_lease_that_seems_to_last_for_years_ends_after_an_hour() -> None:
    """No controller writes that: 2,147,483,647 s is the most that the API server accepts."""
    a = Candidate(Lease(record(duration=2**31 - 1)))
    async with a.standing():
        await until(3599)
        assert a.acts is False
        await until(3610)
        assert a.acts is True


@virtually
async def test_my_own_lease_is_taken_up_again() -> None:
    """Restarted under the same identity: neither a wait, nor a transition, nor a new acquire time."""
    lease = Lease(record(holder="a"))
    a = Candidate(lease)
    async with a.standing():
        await until(0)
        assert a.acts
        assert lease.record == LeaseRecord("a", 15, EPOCH - 100, EPOCH, 3, "2")


@virtually
async def test_who_comes_second_to_a_free_lease_does_not_lead() -> None:
    """Compare and swap: both have read it as free."""
    lease = Lease(record(holder=""))
    a, b = Candidate(lease, "a"), Candidate(lease, "b", seed=1)
    a.store.will("GET", slow(0.2))
    b.store.will("GET", slow(0.1))
    async with a.standing(), b.standing():
        for seconds in range(100):
            await until(seconds + 0.5)
            assert (a.acts, b.acts) == (False, True)
    assert {holder.holder for _, holder in lease.history[1:]} == {"b"}


@virtually
async def test_candidates_come_every_retry_period_and_a_random_bit_more() -> None:
    """Between 2 s and 2.2 times that, not in step."""
    lease = Lease()
    a = Candidate(lease)

    def renew() -> None:
        lease.put(record())
        at(now() + 1, renew)

    renew()
    async with a.standing():
        await until(1000)
    reads = [instant for instant, _ in a.store.sent("GET")]
    pauses = [later - earlier for earlier, later in itertools.pairwise(reads)]
    assert all(2 <= pause <= 4.4 for pause in pauses)
    assert min(pauses) < 2.2
    assert max(pauses) > 4.2


@virtually
async def test_a_candidate_whose_store_hangs_tries_again() -> None:
    """Each attempt is bounded by the renew deadline."""
    a = Candidate(Lease())
    a.store.will("GET", HANGS, HANGS)
    async with a.standing():
        await until(30)
        assert a.acts


@virtually
@pytest.mark.parametrize("status", [401, 403, 409, 429, 500, 503])
async def test_a_candidate_survives_any_refusal(status: int) -> None:
    """The world's errors never end an election."""
    a = Candidate(Lease())
    a.store.will("GET", *[refused(status)] * 5)
    a.store.will("PUT", *[refused(status)] * 5)
    async with a.standing():
        await until(60)
        assert a.acts


@virtually
async def test_an_acquisition_whose_answer_was_lost_is_noticed_by_the_next_attempt() -> None:
    """It holds the lease and does not know: it acts only once it does."""
    lease = Lease()
    a = Candidate(lease)
    a.store.will("PUT", LOST_ANSWER)
    async with a.standing():
        await until(1.9)
        assert (a.acts, lease.record is not None) == (False, True)
        await until(4.5)
        assert (a.acts, lease.history[-1][1].transitions) == (True, 0)


@virtually
async def test_a_slow_acquisition_counts_from_before_it_was_sent() -> None:
    """Nine seconds for an answer: one second is left to act and to renew in."""
    lease = Lease()
    a = Candidate(lease)
    a.store.will("PUT", slow(9))
    async with a.standing():
        await until(1)
        a.store.cut()
        await until(9)
        assert a.acts
        await until(9.999999)
        assert a.acts
        await until(10)
        assert a.acts is False


# Giving back


@virtually
async def test_a_released_lease_names_nobody_and_lasts_a_second() -> None:
    """Holder "", duration 1, as client-go leaves it; the next one takes it at its next attempt."""
    lease = Lease()
    a, b = Candidate(lease, "a"), Candidate(lease, "b", seed=1)
    async with contextlib.AsyncExitStack() as stack:
        async with a.standing():
            await until(1)
            await stack.enter_async_context(b.standing())
            await until(7)
        assert (a.acts, b.acts) == (False, False)
        await a.elector.release()
        assert lease.record == LeaseRecord("", 1, EPOCH + 7, EPOCH + 7, 0, lease.record.version if lease.record else "")
        await until(7 + 4.4)
        assert (b.acts, (lease.record or record()).transitions) == (True, 1)


@virtually
async def test_only_my_own_lease_is_released() -> None:
    """Nothing is written where another holds it, or where nobody was ever seen."""
    lease = Lease(record())
    a = Candidate(lease)
    await a.elector.release()
    async with a.standing():
        await until(3)
    await a.elector.release()
    assert (len(lease.history), "PUT" in a.store.verbs()) == (1, False)


@virtually
async def test_a_lease_that_was_taken_over_unseen_is_not_released() -> None:
    """Compare and swap guards the last write as well."""
    lease = Lease()
    a = Candidate(lease)
    async with a.standing():
        await until(1)
    lease.put(record())
    await a.elector.release()
    assert (lease.record or record("")).holder == "b"


@virtually
async def test_stopped_in_the_middle_of_a_renewal_the_lease_is_released_all_the_same() -> None:
    """The renewal took effect and its answer was never read: the version known is old, the lease still mine."""
    lease = Lease()
    a = Candidate(lease)
    async with a.standing():
        await until(1)
        a.store.will("PUT", slow(1))
        await until(2.5)
    await a.elector.release()
    assert (lease.record or record()).holder == ""


@virtually
@pytest.mark.parametrize("how", [HANGS, refused(500)])
async def test_releasing_is_tried_for_no_longer_than_a_retry_period(how: How) -> None:
    """At exit nobody waits for a dead API server."""
    a = Candidate(Lease())
    async with a.standing():
        await until(1)
    a.store.cut(how)
    await a.elector.release()
    assert now() <= 3


@virtually
async def test_who_has_released_the_lease_may_not_act() -> None:
    """Even if somebody calls it in the wrong order."""
    a = Candidate(Lease())
    async with a.standing():
        await until(1)
        await a.elector.release()
        assert a.acts is False


def test_alone_everything_is_allowed() -> None:
    """Without election the gate is open."""
    assert NoElection().may_act() is True


# Terms


@virtually
async def test_a_leader_that_renews_late_and_finds_nobody_else_leads_on() -> None:
    """The API server is away for a minute: nobody could have led in between."""
    a = Candidate(Lease())
    async with a.standing():
        await until(1)
        term = a.elector.term
        a.store.cut()
        await until(61)
        assert not a.acts
        a.store.ever = {}
        await until(90)
        assert (a.acts, a.elector.term) == (True, term)


@virtually
async def test_another_holder_in_between_makes_another_term() -> None:
    """It may have evicted, and been refused."""
    lease = Lease()
    a = Candidate(lease)
    async with a.standing():
        await until(1)
        term = a.elector.term
        lease.put(record(holder="b", duration=5))
        await until(60)
        assert a.acts
        assert a.elector.term != term


def test_alone_there_is_one_term() -> None:
    """Nobody else ever leads."""
    assert (NoElection().term, NoElection().tried_before) == (0, None)


@virtually
async def test_the_next_leader_learns_how_many_pods_the_one_before_had_tried_in_vain() -> None:
    """It is written with each renewal, and counts as of the last one; what a leader wrote itself tells it nothing."""
    lease = Lease()
    a, b = Candidate(lease), Candidate(lease, "b")
    a.elector.tried_in_vain = lambda: 30
    async with a.standing():
        await until(3)
        assert lease.record is not None
        renewed_epoch = lease.record.renewed_epoch
        assert (lease.record.tried_in_vain, a.elector.tried_before) == (30, None)
    async with b.standing():
        await until(60)
        assert b.acts
        assert b.elector.tried_before == TriedBefore(30, renewed_epoch)
        assert lease.record.tried_in_vain == 0


@virtually
async def test_a_leader_that_ends_before_it_renews_passes_on_what_the_one_before_had_tried() -> None:
    """With its first write it has tried nothing yet; from the first renewal on its own number counts."""
    lease = Lease()
    a, b, c = Candidate(lease), Candidate(lease, "b"), Candidate(lease, "c")
    a.elector.tried_in_vain = lambda: 30
    async with a.standing():
        await until(3)
    await a.elector.release()
    async with b.standing():
        await until(4)
        assert lease.record is not None
        assert (b.acts, lease.record.tried_in_vain) == (True, 30)
    await b.elector.release()
    async with c.standing():
        await until(10)
        assert c.elector.tried_before is not None
        assert (c.elector.tried_before.pods, lease.record.tried_in_vain) == (30, 0)
