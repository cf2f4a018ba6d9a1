"""A picture → one HTML page with data, style and script; it loads nothing else."""

import json
from html import escape
from importlib.resources import files
from typing import Any

from taint_eviction.picture.scene import Band, Bar, Mark, Picture, PodRow

_TEMPLATE = "page.html"


def render_page(picture: Picture) -> str:
    """Write the page. Names of pods are data: no text can end the script that it stands in."""
    template = (files(__package__) / _TEMPLATE).read_text("utf-8")
    data = json.dumps(_document(picture), ensure_ascii=False, separators=(",", ":"))
    safe = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    before, _, rest = template.partition("{{title}}")
    middle, _, after = rest.partition("{{data}}")
    return "".join((before, escape(picture.title), middle, safe, after))


def _document(picture: Picture) -> dict[str, Any]:
    return {
        "title": picture.title,
        "about": picture.about,
        "begin": _second(picture.begin),
        "end": _second(picture.end),
        "epoch": picture.epoch,
        "ahead": picture.ahead,
        "bands": {node: [_band(band) for band in bands] for node, bands in picture.bands.items()},
        "holds": [_band(band) for band in picture.holds],
        "podRows": [_row(row) for row in picture.rows],
        "steps": [_mark(mark) for mark in picture.steps],
        "notes": picture.notes,
    }


def _second(at: float) -> float:
    return round(at, 3)


def _band(band: Band) -> dict[str, Any]:
    begin = None if band.begin is None else _second(band.begin)
    end = None if band.end is None else _second(band.end)
    return {"text": band.text, "begin": begin, "end": end, "evicts": band.evicts}


def _row(row: PodRow) -> dict[str, Any]:
    late = row.late_seconds
    fields: dict[str, Any] = {
        "pod": row.pod,
        "node": row.node,
        "outcome": row.outcome,
        "why": row.why,
        "uid": row.uid,
        "owner": row.owner,
        "deadline": None if row.deadline is None else _second(row.deadline),
        "left": None if row.left_at is None else _second(row.left_at),
        "late": None if late is None else _second(late),
        "bars": [_bar(bar) for bar in row.bars],
        "marks": [_mark(mark) for mark in row.marks],
    }
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def _bar(bar: Bar) -> list[Any]:
    return [_second(bar.begin), _second(bar.end), bar.kind.value, bar.text]


def _mark(mark: Mark) -> list[Any]:
    return [_second(mark.at), mark.kind.value, mark.text]
