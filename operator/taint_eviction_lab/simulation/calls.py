"""Calls of one controller process to the simulated API server: through network and faults to the store, and back.

A call travels on a connection, which a balancer has bound to one of the API servers, is carried out at one instant,
and its answer travels back with that server's ``Date``. Once sent, it
arrives and is carried out, even if its process is frozen, has stopped waiting, or was killed meanwhile. The timeline
shows every arrival. A process that was killed sends nothing more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from taint_eviction.core.control_state import ControlState
from taint_eviction.core.objects import Node, Pod
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.answers import failure_reason, is_certain, is_denial, is_evacuation, may_pass
from taint_eviction.runtime.ports import CallFailed, FailureReason, Ready
from taint_eviction.runtime.read_waits import ReadWaits
from taint_eviction.runtime.watch_listener import Interpret
from taint_eviction_lab.simulation.audit import Auditor, Phase, Trace, unaudited
from taint_eviction_lab.simulation.cluster import SimulatedCluster, later
from taint_eviction_lab.simulation.faults import NO_FAULT, READS, CallFault, CallFaults, CallKind
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import ProcessClock, ServerClocks, virtual_now

AnswerT = TypeVar("AnswerT")

# A connection that has been idle for longer is not used again, as in aiohttp.
_KEEP_ALIVE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Parsing:
    """How production reads objects: JSON → value, None if it is too malformed; and an event of a watch → fact.

    ``control_state`` reads the ConfigMap with the control state, whatever it contains.
    """

    node: Callable[[Mapping[str, Any]], Node | None]
    pod: Callable[[Mapping[str, Any]], Pod | None]
    interpret: Interpret
    control_state: Callable[[Mapping[str, Any]], ControlState]


@dataclass(frozen=True, slots=True)
class Network:
    """The network to the API server: how long a call takes in one direction, and after which time it gives up."""

    one_way_seconds: float = 0.005
    call_timeout_seconds: float = 10.0
    page_size: int = 500


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside a controller process."""

    cluster: SimulatedCluster
    faults: CallFaults
    network: Network
    parsing: Parsing
    timeline: Timeline
    pod_writes: PodWrites
    auditor: Auditor = unaudited


@dataclass(slots=True)
class _Line:
    """A connection to an API server (counted from 0), idle since ``idle_since``; ``kept``: it is used again."""

    number: int
    server: int
    kept: bool
    idle_since: float = 0.0


class _Lines:
    """The connections of one process; those that are idle are used again, the one that is idle for longest first."""

    def __init__(self, clocks: ServerClocks) -> None:
        self._clocks = clocks
        self._chosen = 0
        self._opened = 0
        self._idle: deque[_Line] = deque()

    def open(self, *, kept: bool) -> _Line:
        """Open a connection; a balancer chooses the server."""
        self._opened += 1
        return _Line(self._opened, self._choose(), kept)

    def _choose(self) -> int:
        self._chosen = self._clocks.after(self._chosen)
        return self._chosen

    def date(self, line: _Line) -> int:
        """Return the ``Date`` of an answer given now on a connection."""
        return self._clocks.date(self._choose() if self._clocks.per_request else line.server)

    def take(self) -> _Line:
        """Return a connection for a call."""
        while self._idle:
            line = self._idle.popleft()
            if virtual_now() - line.idle_since <= _KEEP_ALIVE_SECONDS and not self._clocks.is_away(line.server):
                return line
        return self.open(kept=True)

    def give_back(self, line: _Line) -> None:
        """Take back a connection on which an answer has arrived."""
        if line.kept:
            line.idle_since = virtual_now()
            self._idle.append(line)


@dataclass(slots=True)
class _Journey:
    """One call under way on ``line``; ``answer`` becomes (the answer, its ``Date``) when the answer arrives; a ``Date``
    of None means that none arrived.
    """

    number: int
    line: _Line
    call: CallKind
    subject: str
    uid: str
    fault: CallFault
    answer: "asyncio.Future[tuple[Any, float | None]]" = field(repr=False)


class SimulatedCalls:
    """The calls of one controller process, called ``name``.

    ``own_faults`` apply before the world's, and to this process only.
    """

    def __init__(
        self, world: World, clock: ProcessClock, name: str = "controller", own_faults: CallFaults | None = None
    ) -> None:
        self.name = name
        self._world = world
        self._clock = clock
        self._own_faults = own_faults or CallFaults()
        self._closed = False
        self._calls = 0
        self._lines = _Lines(world.cluster.clocks)
        self._waits = ReadWaits(world.network.call_timeout_seconds)

    async def ask_time(self) -> None:
        """Make a call on a connection of its own, and close that; only its ``Date`` matters."""
        await self._call(self._lines.open(kept=False), CallKind.VERSION, "", lambda: None)

    async def call(
        self,
        call: CallKind,
        subject: str,
        act: Callable[[], AnswerT],
        uid: str = "",
        ready: Ready | None = None,
        max_seconds: float | None = None,
    ) -> AnswerT:
        """Make a call: carry it to the API server, run ``act``, carry the answer back; raise ``CallFailed``.

        ``ready`` is called when the connection is open. The answer is waited for as long as for any call, or for
        ``max_seconds`` if that is longer.
        """
        return await self._call(self._lines.take(), call, subject, act, uid, ready=ready, max_seconds=max_seconds)

    async def _call(
        self,
        line: _Line,
        call: CallKind,
        subject: str,
        act: Callable[[], AnswerT],
        uid: str = "",
        *,
        ready: Ready | None = None,
        max_seconds: float | None = None,
    ) -> AnswerT:
        reads, read = call in READS, (call, subject)
        timeout = self._world.network.call_timeout_seconds
        seconds = max(self._waits.seconds(read) if reads else timeout, max_seconds or 0.0)
        self._check_open()
        fault = self._fault_of(call, subject)
        await self._connect(fault, timeout)
        if ready is not None:
            await ready()
        self._check_open()
        journey, sent_at = self._begin(line, call, subject, uid, fault), virtual_now()
        self._check_open()
        later(self._world.network.one_way_seconds + fault.delay_seconds, self._arrive, journey, act)
        try:
            async with asyncio.timeout(seconds):
                answer, date = await journey.answer
        except TimeoutError:
            answer, date = _unanswered(seconds), None
        if reads:
            self._note_wait(read, virtual_now() - sent_at, seconds)
        self._check_open()
        if date is not None:
            self._clock.server_clock.heard_date(date, line.number)
            self._lines.give_back(line)
        if isinstance(answer, CallFailed):
            self._trace(journey, Phase.FAILED, answer)
            raise answer
        self._trace(journey, Phase.ANSWERED, answer)
        return answer  # type: ignore[no-any-return]

    def _note_wait(self, read: Hashable, waited_seconds: float, at_most_seconds: float) -> None:
        if waited_seconds < at_most_seconds:
            self._waits.answered(read, waited_seconds)
        else:
            self._waits.unanswered(read, waited_seconds)

    def _check_open(self) -> None:
        if self._closed:
            raise asyncio.CancelledError

    def _fault_of(self, call: CallKind, subject: str) -> CallFault:
        now = virtual_now()
        fault = self._own_faults.next(call, subject, now)
        return self._world.faults.next(call, subject, now) if fault is NO_FAULT else fault

    async def _connect(self, fault: CallFault, max_seconds: float) -> None:
        if fault.connect_seconds:
            await asyncio.sleep(min(fault.connect_seconds, max_seconds))
        if fault.connect_seconds >= max_seconds:
            raise _unanswered(max_seconds)

    def _begin(self, line: _Line, call: CallKind, subject: str, uid: str, fault: CallFault) -> _Journey:
        self._calls += 1
        journey = _Journey(self._calls, line, call, subject, uid, fault, asyncio.get_running_loop().create_future())
        self._trace(journey, Phase.SENT, None)
        return journey

    def _arrive(self, journey: _Journey, act: Callable[[], object]) -> None:
        """Let a call arrive at the API server, and send its answer on the way back."""
        fault = journey.fault
        date = self._lines.date(journey.line) + fault.date_ahead_seconds
        fails = fault.fails or fault.hangs
        self._trace(journey, Phase.ARRIVED, None)
        answer = _refusal(fault) if fails and not fault.takes_effect else _outcome(act)
        done = Phase.REFUSED if isinstance(answer, CallFailed) else Phase.CARRIED_OUT
        self._trace(journey, done, answer)
        if not fails:
            self._send_back(journey, answer, date)
            return
        self._note_failure(journey)
        if not fault.hangs:
            self._send_back(journey, _refusal(fault), date if fault.status is not None else None)

    def _note_failure(self, journey: _Journey) -> None:
        fault = journey.fault
        answer = "no answer" if fault.hangs or fault.status is None else f"{fault.status}"
        why = f"{journey.call.value}: {answer}" + (" (it took effect)" if fault.takes_effect else "")
        self._world.timeline.add(TimelineEntry(virtual_now(), What.CALL_FAILED, journey.subject, why=why))

    def _send_back(self, journey: _Journey, answer: object, date: float | None) -> None:
        """Carry an answer back; a connection that breaks (``date`` None) is noticed at once."""
        seconds = 0.0 if date is None else self._world.network.one_way_seconds + journey.fault.back_seconds
        later(seconds, _answer, journey.answer, (answer, date))

    def _trace(self, journey: _Journey, phase: Phase, body: object) -> None:
        what = (journey.number, phase, journey.call, journey.subject, journey.uid)
        self._world.auditor(Trace(self.name, *what, virtual_now(), body))

    def saw(self, body: JsonObject) -> None:
        """Note that a watch has delivered an object."""
        self._world.auditor(Trace(self.name, 0, Phase.SAW, None, "", body["metadata"]["uid"], virtual_now(), body))

    def close(self) -> None:
        """Stop all calls: the process was killed."""
        self._closed = True


def _unanswered(seconds: float) -> CallFailed:
    return CallFailed(f"no answer within {seconds:g} s", may_pass=True)


def _outcome(act: Callable[[], object]) -> object:
    """Carry out the call; return the answer, or the refusal."""
    try:
        return act()
    except CallFailed as refusal:
        return refusal


def _refusal(fault: CallFault) -> CallFailed:
    return CallFailed(
        fault.message or (f"HTTP {fault.status}" if fault.status else "the connection was refused"),
        reason=FailureReason.NO_ANSWER if fault.status is None else failure_reason(fault.status),
        retry_after_seconds=fault.retry_after_seconds,
        denied=fault.status is not None and is_denial(fault.message or ""),
        evacuates=fault.status is not None and is_evacuation(fault.message or ""),
        certain=fault.status is not None and is_certain(fault.status),
        may_pass=fault.status is None or may_pass(fault.status),
    )


def _answer(waiting: "asyncio.Future[object]", answer: object) -> None:
    if not waiting.done():
        waiting.set_result(answer)
