"""The status of a controller as a document for machines: who acts, what holds evictions, and which pods are due. Pure:
core and process in, JSON-able values out, with stable names. Times are the API server's, durations are seconds, and
None means that there is no value. This module does not serve HTTP (``probe_server``), and does not format for people
(``cli``).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from taint_eviction.core.adoption import builtin_seconds, has_countdown, may_be_marked
from taint_eviction.core.breaker_policy import BreakerPolicy, NodeThreshold
from taint_eviction.core.breaker_table import MAX_NAMES, Criterion, ZoneRow
from taint_eviction.core.control_state import ControlState, Latch, Pause
from taint_eviction.core.decision import Ceiling, Evict
from taint_eviction.core.events import Block
from taint_eviction.core.guards import WaitReason
from taint_eviction.core.instants import Moment
from taint_eviction.core.label_selectors import LabelSelector
from taint_eviction.core.leaving_order import TierWait
from taint_eviction.core.objects import Pod, PodRef
from taint_eviction.core.pods import Following, InFlight, Queued, Retrying, Stabilizing, Waiting
from taint_eviction.core.policy import EvictionPolicy, Limit, PolicyRule
from taint_eviction.core.sentences import bracketed
from taint_eviction.core.status import Pending, Status
from taint_eviction.core.text import JsonObject, many
from taint_eviction.files.kubernetes_times import format_rfc3339, format_utc
from taint_eviction.kube.control_state_data import UNKNOWN_EPOCH
from taint_eviction.reporting.pending_pages import StatusPage

API_VERSION = "taint-eviction/v1alpha1"

STATES = ("inFlight", "due", "retrying", "blocked", "held", "waiting")

# How many pods that could not be adopted a status names.
MAX_REFUSED = 20

BUILT_INS = "the built-in controller evicts it, too: nothing holds it"
TAKEN_OVER_LATER = "its countdown is taken over shortly before the built-in controller's timer ends"

# For how many pairs of node and taint a status counts the pods.
MAX_GROUPS = 100

_NOT_LEADING = {"reason": "not_leading", "text": "this replica does not lead: the one that does evicts it"}


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """The Lease that decides which replica acts; ``holder`` as last seen, "" if there is none."""

    namespace: str
    name: str
    holder: str


@dataclass(frozen=True, slots=True)
class AdoptionState:
    """Which countdowns are taken over. ``enabled`` False: this process gives back what others have taken over.

    ``adopted``: how many pods have a mark with a note. ``refused`` and ``not_given_back``: pods that could not be
    changed, and why. ``lost_notes``: pods with a mark whose note is gone, though it is known; ``unexplained``: pods
    with a mark of unknown origin. ``policy_problem``: why nothing is taken over, "": nothing is wrong with the
    admission policy. ``stopped_by``: ``hand-back`` was ordered, None: it was not. ``from_seconds``: shorter tolerances
    are left to the built-in controller.
    """

    enabled: bool
    adopted: int
    refused: Mapping[PodRef, str]
    not_given_back: Mapping[PodRef, str]
    lost_notes: Sequence[PodRef]
    unexplained: Sequence[PodRef]
    policy_problem: str
    stopped_by: Pause | None
    from_seconds: float


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """This process's account at the API server, and whether its policy is in force; "" and None: not known."""

    account: str
    in_force: bool | None


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The process that answers. ``lease`` None: it runs alone. ``why_not``: why it is not ready, "" if it is.

    ``warnings``: what needs attention although the process works, one sentence each. ``adoption`` None: no countdown is
    adopted. ``admission`` None: it is not asked about.
    """

    version: str
    identity: str
    leading: bool
    lease: LeaseSeen | None
    dry_run: bool
    why_not: str
    warnings: tuple[str, ...] = ()
    adoption: AdoptionState | None = None
    admission: AdmissionState | None = None


# Status


def status_document(status: Status, page: StatusPage, process: ProcessState) -> JsonObject:
    """Return the status document. All pods that are to be evicted are counted; one page of them is listed."""
    now, breaker, control_state = page.now, status.breaker, status.control_state
    return {
        **document_head("Status", process, now),
        "policy": _policy(status.policy),
        "breaker": {
            "enabled": breaker.policy.enabled,
            **_latch(breaker.latch),
            **_surge(status, now),
            "opensAt": _thresholds(breaker.policy),
            "criteria": [_criterion(each) for each in status.criteria(now)] if breaker.policy.enabled else [],
            "zones": [_zone(row) for row in status.zones(now)] if breaker.policy.enabled else [],
            "uncounted": _uncounted(status, now) if breaker.policy.enabled else [],
        },
        "ordersKnown": control_state is not None,
        "pauses": [] if control_state is None else list(_pauses(control_state)),
        "adoption": process.adoption and _adoption(process.adoption),
        "admissionPolicy": process.admission and _admission(process.admission),
        "taintedNodes": sum(1 for _ in status.nodes.tainted()),
        "outOfServiceNodes": [{"node": name, "text": note} for name, note in status.out_of_service_notes().items()],
        "shuttingDownNodes": [{"node": name, "text": note} for name, note in status.shutting_down_notes(now).items()],
        "counts": {state: page.counts[state] for state in STATES},
        "pendingTotal": page.counts.total(),
        "pendingNodes": len({node for node, _ in page.groups}),
        **_groups(page),
        "pending": page.rows,
        "continue": page.last and str(page.last),
    }


def document_head(kind: str, process: ProcessState, now: Moment) -> JsonObject:
    """Return the fields of every document: which replica answers, and when."""
    lease = process.lease
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "now": format_rfc3339(now.server_epoch),
        "version": process.version,
        "identity": process.identity,
        "leading": process.leading,
        "lease": lease and {"namespace": lease.namespace, "name": lease.name, "holder": lease.holder or None},
        "dryRun": process.dry_run,
        "ready": not process.why_not,
        "notReadyBecause": process.why_not or None,
        "warnings": list(process.warnings),
    }


def _policy(policy: EvictionPolicy) -> JsonObject:
    limits = {"all": policy.total, "perNode": policy.per_node, "perNamespace": policy.per_namespace}
    return {
        "mode": policy.mode.value,
        "evictTimeoutSeconds": finite(policy.evict_timeout_seconds),
        "budgetsOnLostNodes": "ignore" if policy.ignores_budgets_on_lost_nodes else "respect",
        "limits": {scope: _limit(limit) for scope, limit in limits.items()},
        "rules": [_rule(rule) for rule in policy.rules],
    }


def _limit(limit: Limit) -> JsonObject | None:
    fields = {"perSecond": limit.per_second, "burst": limit.burst, "atOnce": limit.at_once}
    return {name: value for name, value in fields.items() if value is not None} or None


def _rule(rule: PolicyRule) -> JsonObject:
    return {
        "name": rule.name,
        "taintKeys": list(rule.taint_keys),
        "namespaces": list(rule.namespaces),
        "podSelector": _terms(rule.pod_selector),
        "nodeSelector": _terms(rule.node_selector),
        "mode": rule.mode and rule.mode.value,
        "evictTimeoutSeconds": rule.evict_timeout_seconds,
        "limit": _limit(rule.limit),
        "paused": rule.pause,
        "order": rule.order and rule.order.value,
        "tier": None if rule.tier is None else rule.tier.word,
        "maxTolerationSeconds": rule.max_toleration_seconds,
    }


def _terms(selector: LabelSelector) -> list[str]:
    return [" ".join((term.key, term.operator, *sorted(term.values))) for term in selector]


def _surge(status: Status, now: Moment) -> JsonObject:
    surge = status.surge(now)
    return {
        "newlyTaintedNodes": surge.nodes,
        "lifecycleNodes": surge.lifecycle_nodes,
        "totalNodes": surge.total,
        "duePods": surge.due,
        "unlistedNodes": surge.unlisted,
        "outOfServiceNodes": surge.out_of_service,
    }


def _criterion(criterion: Criterion) -> JsonObject:
    """Return what opens the breaker, as it is now."""
    counted, total = criterion.counted, criterion.total
    return {
        "kind": criterion.kind,
        "zone": criterion.zone,
        "counted": counted,
        "total": total,
        "sharePercent": _percent(counted, total),
        "opensAbove": str(criterion.threshold),
        "minNodes": None if criterion.threshold.percent is None else criterion.threshold.min_nodes,
        "exceeded": criterion.exceeded,
        "tooFew": criterion.threshold.too_few(counted, total),
        "notCounted": [
            {"reason": reason.name.lower(), "text": reason.value, "count": count}
            for reason, count in criterion.uncounted.items()
        ],
    }


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def _zone(row: ZoneRow) -> JsonObject:
    """Return the counts of a zone; of all nodes if its name is None."""
    return {
        "zone": row.zone,
        "nodes": row.nodes,
        "notReady": row.not_ready,
        "newlyNotReady": row.newly_not_ready,
        "newlyTainted": row.newly_tainted,
        "counted": row.counted,
        "sharePercent": _percent(row.counted, row.nodes),
        "threshold": row.threshold and str(row.threshold),
        "nodeNames": list(row.names),
    }


def _uncounted(status: Status, now: Moment) -> list[JsonObject]:
    """Return, by reason, how many tainted or unready nodes the breaker does not count; some of them by name."""
    return [
        {"reason": reason.name.lower(), "text": reason.value, "count": len(names), "nodeNames": names[:MAX_NAMES]}
        for reason, names in status.uncounted(now).items()
    ]


def _latch(latch: Latch | None) -> JsonObject:
    if latch is None:
        return {"open": False, "since": None, "cause": None}
    return {"open": True, "since": epoch_text(latch.since_epoch), "cause": latch.cause, "by": latch.controller or None}


def _thresholds(policy: BreakerPolicy) -> list[str]:
    """Return the conditions that open the breaker."""
    within = f"within {policy.window_seconds:g} s"
    found = [f"more than {policy.nodes} of the nodes newly tainted {within}{_min_nodes(policy.nodes)}"]
    if policy.lifecycle_nodes is not None:
        min_nodes = _min_nodes(policy.lifecycle_nodes)
        found.append(
            f"more than {policy.lifecycle_nodes} of the nodes lost within that time of each other, and still not ready"
            f" when a pod is due because of that{min_nodes}"
        )
    if policy.zone is not None:
        found.append(f"more than {policy.zone} of the nodes of a zone lost like that{_min_nodes(policy.zone)}")
    if policy.max_due is not None:
        found.append(f"more than {many(policy.max_due, 'pod')} due at once")
    return found


def _min_nodes(nodes: NodeThreshold) -> str:
    return "" if nodes.percent is None else f" (the share counts from {nodes.min_nodes} on)"


def _pauses(control_state: ControlState) -> Iterable[JsonObject]:
    for scope, pause in control_state.pauses().items():
        times = {"since": epoch_text(pause.since_epoch), "until": epoch_text(pause.until_epoch)}
        said = {**times, "reason": pause.reason or None, "by": pause.by or None}
        yield {"scope": scope.kind, "name": scope.name or None, **said}


def _adoption(adoption: AdoptionState) -> JsonObject:
    stopped = adoption.stopped_by
    return {
        "enabled": adoption.enabled,
        "adopted": adoption.adopted,
        "refused": len(adoption.refused),
        "refusedBecause": _because(adoption.refused),
        "notGivenBack": len(adoption.not_given_back),
        "notGivenBackBecause": _because(adoption.not_given_back),
        "lostNotesTotal": len(adoption.lost_notes),
        "lostNotes": [str(ref) for ref in adoption.lost_notes[:MAX_REFUSED]],
        "unexplainedMarksTotal": len(adoption.unexplained),
        "unexplainedMarks": [str(ref) for ref in adoption.unexplained[:MAX_REFUSED]],
        "policyProblem": adoption.policy_problem or None,
        "stopped": stopped and {"since": epoch_text(stopped.since_epoch), "reason": stopped.reason or None},
    }


def _admission(admission: AdmissionState) -> JsonObject:
    return {"account": admission.account or None, "inForce": admission.in_force}


def _because(failed: Mapping[PodRef, str]) -> list[JsonObject]:
    return [
        {"namespace": ref.key.namespace, "name": ref.key.name, "text": text}
        for ref, text in list(failed.items())[:MAX_REFUSED]
    ]


def whose(pod: Pod, status: Status, process: ProcessState) -> JsonObject | None:
    """Return whether the built-in controller also evicts a pod; None if it is disabled, as far as is known."""
    if process.adoption is None and pod.adoption is None:
        return None
    taints = [seen.taint for seen in status.nodes.taints_on(pod.node_name) or ()]
    seconds, marked = builtin_seconds(pod.spec_tolerations, taints), bool(pod.adoption and pod.adoption.noted)
    if seconds is None:
        return {"adopted": marked, "text": None}
    refused = None if process.adoption is None else process.adoption.refused.get(pod.ref)
    if refused is not None:
        return {"adopted": False, "text": f"{BUILT_INS} (its countdown could not be taken over: {refused})"}
    why_not = _why_not_adopted(pod, seconds, process.adoption)
    text = TAKEN_OVER_LATER if why_not is None else f"{BUILT_INS} ({why_not})" if why_not else BUILT_INS
    return {"adopted": False, "text": text}


def _why_not_adopted(pod: Pod, seconds: float, adoption: AdoptionState | None) -> str | None:
    """Return why a countdown of so many seconds is not taken over, "" if that needs no words; None: it is."""
    if adoption is None or not adoption.enabled or seconds <= 0:
        return ""
    if adoption.stopped_by is not None:
        return "hand-back was ordered"
    if adoption.policy_problem:
        return adoption.policy_problem
    if seconds < adoption.from_seconds:
        return f"it tolerates the taint for less than {adoption.from_seconds:g} s"
    if not has_countdown(pod):
        return "it is a replica of this controller, or ends anyway"
    return None if may_be_marked(pod) else "it has too many tolerations"


# Pods that are to be evicted


def state_of(pending: Pending) -> str:
    """Return the state of a pending pod, one of ``STATES``."""
    match pending.state:
        case InFlight():
            return "inFlight"
        case Waiting():
            return "waiting"
        case Queued() if pending.wait_reason is not None and not pending.wait_reason.is_place:
            return "held"
        case Stabilizing() | Queued() | Following() | Retrying():
            if pending.failures is None:
                return "due"
            return "retrying" if pending.failures.block is None else "blocked"
        case _:
            assert_never(pending.state)


def _groups(page: StatusPage) -> JsonObject:
    """Return the number of pods by node and taint, the largest first."""
    found = sorted(page.groups.items(), key=lambda item: (-item[1].counts.total(), item[0][0], str(item[0][1])))
    rows = [
        {
            "node": node,
            "taint": str(taint),
            "taintKey": taint.key,
            "pods": group.counts.total(),
            "counts": {state: group.counts[state] for state in STATES},
            "nextAt": None if math.isinf(group.next_at) else time_text(group.next_at, page.now),
            "nextInSeconds": None if math.isinf(group.next_at) else round(group.next_at - page.now.at, 3),
        }
        for (node, taint), group in found[:MAX_GROUPS]
    ]
    return {"groups": rows, "moreGroups": max(0, len(found) - MAX_GROUPS)}


def status_row(pending: Pending, status: Status, process: ProcessState, now: Moment) -> JsonObject:
    """Return the entry of one pod in a list."""
    pod, deciding = pending.record.pod, pending.decision.deciding
    return {
        "namespace": pod.ref.key.namespace,
        "name": pod.ref.key.name,
        "uid": pod.ref.uid,
        "node": pod.node_name,
        "taint": str(deciding.taint),
        "toleration": deciding.toleration and str(deciding.toleration),
        "ceiling": deciding.ceiling and deciding.ceiling._asdict(),
        "owner": pod.controller and pod.controller.argument,
        "adoption": whose(pod, status, process),
        **deadline(pending.decision, now),
        **eviction(pending, status, process, now),
    }


def ceiling_in(document: Mapping[str, Any]) -> Ceiling | None:
    """Read the rule that shortens a toleration, None if none does; a controller of another version may not say it."""
    found = document.get("ceiling")
    return None if found is None else Ceiling(found["rule"], found["seconds"])


def deadline(decision: Evict, now: Moment) -> JsonObject:
    """Return when the pod is due because of the taint that decides."""
    return {"deadline": time_text(decision.due_at, now), "dueInSeconds": round(decision.due_at - now.at, 3)}


def eviction(pending: Pending, status: Status, process: ProcessState, now: Moment) -> JsonObject:
    """Return the state of the eviction, what holds it, and what went wrong."""
    failures, handling, retry_at = pending.failures, pending.handling, _retry_at(pending)
    return {
        "state": state_of(pending),
        "hold": _hold(pending, status, process, now),
        "blockedBy": None if failures is None else _block(failures.block),
        "tries": 0 if failures is None else failures.tries,
        "triedSince": None if failures is None else time_text(failures.since_at, now),
        "error": None if failures is None else failures.message,
        "nextTryInSeconds": None if retry_at is None else round(max(0.0, retry_at - now.at), 3),
        "mode": handling.mode.value,
        "deletesAt": time_text(pending.eviction_api_until, now) if math.isfinite(pending.eviction_api_until) else None,
        "rule": handling.rule and handling.rule.name,
        "outOfService": handling.bypasses_limits,
        "nodeLost": handling.node_lost,
    }


def _retry_at(pending: Pending) -> float | None:
    if pending.failures is None:
        return None
    return pending.state.at if isinstance(pending.state, Retrying) else pending.failures.retry_at


def _hold(pending: Pending, status: Status, process: ProcessState, now: Moment) -> JsonObject | None:
    hold = pending.wait_reason
    if hold is None:
        return None
    if hold.is_place and not process.leading:
        return _NOT_LEADING
    if pending.tier_wait is not None:
        return _for_whom(pending.tier_wait, now)
    text, pause = status.says(hold, pending, now)
    return {"reason": hold.name.lower(), "text": text + bracketed(pause, utc_text), "brief": text}


def _for_whom(wait: TierWait, now: Moment) -> JsonObject:
    """Return for whom a pod waits, and until when at most."""
    others = f" and {wait.others} more" if wait.others else ""
    whom = f"{wait.ref}{others}" if wait.ref is not None else "the list of its node's pods"
    until = time_text(wait.until, now)
    latest = format_utc(now.epoch_of(wait.until))
    text = f"it waits for pods of the tier {wait.tier.word} of its node: {whom}, until {latest} at most"
    pod = None if wait.ref is None else str(wait.ref)
    more = {"tier": wait.tier.word, "pod": pod, "others": wait.others, "until": until}
    return {"reason": WaitReason.EARLIER_TIER.name.lower(), "text": text, **more}


def _block(block: Block | None) -> JsonObject | None:
    if block is None:
        return None
    return {"reason": block.reason.value, "text": block.reason.text, "budget": block.budget or None}


# Times


def time_text(instant: float, now: Moment) -> str:
    """Return an instant for machines, by the API server's clock."""
    return format_rfc3339(now.epoch_of(instant))


def epoch_text(epoch: float | None) -> str | None:
    """Return a time for machines, None if it is not known."""
    return None if epoch is None or epoch == UNKNOWN_EPOCH else format_rfc3339(epoch)


def utc_text(epoch: float | None) -> str | None:
    """Return a time for people, None if it is not known."""
    return None if epoch is None or epoch == UNKNOWN_EPOCH else format_utc(epoch)


def finite(seconds: float) -> float | None:
    """Return a duration, None if it is infinite."""
    return seconds if math.isfinite(seconds) else None
