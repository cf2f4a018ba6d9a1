"""One watch that never gives up: list, watch, and when the watch ends, wait a little, list and watch again.

The brain and its timers outlive every end of a watch. After any gap the state is what a fresh list says: the list
before a watch starts, another when the watch itself has listed again, and one every few minutes in case it lost
something.

Does not choose what to watch (``pod_watches``).
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from taint_eviction.core.facts import Fact
from taint_eviction.runtime.live_controller import LiveController
from taint_eviction.runtime.ports import CallFailed, WatchEnded, Watcher, WatchScope
from taint_eviction.runtime.resync import Resync
from taint_eviction.settings import WatchSettings

logger = logging.getLogger(__name__)

# Turns an object that a watch brought into a fact; None if it can't be read (which is told where that is found out).
Interpret = Callable[[WatchScope, str | None, Mapping[str, Any]], Fact | None]

# A watch that takes longer to come up lets the next one try.
_LONGEST_TURN_SECONDS = 5.0


class WatchDoors:
    """What all watches share: where they list, what watches, who reads, and how many may start at a time.

    ``restarted`` is given the kind (nodes, pods) of each watch that broke.
    """

    def __init__(
        self,
        live: LiveController,
        resync: Resync,
        watcher: Watcher,
        interpret: Interpret,
        *,
        settings: WatchSettings,
        chance: random.Random,
        restarted: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self.live = live
        self.resync = resync
        self.watcher = watcher
        self.interpret = interpret
        self.settings = settings
        self.chance = chance
        self.start_turn = asyncio.Semaphore(settings.starts_at_once)
        self.restarted = restarted


class SupervisedWatch:
    """Keeps one scope listed and watched; also the listener of its own watch.

    ``listed`` is set once the scope has been listed, ``watching`` while the watch is known to be up.
    """

    def __init__(self, scope: WatchScope, doors: WatchDoors) -> None:
        self.scope = scope
        self.listed = asyncio.Event()
        self.watching = asyncio.Event()
        self._doors = doors
        self._relist = asyncio.Event()
        self._failures = 0
        self._up_at: float | None = None
        self._heard_at = doors.live.clock.now().at

    # What the watch tells

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Let the brain observe what the watch brought."""
        fact = self._doors.interpret(self.scope, event_type, body)
        if fact is not None:
            self._doors.live.observe(fact)

    def on_listed(self) -> None:
        """Note a list by the watch itself: its first is ours, or follows it; a later one means that there was a gap."""
        if self.watching.is_set():
            self._relist.set()
        else:
            self._up_at = self._doors.live.clock.now().at
        self.watching.set()

    def on_heard(self) -> None:
        """Note that the watch is alive."""
        self._heard_at = self._doors.live.clock.now().at

    def silent_seconds(self) -> float:
        """Return for how long nothing has been heard: bookmarks come about once a minute on a quiet watch."""
        return self._doors.live.clock.now().at - self._heard_at

    # What it does

    async def run(self) -> None:
        """List and watch until cancelled."""
        self.on_heard()
        while True:
            try:
                version = await self._doors.resync.resync(self.scope, first=not self.listed.is_set())
                self.listed.set()
                await self._watch(version)
            except (CallFailed, WatchEnded) as reason:
                await self._back_off(reason)

    async def list_once(self) -> None:
        """List until it has succeeded once, and watch nothing."""
        while not self.listed.is_set():
            try:
                await self._doors.resync.resync(self.scope, first=True)
                self.listed.set()
            except CallFailed as reason:
                await self._back_off(reason)

    async def _watch(self, since: int | None) -> None:
        tasks = [asyncio.create_task(self._stay_fresh(), name=f"resync {self.scope}")]
        try:
            await self._start(tasks, since)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for ended in tasks:
                if ended.cancelled():  # by a stranger: we cancel below only
                    raise WatchEnded("it was cancelled")
                if ended.done():
                    ended.result()
            raise WatchEnded("it ended without a reason")
        finally:
            self.watching.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self, tasks: list[asyncio.Task[None]], since: int | None) -> None:
        """Start the watch and wait until it is up or has failed, few at a time, since starting is dear."""
        async with self._doors.start_turn:
            watching = self._doors.watcher.watch(self.scope, self, since)
            watch = asyncio.create_task(watching, name=f"watch {self.scope}")
            tasks.append(watch)
            up = asyncio.create_task(self.watching.wait(), name=f"start {self.scope}")
            try:
                await asyncio.wait((watch, up), timeout=_LONGEST_TURN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                up.cancel()

    async def _stay_fresh(self) -> None:
        """List again every few minutes, and at once when the watch had a gap."""
        while True:
            pause = self._doors.settings.resync_seconds * self._doors.chance.uniform(0.9, 1.1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._relist.wait()
            self._relist.clear()
            try:
                await self._doors.resync.resync(self.scope)
            except CallFailed as reason:
                logger.warning("listing %s again failed: %s", self.scope, reason)
                await asyncio.sleep(self._doors.settings.restart_most_seconds * self._doors.chance.uniform(0.5, 1.0))
                self._relist.set()

    async def _back_off(self, reason: Exception) -> None:
        settings = self._doors.settings
        now = self._doors.live.clock.now().at
        if self._up_at is not None and now - self._up_at >= settings.restart_most_seconds:
            self._failures = 0
        self._up_at = None
        pause = min(settings.restart_most_seconds, settings.restart_first_seconds * 2.0 ** min(self._failures, 30))
        pause *= self._doors.chance.uniform(0.5, 1.0)
        self._failures += 1
        self._doors.restarted(self.scope.kind)
        logger.warning("the watch of %s broke: %s; again in %.1f s", self.scope, reason, pause)
        await asyncio.sleep(pause)
