"""The failed attempts to evict one pod: how many, when to try again, and for how long it may still be refused.
A policy may use the eviction API first, and delete the pod once budgets, or admission, have refused it for long enough.
This patience is the sum of the spans from one refusal to the next, whatever other answers lie between. A span counts
at most the pauses that were planned within it and a few seconds for the calls: a stall, or a wait for a limit or a
worker, adds nothing, nor do refusals while the virtual machine in the pod moves away. A pause that would end the
patience needs no other refusal, if no other answer has come since.
"""

import math
from dataclasses import dataclass, replace
from typing import assert_never

from taint_eviction.core.events import Block, BlockReason, Eviction, Failed
from taint_eviction.core.instants import Moment
from taint_eviction.core.policy import EvictionMode, Handling

# How much longer than the pauses within it a span of patience counts at most: calls take time.
_CALLS_SECONDS = 10.0

# Sums of floating-point numbers may miss the timeout by less than this.
_ROUNDING_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The failed attempts to evict one pod so far: how many, since when, and the answer to the last one.
    ``block``: a budget forbids it for now. None: the attempt failed for another reason. ``asked``: the last attempt
    asked the eviction API; ``refused``: budgets or admission refused it. ``ask_again_at``: when a budget may be asked
    again. ``refused_seconds``: for how long the pod has been refused, up to the last refusal at ``refused_at`` (None:
    there is none that counts since the sum began anew). ``planned_seconds``: the pauses that were planned since then.
    ``unanswered``: the last call had no answer, or a late one. ``hung``: how many requests to end the pod had none.
    """

    since_at: float
    tries: int
    retry_at: float
    message: str
    block: Block | None = None
    asked: bool = False
    refused: bool = False
    ask_again_at: float = -math.inf
    refused_seconds: float = 0.0
    refused_at: float | None = None
    planned_seconds: float = 0.0
    unanswered: bool = False
    hung: int = 0

    def with_failure(self, work: Eviction, outcome: Failed, sent: bool, now: Moment) -> "FailedAttempts":
        """Return these attempts and one more; ``sent``: the request that ends the pod was being sent."""
        evacuates = outcome.block is not None and outcome.block.reason is BlockReason.EVACUATION
        refused = work.by_eviction_api and outcome.refuses and not evacuates
        after = self if work.by_eviction_api else self._after_deletion(now)
        return replace(
            self._after_refusal(now) if refused else replace(after, refused_at=None) if evacuates else after,
            tries=work.tries + 1,
            retry_at=outcome.retry_at,
            message=outcome.message,
            block=outcome.block,
            asked=work.by_eviction_api and sent,
            refused=refused,
            unanswered=outcome.unanswered or outcome.late,
            hung=self.hung + (outcome.unanswered and sent),
            ask_again_at=self.ask_again_at if outcome.block is None else outcome.retry_at,
        )

    def _after_refusal(self, now: Moment) -> "FailedAttempts":
        span = 0.0
        if self.refused_at is not None:
            span = min(now.at - self.refused_at, self.planned_seconds + _CALLS_SECONDS)
        return replace(self, refused_at=now.at, refused_seconds=self.refused_seconds + span, planned_seconds=0.0)

    def _after_deletion(self, now: Moment) -> "FailedAttempts":
        """Let the pause that ended the patience count for good."""
        seconds = self.refused_seconds + self._paused_seconds(now.at)
        return self if self.refused_at is None else replace(self, refused_at=now.at, refused_seconds=seconds)

    def _paused_seconds(self, now: float) -> float:
        """Return how much of a planned pause has passed since the last answer, if that was a refusal."""
        if self.refused_at is None or not self.refused:
            return 0.0
        return min(now - self.refused_at, self.planned_seconds)

    def is_outlasted(self, seconds: float, now: float) -> bool:
        """Return whether the pod has been refused for so long."""
        return self.refused_at is not None and self.refused_seconds + self._paused_seconds(now) > (
            seconds - _ROUNDING_SECONDS
        )

    @property
    def evacuates(self) -> bool:
        """Return whether the last attempt was refused because the virtual machine in the pod moves away."""
        return self.block is not None and self.block.reason is BlockReason.EVACUATION

    def after_pause(self, seconds: float) -> "FailedAttempts":
        """Return these attempts with a pause that is planned until the next one."""
        return replace(self, planned_seconds=self.planned_seconds + seconds)

    def next_try_at(self, handling: Handling, now: float) -> float:
        """Return when to try again.

        Where the retry asks the eviction API, it does not begin before a budget's refusal allows it, but when the
        patience ends. A deletion only waits if the attempt before was a deletion that failed.
        """
        until = eviction_api_until(handling, self)
        if asks(handling, self, now) and not self.refused:
            return max(self.retry_at, min(self.ask_again_at, until))
        return min(max(self.retry_at, self.ask_again_at), until) if self.asked else self.retry_at

    @property
    def without_refusals(self) -> "FailedAttempts":
        """Return these attempts after something has held the pod: its patience starts with the next refusal."""
        # After an evacuation there is a sum without a last refusal.
        if self.refused_at is None and not self.refused_seconds:
            return self
        return replace(self, refused_at=None, refused_seconds=0.0)


def asks(handling: Handling, failures: FailedAttempts | None, now: float) -> bool:
    """Return whether an attempt that begins now uses the eviction API, so that budgets apply."""
    match handling.mode:
        case EvictionMode.DELETE:
            return False
        case EvictionMode.EVICT:
            return True
        case EvictionMode.EVICT_THEN_DELETE:
            return failures is None or not failures.is_outlasted(handling.evict_timeout_seconds, now)
        case _:
            assert_never(handling.mode)


def eviction_api_until(handling: Handling, failures: FailedAttempts | None) -> float:
    """Return until when the eviction API is used if it keeps refusing; infinite: indefinitely, or not known yet."""
    match handling.mode:
        case EvictionMode.DELETE:
            return -math.inf
        case EvictionMode.EVICT:
            return math.inf
        case EvictionMode.EVICT_THEN_DELETE:
            if failures is None or failures.refused_at is None:
                return math.inf
            return failures.refused_at + handling.evict_timeout_seconds - failures.refused_seconds
        case _:
            assert_never(handling.mode)
