"""The journal: what the controller observed and what came of it, a JSON object a line, in a file of bounded size.

Written so that an incident can be drawn and replayed later (``history``). Only what changes is written: lists and
heartbeats that bring nothing new leave no line. A new file begins with all that is known then, so that each can be read
by itself.

Reads no clock: whoever tells brings the moment.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple, assert_never

import orjson

from taint_eviction import __version__
from taint_eviction.adapters.rotating_lines import DEFAULT_MOST_BYTES, RotatingLines
from taint_eviction.core.cluster import list_is_newer
from taint_eviction.core.decision import TaintVerdict
from taint_eviction.core.effects import (
    BreakerClosed,
    BreakerOpened,
    Cancelled,
    Effect,
    Evicted,
    NodeCleared,
    NodeTainted,
    Paused,
    Refused,
    Resumed,
    Scheduled,
    TaintRewritten,
)
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, NodesSwept, PodGone, PodSeen, PodsReleased, PodsSwept
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Node, Pod, PodRef, Taint, Toleration
from taint_eviction.settings import Settings

JOURNAL_VERSION = 1
DEFAULT_SETTINGS = Settings()


class _Known(NamedTuple):
    """The line that was last written of an object, without its time; when it was seen, and at which version."""

    line: dict[str, Any]
    seen_at: float
    version: int | None


class Journal:
    """A ``Teller`` that also takes facts; ``most_bytes`` bounds each of the two files.

    Those of the ``settings`` that decide what is done stand at the head of each file, where they are not the defaults.
    """

    def __init__(self, path: Path, most_bytes: int = DEFAULT_MOST_BYTES, settings: Settings = DEFAULT_SETTINGS) -> None:
        self._head = {"what": "journal", "version": JOURNAL_VERSION, "by": __version__, **_settings(settings)}
        self._lines = RotatingLines(path, most_bytes, "the journal", self._begin)
        self._now = Moment(0.0, 0.0)
        # By UID.
        self._known: dict[str, _Known] = {}
        # By scope: the line that told what holds evictions back.
        self._held: dict[str, dict[str, Any]] = {}

    # What is told

    def observed(self, fact: Fact, now: Moment) -> None:
        """Take in a fact."""
        match fact:
            case NodeSeen():
                self._seen(fact.node.uid, _node(fact.node), fact.node.resource_version, now)
            case PodSeen():
                self._seen(fact.pod.ref.uid, _pod(fact.pod), fact.pod.resource_version, now)
            case NodeGone():
                known = [uid for uid, known in self._known.items() if known.line.get("node") == fact.name]
                for uid in known if fact.uid is None else [fact.uid]:
                    self._gone(uid, now)
            case PodGone():
                self._gone(fact.ref.uid, now)
            case NodesSwept():
                self._swept({"what": "node"}, fact, now)
            case PodsSwept():
                on = {} if fact.node_name is None else {"on": fact.node_name}
                self._swept({"what": "pod", **on}, fact, now)
            case PodsReleased():
                for uid in [uid for uid, known in self._known.items() if known.line.get("on") == fact.node_name]:
                    del self._known[uid]
            case _:
                assert_never(fact)

    def tell(self, effect: Effect, now: Moment) -> None:
        """Take in what came of it."""
        line = _effect(effect, now)
        self._write(line, now)
        match effect:
            case Paused(scope):
                self._held[scope] = line
            case Resumed(scope):
                self._held.pop(scope, None)
            case BreakerOpened():
                self._held[""] = line
            case BreakerClosed():
                self._held.pop("", None)
            case _:
                pass

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    # What is known

    def _seen(self, uid: str, line: dict[str, Any], version: int | None, now: Moment) -> None:
        before = self._known.get(uid)
        self._known[uid] = _Known(line, now.at, version)
        if before is None or before.line != line:
            self._write(line, now)

    def _gone(self, uid: str, now: Moment) -> None:
        known = self._known.pop(uid, None)
        if known is not None:
            named: dict[str, Any] = {key: known.line[key] for key in ("node", "pod", "uid") if key in known.line}
            self._write({"what": f"{known.line['what']} gone", **named}, now)

    def _swept(self, like: dict[str, str], fact: NodesSwept | PodsSwept, now: Moment) -> None:
        for uid, known in list(self._known.items()):
            absent = uid not in fact.present and list_is_newer(fact, known.version, known.seen_at)
            if absent and all(known.line.get(key) == value for key, value in like.items()):
                self._gone(uid, now)

    # The file

    def _write(self, line: dict[str, Any], now: Moment) -> None:
        self._now = now
        self._lines.write(_line(line, now))

    def _begin(self, continues: bool) -> bytes:
        """Write the head of a file and, where it continues another, all that is known."""
        if not continues:
            return _line(self._head, self._now)
        known = (each.line for each in self._known.values())
        lines = ({**self._head, "continues": True}, *known, *self._held.values())
        return b"".join(_line(line, self._now) for line in lines)


# Lines


def _settings(settings: Settings) -> dict[str, Any]:
    """Tell of settings as scenarios call them, and how many rules there are."""
    default = _settings_as_words(DEFAULT_SETTINGS)
    told = {name: value for name, value in _settings_as_words(settings).items() if value != default[name]}
    rules = {"rules": len(settings.policy.rules)} if settings.policy.rules else {}
    return {**({"settings": told} if told else {}), **rules}


def _settings_as_words(settings: Settings) -> dict[str, Any]:
    policy = settings.policy
    return {
        "evictFinished": settings.evict_finished,
        "defaultNotReadySeconds": settings.default_not_ready_seconds,
        "defaultUnreachableSeconds": settings.default_unreachable_seconds,
        "honourHolds": _span(settings.most_hold_seconds),
        "evictionMode": policy.mode.value,
        "evictTimeout": policy.evict_timeout_seconds,
        "evictionsPerSecond": policy.whole.per_second,
        "evictionsBurst": policy.whole.burst,
        "evictionsPerSecondPerNode": policy.per_node.per_second,
        "evictionsBurstPerNode": policy.per_node.burst,
        "evictionsPerSecondPerNamespace": policy.per_namespace.per_second,
        "evictionsBurstPerNamespace": policy.per_namespace.burst,
        "workers": settings.workers,
        "retryFirst": settings.retry.first_seconds,
        "retryMost": settings.retry.most_seconds,
    }


def _span(seconds: float) -> float | str:
    return "forever" if seconds == math.inf else seconds


def _line(line: dict[str, Any], now: Moment) -> bytes:
    return orjson.dumps({"t": round(now.server_epoch, 3), **line}) + b"\n"


def _node(node: Node) -> dict[str, Any]:
    taints = [_taint(taint) for taint in node.taints]
    return {"what": "node", "node": node.name, "uid": node.uid, "taints": taints}


def _taint(taint: Taint) -> dict[str, Any]:
    added = {} if taint.time_added is None else {"added": taint.time_added}
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect, **added}


def _pod(pod: Pod) -> dict[str, Any]:
    flags = {name: True for name in ("terminating", "finished", "mirror") if getattr(pod, name)}
    bound = {} if pod.bound_at is None else {"bound": pod.bound_at}
    hold = {} if pod.hold_seconds is None else {"hold": _span(pod.hold_seconds)}
    return {
        "what": "pod",
        "pod": str(pod.ref),
        "uid": pod.ref.uid,
        "on": pod.node_name,
        "tolerations": [_toleration(toleration) for toleration in pod.tolerations],
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


def _effect(effect: Effect, now: Moment) -> dict[str, Any]:
    match effect:
        case NodeTainted():
            return {"what": "tainted", "node": effect.name}
        case NodeCleared():
            return {"what": "cleared", "node": effect.name}
        case TaintRewritten():
            return {"what": "rewritten", "node": effect.node_name, "taint": str(effect.taint)}
        case Scheduled():
            due = round(now.epoch_of(effect.decision.fire_at), 3)
            held = {"held_seconds": effect.decision.held_seconds} if effect.decision.held_seconds else {}
            return {**_about("scheduled", effect.ref, effect.node_name, effect.decision.deciding), "due": due, **held}
        case Cancelled():
            reason = "pod_gone" if effect.reason is None else effect.reason.name.lower()
            return {**_about("cancelled", effect.ref, effect.node_name), "reason": reason}
        case Evicted():
            about = _about("evicted", effect.ref, effect.node_name, effect.decision.deciding)
            due = round(now.epoch_of(effect.decision.fire_at), 3)
            return {**about, "due": due, "late_seconds": round(effect.late_seconds, 3)}
        case Refused():
            about = _about("refused", effect.ref, effect.node_name)
            block = {} if effect.block is None else {"block": effect.block.reason.value, "budget": effect.block.budget}
            return {**about, "tries": effect.tries, "error": effect.message, **block}
        case Paused() | Resumed() | BreakerOpened() | BreakerClosed():
            return _held(effect)
        case _:
            assert_never(effect)


def _held(effect: Paused | Resumed | BreakerOpened | BreakerClosed) -> dict[str, Any]:
    match effect:
        case Paused(scope, pause):
            return {"what": "paused", "scope": scope, "since": pause.since_epoch, "reason": pause.reason}
        case Resumed(scope):
            return {"what": "resumed", "scope": scope}
        case BreakerOpened(latch):
            return {"what": "breaker_opened", "since": latch.since_epoch, "cause": latch.cause}
        case BreakerClosed():
            return {"what": "breaker_closed"}
        case _:
            assert_never(effect)


def _about(what: str, ref: PodRef, node_name: str, verdict: TaintVerdict | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = {"what": what, "pod": str(ref), "uid": ref.uid, "node": node_name}
    if verdict is not None:
        fields["taint"] = str(verdict.taint)
        fields["toleration"] = None if verdict.toleration is None else str(verdict.toleration)
    return fields
