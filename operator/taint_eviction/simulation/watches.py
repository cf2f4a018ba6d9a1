"""The watching door of the runtime onto the simulated cluster.

A watch begins at a version, or lists and tells what it listed; then it brings every later change in order, each ``lag``
seconds after it happened, or after the watch began. A bookmark a minute keeps a quiet one alive. Watches of nodes and
of pods can lag, lose and repeat events, list again by themselves, and be cut and kept from coming back, each kind by
itself.
"""

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from taint_eviction.runtime.ports import CallFailed, NodesScope, WatchEnded, WatchListener, WatchScope
from taint_eviction.simulation import kubernetes_json as kube
from taint_eviction.simulation.api import SimulatedApi, World, pods_bound_to
from taint_eviction.simulation.cluster import Change
from taint_eviction.simulation.faults import Call
from taint_eviction.simulation.kubernetes_json import JsonObject
from taint_eviction.simulation.virtual_clock import virtual_now

_BOOKMARK_SECONDS = 60.0

# How much later an event that is repeated comes once more.
_REPEATED_AFTER_SECONDS = 1.0

# How long an event takes where nothing lags.
_USUAL_LAG_SECONDS = 0.005


@dataclass(slots=True)
class Streams:
    """How the watches of one kind (nodes, or pods) of one process fare.

    ``lag_seconds`` counts for events from now on, and never lets one overtake another. ``lag_events``: the latest so
    many events are held back until more come. Events before ``losing_until`` are lost, and those of the versions
    ``lost_versions``; those before ``repeating_until`` come twice at once, and once more a little later.
    ``broken_until``: no watch can be open before then.
    """

    lag_seconds: float = _USUAL_LAG_SECONDS
    lag_events: int = 0
    losing_until: float = float("-inf")
    lost_versions: frozenset[str] = frozenset()
    repeating_until: float = float("-inf")
    broken_until: float = float("-inf")
    _open: list["_Stream"] = field(default_factory=list)

    def cut(self, for_seconds: float) -> None:
        """End all open watches, and let none be opened for so long."""
        self.broken_until = virtual_now() + for_seconds
        for stream in list(self._open):
            stream.cut()

    def lose(self, for_seconds: float) -> None:
        """Lose all events for so long, without the watches noticing."""
        self.losing_until = virtual_now() + for_seconds

    def repeat(self, for_seconds: float) -> None:
        """Bring all events of so long more than once."""
        self.repeating_until = virtual_now() + for_seconds

    def lag(self, seconds: float) -> None:
        """Let events take so long from now on."""
        self.lag_seconds = max(seconds, _USUAL_LAG_SECONDS)

    def hold_back(self, events: int) -> None:
        """Hold back the latest so many events from now on; what is held back beyond that comes."""
        self.lag_events = events
        for stream in list(self._open):
            stream.let_go()

    def relist(self) -> None:
        """Let all open watches list again by themselves, as after a 410: what was under way is lost."""
        for stream in list(self._open):
            stream.relist()

    def make_peace(self) -> None:
        """Let everything come in time from now on; what was lost stays lost."""
        self.lag(0.0)
        self.hold_back(0)
        self.losing_until = self.repeating_until = self.broken_until = float("-inf")
        self.lost_versions = frozenset()

    def opened(self, stream: "_Stream") -> Callable[[], None]:
        """Note an open watch; call what is returned when it has ended."""
        self._open.append(stream)
        return lambda: self._open.remove(stream)


class SimulatedWatcher:
    """The ``Watcher`` of one controller process."""

    def __init__(self, world: World, api: SimulatedApi, nodes: Streams, pods: Streams) -> None:
        self._world = world
        self._api = api
        self._nodes = nodes
        self._pods = pods

    async def watch(self, scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        """Watch until cancelled; raise ``WatchEnded`` when the watch is cut or cannot be opened.

        ``since`` counts for pods only, as it does for Kopf: nodes are listed all the same.
        """
        of_nodes = isinstance(scope, NodesScope)
        streams, call = (self._nodes, Call.WATCH_NODES) if of_nodes else (self._pods, Call.WATCH_PODS)
        stream = _Stream(scope, listener, streams, lambda: self._listed(scope), self._api.saw)
        unsubscribe: list[Callable[[], None]] = []
        left = False

        def open_stream() -> list[JsonObject]:
            if left:
                return []
            unsubscribe.append(self._world.cluster.subscribe(stream.notice))
            if of_nodes or since is None:
                return self._listed(scope)
            for change in self._world.cluster.changes_since(since):
                stream.notice(change)
            return []

        try:
            if virtual_now() < streams.broken_until:
                raise CallFailed("the connection was refused")
            await stream.run(await self._api.call(call, "", open_stream))
        except CallFailed as failure:
            raise WatchEnded(str(failure)) from failure
        finally:
            left = True
            for stop in unsubscribe:
                stop()

    def _listed(self, scope: WatchScope) -> list[JsonObject]:
        if isinstance(scope, NodesScope):
            return list(self._world.cluster.nodes.values())
        return pods_bound_to(self._world.cluster, scope.node_name)


class _Stream:
    """One open watch."""

    def __init__(
        self,
        scope: WatchScope,
        listener: WatchListener,
        streams: Streams,
        listing: Callable[[], list[JsonObject]],
        saw: Callable[[JsonObject], None],
    ) -> None:
        self._scope = scope
        self._listener = listener
        self._streams = streams
        self._listing = listing
        self._saw = saw
        # What comes through it is handled by the process that watches: never while that is frozen.
        self._context = contextvars.copy_context()
        self._cut = asyncio.Event()
        # On their way, oldest first: none overtakes another, whatever the lag, and none comes before the list.
        self._under_way: deque[Change] = deque()
        self._latest_delivery_at = virtual_now()
        self._listed = False
        self._arrived_early = 0

    async def run(self, listed: list[JsonObject]) -> None:
        """Tell what was listed and bring what comes, until it is cut."""
        closed = self._streams.opened(self)
        try:
            self._tell_list(listed)
            self._listed = True
            for _ in range(self._arrived_early):
                self._deliver()
            while not self._cut.is_set():
                self._listener.on_heard()
                await self._wait_for_bookmark()
            raise WatchEnded("the connection was reset")
        finally:
            self._cut.set()
            closed()

    async def _wait_for_bookmark(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BOOKMARK_SECONDS):
                await self._cut.wait()

    def _tell_list(self, listed: list[JsonObject]) -> None:
        for body in listed:
            self._saw(body)
            self._listener.on_event(None, body)
        self._listener.on_listed()

    def cut(self) -> None:
        """End it."""
        self._cut.set()

    def relist(self) -> None:
        """List again: what was under way is lost."""
        if self._listed:
            self._under_way.clear()
            asyncio.get_running_loop().call_soon(self._tell_list, self._listing(), context=self._context.copy())

    def let_go(self) -> None:
        """Let those come that are not to be held back any more."""
        for _ in range(max(0, len(self._under_way) - self._streams.lag_events)):
            self._schedule_delivery()

    def notice(self, change: Change) -> None:
        """Take a change that has just happened, and have it delivered when the lag is over."""
        if not self._concerns(change) or virtual_now() < self._streams.losing_until:
            return
        if change.body["metadata"]["resourceVersion"] in self._streams.lost_versions:
            return
        self._under_way.append(change)
        if self._streams.lag_events < len(self._under_way):
            self._schedule_delivery()

    def _schedule_delivery(self) -> None:
        self._latest_delivery_at = max(self._latest_delivery_at, virtual_now() + self._streams.lag_seconds)
        asyncio.get_running_loop().call_at(self._latest_delivery_at, self._deliver, context=self._context.copy())

    def _deliver(self) -> None:
        """Bring the oldest change that is under way: one for each that was noticed."""
        if self._cut.is_set():
            return
        if not self._listed:
            self._arrived_early += 1
            return
        if not self._under_way:  # It listed again meanwhile.
            return
        change = self._under_way.popleft()
        self._listener.on_heard()
        self._tell(change)
        if virtual_now() < self._streams.repeating_until:
            self._tell(change)
            asyncio.get_running_loop().call_later(_REPEATED_AFTER_SECONDS, self._tell, change)

    def _tell(self, change: Change) -> None:
        if not self._cut.is_set():
            self._saw(change.body)
            self._listener.on_event(change.event_type, change.body)

    def _concerns(self, change: Change) -> bool:
        if isinstance(self._scope, NodesScope):
            return not change.is_pod
        if not change.is_pod:
            return False
        bound_to = kube.node_name_of(change.body)
        return bound_to is not None and self._scope.node_name in (None, bound_to)
