"""Plans of random clusters say when each pod leaves, to the second; ``foretelling`` compares any number of them."""

from collections.abc import Sequence

import pytest
from tests.amount import NIGHT
from tests.planning.foretelling import foretell

# A dozen clusters, which together have all that decides when a pod leaves; by day the half of them.
SEEDS = range(4000, 4012) if NIGHT else range(4001, 4012, 2)
_PARTS = len(SEEDS) // 6


@pytest.mark.parametrize("seeds", [SEEDS[part::_PARTS] for part in range(_PARTS)], ids=lambda seeds: f"{[*seeds]}")
def test_plans_equal_what_happens(seeds: Sequence[int]) -> None:
    """With order, ceilings, pools, limits, budgets, lost nodes, machines that move, pauses and the breaker."""
    found = [foretell(seed) for seed in seeds]
    assert [(each.seed, each.differences) for each in found if each.differences] == []
    # A plan of nothing would always be right.
    assert sum(each.left for each in found) > 10
    assert sum(each.stayed for each in found) > 10
