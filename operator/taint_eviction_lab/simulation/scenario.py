"""A scenario (given objects, steps, expectations), and the reader of its file.

``read_scenario`` raises ``Malformed`` with all problems of a file at once: file, line, and what was expected. The
format is documented in tests/scenarios/README.md.
"""

import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from fake_apiserver.node_lifecycle import NodeLifecycleSettings
from taint_eviction.core.control_state import ControlState, Latch, Pause
from taint_eviction.core.text import JsonObject
from taint_eviction.files.marked_yaml import Malformed, Marked, load
from taint_eviction.settings import Settings
from taint_eviction_lab.built_in.version import BuiltIn
from taint_eviction_lab.simulation.actions import ACTIONS, OLD_ACTIONS, ScenarioStep, read_selector
from taint_eviction_lab.simulation.expectations import BreakerExpectation, Expectation, read_expectations
from taint_eviction_lab.simulation.settings_file import SettingsReading
from taint_eviction_lab.simulation.virtual_clock import RIGHT_CLOCKS, ClockSettings, server_time

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
    return parsed_scenario(load(text, file), file)


def parsed_scenario(document: Marked, file: str) -> Scenario:
    """Read a scenario from a document that has been parsed, as ``read_scenario`` does."""
    reading = _ScenarioReading(file)
    scenario = reading.scenario(document)
    if reading.problems:
        raise Malformed(reading.problems)
    return scenario


class _ScenarioReading(SettingsReading):
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
        nodes = self._unique([(item, self.nodes(item)) for item in self.items(given.get("nodes"), "nodes")])
        pods = self._unique([(item, self.pods(item)) for item in self.items(given.get("pods"), "pods")])
        budgets = self._unique(
            [(item, self._given_budgets(item)) for item in self.items(given.get("budgets"), "budgets")]
        )
        expectations = read_expectations(self, top["expect"]) if "expect" in top else []
        breaker, control_state = BreakerExpectation.read(self, top.get("expect")), self._given_control_state(given)
        self.check_used(settings.replicas or 1, settings.clocks.api_servers, settings.built_in is not None)
        return Scenario(
            file=self.file,
            name=self.text(top["name"], "name") if "name" in top else PurePath(self.file).stem,
            about=self.text(top["about"], "about") if "about" in top else "",
            nodes=nodes,
            pods=pods,
            steps=steps,
            expectations=tuple(expectations),
            settings=settings.settings,
            default_toleration_seconds=settings.default_toleration_seconds,
            ready_seconds=settings.ready_seconds,
            until=until,
            replicas=settings.replicas,
            budgets=budgets,
            control_state=control_state,
            breaker=breaker,
            clocks=settings.clocks,
            node_lifecycle=settings.node_lifecycle,
            built_in=settings.built_in,
        )

    def _given_control_state(self, given: dict[str, Marked]) -> ControlState | None:
        old = given.get(_OLD_CONTROL_STATE)
        at = given.get("controlState", old)
        if old is not None and at is not old:
            self.problem(old.line, f"{_OLD_CONTROL_STATE!r} is the old name of 'controlState': keep one of them")
        return None if at is None else self._control_state(at)

    def _control_state(self, at: Marked) -> ControlState:
        """Read the content of the ConfigMap."""
        fields = self.fields(at, ("pause", "selectors", "nodes", "namespaces", "breaker"), "controlState")
        whole = Pause() if "pause" in fields and self.boolean(fields["pause"], "pause") else None
        nodes = {self.use_node(item): Pause() for item in self.items(fields.get("nodes"), "nodes")}
        names = [self.text(item, "a namespace") for item in self.items(fields.get("namespaces"), "namespaces")]
        latch = self._latch(fields["breaker"]) if "breaker" in fields else None
        selectors = {
            read_selector(self, item, "a selector"): Pause()
            for item in self.items(fields.get("selectors"), "selectors")
        }
        return ControlState(whole, nodes, dict.fromkeys(names, Pause()), latch, selectors=selectors)

    def _latch(self, at: Marked) -> Latch:
        fields = self.fields(at, ("openSince", "controller"), "breaker")
        self.only(fields, ("openSince",), at.line, "breaker")
        since = self.seconds(fields["openSince"], "openSince") if "openSince" in fields else 0.0
        controller = self.text(fields["controller"], "controller") if "controller" in fields else ""
        return Latch(server_time(since), "given", controller=controller)

    def _given_budgets(self, at: Marked) -> list[JsonObject]:
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
        action = ACTIONS[OLD_ACTIONS.get(keyword, keyword)](self, value)
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
