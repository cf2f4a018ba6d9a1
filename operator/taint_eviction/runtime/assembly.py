"""Puts brain and body together behind the doors that are given: the same for a cluster and for a simulated one.

Builds only; what is behind the doors is chosen by ``wiring``, for replays by ``simulation``.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.facts import Fact
from taint_eviction.core.instants import Moment
from taint_eviction.runtime.driver import Driver
from taint_eviction.runtime.dry_run import DryRunWriter
from taint_eviction.runtime.engine import Engine
from taint_eviction.runtime.evictor import Evictor
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import Clock, ClusterReader, ClusterWriter, Gate, Teller, Watcher
from taint_eviction.runtime.resync import Resync
from taint_eviction.runtime.supervised_watch import Interpret, WatchDoors
from taint_eviction.settings import Settings


@dataclass(frozen=True, slots=True)
class Doors:
    """What the outside world is, for one controller. ``writer`` is left unused in a dry run.

    ``watcher`` is made once the brain is there, so that it may ask which objects matter. ``restarted`` is given the
    kind (nodes, pods) of each watch that broke, ``heard`` each fact.
    """

    clock: Clock
    reader: ClusterReader
    writer: ClusterWriter
    watcher: Callable[[Controller], Watcher]
    interpret: Interpret
    gate: Gate
    tellers: Iterable[Teller]
    restarted: Callable[[str], None] = lambda _kind: None
    heard: Callable[[Fact, Moment], None] = lambda _fact, _now: None


@dataclass(frozen=True, slots=True)
class Assembled:
    """One controller, ready to run (``engine``)."""

    live: LiveController
    driver: Driver
    engine: Engine


def assemble(doors: Doors, settings: Settings, chance: random.Random) -> Assembled:
    """Build a controller behind these doors; ``chance`` decides all that is left to it, as the lengths of waits."""
    controller = Controller(DecisionPolicy(settings.evict_finished), settings.dry_run)
    live = LiveController(controller, doors.clock, doors.tellers, doors.heard)
    evictor = Evictor(
        live,
        doors.reader,
        DryRunWriter(doors.reader) if settings.dry_run else doors.writer,
        NodeReads(doors.reader, live, settings.node_read_seconds),
        doors.gate,
        retry=settings.retry,
        chance=chance,
    )
    driver = Driver(live, evictor, doors.gate, settings.workers)
    watching = WatchDoors(
        live,
        Resync(doors.reader, live, settings.watch.lists_at_once),
        doors.watcher(controller),
        doors.interpret,
        settings=settings.watch,
        chance=chance,
        restarted=doors.restarted,
    )
    return Assembled(live, driver, Engine(live, watching, driver))
