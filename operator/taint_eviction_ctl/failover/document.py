"""What holds pods, as documents for machines; ``explain`` and ``status --stuck`` write their texts from them."""

from collections.abc import Sequence

from taint_eviction.core.text import JsonObject
from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction.reporting.status_document import API_VERSION
from taint_eviction_ctl.failover.findings import FailoverCase, find
from taint_eviction_ctl.failover.objects import PodObject
from taint_eviction_ctl.failover.wording import Finding, NextStep


def held_document(case: FailoverCase) -> JsonObject:
    """Return what holds a pod that is Terminating; the first thing to do comes first."""
    pod = case.pod
    return {
        **_head(pod),
        "askedToGoAt": _time(pod.asked_epoch),
        "graceEndsAt": _time(pod.deletion_epoch),
        "terminatingSeconds": None if pod.asked_epoch is None else round(case.now_epoch - pod.asked_epoch),
        "findings": [_finding(finding) for finding in find(case)],
    }


def free_document(pod: PodObject | None) -> JsonObject:
    """Return that nothing holds a pod: its deletion was not requested, or it does not exist (None)."""
    nobody = {"terminating": False, "uid": None, "node": None, "phase": None, "podReady": None}
    head = nobody if pod is None else {**_head(pod), "phase": pod.phase, "podReady": pod.ready}
    return {**head, "askedToGoAt": None, "graceEndsAt": None, "terminatingSeconds": None, "findings": []}


def unread_document(why: str) -> JsonObject:
    """Return that it is not known whether anything holds a pod."""
    return {**free_document(None), "terminating": None, "unchecked": [why]}


def stuck_document(
    cases: Sequence[FailoverCase], out_of_service: Sequence[str], unchecked: Sequence[str], now_epoch: float
) -> JsonObject:
    """Return the pods that are stuck, by node, and on each node the longest wait first.

    ``out_of_service``: the nodes with that taint, which a person has to remove in the end.
    """
    ordered = sorted(cases, key=lambda case: (case.pod.node, case.pod.asked_epoch or 0.0, case.pod.name))
    return {
        "apiVersion": API_VERSION,
        "kind": "StuckPods",
        "now": format_rfc3339(now_epoch),
        "pods": [{"namespace": case.pod.namespace, "name": case.pod.name, **held_document(case)} for case in ordered],
        "outOfServiceNodes": sorted(out_of_service),
        "unchecked": list(unchecked),
    }


def _head(pod: PodObject) -> JsonObject:
    return {"terminating": pod.deletion_epoch is not None, "uid": pod.uid, "node": pod.node or None}


def _finding(finding: Finding) -> JsonObject:
    return {
        "cause": finding.cause.value,
        "text": finding.text,
        "next": finding.next,
        "command": finding.command or None,
        "steps": [_step(step) for step in finding.steps or (NextStep("next", finding.next, finding.command),)],
    }


def _step(step: NextStep) -> JsonObject:
    return {"when": step.when, "text": step.text, "command": step.command or None}


def _time(epoch: float | None) -> str | None:
    return None if epoch is None else format_rfc3339(epoch)
