"""Which of several due taints is effective (W24), and from when on a lost node's pods are deleted, against an oracle.

It applies the criteria of the contract one by one.
"""

import math
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.builders import pod, since

from taint_eviction.core.decision import DecisionPolicy, Evict, SeenTaint, TaintVerdict, decide
from taint_eviction.core.objects import NO_EXECUTE, UNREACHABLE, Pod, Taint, Toleration
from taint_eviction.core.policy import (
    EvictionMode,
    EvictionPolicy,
    Limit,
    PolicyRule,
    deletes_at,
    effective_taint,
    effective_taints,
    first_unpaused,
    handling_of,
)

DELETE, EVICT, EVICT_THEN_DELETE = EvictionMode
KEYS = ("k1", "k2", UNREACHABLE)

# There are few values, so that rules often agree in one of them.
limits = st.builds(Limit, st.sampled_from([None, 1.0, 2.0]), st.just(None), st.sampled_from([None, 1, 2])) | st.builds(
    Limit, st.sampled_from([1.0, 2.0]), st.sampled_from([1, 2, 3]), st.sampled_from([None, 1, 2])
)


def rule_of(key: str) -> st.SearchStrategy[PolicyRule]:
    """Draw a rule for one taint."""
    return st.builds(
        PolicyRule,
        st.just(key),
        st.just((key,)),
        mode=st.none() | st.sampled_from(EvictionMode),
        evict_timeout_seconds=st.sampled_from([None, 5.0, 50.0]),
        limit=limits,
        pause=st.booleans(),
    )


policies = st.builds(
    EvictionPolicy,
    st.sampled_from(EvictionMode),
    st.sampled_from([5.0, 20.0]),
    rules=st.tuples(*map(rule_of, KEYS))
    .flatmap(lambda rules: st.lists(st.sampled_from(rules), unique=True))
    .map(tuple),
    # From when on the node counts as lost, as ``EvictionPolicy.on`` says it.
    lost_at=st.sampled_from([math.inf, math.inf, -math.inf, 2.0, 9.0, 25.0]),
)
starts = st.integers(0, 5).map(float)
tolerations = st.lists(
    st.builds(Toleration, st.sampled_from(KEYS), st.just("Exists"), toleration_seconds=st.integers(0, 20)), max_size=3
)


@st.composite
def decisions(draw: st.DrawFn) -> tuple[Evict, Pod]:
    """Draw a pod that some taints evict at different times, possibly with its owner's hold, and decide about it."""
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    taints = [SeenTaint(Taint(key, NO_EXECUTE), since(draw(starts))) for key in keys]
    which = pod(*draw(tolerations), hold_seconds=draw(st.sampled_from([None, 3.0])))
    decision = decide(which, since(0.0), taints, DecisionPolicy(max_hold_seconds=10.0))
    assume(isinstance(decision, Evict))
    assert isinstance(decision, Evict)
    return decision, which


def decides(decision: Evict, which: Pod, policy: EvictionPolicy, at: float) -> TaintVerdict:
    """Choose among the due taints: paused ones drop out, then mode, patience and limit count, then the earliest."""
    due = [one for one in decision.verdicts if one.fire_at is not None and one.fire_at + one.held_seconds <= at]
    due.sort(key=lambda one: one.fire_at or 0.0)
    handling = {one: handling_of(one, which, policy, at) for one in due}
    left = [one for one in due if not handling[one].paused]
    if not left:
        return due[0]
    mode = next(mode for mode in (DELETE, EVICT_THEN_DELETE, EVICT) if any(handling[one].mode is mode for one in left))
    left = [one for one in left if handling[one].mode is mode]
    if mode is EVICT_THEN_DELETE:
        patience = min(handling[one].evict_timeout_seconds for one in left)
        left = [one for one in left if handling[one].evict_timeout_seconds == patience]
    for size in (rate_of, burst_of, at_once_of):
        largest = max(size(handling[one].rule) for one in left)
        left = [one for one in left if size(handling[one].rule) == largest]
    return left[0]


def rate_of(rule: PolicyRule | None) -> float:
    """Return how many evictions per second a rule allows."""
    return math.inf if rule is None or rule.limit.per_second is None else rule.limit.per_second


def burst_of(rule: PolicyRule | None) -> float:
    """Return how many evictions a rule allows without waiting."""
    return math.inf if rule is None else rule.limit.max_tokens


def at_once_of(rule: PolicyRule | None) -> float:
    """Return how many evictions a rule allows at the same time."""
    return math.inf if rule is None or rule.limit.at_once is None else rule.limit.at_once


def instants(decision: Evict, policy: EvictionPolicy) -> list[float]:
    """Return the instants, from the deadline on, at which another taint may decide, or the node is lost."""
    found = {one.fire_at + one.held_seconds for one in decision.verdicts if one.fire_at is not None} | {policy.lost_at}
    return sorted(at for at in found if decision.fire_at <= at < math.inf)


@given(decisions(), policies)
def test_only_a_pod_that_leaves_a_lost_node_because_of_that_is_deleted_in_spite_of_its_mode(
    made: tuple[Evict, Pod], policy: EvictionPolicy
) -> None:
    """What its rule says otherwise, a pause above all, stays."""
    decision, which = made
    for at in instants(decision, policy):
        for verdict in decision.verdicts:
            found = handling_of(verdict, which, policy, at)
            plain = handling_of(verdict, which, replace(policy, lost_at=math.inf), at)
            lost = verdict.taint.key == UNREACHABLE and at >= policy.lost_at and plain.mode is not DELETE
            assert found == (replace(plain, mode=DELETE, node_lost=True) if lost else plain)


@given(decisions(), policies)
def test_the_due_taint_whose_rule_evicts_soonest_decides(made: tuple[Evict, Pod], policy: EvictionPolicy) -> None:
    """W24: this holds at each instant at which a taint becomes due; the deadline and all verdicts stay the same."""
    decision, which = made
    for at in instants(decision, policy):
        found = effective_taint(decision, which, policy, at).decision
        assert found.deciding is decides(decision, which, policy, at)
        assert (found.fire_at, found.verdicts) == (decision.fire_at, decision.verdicts)
        assert found.due_at == (found.deciding.fire_at or 0.0) + found.held_seconds <= at
    assert effective_taint(decision, which, policy, -1.0) == effective_taint(decision, which, policy, decision.fire_at)


@given(decisions(), policies)
def test_all_later_changes_of_the_deciding_taint_are_foreseen(made: tuple[Evict, Pod], policy: EvictionPolicy) -> None:
    """The forecast lists, from the deadline on, exactly the instants at which another taint starts to decide, or the
    node counts as lost.
    """
    decision, which = made
    expected: list[tuple[float, TaintVerdict, EvictionMode]] = []
    for at in instants(decision, policy):
        deciding = decides(decision, which, policy, at)
        mode = handling_of(deciding, which, policy, at).mode
        if not expected or expected[-1][1] is not deciding or expected[-1][2] is not mode:
            expected.append((at, deciding, mode))
    foreseen = list(effective_taints(decision, which, policy, decision.fire_at))
    assert [(at, found.deciding, handling.mode) for at, found, handling in foreseen] == expected
    assert [each.decision for each in effective_taints(decision, which, policy, 1e9)] == [foreseen[-1].decision]


@given(decisions(), policies)
def test_a_plan_foresees_when_a_pod_may_be_evicted_and_when_it_is_deleted(
    made: tuple[Evict, Pod], policy: EvictionPolicy
) -> None:
    """A pod may be evicted once the deciding rule is not paused. If its budget refuses from then on, the pod is
    deleted when the patience of a deciding rule has passed.
    """
    decision, which = made
    times = instants(decision, policy)
    handlings = [handling_of(decides(decision, which, policy, at), which, policy, at) for at in times]
    free = [at for at, handling in zip(times, handlings, strict=True) if not handling.paused]
    leaves = first_unpaused(decision, which, policy)
    assert leaves.fire_at == (free[0] if free else decision.fire_at)
    assert leaves.deciding is decides(decision, which, policy, leaves.fire_at)
    ends = []
    for at, handling in zip(times, handlings, strict=True):
        if handling.paused or handling.mode is EVICT or at < leaves.fire_at:
            continue
        patience = 0.0 if handling.mode is DELETE else handling.evict_timeout_seconds
        ends.append(max(at, leaves.fire_at + patience) if patience else at)
    assert deletes_at(leaves, which, policy) == min(ends, default=None)
