"""Fakes of the runtime's doors on virtual time: they refuse, hang, answer late, or lose the answer to what they did.

``virtually`` runs an async test on a virtual loop, and fails it if it leaves a task behind or if an exception was
never retrieved.
"""

import asyncio
import contextlib
import functools
import gc
import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, ParamSpec, TypeVar

from tests.unit.as_json import node_as_json, pod_as_json
from tests.unit.builders import EPOCH, node, pod, taint

from fake_apiserver.resources import RESOURCES
from taint_eviction.core.breaker import TriedBefore
from taint_eviction.core.controller import Controller
from taint_eviction.core.events import Block, BlockReason, Event, Eviction, TakeBack, Work, WorkOutcome
from taint_eviction.core.facts import Fact, NodeSeen, PodSeen, PodsSwept
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, Node, Pod
from taint_eviction.core.pods import InFlight
from taint_eviction.kube.answers import failure_reason, may_pass
from taint_eviction.kube.kubernetes_objects import read_node, read_pod
from taint_eviction.runtime.driver import Driver
from taint_eviction.runtime.evictor import Evictor
from taint_eviction.runtime.live import Live
from taint_eviction.runtime.node_reads import NodeReads
from taint_eviction.runtime.ports import CallFailed, FailureReason, NodesScope, Ready, WatchListener, WatchScope
from taint_eviction.runtime.resync import Resync
from taint_eviction.runtime.supervised_watch import WatchPorts
from taint_eviction.runtime.workers import Workers
from taint_eviction.settings import Settings, WatchSettings
from taint_eviction_lab.simulation.api import SimulatedApi
from taint_eviction_lab.simulation.calls import Network, World
from taint_eviction_lab.simulation.cluster import SimulatedCluster
from taint_eviction_lab.simulation.faults import CallFaults, CallKind
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.timeline import Timeline, What
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


def virtually(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a virtual loop that begins at 0; it must leave nothing behind."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtually(_leaving_nothing(test(*args, **kwargs)))

    return run


async def _leaving_nothing(test: Coroutine[Any, Any, None]) -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    await test
    await slow_start()
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    gc.collect(1)
    assert not left, f"tasks were left behind: {left}"
    assert not complaints, f"the loop's exception handler was called: {complaints}"


async def slow_start(number: int = 10) -> None:
    """Let the loop turn some times without letting time pass."""
    for _ in range(number):
        await asyncio.sleep(0)


def now() -> float:
    """The virtual time."""
    return asyncio.get_running_loop().time()


async def until(seconds: float) -> None:
    """Sleep until the virtual time is ``seconds``, and let all that is due then happen."""
    await asyncio.sleep(seconds - now())
    await slow_start(30)


def at(seconds: float, act: Callable[..., object], *args: object) -> None:
    """Let something happen at an instant."""
    asyncio.get_running_loop().call_at(seconds, functools.partial(act, *args))


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, ResultT]) -> AsyncIterator[asyncio.Task[ResultT]]:
    """Run something in the background, and cancel it in the end; raise what it raised before."""
    task = asyncio.create_task(work, name="under test")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


class FakeClock:
    """Virtual time; ``ahead`` seconds pass at once where a process is frozen. Counts how often it is read.

    ``dates_from``: the API server's time is not known before this second, and the host's is an hour ahead.
    """

    def __init__(self) -> None:
        self.ahead = 0.0
        self.reads = 0
        self.dates_from = 0.0

    def now(self) -> Moment:
        """Read the clock."""
        self.reads += 1
        if now() < self.dates_from:
            return Moment(now(), EPOCH + now() + 3600, dates_objects=False)
        return Moment(now() + self.ahead, EPOCH + now() + self.ahead)


class FakeGate:
    """Open until it is closed; closes by itself after ``closes_after`` answers."""

    def __init__(self) -> None:
        self.open = True
        self.term = 0
        self.tried_before: TriedBefore | None = None
        self.closes_after: int | None = None

    def may_act(self) -> bool:
        """Answer."""
        if self.closes_after is not None:
            self.closes_after -= 1
            self.open = self.open and self.closes_after >= 0
        return self.open


@dataclass(frozen=True, slots=True)
class How:
    """How a call fares: when it takes effect and when after that it is answered (None: never), and with what.

    ``ends_with_sender``: it takes no effect once nobody waits for its answer.
    """

    effect_after: float | None = 0.0
    answer_after: float | None = 0.0
    failure: str | None = None
    status: int | None = None
    retry_after: float | None = None
    block: Block | None = None
    ends_with_sender: bool = False


HANGS = How(effect_after=None, answer_after=None)
EFFECT_WITHOUT_ANSWER = How(answer_after=None)
LOST_ANSWER = How(failure="connection reset")


def slow(seconds: float) -> How:
    """Take effect at once, and answer late."""
    return How(answer_after=seconds)


def refused(status: int = 403, retry_after: float | None = None, after: float = 0.0) -> How:
    """Take no effect and be answered with an HTTP status."""
    return How(None, after, f"refused with {status}", status, retry_after)


def blocked(retry_after: float | None = None) -> How:
    """Be refused because of a budget."""
    return How(None, 0.0, "no disruption allowed", 429, retry_after, Block(BlockReason.BUDGET, "web"))


def admitted(after: float) -> How:
    """Take effect after so long, in which webhooks are asked, if somebody still waits for that."""
    return How(after, ends_with_sender=True)


def times_out(after: float = 10.0) -> How:
    """Take no effect, and fail without an answer after some time."""
    return How(None, after, "no answer in time")


class SentCall(NamedTuple):
    """A call that was sent."""

    at: float
    verb: str
    target: str


_VERBS = {
    CallKind.LIST_NODES: "LIST nodes",
    CallKind.LIST_CACHED_PODS: "CACHED LIST",
    CallKind.READ_NODE: "GET node",
    CallKind.READ_POD: "GET pod",
    CallKind.MARK: "PATCH",
    CallKind.UNMARK: "UNMARK",
    CallKind.DELETE: "DELETE",
    CallKind.EVICT: "EVICT",
}


class Wire:
    """Carries calls. What has been sent takes effect even if nobody waits for the answer any more.

    ``hows`` are used up one by one by verb; then ``ever`` counts; else all goes well. ``connect_seconds``: how long a
    connection takes over which a pod is to be ended.
    """

    def __init__(self) -> None:
        self.calls: list[SentCall] = []
        self.hows: defaultdict[str, deque[How]] = defaultdict(deque)
        self.ever: dict[str, How] = {}
        self.connect_seconds = 0.0

    def will(self, verb: str, *hows: How) -> None:
        """Say how the next calls of a verb fare."""
        self.hows[verb].extend(hows)

    def sent(self, *verbs: str) -> list[tuple[float, str]]:
        """List when what was sent, of these verbs or of all."""
        return [(call.at, call.verb) for call in self.calls if not verbs or call.verb in verbs]

    def verbs(self) -> list[str]:
        """List the verbs that were sent."""
        return [call.verb for call in self.calls]

    def _how(self, verb: str) -> How:
        return self.hows[verb].popleft() if self.hows[verb] else self.ever.get(verb, How())

    async def call(
        self,
        call: CallKind,
        subject: str,
        act: Callable[[], ResultT],
        uid: str = "",
        ready: Ready | None = None,
        max_seconds: float | None = None,
    ) -> ResultT:
        """Make a call of the simulated API server's."""
        if ready is not None:
            await asyncio.sleep(self.connect_seconds)
            await ready()
        try:
            async with asyncio.timeout(max_seconds):
                return await self.carry(_VERBS.get(call, f"LIST {subject or 'pods'}"), uid or subject, act)
        except TimeoutError:
            raise CallFailed(f"no answer within {max_seconds:g} s", may_pass=True) from None

    async def carry(self, verb: str, target: str, effect: Callable[[], ResultT]) -> ResultT:
        """Carry one call."""
        self.calls.append(SentCall(now(), verb, target))
        how = self._how(verb)
        answer: asyncio.Future[ResultT | None] = asyncio.get_running_loop().create_future()
        if how.effect_after is None:
            answer.set_result(None)
        else:
            asyncio.get_running_loop().call_later(how.effect_after, _arrive, effect, answer, how.ends_with_sender)
        result = await answer
        if how.answer_after is None:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(how.answer_after or 0)
        if how.failure is not None:
            passes = how.status is None or may_pass(how.status)
            raise CallFailed(
                how.failure,
                reason=FailureReason.NO_ANSWER if how.status is None else failure_reason(how.status),
                retry_after_seconds=how.retry_after,
                block=how.block,
                may_pass=passes,
            )
        return result  # type: ignore[return-value]  # None only if ResultT allows it, or where nothing is returned


def _arrive(effect: Callable[[], Any], answer: "asyncio.Future[Any]", ends_with_sender: bool) -> None:
    if ends_with_sender and answer.done():
        return
    try:
        result = effect()
    except CallFailed as failure:
        if not answer.done():
            answer.set_exception(failure)
    else:
        if not answer.done():
            answer.set_result(result)


class FakeApi(Wire, SimulatedApi):
    """The simulation's API server behind a ``Wire``. ``graceful``: pods put from now on take time to end.

    ``cache_age``: how old that is which it has at hand, in seconds.
    """

    def __init__(self) -> None:
        Wire.__init__(self)
        self._timeline = Timeline()
        cluster = SimulatedCluster(self._timeline)
        cluster.kubelets.suspend()
        writes = PodWrites(cluster, self._timeline)
        world = World(cluster, CallFaults(), Network(), production_parsing(), self._timeline, writes)
        SimulatedApi.__init__(self, world, self, lambda: self.cache_age)
        self.graceful, self.cache_age = False, 0.0

    def use_pages_of(self, size: int) -> None:
        """Bring lists in pages of so many objects."""
        self._world = replace(self._world, network=Network(page_size=size))

    @property
    def version(self) -> int:
        """The version of the last write."""
        return self._cluster.store.resource_version

    @property
    def nodes(self) -> dict[str, Node]:
        """Read all nodes."""
        return {node.name: node for node in (read_node(body).value for body in self._cluster.nodes())}

    @property
    def pods(self) -> dict[NamespacedName, Pod]:
        """Read all pods."""
        return {pod.ref.key: pod for pod in (read_pod(body).value for body in self._cluster.pods())}

    @property
    def deleted(self) -> list[tuple[float, str]]:
        """List when the deletion of which UID was accepted."""
        return [(entry.at, entry.uid) for entry in self._timeline if entry.what in (What.EVICTED, What.DELETED_AGAIN)]

    def put(self, *objects: Node | Pod) -> None:
        """Create or replace objects."""
        for thing in objects:
            if isinstance(thing, Node):
                self._cluster.store.commit(RESOURCES["nodes"], node_as_json(thing))
            else:
                self._cluster.store.commit(RESOURCES["pods"], pod_as_json(thing, graceful=self.graceful))

    def remove(self, *names: str | NamespacedName) -> None:
        """Remove nodes (by name) and pods (by key), without anybody's doing."""
        for name in names:
            key = ("nodes", "", name) if isinstance(name, str) else ("pods", *name)
            record = self._cluster.store.get(*key)
            assert record is not None, name
            self._cluster.store.remove(record)

    def facts(self) -> list[Fact]:
        """Tell all as a watch does."""
        return [*(NodeSeen(node) for node in self.nodes.values()), *(PodSeen(pod) for pod in self.pods.values())]


class FakeReporter:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[float, Event]] = []

    def report(self, effect: Event, now: Moment) -> None:
        """Take note."""
        self.told.append((now.at, effect))

    def of(self, kind: type[Event]) -> list[tuple[float, Event]]:
        """List what was told of one kind."""
        return [(at, effect) for at, effect in self.told if isinstance(effect, kind)]


class FakeWatcher:
    """Watches that come up after ``up_after`` (None: never), and end when told to.

    ``ends_at_once``: each ends with this as soon as it has listed. ``closing_seconds``: how long ending takes.
    ``bookmarks``: each brings one a minute, that of nodes one in 10 s, as while nodes write their heartbeats.
    """

    def __init__(self) -> None:
        self.starts: list[tuple[float, str]] = []
        self.since: list[int | None] = []
        self.listeners: dict[str, WatchListener] = {}
        self.up_after: float | None = 0.0
        self.ends_at_once: BaseException | None = None
        self.closing_seconds = 0.0
        self.bookmarks = True
        self._ends: dict[str, asyncio.Future[BaseException]] = {}

    @property
    def open(self) -> set[str]:
        """Name the scopes that are watched."""
        return set(self._ends)

    async def watch(self, scope: WatchScope, listener: WatchListener, since: int | None = None) -> None:
        """Watch."""
        name = str(scope)
        self.starts.append((now(), name))
        self.since.append(since)
        end = self._ends[name] = asyncio.get_running_loop().create_future()
        try:
            await (asyncio.sleep(self.up_after) if self.up_after is not None else end)
            self.listeners[name] = listener
            listener.on_heard()
            listener.on_listed()
            raise self.ends_at_once or await self._end_of(scope, listener, end)
        finally:
            await asyncio.sleep(self.closing_seconds)
            if self._ends.get(name) is end:
                del self._ends[name]

    async def _end_of(
        self, scope: WatchScope, listener: WatchListener, end: asyncio.Future[BaseException]
    ) -> BaseException:
        seconds = 10.0 if isinstance(scope, NodesScope) else 60.0
        while not (await asyncio.wait([end], timeout=seconds))[0]:
            if self.bookmarks:
                listener.on_progress(None)
        return end.result()

    def end(self, name: str, reason: BaseException) -> None:
        """End a watch."""
        self._ends[name].set_result(reason)

    def report(self, name: str, *facts: Fact) -> None:
        """Bring changes, one by one."""
        for fact in facts:
            self.listeners[name].on_heard()
            self.listeners[name].on_event("MODIFIED", {"fact": fact})


def interpret(scope: WatchScope, event_type: str | None, body: Mapping[str, Any]) -> Fact | None:
    """Unpack what ``FakeWatcher.tell`` packed."""
    fact: Fact | None = body["fact"]
    return fact


class Body:
    """A whole body but for its watches: one brain, its doors, and what works on them."""

    def __init__(self, workers: int = 20, brain: Controller | None = None) -> None:
        self.clock, self.api, self.gate, self.reporter = FakeClock(), FakeApi(), FakeGate(), FakeReporter()
        self.brain = brain or Controller()
        self.live = Live(self.brain, self.clock, [self.reporter])
        self.node_reads = NodeReads(self.api, self.live, serves_seconds=1.0)
        doors = self.live, self.api, self.api, self.node_reads, self.gate
        self.evictor = Evictor(*doors, settings=Settings(), rng=random.Random(0))
        self.driver = Driver(self.live, self.evictor, self.gate, workers)
        self.watcher = FakeWatcher()

    def in_flight(self) -> list[Work]:
        """List what is in flight for the brain."""
        return [record.state.work for record in self.brain.pods if isinstance(record.state, InFlight)]

    async def carry_out(self, work: Work) -> WorkOutcome:
        """Carry out one piece of work, with a worker for it alone."""
        worker = Workers(1, lambda: None, 0).assign()
        try:
            return await self.evictor.carry_out(work, worker)
        finally:
            worker.leave()

    def doors(self, lists_at_once: int = 8, **settings: Any) -> WatchPorts:
        """Make the doors of watches."""
        doors = self.live, Resync(self.api, self.live, lists_at_once), self.watcher, interpret
        return WatchPorts(*doors, settings=WatchSettings(**settings), rng=random.Random(0))

    def sees(self, *objects: Node | Pod) -> None:
        """Put objects into the API server and tell everything as a watch does, in time."""
        self.api.put(*objects)
        for fact in self.api.facts():
            self.live.observe(fact)

    def lists_pods(self) -> None:
        """Tell the end of a list of all bound pods that has brought those that are known."""
        present = frozenset(known.pod.ref.uid for known in self.brain.pods.known.values())
        self.live.observe(PodsSwept(None, present, self.clock.now().at, None))


class FakePolicy:
    """Answers about the admission policy over a wire. ``name``: the account's, None: there are no policies."""

    def __init__(self, wire: Wire, name: str | None = "system:serviceaccount:kube-system:controller") -> None:
        self._wire = wire
        self.name = name
        self.narrows = True

    async def account(self) -> str | None:
        """Answer."""
        return await self._wire.carry("ACCOUNT", "", lambda: self.name)

    async def in_force(self) -> bool:
        """Answer."""
        return await self._wire.carry("POLICY", "", lambda: self.narrows)


# One pod, and what is to be done with it


def body(graceful: bool = False) -> Body:
    """A body that knows a pod which is due now."""
    it = Body()
    it.api.graceful = graceful
    it.sees(node(taint()), pod())
    return it


def begin(it: Body) -> Eviction:
    """Take the one eviction that is due."""
    [work] = it.live.take_due(10, 10)
    assert isinstance(work, Eviction)
    return work


async def once(it: Body) -> WorkOutcome:
    """Carry out the one eviction that is due, and settle it."""
    work = begin(it)
    outcome = await it.carry_out(work)
    it.live.finish(work, outcome)
    return outcome


async def take_back(it: Body) -> WorkOutcome:
    """Carry out the one take-back that is due, and settle it."""
    [work] = it.live.take_due(10, 10)
    assert isinstance(work, TakeBack)
    outcome = await it.carry_out(work)
    it.live.finish(work, outcome)
    return outcome
