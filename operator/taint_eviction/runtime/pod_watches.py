"""Which pods are watched: those of tainted nodes, one watch a node, or one of all bound pods when there are many.

Cost grows with tainted nodes, not with the cluster. A node that was cleared stays watched a little, so that a taint
which flaps costs nothing. Changing between single watches and the one of all pods, the new side is listed before the
old one ends, and the way back begins at fewer nodes than the way there.

Does not keep a watch alive (``supervised_watch``) and does not know what watches (``ports.Watcher``).
"""

import asyncio
import contextlib
from dataclasses import dataclass

from taint_eviction.core.facts import PodsReleased
from taint_eviction.runtime.ports import PodsScope
from taint_eviction.runtime.supervised_watch import SupervisedWatch, WatchDoors

# The way back from one watch of all pods to single ones begins below this share of the threshold.
_WAY_BACK = 0.75

# The longest wait before lingering and switching are looked at again.
_LOOK_SECONDS = 1.0


@dataclass(slots=True)
class _Attended:
    """One node whose pods matter. ``clean_since`` None: it is tainted. ``single``: it has a watch of its own."""

    watch: SupervisedWatch
    task: asyncio.Task[None]
    single: bool
    clean_since: float | None = None


class PodWatches:
    """Keeps the pods of tainted nodes listed and watched."""

    def __init__(self, doors: WatchDoors) -> None:
        self._doors = doors
        self._settings = doors.settings
        self._attended: dict[str, _Attended] = {}
        self._whole: tuple[SupervisedWatch, asyncio.Task[None]] | None = None
        self._bug: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follow the tainted nodes until cancelled; a bug in a watch ends it with that exception."""
        live = self._doors.live
        try:
            while self._bug is None:
                live.taints_changed.clear()
                self.adjust()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await live.taints_changed.wait()
            raise self._bug
        finally:
            await _ended(list(self._tasks))

    def adjust(self) -> None:
        """Bring the watches in line with the tainted nodes of this moment."""
        tainted = self._doors.live.controller.tainted_nodes()
        whole = len(tainted) >= self._settings.whole_cluster_from * (1 if self._whole is None else _WAY_BACK)
        self._follow(tainted, whole)
        if whole:
            self._towards_whole()
        elif self._whole is not None:
            self._towards_single(self._whole)

    def listed(self, node_name: str) -> bool:
        """Tell whether the pods of this node have been listed since it became tainted."""
        attended = self._attended.get(node_name)
        return attended is not None and attended.watch.listed.is_set()

    def longest_silence_seconds(self) -> float:
        """Return for how long the quietest watch has heard nothing; 0 where no pods are watched."""
        watches = [attended.watch for attended in self._attended.values() if attended.single]
        watches += [self._whole[0]] if self._whole else []
        return max((watch.silent_seconds() for watch in watches), default=0.0)

    def _follow(self, tainted: frozenset[str], whole: bool) -> None:
        now = self._doors.live.clock.now().at
        for name in sorted(tainted):  # In an order of its own, so that a replay is the same in every process.
            attended = self._attended.get(name)
            if attended is None:
                self._attend(name, single=not whole)
            else:
                attended.clean_since = None
        for name in sorted(self._doors.live.controller.attended_nodes() - tainted - self._attended.keys()):
            self._doors.live.observe(PodsReleased(name))  # It was tainted and cleared since the last look.
        for name in [name for name in self._attended if name not in tainted]:
            attended = self._attended[name]
            attended.clean_since = now if attended.clean_since is None else attended.clean_since
            if now - attended.clean_since >= self._settings.linger_seconds:
                del self._attended[name]
                attended.task.cancel()
                self._doors.live.observe(PodsReleased(name))

    def _attend(self, name: str, single: bool) -> None:
        watch = SupervisedWatch(PodsScope(name), self._doors)
        self._attended[name] = _Attended(watch, self._start(watch, single), single)

    def _start(self, watch: SupervisedWatch, watching: bool) -> asyncio.Task[None]:
        work = watch.run() if watching else watch.list_once()
        task = asyncio.create_task(work, name=f"attend {watch.scope}")
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bug = bug
            self._doors.live.taints_changed.set()

    def _towards_whole(self) -> None:
        if self._whole is None:
            watch = SupervisedWatch(PodsScope(None), self._doors)
            self._whole = watch, self._start(watch, True)
        if not self._whole[0].watching.is_set():
            return
        for attended in self._attended.values():
            if attended.single:
                attended.single = False
                attended.task.cancel()
                attended.task = self._start(attended.watch, False)

    def _towards_single(self, whole: tuple[SupervisedWatch, asyncio.Task[None]]) -> None:
        for attended in self._attended.values():
            if not attended.single:
                attended.single = True
                attended.task.cancel()
                attended.task = self._start(attended.watch, True)
        if all(attended.watch.watching.is_set() for attended in self._attended.values()):
            whole[1].cancel()
            self._whole = None


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if not task.cancelling():
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
