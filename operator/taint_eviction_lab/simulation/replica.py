"""One replica of the controller: a host with its clock and network, on which processes run one after another."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable

from taint_eviction.core.policy import PolicyRule
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction.settings import Settings
from taint_eviction_lab.built_in.version import BuiltInVersion
from taint_eviction_lab.simulation.built_in_process import BuiltInProcess
from taint_eviction_lab.simulation.calls import World
from taint_eviction_lab.simulation.control_state import SimulatedControlState
from taint_eviction_lab.simulation.faults import CHANGES, CallFault, CallFaults, CallKind, Picked
from taint_eviction_lab.simulation.lease import SimulatedLease
from taint_eviction_lab.simulation.process import SimulatedGate, SimulatedProcess, Surroundings
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import HostClock, virtual_now
from taint_eviction_lab.simulation.watches import Streams

# The number of the replica that is the model of the built-in controller; all others count from 1.
BUILT_IN = -1
# How much longer calls of each further replica are under way, in one direction.
_FURTHER_SECONDS = 0.001


class SimulatedReplica:
    """The ``number``-th replica, counted from 1; without a ``lease`` the ``gate`` decides whether it acts.

    ``built_in``: its processes are the model of the built-in controller of that version.
    """

    def __init__(
        self,
        number: int,
        world: World,
        *,
        settings: Settings,
        gate: SimulatedGate,
        control_state: SimulatedControlState,
        lease: SimulatedLease | None,
        seed: str,
        reporters: Callable[[Timeline, Gate], Iterable[Reporter]],
        drift_ppm: float = 0.0,
        built_in: BuiltInVersion | None = None,
    ) -> None:
        self.host = HostClock(drift_ppm=drift_ppm)
        # The first replica is the nearest to the API server: so it leads first, whatever the order of timers is.
        further_seconds = _FURTHER_SECONDS * max(0, number - 1)
        network = dataclasses.replace(world.network, one_way_seconds=world.network.one_way_seconds + further_seconds)
        world = dataclasses.replace(world, network=network)
        self.nodes, self.pods = Streams(), Streams()
        self.process: SimulatedProcess | BuiltInProcess | None = None
        self._own_faults = CallFaults()
        self._built_in = built_in
        role = "controller" if built_in is None else f"built-in controller {built_in}, process"
        self._name = role if lease is None else f"replica {number}, {role}"
        self._timeline = world.timeline
        seed = seed if lease is None else f"{seed}/{number}"
        self._surroundings = Surroundings(
            world,
            self.host,
            settings,
            self.nodes,
            self.pods,
            gate,
            seed,
            self._own_faults,
            control_state,
            lease,
            reporters,
            settings.adoption.enabled,
        )
        self._incarnations = 0
        self._starting: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a process."""
        self._starting = None
        self._incarnations += 1
        self.process = self._new_process()
        self._timeline.add(TimelineEntry(virtual_now(), What.STARTED, self._process_name))

    def _new_process(self) -> SimulatedProcess | BuiltInProcess:
        if self._built_in is None:
            return SimulatedProcess(self._surroundings, self._process_name, self._incarnations)
        return BuiltInProcess(self._built_in, self._surroundings, self._process_name, self._incarnations)

    @property
    def _process_name(self) -> str:
        return f"{self._name} {self._incarnations}"

    async def kill(self) -> None:
        """End the process at once, if there is one; raise a bug that had ended it before."""
        if self._ending is not None and self._ending is not asyncio.current_task():
            self._ending.cancel()
        self._ending = None
        if self._starting is not None:
            self._starting.cancel()
        if self.process is not None:
            process, self.process = self.process, None
            await process.kill()
            self._timeline.add(TimelineEntry(virtual_now(), What.KILLED, self._process_name))

    async def restart(self, after_seconds: float, adopts: bool | None = None, gracefully: bool = False) -> None:
        """End the process and start another one ``after_seconds`` later; ``adopts`` None: it adopts if this one did.

        ``gracefully``: this returns at once, and the process ends when nothing of its work is under way.
        """
        if gracefully and isinstance(self.process, SimulatedProcess):
            ending = self._restart_gracefully(self.process, after_seconds, adopts)
            self._ending = asyncio.get_running_loop().create_task(ending, name=f"end {self._process_name}")
            return
        await self.kill()
        if adopts is not None:
            settings = self._surroundings.settings
            adoption = dataclasses.replace(settings.adoption, enabled=adopts)
            settings = dataclasses.replace(settings, adoption=adoption)
            self._surroundings = dataclasses.replace(self._surroundings, settings=settings, adoption=True)
        if after_seconds > 0:
            self._starting = asyncio.get_running_loop().call_later(after_seconds, self.start)
        else:
            self.start()

    async def _restart_gracefully(self, process: SimulatedProcess, after_seconds: float, adopts: bool | None) -> None:
        await process.end()
        await self.restart(after_seconds, adopts)

    def freeze(self, for_seconds: float) -> None:
        """Freeze the process for a time."""
        if self.process is not None:
            freezer = self.process.freezer
            freezer.freeze()
            asyncio.get_running_loop().call_later(for_seconds, freezer.thaw)

    def partition(self, for_seconds: float, late_seconds: float | None = None) -> None:
        """Cut the replica off from the API server for a time: no call arrives, no watch stays open.

        ``late_seconds``: calls that change something arrive so much later; None: they do not arrive either.
        """
        until = virtual_now() + for_seconds
        if late_seconds is not None:
            late = CallFault(delay_seconds=late_seconds, hangs=True, takes_effect=True)
            self._own_faults.add(Picked(CHANGES, until=until), late)
        self._own_faults.add(Picked(frozenset(CallKind), until=until), CallFault(hangs=True))
        self.nodes.cut(for_seconds)
        self.pods.cut(for_seconds)

    def change_rules(self, rules: tuple[PolicyRule, ...]) -> None:
        """Apply other rules for evictions to the process, and to later ones."""
        settings = self._surroundings.settings
        policy = dataclasses.replace(settings.policy, rules=rules)
        settings = dataclasses.replace(settings, policy=policy)
        self._surroundings = dataclasses.replace(self._surroundings, settings=settings)
        if self.process is not None:
            self.process.change_policy(policy)

    def make_peace(self) -> None:
        """End all faults: of the network, of watches, and of a frozen process."""
        self._own_faults.clear()
        for streams in (self.nodes, self.pods):
            streams.make_peace()
        if self.process is not None:
            self.process.freezer.thaw()

    def busy(self) -> bool:
        """Return whether the process has plans or will still be started; raise a bug that has ended it."""
        if self.process is None:
            return self._starting is not None
        self.process.check()
        return self.process.has_plans()
