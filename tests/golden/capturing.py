"""Plays a scenario up to a moment, and returns what people and machines read then.

The texts come from production code; only the process that answers is made up. Not captured: what commands read from the
cluster themselves, and texts of the runtime (the log of failed calls).
"""

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import click
from pythonjsonlogger.json import JsonFormatter
from rich.console import Console
from tests.golden.moments import ON_SCREENS, REMEMBERED, WIDTHS, SecondOfScenario
from tests.stage.catalogue import scenario_file

from taint_eviction.core.control_state import Release
from taint_eviction.core.events import Event
from taint_eviction.core.instants import Moment
from taint_eviction.kube.release_query import release_text
from taint_eviction.reporting.history_endpoint import HistoryEndpoint
from taint_eviction.reporting.log_reporter import LogReporter
from taint_eviction.reporting.metrics import Metrics
from taint_eviction.reporting.outcome_memory import OutcomeMemory
from taint_eviction.reporting.readings import readings_of
from taint_eviction.reporting.reporters import LeaderReporter
from taint_eviction.reporting.status_document import LeaseSeen, ProcessState
from taint_eviction.reporting.status_endpoints import StatusEndpoints
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction.settings import Settings
from taint_eviction_ctl.cli.asking import Document
from taint_eviction_ctl.cli.breaker_views import breaker_lines
from taint_eviction_ctl.cli.compare_views import comparison_lines
from taint_eviction_ctl.cli.explain import explanation_lines
from taint_eviction_ctl.cli.history import history_lines, past_lines
from taint_eviction_ctl.cli.status import screen
from taint_eviction_ctl.cli.status_views import status_lines
from taint_eviction_lab.simulation.process import SimulatedProcess
from taint_eviction_lab.simulation.replay import sleep_until
from taint_eviction_lab.simulation.scenario import Scenario, read_scenario
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing

# So many pods are listed, explained and remembered: the first ones.
_PODS = 3
_OF_RESTORING = ("rememberedSince", "restoredFrom")
# So many of the last lines of the log.
_LOG_LINES = 12


def captured(moment: SecondOfScenario) -> str:
    """Return what is read at the moment, as one text with a heading for each part."""
    file = scenario_file(moment.scenario)
    scenario = read_scenario(file.read_text(encoding="utf-8"), file.name)
    begin = min([0.0, *(step.at for step in scenario.steps)])
    logger = logging.getLogger("taint_eviction")
    log, level, propagates = _Log(), logger.level, logger.propagate
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        parts = run_virtually(_Play(scenario, moment.at, log).parts(), begin)
    finally:
        logger.removeHandler(log)
        logger.setLevel(level)
        logger.propagate = propagates
    return "".join(f"== {name}\n{text}\n" for name, text in parts.items())


class _Log(logging.Handler):
    """The lines of the log as a collector reads them, without the time at which they were written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(JsonFormatter("%(levelname)s %(message)s", rename_fields={"levelname": "level"}))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class _Newest:
    """Reports to what the newest process has: a restart begins with an empty memory."""

    def __init__(self, settings: Settings, gate: Gate) -> None:
        dry_run = settings.dry_run
        self.gate = gate
        self.memory = OutcomeMemory()
        self.metrics = Metrics("VERSION", dataclasses.replace(settings, metrics_by_namespace=True))
        counting = LeaderReporter(gate, [self.metrics])
        self._reporters: list[Reporter] = [self.memory, counting, LogReporter(gate, dry_run, settings.breaker.enabled)]

    def report(self, effect: Event, now: Moment) -> None:
        for reporter in self._reporters:
            reporter.report(effect, now)


class _Play:
    def __init__(self, scenario: Scenario, until: float, log: _Log) -> None:
        self._scenario, self._until, self._log = scenario, until, log
        self._newest: _Newest
        self._stage = ReplayStage(
            Timeline(),
            scenario.settings,
            production_parsing(),
            seed=scenario.name,
            default_toleration_seconds=scenario.default_toleration_seconds,
            ready_seconds=scenario.ready_seconds,
            reporters=self._reporters,
            replicas=scenario.replicas,
            clocks=scenario.clocks,
            node_lifecycle=scenario.node_lifecycle,
            built_in=scenario.built_in,
        )

    def _reporters(self, _timeline: Timeline, gate: Gate) -> Iterable[Reporter]:
        self._newest = _Newest(self._scenario.settings, gate)
        return [self._newest]

    async def parts(self) -> dict[str, str]:
        """Play until the moment, and return the parts by their headings."""
        scenario, stage = self._scenario, self._stage
        stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.control_state)
        started = False
        for step in [*scenario.steps, None]:
            at = self._until if step is None else min(step.at, self._until)
            if at >= 0 and not started:
                await sleep_until(0.0)
                stage.start_controllers()
                started = True
            await sleep_until(at)
            if step is None or step.at > self._until:
                break
            await step.perform(stage)
        process = stage.replicas[0].process
        assert isinstance(process, SimulatedProcess), "no controller runs at this moment"
        # Read before the end of the processes: it comes for calls under way in any order.
        parts = {**await self._read(process), "log": "\n".join(self._log.lines[-_LOG_LINES:])}
        await stage.kill_controllers()
        return parts

    async def _read(self, process: SimulatedProcess) -> dict[str, str]:
        live, newest, settings = process.live, self._newest, self._scenario.settings
        controller, clock, gate = live.controller, live.clock, newest.gate

        def state() -> ProcessState:
            ready, why_not = process.engine.readiness()
            lease = LeaseSeen("kube-system", "taint-eviction-controller", "replica-1")
            return ProcessState(
                "VERSION", "replica-1", gate.may_act(), lease, settings.dry_run, "" if ready else why_not
            )

        history = HistoryEndpoint(newest.memory, clock, state)
        endpoints = StatusEndpoints(controller.status, clock, state, process.shadow, history.recent)
        _, status = await endpoints.status({"limit": str(_PODS)})
        _, whole = await endpoints.status({})
        _, released = await endpoints.status({"limit": "0", "release": release_text(Release(reset=True))})
        _, past = await history.history({"limit": str(_PODS)})
        parts = {
            "status": _text(status_lines(status)),
            **(_screens(whole) if self._scenario.name.removesuffix(".yaml") in ON_SCREENS else {}),
            "status, JSON": _json(status),
            "breaker": _text(breaker_lines(status, released)),
            "history": _text(history_lines(_told(past))),
            # Nothing is restored here, and the made-up process has begun at no time.
            "history, JSON": _json({name: past[name] for name in past if name not in _OF_RESTORING}),
        }
        if process.shadow is not None:
            _, compared = await endpoints.compare({})
            parts["compare"] = _text(comparison_lines(compared))
        if self._scenario.name.removesuffix(".yaml") in REMEMBERED:
            _, past = await history.history({})
            return parts | _remembered(past)
        pods = [f"{pod['namespace']}/{pod['name']}" for pod in status["pending"]]
        for pod in pods or sorted(self._named())[:1]:
            _, explanation = await endpoints.explain({"pod": pod})
            parts[f"explain {pod}"] = _text(explanation_lines(explanation))
            parts[f"explain {pod}, JSON"] = _json(explanation)
        assert isinstance(clock, ServerClock)
        newest.metrics.read_from(
            readings_of(
                process.engine,
                clock,
                gate,
                policy_invalid=lambda: False,
                credential_failures=lambda: 0,
                certificate_ends=dict,
                keeper=None,
            )
        )
        parts["metrics that are not zero"] = _samples(newest.metrics.render().decode())
        return parts

    def _named(self) -> set[str]:
        return {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in self._scenario.pods}


def _told(past: Mapping[str, Any]) -> dict[str, Any]:
    """Return one replica's history as ``history`` puts those of all together."""
    told = [{**each, "toldBy": past["identity"], "dryRun": past["dryRun"]} for each in past["outcomes"]]
    return {**past, "outcomes": told}


def _remembered(past: Mapping[str, Any]) -> dict[str, str]:
    """Return what is said of the pods that have left: of all, and of each."""
    told = _told(past)
    # As if it had remembered from the beginning.
    told["sources"] = [{"name": past["identity"], "since": "2030-01-01T00:00:00Z", "problem": None}]
    asked = {"since": "2030-01-01T00:00:00Z", "until": "2030-01-01T00:30:00Z", "against": "built-in"}
    against = _text(history_lines({**told, **asked}))
    pods = {f"{each['namespace']}/{each['name']}": each for each in told["outcomes"]}
    explained = {f"explain {pod}": _text(past_lines([each], told)) for pod, each in pods.items()}
    return {"history --since 00:00 --until 00:30 --against built-in": against, **explained}


def _screens(document: Document) -> dict[str, str]:
    """Return what `status --watch` shows on terminals with 24 lines."""
    shown = {width: screen(document, None, Console(width=width, height=24)) for width in WIDTHS}
    return {
        f"status --watch, {width} columns": "\n".join(line.plain.rstrip() for line in lines)
        for width, lines in shown.items()
    }


def _text(lines: Iterable[str]) -> str:
    return "\n".join(click.unstyle(line) for line in lines)


def _json(document: Mapping[str, Any]) -> str:
    """Return a line for each field, and for each object of a field that lists some."""
    lines: list[str] = []
    for name, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{name}:", *(f"  {json.dumps(each, ensure_ascii=False)}" for each in value)]
        else:
            lines.append(f"{name}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines)


def _samples(exposition: str) -> str:
    lines = (line for line in exposition.splitlines() if not line.startswith("#") and "_bucket" not in line)
    samples = ((name, float(value)) for name, value in (line.rsplit(" ", 1) for line in lines))
    return "\n".join(f"{name} {value:.6g}" for name, value in samples if value)
