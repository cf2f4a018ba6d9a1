"""What is told of effects besides the log: metrics and Kubernetes events.

Each is a ``Teller``: synchronous, never blocking, never raising the world's errors. They know nothing of each other;
``LiveController`` tells all that it is given.
"""

from collections.abc import Callable

from taint_eviction.adapters.event_recorder import EventRecorder, cancelling_deletion, marking_for_deletion
from taint_eviction.adapters.metrics import Metrics
from taint_eviction.core.decision import StayReason
from taint_eviction.core.effects import (
    BreakerClosed,
    BreakerOpened,
    Cancelled,
    Effect,
    Evicted,
    Refused,
    TaintRewritten,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, PodRef, Taint
from taint_eviction.runtime.ports import Gate

# What becomes of evictions as a whole is told on the object that holds the orders.
_STOPPED, _GOING_ON = "EvictionsStopped", "EvictionsGoOn"

# Reasons for which an eviction was called off while the pod lives on: only then is there somebody to tell.
_ALIVE = frozenset({StayReason.NODE_CLEAN, StayReason.TOLERATED, StayReason.FINISHED, StayReason.HELD})


class MetricsTeller:
    """Counts effects."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def tell(self, effect: Effect, now: Moment) -> None:
        """Count it."""
        match effect:
            case Evicted():
                self._metrics.evicted(effect.late_seconds)
            case Refused():
                self._metrics.refused(blocked=effect.block is not None)
            case Cancelled():
                self._metrics.cancelled()
            case TaintRewritten():
                self._metrics.taint_rewritten()
            case BreakerOpened():
                self._metrics.breaker_opened()
            case _:
                pass


class EventTeller:
    """Posts what happened to a pod as an event on that pod: once for each eviction, after it was accepted.

    ``name_taints`` puts the taint into the text. Off by default: taints are the operators' side of the cluster, events
    are read by the pods' owners. ``dry_run`` says in each that nothing was done.
    """

    def __init__(self, recorder: EventRecorder, name_taints: bool = False, dry_run: bool = False) -> None:
        self._recorder = recorder
        self._name_taints = name_taints
        self._prefix = "Dry run: " if dry_run else ""

    def tell(self, effect: Effect, now: Moment) -> None:
        """Post an event if the pods' owners should know."""
        match effect:
            case Evicted():
                taint = effect.decision.deciding.taint
                self._post(effect.ref, marking_for_deletion, taint)
            case Cancelled() if effect.reason in _ALIVE:
                self._post(effect.ref, cancelling_deletion, None)
            case _:
                pass

    def _post(self, ref: PodRef, text: Callable[[PodRef, Taint | None], str], taint: Taint | None) -> None:
        told = text(ref, taint if self._name_taints else None)
        self._recorder.post(ref, "TaintManagerEviction", self._prefix + told)


class BreakerEventTeller:
    """Posts that the circuit breaker stops evictions, or lets them go on, as an event on the state ConfigMap.

    Every replica learns of it; whoever acts tells.
    """

    def __init__(self, recorder: EventRecorder, gate: Gate, state: NamespacedName) -> None:
        self._recorder = recorder
        self._gate = gate
        # It may not exist yet; an event can do without the UID.
        self._state = PodRef(state, "")

    def tell(self, effect: Effect, now: Moment) -> None:
        """Post an event if it is about the breaker."""
        if not self._gate.may_act():
            return
        match effect:
            case BreakerOpened():
                message = f"Circuit breaker: no pod is evicted until a reset: {effect.latch.cause}"
                self._recorder.post(self._state, _STOPPED, message, "Warning", "ConfigMap")
            case BreakerClosed():
                self._recorder.post(self._state, _GOING_ON, "Circuit breaker: evictions go on", kind="ConfigMap")
            case _:
                pass
