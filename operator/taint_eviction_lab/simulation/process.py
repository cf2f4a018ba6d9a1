"""One controller process of a simulated world: the production runtime, unchanged, behind simulated ports.

It can be killed at any moment, as by SIGKILL: requests not yet sent are never sent, and its knowledge is lost. Frozen,
it takes no step; what it had sent arrives. With a Lease it stands for election as production does.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial

from taint_eviction.core.breaker import TriedBefore
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.reporting.comparisons import scan
from taint_eviction.runtime.assembly import Ports, assemble
from taint_eviction.runtime.leadership import Elector
from taint_eviction.runtime.lifecycle import Lifecycle
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction.runtime.time_votes import keep_asking, learn_time
from taint_eviction.settings import Settings
from taint_eviction.shadow.shadow import Shadow
from taint_eviction_lab.simulation.adoptions import PolicyInForce, simulated_adoptions
from taint_eviction_lab.simulation.api import SimulatedApi
from taint_eviction_lab.simulation.calls import SimulatedCalls, World
from taint_eviction_lab.simulation.control_state import SimulatedControlState, SimulatedControlStateStore
from taint_eviction_lab.simulation.faults import CallFaults
from taint_eviction_lab.simulation.freezing import FREEZER, Freezer
from taint_eviction_lab.simulation.killable import Killable
from taint_eviction_lab.simulation.lease import SimulatedLease, SimulatedLeaseStore
from taint_eviction_lab.simulation.timeline import Timeline
from taint_eviction_lab.simulation.timeline_reporter import TimelineReporter, timeline_comparisons
from taint_eviction_lab.simulation.virtual_clock import HostClock, ProcessClock
from taint_eviction_lab.simulation.watches import SimulatedWatcher, Streams

# The monotonic clock of the first process at second 0, and the distance between the clocks of successive processes.
_MONOTONIC_OFFSET_SECONDS = 4096.0


def no_reporters(timeline: Timeline, gate: Gate) -> Iterable[Reporter]:
    """Report to the timeline only."""
    return ()


@dataclass(slots=True)
class SimulatedGate:
    """Whether the process leads. ``term`` counts how often it began to. No Lease says what others had tried before."""

    leading: bool = True
    term: int = 0
    tried_before: TriedBefore | None = None

    def may_act(self) -> bool:
        """Return whether the process leads now."""
        return self.leading

    def lead(self, leading: bool) -> None:
        """Begin to lead, or stop."""
        self.term += leading and not self.leading
        self.leading = leading


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a process: the world, the host, its settings, the state of watches, and further reporters.

    ``seed`` decides everything random, as the lengths of waits. ``own_faults`` apply only to its calls. ``lease`` None:
    ``gate`` decides whether it acts; otherwise the election decides. ``adoption``: countdowns may be taken over in this
    world, by this process or another one; without it, nothing of that is simulated.
    """

    world: World
    host: HostClock
    settings: Settings
    nodes: Streams
    pods: Streams
    gate: SimulatedGate
    seed: str
    own_faults: CallFaults
    control_state: SimulatedControlState
    lease: SimulatedLease | None = None
    reporters: Callable[[Timeline, Gate], Iterable[Reporter]] = no_reporters
    adoption: bool = False


class SimulatedProcess(Killable):
    """The ``incarnation``-th process of a replica, counted from 1; ``name`` is unique among all processes."""

    def __init__(self, surroundings: Surroundings, name: str, incarnation: int) -> None:
        self.name = name
        world, settings = surroundings.world, surroundings.settings
        clock = ProcessClock(surroundings.host, _MONOTONIC_OFFSET_SECONDS * incarnation)
        self._server_clock = clock.server_clock
        rng = random.Random(f"{surroundings.seed}/{incarnation}")
        pods = surroundings.pods
        calls = self._calls = SimulatedCalls(world, clock, name, surroundings.own_faults)
        api = SimulatedApi(world, calls, lambda: pods.lag_seconds)
        self._elector: Elector | None = None
        gate: Gate = surroundings.gate
        if surroundings.lease is not None:
            store = SimulatedLeaseStore(calls, surroundings.lease)
            election = random.Random(f"{surroundings.seed}/{incarnation}/election")
            gate = self._elector = Elector(name, store, clock.server_clock, settings.election, rng=election)
        reporters = [TimelineReporter(world.timeline, clock), *surroundings.reporters(world.timeline, gate)]
        self.shadow = None
        if settings.dry_run:
            found = timeline_comparisons(world.timeline, clock)
            self.shadow = Shadow(lambda: self.live.controller.status, gate.may_act, found)
            reporters.append(self.shadow)
        self._gate = gate
        ports = Ports(
            clock=clock.server_clock,
            reader=api,
            writer=api,
            watcher=lambda _: SimulatedWatcher(world, calls, surroundings.nodes, pods),
            interpret=world.parsing.interpret,
            gate=gate,
            reporters=reporters,
            identity=name,
            learn_time=lambda: learn_time(self._server_clock, calls.ask_time),
            control_state=SimulatedControlStateStore(calls, surroundings.control_state),
            own_policy=PolicyInForce() if surroundings.adoption else None,
            adoption=simulated_adoptions(world, calls, surroundings.control_state) if surroundings.adoption else None,
            heard=(lambda _fact, _now: None) if self.shadow is None else self.shadow.observed,
        )
        self.freezer = Freezer()
        context = copy_context()
        context.run(FREEZER.set, self.freezer)
        self.engine = context.run(assemble, ports, settings, rng)
        self.live = self.engine.live
        tasks = {"time": lambda: keep_asking(self._server_clock, calls.ask_time)}
        if self.shadow is not None:
            tasks["shadow"] = partial(scan, self.shadow, clock.server_clock)
        self._stop = asyncio.Event()
        lifecycle = Lifecycle(
            self.engine, self._elector, settings, servers=(), tasks=tasks, drains=(), close=self._no_connections
        )
        self._task = asyncio.get_running_loop().create_task(lifecycle.run(self._stop), name=name, context=context)

    async def _no_connections(self) -> None:
        pass

    async def end(self) -> None:
        """End as after SIGTERM: what is under way ends first, then the Lease is released."""
        self._stop.set()
        await asyncio.wait([self._task])

    @property
    def leads(self) -> bool:
        """Return whether the process may act now."""
        return self._gate.may_act()

    def has_plans(self) -> bool:
        """Return whether anything is scheduled or in flight."""
        next_at = self.live.controller.attempts.next_at(self.live.clock.now())
        return next_at is not None or self.live.controller.status.pending_count() > 0

    def change_policy(self, policy: EvictionPolicy) -> None:
        """Apply another policy."""
        self.live.change_policy(policy)
