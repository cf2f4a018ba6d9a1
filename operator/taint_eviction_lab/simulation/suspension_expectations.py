"""What a scenario expects of budgets and of the circuit breaker.

The breaker is judged by the simulated API server's record: when its latch was written there, and when it was reset. A
scenario that does not mention it expects that it never opens.
"""

from dataclasses import dataclass

from taint_eviction_lab.simulation.expectations import Instant, PodTimeline, Verdict, happens, seconds_of
from taint_eviction_lab.simulation.timeline import BREAKER, BY_EVICTION, Timeline, What


@dataclass(frozen=True, slots=True)
class IsBlocked:
    """The eviction API first refuses the pod at this instant; None: it never does.
    ``by``: the names of the budgets that cause it, empty: any.
    """

    at: Instant | None
    by: tuple[str, ...] = ()

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Compare with the first refusal."""
        blocked = history.of(What.BLOCKED)
        seen = f"blocked at {blocked[0].at:.3f} {blocked[0].why}" if blocked else "never blocked"
        if self.at is None:
            return "never blocked", seen, not blocked
        by = f"by {', '.join(sorted(self.by))}" if self.by else ""
        met = bool(blocked) and self.at.met_by(blocked[0].at) and blocked[0].why.startswith(f"{by}:" if by else "")
        return f"blocked at {self.at} {by}".rstrip(), seen, met


@dataclass(frozen=True, slots=True)
class EvictCalls:
    """This many calls to the eviction API arrive for the pod, including refused ones."""

    count: int

    def check(self, history: PodTimeline) -> tuple[str, str, bool]:
        """Count them."""
        ended = history.of(What.EVICTED, What.DELETED_AGAIN, What.DELETE_MISSED)
        failed = [entry for entry in history.of(What.CALL_FAILED) if entry.why.startswith("evict: ")]
        count = len(history.of(What.BLOCKED)) + sum(entry.why.endswith(BY_EVICTION) for entry in ended)
        count += sum("took effect" not in entry.why for entry in failed)
        return f"{self.count} calls to the eviction API", f"{count} calls to the eviction API", count == self.count


@dataclass(frozen=True, slots=True)
class BreakerExpectation:
    """The breaker opens and closes at these instants and at no others; None: any instants."""

    opened: tuple[Instant, ...] | None
    closed: tuple[Instant, ...] | None
    line: int


_NEVER_OPENED = BreakerExpectation((), None, 0)


def judge_breaker(expectation: BreakerExpectation | None, timeline: Timeline) -> tuple[Verdict, ...]:
    """Check when it opened and closed; without an expectation, return only violations."""
    expected = expectation or _NEVER_OPENED
    verdicts = []
    for what, instants in ((What.BREAKER_OPENED, expected.opened), (What.BREAKER_CLOSED, expected.closed)):
        if instants is None:
            continue
        entries = timeline.about(BREAKER, what)
        met = len(entries) == len(instants) and all(
            instant.met_by(entry.at) for instant, entry in zip(instants, entries, strict=True)
        )
        told = happens(what.value, ", ".join(map(str, instants))), happens(what.value, seconds_of(entries))
        verdicts.append(Verdict(BREAKER, expected.line, *told, met))
    return tuple(verdict for verdict in verdicts if expectation is not None or not verdict.met)
