"""Puts the controller's events on the timeline, with their reasons in words."""

from collections.abc import Callable
from typing import Any

from taint_eviction.core.decision import Evict
from taint_eviction.core.events import Cancelled, Event, Evicted, Paused, Resumed, Scheduled, Times
from taint_eviction.core.instants import Moment
from taint_eviction.reporting.comparisons import in_words
from taint_eviction.shadow.comparison import Comparison
from taint_eviction_lab.simulation.timeline import BREAKER, Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import ProcessClock

# By the name of an event: its kind on the timeline, and why, with the event's fields.
_TOLD = {
    "tainted": (What.TAINTED, ""),
    "cleared": (What.CLEARED, ""),
    "rewritten": (What.REWRITTEN, "{taint}"),
    "stray_taint": (What.STRAY, "{taint}"),
    "ready_out_of_service": (What.READY_OUT_OF_SERVICE, ""),
    "scheduled": (What.SCHEDULED, "{why}"),
    "cancelled": (What.CANCELLED, "{why}"),
    "evicted": (What.SAID_EVICTED, "{why}"),
    "refused": (What.REFUSED, "{error} (try {tries}, again at {retry_at:.3f})"),
    "eviction_loop": (What.LOOPS, "{controller} on {node}: {taint}"),
    "adopted": (What.SAID_ADOPTED, "{tolerations} of its tolerations"),
    "adoption_refused": (What.ADOPTION_REFUSED, "{error} (try {tries})"),
    "given_back": (What.SAID_GIVEN_BACK, "it has its tolerationSeconds back"),
    "paused": (What.PAUSED, "{reason}"),
    "resumed": (What.RESUMED, ""),
    "breaker_opened": (What.SAID_OPEN, "{cause}"),
    "breaker_closed": (What.SAID_CLOSED, ""),
}


class TimelineReporter:
    """The ``Reporter`` of one controller process."""

    def __init__(self, timeline: Timeline, clock: ProcessClock) -> None:
        self._timeline = timeline
        self._clock = clock

    def report(self, event: Event, now: Moment) -> None:
        """Put an event on the timeline; one of a kind that the timeline does not know is there as its sentence."""
        second = self._clock.scenario_second
        told: dict[str, Any] = {
            name: second(value) if name.endswith("_at") else value for name, value in event.fields().items()
        }
        what, why = _TOLD.get(event.name, (What.TOLD, "{why}"))
        match event:
            case Scheduled() | Evicted():
                told["why"] = self._why(event.decision)
            case Cancelled():
                told["why"], what = event.why, What.DROPPED if event.reason is None else what
            case _ if what is What.TOLD:
                told["why"] = event.sentence(Times(now, str), dry_run=False)
            case _:
                pass
        scope = event.scope if isinstance(event, Paused | Resumed) else None
        self._timeline.add(
            TimelineEntry(
                second(now.at),
                what,
                str(scope or told.get("pod") or told.get("node", BREAKER)),
                told.get("uid", ""),
                why.format(**told),
                told["due_at"] if isinstance(event, Scheduled) else None,
                round(event.late_seconds, 6) if isinstance(event, Evicted) else None,
                told.get("held_seconds", 0.0),
                scope,
            )
        )

    def _why(self, decision: Evict) -> str:
        verdict = decision.deciding
        start = f"{self._clock.scenario_second(verdict.start_at):.3f} ({verdict.start_source.value})"
        why = f"{verdict.taint} is not tolerated"
        if verdict.toleration is not None:
            ceiling = verdict.ceiling
            most = "" if ceiling is None else f", of which rule {ceiling.rule} allows {ceiling.seconds} s,"
            why = f"{verdict.taint} is tolerated for {verdict.toleration.toleration_seconds} s{most} from {start}"
        return f"{why}, and held for {decision.held_seconds:g} s more" if decision.held_seconds else why


def timeline_comparisons(timeline: Timeline, clock: ProcessClock) -> Callable[[Comparison, Moment], None]:
    """Return a function that puts a comparison of a dry run with the built-in controller on the timeline."""

    def compared(found: Comparison, now: Moment) -> None:
        reason = "" if found.reason is None else f" {found.reason.name.lower()}"
        why = f"{found.result.value}{reason}: {in_words(found)}"
        timeline.add(TimelineEntry(clock.scenario_second(now.at), What.COMPARED, str(found.ref), found.ref.uid, why))

    return compared
