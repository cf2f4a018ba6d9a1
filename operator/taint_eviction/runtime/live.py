"""The core in real time: connects ``Controller`` with the clock, the reporters, and the tasks that wait for deadlines.
Everything is synchronous: each method reads the clock once, calls the core, reports the effects, and wakes the waiting
tasks. What has no effects to report is asked of the core itself (``evictor``, ``driver``).
"""

import asyncio
from collections.abc import Callable, Iterable

from taint_eviction.core.control_state import ControlState
from taint_eviction.core.controller import Controller
from taint_eviction.core.events import Event, NodeCleared, NodeTainted, Work, WorkOutcome
from taint_eviction.core.facts import Fact, PodsSwept
from taint_eviction.core.instants import Moment
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.runtime.ports import Clock, Gate, Reporter

_TAINT_CHANGES = NodeTainted | NodeCleared


class Live:
    """A controller with a clock.

    ``changed`` is set whenever a deadline may have changed or a worker has become free, ``taints_changed`` whenever a
    node has become tainted or clean; the waiting task clears them. ``heard`` is called with each fact before the core,
    ``began`` and ``attempted`` with each piece of work that begins or has ended.
    """

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        reporters: Iterable[Reporter],
        heard: Callable[[Fact, Moment], None] = lambda _fact, _now: None,
        began: Callable[[Work, Moment], None] = lambda _work, _now: None,
        attempted: Callable[[Work, WorkOutcome, Moment], None] = lambda _work, _outcome, _now: None,
    ) -> None:
        self.controller = controller
        self._attempts = controller.attempts
        self.clock = clock
        self._reporters = tuple(reporters)
        self._heard = heard
        self._began = began
        self._attempted = attempted
        self._followers: list[Callable[[Fact, Moment], None]] = []
        self.changed = asyncio.Event()
        self.taints_changed = asyncio.Event()

    def observe(self, fact: Fact, now: Moment | None = None) -> None:
        """Observe a fact; ``now``: when it came, if the caller has just read that."""
        now = now or self.clock.now()
        self._heard(fact, now)
        self._report(self.controller.observe(fact, now), now)
        for follow in self._followers:
            follow(fact, now)
        if isinstance(fact, PodsSwept):
            self.changed.set()  # Evictions may have waited for the end of this list.

    def follow(self, observed: Callable[[Fact, Moment], None]) -> None:
        """Have a function called with each fact, after the core has observed it."""
        self._followers.append(observed)

    def order(self, control_state: ControlState) -> None:
        """Apply what people have ordered."""
        now = self.clock.now()
        self._report(self.controller.order(control_state, now), now)
        self.changed.set()

    def tell(self, effect: Event) -> None:
        """Report what has happened outside the core."""
        self._report([effect], self.clock.now())

    def change_policy(self, policy: EvictionPolicy) -> None:
        """Apply another eviction policy."""
        now = self.clock.now()
        self._report(self.controller.change_policy(policy, now), now)
        self.changed.set()

    def evaluate(self, gate: Gate) -> None:
        """Let the circuit breaker evaluate the cluster; ``gate`` knows this leadership and the one before."""
        now = self.clock.now()
        self._report(self.controller.evaluate(now, gate.term, gate.tried_before), now)

    def take_due(self, max_works: int, max_retries: int) -> list[Work]:
        """Begin due work; see ``Attempts.take_due``."""
        now = self.clock.now()
        begun = self._attempts.take_due(now, max_works, max_retries)
        for work in begun:
            self._began(work, now)
        return begun

    def finish(self, work: Work, outcome: WorkOutcome) -> None:
        """Finish a piece of work."""
        now = self.clock.now()
        self._attempted(work, outcome, now)
        self._report(self._attempts.finish(work, outcome, now), now)
        self.changed.set()

    def _report(self, effects: list[Event], now: Moment) -> None:
        for effect in effects:
            for reporter in self._reporters:
                reporter.report(effect, now)
            if isinstance(effect, _TAINT_CHANGES):
                self.taints_changed.set()
        if effects:
            self.changed.set()
