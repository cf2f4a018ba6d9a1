"""Loses nodes whose pods have budgets that never allow an eviction, in some documents; and says when a node is lost.

Where budgets on lost nodes are ignored, pods that leave because of that go by a DELETE, and no other pod does. Part of
``generator`` and ``handling``; it uses random generators of its own, so that other documents are the same as before
this module existed.
"""

import random
from typing import Any

from tests.simulation.exploring.truth import LIFECYCLE_KEYS, NEVER, NodeState

JsonObject = dict[str, Any]

_ALONE_SHARE, _SHARE, _SALT = 0.06, 0.1, "lost nodes 1112"
_FALSE_SECONDS = 300.0
_LABELS = {"app": "lost"}
_SECONDS = (0, 3, 20, 60)
# How long before or after an instant a node changes.
_BESIDE = (-1.0, -0.02, -0.006, 0.0, 0.006, 0.011, 0.016, 0.021, 0.03, 0.5, 2.0)


def lost_from(node: NodeState) -> float:
    """Return from when on a node counts as lost if it stays in this state."""
    after = {"Unknown": 0.0, "False": _FALSE_SECONDS}
    return node.ready_at + after.get(node.ready or "", NEVER)


def lose_nodes(seed: int) -> JsonObject | None:
    """Return a document about lost nodes alone, in a small share of the seeds; None for the others.

    It is long enough for five minutes to pass. Nothing makes a process blind for long.
    """
    rng = random.Random(f"{_SALT} {seed}")
    if rng.random() >= _ALONE_SHARE:
        return None
    document: JsonObject = {
        "about": f"Generated from seed {seed}: lost nodes.",
        "name": f"explored-{seed}",
        "settings": {"defaultTolerationSeconds": None, "replicas": rng.choice((1, 1, 2))},
        "given": {"nodes": ["witness"], "pods": []},
        "timeline": [],
        "expect": {},
    }
    lose(document, rng, ["lost-1", "lost-2"], rng.choice((5.0, 20.0)), five_minutes=True)
    return document


def add_lost_nodes(document: JsonObject, seed: int) -> None:
    """Lose a node among everything else, for less than five minutes."""
    rng = random.Random(f"{_SALT} beside {seed}")
    settings = document["settings"]
    # The breaker would count the node, and the node lifecycle controller would write its conditions.
    kept = settings.keys().isdisjoint(("breaker", "nodeLifecycle", "builtIn", "order", "dryRun"))
    if rng.random() < _SHARE and kept and settings.get("evictionMode", "evict") != "delete":
        lose(document, rng, ["lost-1"], rng.choice((5.0, 33.0, 60.0)), five_minutes=False)


def lose(document: JsonObject, rng: random.Random, nodes: list[str], at: float, *, five_minutes: bool) -> None:
    """Lose nodes at ``at``; ``five_minutes``: some for so long that False counts."""
    given, settings = document["given"], document["settings"]
    settings["budgetsOnLostNodes"] = rng.choice(("ignore",) * 4 + ("respect",))
    settings.setdefault("evictionMode", rng.choice(("evict", "evict", "evict-then-delete")))
    if settings["evictionMode"] == "evict-then-delete":
        settings.setdefault("evictTimeout", 100)
    given.setdefault("budgets", []).append({"name": "lost", "selector": _LABELS, "minAvailable": "100%"})
    steps: list[JsonObject] = []
    for node in nodes:
        given["nodes"].append({"name": node, "conditions": [{"type": "Ready", "status": "True"}]})
        for number in range(rng.randint(1, 3)):
            keys = rng.choice((LIFECYCLE_KEYS, ("a", *LIFECYCLE_KEYS)))
            tolerations = [f"{key} for {rng.choice(_SECONDS)}" for key in keys]
            name = f"{node}-pod-{number}"
            given["pods"].append({"name": name, "nodeName": node, "labels": _LABELS, "tolerations": tolerations})
        statuses = ["False" if five_minutes and rng.random() < 0.6 else "Unknown"]
        statuses += rng.choice(([], [], ["True"], ["False"], ["Unknown", "True"], ["True", "Unknown"]))
        steps += _spell(rng, node, statuses, at)
        if rng.random() < 0.3:
            steps.append({"at": round(at + rng.uniform(0.0, 30.0), 3), "taint": f"{node} a=1:NoExecute"})
        if rng.random() < 0.3:
            lag = {"watch": "nodes", "by": round(rng.uniform(0.1, 2.5), 3)}
            steps.append({"at": round(at + rng.choice((1.0, 10.0)), 3), "lag": lag})
        if five_minutes and rng.random() < 0.4:
            steps.append({"at": round(at + rng.choice((20.0, 290.0)), 3), "restart": {"after": rng.choice((0, 2))}})
        if five_minutes:
            # So that the phase without faults begins later.
            end = at + _FALSE_SECONDS + rng.choice((5.0, 40.0))
            steps.append({"at": end, "writeNode": "witness"})
    document["timeline"] = sorted([*document["timeline"], *steps], key=lambda step: float(step["at"]))


def _spell(rng: random.Random, node: str, statuses: list[str], at: float) -> list[JsonObject]:
    """Let a node have one status after the other, and the taint that goes with the first."""
    key = LIFECYCLE_KEYS[1] if statuses[0] == "Unknown" else LIFECYCLE_KEYS[0]
    taint = {"key": key, "effect": "NoExecute", "timeAdded": "now"}
    steps: list[JsonObject] = [
        {"at": at, "setReady": f"{node} {statuses[0]}"},
        {"at": at, "taint": {"node": node, "taints": [taint]}},
    ]
    for status in statuses[1:]:
        at = round(at + rng.choice((*_SECONDS, 8.0)) + rng.choice(_BESIDE), 3)
        steps.append({"at": max(1.0, at), "setReady": f"{node} {status}"})
    return steps
