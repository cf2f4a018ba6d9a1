"""Plays of the models about countdowns: their environments as scenarios, and what the code did as traces.

A trace has the model's ticks, so that the properties about times are judged, too.
"""

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.models.checking import Bounds, Move
from tests.models.handing_back import HandingBack
from tests.simulation.exploring.playing import read_document, silenced

from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.replay import sleep_until
from taint_eviction_lab.simulation.replica import BUILT_IN
from taint_eviction_lab.simulation.scenario import Scenario
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing, production_reporters

# The moves of a leader until its first mark take longer than the code needs for it.
_STEP_SECONDS = 1.5
_READ_SECONDS = 4.0
# By then a leader has entered itself, has read that, and has begun to mark.
_ENTER_SECONDS = 6.0
# By then the first leader has written the format of the ConfigMap, which the model does not have.
_FORMAT_SECONDS = 1.6
# No tick comes at the same instant as anything else.
_FIRST_TICK_SECONDS = 0.37


@dataclass(frozen=True, slots=True)
class Play:
    """How models are played: their bounds, their ticks in seconds, and the owner's seconds.

    ``late_seconds``: within what a request of a dead leader is decided, so that at most LIFE ticks come before.
    ``after_seconds``: how long the play goes on after the last move of the environment. ``at_once``: countdowns are
    taken over as soon as they run. ``look_seconds``: the hour after which a leader looks for notes again. ``enters``:
    in the model, leaders enter themselves before they mark.
    """

    judges: Mapping[str, Bounds]
    tick_seconds: float
    short: int
    long: int
    late_seconds: float
    after_seconds: float
    max_seconds: float
    built_in: bool
    at_once: bool
    look_seconds: float
    enters: bool = False


# WAIT ticks are 75 s, and HOUR ticks 100 s. Nobody's seconds pass.
HAND_BACK = Play(
    judges={model: {"LIFE": 2, "LATES": 2} for model in ("hand_back", "entry")},
    tick_seconds=25.0,
    short=1800,
    long=3600,
    late_seconds=49.0,
    after_seconds=280.0,
    max_seconds=600.0,
    built_in=False,
    at_once=True,
    look_seconds=95.0,
)
ENTRY = dataclasses.replace(HAND_BACK, enters=True)
# SHORT ticks are 20 s, LONG ticks 25 s, and more than LAG ticks 10 s: what the controller knows of the built-in one.
TIMERS = Play(
    judges={model: {"LIFE": 2, "LATES": 2, "LAG": 1, "N": 2} for model in ("timers", "deadlines")},
    tick_seconds=5.0,
    short=20,
    long=25,
    late_seconds=9.0,
    after_seconds=45.0,
    max_seconds=150.0,
    built_in=True,
    at_once=False,
    look_seconds=3600.0,
)

JsonObject = dict[str, Any]

# Which call a request of the model is.
_CALLS = {
    "sends_mark": "adopt",
    "sends_give_back": "giveBack",
    "sends_entry": "writeControlState",
    "sends_leave": "writeControlState",
    "sends_confirmation": "writeControlState",
}
_LATE = ("leader_ends_request_late", "request_late")
_OWNERS = ("owner_short", "owner_long", "owner_ever")
_KEYS = ("maintenance", "upgrade")
_HAND_BACK = {"gives back": "hand_back_gives_back", "says": "hand_back_says_nothing_is_adopted"}
_BEGINS = {"leader_with_flag": True, "leader_without_flag": False}


_PEOPLE: Mapping[str, JsonObject] = {
    "taint_0": {"taint": "node-1 maintenance=now:NoExecute"},
    "untaint_0": {"untaint": "node-1 maintenance"},
    "taint_1": {"taint": "node-1 upgrade=now:NoExecute"},
    "untaint_1": {"untaint": "node-1 upgrade"},
    "hand_back_orders": {"handBack": None},
    "order_ends": {"handBack": "undo"},
    "built_in_restarts": {"restart": {"replica": "built-in", "after": 0.1}},
    "person_pauses": {"pause": {}},
    "person_resumes": {"resume": {}},
}
# How many of the environment's moves in a random walk are kept.
_KEPT = {
    **dict.fromkeys(("taint_0", "untaint_0"), 0.5),
    **dict.fromkeys(("hand_back_orders", "order_ends", "leader_ends"), 0.3),
    **dict.fromkeys(("person_pauses", "person_resumes"), 0.1),
}
_STORED = {
    What.ADOPTS: "entered_it",
    What.ADOPTS_NO_MORE: "left_it",
    What.ADOPTION_CONFIRMED: "confirmed_it",
}


# From a model's moves to a scenario


def scenario_of_countdowns(moves: Sequence[Move], play: Play, shift: Callable[[], float], name: str) -> JsonObject:
    """Return a scenario in which the environment makes its moves of a walk, each a little earlier or later.

    Whatever comes before the first leader comes before the start, so that the countdown runs when it begins to lead.
    """
    environment = _EnvironmentOfAWalk(moves, play, shift)
    steps, adopts = environment.steps(), environment.first_adopts is not False
    until = max([0.0, *(step["at"] for step in steps)]) + play.after_seconds
    settings: JsonObject = {"adopt": adopts, "defaultTolerationSeconds": None}
    if play.built_in:
        settings["builtIn"] = "1.36"
    if play.at_once:
        settings |= {"adoptBefore": play.long, "linger": 5}
    tolerations = [f"maintenance:NoExecute for {play.long}", f"upgrade:NoExecute for {play.short}"]
    return {
        "name": name,
        "about": "Moves of a model's environment.",
        "given": {
            "nodes": ["node-1", "node-2"],
            "pods": [{"name": "web-0", "nodeName": "node-1", "tolerations": tolerations}],
        },
        "settings": settings,
        "timeline": sorted(steps, key=lambda step: float(step["at"])),
        "until": until,
        "expect": {},
    }


def thinned_countdowns(moves: Sequence[Move], rng: random.Random) -> list[Move]:
    """Leave out most of the environment's moves of a random walk, and the owner's: a void note is not in the model."""
    return [move for move in moves if rng.random() < _KEPT.get(move.name, 0.0 if "owner" in move.name else 1.0)]


class _EnvironmentOfAWalk:
    """Turns the environment's moves into steps. What the code does in the walk only says when they come."""

    def __init__(self, moves: Sequence[Move], play: Play, shift: Callable[[], float]) -> None:
        self._moves = moves
        self._play = play
        self._shift = shift
        self._made: list[JsonObject] = []
        # Whether the first leader takes countdowns over, None: there was none yet.
        self.first_adopts: bool | None = None
        self._up, self._began, self._ended = False, 0.0, 0.0
        self._ordered = self._allowed = self._entered = False
        # When the leader was last told something that it acts upon; the call that it awaits, and what it was told then.
        self._told = 0.0
        self._awaited: tuple[str, float] | None = None
        self._slowed: JsonObject | None = None
        # When something was changed that the built-in controller has not seen.
        self._unseen: float | None = None

    def steps(self) -> list[JsonObject]:
        """Return the steps."""
        at = -30.0
        for place, move in enumerate(self._moves):
            at += self._seconds(move)
            if move.name == "leader_reads" and (self._allowed or (self._play.at_once and not self._play.enters)):
                # It also enters itself, and reads that, before it takes anything over.
                at, self._allowed = at + _ENTER_SECONDS, False
            if at > self._play.max_seconds:
                break
            if move.name in _BEGINS and self.first_adopts is None:
                at = 0.0
            self._note_request(move.name, at)
            self._note_built_in(move.name, at)
            self._note_leader(move.name, at, round(at + self._shift(), 2), self._moves[place + 1 :])
        if self.first_adopts is not None and not self._up:
            self._made.append({"at": self._ended, "restart": {"after": 1, "adopt": True}})
        return self._made

    def _seconds(self, move: Move) -> float:
        return self._play.tick_seconds if move.name == "tick" else _STEP_SECONDS

    def _note_request(self, name: str, at: float) -> None:
        if name in _CALLS:
            if name == "sends_mark" and not self._entered and self._play.enters:
                # This leader has not said that it takes countdowns over, and not for want of an answer alone.
                until = max(at, self._began + _ENTER_SECONDS)
                self._made.append(_slow("writeControlState", self._began, until, self._play.late_seconds))
            self._entered |= name == "sends_entry"
            self._awaited = (_CALLS[name], self._told)
        elif self._awaited is None:
            return
        elif name == "answered":
            if self._slowed is not None:
                by = at - self._awaited[1] + _STEP_SECONDS
                self._slowed["delay"]["by"] = round(min(by, self._play.late_seconds), 2)
            self._awaited = self._slowed = None
        elif name in _LATE:
            late = _slow(*self._awaited, at, self._play.late_seconds)
            if self._awaited[0] in ("adopt", "giveBack"):
                late["delay"]["times"] = 2  # The code tries these again, and in the models at most two are late.
            if self._slowed is None:
                self._made.append(late)
            else:
                self._slowed["delay"] = late["delay"]
        elif (name in _PEOPLE or name == "tick") and self._slowed is None:
            self._slowed = _slow(*self._awaited, at, 1.0)
            self._made.append(self._slowed)

    def _note_built_in(self, name: str, at: float) -> None:
        """Suspend the built-in controller from a change until it is to see it, for less than LAG."""
        if not self._play.built_in:
            return
        if name == "built_in_sees":
            if self._unseen is not None and 0.0 <= self._unseen < at - self._play.tick_seconds:
                seconds = min(at - self._unseen - _STEP_SECONDS, self._play.tick_seconds - 1.0)
                freeze = {"replica": "built-in", "for": round(seconds, 2)}
                self._made.append({"at": round(self._unseen - 0.1, 2), "freeze": freeze})
            self._unseen = None
        elif name in _PEOPLE and self._unseen is None:
            self._unseen = at

    def _note_leader(self, name: str, at: float, when: float, then: Sequence[Move]) -> None:
        if name in _PEOPLE or name in _OWNERS:
            self._told = at
            orders = name == ("order_ends" if self._ordered else "hand_back_orders")
            self._ordered = name == "hand_back_orders" or (self._ordered and name != "order_ends")
            self._allowed = name == "order_ends"
            self._made.append({"at": when, **(_PEOPLE[name] if name in _PEOPLE else self._owner(name))})
            if orders and self._up:
                self._keep_from_reading(when, then)
        elif name.startswith("leader_ends"):
            self._up, self._ended = False, when
        elif name in _BEGINS:
            self._begin(_BEGINS[name], at, when)

    def _owner(self, name: str) -> JsonObject:
        seconds = {"owner_short": f"for {self._play.short}", "owner_long": f"for {self._play.long}"}
        tolerations = [f"maintenance:NoExecute {seconds.get(name, 'for ever')}"]
        return {"tolerate": {"pod": "web-0", "tolerations": tolerations}}

    def _keep_from_reading(self, when: float, then: Sequence[Move]) -> None:
        """Keep the leader from reading what was just ordered until it reads in the walk, or ends in one of two ways."""
        until = itertools.takewhile(lambda move: not move.name.startswith(("leader_reads", "leader_ends")), then)
        seconds = sum(map(self._seconds, until))
        if seconds > self._play.tick_seconds:
            unread = {"call": "readControlState", "for": round(seconds, 2)}
            self._made.append({"at": round(when - 0.01, 2), "refuse": unread})

    def _begin(self, adopts: bool, at: float, when: float) -> None:
        """Let a leader begin; the first one at the start of the scenario, as the built-in controller does."""
        if self.first_adopts is None:
            self.first_adopts = adopts
            before = [step for step in self._made if "restart" not in step]
            self._made = [{**step, "at": round(place / 100 - 1.0, 2)} for place, step in enumerate(before)]
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
    """Collects the moves of the code, of the API server, and of people, in their order, with ticks."""

    def __init__(self, play: Play, adopts: bool) -> None:
        super().__init__()
        self.moves: list[Move] = []
        self.adopts = adopts
        self._play = play
        self._tainted: set[str] = set()

    def note(self, name: str) -> None:
        """Note a move."""
        self.moves.append(Move(name))

    def keep_ticking(self) -> None:
        """Note a tick now and then."""
        self.note("tick")
        asyncio.get_running_loop().call_later(self._play.tick_seconds, self.keep_ticking)

    def add(self, entry: TimelineEntry) -> None:
        """Note an entry."""
        super().add(entry)
        if entry.subject.startswith("built-in"):
            return
        match entry.what:
            case What.STARTED:
                self.note("leader_with_flag" if self.adopts else "leader_without_flag")
                self.hands_back.last_leader = entry.subject
            case What.KILLED:
                self.note("leader_ends")
            case What.ADOPTS_NO_MORE if self.hands_back.writes:
                pass
            case _ if entry.what in _STORED and not self._play.built_in:
                self.note(_STORED[entry.what])
            case _:
                pass

    hands_back: HandingBack

    def trace(self, trace: Trace) -> None:
        """Note one phase of one call about the pod."""
        marks = trace.call is CallKind.ADOPT
        match trace.call, trace.phase:
            case CallKind.ADOPT | CallKind.GIVE_BACK, Phase.SENT:
                self.note("sends_mark" if marks else "sends_give_back")
            case CallKind.ADOPT | CallKind.GIVE_BACK, Phase.CARRIED_OUT:
                self.note("marked" if marks else "given_back")
            case CallKind.ADOPT | CallKind.GIVE_BACK, Phase.REFUSED:
                self.note("refused")
            case CallKind.DELETE | CallKind.EVICT, Phase.SENT:
                self.note("built_in_evicts" if trace.process.startswith("built-in") else "evicts")
            case _:
                pass

    def step(self, action: do.Action) -> None:
        """Note what people, or the node, do."""
        match action:
            case do.AddTaints():
                for taint in action.taints:
                    if taint["key"] not in self._tainted:
                        self._tainted.add(taint["key"])
                        self.note(f"taint_{_KEYS.index(taint['key'])}")
            case do.RemoveTaints():
                for key, _ in action.taints or ():
                    self._tainted.remove(key)
                    self.note(f"untaint_{_KEYS.index(key)}")
            case do.Restart() if action.replica == BUILT_IN:
                self.note("built_in_restarts")
            case do.HandBack():
                self.note("order_ends" if action.undo else "hand_back_orders")
            case do.PauseEvictions():
                self.note("person_pauses")
            case do.ResumeEvictions():
                self.note("person_resumes")
            case _:
                pass

    def owner(self, before: int | None, after: int | None) -> None:
        """Note that the owner sets the seconds of the first toleration."""
        if before != after:
            names = {self._play.short: "owner_short", self._play.long: "owner_long"}
            self.note("owner_ever" if after is None else names[after])

    def until_the_end(self) -> list[Move]:
        """Return the moves until the pod is ended."""
        names = [move.name for move in self.moves]
        ends = [names.index(name) for name in ("evicts", "built_in_evicts") if name in names]
        return self.moves[: min(ends, default=len(names)) + 1]


def play_countdowns(document: JsonObject, play: Play) -> list[Move]:
    """Play a scenario; return the trace of what the code did about the countdown of the pod."""
    scenario = read_document(document)
    with silenced(), pytest.MonkeyPatch.context() as patch:
        if play.at_once:
            patch.setattr("taint_eviction.core.countdowns._SHARE", 1.0)
        patch.setattr("taint_eviction.runtime.adopter._LOOK_SECONDS", play.look_seconds)
        return run_virtually(_played(scenario, play), min([0.0, *(step.at for step in scenario.steps)]))


async def _played(scenario: Scenario, play: Play) -> list[Move]:
    trace = _CountdownTrace(play, scenario.settings.adoption.enabled)
    stage = ReplayStage(
        trace,
        scenario.settings,
        production_parsing(),
        seed=scenario.name,
        default_toleration_seconds=scenario.default_toleration_seconds,
        auditor=trace.trace,
        reporters=production_reporters,
        built_in=scenario.built_in,
    )
    hands_back = trace.hands_back = HandingBack(stage, lambda what: trace.note(_HAND_BACK[what]))
    stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.control_state)
    trace.keep_ticking()
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
            await _perform(stage, step, trace, hands_back)
        except Impossible:
            continue
    if not started:
        await sleep_until(0.0)
        stage.start_controllers()
    await sleep_until(scenario.until or 0.0)
    stage.busy()
    moves = trace.until_the_end()
    hands_back.end()
    await stage.kill_controllers()
    return moves


async def _perform(stage: ReplayStage, step: do.ScenarioStep, trace: _CountdownTrace, hands_back: HandingBack) -> None:
    match action := step.action:
        case do.HandBack():
            if action.undo:
                hands_back.undo()
            else:
                hands_back.begin()
            trace.step(action)
        case do.ChangeTolerations():
            pod = stage.cluster.pod(action.pod)
            if pod is None:
                raise Impossible("the pod is gone")
            first, *others = pod["spec"]["tolerations"]
            changed = dataclasses.replace(action, tolerations=(action.tolerations[0], *others))
            await dataclasses.replace(step, action=changed).perform(stage)
            trace.owner(first.get("tolerationSeconds"), action.tolerations[0].get("tolerationSeconds"))
        case _:
            await step.perform(stage)
            trace.step(action)
