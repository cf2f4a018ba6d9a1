"""Pods as a tenant may write them: up to 1.5 MB, the most that the API server stores, in any one field."""

from collections.abc import Callable
from typing import Any

import orjson
from tests.property.outside import BEFORE, pod_json

from taint_eviction.core.objects import MARK_SECONDS

MOST_BYTES = 1_500_000
Body = dict[str, Any]


def _texts(size: int) -> str:
    return "9" * size


def _filled(entry: Callable[[int], Any], bytes_each: int, size: int) -> list[Any]:
    return [entry(number) for number in range(size // bytes_each)]


def _with(section: str, field: str, value: Any) -> Body:
    body = pod_json(7, "hostile")
    body[section] = {**body[section], field: value}
    return body


def _annotated(key: str, text: str) -> Body:
    return _with("metadata", "annotations", {key: text})


def _tolerating(entry: Callable[[int], Any], bytes_each: int) -> Callable[[int], Body]:
    return lambda size: _with("spec", "tolerations", _filled(entry, bytes_each, size))


def _marking(size: int) -> Body:
    """Return a pod with as many conditions as managers that may have written them."""
    target = 'k:{"type":"DisruptionTarget"}'
    body = _with(
        "status",
        "conditions",
        _filled(lambda _: {"type": "DisruptionTarget", "status": "True", "reason": "x"}, 60, size // 2),
    )
    fields: Body = {"f:status": {"f:conditions": {target: {"f:status": {}}}}}
    body["metadata"]["managedFields"] = _filled(lambda n: {"manager": str(n), "fieldsV1": fields}, 120, size // 2)
    return body


def _noted(size: int) -> Body:
    """Return a pod whose long list is full of marks, with a note of as many of them as are read."""
    texts = {"key": "maintenance", "effect": "NoExecute"}
    body = _with("spec", "tolerations", _filled(lambda _: {**texts, "tolerationSeconds": MARK_SECONDS}, 85, size))
    among = len(body["spec"]["tolerations"])
    note = [{**texts, "occurrence": at, "among": among, "seconds": 60} for at in range(0, among, among // 60)]
    body["metadata"]["annotations"] = {"taint-eviction/seconds": orjson.dumps(note).decode()}
    return body


HOSTILE: dict[str, Callable[[int], Body]] = {
    "a hold of digits": lambda size: _annotated("taint-eviction/hold", _texts(size)),
    "a hold of minutes": lambda size: _annotated("taint-eviction/hold", "1m" * (size // 2)),
    "a note of braces": lambda size: _annotated("taint-eviction/adopted", "[" * size),
    "a note of tolerations": lambda size: _annotated("taint-eviction/seconds", '{"a":1},' * (size // 10)),
    "a note of many marked tolerations": _noted,
    "a mirror's digest": lambda size: _annotated("kubernetes.io/config.mirror", _texts(size)),
    "one annotation": lambda size: _annotated("notes", "<" * size),
    "annotations": lambda size: _with("metadata", "annotations", {f"a{n}": "" for n in range(size // 10)}),
    "labels": lambda size: _with("metadata", "labels", {f"l{n}": f"v{n}" for n in range(size // 18)}),
    "finalizers": lambda size: _with("metadata", "finalizers", _filled(str, 8, size)),
    "owners": lambda size: _with(
        "metadata", "ownerReferences", _filled(lambda n: {"kind": "A", "name": "a", "uid": str(n)}, 36, size)
    ),
    "managers": lambda size: _with(
        "metadata", "managedFields", _filled(lambda n: {"manager": str(n), "time": BEFORE, "fieldsV1": {}}, 66, size)
    ),
    "tolerations of seconds below 0": _tolerating(
        lambda n: {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -n}, 65
    ),
    "tolerations of centuries": _tolerating(
        lambda n: {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": (1 << 62) + n}, 80
    ),
    "a condition's reason": lambda size: _with(
        "status", "conditions", [{"type": "DisruptionTarget", "status": "True", "reason": "r" * size}]
    ),
    "conditions": lambda size: _with(
        "status", "conditions", _filled(lambda n: {"type": f"t{n}", "status": "True"}, 32, size)
    ),
    "conditions and managers": _marking,
    "containers": lambda size: _with("spec", "containers", _filled(lambda n: {"name": f"c{n}"}, 16, size)),
    "an owner": lambda size: _with(
        "metadata",
        "ownerReferences",
        [{"kind": "A", "name": "😀" + "a" * size, "uid": "u" * 10, "controller": True}],
    ),
    "tolerations of everything": _tolerating(lambda _: {"operator": "Exists"}, 22),
    "equal tolerations": _tolerating(lambda _: {"key": "a"}, 12),
    "tolerations of a key each": _tolerating(lambda n: {"key": f"k{n}", "operator": "Exists"}, 38),
    "tolerations of a value each": _tolerating(
        lambda n: {"key": "maintenance", "value": f"v{n}", "effect": "NoExecute", "tolerationSeconds": n}, 90
    ),
    "tolerations of everything for seconds each": _tolerating(
        lambda n: {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1000 + n}, 65
    ),
    "tolerations of another effect": _tolerating(lambda n: {"key": f"k{n}", "effect": "NoSchedule"}, 40),
    "tolerations of numbers": _tolerating(lambda n: {"key": "maintenance", "operator": "Gt", "value": str(n)}, 55),
    "tolerations of smaller numbers": _tolerating(
        lambda n: {"key": "maintenance", "operator": "Lt", "value": str(-n), "effect": "NoExecute"}, 75
    ),
}
