"""Makes some generated documents dry runs, and judges what they report: an eviction once per pod and deadline.

Part of ``generator``, with a random generator of its own.
"""

import random
from collections import Counter
from typing import Any

from tests.simulation.exploring.seen import BrokenRule

from taint_eviction_lab.simulation.timeline import Timeline, What

_SHARE = 0.12
# With this one, the seeds that show older mistakes in the tests are no dry runs.
_SALT = "dry runs 113"


def add_dry_run(document: dict[str, Any], seed: int) -> None:
    """Let a document be a dry run, in a share of the seeds."""
    if random.Random(f"{_SALT} {seed}").random() < _SHARE:
        document["settings"]["dryRun"] = True


def reported_again(timeline: Timeline) -> list[BrokenRule]:
    """Return the evictions that were reported, for one deadline, more often than there were processes."""
    started, due = 0, dict[str, float | None]()
    reports = Counter[tuple[str, float | None]]()
    found: dict[str, BrokenRule] = {}
    for entry in timeline:
        match entry.what:
            case What.STARTED:
                started += 1
            case What.SCHEDULED:
                due[entry.uid] = entry.due_at
            case What.SAID_EVICTED:
                deadline = entry.uid, due.get(entry.uid)
                reports[deadline] += 1
                if reports[deadline] > started:
                    text = f"{entry.uid} was evicted {reports[deadline]} times, by {started} processes"
                    found.setdefault(entry.uid, BrokenRule("reported again", entry.at, text))
    return [*found.values()]
