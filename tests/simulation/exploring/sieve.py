"""Sieve's three fault patterns over scenarios: crash around each call, let one watch lag by events, drop single events.

After a disturbance has stopped and everything was listed again, the end state and the number of evictions must be those
of the undisturbed run. The undisturbed run is the scenario itself, with new lists every minute and a phase without
faults after its last step, so that both runs end by the same rule.

Reference: Sun et al., "Automatic Reliability Testing For Cluster Management Controllers", OSDI 2022.
"""

import asyncio
import contextvars
import dataclasses
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import click
from tests.simulation.exploring.adopting import is_built_in
from tests.simulation.exploring.dry_runs import DryRunReports
from tests.simulation.exploring.oracle import ExplorationOracle
from tests.simulation.exploring.playing import note_hold, silenced
from tests.simulation.exploring.truth import due_at
from tests.stage.catalogue import scenario_files

from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.actions import RestartLifecycle, ShutDown
from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.recorder import RecordedChange
from taint_eviction_lab.simulation.replay import sleep_until
from taint_eviction_lab.simulation.scenario import Scenario, read_scenario
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import virtual_now
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing

LAGS = (1, 2, 5)
# In a scenario with more than MANY_CALLS calls, crashes are tried only around MAX_CALLS of them, and as many of its
# events are dropped, evenly spread: most calls are alike, and each run is long.
MANY_CALLS, MAX_CALLS = 500, 60
_MAX_LINES, _LONGEST_LINE = 5, 240
_RESYNC_SECONDS = 60.0
# Time for a new list, for retries and for restarts.
_AFTER_SECONDS = 100.0
_CRASH_SECONDS = 0.5


class RightDifference(NamedTuple):
    """Why some disturbed runs of a scenario rightly end differently, and how the names of these disturbances begin."""

    why: str
    by: tuple[str, ...]

    def covers(self, disturbance: str) -> bool:
        """Return whether this reason covers a disturbance."""
        return disturbance.startswith(self.by)


_FLAPS = "an untaint lost without a trace: the taint seems to have stayed, and nothing tells it from one that did"
_IN_TIME = "which pods are evicted before another event depends on how soon each is tried"
_FIRST_BEARER = "if the taint or the pod is observed late, the first pod of the name is already gone"
_UNSEEN = "the breaker does not count a node whose taint the watch does not deliver in time"
_FORGOTTEN = "nodes whose pods a predecessor has evicted are not counted by a new process"
_BACKLOG = "a new process does not know that people know what a pause has held, and opens again"
_UNPROVEN = "a new process counts a taint without a date only where a pod proves that it is new"
_WHO = "which of two pods a budget admits is not promised"
_MISDATED = "objects are dated wrongly: how early their taints seem to be set depends on when the watch was last heard"
_MISDATED = "the oracle believes the date of the condition Ready, and that a pod is as old as the scenario"
_UNKNOWN = (
    "the oracle knows no graceful shutdowns, nodes that do not count, pauses that end by themselves, patience that"
    " begins anew, nor marks of others, nor machines that move away"
)
_TOO_LITTLE_LEFT = "after a crash too little is left to be adopted"
_LATE = ("lag nodes", "drop")
RIGHTLY_DIFFERENT = {
    "adopt-a-copy-of-an-adopted-pod": RightDifference("notes are looked for every hour", ("",)),
    "adopt-from-is-set": RightDifference(_TOO_LITTLE_LEFT, ("",)),
    "adopt-not-tolerances-of-less-than-ten-seconds": RightDifference(_TOO_LITTLE_LEFT, ("crash", "lag", "drop")),
    "adopt-under-a-budget": RightDifference(_IN_TIME, ("crash", "lag", "drop")),
    "breaker-closes-by-itself": RightDifference(
        "a new process that has not seen the cause waits for a whole window", ("crash", "drop")
    ),
    "breaker-counts-lifecycle-taints-that-people-set": RightDifference(_UNPROVEN, ("crash",)),
    "breaker-counts-nodes-by-number": RightDifference(_FORGOTTEN, ("crash", *_LATE)),
    "breaker-stays-open-until-a-new-process-has-observed": RightDifference(_UNSEEN, _LATE),
    "breaker-does-not-close-by-itself": RightDifference(_UNSEEN, _LATE),
    "breaker-does-not-count-a-node-that-is-ready-again": RightDifference(_UNSEEN, _LATE),
    "breaker-does-not-count-nodes-that-hibernate": RightDifference(_UNKNOWN, ("",)),
    "breaker-does-not-count-pods-after-a-pause": RightDifference(_BACKLOG, ("crash",)),
    "breaker-does-not-count-pods-after-a-pause-of-their-node": RightDifference(_BACKLOG, ("crash",)),
    "breaker-holds-a-lost-zone": RightDifference(_UNSEEN, _LATE),
    "breaker-does-not-know-of-paused-pods-that-a-former-leader-tried-in-vain": RightDifference(
        "a new process begins with its limit unused, and lets one pod more or less go", ("crash",)
    ),
    "breaker-leaves-control-plane-nodes-out": RightDifference(_UNKNOWN, ("",)),
    "breaker-leaves-nodes-excluded-from-disruption-out": RightDifference(_UNKNOWN, ("",)),
    "breaker-unreadable-while-it-is-open": RightDifference(_UNSEEN, ("drop",)),
    "breaker-opens-again-after-a-reset": RightDifference(_UNSEEN, _LATE),
    "breaker-opens-again-where-its-latch-was-not-written": RightDifference(_UNSEEN, _LATE),
    "breaker-opens-before-anybody-goes": RightDifference(_UNSEEN, ("lag nodes",)),
    "breaker-opens-in-a-slow-wave": RightDifference(_FORGOTTEN, ("crash",)),
    "breaker-opens-in-the-middle-of-evictions": RightDifference(_FORGOTTEN, ("crash", *_LATE)),
    "breaker-sees-a-partition-before-pods-that-tolerate-nothing-go": RightDifference(_UNSEEN, _LATE),
    "breaker-stays-open-through-a-failover": RightDifference(_UNSEEN, _LATE),
    "breaker-stays-open-when-its-configmap-is-lost": RightDifference(_UNSEEN, _LATE),
    "budget-blocks-then-frees": RightDifference(_IN_TIME, ("crash", *_LATE)),
    "budget-blocks-then-the-pod-is-deleted": RightDifference(_WHO, ("crash",)),
    "budget-patience-begins-after-a-pause": RightDifference(_WHO, ("crash",)),
    "budget-patience-begins-anew-after-a-hold": RightDifference(_UNKNOWN, ("",)),
    "budget-patience-begins-anew-after-an-outage": RightDifference(_WHO, ("crash",)),
    "budget-patience-begins-anew-with-the-lead": RightDifference(_UNKNOWN, ("",)),
    "cancel-flapping-taint": RightDifference(_FLAPS, ("drop",)),
    "cancel-then-taint-again-begins-anew": RightDifference(_FLAPS, ("drop",)),
    "cancel-untaint-stops-the-rest": RightDifference(_IN_TIME, ("crash", *_LATE)),
    "clock-all-api-servers-are-stepped": RightDifference(_MISDATED, ("",)),
    "clock-first-api-server-that-is-back-an-hour-ahead": RightDifference(
        "explorations begin no outage before the controller starts, so only the server that is ahead tells the time",
        ("",),
    ),
    "clock-of-kube-controller-manager-behind": RightDifference(_MISDATED, ("",)),
    "clock-of-the-api-server-that-binds-behind": RightDifference(_MISDATED, ("",)),
    "clock-quartz-that-runs-fast": RightDifference(_MISDATED, ("",)),
    "clock-two-api-servers-replaced": RightDifference(
        "a new process learns the time from the one server that is left", ("crash",)
    ),
    "evict-reported-by-the-leader-only": RightDifference(_IN_TIME, ("crash",)),
    "hold-for-a-graceful-shutdown-that-only-the-live-read-shows": RightDifference(_UNKNOWN, ("",)),
    "limit-token-of-a-blocked-eviction-comes-back": RightDifference(
        "where the taint is heard of late, both come at once, and the limit lets one go", ("drop",)
    ),
    "limit-untaint-stops-waiting-pods": RightDifference(_IN_TIME, ("crash", *_LATE)),
    "lost-node-is-tainted-after-a-restart-by-a-clock-that-is-behind": RightDifference(_MISDATED, ("",)),
    "lost-node-whose-kubelet-has-a-clock-that-is-behind": RightDifference(_MISDATED, ("",)),
    "out-of-service-breaker-stays-shut-when-one-is-untainted": RightDifference(_UNPROVEN, ("crash",)),
    "pause-ends-by-itself": RightDifference(_UNKNOWN, ("",)),
    "pause-ends-in-time-though-clocks-are-stepped": RightDifference(_UNKNOWN, ("",)),
    "pause-of-a-node-ends-by-itself": RightDifference(_UNKNOWN, ("",)),
    "recreate-again-and-again-on-a-tainted-node": RightDifference(_FIRST_BEARER, ("lag pods", "drop")),
    "recreate-statefulset-pod-is-evicted-again": RightDifference(_FIRST_BEARER, _LATE),
    "recreate-unbound-waits-for-its-node": RightDifference(_FIRST_BEARER, _LATE),
    "recreate-while-predecessors-delete-is-under-way": RightDifference(_IN_TIME, ("crash",)),
    "retry-lost-answer": RightDifference(_FIRST_BEARER, _LATE),
    "budget-patience-leaves-a-moving-virtual-machine-out": RightDifference(_UNKNOWN, ("",)),
    "order-own-pause-does-not-count": RightDifference(
        "a new process does not know of pauses that have ended, and lets the wait begin anew", ("crash",)
    ),
    "shadow-finds-an-eviction-that-was-given-up": RightDifference(
        "the condition that is left on the pod is another controller's", ("",)
    ),
    "stay-malformed-taint": RightDifference(
        "what cannot be read is not decided on, and the oracle does not know what was known before", ("",)
    ),
    "stay-node-watch-lags-longer-than-the-taint-lived": RightDifference(
        "a new process lists the taint while it is there", ("crash",)
    ),
}


# For all scenarios with adoption: if this controller's watches lag, the built-in controller acts first.
_ADOPTED_IN_TIME = RightDifference("a countdown that is heard of too late is not adopted in time", ("lag", "drop"))


def right_difference(name: str) -> RightDifference | None:
    """Return what excuses differences of a scenario, None if nothing does."""
    return RIGHTLY_DIFFERENT.get(name, _ADOPTED_IN_TIME if name.startswith("adopt-") else None)


@dataclass(frozen=True)
class Disturbance:
    """A crash at a phase of the ``number``-th call, a lag of ``number`` events, or the loss of the event with that
    version.
    """

    pattern: str
    number: int = 0
    phase: Phase = Phase.SENT
    kind: str = ""

    def __str__(self) -> str:
        where = {"crash": f"{self.phase.value} {self.number}", "lag": f"{self.kind} by {self.number}"}
        return f"{self.pattern} {where.get(self.pattern, str(self.number))}"


UNDISTURBED = Disturbance("undisturbed")


@dataclass(frozen=True)
class Ended:
    """How a run ended: the state and evictions of each pod name, broken rules, its ``calls`` and ``versions``."""

    states: dict[str, str]
    evictions: dict[str, int]
    broken: tuple[str, ...]
    calls: int
    versions: tuple[int, ...]
    seconds: float


class _Sieved:
    def __init__(self, scenario: Scenario, disturbance: Disturbance, until: float | None) -> None:
        watch = dataclasses.replace(scenario.settings.watch, resync_seconds=_RESYNC_SECONDS)
        settings = dataclasses.replace(scenario.settings, watch=watch)
        self._scenario = scenario
        self._disturbance = disturbance
        self._until = until
        self._timeline = Timeline()
        self._stage = ReplayStage(
            self._timeline,
            settings,
            production_parsing(),
            seed=scenario.name,
            default_toleration_seconds=scenario.default_toleration_seconds,
            ready_seconds=scenario.ready_seconds,
            replicas=scenario.replicas,
            clocks=scenario.clocks,
            node_lifecycle=scenario.node_lifecycle,
            auditor=self._trace,
            reporters=self._reporters,
            built_in=scenario.built_in,
        )
        control_state = self._stage.control_state
        self._oracle = ExplorationOracle(
            settings, lambda: control_state.control_state, elected=scenario.replicas is not None
        )
        self._stage.cluster.recorder.subscribe(self._notice)
        self._calls = 0
        self._versions: list[int] = []
        self._crashes: list[asyncio.Task[None]] = []

    def _reporters(self, _timeline: Timeline, _gate: Gate) -> Iterator[Reporter]:
        if self._scenario.settings.dry_run:
            oracle, process = self._oracle, "the dry run"
            reported, breaker = partial(oracle.check_reported, process), partial(oracle.open_breaker, process)
            yield DryRunReports(reported, oracle.reported_again, breaker)

    def _notice(self, change: RecordedChange) -> None:
        self._oracle.notice(change)
        if virtual_now() > 0:
            self._versions.append(int(change.body["metadata"]["resourceVersion"]))

    def _trace(self, trace: Trace) -> None:
        self._oracle.trace(trace)
        if trace.call in (CallKind.VERSION, None) or is_built_in(trace.process):
            return
        self._calls += trace.phase is Phase.SENT
        crash = self._disturbance
        phase = Phase.CARRIED_OUT if trace.phase is Phase.REFUSED else trace.phase
        if crash.pattern == "crash" and phase is crash.phase and self._calls == crash.number:
            process = self._stage.replicas[0].process
            if process is not None and not self._crashes:
                process.fall_silent()
                self._crashes.append(contextvars.Context().run(asyncio.ensure_future, self._crash(trace.process)))

    async def _crash(self, process: str) -> None:
        self._oracle.killed(process, virtual_now())
        await self._stage.replicas[0].restart(_CRASH_SECONDS)

    async def run(self) -> Ended:
        stage, scenario, disturbance = self._stage, self._scenario, self._disturbance
        stage.give(scenario.nodes, scenario.pods, scenario.budgets, scenario.control_state)
        self._oracle.suspension.evaluate(virtual_now())
        await self._perform(lambda at: at < 0)
        await sleep_until(0.0)
        stage.start_controllers()
        for replica in stage.replicas:
            streams = {"nodes": replica.nodes, "pods": replica.pods}
            if disturbance.pattern == "lag":
                streams[disturbance.kind].hold_back(disturbance.number)
            if disturbance.pattern == "drop":
                for stream in streams.values():
                    stream.lost_versions = frozenset({disturbance.number})
        await self._perform(lambda at: at >= 0)
        await sleep_until(max([0.0, *map(_over_at, scenario.steps)]) + 10.0)
        stage.make_peace()
        stage.gate.leading = True
        await self._run_out()
        stage.busy()
        self._oracle.check_end(virtual_now())
        ended = self._ended()
        await stage.kill_controllers()
        return ended

    async def _perform(self, chosen: Callable[[float], bool]) -> None:
        for step in self._scenario.steps:
            if chosen(step.at):
                await sleep_until(step.at)
                if isinstance(step.action, do.Restart):
                    self._oracle.restarted_at = virtual_now()
                try:
                    await step.perform(self._stage)
                    note_hold(step.action, self._stage, self._oracle)
                except Impossible as why:
                    self._timeline.add(TimelineEntry(virtual_now(), What.STEP, f"left out: {why}"))

    async def _run_out(self) -> None:
        if self._until is not None:
            await sleep_until(self._until)
            return
        truth = self._oracle.truth
        dues = [due_at(truth.node_now(pod.node), pod, at_the_latest=True) for _, pod in truth.living()]
        latest = max([at for at in dues if at < virtual_now() + 10_000], default=0.0)
        await sleep_until(max(latest, virtual_now()) + _AFTER_SECONDS)

    def _ended(self) -> Ended:
        truth = self._oracle.truth
        states = {name: "gone" for name in truth.names.values()}
        for uid, pod in truth.living():
            states[truth.names[uid]] = "terminating" if pod.terminating else f"on {pod.node}"
        evictions: dict[str, int] = {}
        for entry in self._timeline:
            if entry.what is What.EVICTED:
                evictions[entry.subject] = evictions.get(entry.subject, 0) + 1
        broken = tuple(str(violation) for violation in self._oracle.violations)
        return Ended(states, evictions, broken, self._calls, tuple(self._versions), virtual_now())


def _over_at(step: do.ScenarioStep) -> float:
    match step.action:
        case do.Restart() | RestartLifecycle():
            return step.at + step.action.after_seconds
        case ShutDown():
            return step.at + step.action.for_seconds
        case _:
            return step.at


def played(scenario: Scenario, disturbance: Disturbance = UNDISTURBED, until: float | None = None) -> Ended:
    """Play a scenario with a disturbance; ``until``: when the undisturbed run ended."""
    begin = min([0.0, *(step.at for step in scenario.steps)])
    with silenced():
        return run_virtually(_Sieved(scenario, disturbance, until).run(), begin)


def disturbances(undisturbed: Ended) -> Iterator[Disturbance]:
    """Yield all disturbances of a scenario with this undisturbed run."""
    max_calls = MANY_CALLS if undisturbed.calls <= MANY_CALLS else MAX_CALLS
    for number in range(1, undisturbed.calls + 1, 1 + undisturbed.calls // max_calls):
        yield Disturbance("crash", number, Phase.SENT)
        yield Disturbance("crash", number, Phase.CARRIED_OUT)
    for kind in ("nodes", "pods"):
        yield from (Disturbance("lag", events, kind=kind) for events in LAGS)
    versions = undisturbed.versions[:: 1 + len(undisturbed.versions) // max_calls]
    yield from (Disturbance("drop", version) for version in versions)


def difference(undisturbed: Ended, disturbed: Ended) -> str:
    """Return how two runs differ, "" if they do not differ in anything that matters."""
    if disturbed.broken:
        return "; ".join(disturbed.broken)
    said = []
    for name in sorted({*undisturbed.states, *disturbed.states}):
        before, after = undisturbed.states.get(name), disturbed.states.get(name)
        if before != after:
            said.append(f"{name} ends {after}, not {before}")
        evictions = undisturbed.evictions.get(name, 0), disturbed.evictions.get(name, 0)
        if evictions[0] != evictions[1]:
            said.append(f"{name} evicted {evictions[1]} times, not {evictions[0]}")
    return "; ".join(said)


def sampled_files(every: int) -> list[Path]:
    """Return one scenario of about ``every``; a scenario that is new or renamed changes nothing for the others."""
    return [file for file in scenario_files() if crc32(file.stem.encode()) % every == 0]


class Sieved(NamedTuple):
    """The result of one scenario: its runs, simulated seconds, and the differences by disturbance."""

    name: str
    runs: int
    seconds: float
    found: dict[str, str]

    def unexcused(self) -> dict[str, str]:
        """Return the differences without a known reason."""
        excuse = right_difference(self.name)
        return {how: what for how, what in self.found.items() if excuse is None or not excuse.covers(how)}


def sieve_file(file: Path) -> Sieved:
    """Try all disturbances on one scenario."""
    scenario = read_scenario(file.read_text(encoding="utf-8"), file.name)
    undisturbed = played(scenario)
    found = {"undisturbed": "; ".join(undisturbed.broken)} if undisturbed.broken else {}
    runs, seconds = 1, undisturbed.seconds
    for disturbance in disturbances(undisturbed):
        disturbed = played(scenario, disturbance, undisturbed.seconds)
        runs, seconds = runs + 1, seconds + disturbed.seconds
        if what := difference(undisturbed, disturbed):
            found[str(disturbance)] = what
    return Sieved(file.stem, runs, seconds, found)


def sieve_catalogue(jobs: int, every: int = 1) -> bool:
    """Try all disturbances on the catalogue and print the differences; return whether each has a known reason.

    ``every``: 2 for about every second scenario, and so on.
    """
    runs, seconds, excused, wrong = 0, 0.0, 0, 0
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        for sieving in as_completed([pool.submit(sieve_file, file) for file in sampled_files(every)]):
            sieved = sieving.result()
            unexcused = sieved.unexcused()
            runs, seconds, wrong = runs + sieved.runs, seconds + sieved.seconds, wrong + len(unexcused)
            known = len(sieved.found) - len(unexcused)
            excused += known
            excuse = right_difference(sieved.name)
            why = f" ({known} known: {excuse.why})" if known and excuse is not None else ""
            click.echo(f"{sieved.name}: {sieved.runs} runs, {len(sieved.found)} differ{why}")
            for how, what in list(unexcused.items())[:_MAX_LINES]:
                click.echo(f"    {how}: {what}"[:_LONGEST_LINE])
    simulated = f"{seconds / 3600:.1f} simulated hours"
    click.echo(f"{runs} runs, {simulated}, {excused} differ for known reasons, {wrong} for none")
    return not wrong
