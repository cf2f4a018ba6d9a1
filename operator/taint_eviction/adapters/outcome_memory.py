"""What became of pods: the last outcomes that this replica brought about or saw, bounded in number and bytes.

It answers after the fact why a pod vanished. Every replica remembers: the one that evicts knows call and answer, the
others saw the pod being deleted and know what they had decided for it; so a new leader knows most of what was before.
A pod has one entry, its newest. Reads no clock, and keeps nothing across restarts (the audit log does).
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from taint_eviction.adapters.kubernetes_times import format_micro_time
from taint_eviction.core.decision import Evict, StayReason
from taint_eviction.core.effects import (
    Cancelled,
    Done,
    Effect,
    Evicted,
    Eviction,
    Failed,
    PodIsGone,
    Refused,
    Work,
    WorkOutcome,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import PodRef
from taint_eviction.core.text import JsonObject

MAX_OUTCOMES = 10_000
MAX_BYTES = 10_000_000

_WENT = frozenset({"evicted", "deleted", "gone"})
# A storm in which nobody goes for so long has ended.
_PAUSE_SECONDS = 5.0

# An API server's answer may be long.
_MAX_ANSWER = 300
# What an entry needs besides its text: a tuple, its numbers, and its place in the dictionary.
_OVERHEAD_BYTES = 400


class RememberedOutcome(NamedTuple):
    """What became of one pod, at ``epoch`` by the API server's clock; ``text`` is the rest, as JSON."""

    number: int
    epoch: float
    ref: PodRef
    node_name: str
    taint_key: str
    outcome: str
    text: bytes

    def document(self) -> JsonObject:
        """Write it out."""
        fields: JsonObject = orjson.loads(self.text)
        times = {name: format_micro_time(fields[name]) for name in ("since", "deadline")}
        named = {"time": format_micro_time(self.epoch), "outcome": self.outcome}
        pod = {"namespace": self.ref.key.namespace, "name": self.ref.key.name, "uid": self.ref.uid}
        return {**named, **pod, "node": self.node_name, **fields, **times}


class OutcomeMemory:
    """Remembers at most so many outcomes and bytes; the oldest are forgotten first. ``forgotten`` counts those."""

    def __init__(self, max_outcomes: int = MAX_OUTCOMES, max_bytes: int = MAX_BYTES) -> None:
        self._max_outcomes, self._max_bytes = max_outcomes, max_bytes
        self._by_uid: dict[str, RememberedOutcome] = {}
        self._number = self.forgotten = self.bytes = 0
        # The attempt that has just ended (UID, call, tries, answer): what follows from it is reported right after.
        self._attempt: tuple[str, str | None, int, str | None] = ("", None, 0, None)

    def __len__(self) -> int:
        return len(self._by_uid)

    def attempted(self, work: Work, outcome: WorkOutcome, now: Moment) -> None:
        """Note how an attempt ended; the effects that follow are reported next."""
        if not isinstance(work, Eviction):
            return
        answer = None
        match outcome:
            case Done():
                answer = "accepted"
            case PodIsGone():
                answer = "no such pod, or its name belongs to another UID"
            case Failed():
                answer = outcome.message[:_MAX_ANSWER]
            case _:
                pass
        self._attempt = work.ref.uid, "evict" if work.by_eviction_api else "delete", work.tries + 1, answer

    def report(self, effect: Effect, now: Moment) -> None:
        """Remember what became of a pod."""
        match effect:
            case Evicted():
                self._remember("evicted", effect, effect.decision, now)
            case Refused(decision=Evict() as decision):
                self._remember("refused" if effect.block is None else "blocked", effect, decision, now)
            case Cancelled(decision=Evict() as decision, reason=None | StayReason.TERMINATING):
                self._remember("gone" if effect.reason is None else "deleted", effect, decision, now)
            case _:
                pass

    def newest(self, before: int | None = None) -> Iterator[RememberedOutcome]:
        """Go through the outcomes, the newest first: those before a number, None: all."""
        return (each for each in reversed(self._by_uid.values()) if before is None or each.number < before)

    def went_since(self, epoch: float) -> Counter[tuple[str, str]]:
        """Count the pods that went since then, by node and key of the taint that decided."""
        counts: Counter[tuple[str, str]] = Counter()
        for each in self.newest():
            if each.epoch < epoch:
                break
            counts[each.node_name, each.taint_key] += each.outcome in _WENT
        return +counts

    def storm(self, epoch: float) -> tuple[int, float]:
        """Count the pods that went in the storm that goes on at ``epoch``, and how many of them a second; 0: none."""
        gone, began = 0, epoch
        for each in self.newest():
            if each.outcome not in _WENT:
                continue
            if each.epoch < began - _PAUSE_SECONDS:
                break
            gone, began = gone + 1, each.epoch
        return gone, gone / max(1.0, epoch - began)

    def _remember(self, outcome: str, effect: Evicted | Refused | Cancelled, decision: Evict, now: Moment) -> None:
        ref, why, owner = effect.ref, decision.deciding, effect.controller
        uid, call, tries, answer = self._attempt
        if uid != ref.uid:
            call, tries, answer = None, 0, None
        block = effect.block if isinstance(effect, Refused) else None
        text = orjson.dumps(
            {
                "owner": owner and f"{owner.kind}/{owner.name}",
                "taint": str(why.taint),
                "toleration": why.toleration and str(why.toleration),
                "byDefault": why.by_default,
                "since": now.epoch_of(why.start_at),
                "sinceBy": why.start_source.value,
                "deadline": now.epoch_of(decision.due_at),
                "lateSeconds": round(now.at - decision.due_at, 3),
                "heldSeconds": decision.held_seconds,
                "call": call,
                "tries": tries,
                "answer": answer,
                "budget": block and block.budget,
            }
        )
        self._number += 1
        self._forget(ref.uid)
        self.bytes += len(text) + _OVERHEAD_BYTES
        self._by_uid[ref.uid] = RememberedOutcome(
            self._number, now.server_epoch, ref, effect.node_name, why.taint.key, outcome, text
        )
        while len(self._by_uid) > self._max_outcomes or self.bytes > self._max_bytes:
            self._forget(next(iter(self._by_uid)))
            self.forgotten += 1

    def _forget(self, uid: str) -> None:
        old = self._by_uid.pop(uid, None)
        if old is not None:
            self.bytes -= len(old.text) + _OVERHEAD_BYTES
