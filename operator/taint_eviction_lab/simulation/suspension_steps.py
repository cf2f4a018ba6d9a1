"""What steps that suspend or resume evictions do: to budgets, to the ConfigMap with pauses and breaker, to policies."""

from collections.abc import Sequence
from copy import deepcopy
from typing import assert_never

from fake_apiserver.registry import WriteOptions
from fake_apiserver.resources import RESOURCES
from taint_eviction_lab.simulation import suspension_actions as do
from taint_eviction_lab.simulation.cluster import SimulatedCluster
from taint_eviction_lab.simulation.control_state import SimulatedControlState
from taint_eviction_lab.simulation.kubernetes_json import JsonObject
from taint_eviction_lab.simulation.replica import SimulatedReplica
from taint_eviction_lab.simulation.virtual_clock import server_time, virtual_now

_BUDGETS = RESOURCES["poddisruptionbudgets"]


def change_suspension(
    action: do.SuspensionAction,
    cluster: SimulatedCluster,
    control_state: SimulatedControlState,
    replicas: Sequence[SimulatedReplica],
) -> None:
    """Perform the action; raise ``Impossible`` if that is impossible now."""
    match action:
        case do.CreateBudget():
            create_budget(cluster, action.body)
        case do.ChangeBudget():
            metadata = action.body["metadata"]
            budget = cluster.body(_BUDGETS.plural, metadata["name"], metadata["namespace"])
            cluster.update(_BUDGETS.plural, {**budget, "spec": action.body["spec"]})
        case do.DeleteBudget():
            cluster.delete(_BUDGETS.plural, action.budget.name, action.budget.namespace)
        case do.ChangePolicy():
            for replica in replicas:
                replica.change_rules(action.rules)
        case _:
            _order(action, control_state)


def create_budget(cluster: SimulatedCluster, body: JsonObject) -> None:
    """Create a PodDisruptionBudget without a status."""
    cluster.registry.create(_BUDGETS, body["metadata"]["namespace"], deepcopy(body), WriteOptions())


def _order(
    action: do.PauseEvictions | do.ResumeEvictions | do.ResetBreaker | do.LoseControlState | do.Scribble | do.HandBack,
    control_state: SimulatedControlState,
) -> None:
    match action:
        case do.PauseEvictions():
            control_state.pause(action.node, action.namespace, action.reason, action.seconds)
        case do.ResumeEvictions():
            control_state.resume(action.node, action.namespace, action.every)
        case do.ResetBreaker():
            control_state.reset(server_time(virtual_now()) + action.ahead_seconds, "a human")
        case do.LoseControlState():
            control_state.lose()
        case do.HandBack():
            control_state.hand_back(action.undo)
        case do.Scribble():
            control_state.scribble(action.key, action.value)
        case _:
            assert_never(action)
