"""Generates pools of nodes, in some documents: rules that select nodes by labels, and labels that change just in time.

This comes after all other parts and uses a random generator of its own, so that other documents are the same as before
this module existed. A document in which at most holds restrain evictions gets none, as its evictions must be punctual.
Part of ``generator``.
"""

import random
from typing import Any

JsonObject = dict[str, Any]

_SHARE = 0.6
_NODES, _NAMESPACE = ("pool-1", "pool-2"), "pooled"
# Selectors with the values of the label that they match, and some that they do not; None: the node lacks the label.
_SELECTORS: dict[str, tuple[tuple[str | None, ...], tuple[str | None, ...]]] = {
    "pool=gpu": (("gpu",), ("db", None)),
    "pool in (gpu,x)": (("gpu", "x"), ("db", None)),
    "pool": (("gpu", "db"), (None,)),
    "!pool": ((None,), ("gpu", "db")),
    "pool!=gpu": (("db", None), ("gpu",)),
    "pool notin (gpu,x)": (("db", None), ("gpu", "x")),
}
# When a label changes, from when the pods are due.
_BESIDE = (-3.0, -0.5, -0.02, 0.0, 0.006, 0.011, 0.016, 0.021, 0.03, 0.3, 1.0, 2.5)


def add_pools(document: JsonObject, seed: int) -> None:
    """Let the nodes of a pool be tainted, and their labels change before, while, and after their pods are evicted."""
    rng = random.Random(f"pools {seed}")
    given, settings, timeline = document["given"], document["settings"], document["timeline"]
    restrained = any(key.startswith(("eviction", "policy")) for key in settings) or any("pause" in x for x in timeline)
    # The breaker would count the nodes, and nothing restrains the built-in controller.
    if rng.random() >= _SHARE or not restrained or not settings.keys().isdisjoint(("breaker", "builtIn")):
        return
    selector = rng.choice([*_SELECTORS])
    begin = rng.choice((3.0, 20.0, 40.0))
    steps: list[JsonObject] = []
    for node in _NODES:
        is_chosen = node == _NODES[0] or rng.random() < 0.5
        seconds = rng.choice((0, 0, 5))
        given["pods"] += [
            {"name": f"{node}-{number}", "namespace": _NAMESPACE, "nodeName": node, "tolerations": [f"a for {seconds}"]}
            for number in range(rng.choice((1, 3)))
        ]
        pool = _value(rng, selector, is_chosen)
        given["nodes"].append(node if pool is None else {"name": node, "labels": {"pool": pool}})
        steps.append({"at": begin, "taint": f"{node} a=1:NoExecute"})
        at = begin + seconds
        # The first one leaves the pool in the end.
        for _ in range(rng.choice((1, 1, 3))):
            at, is_chosen = round(max(0.5, at + rng.choice(_BESIDE)), 3), not is_chosen
            pool = _value(rng, selector, is_chosen)
            steps.append({"at": at, "label": f"{node} pool-" if pool is None else f"{node} pool={pool}"})
            at += rng.choice((0.0, 15.0))
    if rng.random() < 0.6:
        slow: JsonObject = {"call": ["mark", "readPod"], "pod": f"{_NAMESPACE}/*", "for": 20.0}
        steps.append({"at": begin, "delay": {**slow, "back": round(rng.uniform(0.3, 2.9), 3)}})
    how = rng.choice((*({"pause": True},) * 6, {"mode": "evict"}, {"limits": {"concurrency": 1}}))
    _add_rule(document, {"name": "pool", "match": {"namespaces": [_NAMESPACE], "nodeSelector": selector}, **how})
    document["timeline"] = sorted([*timeline, *steps], key=lambda step: float(step["at"]))


def _value(rng: random.Random, selector: str, chosen: bool) -> str | None:
    return rng.choice(_SELECTORS[selector][0 if chosen else 1])


def _add_rule(document: JsonObject, rule: JsonObject) -> None:
    """Add a rule before all others; it stays when the document's policy changes."""
    document["settings"]["policy"] = [rule, *document["settings"].get("policy", ())]
    for step in document["timeline"]:
        if "changePolicy" in step:
            step["changePolicy"] = [rule, *step["changePolicy"]]
