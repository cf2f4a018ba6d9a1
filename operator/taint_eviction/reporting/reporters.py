"""Reporters of events besides the log and ``metrics``: the Kubernetes events that people see.

Each is a ``Reporter``: synchronous, never blocking, never raising the world's errors. They do not know each other;
``Live`` calls all of them. Every replica sees the changes of nodes and pods, and only the leader reports
them (``LeaderReporter``).
"""

from collections.abc import Iterable

from taint_eviction.core.decision import StayReason
from taint_eviction.core.events import (
    LOOP_EVICTIONS,
    LOOP_SECONDS,
    AdoptionRefused,
    BreakerClosed,
    BreakerOpened,
    Cancelled,
    CountdownAdopted,
    Event,
    Evicted,
    EvictionLoop,
    tolerance,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.reporting.event_recorder import EventRecorder, cancelling_deletion, marking_for_deletion
from taint_eviction.runtime.ports import Gate, Reporter
from taint_eviction.settings import Settings

# Events about all evictions are posted on the state ConfigMap.
_STOPPED, _GOING_ON = "EvictionsStopped", "EvictionsGoOn"

_ADOPTED = (
    "Took over the countdown of Pod: this controller evicts it in time, unless the taint is removed. The built-in"
    " controller posts Cancelling deletion"
)
_NOT_ADOPTED = (
    "The countdown of Pod could not be taken over in time, so the built-in controller evicts it, past all guards"
)

# Reasons to cancel an eviction for which an event about the pod has no reader (None: the pod is gone). For any other
# reason the pod stays on its node.
_UNREAD = frozenset({None, StayReason.NOT_BOUND, StayReason.MIRROR, StayReason.TERMINATING, StayReason.NODE_UNKNOWN})


class LeaderReporter:
    """Passes on the events of this process itself and, while it may act, those that every replica sees.
    So a process that loses leadership between a call and its answer still reports the eviction: no other replica can.
    """

    def __init__(self, gate: Gate, reporters: Iterable[Reporter]) -> None:
        self._gate = gate
        self._reporters = tuple(reporters)

    def report(self, event: Event, now: Moment) -> None:
        """Pass the event on, or ignore it."""
        if self._gate.may_act() or event.own:
            for reporter in self._reporters:
                reporter.report(event, now)


class EventReporter:
    """Posts what happened to a pod as an event on that pod: one event for each eviction, after it was accepted.
    A dry run marks each message.
    """

    def __init__(self, recorder: EventRecorder, settings: Settings) -> None:
        self._recorder = recorder
        self._reasons = settings.event_reasons
        self._prefix = "Dry run: " if settings.dry_run else ""

    def report(self, event: Event, now: Moment) -> None:
        """Post a Kubernetes event if this concerns the owner of a pod."""
        match event:
            case Evicted():
                reason = tolerance(event.decision.deciding) if self._reasons else ""
                self._post(event.ref, marking_for_deletion(event.ref, reason))
            case Cancelled() if event.reason not in _UNREAD:
                reason = event.why if self._reasons else ""
                self._post(event.ref, cancelling_deletion(event.ref, reason))
            case EvictionLoop():
                self._recorder.post(event.ref, "EvictionLoop", self._prefix + _loops(event), "Warning")
            case CountdownAdopted():
                self._recorder.post(event.ref, "CountdownAdopted", _ADOPTED)
            case AdoptionRefused():
                self._recorder.post(event.ref, "CountdownNotAdopted", f"{_NOT_ADOPTED}: {event.message}", "Warning")
            case _:
                pass

    def _post(self, ref: PodRef, message: str) -> None:
        self._recorder.post(ref, "TaintManagerEviction", self._prefix + message)


def _loops(event: EvictionLoop) -> str:
    """Return the problem and the remedy. Readers of a pod's events need not learn the keys of taints."""
    times = f"{LOOP_EVICTIONS} times within {LOOP_SECONDS / 60:g} minutes"
    return (
        f"{event.controller} recreates its pod on node {event.node_name}, and it is evicted again, {times}: give the"
        f" {event.controller.kind} a toleration for the node's taint, without tolerationSeconds, or remove the taint"
    )


class BreakerEventReporter:
    """Posts on the state ConfigMap that the circuit breaker stops evictions, or allows them again."""

    def __init__(self, recorder: EventRecorder, state: NamespacedName) -> None:
        self._recorder = recorder
        # The ConfigMap may not exist yet; an event needs no UID.
        self._state = PodRef(state, "")

    def report(self, event: Event, now: Moment) -> None:
        """Post a Kubernetes event if this is about the circuit breaker."""
        match event:
            case BreakerOpened():
                message = f"Circuit breaker: no pod is evicted until it is reset: {event.latch.cause}"
                self._recorder.post(self._state, _STOPPED, message, "Warning", "ConfigMap")
            case BreakerClosed():
                self._recorder.post(self._state, _GOING_ON, "Circuit breaker: evictions continue", kind="ConfigMap")
            case _:
                pass
