"""Input from outside: real objects as JSON, and the ways in which they are malformed."""

import random
from typing import Any

from hypothesis import strategies as st

# The API server's clock when the tests begin.
EPOCH = 1_900_000_000.0
BEFORE = "2030-03-17T17:46:30Z"  # 10 s before EPOCH
LONG_BEFORE = "2030-03-17T16:46:40Z"

rngs = st.integers(0, 2**32).map(random.Random)
any_json: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["ADDED", "MODIFIED", "metadata", "True", BEFORE, "9" * 30, "x" * 5000, "\x00", "a\nb\u2028c"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "uid", "type", "key"]) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def node_json(version: object, *taints: str, name: str = "n1") -> dict[str, Any]:
    """Return a node whose NoExecute taints were set 10 s ago."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": LONG_BEFORE,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {"volumes": "true"},
            "managedFields": [
                {"manager": "kubectl-taint", "time": BEFORE, "fieldsV1": {"f:spec": {"f:taints": {}}}},
                {"manager": "kubelet", "subresource": "status", "time": BEFORE, "fieldsV1": {"f:status": {}}},
            ],
        },
        "spec": {
            "podCIDR": "10.0.0.0/24",
            "taints": [{"key": key, "value": "", "effect": "NoExecute", "timeAdded": BEFORE} for key in taints],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "images": [{}]},
    }


def pod_json(version: object, name: str, *tolerations: dict[str, Any], on: str = "n1") -> dict[str, Any]:
    """Return a pod that was bound an hour ago; it has no hold and was never marked."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": LONG_BEFORE,
            "labels": {"app": name},
            "annotations": {"seen": "yes"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web"}],
            "managedFields": [
                {"manager": "kubelet", "subresource": "status", "fieldsV1": {"f:status": {"f:phase": {}}}}
            ],
        },
        "spec": {"nodeName": on, "containers": [{"name": "c"}], "tolerations": list(tolerations)},
        "status": {
            "phase": "Running",
            "startTime": LONG_BEFORE,
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": LONG_BEFORE}],
        },
    }


def tolerates_json(key: str, seconds: int | None = None) -> dict[str, Any]:
    """Return a toleration of every value of a key; with ``seconds`` None it tolerates indefinitely."""
    told: dict[str, Any] = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return told if seconds is None else {**told, "tolerationSeconds": seconds}


def is_of_another_type(value: object, than: object) -> bool:
    """Return whether a value has the wrong type. Null is never wrong: it counts as a missing field."""
    return value is not None and type(value) is not type(than)


def spoilt(document: Any, rng: random.Random, value: Any) -> Any:
    """Replace some part of a document, never all of it, by ``value``, if that part is of another type."""
    if isinstance(document, list) and document:
        at = rng.randrange(len(document))
        return [*document[:at], _spoilt_or_put(document[at], rng, value), *document[at + 1 :]]
    if isinstance(document, dict) and document:
        key = rng.choice(list(document))
        return {**document, key: _spoilt_or_put(document[key], rng, value)}
    return document


def _spoilt_or_put(document: Any, rng: random.Random, value: Any) -> Any:
    deeper = isinstance(document, list | dict) and document and rng.random() < 0.75
    if deeper or not is_of_another_type(value, document):
        return spoilt(document, rng, value)
    return value
