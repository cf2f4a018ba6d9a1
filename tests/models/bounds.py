"""Within which bounds the models are visited: the smallest ones at every change, larger ones at night."""

from collections.abc import Mapping

from tests.models.checking import Bounds

# Each part of a model leaves out what the other part visits, and both are small enough for every change.
SMALLEST: Mapping[str, Mapping[str, Bounds]] = {
    "countdowns": {
        "hand-back": {"TIMERS": 0},
        "timers": {"PEOPLE": 0},
        "two taints": {"PEOPLE": 0, "N": 2, "OWNER": 0},
    },
    "elections": {"elections": {}},
    "control_state": {"control state": {}},
}

LARGER: Mapping[str, Mapping[str, Bounds]] = {
    "countdowns": {
        "hand-back, longer requests": {"TIMERS": 0, "LIFE": 4},
        "timers, longer requests": {"PEOPLE": 0, "LIFE": 4},
        "timers, later watches": {"PEOPLE": 0, "LAG": 2},
    },
    "elections": {"elections, longer": {"RENEW": 3}},
    "control_state": {"control state, more changes": {"DATES": 12}},
}

# The part of a model in which a mistake shows; its first part unless it is named here.
PART_OF_MISTAKE: Mapping[str, str] = {
    "BACK_AT_ONCE": "timers",
    "DUE_ONLY": "two taints",
}


def part_of(model: str, mistake: str) -> str:
    """Return the part of a model in which a mistake shows."""
    return PART_OF_MISTAKE.get(mistake, next(iter(SMALLEST[model])))
