"""The whole runtime: watches nodes and the pods of tainted nodes, drives evictions, and knows if its view is complete.
A bug of the controller ends it with its exception; nothing in the outside world ends it.
"""

import asyncio
from collections.abc import Awaitable, Callable

from taint_eviction.runtime.adopter import Adopter
from taint_eviction.runtime.control_state_sync import ControlStateSync
from taint_eviction.runtime.driver import Driver
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.pod_watches import PodWatches
from taint_eviction.runtime.policy_check import PolicyCheck
from taint_eviction.runtime.ports import NodesScope
from taint_eviction.runtime.supervised_watch import SupervisedWatch, WatchPorts


class Engine:
    """Runs one controller, and holds its parts for those who read or stop them.

    ``control_state`` None: evictions cannot be paused. ``adopter`` None: no countdown is taken over, and no
    ``hand-back`` is confirmed. ``policy_check`` None: nobody asks about the admission policy. ``learn_time`` returns
    once the API server's time is known, or cannot be.
    """

    def __init__(
        self,
        live: Live,
        ports: WatchPorts,
        driver: Driver,
        control_state: ControlStateSync | None = None,
        adopter: Adopter | None = None,
        *,
        policy_check: PolicyCheck | None = None,
        learn_time: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.live = live
        self.driver = driver
        self.control_state = control_state
        self.adopter = adopter
        self.policy_check = policy_check
        self._learn_time = learn_time
        self._stale_after = ports.settings.stale_after_seconds
        self._nodes = SupervisedWatch(NodesScope(), ports)
        self._pods = PodWatches(ports)
        self._tainted_at_start: frozenset[str] | None = None
        self._synced = False

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_nodes(), name="nodes")
            group.create_task(self._follow_taints(), name="pods")
            group.create_task(self.driver.run(), name="driver")
            if self.control_state is not None:
                group.create_task(self.control_state.run(), name="control state")
            if self.policy_check is not None:
                group.create_task(self.policy_check.run(), name="admission policy")
            if self.adopter is not None:
                group.create_task(self._adopt(self.adopter), name="adoption")

    async def _follow_nodes(self) -> None:
        # Objects are dated only once the API server's time is known; nothing else waits for it.
        if self._learn_time is not None:
            await self._learn_time()
        await self._nodes.run()

    async def _adopt(self, adopter: Adopter) -> None:
        await self._nodes.listed.wait()
        await adopter.run()

    async def _follow_taints(self) -> None:
        await self._nodes.listed.wait()
        self._tainted_at_start = self.live.controller.tainted_nodes()
        await self._pods.run()

    async def list_pods_again(self) -> None:
        """List all watched pods once more, until that has succeeded."""
        await self._pods.list_again()

    def synced(self) -> bool:
        """Return whether all nodes, and the pods of nodes tainted then, have been listed; once true, always true."""
        if not self._synced and self._tainted_at_start is not None:
            tainted = self.live.controller.tainted_nodes()
            self._synced = all(self._pods.listed(name) for name in self._tainted_at_start & tainted)
        return self._synced

    def readiness(self) -> tuple[bool, str]:
        """Return whether the view of the cluster is reliable, and if not, why."""
        if not self._nodes.listed.is_set():
            return False, "the nodes have not been listed yet"
        if not self.synced():
            return False, "the pods of some tainted nodes have not been listed yet"
        if self.control_state is not None and not self.control_state.known:
            return False, "whether evictions are paused has not been read yet: nothing is evicted"
        for kind, seconds in self.silences().items():
            if seconds > self._stale_after:
                return False, f"the watch of {kind} has been silent for {seconds:.0f} s"
        return True, "ok"

    def silences(self) -> dict[str, float]:
        """Return for how many seconds the most silent watch of each kind (nodes, pods) has received nothing."""
        return {"nodes": self._nodes.silent_seconds(), "pods": self._pods.longest_silence_seconds()}
