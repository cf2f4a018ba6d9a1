"""The whole body: watches nodes, follows tainted nodes with pod watches, drives evictions, and knows how it is doing.

Our own bugs end it with their exception; nothing of the world does.
"""

import asyncio

from taint_eviction.runtime.driver import Driver
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.pod_watches import PodWatches
from taint_eviction.runtime.ports import NodesScope
from taint_eviction.runtime.standing_orders import StandingOrders
from taint_eviction.runtime.supervised_watch import SupervisedWatch, WatchDoors


class Engine:
    """Runs one controller."""

    def __init__(
        self, live: LiveController, doors: WatchDoors, driver: Driver, orders: StandingOrders | None = None
    ) -> None:
        self._live = live
        self._orders = orders
        self._stale_after = doors.settings.stale_after_seconds
        self._nodes = SupervisedWatch(NodesScope(), doors)
        self._pods = PodWatches(doors)
        self._driver = driver
        self._tainted_at_start: frozenset[str] | None = None
        self._synced = False

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(), name="nodes")
            group.create_task(self._follow_taints(), name="pods")
            group.create_task(self._driver.run(), name="driver")
            if self._orders is not None:
                group.create_task(self._orders.run(), name="orders")

    async def _follow_taints(self) -> None:
        await self._nodes.listed.wait()
        self._tainted_at_start = self._live.controller.tainted_nodes()
        await self._pods.run()

    def synced(self) -> bool:
        """Tell whether the nodes, and the pods of every node tainted then, have been listed; once true, it stays."""
        if not self._synced and self._tainted_at_start is not None:
            tainted = self._live.controller.tainted_nodes()
            self._synced = all(self._pods.listed(name) for name in self._tainted_at_start & tainted)
        return self._synced

    def readiness(self) -> tuple[bool, str]:
        """Say whether the view of the cluster can be relied on, and if not, why."""
        if not self._nodes.listed.is_set():
            return False, "the nodes have not been listed yet"
        if not self.synced():
            return False, "the pods of some tainted nodes have not been listed yet"
        if self._live.controller.dispatch.brakes.orders is None:
            return False, "whether evictions are paused has not been read yet: nothing is evicted"
        for kind, seconds in self.silences().items():
            if seconds > self._stale_after:
                return False, f"the watch of {kind} has been silent for {seconds:.0f} s"
        return True, "ok"

    def silences(self) -> dict[str, float]:
        """Return for how many seconds the quietest watch of nodes, and of pods, has heard nothing."""
        return {"nodes": self._nodes.silent_seconds(), "pods": self._pods.longest_silence_seconds()}

    def beat_age_seconds(self) -> float:
        """Return for how long the driving loop has not turned."""
        return self._live.clock.now().at - self._driver.last_beat_at
