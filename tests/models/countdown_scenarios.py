"""The moves of the environment in the model ``countdowns`` as scenarios, and what the code did in them as its traces.

Without the built-in controller: what the code does before a timer, the scenarios of the catalogue show with times.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.models.checking import Move
from tests.simulation.exploring.playing import as_text, silenced

from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation import suspension_actions as suspend
from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.replay import sleep_until
from taint_eviction_lab.simulation.scenario import Scenario, read_scenario
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing, production_reporters

# A request is decided within 60 s, which are two ticks.
_TICK_SECONDS = 30.0
# The moves of a leader until its first mark take longer than the code needs for it.
_STEP_SECONDS = 1.5
_AFTER_SECONDS = 200.0
# Within what a request of a dead leader may still take.
_LATE_SECONDS = 55.0
_READ_SECONDS = 4.0
# By then the first leader has written the format of the ConfigMap, which the model does not have.
_FORMAT_SECONDS = 1.6
_MAX_SECONDS = 600.0
_SECONDS = 3600

# Which call a request of the model is.
_CALLS = {
    "sends_mark": "adopt",
    "sends_give_back": "giveBack",
    "sends_entry": "writeControlState",
    "sends_leave": "writeControlState",
    "sends_confirmation": "writeControlState",
}
_LATE = ("leader_ends_request_late", "request_late")
_BEGINS = {"leader_with_flag": True, "leader_without_flag": False}


def _owner(toleration: str) -> dict[str, Any]:
    return {"tolerate": {"pod": "web-0", "tolerations": [f"maintenance:NoExecute {toleration}"]}}


_PEOPLE: dict[str, dict[str, Any]] = {
    "taint_0": {"taint": "node-1 maintenance=now:NoExecute"},
    "untaint_0": {"untaint": "node-1 maintenance"},
    "owner_long": _owner(f"for {_SECONDS // 2}"),
    "owner_short": _owner(f"for {_SECONDS // 2}"),
    "owner_ever": _owner("for ever"),
    "hand_back_orders": {"handBack": None},
    "order_ends": {"handBack": "undo"},
}
# How many of the environment's moves in a random walk are kept.
_KEPT = {"taint_0": 0.5, "untaint_0": 0.5, "hand_back_orders": 0.3, "leader_ends": 0.3}
_STORED = {
    What.ADOPTS: "entered_it",
    What.ADOPTS_NO_MORE: "left_it",
    What.ADOPTION_CONFIRMED: "confirmed_it",
}

JsonObject = dict[str, Any]


# From a model's moves to a scenario


def scenario_of_countdowns(moves: Sequence[Move], shift: Callable[[], float], name: str) -> JsonObject:
    """Return a scenario in which the environment makes its moves of a walk, each a little earlier or later.

    Whatever comes before the first leader comes before the start, so that the countdown runs when it begins to lead.
    """
    environment = _EnvironmentOfAWalk(moves, shift)
    steps, adopts = environment.steps(), environment.first_adopts is not False
    until = max([0.0, *(step["at"] for step in steps)]) + _AFTER_SECONDS
    return {
        "name": name,
        "about": "Moves of a model's environment.",
        "given": {
            "nodes": ["node-1", "node-2"],
            "pods": [{"name": "web-0", "nodeName": "node-1", "tolerations": [f"maintenance:NoExecute for {_SECONDS}"]}],
        },
        "settings": {"adopt": adopts, "defaultTolerationSeconds": None},
        "timeline": sorted(steps, key=lambda step: float(step["at"])),
        "until": until,
        "expect": {},
    }


def thinned_countdowns(moves: Sequence[Move], rng: random.Random) -> list[Move]:
    """Leave out most of the environment's moves of a random walk, and the owner's: a void note is not in the model."""
    return [move for move in moves if rng.random() < _KEPT.get(move.name, 0.0 if "owner" in move.name else 1.0)]


class _EnvironmentOfAWalk:
    """Turns the environment's moves into steps. What the code does in the walk only says when they come."""

    def __init__(self, moves: Sequence[Move], shift: Callable[[], float]) -> None:
        self._moves = moves
        self._shift = shift
        self._made: list[JsonObject] = []
        # Whether the first leader takes countdowns over, None: there was none yet.
        self.first_adopts: bool | None = None
        self._up, self._began, self._ended = False, 0.0, 0.0
        self._ordered = self._entered = False
        # When the leader was last told something that it acts upon; the call that it awaits, and what it was told then.
        self._told = 0.0
        self._awaited: tuple[str, float] | None = None
        self._slowed: JsonObject | None = None

    def steps(self) -> list[JsonObject]:
        """Return the steps."""
        at = -30.0
        for move in self._moves:
            at += _TICK_SECONDS if move.name == "tick" else _STEP_SECONDS
            if at > _MAX_SECONDS:
                break
            if move.name in _BEGINS and self.first_adopts is None:
                at = 0.0
            self._note_request(move.name, at)
            self._note_leader(move.name, at, round(at + self._shift(), 2))
        if self.first_adopts is not None and not self._up:
            self._made.append({"at": self._ended, "restart": {"after": 1, "adopt": True}})
        return self._made

    def _note_request(self, name: str, at: float) -> None:
        if name in _CALLS:
            if name == "sends_mark" and not self._entered:
                # This leader has not said that it takes countdowns over, and not for want of an answer alone.
                self._made.append(_slow("writeControlState", self._began, at, _LATE_SECONDS))
            self._entered |= name == "sends_entry"
            self._awaited = (_CALLS[name], self._told)
        elif self._awaited is None:
            return
        elif name == "answered":
            if self._slowed is not None:
                self._slowed["delay"]["by"] = round(at - self._awaited[1] + _STEP_SECONDS, 2)
            self._awaited = self._slowed = None
        elif name in _LATE:
            self._made.append(_slow(*self._awaited, at, _LATE_SECONDS))
        elif name in _PEOPLE and self._slowed is None:
            self._slowed = _slow(*self._awaited, at, 1.0)
            self._made.append(self._slowed)

    def _note_leader(self, name: str, at: float, when: float) -> None:
        if name in _PEOPLE:
            self._told = at
            self._ordered = name == "hand_back_orders" or (self._ordered and name != "order_ends")
            self._made.append({"at": when, **_PEOPLE[name]})
        elif name.startswith("leader_ends"):
            self._up, self._ended = False, when
        elif name in _BEGINS:
            self._begin(_BEGINS[name], at, when)

    def _begin(self, adopts: bool, at: float, when: float) -> None:
        """Let a leader begin; the first one at the start of the scenario, whatever happened before."""
        if self.first_adopts is None:
            self.first_adopts = adopts
            self._made = [{**step, "at": min(float(step["at"]), -1.0)} for step in self._made]
        elif not self._up:
            after = max(0.1, round(when - self._ended, 2))
            self._made.append({"at": self._ended, "restart": {"after": after, "adopt": adopts}})
        if self._ordered:
            self._made.append(_slow("readControlState", at, at + _READ_SECONDS, _READ_SECONDS))
        self._up, self._began, self._told, self._entered = True, at, at, False
        self._awaited = self._slowed = None


def _slow(call: str, since: float, until: float, by: float) -> JsonObject:
    """Return a step: calls of this kind that are sent in this time arrive that much later."""
    begin = round(max(since - 0.6, _FORMAT_SECONDS if call == "writeControlState" else -0.6), 2)
    return {"at": begin, "delay": {"call": call, "for": round(until - begin, 2), "by": by}}


# From what the code does to a trace


class _CountdownTrace(Timeline):
    """Collects the moves of the code, of the API server, and of people, in their order."""

    def __init__(self, adopts: bool) -> None:
        super().__init__()
        self.moves: list[Move] = []
        self.adopts = adopts
        self._tainted = False

    def add(self, entry: TimelineEntry) -> None:
        """Note an entry."""
        super().add(entry)
        match entry.what:
            case What.STARTED:
                self.moves.append(Move("leader_with_flag" if self.adopts else "leader_without_flag"))
            case What.KILLED:
                self.moves.append(Move("leader_ends"))
            case _ if entry.what in _STORED:
                self.moves.append(Move(_STORED[entry.what]))
            case _:
                pass

    def trace(self, trace: Trace) -> None:
        """Note one phase of one call about the pod."""
        if trace.call not in (CallKind.ADOPT, CallKind.GIVE_BACK):
            return
        marks = trace.call is CallKind.ADOPT
        match trace.phase:
            case Phase.SENT:
                self.moves.append(Move("sends_mark" if marks else "sends_give_back"))
            case Phase.CARRIED_OUT:
                self.moves.append(Move("marked" if marks else "given_back"))
            case Phase.REFUSED:
                self.moves.append(Move("refused"))
            case _:
                pass

    def step(self, action: do.Action) -> None:
        """Note what people, or the node, do."""
        match action:
            case do.AddTaints() if not self._tainted:
                self._tainted = True
                self.moves.append(Move("taint_0"))
            case do.RemoveTaints() if self._tainted:
                self._tainted = False
                self.moves.append(Move("untaint_0"))
            case do.ChangeTolerations():
                ever = all(each.get("tolerationSeconds") is None for each in action.tolerations)
                self.moves.append(Move("owner_ever" if ever else "owner_long"))
            case suspend.HandBack():
                self.moves.append(Move("order_ends" if action.undo else "hand_back_orders"))
            case _:
                pass


def play_countdowns(document: JsonObject) -> list[Move]:
    """Play a scenario; return the trace of what the code did about the countdown of the pod."""
    scenario = read_scenario(as_text(document), str(document["name"]))
    with silenced():
        return run_virtually(_played(scenario), min([0.0, *(step.at for step in scenario.steps)]))


async def _played(scenario: Scenario) -> list[Move]:
    trace = _CountdownTrace(scenario.settings.adoption.enabled)
    stage = ReplayStage(
        trace,
        scenario.settings,
        production_parsing(),
        seed=scenario.name,
        default_toleration_seconds=scenario.default_toleration_seconds,
        auditor=trace.trace,
        reporters=production_reporters,
    )
    stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.control_state)
    started = False
    for step in scenario.steps:
        if step.at >= 0 and not started:
            await sleep_until(0.0)
            stage.start_controllers()
            started = True
        await sleep_until(step.at)
        if isinstance(step.action, do.Restart) and step.action.adopts is not None:
            trace.adopts = step.action.adopts
        try:
            await stage.perform(step)
        except Impossible:
            continue
        trace.step(step.action)
    if not started:
        await sleep_until(0.0)
        stage.start_controllers()
    await sleep_until(scenario.until or 0.0)
    stage.busy()
    moves = list(trace.moves)
    await stage.kill_controllers()
    return moves
