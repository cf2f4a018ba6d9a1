"""Draws documents in which everything at once decides whether a pod may go, and when.

Order, ceilings, rules that select nodes, budgets on lost nodes, virtual machines that move away, pauses and the circuit
breaker meet on the same nodes. Nothing makes a process blind for long, so the oracle judges all of it strictly. At the
end nobody blocks anything any more. Part of ``generator``, with a random generator of its own.
"""

import random
from typing import Any

from tests.simulation.exploring.ceilings import add_ceiling
from tests.simulation.exploring.lost_nodes import lose
from tests.simulation.exploring.ordering import NODE, let_leave_in_order
from tests.simulation.exploring.pools import add_pool
from tests.simulation.exploring.refusal_worlds import NAMESPACE, RefusalWorlds

JsonObject = dict[str, Any]

_SHARE, _SALT = 0.12, "all at once 43"
# Nodes on which nothing happens, so that few tainted nodes are no surge.
_CALM = 3
_LAST_SECOND = 75.0


def all_at_once(seed: int) -> JsonObject | None:
    """Return a document with everything, in a small share of the seeds; None for the others."""
    rng = random.Random(f"{_SALT} {seed}")
    if rng.random() >= _SHARE:
        return None
    mode = rng.choice(("evict", "evict-then-delete", "evict-then-delete"))
    settings: JsonObject = {
        "replicas": rng.choice((1, 1, 2)),
        "defaultTolerationSeconds": None,
        "evictionMode": mode,
        "evictTimeout": rng.choice((8, 20)),
    }
    given: JsonObject = {"nodes": [f"calm-{number}" for number in range(1, _CALM + 1)], "pods": [], "budgets": []}
    document: JsonObject = {
        "about": f"Generated from seed {seed}: all at once.",
        "name": f"explored-{seed}",
        "settings": settings,
        "given": given,
        "timeline": [],
        "expect": {},
    }
    let_leave_in_order(document, rng)
    # So that a pause may hold some pods of a node, and others wait for these.
    for pod in given["pods"]:
        if rng.random() < 0.4:
            pod["namespace"] = "other"
    add_pool(document, rng)
    if rng.random() < 0.7:
        _shorten(document, rng)
    add_ceiling(document, rng)
    lose(document, rng, ["lost-1"], rng.choice((5.0, 20.0, 33.0)), five_minutes=False)
    moving = RefusalWorlds(seed, settings).moving(rng.choice((4.0, 20.0)))
    moving.budgets.append({"name": "all", "namespace": NAMESPACE, "selector": {"matchLabels": {}}, "maxUnavailable": 0})
    patience = {"mode": "evict-then-delete", "evictTimeout": 12}
    moving.rules.append({"name": NAMESPACE, "match": {"namespaces": [NAMESPACE]}, **patience})
    moving.join(given, settings, document["timeline"])
    if rng.random() < 0.6:
        settings["breaker"] = {
            "nodes": rng.choice((2, 3, 3, 4)),
            "lifecycleNodes": rng.choice((0, 1, "exempt")),
            "leastNodes": 1,
            "window": rng.choice((25, 25, 300)),
            "settle": rng.choice((0.5, 2)),
        }
    tainted_at = next(step["at"] for step in document["timeline"] if str(step.get("taint")).startswith(NODE))
    steps = [*document["timeline"], *moving.steps, *_people(rng, tainted_at)]
    if "breaker" in settings:
        steps += [{"at": at, "resetBreaker": {}} for at in (_LAST_SECOND, _LAST_SECOND + 4.0)]
    document["timeline"] = sorted(steps, key=lambda step: float(step["at"]))
    return document


def _shorten(document: JsonObject, rng: random.Random) -> None:
    """Let the rule for the pool shorten tolerations, some of which would outlast the document."""
    rule = document["settings"]["policy"][0]
    rule["match"]["taintKeys"], rule["maxTolerationSeconds"] = ["a"], rng.choice((0, 2))
    if rng.random() < 0.7:
        rule.pop("pause", None)
    for pod in document["given"]["pods"]:
        if pod.get("namespace") == rule["match"]["namespaces"][0] and rng.random() < 0.5:
            pod["tolerations"] = ["a for 5000"]


def _people(rng: random.Random, tainted_at: float) -> list[JsonObject]:
    """Let people pause what leaves, for a time or until they resume, and end all pauses at last.

    ``tainted_at``: when pods begin to leave in order; a pause may hold some of those for which others wait.
    """
    nodes = (NODE, "lost-1", "moving-1", "pool-1")
    scopes: list[JsonObject] = [
        {},
        {"namespace": "default"},
        {"namespace": "other"},
        *({"node": node} for node in nodes),
    ]
    steps: list[JsonObject] = [{"at": _LAST_SECOND, "resume": "all"}]
    if rng.random() < 0.6:
        pause = {"namespace": rng.choice(("default", "other")), "for": rng.choice((8, 20))}
        steps.append({"at": round(tainted_at + rng.choice((-2.0, -0.5, 0.5)), 3), "pause": pause})
    for _ in range(rng.choice((0, 1, 2))):
        scope, at = rng.choice(scopes), round(rng.uniform(1.0, 50.0), 3)
        if rng.random() < 0.6:
            steps.append({"at": at, "pause": {**scope, "for": rng.choice((3, 8, 20))}})
        else:
            steps.append({"at": at, "pause": scope})
    return steps
