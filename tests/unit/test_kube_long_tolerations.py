"""Long lists of tolerations are kept once."""

import random
from string import ascii_letters
from typing import Any

from taint_eviction.kube.taints_and_tolerations import read_tolerations


def random_list(seed: int) -> list[dict[str, Any]]:
    """Return 2,000 tolerations that no compression makes smaller."""
    rng = random.Random(seed)
    keys = ["".join(rng.choices(ascii_letters, k=60)) for _ in range(2000)]
    return [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in keys]


def test_equal_long_lists_are_kept_once_for_as_long_as_somebody_has_them() -> None:
    """Two lists of one node's pods are read at the same time."""
    one, _ = read_tolerations(random_list(1))
    assert read_tolerations(random_list(1))[0] is one
    assert read_tolerations(random_list(2))[0] != one
