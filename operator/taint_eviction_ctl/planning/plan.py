"""A plan: what happens to each pod, added up by node, owner and budget.

It is made from an inventory and a what-if. ``core.forecast`` decides; ``cli`` prints.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from taint_eviction.core.control_state import Latch
from taint_eviction.core.decision import DecisionPolicy, Evict
from taint_eviction.core.instants import Moment
from taint_eviction.core.label_selectors import chooses
from taint_eviction.core.matching import discouraging, repelling
from taint_eviction.core.objects import NO_EXECUTE, OUT_OF_SERVICE, ControllerRef, NamespacedName, Node, PodRef, Taint
from taint_eviction.core.policy import UNLIMITED, EvictionMode, EvictionPolicy, handling_of
from taint_eviction.core.sentences import out_of_service_note
from taint_eviction_ctl.planning.budgets import covered as _covered
from taint_eviction_ctl.planning.disruption_budgets import (
    Budget,
    CoveredPod,
    EvictionApi,
    Standing,
    Violation,
    standing,
    violation,
)
from taint_eviction_ctl.planning.forecast import WhatIf, forecast
from taint_eviction_ctl.planning.inventory import Inventory, PodFacts
from taint_eviction_ctl.planning.planned_pod import PlannedOrder, PlannedPod
from taint_eviction_ctl.planning.rehearsal import Conditions, Course, Rehearsal


@dataclass(slots=True)
class Tally:
    """How many pods leave, of how many."""

    leaving: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node as it would be after the changes."""

    name: str
    zone: str
    taints: tuple[Taint, ...]
    deleted: bool
    tally: Tally

    @property
    def matters(self) -> bool:
        """Return whether its pods may leave or be orphaned."""
        return self.deleted or any(taint.effect == NO_EXECUTE for taint in self.taints)


@dataclass(frozen=True, slots=True)
class PlannedBudget:
    """What happens to a budget: deletions may violate it, and it may block evictions.

    ``covered``: how many pods it covers; ``leaving``: how many of these leave; ``asking``: how many of the latter by
    the eviction API; ``by_change``: some of them leave because of the changes.
    """

    budget: Budget
    before: Standing
    covered: int
    leaving: int
    asking: int
    by_change: bool
    violation: Violation | None
    blocked: tuple[PodRef, ...]


# It has no repr of its contents: in Python 3.11, asyncio.run builds the repr of its result, and discards it.
@dataclass(slots=True, repr=False)
class Plan:
    """The whole plan.

    ``mode``: how pods are evicted unless a rule says otherwise. ``leaving``: the pods that are due, in the order of
    their deadlines, including those that are blocked or paused then. ``unknown_nodes``: by the name of a node that is
    not in the inventory, how many pods are bound to it. ``asked``: the question in words, for a picture. ``ordered``:
    pods wait for earlier tiers; ``limited``: limits let only so many of them go.
    """

    now: Moment
    what_if: WhatIf
    described: list[str]
    mode: EvictionMode
    inventory: Inventory
    pods: list[PlannedPod]
    leaving: list[PlannedPod] = field(default_factory=list)
    nodes: dict[str, PlannedNode] = field(default_factory=dict)
    owners: dict[tuple[str, ControllerRef | None], Tally] = field(default_factory=dict)
    budgets: list[PlannedBudget] = field(default_factory=list)
    unknown_nodes: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    asked: str = ""
    ordered: bool = False
    limited: bool = False

    @property
    def held(self) -> list[PlannedPod]:
        """The pods that are due and do not leave then: something holds them."""
        return [pod for pod in self.leaving if pod.holders]

    @property
    def freed(self) -> list[PlannedPod]:
        """The pods that are Terminating and that PodGC force-deletes, since their nodes are out of service."""
        return [pod for pod in self.pods if pod.freed]

    @property
    def harmless_effects(self) -> list[str]:
        """The effects of the added taints that evict nobody."""
        before = {name: facts.node.taints for name, facts in self.inventory.nodes.items()}
        added = {taint for name, taints in self.what_if.taints.items() for taint in set(taints) - set(before[name])}
        return sorted({taint.effect for taint in added} - {NO_EXECUTE})

    @property
    def taken_out(self) -> frozenset[str]:
        """The nodes that the changes delete or put out of service."""
        before, taints = self.inventory.nodes, self.what_if.taints
        added = {name for name in taints if _is_out(taints[name]) and not _is_out(before[name].node.taints)}
        return self.what_if.deleted_nodes | added

    @property
    def bare(self) -> list[PlannedPod]:
        """The pods that no controller recreates when they or their nodes are deleted."""
        return [pod for pod in self.pods if pod.lost]

    @property
    def broken_budgets(self) -> list[PlannedBudget]:
        """The budgets that are violated or block evictions."""
        return [each for each in self.budgets if each.violation is not None or each.blocked]

    @property
    def complete(self) -> bool:
        """Return whether the whole input could be read."""
        return not self.inventory.problems


def make_plan(
    inventory: Inventory,
    what_if: WhatIf,
    described: list[str],
    now: Moment,
    policy: DecisionPolicy,
    eviction: EvictionPolicy,
) -> Plan:
    """Forecast every pod of the inventory and add it up."""
    nodes = [facts.node for facts in inventory.nodes.values()]
    forecasts = forecast(nodes, [facts.pod for facts in inventory.pods.values()], what_if, now, policy, eviction)
    pods = [PlannedPod(inventory.pods[each.pod.ref.key], each) for each in forecasts]
    plan = Plan(now, what_if, described, eviction.mode, inventory, pods, notes=list(inventory.notes))
    limits = (eviction.total, eviction.per_node, eviction.per_namespace, *(rule.limit for rule in eviction.rules))
    plan.ordered, plan.limited = eviction.orders, any(limit != UNLIMITED for limit in limits)
    found = [(pod.leaves_at, pod.ref.key, pod) for pod in pods if pod.leaves_at is not None]
    plan.leaving = [pod for _, _, pod in sorted(found, key=lambda each: each[:2])]
    _add_handling(plan)
    _add_nodes(plan)
    _add_freed(plan)
    _add_scheduling(plan)
    _add_up(plan)
    covered = _cover(plan)
    if _needs_rehearsal(plan):
        rehearse(plan, Conditions(policy, eviction))
    else:
        for pod in plan.leaving:
            pod.goes_at = pod.leaves_at
    _add_budgets(plan, covered)
    return plan


def _add_handling(plan: Plan) -> None:
    for pod in plan.leaving:
        decision = pod.forecast.decision
        if isinstance(decision, Evict):
            at = max(plan.now.at, decision.fire_at)
            pod.handling = handling_of(decision.deciding, pod.forecast.pod, pod.forecast.eviction, at)


def _add_nodes(plan: Plan) -> None:
    for name, facts in plan.inventory.nodes.items():
        taints = plan.what_if.taints.get(name, facts.node.taints)
        plan.nodes[name] = PlannedNode(name, facts.zone, taints, name in plan.what_if.deleted_nodes, Tally())
        if note := out_of_service_note(replace(facts.node, taints=taints)):
            plan.notes.append(f"node {name}: {note}")


def _add_freed(plan: Plan) -> None:
    """Note the pods that PodGC force-deletes; it asks for no effect of the taint."""
    nodes = {name: facts.node for name, facts in plan.inventory.nodes.items()}
    before = {name for name, node in nodes.items() if _ends_pods(node, node.taints)}
    after = {name for name, node in plan.nodes.items() if _ends_pods(nodes[name], node.taints)}
    for pod in plan.pods:
        if pod.facts.pod.terminating:
            pod.freed, pod.freed_anyway = (pod.facts.pod.node_name in off for off in (after, before))


def _ends_pods(node: Node, taints: Iterable[Taint]) -> bool:
    return not node.is_ready and _is_out(taints)


def _is_out(taints: Iterable[Taint]) -> bool:
    return any(taint.key == OUT_OF_SERVICE for taint in taints)


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
        owner = pod.facts.pod.controller
        daemon = owner is not None and owner.kind == "DaemonSet"
        pod.recreated_for_ever = daemon and pod.leaves_at is not None and not pod.repelled_by


def _add_up(plan: Plan) -> None:
    for pod in plan.pods:
        left = pod.leaves_at is not None
        name = pod.facts.pod.node_name
        if not pod.facts.pod.mirror:
            owner = plan.owners.setdefault((pod.ref.key.namespace, pod.facts.pod.controller), Tally())
            owner.total, owner.leaving = owner.total + 1, owner.leaving + left
        if name is None:
            continue
        if name not in plan.nodes:
            plan.unknown_nodes[name] += 1
            continue
        node = plan.nodes[name].tally
        node.total, node.leaving = node.total + 1, node.leaving + left


# Budgets


def _add_budgets(plan: Plan, covered: Mapping[NamespacedName, list[CoveredPod]]) -> None:
    leaving: dict[NamespacedName, list[PlannedPod]] = {key: [] for key in plan.inventory.budgets}
    for pod in plan.leaving:
        for budget in pod.budgets:
            leaving[budget.key].append(pod)
    for key, budget in plan.inventory.budgets.items():
        before, going = standing(budget, covered[key]), leaving[key]
        asking, blocked = sum(pod.asks for pod in going), tuple(pod.ref for pod in going if pod.blocked)
        violated = _violation(before, going)
        by_change = any(pod.by_change for pod in going)
        plan.budgets.append(
            PlannedBudget(budget, before, len(covered[key]), len(going), asking, by_change, violated, blocked)
        )


def _violation(before: Standing, leaving: Iterable[PlannedPod]) -> Violation | None:
    """Return how deletions, with the evictions that a budget allows, violate it; evictions alone never do."""
    gone = [pod for pod in leaving if not (pod.blocked or pod.paused_by)]
    if all(pod.asks for pod in gone):
        return None
    return violation(before, [(pod.leaves_at or 0.0, _covered(pod.facts)) for pod in gone])


def _cover(plan: Plan) -> Mapping[NamespacedName, list[CoveredPod]]:
    """Find the pods that each budget covers. Equal labels are one shared object, so each is matched only once."""
    by_namespace: dict[str, list[Budget]] = {}
    for budget in plan.inventory.budgets.values():
        by_namespace.setdefault(budget.key.namespace, []).append(budget)
    covered: dict[NamespacedName, list[CoveredPod]] = {key: [] for key in plan.inventory.budgets}
    known: dict[tuple[str, int], tuple[Budget, ...]] = {}
    for pod in plan.pods:
        namespace = pod.ref.key.namespace
        if namespace not in by_namespace:
            continue
        key = namespace, id(pod.facts.pod.labels)
        if key not in known:
            known[key] = tuple(_choosing(by_namespace[namespace], pod.facts))
        pod.budgets = known[key]
        for budget in pod.budgets:
            covered[budget.key].append(_covered(pod.facts))
    return covered


def _choosing(budgets: Iterable[Budget], facts: PodFacts) -> Iterable[Budget]:
    return (budget for budget in budgets if budget.selector is not None and chooses(budget.selector, facts.pod.labels))


# When they leave


def rehearse(plan: Plan, conditions: Conditions) -> Latch | None:
    """Note at each pod that is due when it leaves; what the eviction API answers, and for whom the pod waits, as far as
    it comes to that. Return the latch of the breaker if it opens because of that; None: it does not.
    """
    api = EvictionApi({key: standing(plan.inventory.budgets[key], pods) for key, pods in _cover(plan).items()})
    rehearsal = Rehearsal([pod for pod in plan.pods if pod.facts.pod.node_name], api, conditions, plan.now)
    courses = rehearsal.run([facts.node for facts in plan.inventory.nodes.values()], plan.what_if)
    for pod in plan.leaving:
        _take(pod, courses.get(pod.ref, Course()))
    return rehearsal.opened


def _needs_rehearsal(plan: Plan) -> bool:
    """Return whether anything but guards may keep a pod that is due, or show what its budgets allow."""
    if plan.ordered or plan.limited:
        return bool(plan.leaving)
    return any(pod.paused_by or (pod.asks and (pod.budgets or pod.server_allows is False)) for pod in plan.leaving)


def _take(pod: PlannedPod, course: Course) -> None:
    pod.goes_at, pod.verdict = course.leaves_at, course.verdict or pod.verdict
    pod.deletes_at = course.leaves_at if pod.blocked else None
    wait = course.wait
    if wait is not None and wait.ref is not None:
        pod.order = PlannedOrder(wait.ref, wait.tier, wait.others, course.leaves_at, wait.until)
