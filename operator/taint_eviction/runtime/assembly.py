"""Puts brain and body together behind the doors that are given: the same for a cluster and for a simulated one.

Builds only; what is behind the doors is chosen by ``wiring``, for replays by ``simulation``.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.effects import Outcome, Work
from taint_eviction.core.facts import Fact
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NOT_READY, UNREACHABLE
from taint_eviction.core.orders import Orders
from taint_eviction.runtime.driver import Driver
from taint_eviction.runtime.dry_run import DryRunWriter
from taint_eviction.runtime.engine import Engine
from taint_eviction.runtime.evictor import Evictor
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import Clock, ClusterReader, ClusterWriter, Gate, OrdersStore, Teller, Watcher
from taint_eviction.runtime.resync import Resync
from taint_eviction.runtime.standing_orders import StandingOrders
from taint_eviction.runtime.supervised_watch import Interpret, WatchDoors
from taint_eviction.settings import Settings


@dataclass(frozen=True, slots=True)
class Doors:
    """What the outside world is, for one controller. ``writer`` is left unused in a dry run.

    ``watcher`` is made once the brain is there, so that it may ask which objects matter. ``restarted`` is given the
    kind (nodes, pods) of each watch that broke, ``heard`` each fact, ``began`` and ``attempted`` each piece of work
    that begins and has ended. ``orders`` None: nobody can pause anything.
    """

    clock: Clock
    reader: ClusterReader
    writer: ClusterWriter
    watcher: Callable[[Controller], Watcher]
    interpret: Interpret
    gate: Gate
    tellers: Iterable[Teller]
    orders: OrdersStore | None = None
    restarted: Callable[[str], None] = lambda _kind: None
    heard: Callable[[Fact, Moment], None] = lambda _fact, _now: None
    began: Callable[[Work, Moment], None] = lambda _work, _now: None
    attempted: Callable[[Work, Outcome, Moment], None] = lambda _work, _outcome, _now: None


@dataclass(frozen=True, slots=True)
class Assembled:
    """One controller, ready to run (``engine``). ``orders`` None: nobody can pause anything."""

    live: LiveController
    driver: Driver
    engine: Engine
    orders: StandingOrders | None


def assemble(doors: Doors, settings: Settings, chance: random.Random) -> Assembled:
    """Build a controller behind these doors; ``chance`` decides all that is left to it, as the lengths of waits."""
    controller = make_controller(settings, None if doors.orders is not None else Orders())
    live = LiveController(controller, doors.clock, doors.tellers, doors.heard, doors.began, doors.attempted)
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
        # Pods that are gone by now must not open the breaker; and where there is one, evictions wait for it anyway.
        Resync(doors.reader, live, settings.watch.lists_at_once, glances=not settings.breaker.enabled),
        doors.watcher(controller),
        doors.interpret,
        settings=settings.watch,
        chance=chance,
        restarted=doors.restarted,
    )
    orders = None
    if doors.orders is not None:
        orders = StandingOrders(
            doors.orders, live, doors.gate, poll_seconds=settings.orders.poll_seconds, writes=not settings.dry_run
        )
    return Assembled(live, driver, Engine(live, watching, driver, orders), orders)


def make_controller(settings: Settings, orders: Orders | None) -> Controller:
    """Build the brain as it is set; ``orders`` None: not known yet."""
    return Controller(
        decision_policy(settings),
        settings.dry_run,
        eviction_policy=settings.policy,
        breaker=settings.breaker,
        orders=orders,
    )


def decision_policy(settings: Settings) -> DecisionPolicy:
    """Say what is chosen about decisions."""
    defaults = {NOT_READY: settings.default_not_ready_seconds, UNREACHABLE: settings.default_unreachable_seconds}
    default_seconds = {key: seconds for key, seconds in defaults.items() if seconds is not None}
    return DecisionPolicy(settings.evict_finished, default_seconds, settings.most_hold_seconds)
