"""The orders in the cluster and those in the brain become the same within seconds, whatever fails on the way."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.unit.builders import EPOCH, own_latch
from tests.unit.runtime_fakes import Body, How, Wire, at, refused, running, slow, times_out, until, virtually

from taint_eviction.core.control_state import ControlState, Latch, Pause, PauseScope
from taint_eviction.core.controller import Controller
from taint_eviction.core.guards import WaitReason
from taint_eviction.runtime.control_state_sync import ControlStateSync

PAUSED = ControlState(cluster=Pause(EPOCH, "looking into it"))
LATCH = Latch(EPOCH - 1.0, "half of the nodes")
OWN_LATCH = own_latch(EPOCH - 1.0, "half of the nodes")


class FakeStore(Wire):
    """An ``OrdersStore``: what is kept, None for nothing; and what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: ControlState | None = None
        self.taken_over = False
        self.kept_at: list[float] = []
        self.written: list[tuple[float, object]] = []

    async def read(self) -> ControlState | None:
        """Read."""
        return await self.carry("READ", "orders", lambda: self.kept)

    async def write_latch(self, latch: Latch) -> None:
        """Keep a latch, unless it was reset since."""
        await self.carry("WRITE", "latch", lambda: self._keep_latch(latch))

    async def close_latch(self, latch: Latch, closed_epoch: float, closed_by: str = "") -> None:
        """Keep a reset, if the latch is still kept."""
        await self.carry("WRITE", "reset", lambda: self._close(latch, closed_epoch, closed_by))

    async def redate(self, stated_epoch: float, epoch: float) -> None:
        """Date the breaker's state anew."""
        await self.carry("WRITE", "date", lambda: self._redate(stated_epoch, epoch))

    async def fit_format(self) -> None:
        """Write the format that the keys need."""
        await self.carry(
            "WRITE", "format", lambda: self._keep(replace(self.kept or ControlState(), unfit=False), "format")
        )

    async def end_pauses(self, ended: Mapping[PauseScope, Pause]) -> None:
        """Remove pauses that have ended."""
        left = (self.kept or ControlState()).without_pauses(ended)
        await self.carry("WRITE", "pauses", lambda: self._keep(left, "ended"))

    async def keep(self, lost: ControlState) -> None:
        """Create or take over what is kept."""
        await self.carry("KEEP", "orders", lambda: self._take_over(lost))

    def _take_over(self, lost: ControlState) -> None:
        if not self.taken_over:
            self.kept, self.taken_over = (self.kept or ControlState()).with_lost(lost), True
            self.kept_at.append(asyncio.get_running_loop().time())

    @property
    def is_absent(self) -> bool:
        """Whether nothing is kept."""
        return self.kept is None

    def lose(self) -> None:
        """Delete what is kept, as somebody else does."""
        self.kept, self.taken_over = None, False

    def create(self, control_state: ControlState) -> None:
        """Create what was deleted, as somebody else does."""
        self.kept = replace(control_state, recreated=True)

    def _redate(self, stated_epoch: float, epoch: float) -> None:
        if self.kept is not None and self.kept.breaker_epoch == stated_epoch:
            self._keep(self.kept.with_breaker_epoch(epoch), ("dated", epoch))

    def _keep_latch(self, latch: Latch) -> None:
        if self.kept is None or self.kept.reset_epoch is None or self.kept.reset_epoch < latch.since_epoch:
            self._keep(ControlState(latch=latch), latch)

    def _close(self, latch: Latch, closed_epoch: float, closed_by: str) -> None:
        if self.kept is not None and self.kept.latch is not None and self.kept.latch.is_same(latch):
            self._keep(ControlState(reset_epoch=closed_epoch, closed_by=closed_by), closed_epoch)

    def _keep(self, control_state: ControlState, what: object) -> None:
        self.kept = control_state
        self.written.append((asyncio.get_running_loop().time(), what))


class SyncedBrain:
    """A brain that knows no orders yet, and a store."""

    def __init__(self, writes: bool = True) -> None:
        self.body = Body(brain=Controller(control_state=None))
        self.store = FakeStore()
        self.ending = False
        self.standing = ControlStateSync(
            self.store,
            self.body.live,
            self.body.gate,
            poll_seconds=2.0,
            writes=writes,
            ending=lambda: self.ending,
        )

    @property
    def held(self) -> WaitReason | None:
        """What holds all evictions."""
        return self.body.brain.guards.blocking_all(self.body.clock.now())

    def trip(self, latch: Latch = LATCH) -> None:
        """Open the breaker, as the brain does by itself."""
        self.body.brain.breaker.latch = latch


@virtually
async def test_nothing_goes_until_the_orders_were_read() -> None:
    """And then as they say."""
    it = SyncedBrain()
    assert it.held is WaitReason.ORDERS_UNKNOWN
    async with running(it.standing.run()):
        await until(0)
        assert it.held is None


@virtually
@pytest.mark.parametrize("how", [refused(403), refused(503), times_out()])
async def test_what_cannot_be_read_yet_holds_everything_and_is_read_again_soon(how: How) -> None:
    """Every quarter of a second, or once more beside a call that has not been answered for 2 s."""
    it = SyncedBrain()
    it.store.ever["READ"] = how
    async with running(it.standing.run()):
        await until(20)
        assert (it.held, it.standing.age_seconds()) == (WaitReason.ORDERS_UNKNOWN, 20)
        del it.store.ever["READ"]
        await until(22.3)
        assert it.held is None


@virtually
async def test_a_pause_is_in_force_within_two_seconds_and_ends_as_soon() -> None:
    """Wherever it is read."""
    it = SyncedBrain()
    async with running(it.standing.run()):
        await until(0.5)
        it.store.kept = PAUSED
        await until(1.9)
        assert it.held is None
        await until(2)
        assert it.held is WaitReason.PAUSED
        it.store.kept = ControlState()
        await until(4)
        assert it.held is None


@virtually
@pytest.mark.parametrize("ordered_at", [0.1, 1.0, 1.9, 1.99, 2.01])
async def test_a_pause_is_in_force_in_less_than_five_seconds_however_slow_the_answers(ordered_at: float) -> None:
    """Each reading takes all but as long as it may: the next begins as if it had been answered at once."""
    it = SyncedBrain()
    it.store.ever["READ"] = slow(1.95)
    async with running(it.standing.run()):
        at(ordered_at, setattr, it.store, "kept", PAUSED)
        await until(ordered_at + 4.5)
        assert it.held is WaitReason.PAUSED


@virtually
@pytest.mark.parametrize("seconds", [2.5, 3.0, 9.9])
async def test_orders_that_are_always_slow_to_read_are_known_when_they_are_answered(seconds: float) -> None:
    """A read is bounded by the timeout of calls; that it takes longer than the interval between two is no failure."""
    it = SyncedBrain()
    it.store.ever["READ"] = slow(seconds)
    async with running(it.standing.run()):
        await until(seconds - 0.01)
        assert it.held is WaitReason.ORDERS_UNKNOWN
        await until(seconds)
        assert it.held is None
        await until(100)
        assert it.standing.age_seconds() <= 2 * seconds


@virtually
@pytest.mark.parametrize("ordered_at", [10.0, 10.9, 11.5, 12.3, 13.1])
async def test_a_pause_is_in_force_within_seconds_though_each_read_takes_three(ordered_at: float) -> None:
    """While one read is under way, the next begins."""
    it = SyncedBrain()
    it.store.ever["READ"] = slow(3)
    async with running(it.standing.run()):
        at(ordered_at, setattr, it.store, "kept", PAUSED)
        await until(ordered_at + 5)
        assert it.held is WaitReason.PAUSED


@virtually
async def test_reads_that_are_not_answered_do_not_pile_up() -> None:
    """Two at most are under way: one connection that went dead delays nothing, and a dead server is not flooded."""
    it = SyncedBrain()
    it.store.ever["READ"] = times_out(10)
    async with running(it.standing.run()):
        await until(25)
    assert [sent_at for sent_at, _ in it.store.sent()] == [0, 2, 10, 12, 20, 22]


@virtually
async def test_an_answer_that_a_later_question_has_overtaken_says_nothing() -> None:
    """It is older than what is known."""
    it = SyncedBrain()
    async with running(it.standing.run()):
        await until(1)
        it.store.kept = PAUSED
        it.store.will("READ", slow(5))
        at(3, setattr, it.store, "kept", ControlState())
        await until(7)
        assert (it.held, it.standing.age_seconds()) == (None, 1)
        await until(8)
        assert it.held is None


@virtually
async def test_the_log_names_pauses_that_have_ended_when_they_are_removed(caplog: pytest.LogCaptureFixture) -> None:
    """A pause whose end had passed when it was written, in local time perhaps, leaves no other trace."""
    caplog.set_level("INFO")
    it = SyncedBrain()
    it.store.kept = ControlState(nodes={f"n{number}": Pause(until_epoch=EPOCH - 3600) for number in range(1, 6)})
    async with running(it.standing.run()):
        await until(1)
    first = ", ".join(f"evictions from node n{number}" for number in range(1, 4))
    assert caplog.messages == [f"pauses that have ended were removed: {first} and 2 others"]


@virtually
async def test_an_answer_that_an_own_write_has_overtaken_is_asked_for_again_at_once() -> None:
    """A person's pause that was in it is in force before the next poll."""
    it = SyncedBrain()
    node_paused = ControlState(nodes={"n1": Pause(EPOCH, until_epoch=EPOCH + 2.2)})
    it.store.kept = node_paused
    async with running(it.standing.run()):
        await until(1)
        it.store.kept = replace(node_paused, cluster=PAUSED.cluster)
        it.store.will("READ", slow(1))
        await until(2.9)
        assert (it.held, it.store.written) == (None, [(2.5, "ended")])
        await until(3.1)
        assert it.held is WaitReason.PAUSED


@virtually
async def test_a_failure_that_a_later_answer_has_overtaken_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """They can be read."""
    it = SyncedBrain()
    async with running(it.standing.run()):
        await until(1)
        it.store.will("READ", times_out(10))
        await until(20)
    assert caplog.messages == []


@virtually
@pytest.mark.parametrize("how", [refused(403), refused(500), times_out(), times_out(1.5)])
async def test_what_cannot_be_read_later_stays_as_it_was(how: How) -> None:
    """For as long as that lasts, and the age tells."""
    it = SyncedBrain()
    it.store.kept = PAUSED
    async with running(it.standing.run()):
        await until(1)
        it.store.ever["READ"] = how
        it.store.kept = ControlState()
        await until(100)
        assert (it.held, it.standing.age_seconds()) == (WaitReason.PAUSED, 100)
        del it.store.ever["READ"]
        await until(104)
        assert it.held is None


@virtually
async def test_a_failure_is_told_once_a_minute_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Not with every reading."""
    caplog.set_level("INFO")
    it = SyncedBrain()
    async with running(it.standing.run()):
        await until(1)
        it.store.ever["READ"] = refused(403)
        await until(65)
        del it.store.ever["READ"]
        await until(70)
    last_known = (
        "the control state (pauses, breaker) cannot be read, what was last read stays in force: refused with 403"
    )
    assert caplog.messages == [last_known, last_known, "the control state (pauses, breaker) can be read again"]


@virtually
async def test_a_latch_of_this_process_is_kept_in_the_cluster() -> None:
    """Within half a second, and once."""
    it = SyncedBrain()
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        await until(30)
    assert [what for _, what in it.store.written] == [LATCH]
    assert it.store.written[0][0] <= 1.5


@virtually
async def test_a_latch_is_written_until_it_is_kept() -> None:
    """Whatever fails; and again if its object is deleted."""
    it = SyncedBrain()
    it.store.will("WRITE", refused(403), refused(409), refused(500))
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        await until(6)
        assert [what for _, what in it.store.written] == [LATCH]
        it.store.lose()
        await until(20)
        assert it.held is WaitReason.BREAKER_OPEN
        assert it.store.kept == ControlState(latch=LATCH)


@virtually
async def test_only_who_acts_writes() -> None:
    """A standby learns of the latch by reading."""
    it = SyncedBrain()
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
async def test_who_acts_puts_the_format_right() -> None:
    """Once: a standby leaves it to who acts."""
    it = SyncedBrain()
    it.store.kept, it.store.taken_over = ControlState(selectors={"pool=gpu": Pause()}, unfit=True), True
    it.body.gate.open = False
    async with running(it.standing.run()):
        await until(10)
        assert it.store.written == []
        it.body.gate.open = True
        await until(20)
    assert [what for _, what in it.store.written] == ["format"]


@virtually
async def test_a_format_that_cannot_be_put_right_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once a minute, and counts as no failure of the breaker."""
    it = SyncedBrain()
    it.store.kept, it.store.taken_over = ControlState(selectors={"pool=gpu": Pause()}, unfit=True), True
    it.store.ever["WRITE"] = refused(403)
    async with running(it.standing.run()):
        await until(29)
        assert it.standing.unwritten_seconds() == 0.0
        it.store.ever.clear()
        await until(40)
    assert [what for _, what in it.store.written] == ["format"]
    assert len([each for each in caplog.messages if "the format of the ConfigMap" in each]) == 1


@virtually
async def test_a_dry_run_writes_nothing() -> None:
    """What its breaker does stays with it."""
    it = SyncedBrain(writes=False)
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        await until(10)
        assert it.held is WaitReason.BREAKER_OPEN
    assert it.store.written == []


@virtually
async def test_a_reset_in_the_cluster_closes_the_breaker_everywhere() -> None:
    """If it is no older than the latch."""
    it = SyncedBrain()
    it.store.kept = ControlState(latch=LATCH)
    async with running(it.standing.run()):
        await until(1)
        assert it.held is WaitReason.BREAKER_OPEN
        it.store.kept = ControlState(reset_epoch=LATCH.since_epoch - 0.5)
        await until(3)
        assert it.held is WaitReason.BREAKER_OPEN
        it.store.kept = ControlState(reset_epoch=LATCH.since_epoch)
        await until(5)
        assert it.held is None


@virtually
async def test_a_breaker_that_closed_by_itself_is_closed_in_the_cluster() -> None:
    """The latch that stands there is not taken up again while the closing cannot be written."""
    it = SyncedBrain()
    it.store.kept = ControlState(latch=OWN_LATCH)
    it.store.will("WRITE", *[refused(503)] * 8)
    async with running(it.standing.run()):
        await until(1)
        it.body.brain.breaker.close(EPOCH + 1.5)
        await until(4)
        assert it.held is None
        await until(10)
        assert it.held is None
    assert [what for _, what in it.store.written] == [EPOCH + 1.5]


@virtually
async def test_closing_does_not_overwrite_what_a_person_has_written_meanwhile() -> None:
    """The person's latch is older, and the write is on its way when it comes."""
    it = SyncedBrain()
    it.store.kept = ControlState(latch=OWN_LATCH)
    it.store.will("WRITE", How(effect_after=1.0))
    async with running(it.standing.run()):
        await until(1)
        it.body.brain.breaker.close(EPOCH + 1.5)
        at(1.7, setattr, it.store, "kept", ControlState(latch=Latch(EPOCH - 60, "by hand")))
        await until(10)
        assert it.held is WaitReason.BREAKER_OPEN
    assert it.store.written == []


@virtually
async def test_a_latch_that_somebody_wrote_by_hand_is_obeyed_and_left_as_it_is() -> None:
    """In place of a reset that everybody knows, and older than it by what is written there."""
    it = SyncedBrain()
    it.store.kept = ControlState(reset_epoch=EPOCH)
    async with running(it.standing.run()):
        await until(1)
        it.store.kept = ControlState(latch=LATCH)
        await until(10)
        assert it.held is WaitReason.BREAKER_OPEN
    assert it.store.written == []


@virtually
async def test_what_is_kept_already_is_not_written_again_by_who_takes_over() -> None:
    """It knows the latch from reading it."""
    it = SyncedBrain()
    it.body.gate.open = False
    it.store.kept = ControlState(latch=LATCH)
    async with running(it.standing.run()):
        at(5, setattr, it.body.gate, "open", True)
        await until(10)
        assert it.held is WaitReason.BREAKER_OPEN
    assert (it.store.written, it.store.sent("WRITE")) == ([], [])


@virtually
async def test_nothing_is_written_before_it_is_known_what_stands_there() -> None:
    """A latch of this process may have been reset by then."""
    it = SyncedBrain()
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
    it = SyncedBrain()
    it.store.ever["WRITE"] = refused(500)
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        at(3.1, setattr, it.body.gate, "open", False)
        await until(10)
    assert {1 <= seconds <= 3.1 for seconds, _ in it.store.sent("WRITE")} == {True}
    assert 4 <= len(it.store.sent("WRITE")) <= 5


# What is dated ahead of the API server


AHEAD = EPOCH + 3600.0


@virtually
@pytest.mark.parametrize("kept", [ControlState(reset_epoch=AHEAD), ControlState(latch=Latch(AHEAD, "by hand"))])
async def test_what_is_dated_ahead_counts_as_when_it_was_first_read_and_is_dated_so(
    kept: ControlState, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's clock is an hour fast: whoever acts puts the date right, once, and says so."""
    it = SyncedBrain()
    async with running(it.standing.run()):
        await until(3)
        it.store.kept = kept
        await until(30)
    assert it.store.kept == kept.with_breaker_epoch(EPOCH + 4)
    assert it.store.written == [(4.5, ("dated", EPOCH + 4))]
    breaker = it.body.brain.breaker
    assert EPOCH + 4 in (breaker.reset_epoch, breaker.latch and breaker.latch.since_epoch)
    assert caplog.messages == ["the state of the breaker is dated 3596 s ahead: it counts from now"]


@virtually
async def test_who_does_not_act_counts_so_too_and_leaves_the_date_to_who_does() -> None:
    """For as long as it stands there: it counts from the first reading, not from each."""
    it = SyncedBrain()
    it.body.gate.open = False
    it.store.kept = ControlState(reset_epoch=AHEAD)
    later = Latch(EPOCH + 3, "another wave")
    async with running(it.standing.run()):
        await until(3)
        it.trip(later)
        await until(30)
        assert it.held is WaitReason.BREAKER_OPEN
        assert it.body.brain.breaker.reset_epoch == EPOCH
        at(30.1, setattr, it.body.gate, "open", True)
        await until(31)
    assert [what for _, what in it.store.written] == [("dated", EPOCH), later]


@virtually
async def test_what_has_been_written_meanwhile_is_not_dated_back() -> None:
    """A human has reset it once more: that stands."""
    it = SyncedBrain()
    it.store.kept = ControlState(reset_epoch=AHEAD)
    it.store.will("WRITE", How(effect_after=1.0))
    async with running(it.standing.run()):
        at(0.5, setattr, it.store, "kept", ControlState(reset_epoch=EPOCH + 0.5))
        await until(10)
    assert (it.store.kept, it.store.written) == (ControlState(reset_epoch=EPOCH + 0.5), [])
    assert it.body.brain.breaker.reset_epoch == EPOCH + 0.5


@virtually
async def test_a_date_that_was_put_right_while_it_was_read_closes_nothing_that_has_opened_since() -> None:
    """What was asked before the write shows the date that was ahead once more: it is no other reset."""
    it = SyncedBrain()
    it.store.kept = ControlState(reset_epoch=AHEAD)
    it.store.ever["READ"] = slow(1.9)
    it.store.will("WRITE", How(effect_after=1.5))
    async with running(it.standing.run()):
        await until(3)
        it.trip(Latch(EPOCH + 3, "another wave"))
        await until(3.95)
        assert it.store.sent() == [(0, "READ"), (2, "WRITE"), (2, "READ"), (3.5, "WRITE"), (3.5, "KEEP"), (3.9, "READ")]
        assert it.held is WaitReason.BREAKER_OPEN
        await until(10)
        assert it.held is WaitReason.BREAKER_OPEN
    assert it.body.brain.breaker.reset_epoch == EPOCH + 1.9


@virtually
async def test_a_date_that_is_ahead_by_the_difference_of_two_clocks_is_put_right_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Clocks of two machines differ a little, always."""
    it = SyncedBrain()
    it.store.kept = ControlState(reset_epoch=EPOCH + 1.5)
    async with running(it.standing.run()):
        await until(10)
    assert (it.store.kept, caplog.messages) == (ControlState(reset_epoch=EPOCH), [])


@virtually
async def test_a_reset_closes_what_a_clock_that_was_ahead_has_opened() -> None:
    """This process' own clock was two hours fast when its breaker opened."""
    it = SyncedBrain()
    async with running(it.standing.run()):
        await until(1)
        it.trip(Latch(EPOCH + 7200, "half of the nodes"))
        await until(3)
        it.store.kept = ControlState(reset_epoch=EPOCH + 7200.001)
        await until(5)
        assert it.held is None


# What cannot be written


@virtually
async def test_a_latch_that_cannot_be_written_is_told_once_a_minute_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A right is missing, say: who comes next would not know that the breaker is open."""
    caplog.set_level("INFO")
    it = SyncedBrain()
    it.store.ever["WRITE"] = refused(403)
    async with running(it.standing.run()):
        await until(1)
        assert it.standing.unwritten_seconds() == 0
        it.trip()
        await until(65)
        assert it.standing.unwritten_seconds() == 63.5
        del it.store.ever["WRITE"]
        await until(70)
        assert it.standing.unwritten_seconds() == 0
    lasting = "the state of the breaker cannot be written, and is lost when this process ends: refused with 403"
    assert caplog.messages == [lasting, lasting, "the state of the breaker has been written"]


@virtually
async def test_who_does_not_act_any_more_has_nothing_to_write() -> None:
    """It is the next leader's business."""
    it = SyncedBrain()
    it.store.ever["WRITE"] = refused(403)
    async with running(it.standing.run()):
        await until(1)
        it.trip()
        at(30, setattr, it.body.gate, "open", False)
        await until(31)
        assert it.standing.unwritten_seconds() == 0


@virtually
async def test_a_pause_ends_by_itself_at_its_time_even_while_nothing_can_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log says so a minute before; the leader removes it."""
    it = SyncedBrain()
    it.store.kept = ControlState(cluster=Pause(EPOCH, "", EPOCH + 100))
    async with running(it.standing.run()):
        await until(5)
        it.store.ever["READ"] = refused(503)
        await until(39.9)
        assert "ends by itself" not in caplog.text
        await until(40.1)
        assert "all evictions: the pause ends by itself in 60 s" in caplog.messages
        await until(99.9)
        assert it.held is WaitReason.PAUSED
        await until(100.1)
        assert it.held is None
        await until(101)
        assert it.store.kept == ControlState()


@virtually
async def test_no_pause_ends_while_the_time_is_not_known() -> None:
    """The host's clock is an hour ahead. What has ended by the API server's ends as soon as that is known."""
    it = SyncedBrain()
    it.body.clock.dates_from = 8.5
    it.store.kept = ControlState(
        nodes={"n1": Pause(EPOCH - 100, "", EPOCH - 50), "n2": Pause(EPOCH - 100, "", EPOCH + 100)}
    )
    async with running(it.standing.run()):
        await until(8.4)
        assert it.body.brain.guards.pauses()["node"] == 2
        assert it.store.written == []
        await until(8.6)
        assert it.body.brain.guards.pauses()["node"] == 1
        await until(99.9)
        assert it.body.brain.guards.pauses()["node"] == 1
        await until(100.1)
        assert it.body.brain.guards.pauses()["node"] == 0


@virtually
async def test_a_reset_that_is_dated_ahead_counts_from_when_the_time_is_known() -> None:
    """Until then there is nothing to compare its date with."""
    it = SyncedBrain()
    it.body.clock.dates_from = 8.5
    it.store.kept = ControlState(reset_epoch=EPOCH + 1800)
    async with running(it.standing.run()):
        await until(8.4)
        assert it.body.brain.breaker.reset_epoch == EPOCH + 1800
        await until(8.6)
        assert it.body.brain.breaker.reset_epoch == pytest.approx(EPOCH + 8.5, abs=0.1)


@virtually
async def test_a_pause_that_is_made_longer_meanwhile_does_not_end_at_its_first_time() -> None:
    """What was last read counts."""
    it = SyncedBrain()
    it.store.kept = ControlState(cluster=Pause(EPOCH, "", EPOCH + 100))
    async with running(it.standing.run()):
        await until(50)
        it.store.kept = ControlState(cluster=Pause(EPOCH, "", EPOCH + 200))
        await until(199.9)
        assert it.held is WaitReason.PAUSED
        await until(200.1)
        assert it.held is None


@virtually
async def test_a_pause_that_ended_and_cannot_be_removed_is_no_breaker_that_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It holds nothing, so nobody is alarmed; the log says so once a minute."""
    it = SyncedBrain()
    it.store.kept = ControlState(cluster=Pause(EPOCH, "", EPOCH + 10))
    it.store.ever["WRITE"] = refused(403)
    async with running(it.standing.run()):
        await until(69)
        assert it.held is None
        assert it.standing.unwritten_seconds() == 0
    failing = [message for message in caplog.messages if "refused with 403" in message]
    assert failing == ["pauses that have ended by themselves cannot be removed: refused with 403"]


@virtually
async def test_who_does_not_act_tells_nobody_that_a_pause_ends(caplog: pytest.LogCaptureFixture) -> None:
    """The logs of all replicas together say it once."""
    it = SyncedBrain()
    it.store.kept = ControlState(cluster=Pause(EPOCH, "", EPOCH + 100))
    it.body.gate.open = False
    async with running(it.standing.run()):
        await until(101)
        assert it.held is None
    assert "ends by itself" not in caplog.text


# A ConfigMap that is deleted


@virtually
async def test_who_starts_without_an_object_creates_it_empty_once_it_acts(caplog: pytest.LogCaptureFixture) -> None:
    """And only then, and once; nobody has deleted it."""
    it = SyncedBrain()
    it.body.gate.open = False
    async with running(it.standing.run()):
        at(20, setattr, it.body.gate, "open", True)
        await until(19.9)
        assert it.store.sent("KEEP") == []
        await until(60)
    assert (it.store.kept, it.store.kept_at) == (ControlState(), [20])
    assert (len(it.store.sent("KEEP")), caplog.messages) == (1, [])


@virtually
async def test_who_takes_over_waits_ten_seconds_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """It counts from its own reading, whether or not it has ever written."""
    it = SyncedBrain()
    it.body.gate.open = False
    it.store.kept, it.store.taken_over = PAUSED, True
    async with running(it.standing.run()):
        await until(19)
        it.store.lose()
        at(22, setattr, it.body.gate, "open", True)
        await until(40)
    assert (it.store.kept, it.store.kept_at) == (PAUSED, [30])


LOST = ControlState(
    Pause(EPOCH, "looking into it"),
    {"n1": Pause(EPOCH)},
    {"shop": Pause(EPOCH)},
    LATCH,
    no_adoption=Pause(EPOCH),
    no_adoption_confirmed_by="a",
)


@virtually
async def test_what_was_deleted_stays_in_force_and_is_written_again_after_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All of it, counted from the first read that found nothing."""
    caplog.set_level("INFO")
    it = SyncedBrain()
    it.store.kept = LOST
    async with running(it.standing.run()):
        await until(19)
        it.store.lose()
        await until(29.9)
        assert it.held is WaitReason.BREAKER_OPEN
        assert it.store.is_absent
        assert it.body.brain.guards.control_state == LOST
        await until(40)
    assert (it.store.kept, it.store.kept_at) == (LOST, [0.5, 30])
    assert it.body.brain.guards.control_state == LOST
    assert caplog.messages == [
        "the ConfigMap with pauses and breaker was deleted or replaced: they stay in force as known",
        "the ConfigMap with pauses and breaker has been written again",
    ]


@virtually
async def test_what_is_deleted_again_before_it_was_read_is_written_again() -> None:
    """Whoever creates it knows that it was there."""
    it = SyncedBrain()
    it.store.kept = PAUSED
    async with running(it.standing.run()):
        await until(19)
        it.store.lose()
        at(30.1, it.store.lose)
        await until(60)
    assert (it.store.kept, it.store.kept_at) == (PAUSED, [0.5, 30, 42])


@virtually
async def test_an_answer_from_before_it_was_created_does_not_say_that_it_was_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A slow read was asked before."""
    it = SyncedBrain()
    it.body.gate.open = False
    async with running(it.standing.run()):
        await until(3.9)
        it.store.will("READ", How(effect_after=0.0, answer_after=1.5))
        at(4.2, setattr, it.body.gate, "open", True)
        await until(60)
    assert (it.store.kept_at, caplog.messages) == ([4.5], [])


@virtually
async def test_a_pause_that_ended_meanwhile_is_not_written_again() -> None:
    """It ends at its time, whether or not there is an object."""
    it = SyncedBrain()
    it.store.kept = ControlState(Pause(EPOCH, "", EPOCH + 25), {"n1": Pause(EPOCH)})
    async with running(it.standing.run()):
        await until(19)
        it.store.lose()
        await until(24.9)
        assert it.held is WaitReason.PAUSED
        await until(25.1)
        assert it.held is None
        await until(40)
    assert it.store.kept == ControlState(nodes={"n1": Pause(EPOCH)})


@virtually
async def test_who_is_being_ended_writes_nothing_again() -> None:
    """Whoever removes the controller deletes the object as well."""
    it = SyncedBrain()
    it.store.kept = LOST
    async with running(it.standing.run()):
        await until(19)
        it.store.lose()
        it.ending = True
        await until(20.1)
        it.body.brain.breaker.reset(EPOCH + 20.1)
        await until(60)
    assert it.store.is_absent
    assert (it.store.kept_at, it.store.written) == ([0.5], [])


@virtually
async def test_who_does_not_act_keeps_what_was_deleted_in_force_and_writes_it_when_it_acts() -> None:
    """The leader that should have written it crashed before."""
    it = SyncedBrain()
    it.body.gate.open = False
    it.store.kept, it.store.taken_over = PAUSED, True
    async with running(it.standing.run()):
        await until(19)
        it.store.lose()
        at(50, setattr, it.body.gate, "open", True)
        await until(49.9)
        assert it.held is WaitReason.PAUSED
        assert it.store.is_absent
        await until(60)
    assert (it.store.kept, it.store.kept_at) == (PAUSED, [50])


@virtually
async def test_an_object_that_somebody_else_creates_again_ends_no_pause() -> None:
    """A tool that applies manifests creates it empty, or a person with another pause: both count."""
    it = SyncedBrain()
    it.store.kept = PAUSED
    async with running(it.standing.run()):
        await until(19)
        it.store.lose()
        it.store.create(ControlState(nodes={"n1": Pause(EPOCH)}))
        await until(29.9)
        both = ControlState(PAUSED.cluster, {"n1": Pause(EPOCH)})
        assert it.body.brain.guards.control_state == both
        await until(40)
        assert it.store.kept == both
        it.store.kept = ControlState()
        await until(44)
        assert it.held is None


@virtually
async def test_what_was_deleted_and_cannot_be_written_again_is_tried_and_told_until_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every 10 s, and told once a minute: a restart would lose it."""
    it = SyncedBrain()
    it.store.kept = PAUSED
    async with running(it.standing.run()):
        await until(19)
        it.store.lose()
        it.store.ever["KEEP"] = refused(403)
        await until(75)
        assert it.held is WaitReason.PAUSED
        assert it.standing.unwritten_seconds() == 45
        del it.store.ever["KEEP"]
        await until(90)
        assert (it.standing.unwritten_seconds(), it.store.kept) == (0, PAUSED)
    assert [sent_at for sent_at, _ in it.store.sent("KEEP")] == [0.5, 30, 40, 50, 60, 70, 80]
    assert caplog.messages == [
        "the ConfigMap with pauses and breaker was deleted or replaced: they stay in force as known",
        "the ConfigMap with pauses and breaker cannot be created: refused with 403",
    ]


@virtually
@pytest.mark.parametrize("how", [refused(403), refused(503), times_out()])
async def test_only_an_answer_that_there_is_none_says_that_it_was_deleted(how: How) -> None:
    """What cannot be read is written by nobody."""
    it = SyncedBrain()
    it.store.kept = PAUSED
    async with running(it.standing.run()):
        await until(19)
        it.store.ever["READ"] = how
        await until(100)
        assert it.held is WaitReason.PAUSED
    assert it.store.kept_at == [0.5]
