"""Generates nodes that are not ready and out of service, in some documents.

This comes after everything else but adoption and uses a random generator of its own, so that other documents are the
same as before this module existed. A document in which at most holds restrain evictions gets none, as its evictions
must be punctual. Part of ``generator``.
"""

import random
from typing import Any

JsonObject = dict[str, Any]

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_SHARE = 0.25
_OUTAGE, _LABELS = "outage", {"app": "outage"}
_RESTRAINTS = ("eviction", "breaker", "policy")
_EFFECTS = ("NoExecute", "NoExecute", "NoExecute", "NoExecute", "NoSchedule")
# How long before or after the taint a node changes its readiness.
_BESIDE = (-5.0, -1.0, -0.02, 0.0, 0.006, 0.011, 0.016, 0.021, 0.03, 0.5, 2.0, 12.0, 45.0)


def add_out_of_service(document: JsonObject, seed: int) -> None:
    """Let nodes of a document change their readiness and be tainted as out of service; the pods of one such node have a
    budget that allows nothing, and the owner of one holds it.
    """
    rng = random.Random(f"out of service {seed}")
    given, settings = document["given"], document["settings"]
    if rng.random() >= _SHARE or not any(key.startswith(_RESTRAINTS) for key in settings):
        return
    if "nodeLifecycle" in settings:  # The node lifecycle controller would write the conditions, too.
        return
    names = [node if isinstance(node, str) else node["name"] for node in given["nodes"]]
    instants = [float(step["at"]) for step in document["timeline"]]
    steps: list[JsonObject] = [{"at": 0.0, "setReady": f"{name} True"} for name in names if rng.random() < 0.5]
    for name in rng.sample(names, rng.randint(0, min(3, len(names)))):
        steps += _outage(rng, name, instants)
    given["nodes"].append(_OUTAGE)
    outaged: list[JsonObject] = [
        {"name": f"outaged-{number}", "nodeName": _OUTAGE, "labels": _LABELS} for number in range(3)
    ]
    given["pods"] += outaged
    given.setdefault("budgets", []).append({"name": _OUTAGE, "selector": _LABELS, "minAvailable": 3})
    steps.append({"at": 0.0, "setReady": f"{_OUTAGE} {rng.choice(('True', 'Unknown'))}"})
    steps += _outage(rng, _OUTAGE, [10.0, 20.0])
    document["timeline"] = sorted([*document["timeline"], *steps], key=lambda step: float(step["at"]))
    settings.setdefault("evictionMode", rng.choice(("delete", "evict", "evict")))
    settings.setdefault("policy", _rules(rng))
    settings.setdefault("honourHolds", "forever")
    outaged[0]["hold"] = rng.choice(("true", "1h"))


def _outage(rng: random.Random, name: str, instants: list[float]) -> list[JsonObject]:
    at = max(1.0, rng.choice([*instants, 10.0]) + rng.choice(_BESIDE))
    steps = [{"at": at, "taint": f"{name} {OUT_OF_SERVICE}:{rng.choice(_EFFECTS)}"}]
    for _ in range(rng.choice((0, 1, 1, 2))):
        status = rng.choice(("True", "False", "Unknown", "Unknown"))
        steps.append({"at": max(0.5, at + rng.choice(_BESIDE)), "setReady": f"{name} {status}"})
    if rng.random() < 0.15:
        steps.append({"at": at + rng.choice((0.02, 1.0, 20.0)), "untaint": f"{name} {OUT_OF_SERVICE}"})
    return steps


def _rules(rng: random.Random) -> list[JsonObject]:
    if rng.random() < 0.7:
        return []
    keys = rng.choice(([OUT_OF_SERVICE], ["node.kubernetes.io/*"], ["*"]))
    how = rng.choice(({"pause": True}, {"mode": "evict"}, {"limits": {"evictionsPerSecond": 0.5}}))
    return [{"name": "out-of-service", "match": {"taintKeys": keys}, **how}]
