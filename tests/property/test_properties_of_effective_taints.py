"""Which of several due taints is effective (W24), against an oracle that applies the contract's criteria one by one."""

import math

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.property.strategies import KEYS
from tests.unit.builders import pod, since

from taint_eviction.core.decision import DecisionPolicy, Evict, SeenTaint, TaintVerdict, decide
from taint_eviction.core.objects import NO_EXECUTE, Pod, Taint, Toleration
from taint_eviction.core.policy import (
    EvictionMode,
    EvictionPolicy,
    Limit,
    PolicyRule,
    by_effective_taint,
    deletes_at,
    effective_taints,
    first_unpaused,
    handling_of,
)

DELETE, EVICT, EVICT_THEN_DELETE = EvictionMode

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
    handling = {one: handling_of(one, which, policy) for one in due}
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


def instants(decision: Evict) -> list[float]:
    """Return the instants, from the deadline on, at which another taint may decide."""
    found = {one.fire_at + one.held_seconds for one in decision.verdicts if one.fire_at is not None}
    return sorted(at for at in found if at >= decision.fire_at)


@given(decisions(), policies)
def test_the_due_taint_whose_rule_evicts_soonest_decides(made: tuple[Evict, Pod], policy: EvictionPolicy) -> None:
    """W24: this holds at each instant at which a taint becomes due; the deadline and all verdicts stay the same."""
    decision, which = made
    for at in instants(decision):
        found = by_effective_taint(decision, which, policy, at)
        assert found.deciding is decides(decision, which, policy, at)
        assert (found.fire_at, found.verdicts) == (decision.fire_at, decision.verdicts)
        assert found.due_at == (found.deciding.fire_at or 0.0) + found.held_seconds <= at
    assert by_effective_taint(decision, which, policy, -1.0) == by_effective_taint(
        decision, which, policy, decision.fire_at
    )


@given(decisions(), policies)
def test_all_later_changes_of_the_deciding_taint_are_foreseen(made: tuple[Evict, Pod], policy: EvictionPolicy) -> None:
    """The forecast lists, from the deadline on, exactly the instants at which another taint starts to decide."""
    decision, which = made
    expected: list[tuple[float, TaintVerdict]] = []
    for at in instants(decision):
        deciding = decides(decision, which, policy, at)
        if not expected or expected[-1][1] is not deciding:
            expected.append((at, deciding))
    slow_start = list(effective_taints(decision, which, policy, decision.fire_at))
    assert [(at, found.deciding) for at, found in slow_start] == expected
    assert [found for _, found in effective_taints(decision, which, policy, 1e9)] == [slow_start[-1][1]]


@given(decisions(), policies)
def test_a_plan_foresees_when_a_pod_may_be_evicted_and_when_it_is_deleted(
    made: tuple[Evict, Pod], policy: EvictionPolicy
) -> None:
    """A pod may be evicted once the deciding rule is not paused. If its budget refuses from then on, the pod is
    deleted when the patience of a deciding rule has passed.
    """
    decision, which = made
    times = instants(decision)
    handlings = [handling_of(decides(decision, which, policy, at), which, policy) for at in times]
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
