"""The stage of a replay: the simulated world with its controller, and what each action does to it.

Every write of a step happens at one instant, as one write of one client.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from typing import assert_never

from taint_eviction.runtime.ports import Teller
from taint_eviction.settings import Settings
from taint_eviction.simulation import actions as do
from taint_eviction.simulation import kubernetes_json as kube
from taint_eviction.simulation.api import Network, Parsing, World
from taint_eviction.simulation.cluster import Impossible, SimulatedCluster
from taint_eviction.simulation.faults import Call, Faults, Picked, Trouble
from taint_eviction.simulation.kubelets import Kubelets
from taint_eviction.simulation.process import ControllerProcess, SimulatedGate, Surroundings, no_tellers
from taint_eviction.simulation.timeline import Entry, Timeline, What
from taint_eviction.simulation.virtual_clock import HostClock, timestamp, virtual_now
from taint_eviction.simulation.watches import Streams


class Stage:
    """One world with at most one controller process in it."""

    def __init__(
        self,
        timeline: Timeline,
        settings: Settings,
        parsing: Parsing,
        *,
        seed: str,
        default_toleration_seconds: int | None = 300,
        tellers: Callable[[Timeline], Iterable[Teller]] = no_tellers,
    ) -> None:
        self.timeline = timeline
        self.cluster = SimulatedCluster(timeline, default_toleration_seconds)
        self.kubelets = Kubelets(self.cluster)
        self.faults = Faults()
        self.nodes, self.pods = Streams(), Streams()
        self.host, self.gate = HostClock(), SimulatedGate()
        self.process: ControllerProcess | None = None
        network = Network(call_timeout_seconds=settings.call_timeout_seconds)
        world = World(self.cluster, self.faults, network, parsing, timeline)
        self._surroundings = Surroundings(world, self.host, settings, self.nodes, self.pods, self.gate, seed, tellers)
        self._incarnations = 0
        self._starting: asyncio.TimerHandle | None = None

    # The controller

    def start_controller(self) -> None:
        """Start a controller process."""
        self._starting = None
        self._incarnations += 1
        self.process = ControllerProcess(self._surroundings, self._incarnations)
        self.timeline.add(Entry(virtual_now(), What.STARTED, f"controller {self._incarnations}"))

    async def kill_controller(self) -> None:
        """End the controller process, if there is one; raise a bug that had ended it before."""
        if self._starting is not None:
            self._starting.cancel()
        if self.process is not None:
            process, self.process = self.process, None
            await process.kill()
            self.timeline.add(Entry(virtual_now(), What.KILLED, f"controller {self._incarnations}"))

    def busy(self) -> bool:
        """Tell whether the controller has plans, or is yet to be started; raise a bug that has ended it."""
        if self.process is None:
            return self._starting is not None
        self.process.check()
        return self.process.has_plans()

    # Actions

    async def perform(self, step: do.Step) -> None:
        """Do what the step says; raise ``Impossible`` if that cannot be done now."""
        self.timeline.add(Entry(virtual_now(), What.STEP, step.text))
        match action := step.action:
            case do.Restart():
                await self._restart(action)
            case do.AddTaints() | do.RemoveTaints() | do.SetTaints():
                self._change_taints(action)
            case do.WriteNode() | do.CreateNode() | do.DeleteNode() | do.RecreateNode() | do.FreezeKubelet():
                self._change_nodes(action)
            case do.CreatePods() | do.DeletePod() | do.RecreatePod() | do.BindPod():
                self._change_pods(action)
            case do.ChangeTolerations() | do.FinishPod() | do.RemoveFinalizers() | do.ResetCondition():
                self._write_pod(action)
            case do.LagWatches() | do.CutWatches() | do.LoseEvents():
                self._disturb_watches(action)
            case do.DisturbCalls() | do.Outage() | do.Lead() | do.StepHostClock():
                self._disturb(action)
            case _:
                assert_never(action)

    async def _restart(self, action: do.Restart) -> None:
        await self.kill_controller()
        if action.after_seconds > 0:
            loop = asyncio.get_running_loop()
            self._starting = loop.call_later(action.after_seconds, self.start_controller)
        else:
            self.start_controller()

    def _change_taints(self, action: do.AddTaints | do.RemoveTaints | do.SetTaints) -> None:
        present = kube.taints_of(self.cluster.node(action.node))
        match action:
            case do.AddTaints():
                taints = kube.add_taints(present, [self._dated(taint) for taint in action.taints])
            case do.SetTaints():
                taints = [self._dated(taint) for taint in action.taints]
            case do.RemoveTaints():
                taints = [] if action.taints is None else present
                for key, effect in action.taints or ():
                    if (remaining := kube.remove_taints(taints, key, effect)) == taints:
                        raise Impossible(f"node {action.node!r} has no taint {key!r} at this moment")
                    taints = remaining
            case _:
                assert_never(action)
        self.cluster.set_taints(action.node, taints, action.manager)

    def _dated(self, taint: kube.JsonObject) -> kube.JsonObject:
        """Give the taint the time of this moment where its author wrote ``timeAdded: now``."""
        return {**taint, "timeAdded": timestamp(virtual_now())} if taint.get("timeAdded") == "now" else taint

    def _change_nodes(
        self, action: do.WriteNode | do.CreateNode | do.DeleteNode | do.RecreateNode | do.FreezeKubelet
    ) -> None:
        match action:
            case do.WriteNode():
                self.cluster.write_node(action.node, action.manager)
            case do.CreateNode():
                self.create_node(action.body)
            case do.DeleteNode():
                self.cluster.delete_node(action.node)
            case do.RecreateNode():
                self.cluster.recreate_node(action.node, [self._dated(taint) for taint in action.taints])
            case do.FreezeKubelet():
                self.cluster.node(action.node)
                (self.kubelets.freeze if action.frozen else self.kubelets.thaw)(action.node)
            case _:
                assert_never(action)

    def create_node(self, body: kube.JsonObject) -> None:
        """Create a node as its author wrote it."""
        dated = any(taint.get("timeAdded") == "now" for taint in kube.taints_of(body))
        taints = [self._dated(taint) for taint in kube.taints_of(body)]
        self.cluster.create_node(kube.with_spec(body, taints=taints) if dated else body)

    def _change_pods(self, action: do.CreatePods | do.DeletePod | do.RecreatePod | do.BindPod) -> None:
        match action:
            case do.CreatePods():
                for body in action.bodies:
                    self.cluster.create_pod(body)
            case do.DeletePod():
                self.cluster.pod(action.pod)
                if action.force:
                    self.cluster.remove_pod(action.pod)
                else:
                    self.cluster.delete_pod(action.pod)
            case do.RecreatePod():
                node = None if action.unbound else action.node or self.cluster.last_node_of(action.pod)
                self.cluster.recreate_pod(action.pod, node)
            case do.BindPod():
                self.cluster.bind(action.pod, action.node)
            case _:
                assert_never(action)

    def _write_pod(self, action: do.ChangeTolerations | do.FinishPod | do.RemoveFinalizers | do.ResetCondition) -> None:
        match action:
            case do.ChangeTolerations():
                written = kube.with_spec(self.cluster.pod(action.pod), tolerations=list(action.tolerations))
                self.cluster.change_pod(action.pod, lambda _: self.cluster.with_default_tolerations(written))
            case do.FinishPod():
                phase = action.phase
                self.cluster.change_pod(action.pod, lambda pod: kube.with_status(pod, phase=phase))
            case do.RemoveFinalizers():
                self.cluster.change_pod(action.pod, lambda pod: kube.with_metadata(pod, finalizers=None))
            case do.ResetCondition():
                reset = {"type": kube.CONDITION_TYPE, "status": "False", "lastTransitionTime": timestamp(virtual_now())}
                self.cluster.change_pod(action.pod, lambda pod: kube.with_condition(pod, reset))
            case _:
                assert_never(action)

    def _streams(self, watches: do.Watches) -> list[Streams]:
        return [self.nodes] * watches.nodes + [self.pods] * watches.pods

    def _disturb_watches(self, action: do.LagWatches | do.CutWatches | do.LoseEvents) -> None:
        for streams in self._streams(action.watches):
            match action:
                case do.LagWatches():
                    streams.lag(action.by_seconds)
                case do.CutWatches():
                    streams.cut(action.for_seconds)
                case do.LoseEvents():
                    streams.lose(action.for_seconds)
                case _:
                    assert_never(action)

    def _disturb(self, action: do.DisturbCalls | do.Outage | do.Lead | do.StepHostClock) -> None:
        match action:
            case do.DisturbCalls():
                until = None if action.for_seconds is None else virtual_now() + action.for_seconds
                self.faults.add(dataclasses.replace(action.picked, until=until), action.trouble)
            case do.Outage():
                away = Picked(frozenset(Call), until=virtual_now() + action.for_seconds)
                self.faults.add(away, Trouble(fails=True))
                self.nodes.cut(action.for_seconds)
                self.pods.cut(action.for_seconds)
            case do.Lead():
                self.gate.leading = action.leading
            case do.StepHostClock():
                self.host.step(action.seconds)
            case _:
                assert_never(action)
