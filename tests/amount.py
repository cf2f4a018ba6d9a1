"""How much is tried of what could be tried for hours: by day a part, the same in each run; at night all.

``tools/night`` makes it night, by Hypothesis's profile ``long``, and runs what has more to try then.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")

NIGHT = os.environ.get("HYPOTHESIS_PROFILE") == "long"


def by_day(everything: Sequence[ItemT], each: int) -> Sequence[ItemT]:
    """Return one of ``each`` by day, at night everything."""
    return everything if NIGHT else everything[::each]
