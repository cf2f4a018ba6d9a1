"""The oracle's part about the condition, which must be tried before a DELETE, repeatedly if a refusal is temporary."""

from dataclasses import dataclass, field

from tests.simulation.exploring.seen import Breach
from tests.simulation.exploring.truth import Truth

from taint_eviction.runtime.ports import CallFailed
from taint_eviction_lab.simulation.audit import Phase, Trace
from taint_eviction_lab.simulation.faults import CallKind

# How often the condition is tried in all, and within which time; a later answer ends the tries, too.
_TRIES, _SECONDS = 3, 3.0


@dataclass
class _MarkAttempts:
    """The tries of one process for one pod: when each was sent; ``passing``: all failures so far were temporary."""

    sent: list[float] = field(default_factory=list)
    passing: bool = True


class TryingJudge:
    """Judges all processes."""

    def __init__(self, truth: Truth, breach: Breach) -> None:
        self._truth = truth
        self._breach = breach
        self._markings: dict[tuple[str, str], _MarkAttempts] = {}

    def trace(self, trace: Trace) -> None:
        """Judge one phase of a call that sets the condition or deletes."""
        key = trace.process, trace.uid
        if trace.call is CallKind.MARK:
            marking = self._markings.setdefault(key, _MarkAttempts())
            if trace.phase is Phase.SENT:
                marking.sent.append(trace.at)
            elif trace.phase is Phase.ANSWERED:
                del self._markings[key]
            elif trace.phase is Phase.FAILED and isinstance(trace.body, CallFailed):
                marking.passing &= trace.body.may_pass and trace.body.retry_after_seconds is None
        elif trace.call is CallKind.DELETE and trace.phase is Phase.SENT:
            self._check_tried(trace, self._markings.pop(key, None))

    def _check_tried(self, trace: Trace, marking: _MarkAttempts | None) -> None:
        if marking is None or not marking.passing or self._truth.pods[trace.uid][-1].marked:
            return
        if len(marking.sent) < _TRIES and trace.at < marking.sent[0] + _SECONDS:
            self._breach("not marked", trace, f"tried {len(marking.sent)} times since {marking.sent[0]:.3f}")
