"""The stage of a replay: the simulated world with its controllers, and what each action does to it.

Every write of a step happens at one instant, as one write of one client.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import assert_never

from taint_eviction.core.orders import Orders
from taint_eviction.runtime.ports import Teller
from taint_eviction.settings import Settings
from taint_eviction.simulation import actions as do
from taint_eviction.simulation import kubernetes_json as kube
from taint_eviction.simulation.api import Network, Parsing, World
from taint_eviction.simulation.audit import Auditor, unaudited
from taint_eviction.simulation.budgets import Budget, SimulatedBudgets
from taint_eviction.simulation.cluster import Impossible, SimulatedCluster
from taint_eviction.simulation.faults import Call, Faults, Picked, Trouble
from taint_eviction.simulation.holding import hold_back
from taint_eviction.simulation.kubelets import Kubelets
from taint_eviction.simulation.lease import SimulatedLease
from taint_eviction.simulation.orders import SimulatedOrders
from taint_eviction.simulation.pod_writes import PodWrites
from taint_eviction.simulation.process import SimulatedGate, no_tellers
from taint_eviction.simulation.replica import Replica
from taint_eviction.simulation.timeline import Entry, Timeline, What
from taint_eviction.simulation.virtual_clock import timestamp, virtual_now
from taint_eviction.simulation.watches import Streams


class Stage:
    """One world with its controllers in it: one that always acts unless told otherwise, or replicas with a Lease.

    ``auditor`` is told of every call. ``ready_seconds``: how long it takes a pod to get ready. ``nodes`` and ``pods``
    are the watches of the first replica.
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
        tellers: Callable[[Timeline], Iterable[Teller]] = no_tellers,
        replicas: int | None = None,
        auditor: Auditor = unaudited,
    ) -> None:
        self.timeline = timeline
        self.cluster = SimulatedCluster(timeline, default_toleration_seconds)
        self.kubelets = Kubelets(self.cluster)
        self.budgets = SimulatedBudgets(self.cluster, ready_seconds=ready_seconds)
        self.orders = SimulatedOrders(timeline, parsing.orders)
        self.faults = Faults()
        self.gate = SimulatedGate()
        self.lease = None if replicas is None else SimulatedLease()
        network = Network(call_timeout_seconds=settings.call_timeout_seconds)
        writes = PodWrites(self.cluster, self.budgets, timeline)
        world = World(self.cluster, self.faults, network, parsing, timeline, writes, auditor)
        self.replicas = [
            Replica(
                number,
                world,
                settings=settings,
                gate=self.gate,
                orders=self.orders,
                lease=self.lease,
                seed=seed,
                tellers=tellers,
            )
            for number in range(1, (replicas or 1) + 1)
        ]
        self.nodes, self.pods = self.replicas[0].nodes, self.replicas[0].pods

    def give(
        self,
        nodes: Iterable[kube.JsonObject],
        pods: Iterable[kube.JsonObject],
        budgets: Iterable[Budget] = (),
        orders: Orders | None = None,
    ) -> None:
        """Put there what is there from the beginning; budgets are counted already."""
        for node in nodes:
            self.create_node(node)
        for pod in pods:
            self.cluster.create_pod(pod)
        for budget in budgets:
            self.budgets.create(budget)
        self.budgets.count()
        self.orders.orders = orders

    # The controllers

    def start_controllers(self) -> None:
        """Start all controller processes."""
        for replica in self.replicas:
            replica.start()

    async def kill_controllers(self) -> None:
        """End the controller processes that there are; raise a bug that had ended one before."""
        for replica in self.replicas:
            await replica.kill()

    def busy(self) -> bool:
        """Tell whether a controller has plans, or is yet to be started; raise a bug that has ended it."""
        return any([replica.busy() for replica in self.replicas])

    def make_peace(self) -> None:
        """Let everything work from now on: calls, watches, networks, kubelets, processes; no finalizer holds a pod."""
        self.faults.clear()
        for replica in self.replicas:
            replica.make_peace()
        for name in list(self.cluster.nodes):
            self.kubelets.thaw(name)
        for key, pod in list(self.cluster.pods.items()):
            if pod["metadata"].get("finalizers"):
                self.cluster.change_pod(key, lambda pod: kube.with_metadata(pod, finalizers=None))

    # Actions

    async def perform(self, step: do.Step) -> None:
        """Do what the step says; raise ``Impossible`` if that cannot be done now."""
        self.timeline.add(Entry(virtual_now(), What.STEP, step.text))
        match action := step.action:
            case do.Restart():
                await self.replicas[action.replica - 1].restart(action.after_seconds)
            case do.Freeze():
                self.replicas[action.replica - 1].freeze(action.for_seconds)
            case do.Partition():
                self.replicas[action.replica - 1].partition(action.for_seconds)
            case do.AddTaints() | do.RemoveTaints() | do.SetTaints():
                self._change_taints(action)
            case do.WriteNode() | do.CreateNode() | do.DeleteNode() | do.RecreateNode() | do.FreezeKubelet():
                self._change_nodes(action)
            case do.CreatePods() | do.DeletePod() | do.RecreatePod() | do.BindPod():
                self._change_pods(action)
            case do.ChangeTolerations() | do.FinishPod() | do.RemoveFinalizers() | do.ResetCondition() | do.SetHold():
                self._write_pod(action)
            case do.LagWatches() | do.CutWatches() | do.LoseEvents() | do.RepeatEvents() | do.RelistWatches():
                self._disturb_watches(action)
            case do.DisturbCalls() | do.Outage() | do.Lead() | do.StepHostClock():
                self._disturb(action)
            case _:
                hold_back(action, self.budgets, self.orders, self.replicas)

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

    def _write_pod(
        self, action: do.ChangeTolerations | do.FinishPod | do.RemoveFinalizers | do.ResetCondition | do.SetHold
    ) -> None:
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
            case do.SetHold():
                hold = action.hold
                self.cluster.change_pod(action.pod, lambda pod: kube.with_hold(pod, hold))
            case _:
                assert_never(action)

    def _streams(self, watches: do.Watches) -> list[Streams]:
        replicas = self.replicas if watches.replica is None else [self.replicas[watches.replica - 1]]
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

    def _disturb(self, action: do.DisturbCalls | do.Outage | do.Lead | do.StepHostClock) -> None:
        match action:
            case do.DisturbCalls():
                until = None if action.for_seconds is None else virtual_now() + action.for_seconds
                self.faults.add(dataclasses.replace(action.picked, until=until), action.trouble)
            case do.Outage():
                away = Picked(frozenset(Call), until=virtual_now() + action.for_seconds)
                self.faults.add(away, Trouble(fails=True))
                for streams in self._streams(do.Watches(nodes=True, pods=True)):
                    streams.cut(action.for_seconds)
            case do.Lead():
                self.gate.leading = action.leading
            case do.StepHostClock():
                self.replicas[action.replica - 1].host.step(action.seconds)
            case _:
                assert_never(action)
