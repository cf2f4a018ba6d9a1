"""The explanation of one pod as a document for machines: whether it is evicted, why, when, and what holds it.
Pure, like ``status_document``, whose words it uses. This module does not format for people (``cli``).
"""

from taint_eviction.core.decision import Evict, TaintVerdict
from taint_eviction.core.instants import Moment, TimeSource
from taint_eviction.core.matching import discouraging, repelling
from taint_eviction.core.objects import SHUTTING_DOWN, NamespacedName, Taint
from taint_eviction.core.sentences import STARTS_NO_EVICTION, out_of_service_note
from taint_eviction.core.status import Explanation, Status
from taint_eviction.core.text import JsonObject
from taint_eviction.reporting.status_document import (
    ProcessState,
    deadline,
    document_head,
    epoch_text,
    eviction,
    finite,
    time_text,
    whose,
)

_KIND = "Explanation"

# How many nodes are named on which an unknown pod may be.
_MAX_NODES = 5


def unknown_document(key: NamespacedName, status: Status, process: ProcessState, now: Moment) -> JsonObject:
    """Return the document for a pod that is not known."""
    text = "there is no such pod, or its node has no NoExecute taint: only pods on nodes that have one are known"
    idle = [name for name, note in status.out_of_service_notes().items() if note == STARTS_NO_EVICTION]
    if idle:
        text += f"; if it is on {', '.join(idle[:_MAX_NODES])}: {STARTS_NO_EVICTION}"
    if process.why_not:
        text = f"this replica does not know all pods: {process.why_not}"
    return {
        **document_head(_KIND, process, now),
        "namespace": key.namespace,
        "name": key.name,
        "known": False,
        "text": text,
    }


def explanation_document(explanation: Explanation, status: Status, process: ProcessState, now: Moment) -> JsonObject:
    """Return the document for a pod: whether it is evicted, why, when, and what holds it."""
    record, decision, pending = explanation.record, explanation.decision, explanation.pending
    pod = record.pod
    evict, stays = (decision, None) if isinstance(decision, Evict) else (None, decision.reason)
    node = status.nodes.known.get(pod.node_name or "")
    taints = () if node is None else node.node.taints
    return {
        **document_head(_KIND, process, now),
        "namespace": pod.ref.key.namespace,
        "name": pod.ref.key.name,
        "known": True,
        "uid": pod.ref.uid,
        "node": pod.node_name,
        "owner": pod.controller and pod.controller.argument,
        "nodeSays": SHUTTING_DOWN if node is not None and node.node.is_shutting_down else None,
        "outcome": "deleted" if record.deleted else "leaves" if stays is None else "stays",
        "staysBecause": stays and stays.value,
        "leavesBecause": evict and str(evict.deciding.taint),
        **({} if evict is None else deadline(evict, now)),
        "taints": [_taint(taint, status, pod.node_name, now) for taint in taints],
        "verdicts": [_verdict(verdict, now) for verdict in decision.verdicts],
        "holdAnnotation": None if pod.hold_seconds is None else _annotation(pod.hold_seconds, evict),
        "adoption": whose(pod, status, process),
        "eviction": pending and eviction(pending, status, process, now),
        "heldLater": _held_later(explanation, status, now),
        "nodeNote": (node and out_of_service_note(node.node)) or None,
        "notSchedulableAgain": [str(taint) for taint in repelling(pod.tolerations, taints)],
        "preferablyNotScheduledAgain": [str(taint) for taint in discouraging(pod.tolerations, taints)],
    }


def _held_later(explanation: Explanation, status: Status, now: Moment) -> JsonObject | None:
    """Return what would hold the pod if it were due now; None: nothing, or it is due."""
    reason, pending = explanation.held_later, explanation.pending
    if reason is None or pending is None:
        return None
    return {"reason": reason.name.lower(), "text": status.says(reason, pending, now)[0]}


def _taint(taint: Taint, status: Status, node_name: str | None, now: Moment) -> JsonObject:
    """Return a taint and its start: this process watches NoExecute taints; for others it knows only ``timeAdded``."""
    seen = next((seen.since for seen in status.nodes.taints_on(node_name) or () if seen.taint == taint), None)
    if seen is not None:
        return {"taint": str(taint), "since": time_text(seen.start_at, now), "sinceBy": seen.source.value}
    by = None if taint.time_added is None else TimeSource.TIME_ADDED.value
    return {"taint": str(taint), "since": epoch_text(taint.time_added), "sinceBy": by}


def _verdict(verdict: TaintVerdict, now: Moment) -> JsonObject:
    return {
        "taint": str(verdict.taint),
        "toleration": verdict.toleration and str(verdict.toleration),
        "overruled": verdict.overruled and str(verdict.overruled),
        "byDefault": verdict.by_default,
        "ceiling": verdict.ceiling and verdict.ceiling._asdict(),
        "since": time_text(verdict.start_at, now),
        "sinceBy": verdict.start_source.value,
        "until": None if verdict.fire_at is None else time_text(verdict.fire_at, now),
        "leftToKubelet": verdict.left_to_kubelet,
    }


def _annotation(hold_seconds: float, evict: Evict | None) -> JsonObject:
    """Return the hold that the annotation requests (None: indefinitely) and what is granted (None: not applicable)."""
    return {"asksSeconds": finite(hold_seconds), "grantedSeconds": evict and evict.held_seconds}
