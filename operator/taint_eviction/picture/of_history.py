"""A record as a picture: the controller's journal, its audit log, or its log, by the API server's clock."""

from taint_eviction.history.happening import Happening
from taint_eviction.history.record import Record
from taint_eviction.picture.scene import Band, Bar, Kind, Lane, Mark, Picture

_MARKS = {
    "scheduled": Kind.SCHEDULED,
    "cancelled": Kind.CANCELLED,
    "called off": Kind.CANCELLED,
    "evicted": Kind.EVICTED,
    "refused": Kind.REFUSED,
    "pod gone": Kind.GONE,
}


def picture_of_record(record: Record) -> Picture:
    """Draw a record: a lane for each pod that had a deadline, by UID."""
    begin = record.begins_at
    last = max([1.0, *(happening.at - begin for happening in record.happenings)])
    about = f"{record.name}: {len(record.happenings)} lines used, {record.skipped} skipped"
    picture = Picture("What happened", about, -0.04 * last, 1.06 * last, begin)
    picture.notes = [*([record.missing] if record.missing else []), *record.problems]
    drawing = _Drawing(begin)
    for happening in record.happenings:
        drawing.add(happening)
    picture.bands = drawing.finished_bands()
    picture.lanes = [lane for lane in drawing.lanes.values() if lane.outcome != "stays"]
    return picture


class _Drawing:
    def __init__(self, begin: float) -> None:
        self.lanes: dict[str, Lane] = {}
        self._begin = begin
        self._bands: dict[str, list[Band]] = {}
        self._open: dict[str, dict[str, float | None]] = {}

    def add(self, happening: Happening) -> None:
        at = happening.at - self._begin
        node = happening.text("node")
        match happening.what:
            case "node":
                self._taints(node, {_name(taint) for taint in happening.fields.get("taints") or []}, at)
            case "node gone" | "cleared":
                self._taints(node, set(), at)
            case "taint":
                self._open.setdefault(node, {})[happening.text("taint")] = at
            case what if what in _MARKS:
                self._mark(happening, at)
            case _:
                pass

    def _taints(self, node: str, taints: set[str], at: float) -> None:
        first = node not in self._open
        present = self._open.setdefault(node, {})
        for gone in [name for name in present if name not in taints]:
            self._bands.setdefault(node, []).append(Band(gone, present.pop(gone), at, gone.endswith("NoExecute")))
        for name in sorted(taints - present.keys()):
            present[name] = None if first else at

    def _mark(self, happening: Happening, at: float) -> None:
        pod, uid, node = happening.text("pod"), happening.text("uid"), happening.text("node")
        if happening.what == "pod gone" and uid not in self.lanes:
            return
        lane = self.lanes.setdefault(uid, Lane(pod, node, "stays", "", uid))
        why = _why(happening)
        lane.marks.append(Mark(at, _MARKS[happening.what], why))
        taint = happening.text("taint")
        if taint and taint not in self._open.get(node, {}):
            self._open.setdefault(node, {})[taint] = at
        match happening.what:
            case "scheduled":
                self._count_down(lane, at)
                due = happening.due
                lane.outcome, lane.why, lane.deadline = "due", why, None if due is None else due - self._begin
            case "cancelled" | "called off" if lane.left_at is None:
                self._count_down(lane, at)
                lane.outcome, lane.why, lane.deadline = "cancelled", why, None
            case "evicted":
                self._evicted(lane, happening, at, why)
            case _:
                pass

    def _evicted(self, lane: Lane, happening: Happening, at: float, why: str) -> None:
        late = happening.number("late_seconds") or 0.0
        # To the second only in a log: its lateness is exact.
        lane.deadline = at - late
        self._count_down(lane, lane.deadline)
        retried = any(mark.kind is Kind.REFUSED for mark in lane.marks)
        if late > 0:
            lane.bars.append(Bar(lane.deadline, at, Kind.RETRYING if retried else Kind.LATE, f"{late:.3f} s late"))
        lane.outcome, lane.why, lane.left_at = "evicted", why, at

    def _count_down(self, lane: Lane, end: float) -> None:
        since = [mark.at for mark in lane.marks if mark.kind is Kind.SCHEDULED and mark.at < end]
        if since and lane.outcome == "due":
            lane.bars.append(Bar(since[-1], end, Kind.COUNTDOWN, lane.why))

    def finished_bands(self) -> dict[str, list[Band]]:
        """Close what is still open, at the end of the picture."""
        for node, taints in self._open.items():
            left = [Band(name, since, None, name.endswith("NoExecute")) for name, since in taints.items()]
            if left:
                self._bands.setdefault(node, []).extend(left)
        return self._bands


def _name(taint: dict[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _why(happening: Happening) -> str:
    if happening.what == "refused":
        return f"refused: {happening.text('error')}"
    if happening.text("taint"):
        toleration = happening.text("toleration")
        return f"{happening.text('taint')} " + (f"is tolerated by [{toleration}]" if toleration else "is not tolerated")
    return happening.text("reason").replace("_", " ") or happening.what
