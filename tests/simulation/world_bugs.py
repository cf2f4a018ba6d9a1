"""Known mistakes about the world: clocks that lie, watches that are behind, calls that are slow; see ``known_bugs``."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from taint_eviction.adapters.reporters import LeaderReporter
from taint_eviction.core.effects import Effect
from taint_eviction.core.facts import NodeSeen
from taint_eviction.core.instants import Moment, Sighting, TimeSource, sight
from taint_eviction.core.known_nodes import KnownNodes, NodeChange
from taint_eviction.core.objects import Node
from taint_eviction.core.outages import Outages
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.control_state_sync import ControlStateSync
from taint_eviction.runtime.leadership import Elector
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import Ready
from taint_eviction.runtime.workers import Workers
from taint_eviction_lab.simulation.calls import SimulatedCalls
from taint_eviction_lab.simulation.faults import CallKind

# Clocks


def largest_date_wins(patch: pytest.MonkeyPatch) -> None:
    """Each answer can only put the clock forward: one wrong Date, or a quartz that runs fast, indefinitely."""

    def sharpen(self: ServerClock, epoch: float) -> None:
        anchor = epoch - self._monotonic()
        self._anchor = anchor if self._anchor is None else max(self._anchor, anchor)

    patch.setattr(ServerClock, "heard_date", sharpen)


def dated_beats_seen(patch: pytest.MonkeyPatch) -> None:
    """What objects are dated counts, though it was seen since that it was not so."""

    def by_date(now: Moment, object_time: float | None, object_source: TimeSource, _: float = 0.0) -> Sighting:
        return sight(now, object_time, object_source)

    patch.setattr("taint_eviction.core.known_nodes.sight", by_date)
    patch.setattr("taint_eviction.core.known_pods.sight", by_date)


def dates_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Both: one wrong Date ends every tolerance that begins after it."""
    largest_date_wins(patch)
    dated_beats_seen(patch)


# Watches that are behind, and answers ahead of them


def answers_move_starts(patch: pytest.MonkeyPatch) -> None:
    """A list beside a standing watch, and a live read, are judged as a list after a gap is."""
    put = KnownNodes.put

    def put_as_after_a_gap(self: KnownNodes, fact: NodeSeen, now: Moment) -> NodeChange | None:
        return put(self, dataclasses.replace(fact, after_gap=fact.after_gap or fact.asked_at is not None), now)

    patch.setattr(KnownNodes, "put", put_as_after_a_gap)


def answers_overtake_the_watch(patch: pytest.MonkeyPatch) -> None:
    """An answer ahead of the watch is taken in, and what the watch brings of a taint set again meanwhile is too old."""
    patch.setattr(KnownNodes, "_is_for_the_watch_to_bring", lambda self, fact, known: False)


def absent_taints_wait_for_the_watch(patch: pytest.MonkeyPatch) -> None:
    """Of an answer ahead of the watch nothing is taken in, though it shows that one taint of several is gone."""
    patch.setattr(KnownNodes, "_let_go_of_absent", lambda *_: None)


def answers_wait_for_no_watch(patch: pytest.MonkeyPatch) -> None:
    """An answer ahead of the watch is decided on at once, by what the watch has brought so far."""

    async def at_once(*_: object) -> None:
        return

    patch.setattr(NodeReads, "_until_watched", at_once)


def reads_are_dated_when_answered(patch: pytest.MonkeyPatch) -> None:
    """A read counts as fresh from when its answer is heard, however long that has travelled."""
    observe, serves = NodeReads._observe, NodeReads._serves

    async def dated(self: NodeReads, name: str, read: Any) -> Node | None:
        node = await observe(self, name, read)
        read.sent_at = self._live.clock.now().at
        return node

    patch.setattr(NodeReads, "_observe", dated)
    patch.setattr(NodeReads, "_serves", lambda self, read, now: not read.task.done() or serves(self, read, now))


# Outages


def outages_start_again(patch: pytest.MonkeyPatch) -> None:
    """W22: a countdown starts anew when its taint is taken back and set again, though the node was down throughout."""
    patch.setattr(Outages, "_is_one", lambda *_: False)


def ready_in_between_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A countdown goes on though the node was ready while its taint was absent."""
    patch.setattr("taint_eviction.core.outages._goes_on", lambda before, _: before is not None)


def outages_need_no_witness(patch: pytest.MonkeyPatch) -> None:
    """A countdown goes on though no other node was ready throughout."""
    patch.setattr(Outages, "_is_one", lambda *_: True)


# Calls that are slow, or never answered


def workers_are_not_lent(patch: pytest.MonkeyPatch) -> None:
    """An attempt holds its worker until its answer is there, so that calls that hang hold up everybody else."""
    patch.setattr(Workers, "_lend", lambda _: None)


def lease_has_no_time_for_slow_calls(patch: pytest.MonkeyPatch) -> None:
    """A renewal counts from before all its calls, and the next begins a retry period after its end."""
    attempt = Elector._attempt

    async def counted(self: Elector, max_seconds: float) -> bool:
        began_at = self._clock.now().at
        held = await attempt(self, max_seconds)
        if held:
            self._renewed_at = began_at
        return held

    async def hold(self: Elector) -> None:
        while True:
            await asyncio.sleep(self._settings.retry_period_seconds)
            left = self._renewed_at + self._settings.renew_deadline_seconds - self._clock.now().at
            if left <= 0:
                return
            held = await self._attempt(min(left, self._settings.renew_deadline_seconds / 2))
            if not held and self.holder != self.identity:
                return

    patch.setattr(Elector, "_attempt", counted)
    patch.setattr(Elector, "_keep", hold)


def connections_stand_after_reads(patch: pytest.MonkeyPatch) -> None:
    """The node is read first, and then the connection is opened over which its pod is deleted."""
    call = SimulatedCalls.call

    async def ready_first(
        self: SimulatedCalls,
        what: CallKind,
        subject: str,
        act: Callable[[], object],
        uid: str = "",
        ready: Ready | None = None,
    ) -> object:
        if ready is not None:
            await ready()
        return await call(self, what, subject, act, uid)

    patch.setattr(SimulatedCalls, "call", ready_first)


def orders_are_read_within_the_interval(patch: pytest.MonkeyPatch) -> None:
    """A read of the orders is given up when the next is due."""
    read = ControlStateSync._read

    async def bounded(self: ControlStateSync, asked_at: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll_seconds):
                await read(self, asked_at)

    patch.setattr(ControlStateSync, "_read", bounded)


def conditions_are_tried_once(patch: pytest.MonkeyPatch) -> None:
    """One refusal of the condition, for whatever may pass, and the pod goes without it."""
    patch.setattr("taint_eviction.runtime.evictor._MAX_MARKS", 1)


def standbys_tell(patch: pytest.MonkeyPatch) -> None:
    """Every replica tells what every replica sees."""

    def report(self: LeaderReporter, effect: Effect, now: Moment) -> None:
        for reporter in self._reporters:
            reporter.report(effect, now)

    patch.setattr(LeaderReporter, "report", report)
