"""Records, read from a journal, an audit log or a log.

Lines that are cut, garbled or about other things are counted, and the rest is used.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby

import orjson

from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction_lab.history.audit_lines import AuditReading, is_audit_line
from taint_eviction_lab.history.happening import Happening, finite_number

# The kinds of lines that a record is made of.
_WORDS = frozenset(
    (
        *("journal", "node", "node gone", "pod", "pod gone", "tainted", "cleared"),
        *("scheduled", "cancelled", "evicted", "refused"),
        *("paused", "resumed", "breaker_opened", "breaker_closed"),
    )
)
_MAX_PROBLEMS = 50


@dataclass(slots=True)
class RunRecord:
    """What a controller observed and did, by time.

    ``skipped`` counts the lines that were not used, by why. ``audit``: only its attempts, and conclusions from them.
    ``stormed``: a log reported many evictions in few lines.
    """

    name: str
    happenings: list[Happening] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    audit: bool = False
    stormed: bool = False

    @property
    def observed(self) -> bool:
        """Return whether nodes and pods were recorded, as in a journal."""
        return any(happening.what in ("node", "pod") for happening in self.happenings)

    @property
    def missing(self) -> str:
        """Return a sentence on what the record lacks, "" if it lacks nothing that matters."""
        found = []
        if self.audit:
            found.append("This was an audit log: pods that stayed and taints that were removed are missing.")
        elif not self.observed:
            found.append(
                "This was a log: pods that never had a deadline and tolerations that did not count are missing."
            )
            if self.stormed:
                found.append("So is what became of the pods of a storm: it has a line per node and second.")
        return " ".join(found)

    @property
    def begins_at(self) -> float:
        """When the record begins, as Unix time; 0 if it is empty."""
        return self.happenings[0].at if self.happenings else 0.0


def read_record(lines: Iterable[bytes], name: str) -> RunRecord:
    """Read a journal, an audit log, or a log as ``run --log-format json`` writes it."""
    record, audit = RunRecord(name), AuditReading()
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        problem = _read_line(raw, record, audit)
        if problem is not None and len(record.problems) < _MAX_PROBLEMS:
            record.problems.append(f"{name}:{number}: {problem}")
    concluded = audit.happenings()
    record.audit = bool(concluded)
    record.happenings += concluded
    record.happenings.sort(key=lambda happening: happening.at)
    if not record.observed and not record.audit:
        record.happenings = _spread(record.happenings)
    return record


def _spread(happenings: list[Happening]) -> list[Happening]:
    """Spread lines of a log with the same whole second over that second, to keep their order."""
    spread: list[Happening] = []
    for at, found in groupby(happenings, key=lambda happening: happening.at):
        same = list(found)
        step = 1.0 / len(same) if at == int(at) else 0.0
        spread += [replace(each, at=at + round(index * step, 3)) for index, each in enumerate(same)]
    return spread


def _read_line(raw: bytes, record: RunRecord, audit: AuditReading) -> str | None:
    """Add a line; return what is wrong with it, None if nothing is."""
    try:
        told = orjson.loads(raw)
    except ValueError:
        why = "not JSON" if raw.endswith(b"\n") else "cut in the middle"
        record.skipped[why] += 1
        return f"the line is {why}"
    if isinstance(told, dict) and is_audit_line(told):
        problem = audit.read(told)
        if problem is not None:
            record.skipped["malformed"] += 1
        return problem
    what = told.get("what") if isinstance(told, dict) else None
    if not isinstance(what, str) or what not in _WORDS:
        record.skipped[f"of the kind {what}" if isinstance(what, str) else "of no kind"] += 1
        record.stormed |= what == "storm"
        return None
    at = finite_number(told.get("t"))
    if at is None and (at := parse_rfc3339(told.get("time"))) is None:
        record.skipped["without a time"] += 1
        return "the line has no time"
    record.happenings.append(Happening(at, what, told))
    return None


def looks_like_record(head: bytes) -> bool:
    """Return whether a file with this beginning is a record (one JSON object per line), not a scenario (YAML)."""
    return head.lstrip().startswith(b"{") and (b'"what"' in head or b'"time"' in head)
