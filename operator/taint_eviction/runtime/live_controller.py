"""The brain in real time: couples ``Controller`` with the clock, the tellers, and whoever waits for its deadlines.

Everything synchronous: each method reads the clock once, asks the brain, tells what happened, and wakes the waiting.
"""

import asyncio
from collections.abc import Callable, Iterable

from taint_eviction.core.controller import Controller
from taint_eviction.core.effects import Effect, NodeCleared, NodeTainted, Outcome, Work
from taint_eviction.core.facts import Fact
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import PodRef
from taint_eviction.runtime.ports import Clock, Teller


class LiveController:
    """One brain, living.

    ``changed`` is set whenever a deadline may have changed or a worker has become free, ``taints_changed`` whenever a
    node has become tainted or clean; whoever waits for them clears them. ``heard`` is given each fact before the brain.
    """

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        tellers: Iterable[Teller],
        heard: Callable[[Fact, Moment], None] = lambda _fact, _now: None,
    ) -> None:
        self.controller = controller
        self.clock = clock
        self._tellers = tuple(tellers)
        self._heard = heard
        self.changed = asyncio.Event()
        self.taints_changed = asyncio.Event()

    def observe(self, fact: Fact) -> None:
        """Take in a fact."""
        now = self.clock.now()
        self._heard(fact, now)
        self._told(self.controller.observe(fact, now), now)

    def take_due(self, most: int, most_retries: int) -> list[Work]:
        """Begin what is due; see ``Controller.take_due``."""
        return self.controller.take_due(self.clock.now(), most, most_retries)

    def decide_again(self, work: Work) -> bool:
        """Tell whether a piece of work in flight is still wanted at this very moment."""
        return self.controller.decide_again(work, self.clock.now())

    def will_mark(self, ref: PodRef) -> None:
        """Note that a condition is about to be written."""
        self.controller.will_mark(ref)

    def will_delete(self, ref: PodRef) -> None:
        """Note that a pod's deletion is about to be asked for."""
        self.controller.will_delete(ref)

    def settle(self, work: Work, outcome: Outcome) -> None:
        """Take in how a piece of work ended."""
        now = self.clock.now()
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
