"""The demo as a picture, from its facts."""

from collections.abc import Iterable

from taint_eviction.picture.scene import Band, Bar, Kind, Mark, Picture, PodRow
from taint_eviction_lab.simulation.demo import PODS, TAINT, DemoFact

_MARKS = {
    "scheduled": Kind.SCHEDULED,
    "cancelled": Kind.CANCELLED,
    "evicted": Kind.EVICTED,
    "refused": Kind.REFUSED,
    "created": Kind.CREATED,
    "gone": Kind.GONE,
}
_NODE, _OTHER = "node-a", "node-b"


def picture_of_demo(facts: Iterable[DemoFact]) -> Picture:
    """Draw the demo: a row for each pod, also for those that were recreated under the same name."""
    told = [fact for fact in facts if fact.at >= 0.0]
    end = max([1.0, *(fact.at for fact in told)])
    picture = Picture("Demo: a node is tainted, untainted and tainted again", "", -0.3, end + 0.5)
    seconds = {pod.name: pod.seconds for pod in PODS}
    picture.bands[_NODE] = _bands(told)
    picture.rows = [PodRow(f"demo/{pod.name}", _NODE, "stays", pod.about) for pod in PODS if pod.seconds is None]
    rows: dict[tuple[str, str], PodRow] = {}
    tainted_at = 0.0
    for fact in told:
        if fact.what in ("tainted", "untainted"):
            tainted_at = fact.at if fact.what == "tainted" else tainted_at
            picture.steps.append(Mark(fact.at, Kind.STEP, f"{fact.what} {fact.node}: {fact.text}"))
        elif fact.pod and (kind := _MARKS.get(fact.what)) is not None:
            # A pod that is recreated after the second taint is scheduled on the other node.
            node = _OTHER if fact.what == "created" and len(picture.steps) > 2 else _NODE
            row = rows.setdefault((fact.pod, fact.uid), PodRow(f"demo/{fact.pod}", node, "stays", "", fact.uid))
            row.marks.append(Mark(fact.at, kind, fact.text))
            _follow(row, fact, tainted_at + (seconds.get(fact.pod) or 0))
    picture.rows += rows.values()
    return picture


def _follow(row: PodRow, fact: DemoFact, due: float) -> None:
    match fact.what:
        case "scheduled":
            row.outcome, row.why, row.deadline = "due", fact.text, max(due, fact.at)
        case "cancelled":
            _count_down(row, fact.at)
            row.outcome, row.why, row.deadline = "cancelled", fact.text, None
        case "evicted":
            _count_down(row, fact.at)
            row.outcome, row.why, row.left_at = "evicted", fact.text, fact.at
        case _:
            pass


def _count_down(row: PodRow, end: float) -> None:
    since = next((mark.at for mark in reversed(row.marks) if mark.kind is Kind.SCHEDULED), end)
    if end > since:
        row.bars.append(Bar(since, end, Kind.COUNTDOWN, row.why))


def _bands(facts: Iterable[DemoFact]) -> list[Band]:
    bands: list[Band] = []
    since: float | None = None
    for fact in facts:
        if fact.what == "tainted":
            since = fact.at
        elif fact.what == "untainted":
            bands.append(Band(TAINT, since, fact.at, True))
            since = None
    return bands if since is None else [*bands, Band(TAINT, since, None, True)]
