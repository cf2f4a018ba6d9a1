"""What is said of a pod that is gone, after a rollout: what replicas and the cluster answer is made up."""

import click

from taint_eviction_ctl.cli.explain import answer_lines
from taint_eviction_ctl.failover.document import free_document

NAME = "gone-pod"
_KEEPER = "taint-eviction-controller-6f7c9d8b5c-x2k4p_3b1f6f0e-5f3e-4c0a-9c55-0f8a7c2e4d10"
OUTCOME = {
    "time": "2030-01-01T03:12:00.412000Z",
    "outcome": "evicted",
    "namespace": "shop",
    "name": "cart-5d4f8-6b8f2",
    "uid": "3f0c8a52-7a0e-4a54-9f0e-1d2b6c0a9e11",
    "node": "worker-7",
    "owner": "ReplicaSet/cart-5d4f8",
    "taint": "maintenance=now:NoExecute",
    "toleration": None,
    "byDefault": False,
    "ceiling": None,
    "since": "2030-01-01T03:02:00Z",
    "sinceBy": "timeAdded",
    "deadline": "2030-01-01T03:02:00Z",
    "lateSeconds": 600.412,
    "heldSeconds": 0.0,
    "heldBy": ["the pause of all evictions (database migration)"],
    "builtInAt": "2030-01-01T03:02:00Z",
    "call": "delete",
    "tries": 1,
    "answer": "accepted",
    "budget": None,
    "keptBy": _KEEPER,
    "toldBy": "taint-eviction-controller-7b5d8c6f9d-lfpfg_8d2c4a6b-1e7f-4b9d-8a3c-5e6f7a8b9c0d",
    "toldByFormer": True,
    "dryRun": False,
}


def gone_pod() -> str:
    """Return the explanation of the pod, with a heading."""
    replacement = {
        "name": "cart-5d4f8-znkjv",
        "phase": "Running",
        "node": "worker-9",
        "created": "2030-01-01T03:12:01Z",
    }
    kept = "kube-system/taint-eviction-controller-history"
    document = {
        "known": False,
        "now": "2030-01-01T09:00:00Z",
        "ownerPods": [replacement],
        "leftNode": {"node": "worker-7", "taints": [], "gone": False},
        "sources": [
            {"name": _KEEPER, "since": "2029-12-30T14:20:00Z", "restoredFrom": kept, "problem": None},
            {"name": "events", "since": None, "restoredFrom": None, "problem": None},
        ],
    }
    lines = answer_lines(document, [OUTCOME], free_document(None), {"server": None})
    return "\n".join([f"== explain {OUTCOME['namespace']}/{OUTCOME['name']}", *map(click.unstyle, lines), ""])
