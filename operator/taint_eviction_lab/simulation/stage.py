"""The stage of a replay: the simulated world with its controllers. ``actions`` are what happens to it."""

from collections.abc import Callable, Iterable

from fake_apiserver.node_lifecycle import NodeLifecycleSettings
from taint_eviction.core.control_state import ControlState
from taint_eviction.core.text import JsonObject
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction.settings import Settings
from taint_eviction_lab.built_in.version import BuiltIn
from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation.audit import Auditor, unaudited
from taint_eviction_lab.simulation.calls import Network, Parsing, World
from taint_eviction_lab.simulation.cluster import Impossible, SimulatedCluster, create_budget
from taint_eviction_lab.simulation.control_state import SimulatedControlState
from taint_eviction_lab.simulation.faults import CallFaults
from taint_eviction_lab.simulation.lease import SimulatedLease
from taint_eviction_lab.simulation.node_steps import create_node
from taint_eviction_lab.simulation.pod_steps import create_pod
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.process import SimulatedGate, no_reporters
from taint_eviction_lab.simulation.replica import BUILT_IN, SimulatedReplica
from taint_eviction_lab.simulation.timeline import Timeline
from taint_eviction_lab.simulation.virtual_clock import RIGHT_CLOCKS, ClockSettings, ServerClocks
from taint_eviction_lab.simulation.watches import Streams

# The watches that an action may be about.
WATCHES = ("all", "nodes", "pods")


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
        nodes: Iterable[JsonObject],
        pods: Iterable[JsonObject],
        budgets: Iterable[JsonObject] = (),
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

    def replica(self, number: int) -> SimulatedReplica:
        """Return a replica by its number; raise ``Impossible`` if there is no model of the built-in controller."""
        if number != BUILT_IN:
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

    def streams(self, watch: str = "all", replica: int | None = None) -> list[Streams]:
        """Return the watches of these objects (``WATCHES``), of one replica or (None) of all."""
        replicas = self._all_replicas if replica is None else [self.replica(replica)]
        nodes = [] if watch == "pods" else [each.nodes for each in replicas]
        return nodes + ([] if watch == "nodes" else [each.pods for each in replicas])
