"""Builds the core and the runtime on given ports: the same for a real cluster and for a simulated one.
This module only builds; ``wiring`` chooses the implementations of the ports, or the laboratory for replays.
"""

import dataclasses
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from taint_eviction.core.control_state import ControlState
from taint_eviction.core.controller import Controller
from taint_eviction.core.events import Work, WorkOutcome
from taint_eviction.core.facts import Fact
from taint_eviction.core.instants import Moment
from taint_eviction.runtime.adopter import Adopter
from taint_eviction.runtime.control_state_sync import ControlStateSync
from taint_eviction.runtime.driver import Driver
from taint_eviction.runtime.dry_run import DryRunAdoptions, DryRunWriter
from taint_eviction.runtime.engine import Engine
from taint_eviction.runtime.evictor import Evictor
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.policy_check import PolicyCheck
from taint_eviction.runtime.ports import (
    AdmissionPolicyPort,
    AdoptionPort,
    Clock,
    ClusterReader,
    ClusterWriter,
    ControlStateStore,
    Gate,
    Reporter,
    Watcher,
)
from taint_eviction.runtime.resync import Resync
from taint_eviction.runtime.supervised_watch import WatchPorts
from taint_eviction.runtime.watch_listener import Interpret
from taint_eviction.settings import Settings


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside world of one controller. ``writer`` is unused in a dry run.
    ``watcher`` makes the watcher for a core, which it may ask which objects matter. ``restarted`` is called with the
    kind (nodes, pods) of each watch that ended, ``heard`` with each fact, ``began`` and ``attempted`` with each piece
    of work that begins or has ended. ``control_state`` None: evictions cannot be paused. ``adoption`` None: no pod is
    adopted; it needs ``own_policy``, None: nobody asks about the admission policy. ``identity``: this process, as
    others know it. ``learn_time`` returns once the API server's time is known, or cannot be: no node is listed before.
    """

    clock: Clock
    reader: ClusterReader
    writer: ClusterWriter
    watcher: Callable[[Controller], Watcher]
    interpret: Interpret
    gate: Gate
    reporters: Iterable[Reporter]
    identity: str
    learn_time: Callable[[], Awaitable[None]]
    control_state: ControlStateStore | None = None
    own_policy: AdmissionPolicyPort | None = None
    adoption: AdoptionPort | None = None
    restarted: Callable[[str], None] = lambda _kind: None
    heard: Callable[[Fact, Moment], None] = lambda _fact, _now: None
    began: Callable[[Work, Moment], None] = lambda _work, _now: None
    attempted: Callable[[Work, WorkOutcome, Moment], None] = lambda _work, _outcome, _now: None


def assemble(ports: Ports, settings: Settings, rng: random.Random) -> Engine:
    """Build a controller on these ports; ``rng`` randomizes waits."""
    control_state_known = None if ports.control_state is not None else ControlState()
    controller = make_controller(settings, control_state_known, ports.identity)
    live = Live(controller, ports.clock, ports.reporters, ports.heard, ports.began, ports.attempted)
    node_reads = NodeReads(ports.reader, live, settings.node_read_seconds)
    evictor = Evictor(
        live,
        ports.reader,
        DryRunWriter(ports.reader) if settings.dry_run else ports.writer,
        node_reads,
        ports.gate,
        settings=settings,
        rng=rng,
    )
    driver = Driver(live, evictor, ports.gate, settings.workers)
    watching = WatchPorts(
        live,
        # No cached lists with a breaker: pods that are gone must not open it, and evictions wait for the lists anyway.
        Resync(ports.reader, live, settings.watch.lists_at_once, cached_lists=not settings.breaker.enabled),
        ports.watcher(controller),
        ports.interpret,
        settings=settings.watch,
        rng=rng,
        restarted=ports.restarted,
    )
    control_state = None
    if ports.control_state is not None:
        control_state = ControlStateSync(
            ports.control_state,
            live,
            ports.gate,
            poll_seconds=settings.control_state.poll_seconds,
            writes=not settings.dry_run,
            ending=lambda: driver.stopping,
        )
    adopter = None
    policy_check = (
        None
        if ports.own_policy is None
        else PolicyCheck(ports.own_policy, ports.clock, adopts=settings.adoption.enabled)
    )
    if ports.adoption is not None and control_state is not None and policy_check is not None:
        # A dry run takes nothing over, and says what others have left to it.
        adopter = Adopter(
            live,
            DryRunAdoptions(ports.adoption) if settings.dry_run else ports.adoption,
            node_reads,
            ports.gate,
            policy=policy_check,
            state_read_at=lambda: control_state.read_at,
            settings=dataclasses.replace(settings.adoption, enabled=False) if settings.dry_run else settings.adoption,
            outage_gap_seconds=settings.decisions.outage_gap_seconds,
        )
    if settings.dry_run:  # Its account writes nothing of pods.
        policy_check = None
    return Engine(
        live, watching, driver, control_state, adopter, policy_check=policy_check, learn_time=ports.learn_time
    )


def make_controller(settings: Settings, control_state: ControlState | None, identity: str) -> Controller:
    """Build the core; ``control_state`` None: it is not known yet."""
    return Controller(
        settings.decisions,
        settings.dry_run,
        eviction_policy=settings.policy,
        breaker=settings.breaker,
        control_state=control_state,
        identity=identity,
    )
