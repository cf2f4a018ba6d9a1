"""The fields with which journal, audit log and log name a pod and the deciding taint. Their names are stable."""

from typing import Any

from taint_eviction.core.control_state import PauseScope
from taint_eviction.core.decision import TaintVerdict
from taint_eviction.core.objects import PodRef


def pod_named(ref: PodRef, node_name: str) -> dict[str, Any]:
    """Return the fields that name a pod and its node."""
    return {"pod": str(ref), "uid": ref.uid, "node": node_name}


def taint_named(verdict: TaintVerdict) -> dict[str, Any]:
    """Return the fields that name a taint and the toleration that counts for it, None if no toleration matches."""
    return {"taint": str(verdict.taint), "toleration": None if verdict.toleration is None else str(verdict.toleration)}


def scope_named(scope: PauseScope) -> dict[str, str]:
    """Return the fields that name the scope of a pause: in words (``scope``), and as a value."""
    return {"scope": str(scope), "scope_kind": scope.kind} | ({scope.kind: scope.name} if scope.name else {})
