"""The runtime's ``Watcher`` on the simulated cluster.
A watch begins at a version, or lists and reports the list; then it delivers every later change in order, each ``lag``
seconds after it happened, or after the watch began. One bookmark per minute keeps a quiet watch alive. Watches of nodes
and of pods can separately lag, lose and repeat events, list again, be cut, and be kept closed.
"""

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fake_apiserver.records import Change, Selection, StoredObject
from fake_apiserver.resources import RESOURCES
from taint_eviction.core.text import JsonObject
from taint_eviction.runtime.ports import CallFailed, NodesScope, WatchEnded, WatchListener, WatchScope
from taint_eviction_lab.simulation.calls import SimulatedCalls, World
from taint_eviction_lab.simulation.cluster import SimulatedCluster, bound_to
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.virtual_clock import virtual_now

_BOOKMARK_SECONDS = 60.0

# How much later the repetition of an event arrives.
_REPEATED_AFTER_SECONDS = 1.0

# How long an event takes without a lag.
_USUAL_LAG_SECONDS = 0.005


# An event of a watch: its type and the object.
_Event = tuple[str, StoredObject]


@dataclass(slots=True)
class Streams:
    """The watches of one kind (nodes or pods) of one process, and their faults.

    ``lag_seconds`` applies to later events, and never lets one overtake another. ``lag_events``: this many of the
    latest events are held back until more arrive. Events before ``losing_until``, or with a version in
    ``lost_versions``, are lost; events before ``repeating_until`` arrive twice at once, and once more a little later.
    ``buffered_until``: what they bring before that time arrives then, bookmarks included, although they open.
    ``broken_until``: no watch can be open before that time.
    """

    lag_seconds: float = _USUAL_LAG_SECONDS
    lag_events: int = 0
    losing_until: float = float("-inf")
    lost_versions: frozenset[int] = frozenset()
    repeating_until: float = float("-inf")
    buffered_until: float = float("-inf")
    broken_until: float = float("-inf")
    _open: list["_OpenStream"] = field(default_factory=list)

    def cut(self, for_seconds: float) -> None:
        """End all open watches, and let none be opened for a time."""
        self.broken_until = virtual_now() + for_seconds
        for stream in list(self._open):
            stream.cut()

    def lose(self, for_seconds: float) -> None:
        """Lose all events for a time, without the watches noticing."""
        self.losing_until = virtual_now() + for_seconds

    def repeat(self, for_seconds: float) -> None:
        """Deliver all events of a time more than once."""
        self.repeating_until = virtual_now() + for_seconds

    def buffer(self, for_seconds: float) -> None:
        """Keep back all that the watches bring for a time, although they look open."""
        self.buffered_until = virtual_now() + for_seconds

    def lag(self, seconds: float) -> None:
        """Delay all later events by this time."""
        self.lag_seconds = max(seconds, _USUAL_LAG_SECONDS)

    def hold_back(self, events: int) -> None:
        """Hold back the latest ``events`` events from now on; deliver any others that are held back."""
        self.lag_events = events
        for stream in list(self._open):
            stream.release()

    def relist(self) -> None:
        """Let all open watches list again, as after a 410: events under way are lost."""
        for stream in list(self._open):
            stream.relist()

    def make_peace(self) -> None:
        """End all faults; lost events stay lost."""
        if virtual_now() < self.buffered_until:
            self.cut(0.0)
        self.lag(0.0)
        self.hold_back(0)
        self.losing_until = self.repeating_until = self.buffered_until = self.broken_until = float("-inf")
        self.lost_versions = frozenset()

    def opened(self, stream: "_OpenStream") -> Callable[[], None]:
        """Note an open watch; return a function to call when it has ended."""
        self._open.append(stream)
        return lambda: self._open.remove(stream)


class SimulatedWatcher:
    """The ``Watcher`` of one controller process."""

    def __init__(self, world: World, calls: SimulatedCalls, nodes: Streams, pods: Streams) -> None:
        self._world = world
        self._calls = calls
        self._nodes = nodes
        self._pods = pods

    async def watch(self, scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        """Watch until cancelled; raise ``WatchEnded`` when the watch is cut or cannot be opened.

        ``since`` counts for pods only, as it does for Kopf: nodes are always listed.
        """
        of_nodes = isinstance(scope, NodesScope)
        streams, call = (self._nodes, CallKind.WATCH_NODES) if of_nodes else (self._pods, CallKind.WATCH_PODS)
        node_name = "" if isinstance(scope, NodesScope) else scope.node_name or ""
        selection = Selection(RESOURCES["nodes"]) if isinstance(scope, NodesScope) else bound_to(scope.node_name)
        stream = _OpenStream(self._world.cluster, selection, listener, streams, self._calls.saw)
        store = self._world.cluster.store
        unsubscribe: list[Callable[[], None]] = []
        left = False

        def open_stream() -> list[JsonObject]:
            if left:
                return []
            unsubscribe.append(store.subscribe(stream.notice))
            if of_nodes or since is None:
                return self._world.cluster.bodies(selection)
            for change in store.changes_since("pods", since) or ():
                stream.notice(change)
            return []

        try:
            if virtual_now() < streams.broken_until:
                raise CallFailed("the connection was refused")
            await stream.run(await self._calls.call(call, node_name, open_stream))
        except CallFailed as failure:
            raise WatchEnded(str(failure)) from failure
        finally:
            left = True
            for stop in unsubscribe:
                stop()


class _OpenStream:
    """One open watch."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        selection: Selection,
        listener: WatchListener,
        streams: Streams,
        saw: Callable[[JsonObject], None],
    ) -> None:
        self._cluster = cluster
        self._selection = selection
        self._listener = listener
        self._streams = streams
        self._saw = saw
        # The watching process handles the events, and never while it is frozen.
        self._context = contextvars.copy_context()
        self._cut = asyncio.Event()
        # Events under way, oldest first: none overtakes another, whatever the lag, and none arrives before the list.
        self._under_way: deque[_Event] = deque()
        self._latest_delivery_at = virtual_now()
        self._listed = False
        self._arrived_early = 0

    async def run(self, listed: list[JsonObject]) -> None:
        """Report the list and deliver events, until the watch is cut."""
        closed = self._streams.opened(self)
        try:
            self._tell_list(listed)
            self._listed = True
            for _ in range(self._arrived_early):
                self._deliver()
            self._listener.on_heard()
            while not await self._ended_before_bookmark():
                self._listener.on_heard()
                if not self._under_way and virtual_now() >= self._streams.buffered_until:
                    self._listener.on_progress(self._cluster.store.resource_version)
            raise WatchEnded("the connection was reset")
        finally:
            self._cut.set()
            closed()

    async def _ended_before_bookmark(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BOOKMARK_SECONDS):
                await self._cut.wait()
        return self._cut.is_set()

    def _tell_list(self, listed: list[JsonObject]) -> None:
        for body in listed:
            self._saw(body)
            self._listener.on_event(None, body)
        self._listener.on_listed()

    def cut(self) -> None:
        """End the watch."""
        self._cut.set()

    def relist(self) -> None:
        """List again: events under way are lost."""
        if self._listed:
            self._under_way.clear()
            listed = self._cluster.bodies(self._selection)
            asyncio.get_running_loop().call_soon(self._tell_list, listed, context=self._context.copy())

    def release(self) -> None:
        """Deliver the events that need no longer be held back."""
        for _ in range(max(0, len(self._under_way) - self._streams.lag_events)):
            self._schedule_delivery()

    def notice(self, change: Change) -> None:
        """Note a change that has just happened, to be delivered when the lag is over."""
        if change.new.resource is not self._selection.resource or virtual_now() < self._streams.losing_until:
            return
        seen = self._selection.seen_change(change)
        if seen is None or change.resource_version in self._streams.lost_versions:
            return
        self._under_way.append(seen)
        if self._streams.lag_events < len(self._under_way):
            self._schedule_delivery()

    def _schedule_delivery(self) -> None:
        after_lag = virtual_now() + self._streams.lag_seconds
        self._latest_delivery_at = max(self._latest_delivery_at, after_lag, self._streams.buffered_until)
        asyncio.get_running_loop().call_at(self._latest_delivery_at, self._deliver, context=self._context.copy())

    def _deliver(self) -> None:
        """Deliver the oldest change under way; this is called once for each noticed change."""
        if self._cut.is_set():
            return
        if not self._listed:
            self._arrived_early += 1
            return
        if not self._under_way:  # The watch has listed again meanwhile.
            return
        event = self._under_way.popleft()
        self._listener.on_heard()
        self._report(event)
        if not self._cut.is_set():
            self._listener.on_progress(event[1].resource_version)
        if virtual_now() < self._streams.repeating_until:
            self._report(event)
            asyncio.get_running_loop().call_later(_REPEATED_AFTER_SECONDS, self._report, event)

    def _report(self, event: _Event) -> None:
        if not self._cut.is_set():
            event_type, record = event
            body = self._cluster.recorder.body(record)
            self._saw(body)
            self._listener.on_event(event_type, body)
