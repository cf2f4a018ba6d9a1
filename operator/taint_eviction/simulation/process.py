"""One controller process of a simulated world: the production runtime, unchanged, behind simulated doors.

Killed at any moment, as SIGKILL does: nothing it had not sent yet is ever sent, and nothing it knew is left.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from taint_eviction.runtime.assembly import Doors, assemble
from taint_eviction.runtime.ports import Teller
from taint_eviction.settings import Settings
from taint_eviction.simulation.api import SimulatedApi, World
from taint_eviction.simulation.timeline import Timeline
from taint_eviction.simulation.virtual_clock import HostClock, ProcessClock
from taint_eviction.simulation.watches import SimulatedWatcher, Streams
from taint_eviction.simulation.witness import Witness

# What the monotonic clock of the first process shows at second 0, and how far those of later ones are apart.
_MONOTONIC_OFFSET_SECONDS = 4096.0


def no_tellers(timeline: Timeline) -> Iterable[Teller]:
    """Tell nobody but the timeline."""
    return ()


@dataclass(slots=True)
class SimulatedGate:
    """Whether the process leads."""

    leading: bool = True

    def may_act(self) -> bool:
        """Answer for this very moment."""
        return self.leading


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process is started in: the world, the host, its settings, the watches' fate, and who else is told.

    ``seed`` decides all that is left to chance, as the lengths of waits.
    """

    world: World
    host: HostClock
    settings: Settings
    nodes: Streams
    pods: Streams
    gate: SimulatedGate
    seed: str
    tellers: Callable[[Timeline], Iterable[Teller]] = no_tellers


class ControllerProcess:
    """The ``incarnation``-th process, counted from 1."""

    def __init__(self, surroundings: Surroundings, incarnation: int) -> None:
        world, settings = surroundings.world, surroundings.settings
        clock = ProcessClock(surroundings.host, _MONOTONIC_OFFSET_SECONDS * incarnation)
        chance = random.Random(f"{surroundings.seed}/{incarnation}")
        api = self._api = SimulatedApi(world, clock)
        doors = Doors(
            clock=clock.server_clock,
            reader=api,
            writer=api,
            watcher=lambda _: SimulatedWatcher(world, api, surroundings.nodes, surroundings.pods),
            interpret=world.parsing.interpret,
            gate=surroundings.gate,
            tellers=[Witness(world.timeline, clock), *surroundings.tellers(world.timeline)],
        )
        assembled = assemble(doors, settings, chance)
        self.controller, self.engine = assembled.live.controller, assembled.engine
        self._task = asyncio.create_task(self._run(), name=f"controller {incarnation}")

    async def _run(self) -> None:
        await self._api.sharpen_clock()
        await self.engine.run()

    async def kill(self) -> None:
        """End it at once; raise what had ended it already: a bug of its own."""
        self._api.close()
        self._task.cancel()
        await asyncio.wait([self._task])
        self.check()

    def check(self) -> None:
        """Raise what has ended the process, if a bug did."""
        if self._task.done() and not self._task.cancelled() and (bug := self._task.exception()) is not None:
            raise bug

    def has_plans(self) -> bool:
        """Tell whether anything is scheduled or in flight."""
        return self.controller.next_fire_at() is not None or any(True for _ in self.controller.pending())
