"""The ConfigMap with people's orders in a simulated cluster, and the door of one process to it.

Kept as values, with times to the microsecond: how they are spelled is the adapters' business, also of what people write
by hand. The breaker's latch and its end are on the timeline, whoever has written them. Not here: what follows from
orders (``runtime.standing_orders``).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from taint_eviction.core.orders import Latch, Orders, Pause
from taint_eviction.simulation.api import SimulatedApi
from taint_eviction.simulation.cluster import Impossible
from taint_eviction.simulation.faults import Call
from taint_eviction.simulation.timeline import BREAKER, Entry, Timeline, What
from taint_eviction.simulation.virtual_clock import server_time, virtual_now


class SimulatedOrders:
    """The object as the API server keeps it; ``orders`` None: there is none. ``read`` is how production reads it."""

    def __init__(self, timeline: Timeline, read: Callable[[Mapping[str, Any]], Orders]) -> None:
        self.orders: Orders | None = None
        self._timeline = timeline
        self._read = read

    # What people do

    def pause(self, node: str | None, namespace: str | None, reason: str) -> None:
        """Hold the evictions of a node, of a namespace, or all."""
        pause = Pause(server_time(virtual_now()), reason)
        before = self.orders or Orders()
        if node is not None:
            self.orders = replace(before, nodes={**before.nodes, node: pause})
        elif namespace is not None:
            self.orders = replace(before, namespaces={**before.namespaces, namespace: pause})
        else:
            self.orders = replace(before, whole=pause)

    def resume(self, node: str | None, namespace: str | None, every: bool) -> None:
        """Take a pause back: of a node, of a namespace, or the one that holds all; or ``every`` pause there is."""
        before = self.orders or Orders()
        if every:
            self.orders = replace(before, whole=None, nodes={}, namespaces={})
        elif node is not None:
            self.orders = replace(before, nodes=_without(before.nodes, node))
        elif namespace is not None:
            self.orders = replace(before, namespaces=_without(before.namespaces, namespace))
        elif before.whole is None:
            raise Impossible("nothing is paused as a whole at this moment")
        else:
            self.orders = replace(before, whole=None)

    def scribble(self, key: str, value: str) -> None:
        """Write one key by hand, as text; what its key was about is held or not by what that means."""
        before, written = self.orders or Orders(), self._read({"data": {key: value}})
        nodes, namespaces = {**before.nodes, **written.nodes}, {**before.namespaces, **written.namespaces}
        self.orders = replace(before, whole=written.whole or before.whole, nodes=nodes, namespaces=namespaces)
        if written.latch is not None:
            self._open(written.latch, "a human")

    def lose(self) -> None:
        """Delete the ConfigMap."""
        if self.orders is None:
            raise Impossible("there is no ConfigMap with orders at this moment")
        self.orders = None

    # Writes of either side

    def reset(self, reset_epoch: float, by: str) -> None:
        """Close the breaker."""
        before = self.orders or Orders()
        if before.latch is not None:
            self._timeline.add(Entry(virtual_now(), What.BREAKER_CLOSED, BREAKER, why=by))
        self.orders = replace(before, latch=None, reset_epoch=round(reset_epoch, 6))

    def latch(self, latch: Latch, by: str) -> None:
        """Open the breaker, unless it is open, or was reset since."""
        before = self.orders or Orders()
        latch = Latch(round(latch.since_epoch, 6), latch.cause)
        reset_since = before.reset_epoch is not None and before.reset_epoch >= latch.since_epoch
        if before.latch is None and not reset_since:
            self._open(latch, by)

    def _open(self, latch: Latch, by: str) -> None:
        before = self.orders or Orders()
        if before.latch is None:
            self._timeline.add(Entry(virtual_now(), What.BREAKER_OPENED, BREAKER, why=f"{by}: {latch.cause}"))
        # Both stand in one key.
        self.orders = replace(before, latch=latch, reset_epoch=None)


def _without(pauses: Mapping[str, Pause], name: str) -> dict[str, Pause]:
    if name not in pauses:
        raise Impossible(f"{name!r} is not paused at this moment")
    return {each: pause for each, pause in pauses.items() if each != name}


class SimulatedOrdersStore:
    """The ``OrdersStore`` of one controller process."""

    def __init__(self, api: SimulatedApi, orders: SimulatedOrders) -> None:
        self._api = api
        self._orders = orders

    async def read(self) -> Orders | None:
        """Read the orders; None if their object is not there."""
        return await self._api.call(Call.READ_ORDERS, "", lambda: self._orders.orders)

    async def write_latch(self, latch: Latch) -> None:
        """Keep that the breaker is open, unless it was reset since."""
        await self._api.call(Call.WRITE_ORDERS, "", lambda: self._orders.latch(latch, self._api.name))

    async def write_reset(self, reset_epoch: float) -> None:
        """Keep that the breaker was closed then."""
        await self._api.call(Call.WRITE_ORDERS, "", lambda: self._orders.reset(reset_epoch, self._api.name))
