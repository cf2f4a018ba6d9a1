"""A record as a picture: the controller's journal, its audit log, or its log, by the API server's clock."""

from taint_eviction.core.decision import Ceiling
from taint_eviction.core.sentences import tolerated
from taint_eviction.core.text import many
from taint_eviction_ctl.picture.scene import Band, Bar, Kind, Mark, Picture, PodRow
from taint_eviction_lab.history.happening import Happening
from taint_eviction_lab.history.record import RunRecord
from taint_eviction_lab.picture.overdue import BREAKER, Holds

_MARKS = {
    "scheduled": Kind.SCHEDULED,
    "cancelled": Kind.CANCELLED,
    "called off": Kind.CANCELLED,
    "evicted": Kind.EVICTED,
    "refused": Kind.REFUSED,
}


def picture_of_record(record: RunRecord) -> Picture:
    """Draw a record: a row for each pod (UID) that had a deadline."""
    begin = record.begins_at
    last = max([1.0, *(happening.at - begin for happening in record.happenings)])
    about = f"{record.name}: {many(len(record.happenings), 'line')} used, {record.skipped.total()} skipped"
    picture = Picture("What happened", about, -0.04 * last, 1.06 * last, begin)
    picture.notes = [*([record.missing] if record.missing else []), *record.problems]
    drawing = _Drawing(begin)
    for happening in record.happenings:
        drawing.add(happening)
    drawing.finish(last)
    picture.bands, picture.holds = drawing.finished_bands(), drawing.holds.bands()
    picture.steps = [Mark(at, Kind.STEP, "the controller was started") for at in drawing.starts]
    picture.rows = [row for row in drawing.rows.values() if row.outcome != "stays"]
    return picture


class _Drawing:
    def __init__(self, begin: float) -> None:
        self.rows: dict[str, PodRow] = {}
        self._begin = begin
        self._bands: dict[str, list[Band]] = {}
        self._open: dict[str, dict[str, float | None]] = {}
        self.holds = Holds()
        self.starts: list[float] = []
        # By UID: since when the pod exists, as far as the record says.
        self._born: dict[str, float] = {}
        self._running: dict[str, Happening] = {}

    def add(self, happening: Happening) -> None:
        at = happening.at - self._begin
        node = happening.text("node")
        match happening.what:
            case "node":
                self._taints(node, {_name(taint) for taint in happening.objects("taints")}, at)
                self.holds.label(node, happening.labels, at)
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
            case "paused" if happening.scope is not None:
                self.holds.begin(happening.scope, at, happening.text("reason"))
            case "resumed" if happening.scope is not None:
                self.holds.end(happening.scope, at)
            case "breaker_opened":
                self.holds.begin(BREAKER, at, happening.text("cause"))
            case "breaker_closed":
                self.holds.end(BREAKER, at)
            case _:
                pass

    def _exists(self, uid: str, until: float) -> None:
        """Draw the span in which the pod exists, below everything else."""
        since, row = self._born.pop(uid, None), self.rows.get(uid)
        if since is not None and row is not None and until > since:
            row.bars.insert(0, Bar(since, until, Kind.EXISTS, "the pod exists"))

    def _taints(self, node: str, taints: set[str], at: float) -> None:
        first = node not in self._open
        present = self._open.setdefault(node, {})
        for gone in [name for name in present if name not in taints]:
            self._bands.setdefault(node, []).append(Band(gone, present.pop(gone), at, gone.endswith("NoExecute")))
        for name in sorted(taints - present.keys()):
            present[name] = None if first else at

    def _mark(self, happening: Happening, at: float) -> None:
        pod, uid, node = happening.text("pod"), happening.text("uid"), happening.text("node")
        row = self.rows.setdefault(uid, PodRow(pod, node, "stays", "", uid))
        why = _why(happening)
        kind = Kind.BLOCKED if happening.text("block") else _MARKS[happening.what]
        row.marks.append(Mark(at, kind, why))
        taint = happening.text("taint")
        if taint and taint not in self._open.get(node, {}):
            self._open.setdefault(node, {})[taint] = at
        match happening.what:
            case "scheduled":
                self._count_down(row, at)
                due = happening.due
                row.outcome, row.why, row.deadline = "due", why, None if due is None else due - self._begin
                self._running[uid] = happening
            case "cancelled" | "called off" if row.left_at is None:
                self._count_down(row, at)
                self.holds.overdue(row, at)
                row.outcome, row.why, row.deadline = "cancelled", why, None
            case "evicted":
                # A log's time is a whole second; the lateness is exact.
                late = happening.number("late_seconds") or 0.0
                self._count_down(row, at - late)
                row.outcome, row.why, row.deadline, row.left_at = "evicted", why, at - late, at
            case _:
                pass

    def _count_down(self, row: PodRow, end: float) -> None:
        running = self._running.pop(row.uid, None)
        if running is None:
            return
        since, due = running.at - self._begin, end if row.deadline is None else row.deadline
        tolerated = max(since, due - (running.number("held_seconds") or 0.0))
        for begin, until, kind in ((since, tolerated, Kind.COUNTDOWN), (tolerated, due, Kind.HELD)):
            if min(until, end) > begin:
                row.bars.append(Bar(begin, min(until, end), kind, row.why))

    def finish(self, end: float) -> None:
        """Draw the spans that last to the end, and what happened after deadlines."""
        for uid, row in self.rows.items():
            self._count_down(row, end)
            self.holds.overdue(row, end)
            # The record does not say when an evicted pod was gone.
            self._exists(uid, end if row.left_at is None else row.left_at)

    def finished_bands(self) -> dict[str, list[Band]]:
        """Return all taints; those that are still there last to the end of the picture."""
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
        rule, seconds = happening.text("ceiling_rule"), happening.number("ceiling_seconds")
        ceiling = Ceiling(rule, int(seconds)) if rule and seconds is not None else None
        return tolerated(happening.text("taint"), happening.text("toleration"), ceiling=ceiling)
    return happening.text("reason").replace("_", " ") or happening.what
