"""One log line for each effect: plain words for people, structured fields (``extra``) for machines.

Deadlines are shown by the API server's clock, with the source of the time that started them: why a pod goes when it
goes must be answerable from the log alone. The field ``what`` names the kind of line in one word. Refusals come again
and again while something is down, so of one pod only the 1st, 2nd, 4th, 8th… is told.
"""

import logging
from typing import Any, assert_never

from taint_eviction.adapters.kubernetes_times import format_rfc3339
from taint_eviction.adapters.orders_data import UNKNOWN_EPOCH
from taint_eviction.core.decision import Evict, TaintVerdict
from taint_eviction.core.effects import (
    Block,
    BreakerClosed,
    BreakerOpened,
    Cancelled,
    Effect,
    Evicted,
    NodeCleared,
    NodeTainted,
    Paused,
    Refused,
    Resumed,
    Scheduled,
    TaintRewritten,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import PodRef

logger = logging.getLogger(__name__)


class LogTeller:
    """Writes the log. ``dry_run``: says that nothing was really done."""

    def __init__(self, dry_run: bool = False) -> None:
        self._prefix = "dry run: " if dry_run else ""

    def tell(self, effect: Effect, now: Moment) -> None:
        """Write a line about it."""
        match effect:
            case NodeTainted():
                self._log(
                    "node %s has NoExecute taints: its pods matter now", effect.name, what="tainted", node=effect.name
                )
            case NodeCleared():
                self._log("node %s has no NoExecute taint any more", effect.name, what="cleared", node=effect.name)
            case TaintRewritten():
                self._rewritten(effect)
            case Scheduled():
                self._scheduled(effect, now)
            case Cancelled():
                self._cancelled(effect)
            case Evicted():
                self._evicted(effect, now)
            case Refused():
                self._refused(effect, now)
            case Paused() | Resumed() | BreakerOpened() | BreakerClosed():
                self._held(effect)
            case _:
                assert_never(effect)

    def _log(self, text: str, *args: object, level: int = logging.INFO, **fields: Any) -> None:
        logger.log(level, self._prefix + text, *args, extra=fields)

    def _warn(self, text: str, *args: object, **fields: Any) -> None:
        self._log(text, *args, level=logging.WARNING, **fields)

    def _rewritten(self, effect: TaintRewritten) -> None:
        self._warn(
            "the value of taint %s on node %s was changed: its tolerances start anew, and never end if that goes on",
            effect.taint,
            effect.node_name,
            what="rewritten",
            node=effect.node_name,
            taint=str(effect.taint),
        )

    def _scheduled(self, effect: Scheduled, now: Moment) -> None:
        deadline = _shown(effect.decision.fire_at, now)
        before = "" if effect.before_at is None else f" instead of {_shown(effect.before_at, now)}"
        self._log(
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
        why = "it is gone or no longer watched" if effect.reason is None else effect.reason.value
        self._log(
            "%s is no longer due: %s",
            _named(effect.ref, effect.node_name),
            why,
            reason=effect.reason.name.lower() if effect.reason is not None else "pod_gone",
            what="cancelled",
            **_fields(effect.ref, effect.node_name),
        )

    def _evicted(self, effect: Evicted, now: Moment) -> None:
        deadline = _shown(effect.decision.fire_at, now)
        self._log(
            "%s was evicted %.2f s after its deadline %s: %s",
            _named(effect.ref, effect.node_name),
            effect.late_seconds,
            deadline,
            _because(effect.decision, now),
            deadline=deadline,
            late_seconds=round(effect.late_seconds, 3),
            what="evicted",
            **_fields(effect.ref, effect.node_name, effect.decision.deciding),
        )

    def _refused(self, effect: Refused, now: Moment) -> None:
        if effect.tries & (effect.tries - 1):
            return
        self._warn(
            "%s could not be evicted (try %d since %s), next try in %.1f s: %s%s",
            _named(effect.ref, effect.node_name),
            effect.tries,
            _shown(effect.since_at, now),
            max(0.0, effect.retry_at - now.at),
            "" if effect.block is None else f"{_blocked(effect.block)}: ",
            effect.message,
            tries=effect.tries,
            error=effect.message,
            what="refused",
            **({} if effect.block is None else {"block": effect.block.reason.value, "budget": effect.block.budget}),
            **_fields(effect.ref, effect.node_name),
        )

    def _held(self, effect: Paused | Resumed | BreakerOpened | BreakerClosed) -> None:
        match effect:
            case Paused(scope, pause):
                why = _told(pause.since_epoch, pause.reason)
                self._warn("%s are paused%s", scope, why, what="paused", scope=scope, reason=pause.reason)
            case Resumed(scope):
                self._warn("%s are no longer paused", scope, what="resumed", scope=scope)
            case BreakerOpened(latch):
                why = _told(latch.since_epoch, latch.cause)
                self._warn(
                    "the circuit breaker is open: nothing is evicted%s", why, what="breaker_opened", cause=latch.cause
                )
            case BreakerClosed():
                self._warn("the circuit breaker is closed: evictions go on", what="breaker_closed")
            case _:
                assert_never(effect)


def _named(ref: PodRef, node_name: str) -> str:
    return f"pod {ref} (uid {ref.uid}) on node {node_name}"


def _told(since_epoch: float | None, why: str) -> str:
    """Say since when and why, as far as it is known."""
    since = "" if since_epoch in (None, UNKNOWN_EPOCH) else f"since {format_rfc3339(since_epoch)}"
    told = ": ".join(filter(None, (since, why)))
    return f" ({told})" if told else ""


def _blocked(block: Block) -> str:
    return block.reason.text + (f" ({block.budget})" if block.budget else "")


def _shown(instant: float, now: Moment) -> str:
    return format_rfc3339(now.epoch_of(instant))


def _because(decision: Evict, now: Moment) -> str:
    """Name the taint that decides, the toleration that counts, and since when by whose word."""
    verdict = decision.deciding
    by_default = " by default" if verdict.by_default else ""
    toleration = (
        "is not tolerated" if verdict.toleration is None else f"is tolerated{by_default} by [{verdict.toleration}]"
    )
    overruled = "" if verdict.overruled is None else f", which comes before [{verdict.overruled}]"
    since = f"since {_shown(verdict.start_at, now)} by {verdict.start_source.value}"
    held = f", and held for {decision.held_seconds:g} s by its owner" if decision.held_seconds else ""
    return f"taint {verdict.taint} {toleration}{overruled}, {since}{held}"


def _fields(ref: PodRef, node_name: str, verdict: TaintVerdict | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = {"pod": str(ref), "uid": ref.uid, "node": node_name}
    if verdict is not None:
        fields |= {"taint": str(verdict.taint), "time_source": verdict.start_source.value}
        fields["toleration"] = None if verdict.toleration is None else str(verdict.toleration)
    return fields
