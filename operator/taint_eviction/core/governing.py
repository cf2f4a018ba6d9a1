"""Which of several due taints decides how a pod is evicted: the one whose rule allows the eviction soonest.
Each due taint has a rule of the policy (or none), and that rule counts as a whole. So a rule that pauses one taint does
not protect the pod from another. Callers pass the policy of the pod's node (``EvictionPolicy.on``). ``decision``, not
this module, decides whether and when a pod is due.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from taint_eviction.core.decision import Evict, TaintVerdict
from taint_eviction.core.objects import Pod
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Handling


def governed(decision: Evict, pod: Pod, policy: EvictionPolicy, at: float) -> Evict:
    """Return the decision with the taint that governs at ``at`` as ``deciding``; before the deadline: at the deadline.
    Of taints with equivalent rules, the one with the earliest deadline governs.
    """
    if policy.same_for_all_taints or len(decision.verdicts) == 1:
        return decision
    at = max(at, decision.fire_at)
    due = [verdict for verdict in decision.verdicts if (due_at := verdict.due_at) is not None and due_at <= at]
    deciding = min(due, key=lambda verdict: (handling_of(verdict, pod, policy).haste, verdict.fire_at))
    return replace(decision, deciding=deciding)


def governed_in_turn(decision: Evict, pod: Pod, policy: EvictionPolicy, at: float) -> Iterator[tuple[float, Evict]]:
    """Yield each instant, from ``at`` on, at which another taint begins to govern, with the decision as it is then."""
    next_at: float | None = max(at, decision.fire_at)
    while next_at is not None:
        governing = governed(decision, pod, policy, next_at)
        yield next_at, governing
        if policy.same_for_all_taints or len(decision.verdicts) == 1:
            return
        haste = handling_of(governing.deciding, pod, policy).haste
        hastier = (verdict for verdict in decision.verdicts if handling_of(verdict, pod, policy).haste < haste)
        due = (due_at for verdict in hastier if (due_at := verdict.due_at) is not None)
        next_at = min(due, default=None)


def let_go(decision: Evict, pod: Pod, policy: EvictionPolicy) -> Evict:
    """Return the decision at the first instant when no rule pauses the pod: at its deadline, or when another taint is
    due. If every governing rule pauses the pod, return the decision at its deadline.
    """
    for at, governing in governed_in_turn(decision, pod, policy, decision.fire_at):
        if not handling_of(governing.deciding, pod, policy).paused:
            return replace(governing, fire_at=at)
    return governed(decision, pod, policy, decision.fire_at)


def deletes_at(decision: Evict, pod: Pod, policy: EvictionPolicy) -> float | None:
    """Return when a pod is deleted if budgets refuse it from its deadline on and nothing else holds it; None: never."""
    until = math.inf
    for at, governing in governed_in_turn(decision, pod, policy, decision.fire_at):
        if until <= at:
            break
        handling = handling_of(governing.deciding, pod, policy)
        if handling.mode is EvictionMode.EVICT or handling.paused:
            continue
        patience = 0.0 if handling.mode is EvictionMode.DELETE else handling.evict_timeout_seconds
        until = max(at, decision.fire_at + patience)
    return None if until == math.inf else until


def handling_of(verdict: TaintVerdict, pod: Pod, policy: EvictionPolicy) -> Handling:
    """Return how the policy handles a pod that is evicted because of this taint."""
    return policy.handling(verdict.taint.key, pod.ref.key.namespace, pod.labels)
