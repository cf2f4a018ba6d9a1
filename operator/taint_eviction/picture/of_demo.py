"""The demo's story as a picture, from the facts that it told."""

from collections.abc import Iterable

from taint_eviction.picture.scene import Band, Bar, Kind, Lane, Mark, Picture
from taint_eviction.simulation.demo import PODS, TAINT, DemoFact

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
    """Draw the demo: each pod, and each that was created under its name again, in a lane."""
    told = [fact for fact in facts if fact.at >= 0.0]
    end = max([1.0, *(fact.at for fact in told)])
    picture = Picture("Demo: a node is tainted, untainted and tainted again", "", -0.3, end + 0.5)
    seconds = {pod.name: pod.seconds for pod in PODS}
    picture.bands[_NODE] = _bands(told)
    picture.lanes = [Lane(f"demo/{pod.name}", _NODE, "stays", pod.about) for pod in PODS if pod.seconds is None]
    lanes: dict[tuple[str, str], Lane] = {}
    tainted_at = 0.0
    for fact in told:
        if fact.what in ("tainted", "untainted"):
            tainted_at = fact.at if fact.what == "tainted" else tainted_at
            picture.steps.append(Mark(fact.at, Kind.STEP, f"{fact.what} {fact.node}: {fact.text}"))
        elif fact.pod and (kind := _MARKS.get(fact.what)) is not None:
            # What is recreated after the second taint finds its home on the other node.
            node = _OTHER if fact.what == "created" and len(picture.steps) > 2 else _NODE
            lane = lanes.setdefault((fact.pod, fact.uid), Lane(f"demo/{fact.pod}", node, "stays", "", fact.uid))
            lane.marks.append(Mark(fact.at, kind, fact.text))
            _follow(lane, fact, tainted_at + (seconds.get(fact.pod) or 0))
    picture.lanes += lanes.values()
    return picture


def _follow(lane: Lane, fact: DemoFact, due: float) -> None:
    match fact.what:
        case "scheduled":
            lane.outcome, lane.why, lane.deadline = "due", fact.text, max(due, fact.at)
        case "cancelled":
            _count_down(lane, fact.at)
            lane.outcome, lane.why, lane.deadline = "cancelled", fact.text, None
        case "evicted":
            _count_down(lane, fact.at)
            lane.outcome, lane.why, lane.left_at = "evicted", fact.text, fact.at
        case _:
            pass


def _count_down(lane: Lane, end: float) -> None:
    since = next((mark.at for mark in reversed(lane.marks) if mark.kind is Kind.SCHEDULED), end)
    if end > since:
        lane.bars.append(Bar(since, end, Kind.COUNTDOWN, lane.why))


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
