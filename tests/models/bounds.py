"""Within which bounds the models are visited: the smallest ones at every change, larger ones at night."""

from collections.abc import Mapping

from tests.models.checking import Bounds

_REQUESTS: Bounds = {"LIFE": 2, "LATES": 1}
_POD: Bounds = {**_REQUESTS, "LAG": 1}

SMALLEST: Mapping[str, Mapping[str, Bounds]] = {
    "hand_back": {"hand-back": _REQUESTS},
    "entry": {"entry": _REQUESTS},
    "timers": {"timers": {**_POD, "N": 1}, "two taints": {**_POD, "N": 2}},
    "deadlines": {"deadlines": {**_POD, "N": 2}},
    "elections": {"elections": {"RENEW": 2, "RELEASES": 1}},
    "control_state": {"control state": {"DATES": 6}},
}

LARGER: Mapping[str, Mapping[str, Bounds]] = {
    "hand_back": {"hand-back, two late requests": {"LIFE": 4, "LATES": 2}},
    "entry": {
        "entry, longer requests": {"LIFE": 4, "LATES": 1},
        "entry, two late requests": {"LIFE": 2, "LATES": 2},
    },
    "timers": {
        "timers, longer requests": {"LIFE": 4, "LATES": 1, "LAG": 1, "N": 2},
        "timers, two late requests": {"LIFE": 2, "LATES": 2, "LAG": 1, "N": 1},
        "timers, later watches": {"LIFE": 2, "LATES": 1, "LAG": 2, "N": 2},
        "two taints, the leader's watch lags": {**_POD, "N": 2, "WATCH": 1},
    },
    "deadlines": {"deadlines, two late requests": {"LIFE": 2, "LATES": 2, "LAG": 1, "N": 2}},
    "elections": {"elections, longer": {"RENEW": 4, "RELEASES": 1}},
    "control_state": {"control state, more changes": {"DATES": 10}},
}

# The part of a model in which a mistake shows; its first part unless it is named here.
PART_OF_MISTAKE: Mapping[str, str] = {
    "DUE_ONLY": "two taints",
}


def part_of(model: str, mistake: str) -> str:
    """Return the part of a model in which a mistake shows."""
    return PART_OF_MISTAKE.get(mistake, next(iter(SMALLEST[model])))
