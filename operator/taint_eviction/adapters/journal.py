"""The journal: what the controller observed and what came of it, a JSON object a line, in a file of bounded size.

Written so that an incident can be drawn and replayed later (``history``). Only what changes is written: lists and
heartbeats that bring nothing new leave no line. When the file is full it becomes ``FILE.1`` and a new one begins with
all that is known then, so that each file can be read by itself. A disk that is full ends the journal and nothing else.

Reads no clock: whoever tells brings the moment.
"""

import logging
from pathlib import Path
from typing import Any, BinaryIO, assert_never

import orjson

from taint_eviction import __version__
from taint_eviction.core.decision import TaintVerdict
from taint_eviction.core.effects import (
    Cancelled,
    Effect,
    Evicted,
    NodeCleared,
    NodeTainted,
    Refused,
    Scheduled,
    TaintRewritten,
)
from taint_eviction.core.facts import Fact, NodeGone, NodeSeen, NodesSwept, PodGone, PodSeen, PodsReleased, PodsSwept
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import Node, Pod, PodRef, Taint, Toleration

logger = logging.getLogger(__name__)

JOURNAL_VERSION = 1
DEFAULT_MOST_BYTES = 64 * 2**20


class Journal:
    """A ``Teller`` that also takes facts; ``most_bytes`` bounds each of the two files."""

    def __init__(self, path: Path, most_bytes: int = DEFAULT_MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._file: BinaryIO | None = None
        self._size = 0
        # By UID: the line that was last written of it, without its time, and when it was seen.
        self._known: dict[str, tuple[dict[str, Any], float]] = {}
        self._open("ab")

    # What is told

    def observed(self, fact: Fact, now: Moment) -> None:
        """Take in a fact."""
        match fact:
            case NodeSeen():
                self._seen(fact.node.uid, _node(fact.node), now)
            case PodSeen():
                self._seen(fact.pod.ref.uid, _pod(fact.pod), now)
            case NodeGone():
                known = [uid for uid, (line, _) in self._known.items() if line.get("node") == fact.name]
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
                for uid in [uid for uid, (line, _) in self._known.items() if line.get("on") == fact.node_name]:
                    del self._known[uid]
            case _:
                assert_never(fact)

    def tell(self, effect: Effect, now: Moment) -> None:
        """Take in what came of it."""
        self._write(_effect(effect, now), now)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    # What is known

    def _seen(self, uid: str, line: dict[str, Any], now: Moment) -> None:
        before = self._known.get(uid)
        self._known[uid] = line, now.at
        if before is None or before[0] != line:
            self._write(line, now)

    def _gone(self, uid: str, now: Moment) -> None:
        known = self._known.pop(uid, None)
        if known is not None:
            named: dict[str, Any] = {key: known[0][key] for key in ("node", "pod", "uid") if key in known[0]}
            self._write({"what": f"{known[0]['what']} gone", **named}, now)

    def _swept(self, like: dict[str, str], fact: NodesSwept | PodsSwept, now: Moment) -> None:
        for uid, (line, seen_at) in list(self._known.items()):
            absent = uid not in fact.present and seen_at < fact.asked_at
            if absent and all(line.get(key) == value for key, value in like.items()):
                self._gone(uid, now)

    # The file

    def _open(self, mode: str) -> None:
        try:
            self._file = self._path.open(mode, buffering=0)  # type: ignore[assignment]
            self._size = self._path.stat().st_size
        except OSError as error:
            self._give_up(error)

    def _write(self, line: dict[str, Any], now: Moment) -> None:
        if self._file is None:
            return
        written = _line(line, now)
        if self._size + len(written) > self._most_bytes and self._size:
            self._rotate(now)
        if self._size == 0:
            written = _line({"what": "journal", "version": JOURNAL_VERSION, "by": __version__}, now) + written
        self._append(written)

    def _append(self, written: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(written)
            self._size += len(written)
        except OSError as error:
            self._give_up(error)

    def _rotate(self, now: Moment) -> None:
        self.close()
        try:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        except OSError as error:
            self._give_up(error)
            return
        self._open("wb")
        head = {"what": "journal", "version": JOURNAL_VERSION, "by": __version__, "continues": True}
        self._append(_line(head, now) + b"".join(_line(line, now) for line, _ in self._known.values()))

    def _give_up(self, error: OSError) -> None:
        logger.error("the journal ends here, the controller goes on: %s: %s", self._path, error.strerror or error)
        self.close()


# Lines


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
    return {
        "what": "pod",
        "pod": str(pod.ref),
        "uid": pod.ref.uid,
        "on": pod.node_name,
        "tolerations": [_toleration(toleration) for toleration in pod.tolerations],
        **bound,
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
            return {**_about("scheduled", effect.ref, effect.node_name, effect.decision.deciding), "due": due}
        case Cancelled():
            reason = "pod_gone" if effect.reason is None else effect.reason.name.lower()
            return {**_about("cancelled", effect.ref, effect.node_name), "reason": reason}
        case Evicted():
            about = _about("evicted", effect.ref, effect.node_name, effect.decision.deciding)
            due = round(now.epoch_of(effect.decision.fire_at), 3)
            return {**about, "due": due, "late_seconds": round(effect.late_seconds, 3)}
        case Refused():
            about = _about("refused", effect.ref, effect.node_name)
            return {**about, "tries": effect.tries, "error": effect.message}
        case _:
            assert_never(effect)


def _about(what: str, ref: PodRef, node_name: str, verdict: TaintVerdict | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = {"what": what, "pod": str(ref), "uid": ref.uid, "node": node_name}
    if verdict is not None:
        fields["taint"] = str(verdict.taint)
        fields["toleration"] = None if verdict.toleration is None else str(verdict.toleration)
    return fields
