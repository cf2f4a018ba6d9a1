"""The audit log: every attempt to evict a pod or to take a condition back, and its outcome, one JSON object per line.

It shows later who removed a pod, and because of which taint. Unlike the journal it contains no cluster state: each line
is complete by itself. ``history`` can also draw it.

Reads no clock: the callers pass the moment.
"""

from typing import Any, assert_never

import orjson

from taint_eviction.core.decision import Evict, TaintVerdict
from taint_eviction.core.events import (
    CalledOff,
    CutOff,
    Done,
    Eviction,
    Failed,
    PodIsGone,
    Suspended,
    TakeBack,
    Work,
    WorkOutcome,
    pod_named,
    taint_named,
)
from taint_eviction.core.instants import Moment
from taint_eviction.files.kubernetes_times import format_micro_time
from taint_eviction.reporting.rotating_lines import Lines


class AuditLog:
    """Writes ``lines``. ``dry_run`` is noted in each line: no change was made."""

    def __init__(self, lines: Lines, dry_run: bool = False) -> None:
        self._lines = lines
        self._dry_run = dry_run

    def attempted(self, work: Work, outcome: WorkOutcome, now: Moment) -> None:
        """Write an attempt that has ended."""
        block = outcome.block if isinstance(outcome, Failed) else None
        line = {
            "time": format_micro_time(now.server_epoch),
            "action": "evict" if isinstance(work, Eviction) else "take-back",
            "outcome": _word(work, outcome),
            **pod_named(work.ref, work.node_name),
            **(_eviction(work, now) if isinstance(work, Eviction) else {}),
            "tries": work.tries + 1,
            "answer": None if self._dry_run else outcome.answer,
            "budget": block and block.budget,
            "dry_run": self._dry_run,
        }
        self._lines.write(orjson.dumps(line) + b"\n")

    @property
    def ended(self) -> str:
        """Return why no more lines are written, "" while they are."""
        return self._lines.ended

    def close(self) -> None:
        """Close the log."""
        self._lines.close()


def _word(work: Work, outcome: WorkOutcome) -> str:
    match outcome:
        case Done():
            return "taken-back" if isinstance(work, TakeBack) else "evicted"
        case PodIsGone():
            return "gone"
        case CalledOff():
            return "called-off"
        case CutOff():
            return "cut-off"
        case Suspended():
            return "held"
        case Failed():
            return "refused" if outcome.block is None else "blocked"
        case _:
            assert_never(outcome)


def _eviction(work: Eviction, now: Moment) -> dict[str, Any]:
    """Return why the pod is evicted, and by which call. The deciding taint comes first."""
    decision = work.decision
    return {
        "taints": [_taint(verdict, now) for verdict in _deciding_first(decision)],
        "deadline": format_micro_time(now.epoch_of(decision.due_at)),
        "held_seconds": decision.held_seconds,
        "late_seconds": round(max(0.0, now.at - decision.due_at), 3),
        "mode": "evict" if work.by_eviction_api else "delete",
    }


def _deciding_first(decision: Evict) -> list[TaintVerdict]:
    return sorted(decision.verdicts, key=lambda verdict: verdict is not decision.deciding)


def _taint(verdict: TaintVerdict, now: Moment) -> dict[str, Any]:
    return {
        **taint_named(verdict),
        "by_default": verdict.by_default,
        "since": format_micro_time(now.epoch_of(verdict.start_at)),
        "since_by": verdict.start_source.value,
    }
