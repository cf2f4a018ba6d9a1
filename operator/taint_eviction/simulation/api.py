"""The doors of the runtime for reading and writing, onto the simulated cluster.

A call travels, arrives, is carried out at one instant, and its answer travels back; every answer carries the server's
``Date``. What arrives is on the timeline, whatever the controller hears of it: once sent, a call does not depend on
whoever made it, be it frozen or tired of waiting. A process that was killed makes no more calls; one of its calls that
had not arrived never does.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Node, Pod, PodRef
from taint_eviction.core.orders import Orders
from taint_eviction.runtime.ports import CallFailed, Page
from taint_eviction.runtime.supervised_watch import Interpret
from taint_eviction.simulation import kubernetes_json as kube
from taint_eviction.simulation.audit import Auditor, Phase, Trace, unaudited
from taint_eviction.simulation.cluster import SimulatedCluster
from taint_eviction.simulation.faults import Call, Faults, Trouble
from taint_eviction.simulation.kubernetes_json import JsonObject
from taint_eviction.simulation.pod_writes import PodWrites
from taint_eviction.simulation.timeline import Entry, Timeline, What
from taint_eviction.simulation.virtual_clock import ProcessClock, virtual_now

AnswerT = TypeVar("AnswerT")

# The API server's side of a call runs in no process's context: it goes on while those are frozen.
_SERVER = contextvars.Context()

_ASK_EVERY_SECONDS = 0.02
_LONGEST_SHARPENING_SECONDS = 1.1


@dataclass(frozen=True, slots=True)
class Parsing:
    """How production reads objects: JSON → value, None where it is too malformed; and what a watch brings → fact.

    ``orders`` reads the ConfigMap with orders, whatever is in it.
    """

    node: Callable[[Mapping[str, Any]], Node | None]
    pod: Callable[[Mapping[str, Any]], Pod | None]
    interpret: Interpret
    orders: Callable[[Mapping[str, Any]], Orders]


@dataclass(frozen=True, slots=True)
class Network:
    """Between a controller and the API server: how long a call takes in one direction, and when it gives up."""

    one_way_seconds: float = 0.005
    call_timeout_seconds: float = 10.0
    page_size: int = 500


@dataclass(frozen=True, slots=True)
class World:
    """All that a controller process finds outside itself."""

    cluster: SimulatedCluster
    faults: Faults
    network: Network
    parsing: Parsing
    timeline: Timeline
    pod_writes: PodWrites
    auditor: Auditor = unaudited


@dataclass(slots=True)
class _Journey:
    """One call under way; ``answer`` is set when its answer arrives, to (what, when it was given)."""

    number: int
    call: Call
    subject: str
    uid: str
    trouble: Trouble
    answer: "asyncio.Future[tuple[Any, float | None]]" = field(repr=False)


class SimulatedApi:
    """``ClusterReader`` and ``ClusterWriter`` of one controller process, called ``name``.

    ``own_faults`` go before the world's: they are this process's alone. ``cache_age`` says how old that is which the
    API server has at hand, in seconds.
    """

    def __init__(
        self,
        world: World,
        clock: ProcessClock,
        name: str = "controller",
        own_faults: Faults | None = None,
        cache_age: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.name = name
        self._world = world
        self._cluster = world.cluster
        self._writes = world.pod_writes
        self._clock = clock
        self._own_faults = own_faults or Faults()
        self._cache_age = cache_age
        self._closed = False
        self._calls = 0

    # Reading

    async def list_nodes(self) -> AsyncGenerator[Page[Node], None]:
        """List all nodes, page by page, as they were when the first page was answered."""
        async for part, version in self._pages(Call.LIST_NODES, "", lambda: list(self._cluster.nodes.values())):
            nodes = tuple(node for body in part if (node := self._world.parsing.node(body)) is not None)
            yield Page(nodes, _uids(part), version)

    async def list_pods(self, node_name: str | None) -> AsyncGenerator[Page[Pod], None]:
        """List the pods bound to one node, or to any where ``node_name`` is None."""
        subject = node_name or ""
        async for part, version in self._pages(
            Call.LIST_PODS, subject, lambda: pods_bound_to(self._cluster, node_name)
        ):
            pods = tuple(pod for body in part if (pod := self._world.parsing.pod(body)) is not None)
            yield Page(pods, _uids(part), version)

    async def cached_pods(self, node_name: str) -> tuple[Pod, ...]:
        """List the pods bound to one node, as the API server has them at hand."""

        def at_hand() -> list[JsonObject]:
            pods = self._cluster.pods_at(virtual_now() - self._cache_age())
            return [pod for pod in pods if kube.node_name_of(pod) == node_name]

        bodies = await self.call(Call.LIST_CACHED_PODS, node_name, at_hand)
        return tuple(pod for body in bodies if (pod := self._world.parsing.pod(body)) is not None)

    async def _pages(
        self, call: Call, subject: str, select: Callable[[], list[JsonObject]]
    ) -> AsyncIterator[tuple[list[JsonObject], int]]:
        """Bring a list page by page, with its version: both as they were when the first page was answered."""
        size = self._world.network.page_size
        bodies, version = await self.call(call, subject, lambda: (select(), self._cluster.resource_version))
        yield bodies[:size], version
        for begin in range(size, len(bodies), size):
            await self.call(call, subject, lambda: None)
            yield bodies[begin : begin + size], version

    async def read_node(self, name: str) -> Node | None:
        """Read a node; None if there is none of this name."""
        body = await self.call(Call.READ_NODE, name, lambda: self._cluster.nodes.get(name))
        if body is None:
            return None
        node = self._world.parsing.node(body)
        if node is None:
            raise CallFailed(f"Node {name} cannot be read")
        return node

    async def read_pod(self, ref: PodRef) -> Pod | None:
        """Read a pod; None if there is none of this name, or it has another UID."""
        return self._live(await self.call(Call.READ_POD, str(ref), lambda: self._writes.pod_of(ref), ref.uid))

    def _live(self, body: JsonObject | None) -> Pod | None:
        if body is None:
            return None
        pod = self._world.parsing.pod(body)
        if pod is None:
            raise CallFailed("the pod cannot be read")
        return pod

    # Writing

    async def mark(self, ref: PodRef, already: bool, now: Moment) -> Pod | None:
        """Set the DisruptionTarget condition and return the live pod."""
        marking = self.call(Call.MARK, str(ref), lambda: self._writes.mark(ref, already), ref.uid)
        return self._live(await marking)

    async def unmark(self, pod: Pod, now: Moment) -> Pod | None:
        """Set the condition's status to False on exactly this version of ``pod``; return the live pod."""
        unmarking = self.call(Call.UNMARK, str(pod.ref), lambda: self._writes.unmark(pod), pod.ref.uid)
        return self._live(await unmarking)

    async def delete(self, ref: PodRef) -> bool:
        """Ask for the pod's deletion; True once the API server has accepted it."""
        return await self.call(Call.DELETE, str(ref), lambda: self._writes.delete(ref), ref.uid)

    async def evict(self, ref: PodRef) -> bool:
        """Ask the eviction API for it; True once accepted, ``CallFailed`` with its ``block`` where a budget says no."""
        return await self.call(Call.EVICT, str(ref), lambda: self._writes.evict(ref), ref.uid)

    # Time

    async def sharpen_clock(self) -> None:
        """Ask until the server's second has turned, a second and a little at most, as production does at its start."""
        clock = self._clock.server_clock
        with contextlib.suppress(TimeoutError, CallFailed):
            async with asyncio.timeout(_LONGEST_SHARPENING_SECONDS):
                await self.call(Call.VERSION, "", lambda: None)
                heard = clock.seconds_heard
                while clock.seconds_heard == heard:
                    await asyncio.sleep(_ASK_EVERY_SECONDS)
                    await self.call(Call.VERSION, "", lambda: None)

    # Calls

    async def call(self, call: Call, subject: str, act: Callable[[], AnswerT], uid: str = "") -> AnswerT:
        """Make a call: carry it there, do what it asks for, carry the answer back; raise ``CallFailed``."""
        if self._closed:
            raise asyncio.CancelledError
        journey = self._begin(call, subject, uid)
        timeout = self._world.network.call_timeout_seconds
        travel_seconds = self._world.network.one_way_seconds + journey.trouble.delay_seconds
        if travel_seconds < timeout:
            self._later(travel_seconds, self._arrive, journey, act)
        try:
            async with asyncio.timeout(timeout):
                answer, answered_at = await journey.answer
        except TimeoutError:
            answer, answered_at = CallFailed(f"no answer within {timeout:g} s"), None
        if self._closed:
            raise asyncio.CancelledError
        if answered_at is not None:
            self._clock.heard_answer_of(answered_at)
        if isinstance(answer, CallFailed):
            self._trace(journey, Phase.FAILED, answer)
            raise answer
        self._trace(journey, Phase.ANSWERED, answer)
        return answer  # type: ignore[no-any-return]

    def _begin(self, call: Call, subject: str, uid: str) -> _Journey:
        self._calls += 1
        now = virtual_now()
        trouble = self._own_faults.next(call, subject, now)
        if trouble == Trouble():
            trouble = self._world.faults.next(call, subject, now)
        journey = _Journey(self._calls, call, subject, uid, trouble, asyncio.get_running_loop().create_future())
        self._trace(journey, Phase.SENT, None)
        return journey

    def _later(self, seconds: float, act: Callable[..., object], *args: object) -> None:
        asyncio.get_running_loop().call_later(seconds, act, *args, context=_SERVER.copy())

    def _arrive(self, journey: _Journey, act: Callable[[], object]) -> None:
        """Let a call arrive at the API server, and send its answer on the way back."""
        if self._closed:
            return
        trouble, answered_at = journey.trouble, virtual_now()
        fails = trouble.fails or trouble.hangs
        self._trace(journey, Phase.ARRIVED, None)
        answer = _refusal(trouble) if fails and not trouble.takes_effect else _outcome(act)
        done = Phase.REFUSED if isinstance(answer, CallFailed) else Phase.CARRIED_OUT
        self._trace(journey, done, answer)
        if not fails:
            self._send_back(journey, answer, answered_at)
            return
        self._note_failure(journey)
        if not trouble.hangs:
            self._send_back(journey, _refusal(trouble), answered_at if trouble.status is not None else None)

    def _note_failure(self, journey: _Journey) -> None:
        trouble = journey.trouble
        answer = "no answer" if trouble.hangs or trouble.status is None else f"{trouble.status}"
        why = f"{journey.call.value}: {answer}" + (" (it took effect)" if trouble.takes_effect else "")
        self._world.timeline.add(Entry(virtual_now(), What.CALL_FAILED, journey.subject, why=why))

    def _send_back(self, journey: _Journey, answer: object, answered_at: float | None) -> None:
        """Carry an answer back; a connection that breaks (``answered_at`` None) is noticed at once."""
        seconds = 0.0 if answered_at is None else self._world.network.one_way_seconds + journey.trouble.back_seconds
        self._later(seconds, _answer, journey.answer, (answer, answered_at))

    def _trace(self, journey: _Journey, phase: Phase, body: object) -> None:
        what = (journey.number, phase, journey.call, journey.subject, journey.uid)
        self._world.auditor(Trace(self.name, *what, virtual_now(), body))

    def saw(self, body: JsonObject) -> None:
        """Note that a watch has brought an object."""
        self._world.auditor(Trace(self.name, 0, Phase.SAW, None, "", body["metadata"]["uid"], virtual_now(), body))

    def close(self) -> None:
        """Let nothing through any more: the process was killed."""
        self._closed = True


def _outcome(act: Callable[[], object]) -> object:
    """Do it; return the answer, or the refusal."""
    try:
        return act()
    except CallFailed as refusal:
        return refusal


def _refusal(trouble: Trouble) -> CallFailed:
    return CallFailed(
        trouble.message or (f"HTTP {trouble.status}" if trouble.status else "the connection was refused"),
        status=trouble.status,
        retry_after_seconds=trouble.retry_after_seconds,
    )


def _answer(waiting: "asyncio.Future[object]", answer: object) -> None:
    if not waiting.done():
        waiting.set_result(answer)


def pods_bound_to(cluster: SimulatedCluster, node_name: str | None) -> list[JsonObject]:
    """List the pods bound to one node, or to any node where ``node_name`` is None."""
    return [
        pod
        for pod in cluster.pods.values()
        if (bound_to := kube.node_name_of(pod)) is not None and node_name in (None, bound_to)
    ]


def _uids(bodies: list[JsonObject]) -> frozenset[str]:
    return frozenset(body["metadata"]["uid"] for body in bodies)
