"""The ports: all that the runtime knows of the outside world, as Protocols and the values that pass through them.
In production ``kube``, ``reporting`` and ``kopf_shell`` implement them, in replays the laboratory does.

Every call to the outside ends in bounded time and raises nothing but ``CallFailed``. An absent object is an answer
(None), not a failure.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from taint_eviction.core.adoption import CountdownChange
from taint_eviction.core.breaker import TriedBefore
from taint_eviction.core.control_state import ControlState, Latch, Pause, PauseScope
from taint_eviction.core.events import Block, Event
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Node, Pod, PodRef


class FailureReason(Enum):
    """Why a call failed, as far as it matters to callers; most are named after Kubernetes' status reasons."""

    NO_ANSWER = "no answer, or none that can be used"
    UNAUTHORIZED = "the credentials are not accepted"
    FORBIDDEN = "the rights are missing"
    NOT_FOUND = "there is no such object or resource"
    CONFLICT = "the object was changed or created meanwhile"
    OTHER = "another refusal"


class CallFailed(Exception):
    """The API server refused a call, did not answer in time, or could not be reached.

    The message is the server's own if it gave one. ``retry_after_seconds`` is what the server advised, None if
    it advised nothing. ``block`` says which budget refuses an eviction, None for any other failure. ``denied``: an
    admission webhook, or a policy other than this controller's own, denied the request. ``evacuates``: it
    did because it moves the virtual machine in the pod away. ``certain``: the API server answered that it did nothing.
    ``may_pass``: the same call may succeed a moment later.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: FailureReason = FailureReason.NO_ANSWER,
        retry_after_seconds: float | None = None,
        block: Block | None = None,
        denied: bool = False,
        evacuates: bool = False,
        certain: bool = False,
        may_pass: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self.block = block
        self.denied = denied
        self.evacuates = evacuates
        self.certain = certain
        self.may_pass = may_pass


class WatchEnded(Exception):
    """A watch ended by itself; the message says why in one line."""


ObjectT = TypeVar("ObjectT", Node, Pod)


@dataclass(frozen=True, slots=True)
class Page(Generic[ObjectT]):
    """A part of a list. ``present`` has the UIDs of all its objects, including malformed ones that cannot be read.

    ``resource_version`` is that of the list, None if it is no number.
    """

    objects: tuple[ObjectT, ...]
    present: frozenset[str]
    resource_version: int | None


class Clock(Protocol):
    """The only clock."""

    def now(self) -> Moment:
        """Read the monotonic clock, and the API server's time as known from its answers."""
        ...


class ClusterReader(Protocol):
    """Reads live state: every answer except that of ``cached_pods`` is at least as new as the request."""

    def list_nodes(self) -> AsyncGenerator[Page[Node], None]:
        """List all nodes, page by page."""
        ...

    def list_pods(self, node_name: str | None) -> AsyncGenerator[Page[Pod], None]:
        """List the pods bound to one node, or to any node if ``node_name`` is None."""
        ...

    async def cached_pods(self, node_name: str) -> tuple[Pod, ...]:
        """List the pods bound to one node from the API server's cache: fast, and perhaps a little old."""
        ...

    async def read_node(self, name: str) -> Node | None:
        """Read a node; None if there is no node of this name."""
        ...

    async def read_pod(self, ref: PodRef) -> Pod | None:
        """Read a pod; None if there is no pod of this name, or it has another UID."""
        ...


# Called when only the request itself remains to be sent, on an open connection. If it returns, the request is sent with
# no await in between. If it raises, nothing is sent, and the exception is raised.
Ready = Callable[[], Awaitable[None]]


class ClusterWriter(Protocol):
    """Makes all writes. None or False means: the pod is gone, or its name belongs to another UID.
    Writes that end a pod await ``ready`` at the last moment, however long that takes, and then an answer for at most
    ``max_seconds``, None: as long as all calls.
    """

    async def mark(self, ref: PodRef, already: bool, now: Moment) -> Pod | None:
        """Set the DisruptionTarget condition and return the live pod.

        ``already``: it was set when last seen, so its transition time stays.
        """
        ...

    async def unmark(self, pod: Pod, now: Moment) -> Pod | None:
        """Set the status of the condition to False on exactly this version of ``pod``; return the live pod."""
        ...

    async def delete(self, ref: PodRef, ready: Ready, max_seconds: float | None = None) -> bool:
        """Delete the pod with its own grace period; True once the API server has accepted that."""
        ...

    async def evict(self, ref: PodRef, ready: Ready, max_seconds: float | None = None) -> bool:
        """Evict the pod by the eviction API; True once accepted. If a budget refuses, ``CallFailed`` has ``block``."""
        ...


# Returns what is to be changed of a pod as it was just read, None: nothing.
WantedChange = Callable[[Pod], CountdownChange | None]


class AdoptionPort(Protocol):
    """Marks countdowns that are taken over, notes their seconds on the pod, and gives them back.

    Each change is made to exactly the pod that was read just before, and to no other version of it.
    """

    async def change(self, ref: PodRef, wanted: WantedChange) -> Pod | None:
        """Read the pod, and change what is ``wanted``; return the pod after that, None: it is gone."""
        ...

    async def list_noted(self) -> list[PodRef]:
        """List the pods that have a note, on all nodes."""
        ...

    def adopter(self, term: int) -> str:
        """Return what the control state says while this process takes countdowns over.

        ``term``: how often it has begun to lead. Each leader writes it, even where another one has: a request to remove
        the other's entry may still be under way.
        """
        ...

    async def write_adopter(self, term: int) -> None:
        """Write that into the control state."""
        ...

    async def remove_adopter(self, seen: str) -> None:
        """Write that nobody takes countdowns over, unless somebody else does so since ``seen``."""
        ...

    async def confirm_no_adoption(self, order: Pause) -> None:
        """Write into the control state that this process adopts nothing, if it is still this order."""
        ...


class AdmissionPolicyPort(Protocol):
    """Asks about the admission policy that narrows what this process may write."""

    async def account(self) -> str | None:
        """Return this process's user name at the API server; None: its version has neither this review nor policies."""
        ...

    async def in_force(self) -> bool:
        """Return whether the policy narrows this account's rights; raise ``CallFailed``: not known."""
        ...


class ControlStateStore(Protocol):
    """Where the control state is kept in the cluster."""

    async def read(self) -> ControlState | None:
        """Read the control state; None if it was never written, or its object is gone."""
        ...

    async def keep(self, lost: ControlState) -> None:
        """Create the object, or take over one that somebody created, with what was ``lost`` with an earlier one.

        If a leader has taken it over before, nothing changes.
        """
        ...

    async def write_latch(self, latch: Latch) -> None:
        """Write that the breaker is open, unless it was reset meanwhile; everything else stays, also who opened it
        before (``Latch.added_to``).
        """
        ...

    async def close_latch(self, latch: Latch, closed_epoch: float, closed_by: str = "") -> None:
        """Write that the breaker was closed then, if this latch is still the one that is stored; ``closed_by``: as in
        ``ControlState``.
        """
        ...

    async def redate(self, stated_epoch: float, epoch: float) -> None:
        """Change the date of the breaker's state to ``epoch``, if it is ``stated_epoch``."""
        ...

    async def fit_format(self) -> None:
        """Write the format that the object's keys need, where somebody has changed keys by hand."""
        ...

    async def end_pauses(self, ended: Mapping[PauseScope, Pause]) -> None:
        """Remove these pauses, which have ended by themselves; one that was replaced meanwhile stays."""
        ...


@dataclass(frozen=True, slots=True)
class NodesScope:
    """Watch all nodes."""

    kind: ClassVar[str] = "nodes"

    def __str__(self) -> str:
        return "nodes"


@dataclass(frozen=True, slots=True)
class PodsScope:
    """Watch the pods bound to one node, or to any node if ``node_name`` is None."""

    node_name: str | None
    kind: ClassVar[str] = "pods"

    def __str__(self) -> str:
        return "all bound pods" if self.node_name is None else f"pods of {self.node_name}"


WatchScope = NodesScope | PodsScope


class WatchListener(Protocol):
    """Receives what a watch brings. Synchronous; neither keeps nor changes a body."""

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Take an object as JSON; ``event_type`` is ADDED, MODIFIED or DELETED, None if it comes from a list."""
        ...

    def on_listed(self) -> None:
        """Note that the watch has listed its objects: it does not report objects that vanished before.
        This is called at its start, even if it began at the listener's own list; then after each gap.
        """
        ...

    def on_heard(self) -> None:
        """Note that the watch was opened, or has received something: it is alive."""
        ...

    def on_progress(self, version: int | None) -> None:
        """Note that everything up to ``version`` that the watch received has been passed on.
        Bookmarks, and events with nothing to pass on, count as well. None: versions are not numbers.
        """
        ...


class Watcher(Protocol):
    """Brings changes. It may lose, repeat and delay them, so the listener lists again from time to time."""

    async def watch(self, scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        """Watch until cancelled; raise ``WatchEnded`` when the watch ends by itself.

        ``since``: the version of the listener's own fresh list, from which the watch may start; None: the watch has to
        list first.
        """
        ...


class Gate(Protocol):
    """Says whether this process may act on the cluster."""

    def may_act(self) -> bool:
        """Return whether this process may act now; call this just before each changing call, with no await between."""
        ...

    @property
    def term(self) -> int:
        """A number of this leadership: it is another one once another process may have led in between."""
        ...

    @property
    def tried_before(self) -> TriedBefore | None:
        """How many pods the process that led before had tried to evict in vain, None: it is not known."""
        ...


class Reporter(Protocol):
    """Reports effects in logs, metrics or Kubernetes events. It never blocks and raises no errors from outside."""

    def report(self, effect: Event, now: Moment) -> None:
        """Report what has happened."""
        ...
