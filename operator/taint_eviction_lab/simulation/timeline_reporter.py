"""Puts the controller's effects on the timeline, with their reasons in words."""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from taint_eviction.adapters.comparisons import in_words
from taint_eviction.core.decision import Evict
from taint_eviction.core.effects import (
    AdoptionEffect,
    AdoptionRefused,
    BreakerClosed,
    BreakerOpened,
    Cancelled,
    CountdownAdopted,
    Effect,
    Evicted,
    EvictionLoop,
    GivenBack,
    NodeCleared,
    NodeEffect,
    NodeTainted,
    Paused,
    PodEffect,
    ReadyOutOfService,
    Refused,
    Resumed,
    Scheduled,
    StrayTaint,
    TaintRewritten,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import PodRef
from taint_eviction.shadow.comparison import Comparison
from taint_eviction_lab.simulation.timeline import BREAKER, Timeline, TimelineEntry, What
from taint_eviction_lab.simulation.virtual_clock import ProcessClock


class TimelineReporter:
    """The ``Reporter`` of one controller process."""

    def __init__(self, timeline: Timeline, clock: ProcessClock) -> None:
        self._timeline = timeline
        self._clock = clock

    def report(self, effect: Effect, now: Moment) -> None:
        """Put an effect on the timeline."""
        self._timeline.add(self._entry(effect, self._clock.scenario_second(now.at)))

    def _entry(self, effect: Effect, at: float) -> TimelineEntry:
        match effect:
            case NodeTainted() | NodeCleared() | TaintRewritten() | StrayTaint() | ReadyOutOfService():
                return _about_node(effect, at)
            case Paused():
                return TimelineEntry(at, What.PAUSED, str(effect.scope), why=effect.pause.reason, scope=effect.scope)
            case Resumed():
                return TimelineEntry(at, What.RESUMED, str(effect.scope), scope=effect.scope)
            case BreakerOpened():
                return TimelineEntry(at, What.SAID_OPEN, BREAKER, why=effect.latch.cause)
            case BreakerClosed():
                return TimelineEntry(at, What.SAID_CLOSED, BREAKER)
            case _:
                return self._about_pod(effect, at)

    def _about_pod(self, effect: PodEffect, at: float) -> TimelineEntry:
        match effect:
            case Scheduled():
                due_at = self._clock.scenario_second(effect.decision.fire_at)
                entry = _about(effect.ref, at, What.SCHEDULED, self._why(effect.decision), due_at=due_at)
                return replace(entry, held_seconds=effect.decision.held_seconds)
            case Cancelled():
                if effect.reason is None:
                    return _about(effect.ref, at, What.DROPPED, "it is gone")
                return _about(effect.ref, at, What.CANCELLED, effect.reason.value)
            case Evicted():
                why = self._why(effect.decision)
                return _about(effect.ref, at, What.SAID_EVICTED, why, late_seconds=round(effect.late_seconds, 6))
            case Refused():
                retry_at = self._clock.scenario_second(effect.retry_at)
                why = f"{effect.message} (try {effect.tries}, again at {retry_at:.3f})"
                return _about(effect.ref, at, What.REFUSED, why)
            case CountdownAdopted() | AdoptionRefused() | GivenBack():
                return _about_adoption(effect, at)
            case EvictionLoop():
                return _about(effect.ref, at, What.LOOPS, f"{effect.controller} on {effect.node_name}: {effect.taint}")
            case _:
                assert_never(effect)

    def _why(self, decision: Evict) -> str:
        verdict = decision.deciding
        start = f"{self._clock.scenario_second(verdict.start_at):.3f} ({verdict.start_source.value})"
        why = f"{verdict.taint} is not tolerated"
        if verdict.toleration is not None:
            why = f"{verdict.taint} is tolerated for {verdict.toleration.toleration_seconds} s from {start}"
        return f"{why}, and held for {decision.held_seconds:g} s more" if decision.held_seconds else why


def timeline_comparisons(timeline: Timeline, clock: ProcessClock) -> Callable[[Comparison, Moment], None]:
    """Return a function that puts a comparison of a dry run with the built-in controller on the timeline."""

    def compared(found: Comparison, now: Moment) -> None:
        reason = "" if found.reason is None else f" {found.reason.name.lower()}"
        why = f"{found.result.value}{reason}: {in_words(found)}"
        timeline.add(_about(found.ref, clock.scenario_second(now.at), What.COMPARED, why))

    return compared


def _about_adoption(effect: AdoptionEffect, at: float) -> TimelineEntry:
    match effect:
        case CountdownAdopted():
            return _about(effect.ref, at, What.SAID_ADOPTED, f"{effect.tolerations} of its tolerations")
        case AdoptionRefused():
            return _about(effect.ref, at, What.ADOPTION_REFUSED, f"{effect.message} (try {effect.tries})")
        case GivenBack():
            return _about(effect.ref, at, What.SAID_GIVEN_BACK, "it has its tolerationSeconds back")
        case _:
            assert_never(effect)


def _about_node(effect: NodeEffect, at: float) -> TimelineEntry:
    match effect:
        case NodeTainted():
            return TimelineEntry(at, What.TAINTED, effect.name)
        case NodeCleared():
            return TimelineEntry(at, What.CLEARED, effect.name)
        case TaintRewritten():
            return TimelineEntry(at, What.REWRITTEN, effect.node_name, why=str(effect.taint))
        case StrayTaint():
            return TimelineEntry(at, What.STRAY, effect.node_name, why=str(effect.taint))
        case ReadyOutOfService():
            return TimelineEntry(at, What.READY_OUT_OF_SERVICE, effect.node_name)
        case _:
            assert_never(effect)


def _about(
    ref: PodRef, at: float, what: What, why: str, *, due_at: float | None = None, late_seconds: float | None = None
) -> TimelineEntry:
    return TimelineEntry(at, what, str(ref), ref.uid, why, due_at, late_seconds)
