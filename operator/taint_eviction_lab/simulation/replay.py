"""Plays a scenario: the production runtime on a virtual clock in a simulated cluster, then checks the expectations.

The controller starts at second 0; steps before that happen without it. The given objects exist from the beginning.
Without ``until`` the run continues for a minute after the last step and the last expected second, and then as long as
the controller has plans, at most an hour.

A replay is deterministic: the same scenario gives the same timeline, entry by entry.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.text import JsonObject
from taint_eviction.files.marked_yaml import Malformed, Problem
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.calls import Parsing
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.expectations import PodTimeline, Verdict, histories_of, judge, judge_breaker
from taint_eviction_lab.simulation.process import no_reporters
from taint_eviction_lab.simulation.scenario import Scenario
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import virtual_now
from taint_eviction_lab.simulation.virtual_loop import run_virtually

_AT_LEAST_AFTER_SECONDS = 60.0
_AT_MOST_AFTER_SECONDS = 3600.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A timeline, and each expectation with what was seen.

    ``pods``: all pods that ever existed, with their UIDs; ``histories``: what happened to each of their names.
    """

    scenario: Scenario
    timeline: tuple[TimelineEntry, ...]
    verdicts: tuple[Verdict, ...]
    ended_at: float
    pods: tuple[tuple[str, str], ...] = ()
    histories: tuple[PodTimeline, ...] = ()

    @property
    def broken(self) -> tuple[Verdict, ...]:
        """The expectations that are not met."""
        return tuple(verdict for verdict in self.verdicts if not verdict.met)

    @property
    def evicted(self) -> dict[str, tuple[float, ...]]:
        """At which seconds the API server accepted evictions, by namespace/name; empty for a pod that stayed."""
        return {history.name: tuple(entry.at for entry in history.of(What.EVICTED)) for history in self.histories}

    def as_json(self) -> dict[str, Any]:
        """Return everything for machines."""
        return {
            "file": self.scenario.file,
            "scenario": self.scenario.name,
            "about": self.scenario.about,
            "ok": not self.broken,
            "endedAt": self.ended_at,
            "timeline": [entry.as_json() for entry in self.timeline],
            "expectations": [
                {
                    "pod": verdict.pod,
                    "line": verdict.line,
                    "expected": verdict.expected,
                    "seen": verdict.seen,
                    "ok": verdict.met,
                }
                for verdict in self.verdicts
            ],
        }


def replay(
    scenario: Scenario,
    parsing: Parsing,
    reporters: Callable[[Timeline, Gate], Iterable[Reporter]] = no_reporters,
    leaves_out: bool = False,
) -> ReplayResult:
    """Play a scenario; raise ``Malformed`` if a step is impossible when its time comes.

    ``reporters`` returns reporters besides the timeline's own, new ones for each controller process.
    ``leaves_out``: an impossible step is left out instead, and the timeline says so.
    """
    begin = min([0.0, *(step.at for step in scenario.steps)])
    return run_virtually(_Replay(scenario, parsing, reporters, leaves_out).run(), begin)


class _Replay:
    def __init__(
        self,
        scenario: Scenario,
        parsing: Parsing,
        reporters: Callable[[Timeline, Gate], Iterable[Reporter]],
        leaves_out: bool,
    ) -> None:
        self._scenario = scenario
        self._leaves_out = leaves_out
        self._timeline = Timeline()
        self._stage = ReplayStage(
            self._timeline,
            scenario.settings,
            parsing,
            seed=scenario.name,
            default_toleration_seconds=scenario.default_toleration_seconds,
            ready_seconds=scenario.ready_seconds,
            reporters=reporters,
            replicas=scenario.replicas,
            clocks=scenario.clocks,
            node_lifecycle=scenario.node_lifecycle,
            built_in=scenario.built_in,
        )
        # Every pod that ever existed, so that a pod that is already gone is judged, too.
        self._names: set[NamespacedName] = set()
        self._pods: set[tuple[str, str]] = set()

    async def run(self) -> ReplayResult:
        self._stage.cluster.recorder.subscribe(lambda change: self._note_name(change.body) if change.is_pod else None)
        scenario = self._scenario
        self._stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.control_state)
        await self._perform(before_start=True)
        await sleep_until(0.0)
        self._stage.start_controllers()
        await self._perform(before_start=False)
        await self._run_out()
        ended_at = virtual_now()
        histories = histories_of(self._timeline, {str(key): self._end_of(key) for key in self._names})
        self._stage.busy()  # Raises the bug that has ended the controller, if one did.
        timeline = tuple(self._timeline)
        await self._stage.kill_controllers()
        verdicts = judge(scenario.expectations, histories) + judge_breaker(scenario.breaker, self._timeline)
        pods = tuple(sorted(self._pods))
        return ReplayResult(self._scenario, timeline, verdicts, ended_at, pods, tuple(histories))

    def _note_name(self, body: JsonObject) -> None:
        key = NamespacedName(body["metadata"]["namespace"], body["metadata"]["name"])
        self._names.add(key)
        self._pods.add((str(key), body["metadata"]["uid"]))

    async def _perform(self, before_start: bool) -> None:
        for step in self._scenario.steps:
            if (step.at < 0) is not before_start:
                continue
            await sleep_until(step.at)
            try:
                await step.perform(self._stage)
            except Impossible as why:
                if self._leaves_out:
                    self._timeline.add(TimelineEntry(virtual_now(), What.LEFT_OUT, step.text, why=str(why)))
                    continue
                raise Malformed([Problem(self._scenario.file, step.line, f"at {step.at:g}: {why}")]) from why

    async def _run_out(self) -> None:
        if self._scenario.until is not None:
            await sleep_until(self._scenario.until)
            return
        last = max([0.0, *(step.at for step in self._scenario.steps), *self._expected_seconds()])
        await sleep_until(last + _AT_LEAST_AFTER_SECONDS)
        while self._stage.busy() and virtual_now() < last + _AT_MOST_AFTER_SECONDS:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(_LOOK_SECONDS)

    def _expected_seconds(self) -> list[float]:
        claims = [claim for expectation in self._scenario.expectations for claim in expectation.claims]
        breaker = () if self._scenario.breaker is None else self._scenario.breaker.runs_until()
        return [*breaker, *(seconds for claim in claims for seconds in claim.runs_until())]

    def _end_of(self, key: NamespacedName) -> tuple[str, str, tuple[int | None, ...]]:
        pod = self._stage.cluster.pod(key)
        if pod is None:
            return "gone", "none", ()
        node_name = kube.node_name_of(pod)
        state = "terminating" if kube.is_terminating(pod) else f"on {node_name}" if node_name else "unbound"
        return state, kube.condition_status(pod) or "none", kube.toleration_seconds(pod)


async def sleep_until(at: float) -> None:
    """Wait until an instant of the scenario."""
    await asyncio.sleep(max(0.0, at - virtual_now()))
