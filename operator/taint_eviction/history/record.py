"""A record of what happened, as read from a journal or a log; and how its lines are read.

Lines that are cut, garbled or of other things are counted with their place, and the rest is used.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from taint_eviction.adapters.kubernetes_times import parse_rfc3339

# The controller's words about pods and nodes that a record is made of.
_WORDS = frozenset(
    ("node", "node gone", "pod", "pod gone", "tainted", "cleared", "scheduled", "cancelled", "evicted", "refused")
)
_MOST_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Happening:
    """One line: ``at`` in seconds since the epoch, ``what`` as the journal has it, and its fields."""

    at: float
    what: str
    fields: dict[str, Any]

    def text(self, name: str) -> str:
        """Return a field as text, "" where it is absent."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float | None:
        """Return a field as a number, None where it is none."""
        value = self.fields.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def due(self) -> float | None:
        """The deadline that it tells of, in seconds since the epoch."""
        return self.number("due") or parse_rfc3339(self.fields.get("deadline"))


@dataclass(slots=True)
class Record:
    """Happenings in the order of time. ``observed``: it has nodes and pods themselves, as only a journal has."""

    name: str
    happenings: list[Happening] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: int = 0

    @property
    def observed(self) -> bool:
        """Tell whether nodes and pods themselves were recorded."""
        return any(happening.what in ("node", "pod") for happening in self.happenings)

    @property
    def begins_at(self) -> float:
        """When it begins, in seconds since the epoch; 0 where it is empty."""
        return self.happenings[0].at if self.happenings else 0.0


def read_record(lines: Iterable[bytes], name: str) -> Record:
    """Read a journal, or a log as ``run --log-format json`` writes it."""
    record = Record(name)
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        problem = _read_line(raw, record)
        if problem is not None and len(record.problems) < _MOST_PROBLEMS:
            record.problems.append(f"{name}:{number}: {problem}")
    record.happenings.sort(key=lambda happening: happening.at)
    if not record.observed:
        record.happenings = _spread(record.happenings)
    return record


def _spread(happenings: list[Happening]) -> list[Happening]:
    """Spread what a log dates to the same whole second over that second, so that its order is not lost."""
    spread: list[Happening] = []
    for at, found in groupby(happenings, key=lambda happening: happening.at):
        same = list(found)
        step = 1.0 / len(same) if at == int(at) else 0.0
        spread += [replace(each, at=at + round(index * step, 3)) for index, each in enumerate(same)]
    return spread


def _read_line(raw: bytes, record: Record) -> str | None:
    """Take in a line; return what is wrong with it, None if nothing is."""
    try:
        told = json.loads(raw)
    except ValueError:
        record.skipped += 1
        return "the line is cut in the middle" if not raw.endswith(b"\n") else "the line is no JSON"
    if not isinstance(told, dict) or told.get("what") not in _WORDS:
        record.skipped += not (isinstance(told, dict) and told.get("what") == "journal")
        return None
    at = told.get("t") if isinstance(told.get("t"), int | float) else parse_rfc3339(told.get("time"))
    if at is None:
        record.skipped += 1
        return "the line does not tell its time"
    record.happenings.append(Happening(float(at), told["what"], told))
    return None


def looks_like_record(head: bytes) -> bool:
    """Tell from its beginning whether a file is a record: a scenario is YAML, a record JSON a line."""
    return head.lstrip().startswith(b"{") and (b'"what"' in head or b'"time"' in head)
