"""Which budgets are violated if some pods are deleted now, from an inventory of their namespaces."""

from collections.abc import Collection

from taint_eviction.core.label_selectors import chooses
from taint_eviction.core.objects import NamespacedName
from taint_eviction_ctl.planning.disruption_budgets import CoveredPod, standing, violation
from taint_eviction_ctl.planning.inventory import Inventory, PodFacts


def violated_budgets(inventory: Inventory, deleted: Collection[NamespacedName]) -> list[NamespacedName]:
    """Return the budgets that would be violated."""
    found = []
    for key, budget in sorted(inventory.budgets.items()):
        if budget.selector is None:
            continue
        facts = [each for each in inventory.pods.values() if each.pod.ref.key.namespace == key.namespace]
        pods = [covered(each) for each in facts if chooses(budget.selector, each.labels)]
        gone = [(0.0, pod) for pod in pods if pod.ref.key in deleted]
        if violation(standing(budget, pods), gone) is not None:
            found.append(key)
    return found


def covered(facts: PodFacts) -> CoveredPod:
    """Return the fields of a pod that budgets count."""
    pod = facts.pod
    return CoveredPod(pod.ref, facts.ready, facts.pending or pod.finished or pod.terminating)
