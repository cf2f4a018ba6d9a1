"""A record of what happened, as read from a journal, an audit log or a log; and how its lines are read.

Lines that are cut, garbled or of other things are counted with their place, and the rest is used.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby

import orjson

from taint_eviction.adapters.kubernetes_times import parse_rfc3339
from taint_eviction.history.audit_lines import AuditReading, is_audit_line
from taint_eviction.history.happening import Happening, finite_number

# The controller's words about itself, nodes and pods that a record is made of, and about what held it back.
_WORDS = frozenset(
    (
        *("journal", "node", "node gone", "pod", "pod gone", "tainted", "cleared"),
        *("scheduled", "cancelled", "evicted", "refused"),
        *("paused", "resumed", "breaker_opened", "breaker_closed"),
    )
)
_MOST_PROBLEMS = 50


@dataclass(slots=True)
class Record:
    """Happenings in the order of time. ``audit``: of attempts alone, and what can be concluded from them."""

    name: str
    happenings: list[Happening] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: int = 0
    audit: bool = False

    @property
    def observed(self) -> bool:
        """Tell whether nodes and pods themselves were recorded."""
        return any(happening.what in ("node", "pod") for happening in self.happenings)

    @property
    def missing(self) -> str:
        """Say what it does not tell of, "" where it tells of all that matters."""
        found = []
        if self.audit:
            found.append("This was an audit log: pods that stayed and taints that were removed are missing.")
        elif not self.observed:
            found.append(
                "This was a log: pods that never had a deadline and tolerations that did not count are missing."
            )
        return " ".join(found)

    @property
    def begins_at(self) -> float:
        """When it begins, in seconds since the epoch; 0 where it is empty."""
        return self.happenings[0].at if self.happenings else 0.0


def read_record(lines: Iterable[bytes], name: str) -> Record:
    """Read a journal, an audit log, or a log as ``run --log-format json`` writes it."""
    record, audit = Record(name), AuditReading()
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        problem = _read_line(raw, record, audit)
        if problem is not None and len(record.problems) < _MOST_PROBLEMS:
            record.problems.append(f"{name}:{number}: {problem}")
    concluded = audit.happenings()
    record.audit = bool(concluded)
    record.happenings += concluded
    record.happenings.sort(key=lambda happening: happening.at)
    if not record.observed and not record.audit:
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


def _read_line(raw: bytes, record: Record, audit: AuditReading) -> str | None:
    """Take in a line; return what is wrong with it, None if nothing is."""
    try:
        told = orjson.loads(raw)
    except ValueError:
        record.skipped += 1
        return "the line is cut in the middle" if not raw.endswith(b"\n") else "the line is no JSON"
    if isinstance(told, dict) and is_audit_line(told):
        problem = audit.read(told)
        record.skipped += problem is not None
        return problem
    what = told.get("what") if isinstance(told, dict) else None
    if not isinstance(what, str) or what not in _WORDS:
        record.skipped += 1
        return None
    at = finite_number(told.get("t"))
    if at is None and (at := parse_rfc3339(told.get("time"))) is None:
        record.skipped += 1
        return "the line does not tell its time"
    record.happenings.append(Happening(at, what, told))
    return None


def looks_like_record(head: bytes) -> bool:
    """Tell from its beginning whether a file is a record: a scenario is YAML, a record JSON a line."""
    return head.lstrip().startswith(b"{") and (b'"what"' in head or b'"time"' in head)
