"""The outcomes that the replicas remember, as a picture by the API server's clock: one row for each pod."""

from collections.abc import Iterable, Mapping
from typing import Any

from taint_eviction.core.sentences import tolerated
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.reporting.status_document import ceiling_in
from taint_eviction_ctl.picture.scene import Bar, Kind, Mark, Picture, PodRow

_MARKS = {
    "evicted": Kind.EVICTED,
    "deleted": Kind.GONE,
    "gone": Kind.GONE,
    "refused": Kind.REFUSED,
    "blocked": Kind.BLOCKED,
}
_OVERDUE = {"refused": Kind.RETRYING, "blocked": Kind.BLOCKED}
_MIN_SECONDS = 1.0


def picture_of_outcomes(outcomes: Iterable[Mapping[str, Any]], asked: str) -> Picture:
    """Draw outcomes as ``/history`` answers them; raise KeyError, TypeError or ValueError if they are malformed."""
    oldest_first = sorted(outcomes, key=lambda each: str(each["time"]))
    begin = min((_epoch(each["since"]) for each in oldest_first), default=0.0)
    last = max([_MIN_SECONDS, *(_epoch(each["time"]) - begin for each in oldest_first)])
    about = "" if oldest_first else "No replica that answered remembers such an outcome."
    picture = Picture("What became of pods", about, -0.04 * last, 1.06 * last, begin if oldest_first else None)
    picture.asked = asked
    picture.rows = [_row(each, begin) for each in oldest_first]
    return picture


def _row(each: Mapping[str, Any], begin: float) -> PodRow:
    at, since, deadline = (_epoch(each[name]) - begin for name in ("time", "since", "deadline"))
    how = tolerated(each["taint"], each["toleration"], each["byDefault"], ceiling_in(each))
    outcome, why = str(each["outcome"]), f"taint {how}"
    said = each["answer"] if outcome in _OVERDUE and each["answer"] else why
    dry_run = " (dry run)" if each["dryRun"] else ""
    row = PodRow(f"{each['namespace']}/{each['name']}", str(each["node"]), outcome + dry_run, why, str(each["uid"]))
    row.owner, row.deadline = str(each["owner"] or ""), deadline
    if outcome == "evicted" and not dry_run:
        row.left_at = at
    for start, end, kind in (
        (since, min(at, deadline - each["heldSeconds"]), Kind.COUNTDOWN),
        (max(since, deadline - each["heldSeconds"]), min(at, deadline), Kind.HELD),
        (deadline, at, _OVERDUE.get(outcome, Kind.LATE)),
    ):
        if end > start:
            row.bars.append(Bar(start, end, kind, why))
    row.marks.append(Mark(at, _MARKS[outcome], f"{row.outcome}: {said}"))
    return row


def _epoch(text: object) -> float:
    epoch = parse_rfc3339(text)
    if epoch is None:
        raise ValueError(f"{text!r} is not a time")
    return epoch
