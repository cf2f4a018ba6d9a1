"""A picture in numbers: its tiles, and the number of evicted pods over time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil

from taint_eviction_ctl.picture.scene import Kind, Picture, PodRow
from taint_eviction_ctl.picture.times import span

# The largest number of steps of the curve: more cannot be distinguished on a screen.
CURVE_WIDTH, CURVE_HEIGHT = 2000, 100
_MIN_CURVE = 10
_STAYED = ("stays", "cancelled")


def tiles(picture: Picture) -> list[tuple[str, str]]:
    """Return the number of rows by outcome, and how late evictions were."""
    outcomes = Counter(row.outcome for row in picture.rows)
    evicted = outcomes.pop("leaves", 0) + outcomes.pop("evicted", 0)
    stayed = sum(outcomes.pop(outcome, 0) for outcome in _STAYED)
    found = [("pods", len(picture.rows)), ("leave" if picture.ahead else "evicted", evicted)]
    found.append(("stay" if picture.ahead else "stayed", stayed))
    if not picture.ahead:
        del outcomes["refused"]
        found.append(("refused at least once", sum(map(_refused, picture.rows))))
    late = sorted(late for row in picture.rows if (late := row.late_seconds) is not None)
    lateness = [(f"late, p{percent}", span(percentile(late, percent))) for percent in (50, 99) if late]
    return [(name, f"{count:,}") for name, count in [*found, *sorted(outcomes.items())]] + lateness


def _refused(row: PodRow) -> bool:
    return any(mark.kind is Kind.REFUSED for mark in row.marks)


def percentile(ascending: Sequence[float], percent: int) -> float:
    """Return the smallest value that ``percent`` percent of all values do not exceed (nearest rank)."""
    return ascending[max(0, ceil(len(ascending) * percent / 100) - 1)]


def evictions(picture: Picture, rows: Iterable[PodRow] | None = None) -> list[float]:
    """List when pods of some rows (None: of all) are evicted, as far as the picture reaches; ascending."""
    instants = [_evicted_at(row) for row in (picture.rows if rows is None else rows)]
    return sorted(at for at in instants if at is not None and at <= picture.end)


def _evicted_at(row: PodRow) -> float | None:
    if row.outcome == "leaves":
        return None if row.deadline is None else max(0.0, row.deadline)
    return row.left_at


def curve(picture: Picture) -> str:
    """Write the cumulative evictions as the path of an SVG; "" if they are too few for a curve."""
    instants = evictions(picture)
    if len(instants) < _MIN_CURVE:
        return ""
    # By place: the last count there.
    counts = {_place(picture, at): count for count, at in enumerate(instants, 1)}
    steps = "".join(f"H{x}V{CURVE_HEIGHT * (1 - count / len(instants)):.4g}" for x, count in counts.items())
    return f"M0,{CURVE_HEIGHT}{steps}H{CURVE_WIDTH}"


def strokes(picture: Picture, rows: Iterable[PodRow]) -> str:
    """Write a stroke for each eviction of these rows as the path of an SVG; "" if there is none."""
    places = dict.fromkeys(_place(picture, at) for at in evictions(picture, rows))
    return "".join(f"M{x},0V{CURVE_HEIGHT}" for x in places)


def _place(picture: Picture, at: float) -> int:
    return round(CURVE_WIDTH * (at - picture.begin) / (picture.end - picture.begin))
