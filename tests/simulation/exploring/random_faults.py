"""Generates faults: watches that fail, calls that fail, hang or are slow, replicas that die or freeze.

``generator`` decides when they happen.
"""

import random
from collections.abc import Callable

from tests.simulation.exploring.restraining import JsonObject

LISTS = ("listNodes", "listPods", "listCachedPods")
CALLS = (*LISTS, "readNode", "readPod", "mark", "unmark", "delete", "watchNodes", "watchPods")
LEASE_CALLS = ("readLease", "writeLease")


class RandomFaults:
    """The faults of one document; ``span`` draws a span of at most the given seconds."""

    def __init__(self, rng: random.Random, replicas: int, span: Callable[[float], float]) -> None:
        self._rng = rng
        self._replicas = replicas
        self._span = span

    def one(self) -> JsonObject:
        """Draw one fault."""
        kinds = (self._watch_fault, self._call_fault, self._replica_fault)
        action, does = self._rng.choices(kinds, weights=(4, 5, 3))[0]()
        return {action: does}

    def _watch_fault(self) -> tuple[str, JsonObject]:
        rng = self._rng
        which: JsonObject = {"watch": rng.choice(("nodes", "pods", "all"))}
        if rng.random() < 0.3:
            which["replica"] = rng.randint(1, self._replicas)
        action = rng.choice(("lag", "lag", "lag", "lose", "repeat", "relist", "cut"))
        if action == "relist":
            return action, which
        if action == "lose":
            # Lost events of nodes can cause early evictions (README.md): a taint that flaps in them seems to stay.
            which["watch"] = "pods"
        return action, {**which, ("by" if action == "lag" else "for"): self._span(20)}

    def _call_fault(self) -> tuple[str, JsonObject]:
        rng = self._rng
        if rng.random() < 0.1:
            return "outage", {"for": self._span(30)}
        calls = rng.sample(CALLS, rng.choice((1, 1, 2, 4))) if rng.random() < 0.85 else list(LEASE_CALLS)
        does: JsonObject = {"call": calls}
        if rng.random() < 0.5:
            does["times"] = rng.randint(1, 8)
        else:
            does["for"] = self._span(40)
        action = rng.choice(("refuse", "refuse", "refuse", "hang", "delay", "delay"))
        if action == "delay":
            return action, {**does, "by": self._span(8), "back": self._span(8)}
        if action == "hang":
            return action, {**does, "tookEffect": rng.random() < 0.5}
        if rng.random() < 0.85:
            does["status"] = rng.choice((403, 409, 429, 500, 503))
        if rng.random() < 0.2:
            does["retryAfter"] = rng.choice((1, 5))
        return action, {**does, "tookEffect": rng.random() < 0.4}

    def _replica_fault(self) -> tuple[str, JsonObject]:
        rng = self._rng
        replica = rng.randint(1, self._replicas)
        action = rng.choice(("restart", "restart", "freeze", "partition", "stepHostClock"))
        if action == "stepHostClock":
            return action, {"by": rng.choice((-7200, -30, -1, 1, 30, 7200)), "replica": replica}
        if action == "restart":
            return action, {"after": rng.choice((0, 0.1, 3, 20)), "replica": replica}
        return action, {"for": self._span(40), "replica": replica}
