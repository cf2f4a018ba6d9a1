"""The doors: all that the runtime knows of the outside world, as Protocols and the values that pass through them.

Production puts ``adapters`` and ``kopf_shell`` behind them, replays and simulations ``simulation``.

Every call that reaches out ends in bounded time, and may raise ``CallFailed`` and nothing else; an absent object is an
answer (None), not a failure.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from taint_eviction.core.effects import Block, Effect
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Node, Pod, PodRef
from taint_eviction.core.orders import Latch, Orders


class CallFailed(Exception):
    """The API server refused a call, did not answer in time, or could not be reached.

    ``status`` is the HTTP status, None where there was no answer. ``retry_after_seconds`` is what the server advised,
    None where it advised nothing. The message is the server's own where it gave one. ``block``: it is the eviction
    API's word on budgets, None: it is not.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        block: Block | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.block = block


class WatchEnded(Exception):
    """A watch ended by itself; the message says why, in one line."""


ObjectT = TypeVar("ObjectT", Node, Pod)


@dataclass(frozen=True, slots=True)
class Page(Generic[ObjectT]):
    """A part of a list. ``present`` has the UIDs of all objects in it, those too malformed to be read included.

    ``resource_version`` is the whole list's, None where it is no number.
    """

    objects: tuple[ObjectT, ...]
    present: frozenset[str]
    resource_version: int | None


class Clock(Protocol):
    """The only clock."""

    def now(self) -> Moment:
        """Read the monotonic clock, and the API server's time as far as its answers have told it."""
        ...


class ClusterReader(Protocol):
    """Reads live state: every answer but that of ``cached_pods`` is at least as new as the question."""

    def list_nodes(self) -> AsyncGenerator[Page[Node], None]:
        """List all nodes, page by page."""
        ...

    def list_pods(self, node_name: str | None) -> AsyncGenerator[Page[Pod], None]:
        """List the pods bound to one node, or to any node where ``node_name`` is None."""
        ...

    async def cached_pods(self, node_name: str) -> tuple[Pod, ...]:
        """List the pods bound to one node as the API server has them at hand: at once, perhaps a little old."""
        ...

    async def read_node(self, name: str) -> Node | None:
        """Read a node; None if there is none of this name."""
        ...

    async def read_pod(self, ref: PodRef) -> Pod | None:
        """Read a pod; None if there is none of this name, or it has another UID."""
        ...


class ClusterWriter(Protocol):
    """The only writes there are. None or False means: the pod is gone, or its name belongs to another UID."""

    async def mark(self, ref: PodRef, already: bool, now: Moment) -> Pod | None:
        """Set the DisruptionTarget condition and return the live pod.

        ``already``: it was set when last seen, so its transition time is left as it is.
        """
        ...

    async def unmark(self, pod: Pod, now: Moment) -> Pod | None:
        """Set the condition's status to False on exactly this version of ``pod``; return the live pod."""
        ...

    async def delete(self, ref: PodRef) -> bool:
        """Ask for the pod's deletion with its own grace period; True once the API server has accepted it."""
        ...

    async def evict(self, ref: PodRef) -> bool:
        """Ask the eviction API for it; True once accepted. A budget's no is a ``CallFailed`` with its ``block``."""
        ...


class OrdersStore(Protocol):
    """Where orders are kept in the cluster."""

    async def read(self) -> Orders | None:
        """Read them; None if they were never kept, or their object is gone."""
        ...

    async def write_latch(self, latch: Latch) -> None:
        """Keep that the breaker is open, unless it was reset since; whatever else is ordered stays."""
        ...

    async def write_reset(self, reset_epoch: float) -> None:
        """Keep that the breaker was closed then."""
        ...


@dataclass(frozen=True, slots=True)
class NodesScope:
    """Watch all nodes."""

    kind: ClassVar[str] = "nodes"

    def __str__(self) -> str:
        return "nodes"


@dataclass(frozen=True, slots=True)
class PodsScope:
    """Watch the pods bound to one node, or to any node where ``node_name`` is None."""

    node_name: str | None
    kind: ClassVar[str] = "pods"

    def __str__(self) -> str:
        return "all bound pods" if self.node_name is None else f"pods of {self.node_name}"


WatchScope = NodesScope | PodsScope


class WatchListener(Protocol):
    """Who is told what a watch brings. Synchronous; keeps and changes nothing of a body."""

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Take an object as JSON; ``event_type`` is ADDED, MODIFIED or DELETED, None where it comes from a list."""
        ...

    def on_listed(self) -> None:
        """Note that the watch has listed its objects: what vanished before is not told.

        At its start, also where it began at the listener's own list; then after each gap.
        """
        ...

    def on_heard(self) -> None:
        """Note that the watch was opened or something came through it: it is alive."""
        ...


class Watcher(Protocol):
    """Brings changes. May lose, repeat and delay them: whoever listens lists again now and then."""

    async def watch(self, scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        """Watch until cancelled; raise ``WatchEnded`` when the watch ends by itself.

        ``since``: the version of a list that the listener has just been told, so that the watch may begin there; None:
        it has to list first.
        """
        ...


class Gate(Protocol):
    """Says whether this process may act on the cluster."""

    def may_act(self) -> bool:
        """Answer for this very moment; to be asked just before each changing call, with no await between."""
        ...


class Teller(Protocol):
    """Tells people: log, metrics, Kubernetes events. Never blocks and never raises the world's errors."""

    def tell(self, effect: Effect, now: Moment) -> None:
        """Tell what has happened."""
        ...
