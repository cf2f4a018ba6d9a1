"""The failed attempts to evict one pod: how many, when to try again, and for how long budgets may still refuse it.
A policy may use the eviction API first, and delete the pod once budgets have refused it for long enough. This patience
counts from the first refusal of a series, without the time for which the pod was held or waited for its turn.
"""

import math
from dataclasses import dataclass, replace
from typing import assert_never

from taint_eviction.core.effects import Block, Eviction, Failed
from taint_eviction.core.instants import Moment
from taint_eviction.core.policy import EvictionMode, Handling


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The failed attempts to evict one pod so far: how many, since when, and the answer to the last one.
    ``block``: a budget forbids it for now. None: the attempt failed for another reason. ``refused_by_eviction_api``:
    the eviction API refused the last attempt. ``ask_again_at``: when a budget may be asked again.
    ``refused_since_at``: when budgets began to refuse the pod in an uninterrupted series, moved later by the time for
    which the pod has waited for limits and workers since. None: there is no such series.
    """

    since_at: float
    tries: int
    retry_at: float
    message: str
    block: Block | None = None
    refused_by_eviction_api: bool = False
    ask_again_at: float = -math.inf
    refused_since_at: float | None = None

    def and_then(self, work: Eviction, outcome: Failed, asked: bool, now: Moment) -> "FailedAttempts":
        """Return these attempts and one more; ``asked``: the request that ends the pod was being sent."""
        refused_since_at = self.refused_since_at
        if outcome.block is not None and refused_since_at is None:
            refused_since_at = now.at
        elif outcome.block is None and work.by_eviction_api:
            refused_since_at = None  # No budget has answered.
        return FailedAttempts(
            since_at=self.since_at,
            tries=work.tries + 1,
            retry_at=outcome.retry_at,
            message=outcome.message,
            block=outcome.block,
            refused_by_eviction_api=work.by_eviction_api and asked,
            ask_again_at=self.ask_again_at if outcome.block is None else outcome.retry_at,
            refused_since_at=refused_since_at,
        )

    def next_try_at(self, handling: Handling) -> float:
        """Return when to try again: at the time given by the failed attempt.

        Where the retry asks the eviction API, it does not begin before a budget's refusal allows it. Once the patience
        with budgets has ended, only a failed deletion's own delay counts.
        """
        until = asks_until(handling, self)
        if not self.refused_by_eviction_api and self.retry_at >= until:
            return self.retry_at
        return min(max(self.retry_at, self.ask_again_at), until)

    @property
    def interrupted(self) -> "FailedAttempts":
        """Return these attempts after an interruption: the patience with budgets starts with the next refusal."""
        return self if self.refused_since_at is None else replace(self, refused_since_at=None)


def asks_until(handling: Handling, failures: FailedAttempts | None) -> float:
    """Return until when the eviction API is used, so that budgets apply; infinite: indefinitely."""
    match handling.mode:
        case EvictionMode.DELETE:
            return -math.inf
        case EvictionMode.EVICT:
            return math.inf
        case EvictionMode.EVICT_THEN_DELETE:
            since_at = None if failures is None else failures.refused_since_at
            return math.inf if since_at is None else since_at + handling.evict_timeout_seconds
        case _:
            assert_never(handling.mode)
