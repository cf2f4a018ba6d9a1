"""Lets some made-up documents adopt countdowns, beside the built-in controller.

After all else, and from a generator of its own: so the other documents are what they were before this was thought of.
Part of ``generator``.
"""

import random
import re
from typing import Any

JsonObject = dict[str, Any]

_SHARE = 0.3
_CALLS = ("adopt", "adopt", "giveBack", "listAdopted", "readPod", "readNode")
_SHORT = re.compile(r"(?P<what>[^ :]+) for (?!ever)(?P<span>.+)")
_NOTES = (
    "nonsense",
    '{"by": "controller"}',
    '{"by": "nobody", "tolerations": []}',
    '{"by": "controller", "tolerations": [{"key": "a", "operator": "Exists", "occurrence": 0, "seconds": "1"}]}',
)


def add_adoption(document: JsonObject, seed: int) -> None:
    """Let a document adopt, with faults in that, unless it is a dry run."""
    rng = random.Random(f"adoption {seed}")
    settings = document["settings"]
    if rng.random() >= _SHARE or "dryRun" in settings:
        return
    settings |= {"adopt": True, "adoptFrom": rng.choice((0, 1, 5, 10)), "builtIn": "1.36"}
    _make_valid(document)
    last = max([70.0, *(float(step["at"]) for step in document["timeline"])])
    steps = [{"at": _at(rng, last), **_fault(rng)} for _ in range(rng.choice((0, 1, 2, 4)))]
    pods = [f"{pod.get('namespace', 'default')}/{pod['name']}" for pod in document["given"]["pods"]]
    for _ in range(rng.choice((0, 0, 1, 2))):
        note = {"taint-eviction/adopted": rng.choice(_NOTES)}
        steps.append({"at": _at(rng, last), "annotate": {"pod": rng.choice(pods), "annotations": note}})
    if rng.random() < 0.2:
        ordered_at = _at(rng, last)
        steps.append({"at": ordered_at, "handBack": None})
        if rng.random() < 0.6:
            steps.append({"at": ordered_at + round(rng.uniform(0.0, 30.0), 3), "handBack": "undo"})
    if rng.random() < 0.3:
        steps.append({"at": _at(rng, last), "restart": {"replica": "built-in", "after": rng.choice((0, 1, 15))}})
    document["timeline"] = sorted([*document["timeline"], *steps], key=lambda step: float(step["at"]))


def _at(rng: random.Random, last: float) -> float:
    return round(rng.uniform(0.5, last), 3)


def _fault(rng: random.Random) -> JsonObject:
    which: JsonObject = {"call": rng.choice(_CALLS)}
    which |= {"times": rng.randint(1, 6)} if rng.random() < 0.5 else {"for": rng.choice((1, 10, 40))}
    action = rng.choice(("refuse", "refuse", "hang", "delay"))
    if action == "delay":
        return {action: {**which, "by": rng.choice((0, 0.02, 0.5, 3)), "back": rng.choice((0, 0.02, 0.5, 3))}}
    if action == "refuse" and rng.random() < 0.8:
        which["status"] = rng.choice((403, 409, 422, 429, 500))
    return {action: {**which, "tookEffect": rng.random() < 0.4}}


def _make_valid(part: Any) -> None:
    """Give each toleration with seconds the effect NoExecute: the API server changes no pod that has others."""
    if isinstance(part, list):
        for each in part:
            _make_valid(each)
    if not isinstance(part, dict):
        return
    for name, value in part.items():
        if name == "tolerations" and isinstance(value, list):
            part[name] = [_valid(each) for each in value]
        else:
            _make_valid(value)


def _valid(toleration: Any) -> Any:
    if isinstance(toleration, str):
        found = _SHORT.fullmatch(toleration)
        return toleration if found is None else f"{found['what']}:NoExecute for {found['span']}"
    if isinstance(toleration, dict) and "tolerationSeconds" in toleration:
        return {"effect": "NoExecute", **toleration}
    return toleration
