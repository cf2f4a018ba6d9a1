"""The one place where the object graph is built: core, runtime, calls and reports of a running controller.
This module only builds: it decides nothing and runs nothing.
"""

import asyncio
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from taint_eviction import __version__
from taint_eviction.core.events import Work, WorkOutcome
from taint_eviction.core.facts import Fact
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.pod_parts import PodParts, needed_keys
from taint_eviction.core.status import Status
from taint_eviction.files.policy_file_follower import PolicyFileFollower
from taint_eviction.kopf_shell.tuning import WatchTuning
from taint_eviction.kopf_shell.watcher import KopfWatcher
from taint_eviction.kube.adoptions import Adoptions
from taint_eviction.kube.api_calls import ApiCalls
from taint_eviction.kube.api_reader import ApiReader
from taint_eviction.kube.api_writer import ApiWriter
from taint_eviction.kube.builtin_controller import BuiltinController
from taint_eviction.kube.lease import KubernetesLease
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.kube.observations import Observations, matters_to
from taint_eviction.kube.own_policy import OwnPolicy
from taint_eviction.kube.state_config_map import StateConfigMap
from taint_eviction.kube.time_calls import ask_time
from taint_eviction.login.credentials import Connection
from taint_eviction.reporting.audit import AuditLog
from taint_eviction.reporting.comparisons import ComparisonReporter, JournalComparisons, scan, totals_line
from taint_eviction.reporting.event_recorder import EventRecorder
from taint_eviction.reporting.history_endpoint import HistoryEndpoint
from taint_eviction.reporting.http_port import Address
from taint_eviction.reporting.journal import Journal
from taint_eviction.reporting.log_reporter import LogReporter
from taint_eviction.reporting.loop_lag import measure_loop_lag
from taint_eviction.reporting.metrics import CONTENT_TYPE, Metrics
from taint_eviction.reporting.outcome_keeper import OutcomeKeeper
from taint_eviction.reporting.outcome_memory import OutcomeMemory
from taint_eviction.reporting.probe_server import ProbeServer
from taint_eviction.reporting.readings import readings_of
from taint_eviction.reporting.reporters import BreakerEventReporter, EventReporter, LeaderReporter
from taint_eviction.reporting.status_document import AdmissionState, AdoptionState, LeaseSeen, ProcessState
from taint_eviction.reporting.status_endpoints import StatusEndpoints
from taint_eviction.runtime.assembly import Ports, assemble
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.engine import Engine
from taint_eviction.runtime.freed_memory import give_back
from taint_eviction.runtime.health import Health
from taint_eviction.runtime.leadership import Elector, NoElection
from taint_eviction.runtime.lifecycle import Lifecycle
from taint_eviction.runtime.policy_changes import PolicyChanges
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction.runtime.time_votes import keep_asking, learn_time
from taint_eviction.settings import Settings, history_name
from taint_eviction.shadow.shadow import Shadow
from taint_eviction.shadow.totals import ComparisonTotals


@dataclass(frozen=True, slots=True)
class ControllerProcess:
    """A controller, ready to run in one event loop.

    ``calls`` makes its requests, ``gate`` says whether it may act. ``engine``, ``recorder`` and ``metrics`` are its
    parts.
    """

    calls: ApiCalls
    gate: Gate
    metrics: Metrics
    recorder: EventRecorder
    engine: Engine
    lifecycle: Lifecycle

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, then shut down in order; a bug of the controller is raised."""
        await self.lifecycle.run(stop)


def build(
    connection: Connection,
    clock: ServerClock,
    settings: Settings,
    *,
    listen: Address | None = None,
    probe_listen: Address | None = None,
    reinstall_signal_handlers: Callable[[], None] = lambda: None,
    tuning: WatchTuning | None = None,
    journal: Journal | None = None,
    audit: AuditLog | None = None,
    policy_file: Path | None = None,
    compared_before: JournalComparisons | None = None,
) -> ControllerProcess:
    """Build a controller.

    ``listen`` is where metrics, documents and probes are served, ``probe_listen`` where probes alone are; None for
    nowhere. ``reinstall_signal_handlers`` puts the caller's
    signal handlers back after Kopf has replaced them. ``tuning`` sets Kopf, None for its defaults. ``policy_file`` is
    followed while the controller runs; None: the policy of the settings stays. ``compared_before``: the comparisons of
    earlier dry runs in the journal.
    """
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    metrics = Metrics(__version__, settings)
    clock.on_moved = metrics.clock_moved

    # Calls ask the election and the core whether they may be sent, and both make calls: the first call is made once
    # both exist.
    def may_act() -> bool:
        return gate.may_act()

    def may_evict() -> bool:
        # The final decision, right before this, has already considered an open breaker.
        return guards.blocking_all(clock.now(), bypasses_limits=True) is None

    memory = OutcomeMemory(clock.now().at)
    parts = PodParts(needed_keys(settings.policy.label_keys), holds=settings.decisions.max_hold_seconds > 0)
    client = connection.api_client(may_act, may_evict)
    calls = ApiCalls(client, settings.call_timeout_seconds, clock.heard_date, metrics.called)
    ask = partial(ask_time, calls, connection)
    elector = _elector(identity, calls, clock, settings)
    gate: Gate = elector or NoElection()
    recorder = EventRecorder(calls, clock, identity, metrics.event, lambda: driver.saturated)
    keeper = None
    if settings.keeps_history:
        keeper = OutcomeKeeper(
            calls,
            clock,
            gate,
            memory,
            NamespacedName(settings.election.lease_namespace, history_name(settings.election.lease_name)),
            identity=identity,
            reasons=settings.event_reasons,
            dry_run=settings.dry_run,
            counted=metrics.history_written,
        )
    shadow = None
    if settings.dry_run:
        # Nothing is reported before both exist.
        shadow = _shadow(lambda: live.controller.status, gate, metrics, journal, compared_before)
    ports = _ports(
        calls,
        clock,
        settings,
        gate,
        metrics,
        connection=connection,
        reinstall_signal_handlers=reinstall_signal_handlers,
        tuning=tuning,
        recorder=recorder,
        journal=journal,
        audit=audit,
        shadow=shadow,
        memory=memory,
        identity=identity,
        parts=parts,
        learn_time=lambda: learn_time(clock, ask),
    )
    engine = assemble(ports, settings, random.Random())
    live, driver, policy_check = engine.live, engine.driver, engine.policy_check
    guards = live.controller.guards
    policy = None
    if policy_file is not None:
        changes = PolicyChanges(live.change_policy, parts, engine.list_pods_again)
        policy = PolicyFileFollower(policy_file, settings.policy, changes.apply, metrics.policy_read)

    def policy_invalid() -> bool:
        return policy is not None and policy.invalid

    readings = readings_of(
        engine,
        clock,
        gate,
        policy_invalid=policy_invalid,
        credential_failures=connection.failures,
        certificate_ends=connection.certificate_ends,
        keeper=keeper,
    )
    metrics.read_from(readings)
    health = Health(
        driver,
        elector,
        engine.control_state,
        policy_invalid,
        restart_helps=connection.restart_helps,
        connection_warnings=connection.warnings,
        # Where countdowns are taken over, it is among what is said of them.
        policy_problem=lambda: "" if policy_check is None or settings.adoption.enabled else policy_check.problem,
        history_unkept_seconds=lambda: 0.0 if keeper is None else keeper.unkept_seconds(),
        records_ended=lambda: [each.ended for each in (journal, audit) if each is not None and each.ended],
    )
    checks = {"/healthz": health.liveness, "/readyz": engine.readiness}
    servers = [] if probe_listen is None else [ProbeServer(probe_listen, checks)]
    if listen is not None:
        process = _process_state(
            identity,
            settings,
            gate,
            elector,
            engine,
            health=health,
        )
        restored_from = (lambda: None) if keeper is None else keeper.restored_from
        history = HistoryEndpoint(memory, clock, process, restored_from)
        endpoints = StatusEndpoints(live.controller.status, clock, process, shadow, history.recent)
        documents = {
            "/status": endpoints.status,
            "/explain": endpoints.explain,
            "/history": history.history,
            "/compare": endpoints.compare,
        }
        pages = {"/metrics": lambda: (metrics.render(), CONTENT_TYPE)}
        servers.append(ProbeServer(listen, checks, documents, pages))
    lifecycle = Lifecycle(
        engine,
        elector,
        settings,
        drains=[recorder.drain, *([] if keeper is None else [keeper.drain])],
        close=connection.close,
        servers=servers,
        tasks={
            "events": recorder.run,
            "certificates": connection.tell_ends,
            "time": lambda: keep_asking(clock, ask),
            "lag": lambda: measure_loop_lag(clock, metrics.loop_lagged),
            "memory": give_back,
            **({} if policy is None else {"policy": policy.run}),
            **({} if keeper is None else {"history": keeper.run}),
            **({} if shadow is None else {"shadow": partial(scan, shadow, clock)}),
        },
    )
    return ControllerProcess(calls, gate, metrics, recorder, engine, lifecycle)


def _ports(
    calls: ApiCalls,
    clock: ServerClock,
    settings: Settings,
    gate: Gate,
    metrics: Metrics,
    *,
    connection: Connection,
    reinstall_signal_handlers: Callable[[], None],
    tuning: WatchTuning | None,
    recorder: EventRecorder,
    journal: Journal | None,
    audit: AuditLog | None,
    shadow: Shadow | None,
    memory: OutcomeMemory,
    identity: str,
    parts: PodParts,
    learn_time: Callable[[], Awaitable[None]],
) -> Ports:
    builtin = BuiltinController(clock, metrics.builtin_active, _why_built_in(settings))
    malformed = MalformedObjects(metrics.malformed)
    observations = Observations(malformed, builtin.inspect, parts)
    state = NamespacedName(settings.election.lease_namespace, settings.control_state.name)
    store = StateConfigMap(calls, *state)
    # A pod's host name is its own name, unless it shares the network of its node.
    own_pod = NamespacedName(settings.election.lease_namespace, socket.gethostname())
    # The memory also records on standbys.
    reporters = [memory, *_reporters(settings, gate, metrics, recorder, state)]
    observers = [each for each in (journal, shadow) if each is not None]

    def heard(fact: Fact, now: Moment) -> None:
        for observer in observers:
            observer.observed(fact, now)

    def attempted(work: Work, outcome: WorkOutcome, now: Moment) -> None:
        memory.attempted(work, outcome, now)
        if audit is not None:
            audit.attempted(work, outcome, now)

    return Ports(
        clock=clock,
        reader=ApiReader(calls, malformed, builtin.inspect, parts),
        writer=ApiWriter(calls, malformed, parts),
        watcher=lambda controller: KopfWatcher(
            connection.url,
            connection.make_session,
            reinstall_signal_handlers=reinstall_signal_handlers,
            tuning=tuning,
            wanted=matters_to(controller),
            known=observations.known_to(controller),
            parts=parts,
        ),
        interpret=observations.interpret,
        gate=gate,
        reporters=[*reporters, *observers],
        identity=identity,
        learn_time=learn_time,
        control_state=store if settings.control_state.enabled else None,
        own_policy=OwnPolicy(calls, own_pod),
        adoption=Adoptions(calls, malformed, store, identity, parts),
        restarted=metrics.watch_restarted,
        heard=heard,
        began=metrics.began,
        attempted=attempted,
    )


def _why_built_in(settings: Settings) -> str | None:
    """Return why the built-in controller is on beside this process; None: it should be off."""
    if settings.dry_run:
        return "this process is a dry run, so it evicts nothing"
    if settings.adoption.enabled:
        return "with --adopt, it evicts the pods whose countdowns are not taken over"
    return None


def _shadow(
    status: Callable[[], Status],
    gate: Gate,
    metrics: Metrics,
    journal: Journal | None,
    before: JournalComparisons | None,
) -> Shadow:
    write = (lambda _line, _now: None) if journal is None else journal.write
    reporter = ComparisonReporter(gate, metrics.compared, write)
    totals = ComparisonTotals() if before is None else before.totals
    evicted_epochs = {} if before is None else before.evicted_epochs
    if journal is not None:
        journal.carried = lambda: [totals_line(totals)]
    return Shadow(status, gate.may_act, reporter.compared, totals, evicted_epochs)


def _elector(identity: str, calls: ApiCalls, clock: ServerClock, settings: Settings) -> Elector | None:
    election = settings.election
    if not election.enabled:
        return None
    store = KubernetesLease(calls, election.lease_namespace, election.lease_name)
    return Elector(identity, store, clock, election, rng=random.Random())


def _reporters(
    settings: Settings, gate: Gate, metrics: Metrics, recorder: EventRecorder, state: NamespacedName
) -> list[Reporter]:
    """Make the reporters; ``state`` names the ConfigMap on which events about the breaker are posted."""
    dry_run = settings.dry_run
    reporters: list[Reporter] = [metrics]
    if not dry_run:
        reporters.append(BreakerEventReporter(recorder, state))
    if not dry_run or settings.dry_run_events:
        reporters.append(EventReporter(recorder, settings))
    return [LogReporter(gate, dry_run, settings.breaker.enabled), LeaderReporter(gate, reporters)]


def _process_state(
    identity: str,
    settings: Settings,
    gate: Gate,
    elector: Elector | None,
    engine: Engine,
    *,
    health: Health,
) -> Callable[[], ProcessState]:
    election, adopter, policy_check = settings.election, engine.adopter, engine.policy_check

    def process_state() -> ProcessState:
        ready, why_not = engine.readiness()
        lease = None
        if elector is not None:
            lease = LeaseSeen(election.lease_namespace, election.lease_name, elector.holder)
        not_ready, warnings = "" if ready else why_not, tuple(health.warnings())
        adoption = None
        if adopter is not None and (adopter.enabled or adopter.gives_all_back):
            adoption = AdoptionState(
                adopter.enabled,
                adopter.adopted_count(),
                adopter.refused(),
                adopter.not_given_back(),
                adopter.lost_notes(),
                adopter.unexplained(),
                adopter.policy_problem,
                adopter.stopped_by,
                settings.adoption.from_seconds,
            )
        admission = None if policy_check is None else AdmissionState(policy_check.account, policy_check.in_force)
        leading, dry_run = gate.may_act(), settings.dry_run
        return ProcessState(__version__, identity, leading, lease, dry_run, not_ready, warnings, adoption, admission)

    return process_state
