"""The lines of the journal: facts, effects and settings → JSON objects with stable names.

Pure. ``journal`` decides which lines are written; ``history`` reads them.
"""

import math
from itertools import islice
from typing import Any, assert_never

import orjson

from taint_eviction.adapters.effect_fields import pod_named, scope_named, taint_named
from taint_eviction.core.decision import TaintVerdict
from taint_eviction.core.effects import (
    AdoptionEffect,
    AdoptionRefused,
    BreakerClosed,
    BreakerOpened,
    Cancelled,
    CountdownAdopted,
    Effect,
    Evicted,
    EvictionLoop,
    GivenBack,
    NodeCleared,
    NodeEffect,
    NodeTainted,
    Paused,
    ReadyOutOfService,
    Refused,
    Resumed,
    Scheduled,
    StrayTaint,
    TaintRewritten,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Node, Pod, PodRef, Taint, Toleration
from taint_eviction.settings import Settings

DEFAULT_SETTINGS = Settings()

# A pod may have a hundred thousand tolerations: so many are recorded.
_MOST_TOLERATIONS = 64


def changed_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that are not the defaults, as scenarios name them, and the number of rules."""
    default = _settings_as_words(DEFAULT_SETTINGS)
    changed = {name: value for name, value in _settings_as_words(settings).items() if value != default[name]}
    rules = {"rules": len(settings.policy.rules)} if settings.policy.rules else {}
    return {**({"settings": changed} if changed else {}), **rules}


def _settings_as_words(settings: Settings) -> dict[str, Any]:
    policy = settings.policy
    return {
        "evictFinished": settings.evict_finished,
        "defaultNotReadySeconds": settings.default_not_ready_seconds,
        "defaultUnreachableSeconds": settings.default_unreachable_seconds,
        "honourHolds": _span(settings.max_hold_seconds),
        "gracefulShutdown": "wait" if settings.wait_for_shutdown else "evict",
        "outageGap": settings.outage_gap_seconds,
        "evictionMode": policy.mode.value,
        "evictTimeout": policy.evict_timeout_seconds,
        "backgroundTimeout": policy.background_timeout_seconds,
        "evictionsPerSecond": policy.total.per_second,
        "evictionsBurst": policy.total.burst,
        "evictionsPerSecondPerNode": policy.per_node.per_second,
        "evictionsBurstPerNode": policy.per_node.burst,
        "evictionsPerSecondPerNamespace": policy.per_namespace.per_second,
        "evictionsBurstPerNamespace": policy.per_namespace.burst,
        "workers": settings.workers,
        "retryFirst": settings.retry.first_seconds,
        "retryMost": settings.retry.max_seconds,
    }


def _span(seconds: float) -> float | str:
    return "forever" if seconds == math.inf else seconds


def encoded(line: dict[str, Any], now: Moment) -> bytes:
    """Encode a line, with its time on the API server's clock."""
    return orjson.dumps({"t": round(now.server_epoch, 3), **line}) + b"\n"


def node_line(node: Node) -> dict[str, Any]:
    """Return the line about a node, without its time."""
    taints = [_taint(taint) for taint in node.taints]
    ready: dict[str, Any] = {} if node.ready is None else {"ready": node.ready.status, "ready_since": node.ready.since}
    flags = {"exempt": node.exempt, "shutting_down": node.is_shutting_down}
    more = {name: True for name, is_set in flags.items() if is_set}
    return {"what": "node", "node": node.name, "uid": node.uid, "taints": taints, **ready, **more}


def _taint(taint: Taint) -> dict[str, Any]:
    added = {} if taint.time_added is None else {"added": taint.time_added}
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect, **added}


def pod_line(pod: Pod) -> dict[str, Any]:
    """Return the line about a pod, without its time."""
    flags = {name: True for name in ("terminating", "finished", "mirror") if getattr(pod, name)}
    bound = {} if pod.bound_at is None else {"bound": pod.bound_at}
    hold = {} if pod.hold_seconds is None else {"hold": _span(pod.hold_seconds)}
    return {
        "what": "pod",
        "pod": str(pod.ref),
        "uid": pod.ref.uid,
        "on": pod.node_name,
        "tolerations": [_toleration(toleration) for toleration in islice(pod.tolerations, _MOST_TOLERATIONS)],
        **({"tolerations_left_out": left_out} if (left_out := len(pod.tolerations) - _MOST_TOLERATIONS) > 0 else {}),
        **bound,
        **hold,
        **flags,
    }


def _toleration(toleration: Toleration) -> dict[str, Any]:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.toleration_seconds,
    }
    return {name: value for name, value in fields.items() if value not in ("", None)}


def effect_line(effect: Effect, now: Moment) -> dict[str, Any]:
    """Return the line about an effect, without its time."""
    match effect:
        case NodeTainted() | NodeCleared() | TaintRewritten() | StrayTaint() | ReadyOutOfService():
            return _about_node(effect)
        case Scheduled():
            due = round(now.epoch_of(effect.decision.fire_at), 3)
            held = {"held_seconds": effect.decision.held_seconds} if effect.decision.held_seconds else {}
            return {**_about("scheduled", effect.ref, effect.node_name, effect.decision.deciding), "due": due, **held}
        case Cancelled():
            reason = "pod_gone" if effect.reason is None else effect.reason.name.lower()
            return {**_about("cancelled", effect.ref, effect.node_name), "reason": reason}
        case Evicted():
            about = _about("evicted", effect.ref, effect.node_name, effect.decision.deciding)
            due = round(now.epoch_of(effect.decision.due_at), 3)
            return {**about, "due": due, "late_seconds": round(effect.late_seconds, 3)}
        case Refused():
            about = _about("refused", effect.ref, effect.node_name)
            block = {} if effect.block is None else {"block": effect.block.reason.value, "budget": effect.block.budget}
            return {**about, "tries": effect.tries, "error": effect.message, **block}
        case EvictionLoop():
            about = _about("eviction_loop", effect.ref, effect.node_name)
            return {**about, "controller": str(effect.controller), "taint": str(effect.taint)}
        case CountdownAdopted() | AdoptionRefused() | GivenBack():
            return _about_adoption(effect)
        case Paused() | Resumed() | BreakerOpened() | BreakerClosed():
            return _held(effect)
        case _:
            assert_never(effect)


def _about_adoption(effect: AdoptionEffect) -> dict[str, Any]:
    match effect:
        case CountdownAdopted():
            return {**_about("adopted", effect.ref, effect.node_name), "tolerations": effect.tolerations}
        case AdoptionRefused():
            about = _about("adoption_refused", effect.ref, effect.node_name)
            return {**about, "tries": effect.tries, "error": effect.message}
        case GivenBack():
            return _about("given_back", effect.ref, effect.node_name)
        case _:
            assert_never(effect)


def _about_node(effect: NodeEffect) -> dict[str, Any]:
    match effect:
        case NodeTainted():
            return {"what": "tainted", "node": effect.name}
        case NodeCleared():
            return {"what": "cleared", "node": effect.name}
        case TaintRewritten():
            return {"what": "rewritten", "node": effect.node_name, "taint": str(effect.taint)}
        case StrayTaint():
            return {"what": "stray_taint", "node": effect.node_name, "taint": str(effect.taint)}
        case ReadyOutOfService():
            return {"what": "ready_out_of_service", "node": effect.node_name}
        case _:
            assert_never(effect)


def _held(effect: Paused | Resumed | BreakerOpened | BreakerClosed) -> dict[str, Any]:
    match effect:
        case Paused(scope, pause):
            return {"what": "paused", **scope_named(scope), "since": pause.since_epoch, "reason": pause.reason}
        case Resumed(scope):
            return {"what": "resumed", **scope_named(scope)}
        case BreakerOpened(latch):
            return {"what": "breaker_opened", "since": latch.since_epoch, "cause": latch.cause}
        case BreakerClosed():
            return {"what": "breaker_closed"}
        case _:
            assert_never(effect)


def _about(what: str, ref: PodRef, node_name: str, verdict: TaintVerdict | None = None) -> dict[str, Any]:
    return {"what": what, **pod_named(ref, node_name), **({} if verdict is None else taint_named(verdict))}
