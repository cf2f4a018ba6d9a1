"""Lets some generated documents adopt countdowns, beside the built-in controller.

This comes last and uses a random generator of its own, so that documents without adoption are the same as before this
module existed. Part of ``generator``.
"""

import random
import re
from typing import Any

JsonObject = dict[str, Any]

_SHARE = 0.3
_CALLS = ("adopt", "adopt", "giveBack", "listAdopted", "readPod", "readNode")
_SHORT = re.compile(r"(?P<what>[^ :]+) for (?!ever)(?P<span>.+)")
_NOTE = "taint-eviction/seconds"
_NOTES = (
    "nonsense",
    "{}",
    "[]",
    '[{"key": "a", "operator": "Exists", "effect": "NoExecute", "seconds": "1"}]',
    '[{"key": "a", "operator": "Exists", "effect": "NoExecute", "seconds": 15}]',
    None,
)


def add_adoption(document: JsonObject, seed: int) -> None:
    """Let some documents adopt, with faults of adoption's calls; never a dry run."""
    rng = random.Random(f"built-in countdown {seed}")
    settings = document["settings"]
    if rng.random() >= _SHARE or "dryRun" in settings:
        return
    settings |= {"adopt": True, "adoptFrom": rng.choice((0, 1, 5, 10)), "builtIn": "1.36"}
    last = max([70.0, *(float(step["at"]) for step in document["timeline"])])
    steps = [{"at": _at(rng, last), **_fault(rng)} for _ in range(rng.choice((0, 1, 2, 4)))]
    steps += _notes(rng, document, last) + _orders(rng, last)
    steps += _without_the_flag(random.Random(f"without the flag {seed}"), document, last)
    if rng.random() < 0.3:
        steps.append({"at": _at(rng, last), "restart": {"replica": "built-in", "after": rng.choice((0, 1, 15))}})
    for quarter in (_away, _two_taints, _ended, _recreated, _further):
        # Nobody can notice a wrong date that is written while no controller runs.
        dated = quarter is _away and "dated-1" in document["given"]["nodes"]
        if rng.random() < 0.5 and not dated:
            node, pod, own = quarter(rng, last, settings["replicas"])
            document["given"]["nodes"].append(node)
            document["given"]["pods"].append(pod)
            steps += own
    document["timeline"] = sorted([*document["timeline"], *steps], key=lambda step: float(step["at"]))
    _make_valid(document)


# Quarters: each has a node, a pod on it, and what happens to these two


def _away(rng: random.Random, last: float, replicas: int) -> tuple[str, JsonObject, list[JsonObject]]:
    """Remove a taint while no controller runs."""
    at = round(rng.uniform(1.0, last), 3)
    steps: list[JsonObject] = [{"at": at, "taint": "adopt-away a=1:NoExecute"}]
    begin = at + rng.choice((2.0, 20.0))
    steps += [{"at": begin, "restart": {"after": 10, "replica": number + 1}} for number in range(replicas)]
    steps.append({"at": begin + round(rng.uniform(0.0, 9.0), 3), "untaint": "adopt-away"})
    return "adopt-away", {"name": "adopt-away", "nodeName": "adopt-away", "tolerations": ["a for 120"]}, steps


def _two_taints(rng: random.Random, last: float, _: int) -> tuple[str, JsonObject, list[JsonObject]]:
    """Set two taints, each with a toleration of its own, and remove one."""
    at = round(rng.uniform(1.0, last), 3)
    steps: list[JsonObject] = [
        {"at": at, "taint": "adopt-two a=1:NoExecute b=1:NoExecute"},
        {"at": at + rng.choice((0.5, 10.0, 40.0)), "untaint": f"adopt-two {rng.choice('ab')}"},
    ]
    tolerations = rng.sample(["a for 120", "b for 45", "b=1 for 20"], 3)
    return "adopt-two", {"name": "adopt-two", "nodeName": "adopt-two", "tolerations": tolerations}, steps


def _ended(rng: random.Random, last: float, _: int) -> tuple[str, JsonObject, list[JsonObject]]:
    """Let a pod finish shortly before or after its node is tainted."""
    at = round(rng.uniform(1.0, last), 3)
    steps: list[JsonObject] = [
        {"at": at, "taint": "adopt-ended a=1:NoExecute"},
        {"at": max(0.5, at + rng.choice((-1.0, 0.01, 0.02, 0.03, 5.0))), "finish": "adopt-ended"},
    ]
    return "adopt-ended", {"name": "adopt-ended", "nodeName": "adopt-ended", "tolerations": ["a for 45"]}, steps


def _recreated(rng: random.Random, last: float, _: int) -> tuple[str, JsonObject, list[JsonObject]]:
    """Recreate a pod while it is being adopted or given back."""
    at = round(rng.uniform(2.0, last), 3)
    call = rng.choice(("adopt", "giveBack"))
    then = at if call == "adopt" else at + 10.0
    steps: list[JsonObject] = [
        {"at": at - 1.0, "delay": {"call": call, "pod": "adopt-again", "by": 2, "times": 1}},
        {"at": at, "taint": "adopt-again a=1:NoExecute"},
        {"at": at + 10.0, "untaint": "adopt-again"},
        {"at": round(then + rng.uniform(0.03, 2.0), 3), "recreate": "adopt-again"},
    ]
    return "adopt-again", {"name": "adopt-again", "nodeName": "adopt-again", "tolerations": ["a for 45"]}, steps


def _further(rng: random.Random, _last: float, _: int) -> tuple[str, JsonObject, list[JsonObject]]:
    """Let another countdown of a pod begin after its first one is taken over."""
    at = round(rng.uniform(6.0, 9.0), 3)
    again = {"pod": "adopt-more", "tolerations": ["a for 200", "b for 30"]}
    more: JsonObject = rng.choice(({"taint": "adopt-more b=1:NoExecute"}, {"tolerate": again}))
    steps: list[JsonObject] = [{"at": at, "taint": "adopt-more a=1:NoExecute"}, {"at": at + 32.0, **more}]
    tolerations = ["a for 45", "b for 30"]
    return "adopt-more", {"name": "adopt-more", "nodeName": "adopt-more", "tolerations": tolerations}, steps


def _notes(rng: random.Random, document: JsonObject, last: float) -> list[JsonObject]:
    """Let somebody write nonsense into the annotation for notes."""
    # Pods of a range have no names yet.
    single = [pod for pod in document["given"]["pods"] if "{" not in pod["name"]]
    pods = [f"{pod.get('namespace', 'default')}/{pod['name']}" for pod in single]
    return [
        {"at": _at(rng, last), "annotate": {"pod": rng.choice(pods), "annotations": {_NOTE: rng.choice(_NOTES)}}}
        for _ in range(rng.choice((0, 0, 1, 2)))
    ]


def _without_the_flag(rng: random.Random, document: JsonObject, last: float) -> list[JsonObject]:
    """Let somebody restart all replicas without the flag, and perhaps with it again.

    The taint of a pod that is marked by then goes while no controller runs.
    """
    if rng.random() >= 0.4:
        return []
    node = "adopt-left"
    document["given"]["nodes"].append(node)
    document["given"]["pods"].append({"name": node, "nodeName": node, "tolerations": ["a for 60"]})
    at = round(rng.uniform(60.0, last), 3)
    instants = [(at, False), *([(round(at + rng.uniform(5.0, 60.0), 3), True)] if rng.random() < 0.3 else [])]
    steps: list[JsonObject] = [
        {"at": begin, "restart": {"after": rng.choice((1, 10)), "replica": replica, "adopt": adopts}}
        for begin, adopts in instants
        for replica in range(1, document["settings"]["replicas"] + 1)
    ]
    steps.append({"at": round(at - 50.0, 3), "taint": f"{node} a=1:NoExecute"})
    return [*steps, {"at": round(at + 0.5, 3), "untaint": node}]


def _orders(rng: random.Random, last: float) -> list[JsonObject]:
    """Let somebody order that nothing is adopted, and perhaps undo the order."""
    if rng.random() >= 0.2:
        return []
    at = _at(rng, last)
    undone = {"at": round(at + rng.uniform(0.0, 30.0), 3), "handBack": "undo"}
    return [{"at": at, "handBack": None}, *([undone] if rng.random() < 0.6 else [])]


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
    """Give each toleration with seconds the effect NoExecute: the API server rejects changes of other pods."""
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
