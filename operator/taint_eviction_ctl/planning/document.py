"""A plan for machines: one document, versioned, with stable names."""

from typing import Any

from taint_eviction.core.decision import Decision, Evict, TaintVerdict
from taint_eviction.core.instants import Moment
from taint_eviction.core.policy import Handling
from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction_ctl.planning.disruption_budgets import Standing
from taint_eviction_ctl.planning.plan import Plan, PlannedBudget, Tally
from taint_eviction_ctl.planning.planned_pod import PlannedOrder, PlannedPod
from taint_eviction_ctl.planning.wording import held_by, notes, paused, summary, why

API_VERSION, KIND = "taint-eviction/v1alpha1", "Plan"


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the document; fields of pods without a value are left out."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "summary": summary(plan),
        "now": format_rfc3339(plan.now.server_epoch),
        "at": format_rfc3339(plan.now.epoch_of(plan.what_if.at)),
        "mode": plan.mode.value,
        "changes": plan.described,
        "counts": {
            "leaving": len(plan.leaving),
            "pods": len(plan.pods),
            "bare": len(plan.bare),
            "brokenBudgets": len(plan.broken_budgets),
            "held": len(plan.held),
            "blocked": sum(pod.blocked for pod in plan.leaving),
            "paused": sum(bool(pod.paused_by) for pod in plan.leaving),
            "recreatedForEver": sum(pod.recreated_for_ever for pod in plan.leaving),
            "freed": len(plan.freed),
            "orphaned": sum(pod.forecast.orphaned for pod in plan.pods),
            "unread": plan.inventory.unread,
        },
        "pods": [_pod(pod, plan.now) for pod in plan.pods],
        "nodes": [
            {
                "name": node.name,
                "zone": node.zone or None,
                "taints": [str(taint) for taint in node.taints],
                "deleted": node.deleted,
                **_tally(node.tally),
            }
            for node in plan.nodes.values()
        ],
        "owners": [
            {"namespace": namespace, "kind": owner and owner.kind, "name": owner and owner.name, **_tally(tally)}
            for (namespace, owner), tally in plan.owners.items()
            if tally.leaving
        ],
        "budgets": [_budget(each, plan.now) for each in plan.budgets],
        "notes": notes(plan),
        "skipped": dict(plan.inventory.skipped),
        "problems": list(plan.inventory.problems),
        "complaints": list(plan.inventory.complaints),
    }


def _tally(tally: Tally) -> dict[str, int]:
    return {"leaving": tally.leaving, "total": tally.total}


def _pod(pod: PlannedPod, now: Moment) -> dict[str, Any]:
    owner, found = pod.facts.pod.controller, pod.forecast
    fields: dict[str, Any] = {
        "namespace": pod.ref.key.namespace,
        "name": pod.ref.key.name,
        "uid": pod.ref.uid,
        "node": pod.facts.pod.node_name,
        "owner": None if owner is None else {"kind": owner.kind, "name": owner.name},
        "outcome": _outcome(pod),
        **_decided(found.decision, now),
        "why": why(found),
        "goesAt": None if pod.goes_at is None else format_rfc3339(now.epoch_of(pod.goes_at)),
        "anyway": found.anyway or None,
        "notSchedulableAgain": [str(taint) for taint in pod.repelled_by] or None,
        "preferablyNotScheduledAgain": [str(taint) for taint in pod.discouraged_by] or None,
        "cannotBeScheduledOn": {name: [str(taint) for taint in taints] for name, taints in pod.kept_from.items()}
        or None,
        "recreatedForEver": pod.recreated_for_ever or None,
        "budgets": [str(budget) for budget in pod.budgets] or None,
        "blocked": held_by(pod) or None if pod.leaves_at is not None else None,
        "deletedAt": None if pod.deleted_at is None else format_rfc3339(now.epoch_of(pod.deleted_at)),
        "paused": paused(pod) or None,
        "heldBy": [holder.reason for holder in pod.holders] or None,
        "inOrder": pod.order and _order(pod.order, now),
        "adopted": pod.adopted,
        **_by_rule(pod.handling),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _outcome(pod: PlannedPod) -> str:
    if pod.leaves_at is not None:
        return "leaves"
    return "orphaned" if pod.forecast.orphaned else "freed" if pod.freed else "stays"


def _order(order: PlannedOrder, now: Moment) -> dict[str, Any]:
    return {
        "tier": order.tier.word,
        "pod": str(order.ref),
        "others": order.others,
        **_instant(order.leaves_at, now),
        "atMost": format_rfc3339(now.epoch_of(order.until)),
    }


def _instant(at: float | None, now: Moment) -> dict[str, Any]:
    return {} if at is None else {"leavesAt": format_rfc3339(now.epoch_of(at)), "inSeconds": round(at - now.at, 3)}


def _by_rule(handling: Handling | None) -> dict[str, Any]:
    if handling is not None and handling.bypasses_limits:
        return {"mode": handling.mode.value, "outOfService": True}
    if handling is None:
        return {}
    lost = {"mode": handling.mode.value, "nodeLost": True} if handling.node_lost else {}
    return lost if handling.rule is None else {"rule": handling.rule.name, "mode": handling.mode.value, **lost}


def _decided(decision: Decision, now: Moment) -> dict[str, Any]:
    verdicts = [_verdict(verdict, now) for verdict in decision.verdicts] or None
    if not isinstance(decision, Evict):
        return {"reason": decision.reason.name.lower(), "verdicts": verdicts}
    return {
        "leavesAt": format_rfc3339(now.epoch_of(decision.fire_at)),
        "inSeconds": round(decision.fire_at - now.at, 3),
        "heldSeconds": decision.held_seconds or None,
        "verdicts": verdicts,
    }


def _verdict(verdict: TaintVerdict, now: Moment) -> dict[str, Any]:
    return {
        "taint": str(verdict.taint),
        "toleration": None if verdict.toleration is None else str(verdict.toleration),
        "overruled": None if verdict.overruled is None else str(verdict.overruled),
        "byDefault": verdict.by_default,
        "ceiling": verdict.ceiling and verdict.ceiling._asdict(),
        "since": format_rfc3339(now.epoch_of(verdict.start_at)),
        "sinceBy": verdict.start_source.value,
        "until": None if verdict.fire_at is None else format_rfc3339(now.epoch_of(verdict.fire_at)),
    }


def _budget(each: PlannedBudget, now: Moment) -> dict[str, Any]:
    return {
        "namespace": each.budget.key.namespace,
        "name": each.budget.key.name,
        "covered": each.covered,
        "leaving": each.leaving,
        **_standing(each.before),
        "violated": each.violation is not None,
        "violatedAt": None if each.violation is None else format_rfc3339(now.epoch_of(each.violation.at)),
        "lowestHealthy": None if each.violation is None else each.violation.lowest,
        "blocked": [str(ref) for ref in each.blocked],
    }


def _standing(before: Standing) -> dict[str, Any]:
    return {
        "healthy": before.healthy,
        "desired": before.desired,
        "expected": before.expected,
        "disruptionsAllowed": before.allowed,
        "counted": before.counted,
    }
