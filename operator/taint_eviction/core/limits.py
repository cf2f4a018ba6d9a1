"""How fast pods may be evicted: token buckets, for all evictions, for each node, each namespace and each rule.
A token is reserved when an eviction begins, and taken only when the request that ends the pod is sent. A request that
turns out to have ended no pod counts as if it had not been sent. So in any period no more pods end than the burst plus
the tokens added in that period, however late answers come.
Passive: the caller passes the time. The order of evictions is in ``fair_queue``.
"""

import math
from typing import NamedTuple

from taint_eviction.core.policy import UNLIMITED, EvictionPolicy, Limit

# Buckets of nodes and namespaces that may be kept although they are full: a new bucket would be the same.
_MAX_IDLE = 4096


class _Level(NamedTuple):
    """How many tokens there were at an instant."""

    tokens: float
    at: float

    def tokens_at(self, now: float, limit: Limit) -> float:
        """Return how many tokens there are now if none has been taken since."""
        if limit.per_second is None:
            return math.inf
        return min(self.tokens + (now - self.at) * limit.per_second, limit.max_tokens)

    def less_one(self, now: float, limit: Limit) -> "_Level":
        """Return the level after one token is taken."""
        return _Level(self.tokens_at(now, limit) - 1, now)


class Token:
    """One eviction's share of one limit: reserved at first, taken once ``sent``, and for good once ``certain``."""

    __slots__ = ("bucket", "certain", "sent")

    def __init__(self, bucket: "TokenBucket") -> None:
        self.bucket = bucket
        self.sent = False
        self.certain = False


class TokenBucket:
    """One limit at work. An eviction has begun when it was let through and has not ended."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._level = self._level_before = _Level(limit.max_tokens, -math.inf)
        self._begun = 0
        self._reserved = 0
        # When requests were sent: the oldest one whose outcome is uncertain, and all after it.
        self._sent: dict[Token, float] = {}

    def change(self, limit: Limit, now: float) -> None:
        """Apply another limit: a full bucket stays full, otherwise it keeps as many tokens as fit."""
        tokens, max_tokens = self._level.tokens_at(now, self._limit), limit.max_tokens
        tokens = max_tokens if tokens >= self._limit.max_tokens else min(tokens, max_tokens)
        self._level = self._level_before = _Level(tokens, now)
        self._sent = {}
        self._limit = limit

    def room_at(self) -> float | None:
        """Return when one more eviction may begin if only time passes; None: not before one is sent or ends."""
        limit, needed = self._limit, self._reserved + 1
        if limit.at_once is not None and self._begun >= limit.at_once:
            return None
        if limit.per_second is None:
            return -math.inf
        if needed > limit.max_tokens:
            return None
        return self._level.at + max(0.0, needed - self._level.tokens) / limit.per_second

    def has_room(self, now: float) -> bool:
        """Return whether one more eviction may begin."""
        at = self.room_at()
        return at is not None and at <= now

    def begin(self) -> Token:
        """Let one eviction begin, and reserve a token."""
        self._begun += 1
        self._reserved += 1
        return Token(self)

    def send(self, token: Token, now: float) -> None:
        """Take the token: the request that ends the pod is sent."""
        self._reserved -= 1
        token.sent = True
        self._sent[token] = now
        self._level = self._level.less_one(now, self._limit)

    def end(self, token: Token, ended_pod: bool) -> None:
        """Note that an eviction has ended; its token is returned unless the eviction may have ended a pod."""
        self._begun -= 1
        if not token.sent:
            self._reserved -= 1
            return
        token.certain = ended_pod
        if not ended_pod and self._sent.pop(token, None) is not None:
            # Recompute without it: simply adding one token would count regrown tokens twice.
            self._level = self._level_before
            for at in self._sent.values():
                self._level = self._level.less_one(at, self._limit)
        while self._sent and (first := next(iter(self._sent))).certain:
            self._level_before = self._level_before.less_one(self._sent.pop(first), self._limit)

    def is_idle(self, now: float) -> bool:
        """Return whether the bucket is equivalent to a new one."""
        return self._begun == 0 and self._level.tokens_at(now, self._limit) >= self._limit.max_tokens


class Limits:
    """All buckets of a policy, made as they are needed."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._max_buckets = _MAX_IDLE
        self._set(policy)

    def __len__(self) -> int:
        """Count the buckets."""
        return len(self._buckets)

    def change(self, policy: EvictionPolicy, now: float) -> None:
        """Apply another policy; used tokens stay used."""
        self._set(policy)
        for scope, bucket in list(self._buckets.items()):
            limit = self._limit(*scope)
            if limit is None:
                del self._buckets[scope]
            else:
                bucket.change(limit, now)

    def _set(self, policy: EvictionPolicy) -> None:
        limits = {"total": policy.total, "node": policy.per_node, "namespace": policy.per_namespace}
        self._of_kind = {kind: limit for kind, limit in limits.items() if limit != UNLIMITED}
        self._of_rule = {rule.name: rule.limit for rule in policy.rules if rule.limit != UNLIMITED}

    def buckets(self, node_name: str, namespace: str, rule: str, now: float) -> tuple[TokenBucket, ...]:
        """Return the buckets that all must have room for an eviction; ``rule`` is "" where none matched."""
        if not self._of_kind and not self._of_rule:
            return ()
        scopes = (("total", ""), ("node", node_name), ("namespace", namespace), ("rule", rule))
        return tuple(self._bucket(scope, limit, now) for scope in scopes if (limit := self._limit(*scope)) is not None)

    def _limit(self, kind: str, name: str) -> Limit | None:
        return self._of_rule.get(name) if kind == "rule" else self._of_kind.get(kind)

    def _bucket(self, scope: tuple[str, str], limit: Limit, now: float) -> TokenBucket:
        bucket = self._buckets.get(scope)
        if bucket is None:
            if len(self._buckets) >= self._max_buckets:
                self._buckets = {key: kept for key, kept in self._buckets.items() if not kept.is_idle(now)}
                self._max_buckets = max(_MAX_IDLE, 2 * len(self._buckets))
            bucket = self._buckets[scope] = TokenBucket(limit)
        return bucket
