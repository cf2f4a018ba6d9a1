"""Which budgets are violated if some pods are deleted now, from an inventory of their namespaces."""

from collections import Counter, defaultdict
from collections.abc import Collection

from taint_eviction.core.label_selectors import chooses
from taint_eviction.core.objects import NamespacedName
from taint_eviction_ctl.planning.disruption_budgets import CoveredPod, standing, violation
from taint_eviction_ctl.planning.inventory import Inventory, PodFacts

# How many terms of a namespace's budgets are compared with labels of its pods: a few seconds' worth. Whoever may create
# budgets and pods there could make that hours.
_MOST_COMPARISONS = 20_000_000
# What one budget and pod cost besides the terms, in terms.
_COMPARISON_COST = 5


def leave_out_costly_budgets(inventory: Inventory) -> None:
    """Leave out the budgets of namespaces where it would take too long to find their pods, and note that."""
    costs, pods = Counter[str](), Counter(key.namespace for key in inventory.pods)
    for key, budget in inventory.budgets.items():
        costs[key.namespace] += (len(budget.selector or ()) + _COMPARISON_COST) * pods[key.namespace]
    costly = {namespace for namespace, cost in costs.items() if cost > _MOST_COMPARISONS}
    inventory.budgets = {key: budget for key, budget in inventory.budgets.items() if key.namespace not in costly}
    inventory.notes += [
        f"the budgets of namespace {namespace} are left out: it has too many, or their selectors have too many terms,"
        " to compare them with all pods there"
        for namespace in sorted(costly)
    ]


def violated_budgets(inventory: Inventory, deleted: Collection[NamespacedName]) -> list[NamespacedName]:
    """Return the budgets that would be violated."""
    found = []
    by_namespace: defaultdict[str, list[PodFacts]] = defaultdict(list)
    for facts in inventory.pods.values():
        by_namespace[facts.pod.ref.key.namespace].append(facts)
    for key, budget in sorted(inventory.budgets.items()):
        if budget.selector is None:
            continue
        pods = [covered(each) for each in by_namespace[key.namespace] if chooses(budget.selector, each.pod.labels)]
        gone = [(0.0, pod) for pod in pods if pod.ref.key in deleted]
        if violation(standing(budget, pods), gone) is not None:
            found.append(key)
    return found


def covered(facts: PodFacts) -> CoveredPod:
    """Return the fields of a pod that budgets count."""
    pod = facts.pod
    return CoveredPod(pod.ref, facts.ready, facts.pending or pod.finished or pod.terminating)
