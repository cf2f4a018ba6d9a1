"""Lets requests of some generated documents outlive their senders.

Such a request arrives up to a minute after it was sent. Its sender has stopped waiting for it by then, or was killed:
the connection was half open, or a webhook or etcd was slow. Where a replica is cut off by half-open connections, this
holds for everything that it sends meanwhile. Part of ``generator``, with a random generator of its own,
so that the rest of a document is the same as without.
"""

import random
from collections.abc import Sequence

from tests.simulation.exploring.restraining import JsonObject

_SHARE = 0.35
_CALLS = (
    ["delete"],
    ["evict"],
    ["delete", "evict"],
    ["mark"],
    ["mark", "unmark"],
    ["writeLease"],
    ["writeControlState"],
)
_CALLS_OF_ADOPTION = (["adopt"], ["adopt"], ["giveBack"], ["adopt", "giveBack"], ["writeControlState"])
_LONGEST_SECONDS = 60.0
_BUFFERED_SHARE = 0.08
_HALF_OPEN_SHARE = 0.4
# How long before or after another step the first such request is sent.
_BESIDE = (-1.0, -0.02, -0.001, 0.0, 0.001, 0.006, 0.011, 0.021, 1.0, 5.0)
# What people and programs do that makes the controller write.
_OCCASIONS = ("taint", "untaint", "setTaints", "recreate", "restart", "resetBreaker", "handBack", "pause")


def late_requests(seed: int, steps: list[JsonObject], replicas: int) -> list[JsonObject]:
    """Return steps that let requests outlive their senders, beside these steps."""
    rng = random.Random(f"late requests {seed}")
    return _late(rng, _CALLS, steps, replicas) if rng.random() < _SHARE else []


def buffered_watches(seed: int, steps: list[JsonObject], replicas: int) -> list[JsonObject]:
    """Return steps that let a proxy keep back what watches bring, beside these steps."""
    rng = random.Random(f"buffered watches {seed}")
    if rng.random() >= _BUFFERED_SHARE:
        return []
    instants = [float(step["at"]) for step in steps if step["at"] >= 0 and any(name in step for name in _OCCASIONS)]
    at = round(max(0.0, rng.choice(instants or [10.0]) + rng.choice(_BESIDE)), 3)
    kept: JsonObject = {"watch": rng.choice(("nodes", "pods", "all")), "for": round(rng.uniform(20.0, 200.0), 3)}
    if rng.random() < 0.3:
        kept["replica"] = rng.randint(1, replicas)
    return [{"at": at, "buffer": kept}]


def add_late_adoptions(document: JsonObject, seed: int) -> None:
    """Let requests that adopt or give back outlive their senders, in some of the documents that adopt."""
    rng, settings = random.Random(f"late adoption {seed}"), document["settings"]
    if settings.get("adopt") and rng.random() < _SHARE:
        late = _late(rng, _CALLS_OF_ADOPTION, document["timeline"], settings["replicas"])
        document["timeline"] = sorted([*document["timeline"], *late], key=lambda step: float(step["at"]))


def _late(rng: random.Random, kinds: Sequence[list[str]], steps: list[JsonObject], replicas: int) -> list[JsonObject]:
    instants = [float(step["at"]) for step in steps if step["at"] >= 0 and any(name in step for name in _OCCASIONS)]
    late: list[JsonObject] = []
    if rng.random() < _HALF_OPEN_SHARE:
        at = round(max(0.0, rng.choice(instants or [10.0]) + rng.choice(_BESIDE)), 3)
        cut = {"for": round(rng.uniform(0.5, 30.0), 3), "late": round(rng.uniform(1.0, _LONGEST_SECONDS), 3)}
        late.append({"at": at, "partition": {**cut, "replica": rng.randint(1, replicas)}})
    for _ in range(rng.choice((1, 2, 3))):
        at = round(max(0.0, rng.choice(instants or [10.0]) + rng.choice(_BESIDE)), 3)
        delay: JsonObject = {"call": rng.choice(kinds), "by": round(rng.uniform(3.0, _LONGEST_SECONDS), 3)}
        late.append({"at": at, "delay": {**delay, "times": rng.randint(1, 3), "for": rng.choice((3, 20))}})
        if rng.random() < 0.6:
            died_at = round(at + rng.choice((0.03, 0.05, 0.3, 1.0, 4.0)), 3)
            replica = rng.randint(1, replicas)
            late.append({"at": died_at, "restart": {"after": rng.choice((0, 1, 20)), "replica": replica}})
    return late
