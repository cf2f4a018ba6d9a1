"""The orders in the cluster and those in the brain become the same within seconds, whatever fails on the way."""

import asyncio

import pytest
from tests.unit.builders import EPOCH
from tests.unit.runtime_fakes import HANGS, Body, How, Wire, at, refused, running, slow, until, virtually

from taint_eviction.core.brakes import Hold
from taint_eviction.core.controller import Controller
from taint_eviction.core.orders import Latch, Orders, Pause
from taint_eviction.runtime.standing_orders import StandingOrders

PAUSED = Orders(whole=Pause(EPOCH, "looking into it"))
LATCH = Latch(EPOCH + 1.0, "half of the nodes")


class FakeStore(Wire):
    """An ``OrdersStore``: what is kept, None for nothing; and what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Orders | None = None
        self.written: list[tuple[float, object]] = []

    async def read(self) -> Orders | None:
        """Read."""
        return await self.carry("READ", "orders", lambda: self.kept)

    async def write_latch(self, latch: Latch) -> None:
        """Keep a latch, unless it was reset since."""
        await self.carry("WRITE", "latch", lambda: self._keep_latch(latch))

    async def write_reset(self, reset_epoch: float) -> None:
        """Keep a reset."""
        await self.carry("WRITE", "reset", lambda: self._keep(Orders(reset_epoch=reset_epoch), reset_epoch))

    def _keep_latch(self, latch: Latch) -> None:
        if self.kept is None or self.kept.reset_epoch is None or self.kept.reset_epoch < latch.since_epoch:
            self._keep(Orders(latch=latch), latch)

    def _keep(self, orders: Orders, what: object) -> None:
        self.kept = orders
        self.written.append((asyncio.get_running_loop().time(), what))


class Stage:
    """A brain that knows no orders yet, and a store."""

    def __init__(self, writes: bool = True) -> None:
        self.body = Body(brain=Controller(orders=None))
        self.store = FakeStore()
        self.standing = StandingOrders(self.store, self.body.live, self.body.gate, poll_seconds=2.0, writes=writes)

    @property
    def held(self) -> Hold | None:
        """What holds all evictions."""
        return self.body.brain.dispatch.brakes.whole()

    def trip(self) -> None:
        """Open the breaker, as the brain does by itself."""
        self.body.brain.dispatch.brakes.breaker.latch = LATCH


@virtually
async def test_nothing_goes_until_the_orders_were_read() -> None:
    """And then as they say."""
    it = Stage()
    assert it.held is Hold.ORDERS_UNKNOWN
    async with running(it.standing.run()):
        await until(0)
        assert it.held is None


@virtually
@pytest.mark.parametrize("how", [refused(403), refused(503), HANGS])
async def test_what_cannot_be_read_yet_holds_everything_and_is_read_again_soon(how: How) -> None:
    """Every quarter of a second, or as soon as it has not answered for 2 s."""
    it = Stage()
    it.store.ever["READ"] = how
    async with running(it.standing.run()):
        await until(20)
        assert (it.held, it.standing.age_seconds()) == (Hold.ORDERS_UNKNOWN, 20)
        del it.store.ever["READ"]
        await until(22.3)
        assert it.held is None


@virtually
async def test_a_pause_is_in_force_within_two_seconds_and_ends_as_soon() -> None:
    """Wherever it is read."""
    it = Stage()
    async with running(it.standing.run()):
        await until(0.5)
        it.store.kept = PAUSED
        await until(1.9)
        assert it.held is None
        await until(2)
        assert it.held is Hold.PAUSED
        it.store.kept = None
        await until(4)
        assert it.held is None


@virtually
@pytest.mark.parametrize("ordered_at", [0.1, 1.0, 1.9, 1.99, 2.01])
async def test_a_pause_is_in_force_in_less_than_five_seconds_however_slow_the_answers(ordered_at: float) -> None:
    """Each reading takes all but as long as it may: the next begins as if it had been answered at once."""
    it = Stage()
    it.store.ever["READ"] = slow(1.95)
    async with running(it.standing.run()):
        at(ordered_at, setattr, it.store, "kept", PAUSED)
        await until(ordered_at + 4.5)
        assert it.held is Hold.PAUSED


@virtually
@pytest.mark.parametrize("how", [refused(403), refused(500), HANGS, slow(30)])
async def test_what_cannot_be_read_later_stays_as_it_was(how: How) -> None:
    """For as long as that lasts, and the age tells."""
    it = Stage()
    it.store.kept = PAUSED
    async with running(it.standing.run()):
        await until(1)
        it.store.ever["READ"] = how
        it.store.kept = None
        await until(100)
        assert (it.held, it.standing.age_seconds()) == (Hold.PAUSED, 100)
        del it.store.ever["READ"]
        await until(104)
        assert it.held is None


@virtually
async def test_a_failure_is_told_once_a_minute_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Not with every reading."""
    caplog.set_level("INFO")
    it = Stage()
    async with running(it.standing.run()):
        await until(1)
        it.store.ever["READ"] = refused(403)
        await until(65)
        del it.store.ever["READ"]
        await until(70)
    last_known = "the orders (pauses, breaker) cannot be read, the last ones known stay in force: refused with 403"
    assert caplog.messages == [last_known, last_known, "the orders (pauses, breaker) can be read again"]


@virtually
async def test_a_latch_of_this_process_is_kept_in_the_cluster() -> None:
    """Within half a second, and once."""
    it = Stage()
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        await until(30)
    assert [what for _, what in it.store.written] == [LATCH]
    assert it.store.written[0][0] <= 1.5


@virtually
async def test_a_latch_is_written_until_it_is_kept() -> None:
    """Whatever fails; and again if its object is deleted."""
    it = Stage()
    it.store.will("WRITE", refused(403), refused(409), refused(500))
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        await until(6)
        assert [what for _, what in it.store.written] == [LATCH]
        it.store.kept = None
        await until(10)
        assert it.held is Hold.BREAKER_OPEN
        assert [what for _, what in it.store.written] == [LATCH, LATCH]


@virtually
async def test_only_who_acts_writes() -> None:
    """A standby learns of the latch by reading."""
    it = Stage()
    it.body.gate.open = False
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        await until(10)
        assert it.store.written == []
        it.body.gate.open = True
        await until(11)
    assert [what for _, what in it.store.written] == [LATCH]


@virtually
async def test_a_dry_run_writes_nothing() -> None:
    """What its breaker does stays with it."""
    it = Stage(writes=False)
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        await until(10)
        assert it.held is Hold.BREAKER_OPEN
    assert it.store.written == []


@virtually
async def test_a_reset_in_the_cluster_closes_the_breaker_everywhere() -> None:
    """If it is no older than the latch."""
    it = Stage()
    it.store.kept = Orders(latch=LATCH)
    async with running(it.standing.run()):
        await until(1)
        assert it.held is Hold.BREAKER_OPEN
        it.store.kept = Orders(reset_epoch=LATCH.since_epoch - 0.5)
        await until(3)
        assert it.held is Hold.BREAKER_OPEN
        it.store.kept = Orders(reset_epoch=LATCH.since_epoch)
        await until(5)
        assert it.held is None


@virtually
async def test_a_breaker_that_closed_by_itself_is_closed_in_the_cluster() -> None:
    """The latch that stands there is not taken up again."""
    it = Stage()
    it.store.kept = Orders(latch=LATCH)
    async with running(it.standing.run()):
        await until(1)
        it.body.brain.dispatch.brakes.breaker.reset(EPOCH + 1.5)
        await until(10)
        assert it.held is None
    assert [what for _, what in it.store.written] == [EPOCH + 1.5]


@virtually
async def test_a_latch_that_somebody_wrote_by_hand_is_obeyed_and_left_as_it_is() -> None:
    """In place of a reset that everybody knows, and older than it by what is written there."""
    it = Stage()
    it.store.kept = Orders(reset_epoch=EPOCH + 100)
    async with running(it.standing.run()):
        await until(1)
        it.store.kept = Orders(latch=LATCH)
        await until(10)
        assert it.held is Hold.BREAKER_OPEN
    assert it.store.written == []


@virtually
async def test_what_is_kept_already_is_not_written_again_by_who_takes_over() -> None:
    """It knows the latch from reading it."""
    it = Stage()
    it.body.gate.open = False
    it.store.kept = Orders(latch=LATCH)
    async with running(it.standing.run()):
        at(5, setattr, it.body.gate, "open", True)
        await until(10)
        assert it.held is Hold.BREAKER_OPEN
    assert (it.store.written, it.store.sent("WRITE")) == ([], [])


@virtually
async def test_nothing_is_written_before_it_is_known_what_stands_there() -> None:
    """A latch of this process may have been reset by then."""
    it = Stage()
    it.store.will("READ", *[refused(503)] * 8)
    it.trip()
    async with running(it.standing.run()):
        await until(1.9)
        assert it.store.sent("WRITE") == []
        await until(3)
    assert [what for _, what in it.store.written] == [LATCH]


@virtually
async def test_who_no_longer_leads_when_the_write_fails_leaves_it_to_who_does() -> None:
    """The gate is asked before each attempt."""
    it = Stage()
    it.store.ever["WRITE"] = refused(500)
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        at(3.1, setattr, it.body.gate, "open", False)
        await until(10)
    assert {1 <= seconds <= 3.1 for seconds, _ in it.store.sent("WRITE")} == {True}
    assert 4 <= len(it.store.sent("WRITE")) <= 5
