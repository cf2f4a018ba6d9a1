"""A plan: what becomes of each pod, added up by node, owner and budget.

Made from an inventory and a what-if; decides nothing itself (``core.forecast``), and prints nothing (``cli``).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from taint_eviction.core.decision import DecisionPolicy
from taint_eviction.core.disruption_budgets import (
    Budget,
    CoveredPod,
    EvictionApi,
    EvictionVerdict,
    Standing,
    Violation,
    standing,
    violation,
)
from taint_eviction.core.forecast import PodForecast, WhatIf, forecast
from taint_eviction.core.instants import Moment
from taint_eviction.core.label_selectors import chooses
from taint_eviction.core.objects import NO_EXECUTE, NamespacedName, PodRef, Taint
from taint_eviction.core.scheduling import discouraging, repelling
from taint_eviction.planning.inventory import Inventory, Owner, PodFacts


class Mode(Enum):
    """How pods would be evicted."""

    DELETE = "delete"
    EVICT = "evict"
    EVICT_THEN_DELETE = "evict-then-delete"


@dataclass(slots=True)
class PlannedPod:
    """What becomes of one pod, and what that means.

    ``repelled_by``: the taints for which it could not be scheduled on its node again; ``discouraged_by``: those for
    which it would only be if need be. ``kept_from``: for a pod
    without a node, the nodes that it could not be scheduled on for their taints. ``recreated_for_ever``: its DaemonSet
    creates it there again each time.
    ``verdict``: what the eviction API would say, None in mode delete or where it stays. ``server_allows``: what the API
    server itself said to a dry-run eviction of this pod alone, None where it was not asked, ``server_answer`` in words.
    """

    facts: PodFacts
    forecast: PodForecast
    repelled_by: tuple[Taint, ...] = ()
    discouraged_by: tuple[Taint, ...] = ()
    budgets: tuple[Budget, ...] = ()
    kept_from: dict[str, tuple[Taint, ...]] = field(default_factory=dict)
    recreated_for_ever: bool = False
    verdict: EvictionVerdict | None = None
    server_allows: bool | None = None
    server_answer: str = ""

    @property
    def ref(self) -> PodRef:
        """Which pod."""
        return self.facts.pod.ref

    @property
    def leaves_at(self) -> float | None:
        """The instant at which it would leave; None if it stays."""
        return self.forecast.leaves_at

    @property
    def blocked(self) -> bool:
        """Tell whether its eviction would be refused: by the API server, or by arithmetic since others go before."""
        return self.server_allows is False or self.verdict not in (None, EvictionVerdict.ALLOWED)


@dataclass(slots=True)
class Tally:
    """How many of how many leave."""

    leaving: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node as it would be."""

    name: str
    zone: str
    taints: tuple[Taint, ...]
    deleted: bool
    tally: Tally

    @property
    def matters(self) -> bool:
        """Tell whether its pods may leave or be orphaned."""
        return self.deleted or any(taint.effect == NO_EXECUTE for taint in self.taints)


@dataclass(frozen=True, slots=True)
class PlannedBudget:
    """What becomes of a budget: deletions may violate it, evictions may be blocked by it."""

    budget: Budget
    before: Standing
    covered: int
    leaving: int
    violation: Violation | None
    blocked: tuple[PodRef, ...]


@dataclass(slots=True)
class Plan:
    """Everything there is to say.

    ``leaving``: the pods that leave, in the order in which they do. ``unknown_nodes``: how many pods are bound to nodes
    that were not told of.
    """

    now: Moment
    what_if: WhatIf
    described: list[str]
    mode: Mode
    inventory: Inventory
    pods: list[PlannedPod]
    leaving: list[PlannedPod] = field(default_factory=list)
    nodes: dict[str, PlannedNode] = field(default_factory=dict)
    owners: dict[tuple[str, Owner | None], Tally] = field(default_factory=dict)
    budgets: list[PlannedBudget] = field(default_factory=list)
    unknown_nodes: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    @property
    def bare(self) -> list[PlannedPod]:
        """Those that leave and are gone for good: nobody creates another."""
        return [pod for pod in self.leaving if pod.facts.bare]

    @property
    def broken_budgets(self) -> list[PlannedBudget]:
        """The budgets that are violated, or in modes with evictions those that block."""
        return [each for each in self.budgets if each.violation is not None or each.blocked]

    @property
    def complete(self) -> bool:
        """Tell whether everything that was given could be read."""
        return not self.inventory.problems


def make_plan(
    inventory: Inventory, what_if: WhatIf, described: list[str], now: Moment, policy: DecisionPolicy, mode: Mode
) -> Plan:
    """Forecast every pod of the inventory and add it up."""
    nodes = [facts.node for facts in inventory.nodes.values()]
    forecasts = forecast(nodes, [facts.pod for facts in inventory.pods.values()], what_if, now, policy)
    pods = [PlannedPod(inventory.pods[each.pod.ref.key], each) for each in forecasts]
    plan = Plan(now, what_if, described, mode, inventory, pods, notes=list(inventory.notes))
    found = [(pod.leaves_at, pod.ref.key, pod) for pod in pods if pod.leaves_at is not None]
    plan.leaving = [pod for _, _, pod in sorted(found, key=lambda each: each[:2])]
    _add_nodes(plan)
    _add_scheduling(plan)
    _add_up(plan)
    _add_budgets(plan)
    return plan


def _add_nodes(plan: Plan) -> None:
    for name, facts in plan.inventory.nodes.items():
        taints = plan.what_if.taints.get(name, facts.node.taints)
        plan.nodes[name] = PlannedNode(name, facts.zone, taints, name in plan.what_if.deleted_nodes, Tally())


def _add_scheduling(plan: Plan) -> None:
    tainted = [node for node in plan.nodes.values() if node.taints]
    for pod in plan.pods:
        tolerations = pod.forecast.pod.tolerations
        if pod.facts.pod.node_name is None:
            found = {node.name: repelling(tolerations, node.taints) for node in tainted}
            pod.kept_from = {name: taints for name, taints in found.items() if taints}
            continue
        node = plan.nodes.get(pod.facts.pod.node_name)
        if node is None or not node.taints:
            continue
        pod.repelled_by = repelling(tolerations, node.taints)
        pod.discouraged_by = discouraging(tolerations, node.taints)
        owner = pod.facts.owner
        daemon = owner is not None and owner.kind == "DaemonSet"
        pod.recreated_for_ever = daemon and pod.leaves_at is not None and not pod.repelled_by


def _add_up(plan: Plan) -> None:
    for pod in plan.pods:
        left = pod.leaves_at is not None
        name = pod.facts.pod.node_name
        if not pod.facts.pod.mirror:
            owner = plan.owners.setdefault((pod.ref.key.namespace, pod.facts.owner), Tally())
            owner.total, owner.leaving = owner.total + 1, owner.leaving + left
        if name is None:
            continue
        if name not in plan.nodes:
            plan.unknown_nodes[name] += 1
            continue
        node = plan.nodes[name].tally
        node.total, node.leaving = node.total + 1, node.leaving + left


# Budgets


def _add_budgets(plan: Plan) -> None:
    covered = _cover(plan)
    standings = {key: standing(plan.inventory.budgets[key], pods) for key, pods in covered.items()}
    leaving = plan.leaving
    blocked: dict[NamespacedName, list[PodRef]] = {}
    if plan.mode is not Mode.DELETE:
        api = EvictionApi(standings)
        for pod in leaving:
            pod.verdict = api.evict(_covered(pod.facts), pod.budgets)
            if pod.blocked:
                for budget in pod.budgets:
                    blocked.setdefault(budget.key, []).append(pod.ref)
    departures: dict[NamespacedName, list[tuple[float, CoveredPod]]] = {}
    for pod in leaving:
        for budget in pod.budgets:
            departures.setdefault(budget.key, []).append((pod.leaves_at or 0.0, _covered(pod.facts)))
    for key, budget in plan.inventory.budgets.items():
        gone = departures.get(key, [])
        violated = violation(standings[key], gone) if plan.mode is Mode.DELETE else None
        held = tuple(blocked.get(key, ()))
        plan.budgets.append(PlannedBudget(budget, standings[key], len(covered[key]), len(gone), violated, held))


def _cover(plan: Plan) -> Mapping[NamespacedName, list[CoveredPod]]:
    """Find which budgets cover which pods. Equal labels are shared objects, so each is looked at once."""
    by_namespace: dict[str, list[Budget]] = {}
    for budget in plan.inventory.budgets.values():
        by_namespace.setdefault(budget.key.namespace, []).append(budget)
    covered: dict[NamespacedName, list[CoveredPod]] = {key: [] for key in plan.inventory.budgets}
    known: dict[tuple[str, int], tuple[Budget, ...]] = {}
    for pod in plan.pods:
        namespace = pod.ref.key.namespace
        if namespace not in by_namespace:
            continue
        key = namespace, id(pod.facts.labels)
        if key not in known:
            known[key] = tuple(_choosing(by_namespace[namespace], pod.facts))
        pod.budgets = known[key]
        for budget in pod.budgets:
            covered[budget.key].append(_covered(pod.facts))
    return covered


def _choosing(budgets: Iterable[Budget], facts: PodFacts) -> Iterable[Budget]:
    return (budget for budget in budgets if budget.selector is not None and chooses(budget.selector, facts.labels))


def _covered(facts: PodFacts) -> CoveredPod:
    pod = facts.pod
    return CoveredPod(pod.ref, facts.ready, facts.pending or pod.finished or pod.terminating)
