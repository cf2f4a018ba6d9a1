"""What comes after deadlines: pods that are held back, blocked, refused, or only late; and what held them back.

Scopes are told as the controller tells them: all evictions, those from a node, those in a namespace, the breaker.
"""

from collections.abc import Iterator

from taint_eviction.picture.scene import Band, Bar, Kind, Lane

BREAKER = "the circuit breaker is open"

_TEXTS = {
    Kind.HELD: "held back",
    Kind.BLOCKED: "blocked by a budget, tried again",
    Kind.RETRYING: "refused, tried again",
    Kind.LATE: "past its deadline",
}


class Holds:
    """What holds evictions back, and from when to when."""

    def __init__(self) -> None:
        self._open: dict[str, Band] = {}
        self._ended: list[tuple[str, Band]] = []

    def begin(self, scope: str, at: float, reason: str) -> None:
        """Take in that this begins; where it is told of again, by another process, nothing is new."""
        self._open.setdefault(scope, Band(f"{scope}: {reason}" if reason else scope, at, None, False))

    def end(self, scope: str, at: float) -> None:
        """Take in that this ends."""
        band = self._open.pop(scope, None)
        if band is not None:
            self._ended.append((scope, Band(band.text, band.begin, at, False)))

    def bands(self) -> list[Band]:
        """List all of them, by their beginnings."""
        return sorted((band for _, band in self._all()), key=lambda band: band.begin or 0.0)

    def overdue(self, lane: Lane, end: float) -> None:
        """Draw what came after a lane's deadline, until its pod left; or until ``end``, where it has not."""
        at, stop = lane.deadline, end if lane.left_at is None else lane.left_at
        if at is None:
            return
        last = _last_word(lane)
        for begin, until in self._held(lane, at, stop):
            self._add(lane, at, begin, last)
            self._add(lane, begin, until, Kind.HELD)
            at = until
        self._add(lane, at, stop, last)
        if lane.outcome == "due" and lane.bars and lane.bars[-1].end == stop > (lane.deadline or 0.0):
            lane.outcome = {Kind.HELD: "held", Kind.BLOCKED: "blocked"}.get(lane.bars[-1].kind, "due")

    def _add(self, lane: Lane, begin: float, end: float, kind: Kind) -> None:
        if end > begin:
            lane.bars.append(Bar(begin, end, kind, f"{_TEXTS[kind]}, {end - (lane.deadline or 0.0):.3f} s so far"))

    def _held(self, lane: Lane, at: float, stop: float) -> Iterator[tuple[float, float]]:
        """Go through the spans between these instants in which a lane was held back, overlapping ones as one."""
        spans = [(band.begin or 0.0, stop if band.end is None else band.end) for band in self._about(lane)]
        for begin, end in sorted(spans):
            begin, end = max(begin, at), min(end, stop)  # noqa: PLW2901 - cut to what is still left
            if end > begin:
                yield begin, end
                at = end

    def _about(self, lane: Lane) -> Iterator[Band]:
        namespace = lane.pod.partition("/")[0]
        scopes = {"all evictions", BREAKER, f"evictions from node {lane.node}", f"evictions in namespace {namespace}"}
        return (band for scope, band in self._all() if scope in scopes)

    def _all(self) -> Iterator[tuple[str, Band]]:
        yield from self._ended
        yield from self._open.items()


def _last_word(lane: Lane) -> Kind:
    """Say why a pod that is overdue has not left, by what was last said of it."""
    said = [mark.kind for mark in lane.marks if mark.kind in (Kind.BLOCKED, Kind.REFUSED)]
    if not said:
        return Kind.LATE
    return Kind.BLOCKED if said[-1] is Kind.BLOCKED else Kind.RETRYING
