"""The lanes of a picture as HTML: the axis, the curve, what held evictions, and each node with its pods.

Places are custom properties, in seconds: the page's style turns them into percentages, so that a script can zoom by
changing two of them, and the picture is complete without any script.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from taint_eviction_ctl.picture.scene import Band, Kind, Picture, PodRow
from taint_eviction_ctl.picture.summary import CURVE_HEIGHT, CURVE_WIDTH, curve, evictions, strokes
from taint_eviction_ctl.picture.times import clock, instant, span, ticks

# More pods than these open as a summary: their nodes are closed.
MAX_OPEN = 200
BARS: Mapping[Kind, str] = {
    Kind.EXISTS: "the pod exists",
    Kind.COUNTDOWN: "tolerance running",
    Kind.HELD: "held back",
    Kind.LATE: "past its deadline",
    Kind.BLOCKED: "blocked by a budget, tried again",
    Kind.RETRYING: "refused, tried again",
}
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NEAR_EDGE = 0.12
_LEFT = ("evicted", "leaves", "deleted", "gone")


def short_uid(uid: str) -> str:
    """Cut a UID as the API server makes them to its first 8 characters; other UIDs differ at their ends."""
    return uid[:8] if _UUID.fullmatch(uid) else uid


def by_node(picture: Picture) -> dict[str, list[PodRow]]:
    """Group the rows; nodes with taints come first, in their order."""
    nodes: dict[str, list[PodRow]] = {name: [] for name in picture.bands}
    for row in picture.rows:
        nodes.setdefault(row.node, []).append(row)
    return nodes


def lanes(picture: Picture) -> Iterator[str]:
    """Write all lanes, from top to bottom."""
    yield _axis(picture)
    if not picture.compares and (path := curve(picture)):
        yield _curve(picture, path)
    if picture.holds:
        yield f'<div class="row group">{_group(picture, "held back", "", picture.holds, "hold")}</div>'
    twice = pods_of_one_name(picture)
    is_open = " open" if len(picture.rows) <= MAX_OPEN else ""
    for node, rows in by_node(picture).items():
        bands = picture.bands.get(node, [])
        yield f'<details class="node"{is_open}><summary class="row group">'
        when = _drawing(picture, "when", f'<path d="{path}"/>') if (path := strokes(picture, rows)) else ""
        yield f"{_group(picture, node or 'no node', counted(rows), bands, inner=when)}</summary>"
        shades = "".join(f'<span class="shade"{_place(picture, band)}></span>' for band in bands if band.evicts)
        yield from (_pod_row(picture, row, shades, row.pod in twice) for row in rows)
        yield "</details>"


def pods_of_one_name(picture: Picture) -> set[str]:
    """Return the names that several pods had, one after the other: only UIDs distinguish these pods."""
    seen: set[str] = set()
    twice: set[str] = set()
    for row in picture.rows:
        (twice if row.pod in seen and row.uid else seen).add(row.pod)
    return twice


def _at(at: float, until: float | None = None, line: int = 0) -> str:
    end = "" if until is None else f";--u:{round(until, 3):.12g}"
    return f' style="--t:{round(at, 3):.12g}{end}{f";--n:{line}" if line else ""}"'


def _place(picture: Picture, band: Band, line: int = 0) -> str:
    begin = picture.begin if band.begin is None else band.begin
    return _at(begin, 2 * picture.end - picture.begin if band.end is None else band.end, line)


def _span(kind: str, place: str, tip: str, inner: str = "") -> str:
    return f'<span class="{kind}"{place} data-tip="{escape(tip)}">{inner}</span>'


def _axis(picture: Picture) -> str:
    about = "seconds" if picture.epoch is None else f"from {clock(picture, 0.0)}"
    # A label near the right edge stands before its mark.
    near = picture.end - _NEAR_EDGE * (picture.end - picture.begin)
    marks = "".join(
        f'<span class="tick{" end" if at > near else ""}"{_at(at)}>{name}{wall and f"<small>{wall}</small>"}</span>'
        for at, name, wall in ticks(picture)
    )
    steps = "".join(_span("step", _at(step.at), f"{instant(picture, step.at)}\n{step.text}") for step in picture.steps)
    return (
        f'<div class="row axis"><div class="quiet">{about}</div>'
        f'<div class="track"><div id="ticks">{marks}</div>{steps}</div></div>'
    )


def _curve(picture: Picture, path: str) -> str:
    what = "evictions ahead" if picture.ahead else "evictions so far"
    paths = f'<path d="{path}V{CURVE_HEIGHT}Z" class="area"/><path d="{path}"/>'
    return (
        f'<div class="row sum"><div>{what} <span class="quiet">0 to {len(evictions(picture)):,}</span></div>'
        f'<div class="track">{_drawing(picture, "curve", paths)}</div></div>'
    )


def _drawing(picture: Picture, kind: str, paths: str) -> str:
    """Write paths from the picture's beginning to its end."""
    box = f'viewBox="0 0 {CURVE_WIDTH} {CURVE_HEIGHT}" preserveAspectRatio="none" aria-hidden="true"'
    return f'<span class="{kind}"{_at(picture.begin, picture.end)}><svg {box}>{paths}</svg></span>'


def _group(picture: Picture, name: str, count: str, bands: Sequence[Band], kind: str = "", inner: str = "") -> str:
    lines = list(dict.fromkeys(band.text for band in bands))
    drawn = []
    for band in bands:
        times = "from before" if band.begin is None else f"from {instant(picture, band.begin)}"
        times += "" if band.end is None else f", to {instant(picture, band.end)}"
        place = _place(picture, band, lines.index(band.text))
        text = f"<span>{escape(band.text)}</span>"
        drawn.append(
            _span(f"band {kind or ('evicts' if band.evicts else '')}".rstrip(), place, f"{band.text}\n{times}", text)
        )
    said = f' <span class="quiet">{count}</span>' if count else ""
    return (
        f'<div title="{escape(name)}">{escape(name)}{said}</div>'
        f'<div class="track" style="--lines:{max(1, len(lines))}">{"".join(drawn)}{inner}</div>'
    )


def counted(rows: Sequence[PodRow]) -> str:
    """Return how many of a node's pods leave, and how many are held; "" if it has none."""
    if not rows:
        return ""
    leaving = sum(row.outcome in _LEFT or row.left_at is not None for row in rows)
    counts = {outcome: sum(row.outcome == outcome for row in rows) for outcome in ("blocked", "held")}
    others = "".join(f", {count} {outcome}" for outcome, count in counts.items() if count)
    return f"{leaving} of {len(rows)} leave{others}"


def _pod_row(picture: Picture, row: PodRow, shades: str, with_uid: bool) -> str:
    drawn = [shades]
    for bar in row.bars:
        tip = f"{BARS[bar.kind]}, {span(bar.end - bar.begin)}\n{bar.text}"
        drawn.append(_span(f"bar {bar.kind.value}", _at(bar.begin, bar.end), tip))
    for mark in row.marks:
        tip = f"{mark.kind.value} {instant(picture, mark.at)}\n{mark.text}"
        drawn.append(_span(f"mark {mark.kind.value}", _at(mark.at), tip))
    if picture.ahead and row.outcome == "stays":
        drawn.append('<span class="later">stays</span>')
    if row.deadline is not None and row.deadline > picture.end:
        drawn.append(f'<span class="later">in {span(row.deadline)} ▸</span>')
    uid = f' <span class="quiet">{escape(short_uid(row.uid))}</span>' if with_uid else ""
    return (
        f'<div class="row podRow" role="img" tabindex="-1" aria-label="{escape(_described(picture, row))}">'
        f'<div>{escape(row.pod)}{uid}</div><div class="track">{"".join(drawn)}</div></div>'
    )


def _described(picture: Picture, row: PodRow) -> str:
    owner = f", owned by {row.owner}" if row.owner else ""
    lines = [f"{row.pod} uid {short_uid(row.uid)}" if row.uid else row.pod, f"on {row.node or 'no node'}{owner}"]
    lines.append(f"{row.outcome}: {row.why or 'nothing happened to it'}")
    if row.deadline is not None:
        lines.append(f"deadline {instant(picture, row.deadline)}")
    if row.left_at is not None:
        late = f", {row.late_seconds:.2f} s late" if row.late_seconds is not None else ""
        lines.append(f"evicted {instant(picture, row.left_at)}{late}")
    return "; ".join(lines)
