"""Known mistakes about the environment: wrong clocks, watches that lag, slow calls; see ``known_bugs``."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from inspect import signature
from typing import Any

import pytest
from tests.around import around

from taint_eviction.core.events import Event
from taint_eviction.core.facts import NodeSeen
from taint_eviction.core.instants import Moment, Sighting, TimeSource, sight
from taint_eviction.core.known_nodes import KnownNodes, NodeChange
from taint_eviction.core.objects import Node
from taint_eviction.core.outages import Outages
from taint_eviction.reporting.reporters import LeaderReporter
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.control_state_sync import ControlStateSync
from taint_eviction.runtime.leadership import Elector
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import Ready
from taint_eviction.runtime.workers import Workers
from taint_eviction_lab.simulation.calls import SimulatedCalls

# Clocks


def largest_date_wins(patch: pytest.MonkeyPatch) -> None:
    """An answer can only move the clock forward: one wrong ``Date``, or a fast quartz, moves it indefinitely."""

    def sharpen(self: ServerClock, epoch: float, connection: int = 0, audited: bool = True) -> None:
        anchor = epoch - self._monotonic()
        self._decided = True
        self._anchor = anchor if self._anchor is None else max(self._anchor, anchor)

    patch.setattr(ServerClock, "heard_date", sharpen)


def answers_vote(patch: pytest.MonkeyPatch) -> None:
    """Each answer has a vote, and the median counts: what most answers say, whichever connections they came on."""
    heard: dict[ServerClock, list[tuple[float, float]]] = {}

    def hear(self: ServerClock, epoch: float, connection: int = 0, audited: bool = True) -> None:
        at = self._monotonic()
        answers = heard.setdefault(self, [])
        answers.append((at, epoch - at))
        anchors = sorted(anchor for answered_at, anchor in answers if answered_at > at - 600)
        self._decided = len(anchors) >= 5
        self._anchor = anchors[(len(anchors) - 1) // 2] if self._decided else anchors[0]

    patch.setattr(ServerClock, "heard_date", hear)


def highest_vote_wins(patch: pytest.MonkeyPatch) -> None:
    """Where votes disagree at the start, the anchor is the highest."""

    def decide(self: ServerClock, votes: Mapping[int, float]) -> None:
        self._decided = len(votes) >= 5
        self._anchor = max(votes.values())

    patch.setattr(ServerClock, "_decide", decide)


def wrong_votes_are_followed_at_once(patch: pytest.MonkeyPatch) -> None:
    """The anchor follows the votes of connections as soon as they say something else."""

    def follow(self: ServerClock, at: float, vote: float) -> None:
        self._anchor = vote

    patch.setattr(ServerClock, "_note_vote", follow)


def nobody_asks_again(patch: pytest.MonkeyPatch) -> None:
    """No connection is opened while votes disagree: only those that are kept alive vote."""

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    patch.setattr("taint_eviction_lab.simulation.process.keep_asking", never)


def dated_beats_seen(patch: pytest.MonkeyPatch) -> None:
    """The time that an object carries counts, although the process has seen the node or pod without it later."""

    def by_date(now: Moment, object_time: float | None, object_source: TimeSource, _: float = 0.0) -> Sighting:
        return sight(now, object_time, object_source)

    patch.setattr("taint_eviction.core.known_nodes.sight", by_date)
    patch.setattr("taint_eviction.core.pods.sight", by_date)


def dates_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Both mistakes together: one wrong ``Date`` ends every tolerance that begins after it."""
    largest_date_wins(patch)
    dated_beats_seen(patch)


# Watches that lag, and answers ahead of them


def answers_move_starts(patch: pytest.MonkeyPatch) -> None:
    """A list beside an unbroken watch, and a live read, count as a list after a gap."""
    put = KnownNodes.upsert

    def put_as_after_a_gap(self: KnownNodes, fact: NodeSeen, now: Moment) -> NodeChange | None:
        return put(self, dataclasses.replace(fact, after_gap=fact.after_gap or fact.asked_at is not None), now)

    patch.setattr(KnownNodes, "upsert", put_as_after_a_gap)


def answers_overtake_the_watch(patch: pytest.MonkeyPatch) -> None:
    """The controller observes an answer ahead of the watch at once, and then drops the watch's older events, which
    would show that a taint was removed and set again.
    """
    patch.setattr(KnownNodes, "_is_for_the_watch_to_bring", lambda self, fact, known: False)


def absent_taints_wait_for_the_watch(patch: pytest.MonkeyPatch) -> None:
    """An answer ahead of the watch that shows one of several taints gone does not remove that taint."""
    patch.setattr(KnownNodes, "_drop_absent", lambda *_: None)


def answers_wait_for_no_watch(patch: pytest.MonkeyPatch) -> None:
    """The controller decides at once on an answer ahead of the watch, without waiting for the watch."""

    async def at_once(*_: object) -> None:
        return

    patch.setattr(NodeReads, "_until_watched", at_once)


def reads_are_dated_when_answered(patch: pytest.MonkeyPatch) -> None:
    """A read counts as fresh from when its answer arrives, however long the answer took."""

    @around(patch, NodeReads, "_observe")
    async def dated(
        observe: Callable[..., Awaitable[Node | None]], self: NodeReads, name: str, read: Any
    ) -> Node | None:
        node = await observe(self, name, read)
        read.sent_at = self._live.clock.now().at
        return node

    @around(patch, NodeReads, "_serves")
    def serves_meanwhile(serves: Callable[..., bool], self: NodeReads, read: Any, now: float) -> bool:
        return not read.task.done() or serves(self, read, now)


# Outages


def outages_start_again(patch: pytest.MonkeyPatch) -> None:
    """W22: a countdown restarts when its taint is removed and set again, although the node was down throughout."""
    patch.setattr(Outages, "_is_one", lambda *_: False)


def ready_in_between_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A countdown goes on although the node was ready while its taint was absent."""
    patch.setattr("taint_eviction.core.outages._goes_on", lambda before, _: before is not None)


def outages_need_no_witness(patch: pytest.MonkeyPatch) -> None:
    """A countdown goes on although no other node was ready throughout."""
    patch.setattr(Outages, "_is_one", lambda *_: True)


# Calls that are slow or never answered


def workers_are_not_lent(patch: pytest.MonkeyPatch) -> None:
    """An attempt keeps its worker until its answer arrives, so that calls that hang delay all other evictions."""
    patch.setattr(Workers, "_lend", lambda _: None)


def lease_has_no_time_for_slow_calls(patch: pytest.MonkeyPatch) -> None:
    """A renewal counts from before its first call, and the next renewal begins a retry period after its end."""

    @around(patch, Elector, "_attempt")
    async def counted(attempt: Callable[..., Awaitable[bool]], self: Elector, max_seconds: float) -> bool:
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

    patch.setattr(Elector, "_keep", hold)


def connections_stand_after_reads(patch: pytest.MonkeyPatch) -> None:
    """The controller reads the node first, and then opens the connection for the DELETE."""
    call = SimulatedCalls.call

    async def ready_first(self: SimulatedCalls, *about: Any, **options: Any) -> object:
        given = signature(call).bind(self, *about, **options)
        ready: Ready | None = given.arguments.pop("ready", None)
        if ready is not None:
            await ready()
        return await call(**given.arguments)

    patch.setattr(SimulatedCalls, "call", ready_first)


def control_state_is_read_within_the_interval(patch: pytest.MonkeyPatch) -> None:
    """The controller gives up a read of the control state when the next read is due."""

    @around(patch, ControlStateSync, "_read")
    async def bounded(read: Callable[..., Awaitable[None]], self: ControlStateSync, asked_at: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll_seconds):
                await read(self, asked_at)


def conditions_are_tried_once(patch: pytest.MonkeyPatch) -> None:
    """After one refusal of the condition, even a temporary one, the pod is deleted without it."""
    patch.setattr("taint_eviction.runtime.evictor._MAX_MARKS", 1)


def standbys_report(patch: pytest.MonkeyPatch) -> None:
    """Standbys report what only the leader should report."""

    def report(self: LeaderReporter, effect: Event, now: Moment) -> None:
        for reporter in self._reporters:
            reporter.report(effect, now)

    patch.setattr(LeaderReporter, "report", report)
