"""A record as a picture: the controller's journal, its audit log, or its log, by the API server's clock."""

from taint_eviction.history.happening import Happening
from taint_eviction.history.record import Record
from taint_eviction.picture.overdue import BREAKER, Holds
from taint_eviction.picture.scene import Band, Bar, Kind, Lane, Mark, Picture

_MARKS = {
    "scheduled": Kind.SCHEDULED,
    "cancelled": Kind.CANCELLED,
    "called off": Kind.CANCELLED,
    "evicted": Kind.EVICTED,
    "refused": Kind.REFUSED,
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
    drawing.finish(last)
    picture.bands, picture.holds = drawing.finished_bands(), drawing.holds.bands()
    picture.steps = [Mark(at, Kind.STEP, "the controller was started") for at in drawing.starts]
    picture.lanes = [lane for lane in drawing.lanes.values() if lane.outcome != "stays"]
    return picture


class _Drawing:
    def __init__(self, begin: float) -> None:
        self.lanes: dict[str, Lane] = {}
        self._begin = begin
        self._bands: dict[str, list[Band]] = {}
        self._open: dict[str, dict[str, float | None]] = {}
        self.holds = Holds()
        self.starts: list[float] = []
        # By UID: since when there is such a pod, as far as the record tells.
        self._born: dict[str, float] = {}
        self._running: dict[str, Happening] = {}

    def add(self, happening: Happening) -> None:
        at = happening.at - self._begin
        node = happening.text("node")
        match happening.what:
            case "node":
                self._taints(node, {_name(taint) for taint in happening.objects("taints")}, at)
            case "node gone" | "cleared":
                self._taints(node, set(), at)
            case "taint":
                self._open.setdefault(node, {})[happening.text("taint")] = at
            case "journal" if not happening.fields.get("continues"):
                self.starts.append(at)
            case "pod":
                bound_at = happening.number("bound")
                self._born.setdefault(happening.text("uid"), at if bound_at is None else bound_at - self._begin)
            case "pod gone":
                self._exists(happening.text("uid"), at)
            case what if what in _MARKS:
                self._mark(happening, at)
            case _:
                self._hold(happening, at)

    def _hold(self, happening: Happening, at: float) -> None:
        match happening.what:
            case "paused":
                self.holds.begin(happening.text("scope"), at, happening.text("reason"))
            case "resumed":
                self.holds.end(happening.text("scope"), at)
            case "breaker_opened":
                self.holds.begin(BREAKER, at, happening.text("cause"))
            case "breaker_closed":
                self.holds.end(BREAKER, at)
            case _:
                pass

    def _exists(self, uid: str, until: float) -> None:
        """Draw since when and until when there is such a pod, beneath all else."""
        since, lane = self._born.pop(uid, None), self.lanes.get(uid)
        if since is not None and lane is not None and until > since:
            lane.bars.insert(0, Bar(since, until, Kind.EXISTS, "the pod exists"))

    def _taints(self, node: str, taints: set[str], at: float) -> None:
        first = node not in self._open
        present = self._open.setdefault(node, {})
        for gone in [name for name in present if name not in taints]:
            self._bands.setdefault(node, []).append(Band(gone, present.pop(gone), at, gone.endswith("NoExecute")))
        for name in sorted(taints - present.keys()):
            present[name] = None if first else at

    def _mark(self, happening: Happening, at: float) -> None:
        pod, uid, node = happening.text("pod"), happening.text("uid"), happening.text("node")
        lane = self.lanes.setdefault(uid, Lane(pod, node, "stays", "", uid))
        why = _why(happening)
        kind = Kind.BLOCKED if happening.text("block") else _MARKS[happening.what]
        lane.marks.append(Mark(at, kind, why))
        taint = happening.text("taint")
        if taint and taint not in self._open.get(node, {}):
            self._open.setdefault(node, {})[taint] = at
        match happening.what:
            case "scheduled":
                self._count_down(lane, at)
                due = happening.due
                lane.outcome, lane.why, lane.deadline = "due", why, None if due is None else due - self._begin
                self._running[uid] = happening
            case "cancelled" | "called off" if lane.left_at is None:
                self._count_down(lane, at)
                self.holds.overdue(lane, at)
                lane.outcome, lane.why, lane.deadline = "cancelled", why, None
            case "evicted":
                # To the second only in a log: its lateness is exact.
                late = happening.number("late_seconds") or 0.0
                self._count_down(lane, at - late)
                lane.outcome, lane.why, lane.deadline, lane.left_at = "evicted", why, at - late, at
            case _:
                pass

    def _count_down(self, lane: Lane, end: float) -> None:
        running = self._running.pop(lane.uid, None)
        if running is None:
            return
        since, due = running.at - self._begin, end if lane.deadline is None else lane.deadline
        tolerated = max(since, due - (running.number("held_seconds") or 0.0))
        for begin, until, kind in ((since, tolerated, Kind.COUNTDOWN), (tolerated, due, Kind.HELD)):
            if min(until, end) > begin:
                lane.bars.append(Bar(begin, min(until, end), kind, lane.why))

    def finish(self, end: float) -> None:
        """Draw what was not over at the end, and what came after deadlines."""
        for uid, lane in self.lanes.items():
            self._count_down(lane, end)
            self.holds.overdue(lane, end)
            # Nobody watches for the end of what has been evicted.
            self._exists(uid, end if lane.left_at is None else lane.left_at)

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
