"""The stage of a replay: the simulated world with its controllers, and what each action does to it.

Every write of a step happens at one instant, as one write of one client.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import assert_never

from fake_apiserver.node_lifecycle import NodeLifecycleSettings
from fake_apiserver.status import StatusError
from taint_eviction.core.control_state import ControlState
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction.settings import Settings
from taint_eviction_lab.built_in.version import BuiltIn
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation import lifecycle_actions as let
from taint_eviction_lab.simulation.audit import Auditor, unaudited
from taint_eviction_lab.simulation.calls import Network, Parsing, World
from taint_eviction_lab.simulation.cluster import Impossible, SimulatedCluster
from taint_eviction_lab.simulation.control_state import SimulatedControlState
from taint_eviction_lab.simulation.faults import CallFault, CallFaults, CallKind, Picked
from taint_eviction_lab.simulation.lease import SimulatedLease
from taint_eviction_lab.simulation.lifecycle_steps import change_lifecycle
from taint_eviction_lab.simulation.node_steps import change_node, change_taints, create_node
from taint_eviction_lab.simulation.pod_steps import change_pods, create_pod, write_pod
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.process import SimulatedGate, no_reporters
from taint_eviction_lab.simulation.replica import SimulatedReplica
from taint_eviction_lab.simulation.suspension_actions import SuspensionAction
from taint_eviction_lab.simulation.suspension_steps import change_suspension, create_budget
from taint_eviction_lab.simulation.timeline import Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import (
    RIGHT_CLOCKS,
    ClockSettings,
    ServerClocks,
    virtual_now,
)
from taint_eviction_lab.simulation.watches import Streams


class ReplayStage:
    """One simulated world with its controllers: one that always acts unless a step says otherwise, or replicas with a
    Lease.

    ``built_in``: the model of the built-in controller runs beside the controllers, or in their place. ``auditor``
    receives every call. ``ready_seconds``: how long a pod takes to become ready. ``nodes`` and ``pods`` are the watches
    of the first replica.
    """

    def __init__(
        self,
        timeline: Timeline,
        settings: Settings,
        parsing: Parsing,
        *,
        seed: str,
        default_toleration_seconds: int | None = 300,
        ready_seconds: float = 0.0,
        reporters: Callable[[Timeline, Gate], Iterable[Reporter]] = no_reporters,
        replicas: int | None = None,
        clocks: ClockSettings = RIGHT_CLOCKS,
        auditor: Auditor = unaudited,
        node_lifecycle: NodeLifecycleSettings | None = None,
        built_in: BuiltIn | None = None,
    ) -> None:
        self.timeline = timeline
        server_clocks = ServerClocks(clocks.api_servers, clocks.per_request)
        self.cluster = SimulatedCluster(
            timeline, default_toleration_seconds, ready_seconds, server_clocks, node_lifecycle
        )
        self.control_state = SimulatedControlState(timeline, parsing.control_state)
        self.faults = CallFaults()
        self.gate = SimulatedGate()
        self.lease = None if replicas is None else SimulatedLease()
        network = Network(call_timeout_seconds=settings.call_timeout_seconds)
        writes = PodWrites(self.cluster, timeline)
        world = World(self.cluster, self.faults, network, parsing, timeline, writes, auditor)
        self.replicas = [
            SimulatedReplica(
                number,
                world,
                settings=settings,
                gate=self.gate,
                control_state=self.control_state,
                lease=self.lease,
                seed=seed,
                reporters=reporters,
                drift_ppm=clocks.drift_ppm,
                built_in=built_in.version if built_in is not None and built_in.alone else None,
            )
            for number in range(1, (replicas or 1) + 1)
        ]
        self.built_ins = self.replicas if built_in is not None and built_in.alone else []
        if built_in is not None and not built_in.alone:
            beside = SimulatedReplica(
                0,
                world,
                settings=settings,
                gate=SimulatedGate(),
                control_state=self.control_state,
                lease=None,
                seed=f"{seed}/built-in",
                reporters=no_reporters,
                built_in=built_in.version,
            )
            self.built_ins = [beside]
        self.nodes, self.pods = self.replicas[0].nodes, self.replicas[0].pods

    def give(
        self,
        nodes: Iterable[kube.JsonObject],
        pods: Iterable[kube.JsonObject],
        budgets: Iterable[kube.JsonObject] = (),
        control_state: ControlState | None = None,
    ) -> None:
        """Create the objects that exist from the beginning; budgets are already counted, and kubelets have reported."""
        for node in nodes:
            create_node(self.cluster, node)
        for pod in pods:
            create_pod(self.cluster, pod)
        for budget in budgets:
            create_budget(self.cluster, budget)
        self.cluster.budgets.catch_up()
        if self.cluster.node_lifecycle is not None:
            self.cluster.node_lifecycle.resume()
        self.control_state.control_state = control_state

    # The controllers

    @property
    def _all_replicas(self) -> list[SimulatedReplica]:
        return [*self.replicas, *(replica for replica in self.built_ins if replica not in self.replicas)]

    def _replica(self, number: int) -> SimulatedReplica:
        if number != do.BUILT_IN:
            return self.replicas[number - 1]
        if not self.built_ins:
            raise Impossible("the settings of this scenario lack 'builtIn'")
        return self.built_ins[0]

    def start_controllers(self) -> None:
        """Start all controller processes."""
        for replica in self._all_replicas:
            replica.start()

    async def kill_controllers(self) -> None:
        """End all controller processes; raise a bug that had ended one before."""
        for replica in self._all_replicas:
            await replica.kill()

    def busy(self) -> bool:
        """Return whether a controller has plans or will still be started; raise a bug that has ended one."""
        return any([replica.busy() for replica in self._all_replicas])

    def make_peace(self) -> None:
        """End all faults: of calls, watches, networks, kubelets and processes; and remove all finalizers of pods."""
        self.faults.clear()
        for replica in self._all_replicas:
            replica.make_peace()
        if (lifecycle := self.cluster.node_lifecycle) is not None:
            for node in sorted(lifecycle.heartbeats.silent_nodes):
                lifecycle.heartbeats.speak(node)
        for node in sorted(self.cluster.kubelets.frozen_nodes):
            self.cluster.kubelets.thaw(node)
        for pod in self.cluster.pods():
            if pod["metadata"].get("finalizers"):
                self.cluster.update("pods", kube.with_metadata(pod, finalizers=None))

    # Actions

    async def perform(self, step: do.ScenarioStep) -> None:
        """Perform the step; raise ``Impossible`` if that is impossible now."""
        self.timeline.add(TimelineEntry(virtual_now(), What.STEP, step.text))
        match action := step.action:
            case do.Restart():
                await self._replica(action.replica).restart(action.after_seconds, action.adopts, action.gracefully)
            case do.Freeze():
                self._replica(action.replica).freeze(action.for_seconds)
            case do.Partition():
                self._replica(action.replica).partition(action.for_seconds, action.late_seconds)
            case let.RestartLifecycle() if self.built_ins:
                await self._restart_kube_controller_manager(action)
            case do.LagWatches() | do.CutWatches() | do.LoseEvents() | do.RepeatEvents() | do.RelistWatches():
                self._disturb_watches(action)
            case (
                do.DisturbCalls()
                | do.Outage()
                | do.Lead()
                | do.StepHostClock()
                | do.StepServerClock()
                | do.StopServer()
            ):
                self._disturb(action)
            case _:
                try:
                    self._change_cluster(action)
                except StatusError as refusal:
                    raise Impossible(refusal.message) from refusal

    async def _restart_kube_controller_manager(self, action: let.RestartLifecycle) -> None:
        """Restart what runs in kube-controller-manager: the node lifecycle controller and the built-in controller."""
        for replica in self.built_ins:
            await replica.restart(action.after_seconds)
        if self.cluster.node_lifecycle is not None:
            change_lifecycle(self.cluster, action)

    def _change_cluster(self, action: do.ClusterAction | let.LifecycleAction | SuspensionAction) -> None:
        match action:
            case do.AddTaints() | do.RemoveTaints() | do.SetTaints():
                change_taints(self.cluster, action)
            case (
                do.WriteNode()
                | do.SetReady()
                | do.CreateNode()
                | do.DeleteNode()
                | do.RecreateNode()
                | do.FreezeKubelet()
            ):
                change_node(self.cluster, action)
            case do.CreatePods() | do.DeletePod() | do.RecreatePod() | do.BindPod():
                change_pods(self.cluster, action)
            case (
                do.ChangeTolerations()
                | do.FinishPod()
                | do.RemoveFinalizers()
                | do.ResetCondition()
                | do.SetHold()
                | do.Annotate()
            ):
                write_pod(self.cluster, action)
            case let.SilenceKubelets() | let.HearKubelets() | let.ShutDown() | let.RestartLifecycle():
                change_lifecycle(self.cluster, action)
            case _:
                change_suspension(action, self.cluster, self.control_state, self.replicas)

    def _streams(self, watches: do.Watches) -> list[Streams]:
        replicas = self._all_replicas if watches.replica is None else [self._replica(watches.replica)]
        nodes = [replica.nodes for replica in replicas] if watches.nodes else []
        return nodes + ([replica.pods for replica in replicas] if watches.pods else [])

    def _disturb_watches(
        self, action: do.LagWatches | do.CutWatches | do.LoseEvents | do.RepeatEvents | do.RelistWatches
    ) -> None:
        for streams in self._streams(action.watches):
            match action:
                case do.LagWatches():
                    streams.lag(action.by_seconds)
                case do.CutWatches():
                    streams.cut(action.for_seconds)
                case do.LoseEvents():
                    streams.lose(action.for_seconds)
                case do.RepeatEvents():
                    streams.repeat(action.for_seconds)
                case do.RelistWatches():
                    streams.relist()
                case _:
                    assert_never(action)

    def _disturb(
        self,
        action: do.DisturbCalls | do.Outage | do.Lead | do.StepHostClock | do.StepServerClock | do.StopServer,
    ) -> None:
        match action:
            case do.DisturbCalls():
                until = None if action.for_seconds is None else virtual_now() + action.for_seconds
                self.faults.add(dataclasses.replace(action.picked, until=until), action.fault)
            case do.Outage():
                away = Picked(frozenset(CallKind), until=virtual_now() + action.for_seconds)
                self.faults.add(away, CallFault(fails=True))
                for streams in self._streams(do.Watches(nodes=True, pods=True)):
                    streams.cut(action.for_seconds)
            case do.Lead():
                self.gate.lead(action.leading)
            case do.StepHostClock():
                self._replica(action.replica).host.step(action.seconds)
            case do.StepServerClock():
                self.cluster.clocks.step(action.seconds, action.server)
            case do.StopServer():
                self.cluster.clocks.stop(action.server, action.for_seconds)
            case _:
                assert_never(action)
