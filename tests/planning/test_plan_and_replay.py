"""Plans of random clusters say when each pod leaves, to the second; ``foretelling`` compares any number of them."""

import pytest
from tests.planning.foretelling import foretell

# A dozen clusters, which together have all that decides when a pod leaves.
SEEDS = range(4000, 4012)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_equals_what_happens(seed: int) -> None:
    """With order, ceilings, pools, limits, budgets, lost nodes, machines that move, pauses and the breaker."""
    assert foretell(seed).differences == ()


def test_pods_leave_and_stay_in_these_clusters() -> None:
    """A plan of nothing would always be right."""
    found = [foretell(seed) for seed in SEEDS]
    assert sum(each.left for each in found) > 20
    assert sum(each.stayed for each in found) > 20
