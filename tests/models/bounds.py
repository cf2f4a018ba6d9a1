"""Within which bounds the models are visited: the smallest ones at every change, larger ones at night."""

from collections.abc import Mapping

from tests.models.checking import Bounds

SMALLEST: Mapping[str, Mapping[str, Bounds]] = {
    "hand_back": {"hand-back": {}},
    "timers": {
        "timers": {"HAND_BACK": 0},
        "two taints": {"N": 2, "OWNER": 0, "HAND_BACK": 0},
        "hand-back and timers": {"OWNER": 0},
    },
    "elections": {"elections": {}},
    "control_state": {"control state": {}},
}

LARGER: Mapping[str, Mapping[str, Bounds]] = {
    "hand_back": {"hand-back, longer requests": {"LIFE": 4}, "hand-back, two late requests": {"LATES": 2, "LIFE": 1}},
    "timers": {
        "timers, longer requests": {"HAND_BACK": 0, "LIFE": 4},
        "timers, two late requests": {"HAND_BACK": 0, "LATES": 2, "LIFE": 1},
        "timers, later watches": {"HAND_BACK": 0, "LAG": 2},
        "hand-back, timers, owner": {"LIFE": 1},
    },
    "elections": {"elections, longer": {"RENEW": 3}},
    "control_state": {"control state, more changes": {"DATES": 10}},
}

# The part of a model in which a mistake shows; its first part unless it is named here.
PART_OF_MISTAKE: Mapping[str, str] = {
    "DUE_ONLY": "two taints",
}


def part_of(model: str, mistake: str) -> str:
    """Return the part of a model in which a mistake shows."""
    return PART_OF_MISTAKE.get(mistake, next(iter(SMALLEST[model])))
