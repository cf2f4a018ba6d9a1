"""A watch that is restarted indefinitely: list, watch, and when the watch ends, back off, list and watch again.

The core and its deadlines outlive every end of a watch. After any gap a fresh list restores the state: the list before
a watch starts, another one when the watch itself has listed again, one when it has brought nothing for long, and one
every few minutes in case it lost something.

This module does not choose what to watch (``pod_watches``), nor observe the changes (``watch_listener``).
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from taint_eviction.runtime.lasting_failure import FewLines
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.ports import CallFailed, NodesScope, WatchEnded, Watcher, WatchScope
from taint_eviction.runtime.resync import Listed, Resync
from taint_eviction.runtime.watch_listener import Interpret, ObservingListener
from taint_eviction.settings import WatchSettings

logger = logging.getLogger(__name__)

# A watch that has brought nothing for so long, not even one of the bookmarks that come about once a minute, may be kept
# back by a proxy although its streams open. An idle API server sends no bookmarks either; so a list decides: what it
# shows must come by the watch, too.
_QUIET_SECONDS = 80.0
# Of nodes the list comes sooner, and again: a connection may stay open and pass nothing on, as that of an API server
# that hangs behind a balancer does, and new taints must not wait for the first bookmark that is missing. Where there
# are many nodes, some heartbeat comes before, so that only a list of few is made so often.
_QUIET_NODES_SECONDS = 20.0
_LATEST_SECONDS = 5.0

# A list that lacks an object that is known is followed by another one after so long: it may have come from an API
# server, or a proxy, that leaves something out, and what it lacks is not evicted.
_LACKING_SECONDS = 30.0

# A watch that takes longer to start lets the next one start: hundreds that hang must not delay another by minutes.
_MAX_START_SECONDS = 0.2


class WatchPorts:
    """What all watches share: how they list and watch, how objects are read, and how many watches start at a time.

    ``restarted`` is called with the kind (nodes, pods) of each watch that ended.
    """

    def __init__(
        self,
        live: Live,
        resync: Resync,
        watcher: Watcher,
        interpret: Interpret,
        *,
        settings: WatchSettings,
        rng: random.Random,
        restarted: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self.live = live
        self.resync = resync
        self.watcher = watcher
        self.interpret = interpret
        self.settings = settings
        self.rng = rng
        self.start_turn = asyncio.Semaphore(settings.starts_at_once)
        self.restarted = restarted
        self.few_lines = FewLines()


class SupervisedWatch:
    """Keeps one scope listed and watched. ``listed`` is set once the scope has been listed."""

    def __init__(self, scope: WatchScope, ports: WatchPorts) -> None:
        self.scope = scope
        self._clock = ports.live.clock
        self._resync, self._settings, self._rng = ports.resync, ports.settings, ports.rng
        self.listed = asyncio.Event()
        self._ports = ports
        self._listener = ObservingListener(scope, ports.live, ports.interpret)
        self._failures = 0
        # Held while the scope is listed and what was listed is observed.
        self._listing = asyncio.Lock()

    @property
    def watching(self) -> asyncio.Event:
        """Set while the watch is known to be up."""
        return self._listener.watching

    def silent_seconds(self) -> float:
        """Return for how long the watch has received nothing."""
        return self._listener.silent_seconds()

    async def run(self) -> None:
        """List and watch until cancelled."""
        self._listener.on_heard()
        while True:
            try:
                asked_at = self._clock.now().at
                listed = await self._list_first()
                self._listener.note_seen(listed.version, asked_at)
                self.listed.set()
                await self._watch(listed)
            except (CallFailed, WatchEnded) as reason:
                await self._back_off(reason)

    async def list_once(self) -> None:
        """List until it has succeeded once, and watch nothing."""
        while not self.listed.is_set():
            try:
                await self._list_first()
                self.listed.set()
            except CallFailed as reason:
                await self._back_off(reason)

    async def _list_first(self) -> Listed:
        """List before a watch starts, or instead of it."""
        first = not self.listed.is_set()
        async with self._listing:
            return await self._resync.resync(self.scope, first=first, again=self._failures > 0, after_gap=True)

    async def list_again(self) -> None:
        """List once more, so that nothing stays as an earlier list read it; nothing if no list has succeeded.

        Raises ``CallFailed`` if the list fails.
        """
        async with self._listing:
            if self.listed.is_set():
                await self._resync.resync(self.scope)

    async def _watch(self, listed: Listed) -> None:
        tasks = [asyncio.create_task(self._stay_fresh(listed), name=f"resync {self.scope}")]
        try:
            await self._start(tasks, listed.version)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for ended in tasks:
                if ended.cancelled():  # Not by this task, which cancels it only below.
                    raise WatchEnded("it was cancelled")
                if ended.done():
                    ended.result()
            raise WatchEnded("it ended without a reason")
        finally:
            self._listener.watching.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self, tasks: list[asyncio.Task[None]], since: int | None) -> None:
        """Start the watch and wait until it is up or has failed; few start at a time, since starting is expensive.

        The watch of nodes waits for no other: without it no new taint is known.
        """
        async with contextlib.nullcontext() if isinstance(self.scope, NodesScope) else self._ports.start_turn:
            watching = self._ports.watcher.watch(self.scope, self._listener, since)
            watch = asyncio.create_task(watching, name=f"watch {self.scope}")
            tasks.append(watch)
            up = asyncio.create_task(self._listener.watching.wait(), name=f"start {self.scope}")
            try:
                await asyncio.wait((watch, up), timeout=_MAX_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                up.cancel()

    async def _stay_fresh(self, listed: Listed) -> None:
        """List again every few minutes; sooner if a list lacks an object that is known, or if the watch has brought
        nothing for a while; and at once after a gap of the watch.

        Raise ``WatchEnded`` if the watch does not bring what a list shows.
        """
        began_at = tried_at = self._clock.now().at
        next_at, after_gap = tried_at + self._resync_pause(listed), False
        quiet_seconds = _QUIET_NODES_SECONDS if isinstance(self.scope, NodesScope) else _QUIET_SECONDS
        while True:
            quiet_at = max(tried_at, self._listener.brought_at) + quiet_seconds
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(next_at, quiet_at) - self._clock.now().at):
                    await self._listener.gap.wait()
            now, brought_at = self._clock.now().at, self._listener.brought_at
            after_gap = after_gap or self._listener.gap.is_set()
            if not (after_gap or now >= min(next_at, max(tried_at, brought_at) + quiet_seconds)):
                continue
            self._listener.gap.clear()
            tried_at = now
            try:
                async with self._listing:
                    seen_version = self._listener.seen_version
                    listed = await self._resync.resync(self.scope, after_gap=after_gap)
            except CallFailed as reason:
                self._warn(f"the periodic list of {self.scope} failed: {reason}")
                next_at = self._clock.now().at + self._settings.restart_max_seconds * self._rng.uniform(0.5, 1.0)
                continue
            if seen_version is not None and listed.version is not None and listed.version < seen_version:
                # The watch may have begun at a version that is still to come, and would bring nothing until then.
                raise WatchEnded("a list has a lower version than it: a proxy, or a restored storage")
            next_at, after_gap = self._clock.now().at + self._resync_pause(listed), False
            is_quiet = tried_at >= max(began_at, brought_at) + _QUIET_SECONDS
            if is_quiet and not self._listener.has_seen(listed.newest):
                await self._expect_more(since=tried_at)

    async def _expect_more(self, since: float) -> None:
        await asyncio.sleep(_LATEST_SECONDS)
        if self._listener.brought_at < since:
            silence = f"it has brought nothing for {self._clock.now().at - self._listener.brought_at:.0f} s"
            raise WatchEnded(f"{silence}, and a list shows changes: a proxy may keep back what it sends")

    def _resync_pause(self, listed: Listed) -> float:
        seconds = self._settings.resync_seconds
        return (min(seconds, _LACKING_SECONDS) if listed.lacking else seconds) * self._rng.uniform(0.9, 1.1)

    async def _back_off(self, reason: Exception) -> None:
        settings = self._settings
        now = self._clock.now().at
        if self._listener.up_at is not None and now - self._listener.up_at >= settings.restart_max_seconds:
            self._failures = 0
        self._listener.up_at = None
        pause = min(settings.restart_max_seconds, settings.restart_first_seconds * 2.0 ** min(self._failures, 30))
        pause *= self._rng.uniform(0.5, 1.0)
        self._failures += 1
        self._ports.restarted(self.scope.kind)
        self._warn(f"the watch of {self.scope} ended: {reason}; next try in {pause:.1f} s")
        await asyncio.sleep(pause)

    def _warn(self, text: str) -> None:
        """Log a failure. Those of pods of hundreds of nodes mostly have one reason."""
        held = 0 if isinstance(self.scope, NodesScope) else self._ports.few_lines.passes(self._clock.now().at)
        if held:
            text += f" ({held} lines about other nodes' pods were held back)"
        logger.log(logging.DEBUG if held is None else logging.WARNING, "%s", text)
