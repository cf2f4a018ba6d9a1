"""What the steps that hold evictions back, or let them go, do to budgets, orders and controllers."""

from collections.abc import Sequence
from typing import assert_never

from taint_eviction.simulation import hold_actions as do
from taint_eviction.simulation.budgets import SimulatedBudgets
from taint_eviction.simulation.orders import SimulatedOrders
from taint_eviction.simulation.replica import Replica
from taint_eviction.simulation.virtual_clock import server_time, virtual_now


def hold_back(
    action: do.HoldAction, budgets: SimulatedBudgets, orders: SimulatedOrders, replicas: Sequence[Replica]
) -> None:
    """Do what the action says; raise ``Impossible`` if that cannot be done now."""
    match action:
        case do.CreateBudget():
            budgets.create(action.budget)
        case do.ChangeBudget():
            budgets.change(action.budget)
        case do.DeleteBudget():
            budgets.delete(action.budget)
        case do.ChangePolicy():
            for replica in replicas:
                replica.change_rules(action.rules)
        case _:
            _order(action, orders)


def _order(
    action: do.PauseEvictions | do.ResumeEvictions | do.ResetBreaker | do.LoseOrders | do.Scribble,
    orders: SimulatedOrders,
) -> None:
    match action:
        case do.PauseEvictions():
            orders.pause(action.node, action.namespace, action.reason)
        case do.ResumeEvictions():
            orders.resume(action.node, action.namespace, action.every)
        case do.ResetBreaker():
            orders.reset(server_time(virtual_now()), "a human")
        case do.LoseOrders():
            orders.lose()
        case do.Scribble():
            orders.scribble(action.key, action.value)
        case _:
            assert_never(action)
