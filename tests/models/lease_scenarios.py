"""The moves of the environment in the model ``elections`` as scenarios, and what the code did in them as its traces."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.models.checking import Move
from tests.simulation.exploring.playing import read_document, silenced

from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.process import SimulatedProcess
from taint_eviction_lab.simulation.replay import sleep_until
from taint_eviction_lab.simulation.scenario import Scenario
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing, production_reporters

REPLICAS = 2
# Three ticks are longer than the worst takeover: a Lease of 15 s, seen after two waits of at most 4.4 s.
TICK_SECONDS = 8.0
# By then somebody leads.
_BEGIN_SECONDS = 6.0
_STEP_SECONDS = 0.1
# How soon somebody leads when nothing is disturbed any more: a Lease, which is looked at every 4.4 s at most.
# A write that is under way when all faults end is still stored after 12 s.
LEADS_WITHIN_SECONDS = 12.0 + 15.0 + 2 * 4.4 + 1.0
_MAX_SECONDS = 90.0
# A process of a name that no longer exists.
NOBODY_ANY_MORE = REPLICAS + 1

# How many of the environment's moves in a random walk are kept.
_KEPT = {"crashes": 0.06, "suspended": 0.4, "unanswered": 0.4, "releases_lease": 0.1}

JsonObject = dict[str, Any]


# From a model's moves to a scenario


def scenario_of(moves: Sequence[Move], shift: Callable[[], float], name: str) -> JsonObject:
    """Return a scenario in which the environment makes its moves of a walk, each a little earlier or later.

    Pods of tainted nodes are due all the time, so that whoever may act sends requests.
    """
    steps = _Steps(moves, shift).steps()
    until = max([_BEGIN_SECONDS, *map(_end_of, steps)]) + LEADS_WITHIN_SECONDS
    pods = [
        {"name": f"web-{k}", "nodeName": f"node-{k % 2}", "tolerations": [f"maintenance for {1 + k}"]}
        for k in range(round(until))
    ]
    taints = [{"at": 0.5 + k / 2, "taint": f"node-{k} maintenance=now:NoExecute"} for k in range(2)]
    return {
        "name": name,
        "about": "Moves of a model's environment.",
        "given": {"nodes": ["node-0", "node-1"], "pods": pods},
        "settings": {"replicas": REPLICAS},
        "timeline": sorted([*taints, *steps], key=lambda step: float(step["at"])),
        "until": until,
        "expect": {},
    }


def _end_of(step: JsonObject) -> float:
    """Return when a step disturbs nothing any more."""
    (what,) = (value for key, value in step.items() if key != "at")
    spans = (what.get(name, 0.0) for name in ("for", "by", "back", "connect", "after"))
    return float(step["at"] + sum(spans))


def thinned(moves: Sequence[Move], rng: random.Random) -> list[Move]:
    """Leave out most of the environment's moves of a random walk: if all processes crash at once, nothing happens."""
    return [move for move in moves if rng.random() < _KEPT.get(move.name, 1.0)]


class _Steps:
    """Turns the environment's moves into steps. What the code does in the walk only says when they come."""

    def __init__(self, moves: Sequence[Move], shift: Callable[[], float]) -> None:
        self._moves = moves
        self._shift = shift
        self._made: list[JsonObject] = []
        # The first replica is the nearest to the API server, and leads first.
        self._first = next((move.of for move in moves if move.name == "lease_stored"), 0)
        self._leader: int | None = None
        # Of each process: the suspension, or the late request, that lasts; whether it awaits an answer.
        self._lasting: dict[int, JsonObject] = {}
        self._awaits: set[int] = set()

    def steps(self) -> list[JsonObject]:
        """Return the steps."""
        at = _BEGIN_SECONDS
        for place, move in enumerate(self._moves):
            at += _STEP_SECONDS
            if move.name == "tick":
                at += TICK_SECONDS
                self._tick(at, self._moves[place + 1 :])
            if at > _MAX_SECONDS:
                break
            self._note(move, at)
        for step in self._lasting.values():
            self._end(step, step["at"] + 3.5 * TICK_SECONDS)
        return self._made

    def _tick(self, at: float, then: Sequence[Move]) -> None:
        """Let the leader's renewals come late if none is stored until the next tick."""
        until = next((place for place, move in enumerate(then) if move.name == "tick"), len(then))
        renews = any(move.name == "lease_stored" and move.of == self._leader for move in then[:until])
        if not renews and self._leader is not None and self._leader not in self._lasting:
            late = {"call": "writeLease", "node": self._replica(self._leader), "times": 2, "by": 1.5 * TICK_SECONDS}
            self._make(at - TICK_SECONDS, {"delay": late})

    def _note(self, move: Move, at: float) -> None:
        match move.name:
            case "writes_lease":
                self._awaits.add(move.of)
            case "answered":
                self._awaits.discard(move.of)
            case "lease_stored":
                self._leader = move.of
            case "crashes":
                self._lasting.pop(move.of, None)
                self._make(at, {"restart": {"replica": self._number(move.of), "after": 1}})
            case "releases_lease":
                # So that the process has begun evictions, which it completes.
                self._make(at - 1.0, {"delay": {"call": "mark", "for": 1.5, "by": 5}})
                self._make(at, {"restart": {"replica": self._number(move.of), "after": 1, "gracefully": True}})
            case "suspended":
                # So that the process has begun an eviction, or awaits an answer, and hears late what happened since.
                self._make(at - 1.5, {"delay": {"call": "delete", "for": 2.0, "connect": 1.1}})
                self._make(at - 0.1, {"lag": {"watch": "pods", "replica": self._number(move.of), "by": 60}})
                if move.of in self._awaits:
                    late = {"call": "writeLease", "node": self._replica(move.of), "for": 2.3, "back": 2.5}
                    self._make(at - 2.3, {"delay": late})
                freeze = {"freeze": {"replica": self._number(move.of), "for": 1}}
                self._lasting[move.of] = self._make(at, freeze)
            case "unanswered":
                late = {"call": "writeLease", "node": self._replica(move.of), "times": 1, "by": 6}
                self._lasting[move.of] = self._make(at, {"delay": late})
            case "resumed" | "late_stored" if move.of in self._lasting:
                self._end(self._lasting.pop(move.of), at)
            case _:
                pass

    def _make(self, at: float, step: JsonObject) -> JsonObject:
        made = {"at": round(max(0.1, at + self._shift()), 2), **step}
        self._made.append(made)
        return made

    def _end(self, step: JsonObject, at: float) -> None:
        """Let a suspension, or a late request, last until then."""
        seconds = round(max(1.0, at - step["at"]), 2)
        if "delay" in step:
            step["delay"]["by"] = max(6.0, seconds)
            return
        step["freeze"]["for"] = seconds
        # So that the process can act before its elector learns what happened.
        slow = {"call": ["readLease", "writeLease"], "for": 3, "by": 1.5}
        self._made.append({"at": round(step["at"] + seconds - 0.05, 2), "delay": slow})

    def _number(self, process: int) -> int:
        return 1 if process == self._first else 2

    def _replica(self, process: int) -> str:
        return f"replica {self._number(process)}*"


# From what the code does to a trace


@dataclass(slots=True)
class _Call:
    """A call about the Lease; ``arrived``: the place of its arrival among the moves."""

    releases: bool
    arrived: int = -1


class _LeaseTrace(Timeline):
    """Collects the moves of the code in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[Move | None] = []
        self._calls: dict[tuple[str, int], _Call] = {}
        self._latest: dict[str, int] = {}
        self.dead: set[str] = set()

    def trace(self, trace: Trace) -> None:
        """Note one phase of one call."""
        match trace.call:
            case CallKind.READ_LEASE | CallKind.WRITE_LEASE:
                self._note_lease(trace)
            case CallKind.DELETE | CallKind.EVICT if trace.phase is Phase.SENT:
                self.moves.append(Move("sends_eviction", slot_of(trace.process)))
            case _:
                pass

    def add(self, entry: TimelineEntry) -> None:
        """Note that a process has ended."""
        super().add(entry)
        if entry.what is What.KILLED:
            self.dead.add(entry.subject)
            self.moves.append(Move("crashes", slot_of(entry.subject)))

    def _note_lease(self, trace: Trace) -> None:
        key, slot = (trace.process, trace.number), slot_of(trace.process)
        writes = trace.call is CallKind.WRITE_LEASE
        match trace.phase:
            case Phase.SENT:
                self._calls[key] = _Call(releases=writes and not trace.subject)
                self._latest[trace.process] = trace.number
                if writes:
                    self.moves.append(Move("writes_lease" if trace.subject else "releases_lease", slot))
            case Phase.CARRIED_OUT if writes:
                self.moves.append(self._stored(trace, slot))
            case Phase.CARRIED_OUT:
                # A read counts from its arrival, but only if its answer arrives, too.
                self._calls[key].arrived = len(self.moves)
                self.moves.append(None)
            case Phase.ANSWERED if not writes:
                self.moves[self._calls[key].arrived] = Move("reads_lease", slot)
            case Phase.ANSWERED if not self._calls[key].releases:
                self.moves.append(Move("answered", slot))
            case Phase.FAILED if writes and not self._calls[key].releases and "modified" in str(trace.body):
                self.moves.append(Move("answered", slot))
            case _:
                pass

    def _stored(self, trace: Trace, slot: int) -> Move:
        if trace.process in self.dead:
            return Move("late_stored", NOBODY_ANY_MORE)
        # Nobody waits for the answer of a release.
        late = self._latest[trace.process] != trace.number or self._calls[trace.process, trace.number].releases
        return Move("late_stored" if late else "lease_stored", slot)


def slot_of(process: str) -> int:
    """Return which process of the model this is; ``process`` is called "replica 1, controller 2"."""
    return int(process.split()[1].rstrip(",")) - 1


@dataclass(frozen=True, slots=True)
class PlayedLease:
    """What the code did about the Lease, and about evictions; ``leads``: somebody leads in the end (P3)."""

    trace: list[Move]
    leads: bool


def play_lease(document: JsonObject) -> PlayedLease:
    """Play a scenario until somebody must lead again."""
    scenario = read_document(document)
    with silenced():
        return run_virtually(_played(scenario), min([0.0, *(step.at for step in scenario.steps)]))


async def _played(scenario: Scenario) -> PlayedLease:
    recorder = _LeaseTrace()
    stage = ReplayStage(
        recorder,
        scenario.settings,
        production_parsing(),
        seed=scenario.name,
        replicas=scenario.replicas,
        auditor=recorder.trace,
        reporters=production_reporters,
    )
    stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.control_state)
    await sleep_until(0.0)
    stage.start_controllers()
    for step in scenario.steps:
        await sleep_until(step.at)
        await step.perform(stage)
    until = scenario.until or 0.0
    await sleep_until(until - LEADS_WITHIN_SECONDS)
    stage.make_peace()
    await sleep_until(until)
    stage.busy()
    trace = [move for move in recorder.moves if move is not None]
    leads = any(isinstance(each.process, SimulatedProcess) and each.process.leads for each in stage.replicas)
    await stage.kill_controllers()
    return PlayedLease(trace, leads)
