"""The arithmetic of disruption budgets: their status, the effect of deletions, and the eviction API's answers."""

import pytest
from tests.unit.builders import ref

from taint_eviction.core.objects import NamespacedName
from taint_eviction_ctl.planning.disruption_budgets import (
    Budget,
    BudgetStatus,
    CoveredPod,
    EvictionApi,
    EvictionVerdict,
    Standing,
    Violation,
    scaled,
    standing,
    violation,
)

KEY = NamespacedName("shop", "web")
ALLOWED, BLOCKED = EvictionVerdict.ALLOWED, EvictionVerdict.BLOCKED


def covered(ready: bool = True, past_budgets: bool = False) -> CoveredPod:
    """A pod."""
    return CoveredPod(ref(), ready, past_budgets)


READY, UNREADY, ENDING = covered(), covered(ready=False), covered(past_budgets=True)


def stands(healthy: int = 3, desired: int = 2, allowed: int = 1) -> Standing:
    """The standing of a budget of three pods."""
    return Standing(healthy, desired, 3, allowed, counted=False)


@pytest.mark.parametrize(
    ("limits", "pods", "expected"),
    [
        ({}, [READY] * 3, Standing(3, 1, 3, 2, counted=True)),
        ({"min_available": 2}, [READY] * 3, Standing(3, 2, 3, 1, counted=True)),
        ({"min_available": 2}, [READY, UNREADY, ENDING], Standing(1, 2, 3, 0, counted=True)),
        ({"min_available": "50%"}, [READY] * 3, Standing(3, 2, 3, 1, counted=True)),
        ({"min_available": 0}, [READY], Standing(1, 0, 1, 1, counted=True)),
        ({"min_available": 0}, [], Standing(0, 0, 0, 0, counted=True)),
        ({"max_unavailable": 1}, [READY] * 3, Standing(3, 2, 3, 1, counted=True)),
        ({"max_unavailable": 5}, [READY] * 3, Standing(3, 0, 3, 3, counted=True)),
        ({"max_unavailable": "100%"}, [READY], Standing(1, 0, 1, 1, counted=True)),
    ],
)
def test_without_a_status_the_known_pods_are_counted(
    limits: dict[str, int | str], pods: list[CoveredPod], expected: Standing
) -> None:
    """A budget without limits requires one pod, as by default; a budget without pods allows no disruption."""
    budget = Budget(KEY, (), limits.get("min_available"), limits.get("max_unavailable"))
    assert standing(budget, pods) == expected


def test_a_status_counts_as_it_is() -> None:
    """The pods that are known do not change it."""
    status = BudgetStatus(healthy=4, desired=3, expected=5, allowed=1)
    expected = Standing(4, 3, 5, 1, counted=False)
    assert standing(Budget(KEY, (), min_available=1, status=status), [READY]) == expected


@pytest.mark.parametrize(
    ("value", "total", "pods"),
    [(3, 10, 3), ("0%", 10, 0), ("10%", 10, 1), ("11%", 10, 2), ("1%", 1, 1), ("100%", 101, 101)],
)
def test_a_percentage_is_a_share_rounded_up(value: int | str, total: int, pods: int) -> None:
    """A number is not changed."""
    assert scaled(value, total) == pods


def test_the_first_deletion_below_the_desired_number_violates_a_budget() -> None:
    """The violation has its instant and the lowest number of healthy pods, which is never negative."""
    assert violation(stands(), [(5.0, READY)]) is None
    assert violation(stands(), [(5.0, READY), (6.0, READY), (7.0, READY)]) == Violation(6.0, 0)
    assert violation(stands(healthy=2), [(5.0, READY)]) == Violation(5.0, 1)
    assert violation(stands(healthy=1), [(5.0, READY), (6.0, READY)]) == Violation(5.0, 0)


def test_deleting_an_unhealthy_pod_violates_no_budget() -> None:
    """This applies to pods that are not ready, and to pods that budgets do not protect."""
    assert violation(stands(healthy=2), [(5.0, UNREADY), (6.0, ENDING)]) is None


def test_evictions_are_allowed_until_the_budget_is_used_up() -> None:
    """Each eviction uses one disruption."""
    budget = Budget(KEY, ())
    evictions = EvictionApi({KEY: stands(allowed=2)})
    assert [evictions.evict(READY, [budget]) for _ in range(3)] == [ALLOWED, ALLOWED, BLOCKED]


def test_pods_that_no_budget_protects_are_evicted_freely() -> None:
    """Neither their eviction nor their deletion, nor the deletion of an unready pod, uses a disruption."""
    budget = Budget(KEY, ())
    evictions = EvictionApi({KEY: stands(allowed=1)})
    assert evictions.evict(ENDING, [budget, budget]) is ALLOWED
    assert evictions.evict(READY, []) is ALLOWED
    evictions.delete(ENDING, [budget])
    evictions.delete(UNREADY, [budget])
    assert evictions.evict(READY, [budget]) is ALLOWED
    assert evictions.evict(READY, [budget]) is BLOCKED


def test_a_pod_that_two_budgets_cover_cannot_be_evicted() -> None:
    """The number of disruptions that they allow does not matter."""
    budget = Budget(KEY, ())
    assert EvictionApi({KEY: stands(allowed=9)}).evict(READY, [budget, budget]) is EvictionVerdict.SEVERAL_BUDGETS


@pytest.mark.parametrize(
    ("at", "always", "verdict"),
    [
        (stands(healthy=2, desired=2, allowed=0), False, ALLOWED),
        (stands(healthy=3, desired=2, allowed=0), False, ALLOWED),
        (stands(healthy=1, desired=2, allowed=0), False, BLOCKED),
        (stands(healthy=1, desired=2, allowed=0), True, ALLOWED),
        (stands(healthy=1, desired=1, allowed=0), False, ALLOWED),
        (stands(healthy=0, desired=0, allowed=0), False, BLOCKED),
        (stands(healthy=0, desired=0, allowed=0), True, ALLOWED),
    ],
)
def test_an_unhealthy_pod_is_evicted_freely_while_its_budget_is_healthy(
    at: Standing, always: bool, verdict: EvictionVerdict
) -> None:
    """Its budget's policy may also always allow it; otherwise the eviction needs a disruption like any other."""
    assert EvictionApi({KEY: at}).evict(UNREADY, [Budget(KEY, (), always_allow_unhealthy=always)]) is verdict


def test_an_unhealthy_pod_that_is_evicted_freely_uses_no_disruption() -> None:
    """The allowed disruption is left for a healthy pod."""
    budget = Budget(KEY, ())
    evictions = EvictionApi({KEY: stands(allowed=1)})
    assert [evictions.evict(pod, [budget]) for pod in (UNREADY, READY, READY)] == [ALLOWED, ALLOWED, BLOCKED]


def test_a_deletion_uses_a_disruption() -> None:
    """After one deletion, one of two evictions is left."""
    budget = Budget(KEY, ())
    evictions = EvictionApi({KEY: stands(allowed=2)})
    evictions.delete(READY, [budget])
    assert [evictions.evict(READY, [budget]) for _ in range(2)] == [ALLOWED, BLOCKED]
