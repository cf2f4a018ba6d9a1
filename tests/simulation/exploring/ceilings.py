"""Shortens tolerations by rules of the policy, in some documents; and which rule matches a pod, for the oracle.

Part of ``generator`` and ``truth``; it uses random generators of its own, so that other documents are the same as
before this module existed.
"""

import fnmatch
import random
from collections.abc import Iterable, Mapping
from typing import Any

from taint_eviction.core.label_selectors import Requirement
from taint_eviction.core.policy import PolicyRule

JsonObject = dict[str, Any]

_ALONE_SHARE, _SHARE, _SALT = 0.06, 0.1, "ceilings 1171"
_KEYS = ("a", "node.kubernetes.io/unreachable")
_CEILINGS, _SECONDS = (0, 2, 5, 15), (1, 10, 20, 45, "ever", 2**63 - 1, 2**63 - 2)


# What a rule matches


def rule_matches(
    rule: PolicyRule, taint_key: str, namespace: str, labels: Mapping[str, str], node_labels: Mapping[str, str]
) -> bool:
    """Return whether a rule matches a pod that a taint with this key evicts."""
    of_key = not rule.taint_keys or any(fnmatch.fnmatchcase(taint_key, one) for one in rule.taint_keys)
    of_space = not rule.namespaces or any(fnmatch.fnmatchcase(namespace, one) for one in rule.namespaces)
    of_pod = all(chosen(term, labels) for term in rule.pod_selector)
    return of_key and of_space and of_pod and all(chosen(term, node_labels) for term in rule.node_selector)


def chosen(term: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether a term of a selector matches labels."""
    found = labels.get(term.key)
    if term.operator in ("In", "Exists"):
        return found is not None and (term.operator == "Exists" or found in term.values)
    return found is None or (term.operator == "NotIn" and found not in term.values)


def shorten_only(rules: Iterable[PolicyRule]) -> bool:
    """Return whether rules do no more than shorten tolerations, so that nothing holds a pod back."""
    return all(
        rule
        == PolicyRule(
            rule.name,
            rule.taint_keys,
            rule.namespaces,
            rule.pod_selector,
            rule.node_selector,
            max_toleration_seconds=rule.max_toleration_seconds,
        )
        for rule in rules
    )


# Documents


def shortened(seed: int) -> JsonObject | None:
    """Return a document about ceilings alone, in a small share of the seeds; None for the others.

    Nothing makes a process blind or slow, and nothing restrains evictions. So these must be punctual.
    """
    rng = random.Random(f"{_SALT} {seed}")
    if rng.random() >= _ALONE_SHARE:
        return None
    nodes = ["short-1", "short-2"]
    pods: list[JsonObject] = []
    for number in range(rng.randint(4, 9)):
        tolerations = [f"{key} for {rng.choice(_SECONDS)}" for key in _KEYS]
        pods.append({"name": f"short-{number}", "nodeName": rng.choice(nodes), "tolerations": tolerations})
    at = rng.choice((5.0, 20.0))
    steps: list[JsonObject] = []
    for node in nodes:
        taint: JsonObject | str = f"{rng.choice(_KEYS)}:NoExecute"
        if rng.random() < 0.5:
            taint = {"key": rng.choice(_KEYS), "effect": "NoExecute", "timeAdded": "now"}
        steps.append({"at": round(at + rng.uniform(0.0, 3.0), 3), "taint": {"node": node, "taints": [taint]}})
    for _ in range(rng.choice((0, 1, 1, 2))):
        later = round(at + rng.choice((1.0, 4.0, 8.0, 16.0)) + rng.choice((-0.01, 0.0, 0.006, 0.02)), 3)
        steps.append({"at": later, "changePolicy": _rules(rng)})
    if rng.random() < 0.4:
        steps.append({"at": round(at + rng.choice((2.0, 6.0)), 3), "restart": {"after": rng.choice((0, 2))}})
    return {
        "about": f"Generated from seed {seed}: ceilings.",
        "name": f"explored-{seed}",
        "settings": {"defaultTolerationSeconds": None, "policy": _rules(rng)},
        "given": {"nodes": nodes, "pods": pods},
        "timeline": sorted(steps, key=lambda step: float(step["at"])),
        "expect": {},
    }


def _rules(rng: random.Random) -> list[JsonObject]:
    if rng.random() < 0.25:
        return []
    rules: list[JsonObject] = []
    if rng.random() < 0.3:
        rules.append({"name": "spared", "match": {"taintKeys": [rng.choice(_KEYS)], "namespaces": ["o*"]}})
    match = {"taintKeys": [rng.choice((*_KEYS, "*"))]}
    return [*rules, {"name": "short", "match": match, "maxTolerationSeconds": rng.choice(_CEILINGS)}]


def add_ceilings(document: JsonObject, seed: int) -> None:
    """Put a ceiling behind the other rules of a document, in a share of the seeds."""
    rng = random.Random(f"{_SALT} beside {seed}")
    if rng.random() < _SHARE:
        add_ceiling(document, rng)


def add_ceiling(document: JsonObject, rng: random.Random) -> None:
    """Put a ceiling behind the other rules of a document."""
    document["settings"]["policy"] = _with_ceiling(rng, document["settings"].get("policy", []))
    for step in document["timeline"]:
        if "changePolicy" in step and rng.random() < 0.7:
            step["changePolicy"] = _with_ceiling(rng, step["changePolicy"])


def _with_ceiling(rng: random.Random, rules: list[JsonObject]) -> list[JsonObject]:
    # A rule that never applies is an error.
    if any(rule.get("match", {}).get("taintKeys") == ["*"] for rule in rules):
        return rules
    match = {"taintKeys": ["b", "node.kubernetes.io/*"]}
    return [*rules, {"name": "ceiling", "match": match, "maxTolerationSeconds": rng.choice(_CEILINGS)}]
