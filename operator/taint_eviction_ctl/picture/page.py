"""A picture → one HTML page; it loads nothing, and without its script it lacks only the tools: filter, zoom, tips."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib.resources import files

from taint_eviction_ctl.picture.lanes import BARS, by_node, counted, lanes, pods_of_one_name, short_uid
from taint_eviction_ctl.picture.scene import Picture, PodRow
from taint_eviction_ctl.picture.summary import tiles
from taint_eviction_ctl.picture.times import instant

_TEMPLATE = "page.html"
_Cell = str | float | None


def render_page(picture: Picture) -> str:
    """Write the page. Names of pods are text in it, whatever characters they have."""
    template = (files(__package__) / _TEMPLATE).read_text("utf-8")
    parts = {
        "view": _view(picture),
        "title": escape(picture.title),
        "head": "".join(_head(picture)),
        "legend": "".join(_legend(picture)),
        "axis": _axis_data(picture),
        "lanes": "".join(lanes(picture)),
        "table": "".join(_table(picture)),
    }
    # Split rather than replaced one after the other: inserted texts may contain such marks.
    head, *rest = template.split("{{")
    return head + "".join(parts[name] + text for name, _, text in (part.partition("}}") for part in rest))


def _view(picture: Picture) -> str:
    """Return the properties that the script changes to zoom, and the width for names, up to two fifths of the page."""
    nodes = [f"▾ {node} {counted(rows)}" for node, rows in by_node(picture).items()]
    # Names of nodes are bold.
    longest = max([*(len(row.pod) for row in picture.rows), *(1.15 * len(node) for node in nodes)], default=0)
    view = f"--from:{picture.begin:.12g};--span:{picture.end - picture.begin:.12g}"
    return f'style="{view};--label:clamp(12rem,{longest / 2:.1f}rem,40vw)"'


def _head(picture: Picture) -> Iterator[str]:
    yield f"<h1>{escape(picture.title)}</h1>"
    if picture.asked:
        yield f'<p class="asked"><b>Asked:</b> {escape(picture.asked)}</p>'
    if picture.about:
        yield f"<p>{escape(picture.about)}</p>"
    if picture.notes:
        yield f'<ul class="quiet">{"".join(f"<li>{escape(note)}</li>" for note in picture.notes)}</ul>'
    if picture.steps and not picture.ahead:
        listed = "".join(f"<li>{escape(instant(picture, step.at))}: {escape(step.text)}</li>" for step in picture.steps)
        yield f"<details><summary>What was done: {len(picture.steps)}</summary><ol>{listed}</ol></details>"
    if picture.compares:
        return
    counted = "".join(f"<div><dt>{escape(name)}</dt><dd>{count}</dd></div>" for name, count in tiles(picture))
    yield f'<dl class="tiles">{counted}</dl>'


def _legend(picture: Picture) -> Iterator[str]:
    marks = dict.fromkeys(mark.kind for row in picture.rows for mark in row.marks)
    bars = {bar.kind for row in picture.rows for bar in row.bars}
    yield from (f'<span><i class="glyph {kind.value}"></i>{kind.value}</span>' for kind in marks)
    yield from (f'<span><i class="bar {kind.value}"></i>{text}</span>' for kind, text in BARS.items() if kind in bars)


def _axis_data(picture: Picture) -> str:
    epoch = "" if picture.epoch is None else f' data-epoch="{picture.epoch}"'
    begin, end = round(picture.begin, 3), round(picture.end, 3)
    return f'data-begin="{begin}" data-end="{end}" data-ahead="{int(picture.ahead)}"{epoch}'


def _table(picture: Picture) -> Iterator[str]:
    """Write the rows in the order of the lanes, without empty columns."""
    rows = [row for rows in by_node(picture).values() for row in rows]
    columns = [(name, get) for name, get in _columns(picture) if any(get(row) not in (None, "") for row in rows)]
    heads = "".join(f'<th scope="col"><button type="button">{name}</button></th>' for name, _ in columns)
    yield f'<thead><tr id="heads">{heads}</tr></thead><tbody id="rows">'
    for row in rows:
        cells = "".join(_cell(picture, name, get(row)) for name, get in columns)
        yield f'<tr data-outcome="{escape(row.outcome)}">{cells}</tr>'
    yield "</tbody>"


def _columns(picture: Picture) -> Sequence[tuple[str, Callable[[PodRow], _Cell]]]:
    twice = pods_of_one_name(picture)
    return (
        ("Pod", lambda row: f"{row.pod} {short_uid(row.uid)}" if row.pod in twice else row.pod),
        ("Node", lambda row: row.node),
        ("Outcome", lambda row: row.outcome),
        ("Deadline", lambda row: row.deadline),
        ("Evicted", lambda row: row.left_at),
        ("Late, s", lambda row: row.late_seconds),
        ("Owner", lambda row: row.owner),
        ("Why", lambda row: row.why),
    )


def _cell(picture: Picture, name: str, value: _Cell) -> str:
    """Write a cell; on a phone the column's name precedes it, and empty cells are left out."""
    if value is None or value == "":
        return "<td></td>"
    if isinstance(value, str):
        return f'<td data-name="{name}">{escape(value)}</td>'
    text = f"{value:.2f}" if name == "Late, s" else instant(picture, value)
    return f'<td data-name="{name}" class="number" data-value="{round(value, 3)}">{text}</td>'
