"""The brain in real time: couples ``Controller`` with the clock, the tellers, and whoever waits for its deadlines.

Everything synchronous: each method reads the clock once, asks the brain, tells what happened, and wakes the waiting.
"""

import asyncio
from collections.abc import Callable, Iterable

from taint_eviction.core.controller import Controller
from taint_eviction.core.effects import CalledOff, Effect, Held, NodeCleared, NodeTainted, Outcome, Work
from taint_eviction.core.facts import Fact
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import PodRef
from taint_eviction.core.orders import Orders
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.runtime.ports import Clock, Teller


class LiveController:
    """One brain, living.

    ``changed`` is set whenever a deadline may have changed or a worker has become free, ``taints_changed`` whenever a
    node has become tainted or clean; whoever waits for them clears them. ``heard`` is given each fact before the brain,
    ``began`` and ``attempted`` each piece of work that begins and has ended.
    """

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        tellers: Iterable[Teller],
        heard: Callable[[Fact, Moment], None] = lambda _fact, _now: None,
        began: Callable[[Work, Moment], None] = lambda _work, _now: None,
        attempted: Callable[[Work, Outcome, Moment], None] = lambda _work, _outcome, _now: None,
    ) -> None:
        self.controller = controller
        self.clock = clock
        self._tellers = tuple(tellers)
        self._heard = heard
        self._began = began
        self._attempted = attempted
        self.changed = asyncio.Event()
        self.taints_changed = asyncio.Event()

    def observe(self, fact: Fact) -> None:
        """Take in a fact."""
        now = self.clock.now()
        self._heard(fact, now)
        self._told(self.controller.observe(fact, now), now)

    def order(self, orders: Orders) -> None:
        """Take in what people have ordered."""
        now = self.clock.now()
        self._told(self.controller.order(orders, now), now)
        self.changed.set()

    def change_policy(self, policy: EvictionPolicy) -> None:
        """Go on with another policy of evicting."""
        now = self.clock.now()
        self._told(self.controller.change_policy(policy, now), now)
        self.changed.set()

    def look(self) -> None:
        """Let the circuit breaker look at what is going on."""
        now = self.clock.now()
        self._told(self.controller.look(now), now)

    def take_due(self, most: int, most_retries: int) -> list[Work]:
        """Begin what is due; see ``Controller.take_due``."""
        now = self.clock.now()
        begun = self.controller.take_due(now, most, most_retries)
        for work in begun:
            self._began(work, now)
        return begun

    def obstacle(self, work: Work) -> CalledOff | Held | None:
        """Say what keeps a piece of work in flight from going on at this very moment."""
        return self.controller.obstacle(work, self.clock.now())

    def will_mark(self, ref: PodRef) -> None:
        """Note that a condition is about to be written."""
        self.controller.will_mark(ref)

    def will_delete(self, ref: PodRef) -> None:
        """Note that a pod's deletion is about to be asked for."""
        self.controller.will_delete(ref, self.clock.now())

    def settle(self, work: Work, outcome: Outcome) -> None:
        """Take in how a piece of work ended."""
        now = self.clock.now()
        self._attempted(work, outcome, now)
        self._told(self.controller.settle(work, outcome, now), now)
        self.changed.set()

    def _told(self, effects: list[Effect], now: Moment) -> None:
        for effect in effects:
            for teller in self._tellers:
                teller.tell(effect, now)
            if isinstance(effect, NodeTainted | NodeCleared):
                self.taints_changed.set()
        if effects:
            self.changed.set()
