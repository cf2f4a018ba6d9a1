"""Plays one document: the world of a replay with an oracle in it, faults until their end, and then a time of peace."""

import contextlib
import hashlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from tests.simulation.exploring.oracle import Oracle
from tests.simulation.exploring.told import Violation

from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.simulation import actions as do
from taint_eviction.simulation import hold_actions as hold
from taint_eviction.simulation.audit import Trace
from taint_eviction.simulation.cluster import Impossible
from taint_eviction.simulation.faults import Trouble
from taint_eviction.simulation.replay import sleep_until
from taint_eviction.simulation.scenario import Scenario, read_scenario
from taint_eviction.simulation.stage import Stage
from taint_eviction.simulation.timeline import Entry, Timeline, What
from taint_eviction.simulation.virtual_clock import virtual_now
from taint_eviction.simulation.virtual_loop import run_virtually
from taint_eviction.wiring_simulation import production_parsing

# After faults have stopped: the longest tolerance (120 s) runs out, and that is noticed although an event was lost.
PEACE_SECONDS = 140.0
# What cannot be done is left out, and so told.
LEFT_OUT = "left out: "

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Played:
    """One run. ``digest`` is of all that happened, call by call: equal for equal runs."""

    violations: tuple[Violation, ...]
    timeline: tuple[Entry, ...]
    digest: str
    seconds: float
    deletes: int

    @property
    def rule(self) -> str:
        """The first rule that was broken, "" if none was."""
        return self.violations[0].rule if self.violations else ""


def as_text(document: JsonObject) -> str:
    """Write a document as a scenario file."""
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)


def play(document: JsonObject) -> Played:
    """Play a document and judge it; whatever ends the controller with an exception is a violation, too."""
    return play_scenario(read_scenario(as_text(document), str(document["name"])))


def play_scenario(scenario: Scenario) -> Played:
    """Play a scenario as an exploration does: its expectations do not matter."""
    with silenced():
        return run_virtually(_Playing(scenario).run())


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Log nothing meanwhile: thousands of runs would say a lot."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class Disturbances:
    """The faults of a scenario, and when it is over what they can do to an eviction."""

    def __init__(self, scenario: Scenario) -> None:
        self._settings = scenario.settings
        self._over = [(step.at, self._over_at(step)) for step in scenario.steps]
        if holds_back(scenario):
            self._over.append((-math.inf, math.inf))

    def over_at(self, at: float) -> float:
        """Say when those are over that have begun by this instant; infinite where that cannot be said."""
        return max((over_at for begun_at, over_at in self._over if begun_at <= at), default=-math.inf)

    def _over_at(self, step: do.Step) -> float:
        settings = self._settings
        match step.action:
            case do.Restart(after_seconds=after):
                # A successor waits until the lease has run out.
                return step.at + after + settings.election.lease_duration_seconds + 7.0
            case do.DisturbCalls(picked=picked, trouble=Trouble(fails=False, hangs=False) as slow) if picked.times:
                longest = min(settings.call_timeout_seconds, slow.delay_seconds + slow.back_seconds)
                lasts = math.inf if step.action.for_seconds is None else step.action.for_seconds
                return step.at + lasts + picked.times * (longest + settings.retry.first_seconds)
            case do.DisturbCalls() | do.Outage() | do.Partition() | do.Freeze() | do.StepHostClock():
                return math.inf
            case do.LagWatches() | do.CutWatches() | do.LoseEvents() | do.RepeatEvents() | do.RelistWatches():
                return math.inf
        return -math.inf


def holds_back(scenario: Scenario) -> bool:
    """Tell whether anything may hold evictions back for a time that is not known beforehand."""
    policy, default = scenario.settings.policy, EvictionPolicy()
    steps = (hold.PauseEvictions, hold.Scribble, hold.ChangePolicy)
    pauses = scenario.orders is not None or any(isinstance(step.action, steps) for step in scenario.steps)
    return policy != default or scenario.settings.breaker.enabled or pauses


class _Playing:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._timeline = Timeline()
        settings = scenario.settings
        self._digest = hashlib.sha256()
        self._stage = Stage(
            self._timeline,
            settings,
            production_parsing(),
            seed=scenario.name,
            default_toleration_seconds=scenario.default_toleration_seconds,
            ready_seconds=scenario.ready_seconds,
            replicas=scenario.replicas or 1,
            auditor=self._trace,
        )
        self._oracle = Oracle(settings, lambda: self._stage.orders.orders, Disturbances(scenario).over_at)
        self._stage.cluster.subscribe(self._oracle.notice)

    def _trace(self, trace: Trace) -> None:
        call = "" if trace.call is None else trace.call.value
        moment = (
            f"{trace.at:.6f} {trace.process} {trace.number} {trace.phase.value} {call} {trace.subject} {trace.uid}\n"
        )
        self._digest.update(moment.encode())
        self._oracle.trace(trace)

    async def run(self) -> Played:
        stage, scenario = self._stage, self._scenario
        stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.orders)
        self._oracle.holding.look(virtual_now())
        stage.start_controllers()
        violations = self._oracle.violations
        try:
            for step in scenario.steps:
                await sleep_until(step.at)
                self._note_ends()
                try:
                    await stage.perform(step)
                except Impossible as why:
                    self._timeline.add(Entry(virtual_now(), What.STEP, f"{LEFT_OUT}{why}"))
                self._note_ends()
                note_hold(step.action, stage, self._oracle)
            stage.make_peace()
            if not holds_back(scenario):
                self._oracle.peace_at = virtual_now()
            await sleep_until(virtual_now() + PEACE_SECONDS)
            stage.busy()
            self._oracle.check_end(virtual_now())
            seconds = virtual_now()
            await stage.kill_controllers()
        except Exception as bug:  # noqa: BLE001, RUF100 - whatever it is, it is what was looked for
            seconds = virtual_now()
            violations.append(Violation("bug", seconds, f"{type(bug).__name__}: {bug}"))
        timeline = tuple(self._timeline)
        for entry in timeline:
            self._digest.update(f"{entry}\n".encode())
        return Played(tuple(violations), timeline, self._digest.hexdigest(), seconds, self._oracle.deletes_arrived)

    def _note_ends(self) -> None:
        for entry in list(self._timeline)[-4:]:
            if entry.what is What.KILLED:
                self._oracle.killed(entry.subject, entry.at)


def note_hold(action: do.Action, stage: Stage, oracle: Oracle) -> None:
    """Tell the oracle what a step that was done holds back or lets go, and whom it hinders."""
    if isinstance(action, hold.Scribble):
        oracle.holding.check_scribble(action.key, virtual_now())
    oracle.holding.look(virtual_now())
    if isinstance(action, hold.ChangePolicy):
        oracle.change_rules(action.rules, virtual_now())
    if isinstance(action, do.Freeze) and (process := stage.replicas[action.replica - 1].process) is not None:
        oracle.holding.hindered(process.name, virtual_now() + action.for_seconds)
