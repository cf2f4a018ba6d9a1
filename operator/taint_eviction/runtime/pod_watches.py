"""Which pods are watched: those of tainted nodes, by one watch per node, or by one watch of all bound pods if many
nodes are tainted.

The cost grows with the tainted nodes, not with the cluster. A node whose last taint is removed stays watched for a
while, so that a flapping taint costs nothing. On a switch between single watches and the watch of all pods, the new
watches are listed before the old ones end. While the watch of all pods does not come up, or not again, tainted nodes
get watches of their own, so that pods that are bound to them later are seen. The switch back happens at fewer nodes, so
that the two do not alternate.
This module does not restart watches (``supervised_watch``) and does not know how to watch (``ports.Watcher``).
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from taint_eviction.core.facts import PodsReleased
from taint_eviction.runtime.ports import CallFailed, PodsScope
from taint_eviction.runtime.supervised_watch import SupervisedWatch, WatchPorts

logger = logging.getLogger(__name__)

# Single watches replace the watch of all pods below this share of the threshold.
_SWITCH_BACK_SHARE = 0.75

# How long a newly tainted node waits for the watch of all pods before it gets one of its own, and how long the others
# wait where that watch has ended: in a large cluster its list alone takes half a minute.
_UNCOVERED_SECONDS, _UNCOVERED_AGAIN_SECONDS = 10.0, 60.0

# The longest wait before lingering nodes and the switch are checked again.
_CHECK_SECONDS = 1.0


@dataclass(slots=True)
class _WatchedNode:
    """A node whose pods are watched. ``clean_since`` None: it is tainted. ``single``: it has a watch of its own.

    ``cover_at``: when it gets one unless the watch of all pods is up by then, None: it has either.
    """

    watch: SupervisedWatch
    task: asyncio.Task[None]
    single: bool
    clean_since: float | None = None
    cover_at: float | None = None


class PodWatches:
    """Keeps the pods of tainted nodes listed and watched."""

    def __init__(self, ports: WatchPorts) -> None:
        self._ports = ports
        self._live, self._controller, self._clock = ports.live, ports.live.controller, ports.live.clock
        self._settings = ports.settings
        self._watched: dict[str, _WatchedNode] = {}
        self._all_pods: tuple[SupervisedWatch, asyncio.Task[None]] | None = None
        self._bug: BaseException | None = None
        # A dict, so that they are cancelled in the same order in every process.
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def run(self) -> None:
        """Follow the tainted nodes until cancelled; a bug in a watch ends it with that exception."""
        try:
            while self._bug is None:
                self._live.taints_changed.clear()
                self.adjust()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_SECONDS):
                        await self._live.taints_changed.wait()
            raise self._bug
        finally:
            await _ended(list(self._tasks))

    def adjust(self) -> None:
        """Bring the watches in line with the nodes that are tainted now."""
        tainted = self._controller.tainted_nodes()
        share = 1 if self._all_pods is None else _SWITCH_BACK_SHARE
        watch_all = len(tainted) >= share * self._settings.whole_cluster_from
        self._follow(tainted, watch_all)
        if watch_all:
            self._to_all_pods()
        elif self._all_pods is not None:
            self._to_single(self._all_pods)

    def listed(self, node_name: str) -> bool:
        """Return whether the pods of this node have been listed since it became tainted."""
        watched = self._watched.get(node_name)
        return watched is not None and watched.watch.listed.is_set()

    def longest_silence_seconds(self) -> float:
        """Return for how long the most silent watch has received nothing; 0 if no pods are watched."""
        watches = [watched.watch for watched in self._watched.values() if watched.single]
        watches += [self._all_pods[0]] if self._all_pods else []
        return max((watch.silent_seconds() for watch in watches), default=0.0)

    async def list_again(self) -> None:
        """List all watched pods once more, each scope until it succeeds or is no longer watched."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches():
                group.create_task(self._list_scope_again(watch), name=f"list {watch.scope} again")

    async def _list_scope_again(self, watch: SupervisedWatch) -> None:
        pause = self._settings.restart_max_seconds
        while watch in self._watches():
            try:
                return await watch.list_again()
            except CallFailed as reason:
                logger.warning("%s are listed again in %g s, since a list failed: %s", watch.scope, pause, reason)
                await asyncio.sleep(pause)

    def _watches(self) -> list[SupervisedWatch]:
        single = [watched.watch for watched in self._watched.values()]
        return single if self._all_pods is None else [*single, self._all_pods[0]]

    def _follow(self, tainted: frozenset[str], watch_all: bool) -> None:
        now = self._clock.now().at
        for name in sorted(tainted):  # Sorted, so that a replay is the same in every process.
            watched = self._watched.get(name)
            if watched is None:
                self._watch(name, single=not watch_all)
            else:
                watched.clean_since = None
        for name in sorted(self._controller.watched_nodes() - tainted - self._watched.keys()):
            self._live.observe(PodsReleased(name))  # It was tainted and cleared since the last check.
        for name in [name for name in self._watched if name not in tainted]:
            watched = self._watched[name]
            watched.clean_since = now if watched.clean_since is None else watched.clean_since
            if now - watched.clean_since >= self._settings.linger_seconds:
                del self._watched[name]
                watched.task.cancel()
                self._live.observe(PodsReleased(name))

    def _watch(self, name: str, single: bool) -> None:
        watch = SupervisedWatch(PodsScope(name), self._ports)
        watched = self._watched[name] = _WatchedNode(watch, self._start(watch, single), single)
        if not single:
            watched.cover_at = self._clock.now().at + _UNCOVERED_SECONDS

    def _start(self, watch: SupervisedWatch, watching: bool) -> asyncio.Task[None]:
        work = watch.run() if watching else watch.list_once()
        task = asyncio.create_task(work, name=f"follow {watch.scope}")
        self._tasks[task] = None
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bug = bug
            self._live.taints_changed.set()

    def _to_all_pods(self) -> None:
        if self._all_pods is None:
            watch = SupervisedWatch(PodsScope(None), self._ports)
            self._all_pods = watch, self._start(watch, True)
        if not self._all_pods[0].watching.is_set():
            self._cover()
            return
        for watched in self._watched.values():
            watched.cover_at = None
            if watched.single:
                watched.single = False
                watched.task.cancel()
                watched.task = self._start(watched.watch, False)

    def _cover(self) -> None:
        """Watch nodes by themselves that the watch of all pods has not covered for too long."""
        now = self._clock.now().at
        for watched in self._watched.values():
            if watched.single:
                continue
            if watched.cover_at is None:
                watched.cover_at = now + _UNCOVERED_AGAIN_SECONDS
            elif now >= watched.cover_at:
                watched.single, watched.cover_at = True, None
                watched.task.cancel()
                watched.task = self._start(watched.watch, True)

    def _to_single(self, all_pods: tuple[SupervisedWatch, asyncio.Task[None]]) -> None:
        for watched in self._watched.values():
            if not watched.single:
                watched.single = True
                watched.task.cancel()
                watched.task = self._start(watched.watch, True)
        if all(watched.watch.watching.is_set() for watched in self._watched.values()):
            all_pods[1].cancel()
            self._all_pods = None


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if not task.cancelling():
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
