"""How a controller stands, as a document for machines: who acts, what holds evictions back, and which pods are to go.

Pure: brain and process in, JSON-able values out, with stable names. Times are the API server's, spans are seconds, and
None says that there is nothing to say. Not here: HTTP (``probe_server``), and how it is put to people (``cli``).
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from taint_eviction.adapters.kubernetes_times import format_rfc3339
from taint_eviction.adapters.orders_data import UNKNOWN_EPOCH, paused_scopes
from taint_eviction.core.brakes import Hold
from taint_eviction.core.breaker import BreakerPolicy
from taint_eviction.core.controller import Controller
from taint_eviction.core.decision import Evict
from taint_eviction.core.dispatch import Pending
from taint_eviction.core.effects import Block
from taint_eviction.core.instants import Moment
from taint_eviction.core.orders import Latch, Orders, Pause
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit, PolicyRule

API_VERSION = "taint-eviction/v1alpha1"

STATES = ("inFlight", "due", "retrying", "blocked", "held", "waiting")

_ITS_TURN = frozenset({Hold.SETTLING, Hold.LIMITED})
_NOT_LEADING = {"reason": "not_leading", "text": "this replica does not lead: the one that does evicts it"}

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """The Lease that decides who acts; ``holder`` as last seen, "" for nobody."""

    namespace: str
    name: str
    holder: str


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The process that answers. ``lease`` None: it runs alone. ``why_not``: why it is not ready, "" if it is.

    ``warnings``: what somebody should see to though it goes on, a sentence each.
    """

    version: str
    identity: str
    leading: bool
    lease: LeaseSeen | None
    dry_run: bool
    why_not: str
    warnings: tuple[str, ...] = ()


# Status


def status_document(
    controller: Controller, pending: Sequence[Pending], process: ProcessState, now: Moment, limit: int
) -> JsonObject:
    """Say how it stands; of the ``pending``, the most overdue first, at most ``limit`` are listed and all counted."""
    policy, brakes = controller.dispatch.policy, controller.dispatch.brakes
    breaker, orders = brakes.breaker, brakes.orders
    counts = Counter(state_of(each, now) for each in pending)
    return {
        **document_head("Status", process, now),
        "policy": _policy(policy),
        "breaker": {
            "enabled": breaker.policy.enabled,
            **_latch(breaker.latch),
            **_wave(controller, now),
            "opensAt": _thresholds(breaker.policy),
        },
        "ordersKnown": orders is not None,
        "pauses": [] if orders is None else list(_pauses(orders)),
        "taintedNodes": sum(1 for _ in controller.cluster.tainted_nodes()),
        "counts": {state: counts[state] for state in STATES},
        "pendingTotal": len(pending),
        "pending": [_pending(each, controller, process, now) for each in pending[:limit]],
    }


def document_head(kind: str, process: ProcessState, now: Moment) -> JsonObject:
    """Say what every document says: who answers, and when."""
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
    limits = {"all": policy.whole, "perNode": policy.per_node, "perNamespace": policy.per_namespace}
    return {
        "mode": policy.mode.value,
        "evictTimeoutSeconds": finite(policy.evict_timeout_seconds),
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
        "podSelector": [" ".join((term.key, term.operator, *sorted(term.values))) for term in rule.pod_selector],
        "mode": rule.mode and rule.mode.value,
        "limit": _limit(rule.limit),
        "paused": rule.pause,
    }


def _wave(controller: Controller, now: Moment) -> JsonObject:
    wave = controller.wave(now)
    return {
        "newlyTaintedNodes": wave.nodes,
        "lifecycleNodes": wave.lifecycle_nodes,
        "totalNodes": wave.total,
        "duePods": wave.due,
    }


def _latch(latch: Latch | None) -> JsonObject:
    if latch is None:
        return {"open": False, "since": None, "cause": None}
    return {"open": True, "since": epoch_text(latch.since_epoch), "cause": latch.cause}


def _thresholds(policy: BreakerPolicy) -> list[str]:
    """Say what opens the breaker, one thing each."""
    found = [f"more than {policy.nodes} of the nodes newly tainted within {policy.window_seconds:g} s"]
    if policy.lifecycle_nodes is not None:
        found.append(f"more than {policy.lifecycle_nodes} of the nodes not ready or unreachable within that time")
    if policy.most_due is not None:
        found.append(f"more than {policy.most_due} pods due at once")
    return found


def _pauses(orders: Orders) -> Iterable[JsonObject]:
    for scope in paused_scopes(orders):
        pause = scope.pause_in(orders) or Pause()
        told = {"since": epoch_text(pause.since_epoch), "reason": pause.reason or None}
        yield {"scope": scope.kind, "name": scope.name or None, **told}


# Pods that are to go


def state_of(pending: Pending, now: Moment) -> str:
    """Name the state that a pending pod is in, one of ``STATES``."""
    if pending.in_flight:
        return "inFlight"
    if pending.decision.fire_at > now.at:
        return "waiting"
    if pending.hold is not None and pending.hold not in _ITS_TURN:
        return "held"
    if pending.trouble is not None:
        return "retrying" if pending.trouble.block is None else "blocked"
    return "due"


def _pending(pending: Pending, controller: Controller, process: ProcessState, now: Moment) -> JsonObject:
    pod, deciding = pending.known.pod, pending.decision.deciding
    return {
        "namespace": pod.ref.key.namespace,
        "name": pod.ref.key.name,
        "uid": pod.ref.uid,
        "node": pod.node_name,
        "taint": str(deciding.taint),
        "toleration": deciding.toleration and str(deciding.toleration),
        **deadline(pending.decision, now),
        **eviction(pending, controller, process, now),
    }


def deadline(decision: Evict, now: Moment) -> JsonObject:
    """Say when it is due."""
    return {"deadline": time_text(decision.fire_at, now), "dueInSeconds": round(decision.fire_at - now.at, 3)}


def eviction(pending: Pending, controller: Controller, process: ProcessState, now: Moment) -> JsonObject:
    """Say how the eviction stands: its state, what holds it back, and what went wrong."""
    trouble, handling = pending.trouble, pending.handling
    deletes_at = pending.decision.fire_at + handling.evict_timeout_seconds
    return {
        "state": state_of(pending, now),
        "hold": _hold(pending, controller, process),
        "blockedBy": None if trouble is None else _block(trouble.block),
        "tries": 0 if trouble is None else trouble.tries,
        "triedSince": None if trouble is None else time_text(trouble.since_at, now),
        "error": None if trouble is None else trouble.message,
        "nextTryInSeconds": None if trouble is None else round(max(0.0, trouble.retry_at - now.at), 3),
        "mode": handling.mode.value,
        "deletesAt": time_text(deletes_at, now) if handling.mode is EvictionMode.EVICT_THEN_DELETE else None,
        "rule": handling.rule and handling.rule.name,
    }


def _hold(pending: Pending, controller: Controller, process: ProcessState) -> JsonObject | None:
    hold = pending.hold
    if hold is None:
        return None
    if hold in _ITS_TURN and not process.leading:
        return _NOT_LEADING
    return {"reason": hold.name.lower(), "text": hold.value + _told(hold, pending, controller)}


def _told(hold: Hold, pending: Pending, controller: Controller) -> str:
    """Say since when and why it is held, where somebody has ordered it."""
    pod, brakes = pending.known.pod, controller.dispatch.brakes
    orders, latch = brakes.orders or Orders(), brakes.breaker.latch
    pauses = {
        Hold.BREAKER_OPEN: None if latch is None else Pause(latch.since_epoch, latch.cause),
        Hold.PAUSED: orders.whole,
        Hold.NODE_PAUSED: orders.nodes.get(pod.node_name or ""),
        Hold.NAMESPACE_PAUSED: orders.namespaces.get(pod.ref.key.namespace),
    }
    pause = pauses.get(hold) or Pause()
    since = epoch_text(pause.since_epoch)
    told = ": ".join(filter(None, (since and f"since {since}", pause.reason)))
    return f" ({told})" if told else ""


def _block(block: Block | None) -> JsonObject | None:
    if block is None:
        return None
    return {"reason": block.reason.value, "text": block.reason.text, "budget": block.budget or None}


# Times


def time_text(instant: float, now: Moment) -> str:
    """Write an instant by the API server's clock."""
    return format_rfc3339(now.epoch_of(instant))


def epoch_text(epoch: float | None) -> str | None:
    """Write a time, None where it is not known."""
    return None if epoch is None or epoch == UNKNOWN_EPOCH else format_rfc3339(epoch)


def finite(seconds: float) -> float | None:
    """Return a span, None where it has no end."""
    return seconds if math.isfinite(seconds) else None
