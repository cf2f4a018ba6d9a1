"""Plays of the model ``control_state``: moves of its environment as scenarios, and what the code did as traces.

A surge of taints lets the leader open the breaker, and its end lets the leader close it. A pause ends by itself; it is
of a namespace without pods, so that the breaker counts all the same. A leader is deposed by being suspended for longer
than its Lease; what it wrote, or tries again, comes late.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

import pytest
from tests.around import around
from tests.models.checking import Bounds, Move
from tests.models.lease_scenarios import REPLICAS, JsonObject, slot_of
from tests.simulation.exploring.playing import read_document, silenced

from taint_eviction.core.control_state import Latch, Pause, PauseScope
from taint_eviction.runtime.leadership import Elector
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.calls import SimulatedCalls
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.control_state import SimulatedControlState, SimulatedControlStateStore
from taint_eviction_lab.simulation.replay import sleep_until
from taint_eviction_lab.simulation.scenario import Scenario
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing, production_reporters

# More changes than a play can have.
BOUNDS: Bounds = {"DATES": 200}

_PEOPLE: Mapping[type, str] = {
    do.ResetBreaker: "person_resets",
    do.Scribble: "person_opens",
    do.PauseEvictions: "person_pauses",
    do.ResumeEvictions: "person_resumes",
}

_BEGIN_SECONDS, _STEP_SECONDS, _MAX_SECONDS, _AFTER_SECONDS = 8.0, 2.0, 400.0, 40.0
# By then a standby has taken the Lease of a leader that is suspended.
_DEPOSED_SECONDS = 26.0
# A write that takes this long is not given up.
_MOST_LATE_SECONDS = 9.0
# A node more than the breaker tolerates; each surge needs nodes of its own.
_SURGE, _SURGES = 3, 12
# There is no pod in the namespace that people pause.
_PAUSED, _PAUSE_SECONDS = "archive", 3.0


def scenario_of_control_state(moves: Sequence[Move], shift: Callable[[], float], name: str) -> JsonObject:
    """Return a scenario in which the environment makes its moves of a walk, each a little earlier or later."""
    steps: list[JsonObject] = []
    at, surges, pause_ends = _BEGIN_SECONDS, 0, 0.0
    first = leader = next((move.of for move in moves if move.name == "takes_over"), 0)
    for place, move in enumerate(moves):
        when = round(at + shift(), 2)
        if at > _MAX_SECONDS:
            break
        match move.name:
            case "takes_over" if move.of != leader:
                replica = 1 if leader == first else 2
                steps.append({"at": when, "freeze": {"replica": replica, "for": _DEPOSED_SECONDS + 4.0}})
                leader, at = move.of, at + _DEPOSED_SECONDS
            case "decides_to_open" if surges < _SURGES:
                steps.append(_late(when, moves[place + 1 :], "writes_open"))
                steps += [{"at": when, "taint": f"node-{node} maintenance=now:NoExecute"} for node in _nodes(surges)]
                surges += 1
            case "decides_to_reset" if surges:
                steps.append(_late(when, moves[place + 1 :], "writes_reset"))
                steps += [{"at": when, "untaint": f"node-{node}"} for node in _nodes(surges - 1)]
            case "decides_to_remove_pause":
                steps.append(_late(pause_ends, moves[place + 1 :], "removes_pause"))
                at = max(at, pause_ends)
            case _ if move.name in _PEOPLE.values():
                steps.append({"at": when, **_person(move.name, when)})
                pause_ends = when + _PAUSE_SECONDS if move.name == "person_pauses" else pause_ends
            case _:
                continue
        at += _STEP_SECONDS
    nodes = [node for surge in range(_SURGES) for node in _nodes(surge)]
    return {
        "name": name,
        "about": "Moves of a model's environment.",
        "given": {
            "nodes": [f"node-{node}" for node in nodes],
            "pods": [{"name": f"web-{node}", "nodeName": f"node-{node}"} for node in nodes],
        },
        "settings": {"replicas": REPLICAS, "breaker": {"nodes": _SURGE - 1, "window": 60, "closesByItself": True}},
        "timeline": sorted(steps, key=lambda step: float(step["at"])),
        "until": max([_BEGIN_SECONDS, *(step["at"] for step in steps)]) + _AFTER_SECONDS,
        "expect": {},
    }


def thinned_control_state(moves: Sequence[Move], rng: random.Random) -> list[Move]:
    """Leave out most of people's moves of a random walk, and all crashes: what was sent before would be another's."""
    kept = {"person_opens": 0.2, "person_resets": 0.5, "person_resumes": 0.2, "takes_over": 0.3, "crashes": 0.0}
    return [move for move in moves if rng.random() < kept.get(move.name, 1.0)]


def _person(name: str, when: float) -> JsonObject:
    """Return what a person does."""
    opened = (
        f'{{"open": true, "since": "2030-01-01T00:{int(when) // 60:02d}:{int(when) % 60:02d}Z", "cause": "by hand"}}'
    )
    steps: Mapping[str, JsonObject] = {
        "person_opens": {"scribble": {"key": "breaker", "value": opened}},
        "person_resets": {"resetBreaker": {}},
        "person_pauses": {"pause": {"namespace": _PAUSED, "for": f"{_PAUSE_SECONDS:g}s"}},
        "person_resumes": {"resume": {"namespace": _PAUSED}},
    }
    return steps[name]


def _nodes(surge: int) -> range:
    return range(_SURGE * surge, _SURGE * (surge + 1))


def _late(when: float, then: Sequence[Move], writes: str) -> JsonObject:
    """Return a step: a write arrives after what the environment does before it in the walk."""
    names = [move.name for move in then]
    before = names[: names.index(writes)] if writes in names else names
    meanwhile = sum(name.startswith(("person", "takes_over")) for name in before)
    by = min(_MOST_LATE_SECONDS, _STEP_SECONDS * (meanwhile + 0.5) if meanwhile else 0.0)
    return {"at": round(when - 0.1, 2), "delay": {"call": "writeControlState", "for": 1.5, "by": by}}


class _ControlStateTrace(Timeline):
    """Collects the moves of the code, and of people, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[Move] = []
        self._decided: set[tuple[str, Latch | frozenset[Pause]]] = set()
        self._ended_by: list[tuple[Mapping[PauseScope, Pause], str]] = []

    def add(self, entry: TimelineEntry) -> None:
        """Note what a process stored."""
        super().add(entry)
        if entry.why.startswith("replica"):
            match entry.what:
                case What.BREAKER_OPENED:
                    self.moves.append(Move("writes_open", slot_of(entry.why)))
                case What.BREAKER_CLOSED:
                    self.moves.append(Move("writes_reset", slot_of(entry.why)))
                case _:
                    pass

    def decided(self, name: str, process: str, what: Latch | frozenset[Pause]) -> None:
        """Note that a process wants its breaker's state stored, or a pause removed, once for each change."""
        if (process + name, what) not in self._decided:
            self._decided.add((process + name, what))
            self.moves.append(Move(name, slot_of(process)))

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        """Note what processes decide, and who leads."""
        write, close = SimulatedControlStateStore.write_latch, SimulatedControlStateStore.close_latch
        process_of = WeakKeyDictionary[SimulatedControlStateStore, str]()

        @around(patch, SimulatedControlStateStore, "__init__")
        def begin(
            right: Callable[..., None],
            store: SimulatedControlStateStore,
            calls: SimulatedCalls,
            control_state: SimulatedControlState,
        ) -> None:
            process_of[store] = calls.name
            right(store, calls, control_state)

        remove, removed = SimulatedControlStateStore.end_pauses, SimulatedControlState.end_pauses

        async def write_latch(store: SimulatedControlStateStore, latch: Latch) -> None:
            self.decided("decides_to_open", process_of[store], latch)
            await write(store, latch)

        async def close_latch(
            store: SimulatedControlStateStore, latch: Latch, closed_epoch: float, closed_by: str = ""
        ) -> None:
            self.decided("decides_to_reset", process_of[store], latch)
            await close(store, latch, closed_epoch, closed_by)

        async def end_pauses(store: SimulatedControlStateStore, ended: Mapping[PauseScope, Pause]) -> None:
            self.decided("decides_to_remove_pause", process_of[store], frozenset(ended.values()))
            self._ended_by.append((ended, process_of[store]))
            await remove(store, ended)

        def pauses_removed(state: SimulatedControlState, ended: Mapping[PauseScope, Pause]) -> None:
            before = state.control_state
            removed(state, ended)
            if state.control_state != before:
                by = next(process for each, process in self._ended_by if each is ended)
                self.moves.append(Move("removes_pause", slot_of(by)))

        @around(patch, Elector, "_turn")
        def turned(turn: Callable[..., None], elector: Elector, leading: bool) -> None:
            turn(elector, leading)
            if leading:
                self.moves.append(Move("takes_over", slot_of(elector.identity)))

        patch.setattr(SimulatedControlStateStore, "write_latch", write_latch)
        patch.setattr(SimulatedControlStateStore, "close_latch", close_latch)
        patch.setattr(SimulatedControlStateStore, "end_pauses", end_pauses)
        patch.setattr(SimulatedControlState, "end_pauses", pauses_removed)


def play_control_state(document: JsonObject) -> list[Move]:
    """Play a scenario; return the trace of what the code did about the breaker's state."""
    scenario, trace = read_document(document), _ControlStateTrace()
    with silenced(), pytest.MonkeyPatch.context() as patch:
        trace.listen(patch)
        run_virtually(_played(scenario, trace), 0.0)
    return trace.moves


async def _played(scenario: Scenario, trace: _ControlStateTrace) -> None:
    stage = ReplayStage(
        trace,
        scenario.settings,
        production_parsing(),
        seed=scenario.name,
        replicas=scenario.replicas,
        reporters=production_reporters,
    )
    stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.control_state)
    await sleep_until(0.0)
    stage.start_controllers()
    for step in scenario.steps:
        await sleep_until(step.at)
        try:
            await step.perform(stage)
        except Impossible:
            continue
        if type(step.action) in _PEOPLE:
            trace.moves.append(Move(_PEOPLE[type(step.action)]))
    await sleep_until(scenario.until or 0.0)
    stage.busy()
    await stage.kill_controllers()
