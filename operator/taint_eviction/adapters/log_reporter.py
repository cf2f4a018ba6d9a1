"""One log line for each effect: a message for people, structured fields (``extra``) for machines.

Deadlines are times of the API server's clock, with the source of the time at which they started: the log alone must
answer why a pod is evicted at that time. The field ``what`` names the kind of line in one word. An eviction that fails
again and again is logged at its 1st, 2nd, 4th, 8th… failure. Every replica sees the changes of nodes and pods; a
standby logs them at DEBUG, so that the logs of all replicas together contain them once. In a storm, each node has one
line per second (``eviction_storm``).
"""

import logging
from typing import Any, assert_never

from taint_eviction.adapters.effect_fields import pod_named, scope_named, taint_named
from taint_eviction.adapters.eviction_storm import EvictionStorm, StormTally
from taint_eviction.adapters.kubernetes_times import format_rfc3339
from taint_eviction.adapters.status_document import bracketed
from taint_eviction.core.decision import Evict, StayReason, TaintVerdict
from taint_eviction.core.effects import (
    AdoptionEffect,
    AdoptionRefused,
    Block,
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
    ReadyOutOfService,
    Refused,
    Resumed,
    Scheduled,
    StrayTaint,
    TaintRewritten,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import OUT_OF_SERVICE, PodRef
from taint_eviction.core.sentences import began, tolerated
from taint_eviction.core.warnings import LOOP_EVICTIONS, LOOP_SECONDS
from taint_eviction.runtime.ports import Gate

logger = logging.getLogger(__name__)


class LogReporter:
    """Writes the log. ``gate`` tells whether this replica is a standby. ``dry_run`` marks each line.

    ``has_breaker``: this process has a circuit breaker. Without one it still obeys a breaker that is found open.
    """

    def __init__(self, gate: Gate, dry_run: bool = False, has_breaker: bool = True) -> None:
        self._gate = gate
        self._has_breaker = has_breaker
        self._prefix = "dry run: " if dry_run else ""
        self._storm = EvictionStorm(self._stormed)

    def report(self, effect: Effect, now: Moment) -> None:
        """Log an effect."""
        match effect:
            # Those of which there are many come first.
            case Scheduled():
                self._scheduled(effect, now)
            case Cancelled():
                self._cancelled(effect)
            case Evicted():
                self._evicted(effect, now)
            case Refused():
                self._refused(effect, now)
            case NodeTainted() | NodeCleared() | TaintRewritten() | StrayTaint() | ReadyOutOfService():
                self._about_node(effect)
            case EvictionLoop():
                self._loops(effect)
            case CountdownAdopted() | AdoptionRefused() | GivenBack():
                self._about_adoption(effect)
            case Paused() | Resumed() | BreakerOpened() | BreakerClosed():
                self._held(effect)
            case _:
                assert_never(effect)

    def _log(self, text: str, *args: object, level: int = logging.INFO, **fields: Any) -> None:
        logger.log(level, self._prefix + text, *args, extra=fields)

    def _seen(self, text: str, *args: object, level: int = logging.INFO, **fields: Any) -> None:
        logger.log(level if self._gate.may_act() else logging.DEBUG, self._prefix + text, *args, extra=fields)

    def _warn(self, text: str, *args: object, **fields: Any) -> None:
        self._log(text, *args, level=logging.WARNING, **fields)

    def _about_node(self, effect: NodeEffect) -> None:
        match effect:
            case NodeTainted():
                self._seen(
                    "node %s has NoExecute taints: watching its pods", effect.name, what="tainted", node=effect.name
                )
            case NodeCleared():
                self._seen("node %s no longer has NoExecute taints", effect.name, what="cleared", node=effect.name)
            case TaintRewritten():
                self._rewritten(effect)
            case StrayTaint():
                self._stray(effect)
            case ReadyOutOfService():
                self._ready_out_of_service(effect)
            case _:
                assert_never(effect)

    def _about_adoption(self, effect: AdoptionEffect) -> None:
        fields = pod_named(effect.ref, effect.node_name)
        named = _named(effect.ref, effect.node_name)
        match effect:
            case CountdownAdopted():
                self._log(
                    "%s: its countdown is taken over from the built-in controller", named, what="adopted", **fields
                )
            case AdoptionRefused():
                self._warn(
                    "%s: its countdown could not be taken over in time (%d tries), so the built-in controller evicts it"
                    " past all guards: %s",
                    named,
                    effect.tries,
                    effect.message,
                    what="adoption_refused",
                    tries=effect.tries,
                    error=effect.message,
                    **fields,
                )
            case GivenBack():
                self._log("%s has its tolerationSeconds back", named, what="given_back", **fields)
            case _:
                assert_never(effect)

    def _rewritten(self, effect: TaintRewritten) -> None:
        self._seen(
            "the value of taint %s on node %s has changed: its tolerations start again, and never end if this repeats",
            effect.taint,
            effect.node_name,
            level=logging.WARNING,
            what="rewritten",
            node=effect.node_name,
            taint=str(effect.taint),
        )

    def _stray(self, effect: StrayTaint) -> None:
        self._warn(
            "node %s has reported for more than a minute that it is ready, and still has taint %s, which evicts pods as"
            " any taint does: remove it, or see why the node lifecycle controller does not",
            effect.node_name,
            effect.taint,
            what="stray_taint",
            node=effect.node_name,
            taint=str(effect.taint),
        )

    def _ready_out_of_service(self, effect: ReadyOutOfService) -> None:
        self._seen(
            "node %s is ready, but has the taint %s: the taint keeps pods away until somebody removes it",
            effect.node_name,
            OUT_OF_SERVICE,
            level=logging.WARNING,
            what="ready_out_of_service",
            node=effect.node_name,
        )

    def _scheduled(self, effect: Scheduled, now: Moment) -> None:
        deadline = _shown(effect.decision.fire_at, now)
        before = "" if effect.before_at is None else f" instead of {_shown(effect.before_at, now)}"
        self._seen(
            "%s is due at %s%s: %s",
            _named(effect.ref, effect.node_name),
            deadline,
            before,
            _because(effect.decision, now),
            deadline=deadline,
            what="scheduled",
            **_fields(effect.ref, effect.node_name, effect.decision.deciding),
        )

    def _cancelled(self, effect: Cancelled) -> None:
        why = "it is gone" if effect.reason is None else effect.reason.value
        late = effect.late_seconds
        when: dict[str, Any] = {}
        if effect.reason is StayReason.TERMINATING and late is not None:
            # For comparison with another controller that deleted the pod: whether it was early or late.
            why += f", {abs(late):.2f} s {'before' if late < 0 else 'after'} its deadline"
            when = {"late_seconds": round(late, 3)}
        self._seen(
            "%s is no longer due: %s",
            _named(effect.ref, effect.node_name),
            why,
            **when,
            reason=effect.reason.name.lower() if effect.reason is not None else "pod_gone",
            what="cancelled",
            **_fields(effect.ref, effect.node_name),
        )

    def _stormed(self, node_name: str, tally: StormTally, over: bool) -> None:
        self._log(
            "%s%s: %d pod%s evicted in %.1f s, %d refused%s",
            "the storm is over: " if over else "",
            node_name,
            tally.evicted,
            "" if tally.evicted == 1 else "s",
            tally.seconds,
            tally.refused,
            f" (the last: {tally.refusal})" if tally.refused else "",
            level=logging.WARNING if tally.refused else logging.INFO,
            what="storm_over" if over else "storm",
            node=node_name,
            evicted=tally.evicted,
            refused=tally.refused,
            **({"error": tally.refusal} if tally.refused else {}),
        )

    def _evicted(self, effect: Evicted, now: Moment) -> None:
        level = logging.DEBUG if self._storm.takes(effect.node_name, now.at) else logging.INFO
        if not logger.isEnabledFor(level):
            return  # In a storm most of these lines are not logged, so their text need not be built.
        deadline = _shown(effect.decision.due_at, now)
        self._log(
            "%s was evicted %.2f s after its deadline %s: %s",
            _named(effect.ref, effect.node_name),
            effect.late_seconds,
            deadline,
            _because(effect.decision, now),
            deadline=deadline,
            level=level,
            late_seconds=round(effect.late_seconds, 3),
            what="evicted",
            **_fields(effect.ref, effect.node_name, effect.decision.deciding),
        )

    def _refused(self, effect: Refused, now: Moment) -> None:
        told = effect.tries & (effect.tries - 1) == 0
        quiet = self._storm.takes(effect.node_name, now.at, refusal=effect.message, told=told)
        if not told:
            return
        self._log(
            "%s could not be evicted (attempt %d since %s), next attempt in %.1f s: %s%s",
            _named(effect.ref, effect.node_name),
            effect.tries,
            _shown(effect.since_at, now),
            max(0.0, effect.retry_at - now.at),
            "" if effect.block is None else f"{_blocked(effect.block)}: ",
            effect.message,
            level=logging.DEBUG if quiet else logging.WARNING,
            tries=effect.tries,
            error=effect.message,
            what="refused",
            **({} if effect.block is None else {"block": effect.block.reason.value, "budget": effect.block.budget}),
            **_fields(effect.ref, effect.node_name),
        )

    def _loops(self, effect: EvictionLoop) -> None:
        self._warn(
            "%s recreates its pod %s on node %s, and taint %s evicts it again, %d times within %g minutes: give the"
            " %s a toleration for the taint, without tolerationSeconds, or remove the taint",
            effect.controller,
            effect.ref,
            effect.node_name,
            effect.taint,
            LOOP_EVICTIONS,
            LOOP_SECONDS / 60,
            effect.controller.kind,
            what="eviction_loop",
            controller=str(effect.controller),
            taint=str(effect.taint),
            **pod_named(effect.ref, effect.node_name),
        )

    def _held(self, effect: Paused | Resumed | BreakerOpened | BreakerClosed) -> None:
        match effect:
            case Paused(scope, pause):
                why = bracketed(pause.since_epoch, pause.reason, pause.until_epoch, pause.by)
                self._warn("%s are paused%s", scope, why, what="paused", reason=pause.reason, **scope_named(scope))
            case Resumed(scope):
                self._warn("%s are no longer paused", scope, what="resumed", **scope_named(scope))
            case BreakerOpened(latch):
                why = bracketed(latch.since_epoch, latch.cause, by=latch.controller)
                if not self._has_breaker:
                    why += ", although no breaker is configured: it holds until taint-eviction breaker reset"
                self._warn(
                    "the circuit breaker is open: no pod is evicted%s", why, what="breaker_opened", cause=latch.cause
                )
            case BreakerClosed():
                self._warn("the circuit breaker is closed: evictions continue", what="breaker_closed")
            case _:
                assert_never(effect)


def _named(ref: PodRef, node_name: str) -> str:
    return f"pod {ref} (uid {ref.uid}) on node {node_name}"


def _blocked(block: Block) -> str:
    return block.reason.text + (f" ({block.budget})" if block.budget else "")


def _shown(instant: float, now: Moment) -> str:
    return format_rfc3339(now.epoch_of(instant))


def _because(decision: Evict, now: Moment) -> str:
    """Return the deciding taint, the toleration that counts, and the start time with its source."""
    verdict = decision.deciding
    why = tolerated(verdict.taint, verdict.toleration, verdict.by_default)
    overruled = "" if verdict.overruled is None else f", which comes before [{verdict.overruled}]"
    start = began(_shown(verdict.start_at, now), verdict.start_source.value)
    held = f", and its owner holds it for {decision.held_seconds:g} s" if decision.held_seconds else ""
    return f"taint {why}{overruled}, since {start}{held}"


def _fields(ref: PodRef, node_name: str, verdict: TaintVerdict | None = None) -> dict[str, Any]:
    if verdict is None:
        return pod_named(ref, node_name)
    return {**pod_named(ref, node_name), **taint_named(verdict), "time_source": verdict.start_source.value}
