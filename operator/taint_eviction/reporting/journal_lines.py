"""The lines of the journal: facts, events and settings → JSON objects with stable names.

Pure. ``journal`` decides which lines are written; ``history`` reads them.
"""

import math
from itertools import islice
from typing import Any

import orjson

from taint_eviction.core.events import Event
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Node, Pod, Taint, Toleration
from taint_eviction.core.tiers import Tier, tier_of
from taint_eviction.settings import RECORDED, Settings

DEFAULT_SETTINGS = Settings()

# Fields of events that are called otherwise here, and those that are left out.
_NAMES = {"since_epoch": "since"}
_LEFT_OUT = frozenset({"time_source", "deleted_late_seconds", "retry_at"})

# A pod may have a hundred thousand tolerations: so many are recorded.
_MOST_TOLERATIONS = 64


def changed_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that are not the defaults, as scenarios name them, and the number of rules."""
    values = ((row, row.of(settings)) for row in RECORDED)
    changed = {row.keyword: row.form.plain(value) for row, value in values if value != row.of(DEFAULT_SETTINGS)}
    rules = {"rules": len(settings.policy.rules)} if settings.policy.rules else {}
    return {**({"settings": changed} if changed else {}), **rules}


def _span(seconds: float) -> float | str:
    return "forever" if seconds == math.inf else seconds


def encoded(line: dict[str, Any], now: Moment) -> bytes:
    """Encode a line, with its time on the API server's clock."""
    return orjson.dumps({"t": round(now.server_epoch, 3), **line}) + b"\n"


def node_line(node: Node) -> dict[str, Any]:
    """Return the line about a node, without its time."""
    taints = [_taint(taint) for taint in node.taints]
    ready: dict[str, Any] = {} if node.ready is None else {"ready": node.ready.status, "ready_since": node.ready.since}
    flags = {"exempt": node.excluded_from_disruption, "shutting_down": node.is_shutting_down}
    more: dict[str, Any] = {name: True for name, is_set in flags.items() if is_set}
    if node.labels:
        more["labels"] = dict(node.labels)
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
    tier = {} if (own := tier_of(pod)) is Tier.WORKLOADS else {"tier": own.word}
    return {
        "what": "pod",
        "pod": str(pod.ref),
        "uid": pod.ref.uid,
        "on": pod.node_name,
        "tolerations": [_toleration(toleration) for toleration in islice(pod.tolerations, _MOST_TOLERATIONS)],
        **({"tolerations_left_out": left_out} if (left_out := len(pod.tolerations) - _MOST_TOLERATIONS) > 0 else {}),
        **bound,
        **hold,
        **tier,
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


def event_line(event: Event, now: Moment) -> dict[str, Any]:
    """Return the line about an event, without its time."""
    line: dict[str, Any] = {"what": event.name}
    for name, value in event.fields().items():
        if name == "due_at":
            line["due"] = round(now.epoch_of(value), 3)
        elif name not in _LEFT_OUT:
            line[_NAMES.get(name, name)] = value
    return line
