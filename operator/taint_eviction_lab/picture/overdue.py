"""What happens to pods after their deadlines: they wait for a pause to end, are blocked or refused, or are late."""

import math
from collections.abc import Iterator, Mapping, Sequence

from taint_eviction.core.control_state import EVERYTHING, PauseScope
from taint_eviction_ctl.picture.scene import Band, Bar, Kind, PodRow

# A scope beside those of pauses: the circuit breaker's.
BREAKER = "the circuit breaker is open"

_TEXTS = {
    Kind.HELD: "held back",
    Kind.BLOCKED: "blocked by a budget, retrying",
    Kind.RETRYING: "refused, retrying",
    Kind.LATE: "past its deadline",
}


class Holds:
    """The pauses and the open breaker, with begin and end."""

    def __init__(self) -> None:
        self._open: dict[PauseScope | str, Band] = {}
        self._ended: list[tuple[PauseScope | str, Band]] = []
        # By node: its labels, and from when on it has had them.
        self._labels: dict[str, list[tuple[float, Mapping[str, str]]]] = {}

    def label(self, node: str, labels: Mapping[str, str], at: float) -> None:
        """Note the labels that a node has from then on, in the order of time."""
        states = self._labels.setdefault(node, [])
        if not states or states[-1][1] != labels:
            states.append((at, labels))

    def begin(self, scope: PauseScope | str, at: float, reason: str) -> None:
        """Add the beginning of a hold; the same report by another process changes nothing."""
        self._open.setdefault(scope, Band(f"{scope}: {reason}" if reason else str(scope), at, None, False))

    def end(self, scope: PauseScope | str, at: float) -> None:
        """Add the end of a hold."""
        band = self._open.pop(scope, None)
        if band is not None:
            self._ended.append((scope, Band(band.text, band.begin, at, False)))

    def bands(self) -> list[Band]:
        """Return all of them, in the order of their beginnings."""
        return sorted((band for _, band in self._all()), key=lambda band: band.begin or 0.0)

    def overdue(self, row: PodRow, end: float) -> None:
        """Draw what happened after a row's deadline until its pod was evicted, or until ``end``."""
        at, stop = row.deadline, end if row.left_at is None else row.left_at
        if at is None:
            return
        last = _last_word(row)
        for begin, until in self._held(row, at, stop):
            self._add(row, at, begin, last)
            self._add(row, begin, until, Kind.HELD)
            at = until
        self._add(row, at, stop, last)
        if row.outcome == "due" and row.bars and row.bars[-1].end == stop > (row.deadline or 0.0):
            row.outcome = {Kind.HELD: "held", Kind.BLOCKED: "blocked"}.get(row.bars[-1].kind, "due")

    def _add(self, row: PodRow, begin: float, end: float, kind: Kind) -> None:
        if end > begin:
            row.bars.append(Bar(begin, end, kind, f"{_TEXTS[kind]}, {end - (row.deadline or 0.0):.3f} s so far"))

    def _held(self, row: PodRow, at: float, stop: float) -> Iterator[tuple[float, float]]:
        """Yield the spans between these instants in which evictions of the pod were held, without overlaps."""
        spans = [(band.begin or 0.0, stop if band.end is None else band.end) for band in self._about(row)]
        for begin, end in sorted(spans):
            begin, end = max(begin, at), min(end, stop)  # noqa: PLW2901 - cut to what is still left
            if end > begin:
                yield begin, end
                at = end

    def _about(self, row: PodRow) -> Iterator[Band]:
        namespace = row.pod.partition("/")[0]
        scopes = {EVERYTHING, BREAKER, PauseScope("node", row.node), PauseScope("namespace", namespace)}
        for scope, band in self._all():
            if scope in scopes:
                yield band
            elif isinstance(scope, PauseScope) and scope.kind == "selector":
                yield from self._while_selected(scope, band, self._labels.get(row.node, []))

    def _while_selected(
        self, scope: PauseScope, band: Band, states: Sequence[tuple[float, Mapping[str, str]]]
    ) -> Iterator[Band]:
        """Yield the parts of a band in which the scope selects a node with these labels."""
        changes = [*(at for at, _ in states[1:]), math.inf]
        for (at, labels), until in zip(states, changes, strict=True):
            begin, end = max(band.begin or 0.0, at), min(math.inf if band.end is None else band.end, until)
            if begin < end and scope.selects(labels):
                yield Band(band.text, begin, None if end == math.inf else end, False)

    def _all(self) -> Iterator[tuple[PauseScope | str, Band]]:
        yield from self._ended
        yield from self._open.items()


def _last_word(row: PodRow) -> Kind:
    """Return why an overdue pod has not been evicted, by the last attempt."""
    said = [mark.kind for mark in row.marks if mark.kind in (Kind.BLOCKED, Kind.REFUSED)]
    if not said:
        return Kind.LATE
    return Kind.BLOCKED if said[-1] is Kind.BLOCKED else Kind.RETRYING
