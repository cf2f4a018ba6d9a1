"""What steps do to kubelets and to the node lifecycle controller.

A step raises ``Impossible`` if the scenario has no node lifecycle controller.
"""

from typing import assert_never

from taint_eviction_lab.simulation import kubernetes_json as kube
from taint_eviction_lab.simulation import lifecycle_actions as let
from taint_eviction_lab.simulation.cluster import Impossible, SimulatedCluster, later

_SHUTTING_DOWN = "node is shutting down"


def change_lifecycle(cluster: SimulatedCluster, action: let.LifecycleAction) -> None:
    """Perform the action."""
    controller = cluster.node_lifecycle
    if controller is None:
        raise Impossible("the settings of this scenario lack 'nodeLifecycle'")
    match action:
        case let.SilenceKubelets():
            for node in action.nodes:
                controller.heartbeats.silence(node)
        case let.HearKubelets():
            for node in action.nodes:
                controller.heartbeats.speak(node)
        case let.ShutDown():
            body = cluster.body("nodes", action.node)
            unready = kube.with_readiness(body, "False", _SHUTTING_DOWN, cluster.clock.timestamp())
            cluster.update("nodes", unready, manager="kubelet")
            later(action.for_seconds, controller.heartbeats.silence, action.node)
        case let.RestartLifecycle():
            controller.restart(action.after_seconds)
        case _:
            assert_never(action)
