"""A scenario (given objects, steps, expectations), and the reader of its file.

``read_scenario`` raises ``Malformed`` with all problems of a file at once: file, line, and what was expected. The
format is documented in tests/scenarios/README.md.
"""

import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from fake_apiserver.node_lifecycle import NodeLifecycleSettings
from taint_eviction.core.control_state import ControlState
from taint_eviction.files.marked_yaml import Malformed, Marked, load
from taint_eviction.settings import Settings
from taint_eviction_lab.built_in.version import BuiltIn
from taint_eviction_lab.simulation.action_file import ACTIONS, OLD_ACTIONS
from taint_eviction_lab.simulation.actions import BUILT_IN, ScenarioStep
from taint_eviction_lab.simulation.expectation_file import ExpectationReading
from taint_eviction_lab.simulation.expectations import Expectation
from taint_eviction_lab.simulation.kubernetes_json import JsonObject
from taint_eviction_lab.simulation.settings_file import SettingsReading
from taint_eviction_lab.simulation.suspension_expectations import BreakerExpectation
from taint_eviction_lab.simulation.virtual_clock import RIGHT_CLOCKS, ClockSettings

GIVEN = ("nodes", "pods", "budgets", "controlState")
# How controlState was called before 0.3.
_OLD_CONTROL_STATE = "orders"
_TOP = ("name", "about", "settings", "given", "timeline", "expect", "until")

# How much of an action the timeline shows.
_MAX_TEXT = 100


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as it was read; ``until`` None: the run ends when nothing is planned any more (see ``replay``).

    ``default_toleration_seconds``: what admission gives pods that do not tolerate not-ready and unreachable; None for
    no such admission. ``ready_seconds``: how long after it was bound a pod is ready. ``replicas``: the number of
    controllers, of which the elected one acts; None: one, without election. ``control_state`` is the content of the
    ConfigMap at the start; None: there is none. ``breaker`` None: it must never open. ``clocks``: of API servers and
    controllers. ``node_lifecycle``: settings of the node lifecycle controller; None: there is none. ``built_in``: the
    model of the built-in controller; None: there is none.
    """

    file: str
    name: str
    about: str
    nodes: tuple[JsonObject, ...]
    pods: tuple[JsonObject, ...]
    steps: tuple[ScenarioStep, ...]
    expectations: tuple[Expectation, ...]
    settings: Settings
    default_toleration_seconds: int | None
    ready_seconds: float
    until: float | None
    replicas: int | None = None
    budgets: tuple[JsonObject, ...] = ()
    control_state: ControlState | None = None
    breaker: BreakerExpectation | None = None
    clocks: ClockSettings = RIGHT_CLOCKS
    node_lifecycle: NodeLifecycleSettings | None = None
    built_in: BuiltIn | None = None


def read_scenario(text: str, file: str) -> Scenario:
    """Read a scenario; ``file`` names it in problems. Raise ``Malformed`` with everything that is wrong."""
    reading = _ScenarioReading(file)
    scenario = reading.scenario(load(text, file))
    reading.check_names()
    if reading.problems:
        raise Malformed(reading.problems)
    return scenario


class _ScenarioReading(SettingsReading, ExpectationReading):
    def scenario(self, at: Marked) -> Scenario:
        top = self.fields(at, _TOP, "a scenario")
        if isinstance(at.value, dict):
            self.only(top, ("about", "given", "expect"), at.line, "a scenario")
        nothing = Marked({}, at.line, {})
        given = self.fields(top.get("given", nothing), (*GIVEN, _OLD_CONTROL_STATE), "given")
        settings = self.settings(top.get("settings", nothing))
        steps = self._steps(top)
        until = self.seconds(top["until"], "until", 0.0) if "until" in top else None
        if until is not None and steps and steps[-1].at > until:
            self.problem(top["until"].line, f"until {until:g} comes before the last step, at {steps[-1].at:g}")
        named = [(number, line) for number, line in self.replicas_named if number != BUILT_IN]
        self._check_numbers("replica", named, settings.replicas or 1)
        if settings.built_in is None:
            for line in sorted({line for number, line in self.replicas_named if number == BUILT_IN}):
                self.problem(line, "there is no built-in controller: settings lack 'builtIn'")
        self._check_numbers("API server", self.servers_named, settings.clocks.api_servers)
        nodes = self._unique([(item, self.nodes(item)) for item in self.items(given.get("nodes"), "nodes")])
        pods = self._unique([(item, self.pods(item)) for item in self.items(given.get("pods"), "pods")])
        budgets = self._unique([(item, self._budgets(item)) for item in self.items(given.get("budgets"), "budgets")])
        return Scenario(
            file=self.file,
            name=self.text(top["name"], "name") if "name" in top else PurePath(self.file).stem,
            about=self.text(top["about"], "about") if "about" in top else "",
            nodes=nodes,
            pods=pods,
            steps=steps,
            expectations=tuple(self.expectations(top["expect"])) if "expect" in top else (),
            settings=settings.settings,
            default_toleration_seconds=settings.default_toleration_seconds,
            ready_seconds=settings.ready_seconds,
            until=until,
            replicas=settings.replicas,
            budgets=budgets,
            control_state=self._given_control_state(given),
            breaker=self.breaker_expectation(top.get("expect")),
            clocks=settings.clocks,
            node_lifecycle=settings.node_lifecycle,
            built_in=settings.built_in,
        )

    def _check_numbers(self, what: str, named: list[tuple[int, int]], there_are: int) -> None:
        for number, line in named:
            if number > there_are:
                self.problem(line, f"there is no {what} {number}: settings say {there_are}")

    def _given_control_state(self, given: dict[str, Marked]) -> ControlState | None:
        old = given.get(_OLD_CONTROL_STATE)
        at = given.get("controlState", old)
        if old is not None and at is not old:
            self.problem(old.line, f"{_OLD_CONTROL_STATE!r} is the old name of 'controlState': keep one of them")
        return None if at is None else self.control_state(at)

    def _budgets(self, at: Marked) -> list[JsonObject]:
        budget = self.budget(at)
        return [] if budget is None else [budget]

    def _unique(self, given: list[tuple[Marked, list[JsonObject]]]) -> tuple[JsonObject, ...]:
        """Return all objects; note a problem for each that is given a second time."""
        seen: set[tuple[str, str]] = set()
        for item, bodies in given:
            for name in map(_name_of, bodies):
                if name in seen:
                    self.problem(item.line, f"{name[1]!r} is given twice")
                seen.add(name)
        return tuple(body for _, bodies in given for body in bodies)

    def _steps(self, top: dict[str, Marked]) -> tuple[ScenarioStep, ...]:
        steps: list[ScenarioStep] = []
        for item in self.items(top.get("timeline"), "timeline"):
            step = self._step(item)
            if step is not None:
                if steps and step.at < steps[-1].at:
                    self.problem(
                        item.line, f"at {step.at:g} comes after at {steps[-1].at:g}: steps stand in the order of time"
                    )
                steps.append(step)
        return tuple(steps)

    def _step(self, at: Marked) -> ScenarioStep | None:
        fields = self.fields(at, {"at", *ACTIONS, *OLD_ACTIONS}, "a step")
        if not isinstance(at.value, dict):
            return None
        keywords = [name for name in fields if name != "at"]
        if len(keywords) != 1 and len(at.value) == len(fields):
            seen = "none" if not keywords else " and ".join(keywords)
            self.problem(at.line, f"a step has one action, not {seen}")
        self.only(fields, ("at",), at.line, "a step")
        second = self.seconds(fields["at"], "at") if "at" in fields else 0.0
        if len(keywords) != 1:
            return None
        keyword, value = keywords[0], fields[keywords[0]]
        action = self.action(keyword, value)
        return (
            None
            if action is None
            else ScenarioStep(second, action, at.key_lines[keyword], _shown(keyword, value.plain()))
        )


def _shown(keyword: str, value: Any) -> str:
    if value is None:
        return keyword
    text = value if isinstance(value, str) else json.dumps(value).replace('"', "")
    return f"{keyword} {text}" if len(text) <= _MAX_TEXT else f"{keyword} {text[:_MAX_TEXT]}…"


def _name_of(body: JsonObject) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]
