"""What holds evictions back: people's orders, and the circuit breaker.

Says what is held and why; decides on no pod. Orders that are not known yet hold everything.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from enum import Enum

from taint_eviction.core.breaker import Breaker, BreakerPolicy
from taint_eviction.core.cluster import KnownNode
from taint_eviction.core.effects import BreakerClosed, BreakerOpened, Effect, Paused, Resumed
from taint_eviction.core.instants import Moment
from taint_eviction.core.lanes import LaneKey
from taint_eviction.core.orders import Orders, Pause


class Hold(Enum):
    """Why a pod that is due is not evicted now, though nobody refuses it."""

    ORDERS_UNKNOWN = "whether evictions are paused has not been read yet"
    BREAKER_OPEN = "the circuit breaker is open"
    PAUSED = "all evictions are paused"
    NODE_PAUSED = "evictions from its node are paused"
    NAMESPACE_PAUSED = "evictions in its namespace are paused"
    RULE_PAUSED = "a rule of the policy pauses it"
    SETTLING = "it waits for a moment, in case many nodes are being tainted"
    LIMITED = "it waits for its turn: a limit, or all workers are busy"


class Brakes:
    """Orders and breaker. ``orders`` is None until they are known."""

    def __init__(self, policy: BreakerPolicy, orders: Orders | None) -> None:
        self.orders = orders
        self.breaker = Breaker(policy)
        self._closed_epoch = -math.inf

    def whole(self) -> Hold | None:
        """Say what holds all evictions, None if nothing does."""
        if self.orders is None:
            return Hold.ORDERS_UNKNOWN
        if self.breaker.latch is not None:
            return Hold.BREAKER_OPEN
        return None if self.orders.whole is None else Hold.PAUSED

    def lane(self, key: LaneKey) -> Hold | None:
        """Say what the orders hold of a lane, None if nothing."""
        if self.orders is None:
            return None
        if key.node_name in self.orders.nodes:
            return Hold.NODE_PAUSED
        return Hold.NAMESPACE_PAUSED if key.namespace in self.orders.namespaces else None

    def pauses(self) -> dict[str, float]:
        """Count the pauses in force by their scope: whole, node, namespace."""
        if self.orders is None:
            return {}
        nodes, namespaces = len(self.orders.nodes), len(self.orders.namespaces)
        return {"whole": self.orders.whole is not None, "node": nodes, "namespace": namespaces}

    def order(self, orders: Orders, now: Moment) -> list[Effect]:
        """Take in orders as they are kept in the cluster; a latch that is known stays until it is reset."""
        before = {} if self.orders is None else dict(_pauses(self.orders))
        after = dict(_pauses(orders))
        self.orders = orders
        effects: list[Effect] = [Paused(scope, pause) for scope, pause in after.items() if scope not in before]
        resumed = [scope for scope in before if scope not in after]
        if resumed:
            self.breaker.know_backlog()
        effects += [Resumed(scope) for scope in resumed]
        return effects + self._noting_breaker(lambda: self._take_latch(orders))

    def look(self, nodes: Mapping[str, KnownNode], due: int, now: Moment) -> list[Effect]:
        """Let the breaker look at what is going on, once it is known what people have said of it before."""
        if self.orders is None:
            return []
        due_to_go = 0 if self.orders.whole is not None else due
        effects = self._noting_breaker(lambda: self.breaker.look(nodes, due_to_go, now))
        if BreakerClosed() in effects:
            self._closed_epoch = now.server_epoch
        return effects

    def _take_latch(self, orders: Orders) -> None:
        breaker = self.breaker
        last_reset = -math.inf if breaker.reset_epoch is None else breaker.reset_epoch
        opened = -math.inf if breaker.latch is None else breaker.latch.since_epoch
        if orders.reset_epoch is not None and orders.reset_epoch > last_reset and orders.reset_epoch >= opened:
            breaker.reset(orders.reset_epoch)
        latch = orders.latch
        if latch is None:
            return
        # One from before this process closed it is what was read before that could be written.
        if latch.unreadable or (breaker.latch is None and latch.since_epoch > self._closed_epoch):
            breaker.latch = latch

    def _noting_breaker(self, act: Callable[[], None]) -> list[Effect]:
        before = self.breaker.latch
        act()
        after = self.breaker.latch
        if (before is None) == (after is None):
            return []
        return [BreakerClosed()] if after is None else [BreakerOpened(after)]


def _pauses(orders: Orders) -> Iterator[tuple[str, Pause]]:
    """Go through all pauses, each with its scope in words."""
    if orders.whole is not None:
        yield "all evictions", orders.whole
    for name, pause in orders.nodes.items():
        yield f"evictions from node {name}", pause
    for name, pause in orders.namespaces.items():
        yield f"evictions in namespace {name}", pause
