"""A picture → one page of HTML: data, style and script in one file, nothing fetched from anywhere."""

import json
from html import escape
from importlib.resources import files
from typing import Any

from taint_eviction.picture.scene import Band, Bar, Lane, Mark, Picture

_TEMPLATE = "page.html"


def render_page(picture: Picture) -> str:
    """Write the page. Whatever a pod is called, it is data: the text can't end the script it stands in."""
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
        "lanes": [_lane(lane) for lane in picture.lanes],
        "steps": [_mark(mark) for mark in picture.steps],
        "notes": picture.notes,
    }


def _second(at: float) -> float:
    return round(at, 3)


def _band(band: Band) -> dict[str, Any]:
    begin = None if band.begin is None else _second(band.begin)
    end = None if band.end is None else _second(band.end)
    return {"text": band.text, "begin": begin, "end": end, "evicts": band.evicts}


def _lane(lane: Lane) -> dict[str, Any]:
    late = lane.late_seconds
    fields: dict[str, Any] = {
        "pod": lane.pod,
        "node": lane.node,
        "outcome": lane.outcome,
        "why": lane.why,
        "uid": lane.uid,
        "owner": lane.owner,
        "deadline": None if lane.deadline is None else _second(lane.deadline),
        "left": None if lane.left_at is None else _second(lane.left_at),
        "late": None if late is None else _second(late),
        "bars": [_bar(bar) for bar in lane.bars],
        "marks": [_mark(mark) for mark in lane.marks],
    }
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def _bar(bar: Bar) -> list[Any]:
    return [_second(bar.begin), _second(bar.end), bar.kind.value, bar.text]


def _mark(mark: Mark) -> list[Any]:
    return [_second(mark.at), mark.kind.value, mark.text]
