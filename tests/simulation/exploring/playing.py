"""Plays one document with the oracle: a phase with faults, then a phase without."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml
from tests.simulation.exploring.adopting import GIVEN_BACK_SECONDS, disturbed
from tests.simulation.exploring.dry_runs import DryRunReports
from tests.simulation.exploring.excuses import Disturbances, holds_back
from tests.simulation.exploring.oracle import ExplorationOracle
from tests.simulation.exploring.seen import BrokenRule

from taint_eviction.files.marked_yaml import Marked
from taint_eviction.runtime.leadership import Elector
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.audit import Trace
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.replay import sleep_until
from taint_eviction_lab.simulation.replica import BUILT_IN
from taint_eviction_lab.simulation.scenario import Scenario, parsed_scenario
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import virtual_now
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.simulation.watches import Streams
from taint_eviction_lab.wiring import production_parsing, production_reporters

# The phase without faults: the longest tolerance (120 s) ends, and that is noticed although an event was lost.
PEACE_SECONDS = 140.0
# The timeline marks steps that were impossible with this text.
LEFT_OUT = "left out: "

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Played:
    """One run. ``digest`` covers everything that happened, call by call: equal runs have equal digests."""

    violations: tuple[BrokenRule, ...]
    timeline: tuple[TimelineEntry, ...]
    digest: str
    seconds: float
    deletes: int

    @property
    def rule(self) -> str:
        """The first rule that was broken, "" if none was."""
        return self.violations[0].rule if self.violations else ""

    @property
    def evicted(self) -> list[tuple[int, str]]:
        """The evicted pods, each with the second in which it was."""
        return [(round(entry.at), entry.subject) for entry in self.timeline if entry.what is What.EVICTED]


def as_text(document: JsonObject) -> str:
    """Write a document as a scenario file."""
    return yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=None, width=120)


def read_document(document: JsonObject) -> Scenario:
    """Read a document as ``read_scenario`` reads its text, whose parsing would take a fifth of a run."""
    return parsed_scenario(_marked(document), str(document["name"]))


def _marked(value: Any) -> Marked:
    """Return a value as if all of it stood in the first line of a file."""
    if isinstance(value, Mapping):
        return Marked({key: _marked(each) for key, each in value.items()}, 1, dict.fromkeys(value, 1))
    return Marked([_marked(each) for each in value] if isinstance(value, list | tuple) else value, 1, {})


def play(document: JsonObject, *, enough: Callable[[str], bool] = lambda _: False) -> Played:
    """Play a document and judge it; an exception that ends the controller is a violation, too.

    The run ends early once a rule is broken that is ``enough``.
    """
    return _play(read_document(document), enough)


def play_scenario(scenario: Scenario) -> Played:
    """Play a scenario as an exploration does; its expectations are not checked."""
    return _play(scenario, lambda _: False)


def _play(scenario: Scenario, enough: Callable[[str], bool]) -> Played:
    with silenced():
        return run_virtually(_Playing(scenario, enough).run(), min([0.0, *(step.at for step in scenario.steps)]))


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Disable logging: thousands of runs would write too much."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class _PostedEvents(Timeline):
    """Receives the Kubernetes events of one process, each with whether the process leads."""

    def __init__(self, gate: Gate, note: Callable[[TimelineEntry, bool], None]) -> None:
        super().__init__()
        self._gate = gate
        self._note = note

    def add(self, entry: TimelineEntry) -> None:
        """Pass the event on."""
        self._note(entry, self._gate.may_act())


class _Stage(ReplayStage):
    """A stage on which the built-in controller's watches are disturbed only by steps that name it.

    Whether it ignores a note is judged by what it has seen.
    """

    def streams(self, watch: str = "all", replica: int | None = None) -> list[Streams]:
        """Return the watches of one replica, or (None) of all of this controller's."""
        numbers = range(1, len(self.replicas) + 1) if replica is None else [replica]
        return [each for number in numbers for each in super(_Stage, self).streams(watch, number)]


class _Playing:
    def __init__(self, scenario: Scenario, enough: Callable[[str], bool]) -> None:
        self._scenario = scenario
        self._enough = enough
        self._asked = 0  # Of how many violations ``enough`` was asked.
        self._running: asyncio.Task[Any] | None = None  # None: it does not run, or has found enough.
        self._timeline = Timeline()
        settings = scenario.settings
        self._digest = hashlib.sha256()
        self._stage = _Stage(
            self._timeline,
            settings,
            production_parsing(),
            seed=scenario.name,
            default_toleration_seconds=scenario.default_toleration_seconds,
            ready_seconds=scenario.ready_seconds,
            replicas=scenario.replicas or 1,
            clocks=scenario.clocks,
            node_lifecycle=scenario.node_lifecycle,
            built_in=scenario.built_in,
            auditor=self._trace,
            reporters=self._reporters,
        )
        disturbances = Disturbances(scenario)
        self._late_seconds = disturbances.late_seconds
        self._oracle = ExplorationOracle(
            settings,
            lambda: self._stage.control_state.control_state,
            disturbances,
            disturbed=disturbed(scenario),
        )
        self._stage.cluster.recorder.subscribe(self._oracle.notice)

    def _reporters(self, _: Timeline, gate: Gate) -> Iterable[Reporter]:
        """Return the reporters of one process."""
        yield from production_reporters(_PostedEvents(gate, self._note_posted), gate)
        if self._scenario.settings.dry_run and isinstance(gate, Elector):
            oracle, identity = self._oracle, gate.identity
            reported, breaker = partial(oracle.check_reported, identity), partial(oracle.open_breaker, identity)
            yield DryRunReports(reported, oracle.reported_again, breaker)

    def _note_posted(self, entry: TimelineEntry, leads: bool) -> None:
        """Check that only the leader reports a cancelled eviction.

        An event about a countdown that was taken over mentions what the built-in controller then posts; it reports what
        this process has done while it led.
        """
        if "TaintManagerEviction: Cancelling" in entry.why and not leads:
            self._oracle.violations.append(
                BrokenRule("reported by a standby", entry.at, f"{entry.subject}: {entry.why}")
            )

    def _trace(self, trace: Trace) -> None:
        call = "" if trace.call is None else trace.call.value
        moment = (
            f"{trace.at:.6f} {trace.process} {trace.number} {trace.phase.value} {call} {trace.subject} {trace.uid}\n"
        )
        self._digest.update(moment.encode())
        self._oracle.trace(trace)
        new, self._asked = self._oracle.violations[self._asked :], len(self._oracle.violations)
        if self._running is not None and any(self._enough(violation.rule) for violation in new):
            self._running.cancel()
            self._running = None

    async def run(self) -> Played:
        stage, scenario = self._stage, self._scenario
        self._running = asyncio.current_task()
        stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.control_state)
        self._oracle.suspension.evaluate(virtual_now())
        violations = self._oracle.violations
        try:
            await self._perform([step for step in scenario.steps if step.at < 0])
            await sleep_until(0.0)
            stage.start_controllers()
            await self._perform([step for step in scenario.steps if step.at >= 0])
            stage.make_peace()
            if not holds_back(scenario):
                self._oracle.peace_at = virtual_now() + self._late_seconds
            adopts = scenario.settings.adoption.enabled
            await sleep_until(virtual_now() + self._late_seconds + (GIVEN_BACK_SECONDS if adopts else PEACE_SECONDS))
            stage.busy()
            self._oracle.check_end(virtual_now())
            seconds = virtual_now()
            await stage.kill_controllers()
        except asyncio.CancelledError:
            if self._running is not None:
                raise
            seconds = virtual_now()
            await stage.kill_controllers()
        except Exception as bug:  # noqa: BLE001, RUF100 - any exception is a finding
            seconds = virtual_now()
            violations.append(BrokenRule("bug", seconds, f"{type(bug).__name__}: {bug}"))
        timeline = tuple(self._timeline)
        for entry in timeline:
            self._digest.update(f"{entry}\n".encode())
        return Played(tuple(violations), timeline, self._digest.hexdigest(), seconds, self._oracle.deletes_arrived)

    async def _perform(self, steps: list[do.ScenarioStep]) -> None:
        for step in steps:
            await sleep_until(step.at)
            self._note_ends()
            try:
                await step.perform(self._stage)
            except Impossible as why:
                self._timeline.add(TimelineEntry(virtual_now(), What.STEP, f"{LEFT_OUT}{why}"))
            self._note_ends()
            note_hold(step.action, self._stage, self._oracle)

    def _note_ends(self) -> None:
        for entry in list(self._timeline)[-4:]:
            if entry.what is What.KILLED:
                self._oracle.killed(entry.subject, entry.at)


def note_hold(action: do.Action, stage: ReplayStage, oracle: ExplorationOracle) -> None:
    """Tell the oracle what a step holds back or releases, and which process it freezes."""
    if isinstance(action, do.Scribble):
        oracle.suspension.check_scribble(action.key, action.value, virtual_now())
    oracle.suspension.evaluate(virtual_now())
    if isinstance(action, do.Restart) and action.adopts is not None:
        oracle.adoption.restart(action.replica, action.adopts)
    if isinstance(action, do.ChangePolicy):
        oracle.change_rules(action.rules, virtual_now())
    if isinstance(action, do.Freeze) and action.replica != BUILT_IN:
        process = stage.replicas[action.replica - 1].process
        if process is not None:
            oracle.suspension.hindered(process.name, virtual_now() + action.for_seconds)
