"""One process of kube-controller-manager in a simulated world: the model of its taint-eviction-controller.

It uses the same network and faults as a controller process, with its own client and watches. Its reports have their
own kinds of timeline entries, so that they are not mistaken for reports of this project's controller.

A process that no longer leads ends, and another one starts, as kube-controller-manager does; a standby watches nothing.
"""

import asyncio
import dataclasses
import random
from contextvars import copy_context

from taint_eviction.core.objects import NamespacedName, Pod
from taint_eviction.core.policy import EvictionPolicy
from taint_eviction.runtime.leadership import Elector
from taint_eviction.runtime.ports import CallFailed, FailureReason, Gate, NodesScope, PodsScope, WatchEnded, WatchScope
from taint_eviction_lab.built_in.controller import BuiltInController
from taint_eviction_lab.built_in.version import BuiltInVersion
from taint_eviction_lab.simulation.calls import SimulatedCalls, World
from taint_eviction_lab.simulation.faults import CallKind
from taint_eviction_lab.simulation.freezing import FREEZER, Freezer
from taint_eviction_lab.simulation.informers import InformerListener, NodeInformer, PodInformer
from taint_eviction_lab.simulation.killable import Killable
from taint_eviction_lab.simulation.lease import SimulatedLeaseStore
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.process import Surroundings
from taint_eviction_lab.simulation.timeline import BY_BUILT_IN, Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import ProcessClock, virtual_now
from taint_eviction_lab.simulation.watches import SimulatedWatcher

MANAGER = "kube-controller-manager"

# How long the API server may take for an answer by default; the client has no limit of its own.
_REQUEST_TIMEOUT_SECONDS = 60.0
# How often the process checks who leads.
_LOOK_SECONDS = 0.25
# How long an informer waits after a watch that could not be opened: as a reflector, but without its jitter.
_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 0.8, 30.0


class SimulatedPodClient:
    """The model's ``PodClient``."""

    def __init__(self, world: World, calls: SimulatedCalls) -> None:
        self._world = world
        self._calls = calls

    async def get(self, key: NamespacedName) -> Pod:
        """Read the pod that has this name."""
        body = await self._calls.call(CallKind.READ_POD, str(key), lambda: self._world.cluster.pod(key))
        pod = None if body is None else self._world.parsing.pod(body)
        if pod is None:
            raise CallFailed(f'pods "{key.name}" not found', reason=FailureReason.NOT_FOUND)
        return pod

    async def mark(self, pod: Pod) -> None:
        """Set the condition on this pod."""
        since = self._world.cluster.clocks.epoch()
        writes = self._world.pod_writes
        marked = await self._calls.call(
            CallKind.MARK, str(pod.ref), lambda: writes.mark(pod.ref, since), uid=pod.ref.uid
        )
        if marked is None:
            raise CallFailed(f'pods "{pod.ref.key.name}" is gone, or another one', reason=FailureReason.CONFLICT)

    async def delete(self, key: NamespacedName) -> None:
        """Delete the pod that has this name."""
        writes = self._world.pod_writes
        if not await self._calls.call(CallKind.DELETE, str(key), lambda: writes.delete_by_name(key)):
            raise CallFailed(f'pods "{key.name}" not found', reason=FailureReason.NOT_FOUND)


class BuiltInTimelineReporter:
    """The model's ``BuiltInReporter``."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def armed(self, key: NamespacedName, fire_at: float) -> None:
        """Add to the timeline that a timer was set."""
        self._timeline.add(TimelineEntry(virtual_now(), What.TIMER_SET, str(key), due_at=round(fire_at, 6)))

    def cancelled(self, key: NamespacedName) -> None:
        """Add to the timeline that a timer was cancelled."""
        self._add(What.TIMER_CANCELLED, key)

    def gave_up(self, key: NamespacedName, why: str) -> None:
        """Add to the timeline that all tries have failed."""
        self._add(What.GAVE_UP, key, f"after five tries: {why}")

    def event(self, key: NamespacedName, message: str) -> None:
        """Add to the timeline that an event was posted."""
        self._add(What.BUILT_IN_EVENT, key, f"Normal TaintManagerEviction: {message}")

    def _add(self, what: What, key: NamespacedName, why: str = "") -> None:
        self._timeline.add(TimelineEntry(virtual_now(), what, str(key), why=why))


class BuiltInProcess(Killable):
    """The ``incarnation``-th process of a replica, counted from 1; ``name`` is unique among all processes."""

    def __init__(self, version: BuiltInVersion, surroundings: Surroundings, name: str, incarnation: int) -> None:
        self.name = name
        self._version = version
        self._surroundings = surroundings
        world = surroundings.world
        network = dataclasses.replace(world.network, call_timeout_seconds=_REQUEST_TIMEOUT_SECONDS)
        writes = PodWrites(world.cluster, world.timeline, MANAGER, BY_BUILT_IN)
        self._world = dataclasses.replace(world, network=network, pod_writes=writes)
        clock = ProcessClock(surroundings.host, 0.0)
        self._calls = SimulatedCalls(self._world, clock, name, surroundings.own_faults)
        self.controller: BuiltInController | None = None
        self._gate: Gate = surroundings.gate
        self._elector: Elector | None = None
        if surroundings.lease is not None:
            store = SimulatedLeaseStore(self._calls, surroundings.lease)
            rng = random.Random(f"{surroundings.seed}/{incarnation}/election")
            election = surroundings.settings.election
            self._gate = self._elector = Elector(name, store, clock.server_clock, election, rng=rng)
        self.freezer = Freezer()
        context = copy_context()
        context.run(FREEZER.set, self.freezer)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name, context=context)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._elector is not None:
                group.create_task(self._elector.run(), name="elector")
            group.create_task(self._lead_again_and_again(), name="terms")

    async def _lead_again_and_again(self) -> None:
        while True:
            while not self._gate.may_act():  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(_LOOK_SECONDS)
            term = asyncio.create_task(self._lead(), name="term")
            try:
                while self._gate.may_act() and not term.done():  # noqa: ASYNC110 - as above
                    await asyncio.sleep(_LOOK_SECONDS)
            finally:
                term.cancel()
                await asyncio.wait([term])
            if not term.cancelled() and (bug := term.exception()) is not None:
                raise bug

    async def _lead(self) -> None:
        """Run the controller for one term; the next term knows nothing of it."""
        reporter = BuiltInTimelineReporter(self._world.timeline)
        controller = BuiltInController(self._version, SimulatedPodClient(self._world, self._calls), reporter)
        nodes = NodeInformer(self._world.parsing, controller)
        pods = PodInformer(self._world.parsing, controller)
        self.controller = controller
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._inform(NodesScope(), nodes), name="node informer")
                group.create_task(self._inform(PodsScope(None), pods), name="pod informer")
                group.create_task(controller.deletion.post_events(), name="events")
                await nodes.listed.wait()
                await pods.listed.wait()
                controller.synced()
        finally:
            self.controller = None
            await controller.stop()

    async def _inform(self, scope: WatchScope, listener: InformerListener) -> None:
        """Keep a watch open: it resumes where it was cut, except that nodes are listed again."""
        watcher = SimulatedWatcher(self._world, self._calls, self._surroundings.nodes, self._surroundings.pods)
        wait_seconds = _FIRST_WAIT_SECONDS
        while True:
            heard = listener.heard
            resumes = isinstance(scope, PodsScope) and listener.version is not None
            listener.begin(resumes)
            try:
                await watcher.watch(scope, listener, listener.version if resumes else None)
            except WatchEnded:
                wait_seconds = _FIRST_WAIT_SECONDS if listener.heard > heard else wait_seconds
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(wait_seconds * 2, _MAX_WAIT_SECONDS)

    def has_plans(self) -> bool:
        """Return whether a timer is set or a pod is being deleted."""
        return self.controller is not None and self.controller.busy

    def change_policy(self, policy: EvictionPolicy) -> None:
        """Do nothing: the model has no policy."""
