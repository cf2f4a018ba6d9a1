"""Reports the comparisons of a dry run to log, journal and metrics, and reads them from the journal after a restart.
Only the journal keeps them: it also has the evictions of the dry run that are still open, and it outlives the process.
This module does not compare evictions (``shadow``).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from taint_eviction.core.events import pod_named
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.text import JsonObject
from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction.runtime.ports import Clock, Gate
from taint_eviction.shadow.comparison import Comparison, ComparisonResult, DifferenceReason
from taint_eviction.shadow.shadow import Shadow
from taint_eviction.shadow.totals import ComparisonTotals

logger = logging.getLogger(__name__)

# Of how many pods a client may ask at once whether they were followed.
MAX_NAMES = 100

_LOOK_SECONDS = 1.0
# Other lines of the journal need not be decoded.
_WORDS = (b'"compared', b'"evicted"', b'"journal"')
_MAX_OPEN = 20_000
# In seconds: a later time or a longer duration cannot be written.
_MAX_NUMBER = 1e11


class ComparisonReporter:
    """Logs and counts each comparison, and writes it into the journal. ``counted`` is called with the result's name.
    Every replica of a dry run that stands for election compares, so that a new leader continues the comparison; only
    the leader counts, and a standby logs at DEBUG.
    """

    def __init__(self, gate: Gate, counted: Callable[[str], None], write: Callable[[JsonObject, Moment], None]) -> None:
        self._gate = gate
        self._counted = counted
        self._write = write

    def compared(self, comparison: Comparison, now: Moment) -> None:
        """Report a comparison."""
        leads = self._gate.may_act()
        if leads:
            self._counted(comparison.result.value)
        line = comparison_line(comparison)
        self._write(line, now)
        level = logging.INFO if leads and comparison.reason is not None else logging.DEBUG
        said = f"compared with the built-in controller: pod {comparison.ref}: {in_words(comparison)}"
        logger.log(level, "%s", said, extra=line)


async def scan(shadow: Shadow, clock: Clock) -> None:
    """Let the shadow check open evictions every second, until cancelled."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        shadow.advance(clock.now())


def in_words(comparison: Comparison) -> str:
    """Return the result of a comparison in words, and why the two controllers differ."""
    text, seconds = comparison.text, comparison.seconds or 0.0
    match comparison.result:
        case ComparisonResult.SAME:
            return "both the same"
        case ComparisonResult.LATER:
            said = f"it came {seconds:.0f} s later"
        case ComparisonResult.NEVER:
            until, why = comparison.detail and f", {comparison.detail}", comparison.reason
            said, text = f"it never came, for {seconds:.0f} s{until}", "" if why is None else why.value
        case ComparisonResult.BUILT_IN_ONLY:
            early = f", {seconds:.0f} s before the deadline here" if seconds >= 1 else ""
            said = f"it alone evicted the pod{early}"
        case ComparisonResult.SOMEBODY_ELSE:
            said = "somebody else was first" + (f" ({comparison.by})" if comparison.by else "")
    return f"{said}: {text}" if text else said


# The journal


def comparison_line(comparison: Comparison) -> JsonObject:
    """Return the line about a comparison, without its time."""
    seconds = {} if comparison.seconds is None else {"seconds": round(comparison.seconds, 1)}
    reason = {} if comparison.reason is None else {"reason": comparison.reason.name.lower()}
    named = {name: value for name, value in (("detail", comparison.detail), ("by", comparison.by)) if value}
    about = pod_named(comparison.ref, comparison.node_name)
    return {"what": "compared", **about, "result": comparison.result.value, **seconds, **reason, **named}


def totals_line(totals: ComparisonTotals) -> JsonObject:
    """Return the first line of a journal's next file: the totals of all comparisons before it."""
    counts = {result.value: count for result, count in totals.counts.items()}
    later = {} if totals.later is None else {"later": list(totals.later)}
    return {
        "what": "compared_before",
        "since": totals.since_epoch,
        "counts": counts,
        "unseen": totals.unseen,
        **({"first": [[by, reason, pods] for (by, reason), pods in totals.first.items()]} if totals.first else {}),
        **later,
    }


class JournalComparisons:
    """The comparisons in a journal: ``totals``; ``evicted_epochs``: open evictions by UID; ``until_epoch``."""

    def __init__(self, path: Path) -> None:
        self.totals = ComparisonTotals()
        self.evicted_epochs: dict[str, float] = {}
        self.until_epoch: float | None = None
        self._dry_run = False
        for line in _lines(path):
            try:
                self._take(line)
            except (KeyError, TypeError, ValueError, AttributeError):
                continue  # Cut or garbled: a journal may end anywhere.

    def _take(self, line: Mapping[str, Any]) -> None:
        at = _number(line["t"])
        self.until_epoch = at
        match line["what"]:
            case "journal":
                self._dry_run = line.get("dry_run") is True
                if self._dry_run and self.totals.since_epoch is None:
                    self.totals.since_epoch = at
            case "evicted" if self._dry_run:
                self.evicted_epochs.setdefault(line["uid"], at)
                if len(self.evicted_epochs) > _MAX_OPEN:
                    del self.evicted_epochs[next(iter(self.evicted_epochs))]
            case "compared":
                self.totals.add(_comparison(line, at))
                self.evicted_epochs.pop(line["uid"], None)
            case "compared_before":
                self._take_before(line)
            case _:
                pass

    def _take_before(self, line: Mapping[str, Any]) -> None:
        later, since, unseen = line.get("later"), _number(line["since"]), int(line["unseen"])
        counts = Counter({ComparisonResult(name): int(count) for name, count in line["counts"].items()})
        span = None if later is None else (_number(later[0]), _number(later[1]))
        self.totals = ComparisonTotals(since, counts, span, self.totals.differences, unseen)
        for by, reason, pods in line.get("first", ()):
            self.totals.count_first(_text(by), _text(reason), int(_number(pods)))


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the relevant lines of both files, the older first; raise ``OSError`` if no file exists or can be read."""
    found = [file for file in (path.with_name(path.name + ".1"), path) if file.exists()]
    for file in found or [path]:
        with file.open("rb") as lines:
            for line in lines:
                if any(word in line for word in _WORDS):
                    try:
                        yield orjson.loads(line)
                    except ValueError:
                        continue


def _comparison(line: Mapping[str, Any], at_epoch: float) -> Comparison:
    namespace, _, name = line["pod"].partition("/")
    reason, seconds = line.get("reason"), line.get("seconds")
    return Comparison(
        PodRef(NamespacedName(namespace, name), line["uid"]),
        _text(line["node"]),
        ComparisonResult(line["result"]),
        at_epoch,
        None if seconds is None else _number(seconds),
        None if reason is None else DifferenceReason[reason.upper()],
        _text(line.get("detail", "")),
        _text(line.get("by", "")),
    )


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not abs(value) < _MAX_NUMBER:
        raise ValueError(value)
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


# The document


def comparison_fields(totals: ComparisonTotals, outstanding: int, unseen: int, now_epoch: float) -> JsonObject:
    """Return the fields about comparisons; the newest differences come last."""
    since = now_epoch if totals.since_epoch is None else totals.since_epoch
    return {
        "since": format_rfc3339(since),
        "observedSeconds": round(max(0.0, now_epoch - since)),
        "compared": totals.counts.total(),
        "results": {result.value: totals.counts[result] for result in ComparisonResult},
        "laterSeconds": totals.later and {"min": round(totals.later[0], 1), "max": round(totals.later[1], 1)},
        "somebodyElse": [
            {"by": by or None, "reason": reason or None, "pods": pods}
            for (by, reason), pods in totals.first.most_common()
        ],
        "outstanding": outstanding,
        "unseen": unseen,
        "differences": [_difference(each) for each in totals.differences],
    }


def _difference(comparison: Comparison) -> JsonObject:
    line = comparison_line(comparison)
    return {
        "at": format_rfc3339(comparison.at_epoch),
        "namespace": comparison.ref.key.namespace,
        "name": comparison.ref.key.name,
        "uid": line["uid"],
        "node": line["node"],
        "result": line["result"],
        "seconds": line.get("seconds"),
        "reason": line.get("reason"),
        "by": comparison.by or None,
        "text": in_words(comparison),
    }
