"""Generates pools of nodes, in some documents: rules and pauses that select nodes by labels, and labels that change
just in time, also on nodes that join while their pool is paused.

This comes after all other parts and uses random generators of its own, so that other documents are the same as before
this module existed. A document in which at most holds restrain evictions gets none, as its evictions must be punctual.
Part of ``generator``.
"""

import random
from typing import Any

JsonObject = dict[str, Any]

_SHARE = 0.6
_NODES, _NAMESPACE = ("pool-1", "pool-2"), "pooled"
_PAUSED_NODES, _PAUSED_NAMESPACE = ("paused-1", "paused-2", "paused-3"), "paused"
# Selectors with the values of the label that they match, and some that they do not; None: the node lacks the label.
_SELECTORS: dict[str, tuple[tuple[str | None, ...], tuple[str | None, ...]]] = {
    "pool=gpu": (("gpu",), ("db", None)),
    "pool in (gpu,x)": (("gpu", "x"), ("db", None)),
    "pool": (("gpu", "db"), (None,)),
    "!pool": ((None,), ("gpu", "db")),
    "pool!=gpu": (("db", None), ("gpu",)),
    "pool notin (gpu,x)": (("db", None), ("gpu", "x")),
}
# Values that hold all nodes, since it cannot be read which ones are meant.
_BY_HAND = ("true", "", "pool=gpu", '{"selector": "pool in gpu"}', '{"selector": 5}', "{}")
# When a label changes, from when the pods are due.
_BESIDE = (-3.0, -0.5, -0.02, 0.0, 0.006, 0.011, 0.016, 0.021, 0.03, 0.3, 1.0, 2.5)


def add_pools(document: JsonObject, seed: int) -> None:
    """Let the nodes of a pool be tainted, and their labels change before, while, and after their pods are evicted."""
    rng = random.Random(f"pools {seed}")
    settings, timeline = document["settings"], document["timeline"]
    restrained = any(key.startswith(("eviction", "policy")) for key in settings) or any("pause" in x for x in timeline)
    # The breaker would count the nodes, and nothing restrains the built-in controller.
    if rng.random() >= _SHARE or not restrained or not settings.keys().isdisjoint(("breaker", "builtIn")):
        return
    add_pool(document, rng)


def add_pool(document: JsonObject, rng: random.Random) -> None:
    """Add a rule for a pool, and nodes that leave and join it."""
    given, timeline = document["given"], document["timeline"]
    selector = rng.choice([*_SELECTORS])
    begin = rng.choice((3.0, 20.0, 40.0))
    steps: list[JsonObject] = []
    for node in _NODES:
        is_chosen = node == _NODES[0] or rng.random() < 0.5
        seconds = rng.choice((0, 0, 5))
        given["pods"] += _pods(node, _NAMESPACE, seconds, rng.choice((1, 3)))
        pool = _value(rng, selector, is_chosen)
        given["nodes"].append(node if pool is None else {"name": node, "labels": {"pool": pool}})
        steps.append({"at": begin, "taint": f"{node} a=1:NoExecute"})
        # The first one leaves the pool in the end.
        steps += _relabelling(rng, node, selector, begin + seconds, is_chosen)
    if rng.random() < 0.6:
        slow: JsonObject = {"call": ["mark", "readPod"], "pod": f"{_NAMESPACE}/*", "for": 20.0}
        steps.append({"at": begin, "delay": {**slow, "back": round(rng.uniform(0.3, 2.9), 3)}})
    how = rng.choice((*({"pause": True},) * 6, {"mode": "evict"}, {"limits": {"concurrency": 1}}))
    _add_rule(document, {"name": "pool", "match": {"namespaces": [_NAMESPACE], "nodeSelector": selector}, **how})
    document["timeline"] = sorted([*timeline, *steps], key=lambda step: float(step["at"]))


def add_paused_pools(document: JsonObject, seed: int) -> None:
    """Let people pause pools by selectors, while nodes join them and leave them."""
    rng = random.Random(f"paused pools {seed}")
    given, settings, timeline = document["given"], document["settings"], document["timeline"]
    has_pauses = any("pause" in step for step in timeline)
    if rng.random() >= _SHARE or not has_pauses or not settings.keys().isdisjoint(("breaker", "builtIn")):
        return
    begin, paused = rng.choice((3.0, 20.0, 40.0)), rng.sample([*_SELECTORS], rng.choice((1, 1, 2)))
    steps = _pauses(rng, paused, begin)
    for node in _PAUSED_NODES:
        is_chosen, seconds = node != _PAUSED_NODES[1] or rng.random() < 0.5, rng.choice((0, 0, 5))
        pool = _value(rng, paused[0], is_chosen)
        body: JsonObject = {"name": node} | ({} if pool is None else {"labels": {"pool": pool}})
        pods, tainted_at = _pods(node, _PAUSED_NAMESPACE, seconds, rng.choice((1, 3))), begin
        if node == _PAUSED_NODES[2]:
            # It joins tainted, and its pods come a little later.
            joins_at = round(begin + rng.choice((1.0, 5.0, 9.0)), 3)
            steps.append({"at": joins_at, "createNode": {**body, "taints": ["a=1:NoExecute"]}})
            tainted_at = joins_at + 1.0
            steps += [{"at": tainted_at, "create": pod} for pod in pods]
        else:
            given["nodes"].append(body)
            given["pods"] += pods
            steps.append({"at": begin, "taint": f"{node} a=1:NoExecute"})
        if rng.random() < 0.7:
            steps += _relabelling(rng, node, paused[0], tainted_at + seconds, is_chosen, after=tainted_at)
    if rng.random() < 0.6:
        slow: JsonObject = {"call": ["mark", "readPod"], "pod": f"{_PAUSED_NAMESPACE}/*", "for": 20.0}
        steps.append({"at": begin, "delay": {**slow, "back": round(rng.uniform(0.3, 2.9), 3)}})
    document["timeline"] = sorted([*timeline, *steps], key=lambda step: float(step["at"]))


def _pauses(rng: random.Random, selectors: list[str], begin: float) -> list[JsonObject]:
    """Let people pause long before, or while pods are evicted, and sometimes write a key by hand."""
    steps: list[JsonObject] = []
    for selector in selectors:
        pause: JsonObject = {"selector": selector}
        if rng.random() < 0.3:
            pause["for"] = rng.choice((6, 12))
        at = max(0.0, begin + rng.choice((-10.0, -10.0, *_BESIDE)))
        steps.append({"at": round(at, 3), "pause": pause})
        steps.append({"at": begin + rng.choice((15.0, 25.0)), "resume": {"selector": selector}})
    if rng.random() < 0.15:
        key, at = "pause-selector.by-hand", max(0.0, begin + rng.choice((-8.0, 4.0)))
        steps.append({"at": at, "scribble": {"key": key, "value": rng.choice(_BY_HAND)}})
        steps.append({"at": begin + 12.0, "scribble": {"key": key, "value": "false"}})
    return steps


def _pods(node: str, namespace: str, seconds: int, count: int) -> list[JsonObject]:
    tolerations = [f"a for {seconds}"]
    names = [f"{node}-{number}" for number in range(count)]
    return [{"name": name, "namespace": namespace, "nodeName": node, "tolerations": tolerations} for name in names]


def _relabelling(
    rng: random.Random, node: str, selector: str, at: float, is_chosen: bool, after: float = 0.5
) -> list[JsonObject]:
    """Let a node leave a pool and join it, from when its pods are due."""
    steps: list[JsonObject] = []
    for _ in range(rng.choice((1, 1, 3))):
        at, is_chosen = round(max(after, at + rng.choice(_BESIDE)), 3), not is_chosen
        pool = _value(rng, selector, is_chosen)
        steps.append({"at": at, "label": f"{node} pool-" if pool is None else f"{node} pool={pool}"})
        at += rng.choice((0.0, 15.0))
    return steps


def _value(rng: random.Random, selector: str, chosen: bool) -> str | None:
    return rng.choice(_SELECTORS[selector][0 if chosen else 1])


def _add_rule(document: JsonObject, rule: JsonObject) -> None:
    """Add a rule before all others; it stays when the document's policy changes."""
    document["settings"]["policy"] = [rule, *document["settings"].get("policy", ())]
    for step in document["timeline"]:
        if "changePolicy" in step:
            step["changePolicy"] = [rule, *step["changePolicy"]]
