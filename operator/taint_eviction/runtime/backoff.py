"""How long to wait before a call that failed is made again: doubling, at random, and as the server advises."""

import random

from taint_eviction.settings import RetrySettings

_FIRST_BLOCKED_SECONDS = 5.0


def backoff_seconds(tries: int, advised_seconds: float | None, retry: RetrySettings, rng: random.Random) -> float:
    """Return how long to wait after the failure that follows ``tries`` earlier ones.

    Doubles up to the maximum, minus up to half of it at random. Never less than the server advised, up to the maximum:
    a proxy must not delay an eviction for a day. Then up to half of the first wait is added, so that pods with the same
    advice are not retried together.
    """
    doubled = min(retry.max_seconds, retry.first_seconds * 2.0 ** min(tries, 30))
    own = doubled * rng.uniform(0.5, 1.0)
    if advised_seconds is None or advised_seconds <= own:
        return own
    return min(advised_seconds, retry.max_seconds) + retry.first_seconds * rng.uniform(0.0, 0.5)


def blocked_seconds(tries: int, advised_seconds: float | None, retry: RetrySettings, rng: random.Random) -> float:
    """Return how long to wait after a budget has refused an eviction, after ``tries`` earlier failures.

    As the server advises, else 5 s, doubled, up to the maximum: budgets allow more when other pods become ready, and
    more frequent calls do not hasten that. Up to a fifth is added at random, so that pods with the same advice are not
    retried together.
    """
    if advised_seconds is None or advised_seconds <= 0:
        advised_seconds = _FIRST_BLOCKED_SECONDS * 2.0 ** min(tries, 30)
    return min(advised_seconds, max(retry.max_seconds, _FIRST_BLOCKED_SECONDS)) * rng.uniform(1.0, 1.2)
