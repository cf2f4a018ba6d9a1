"""The outcomes of pods: the latest that this replica caused or saw, bounded in number and bytes.
They show afterwards why a pod was evicted. Every replica remembers outcomes: the leader knows call and answer; the
others saw the deletion and know their own decision. A leader also restores what the leaders before it have kept
(``outcome_keeper``). Each pod has one entry: the newest, or of two replicas' the one that tells more. Entries hold
facts; sentences are made when they are read. This module reads no clock.
If there are too many, the oldest of the namespace with the most is dropped: pods that a tenant creates and lets be
evicted without end leave the outcomes of others alone.
Entries are ordered and found by their instant, and shown in the API server's time as it is known when they are read: so
they stay in order when that clock is stepped. Restored ones show the times that were written.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson
from sortedcontainers import SortedList

from taint_eviction.core.built_in import built_in_at
from taint_eviction.core.decision import Evict, StayReason, TaintVerdict
from taint_eviction.core.events import (
    CalledOff,
    Cancelled,
    Event,
    Evicted,
    Eviction,
    Refused,
    Suspended,
    Work,
    WorkOutcome,
)
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import ControllerRef, PodRef
from taint_eviction.core.text import JsonObject
from taint_eviction.files.kubernetes_times import format_micro_time
from taint_eviction.kube.outcome_record import StoredOutcome, tells_more

MAX_OUTCOMES = 10_000
MAX_BYTES = 10_000_000

# What another replica evicts is seen to be deleted or gone. A pod that goes so long before its deadline is not evicted:
# its owner, or a drain, has deleted it.
_SEEN_TO_GO = frozenset({"deleted", "gone"})
_EARLY_SECONDS = 2.0

# A storm has ended after this long without an eviction.
_PAUSE_SECONDS = 5.0

# An API server's answer may be long.
_MAX_ANSWER = 300
# The bytes of an entry besides its own text (measured: 850, with its own UID and toleration).
_OVERHEAD_BYTES = 900
_RESTORED_BYTES = 700


class _Attempt(NamedTuple):
    """The latest attempt to evict a pod: the call, None if there was none, the tries, and the answer."""

    call: str | None = None
    tries: int = 0
    answer: str | None = None


_NO_ATTEMPT = _Attempt()


class RememberedOutcome(NamedTuple):
    """The outcome of one pod at the instant ``at``, because of the taint in ``why``, which was due at ``due_at``.

    ``held_by``: which guards blocked it after that. ``built_in_at``: when the built-in controller would have evicted
    it, None: never.
    """

    number: int
    at: float
    ref: PodRef
    node_name: str
    outcome: str
    why: TaintVerdict
    due_at: float
    held_seconds: float
    built_in_at: float | None
    held_by: tuple[str, ...]
    owner: ControllerRef | None
    attempt: _Attempt
    budget: str | None
    bytes: int

    @property
    def taint_key(self) -> str:
        """Return the key of the taint that decided."""
        return self.why.taint.key

    @property
    def late_seconds(self) -> float:
        """Return how long after its deadline that was, negative: before it."""
        return self.at - self.due_at

    def document(self, now: Moment) -> JsonObject:
        """Return the outcome as a document, with times by the API server's clock as it is known now."""
        why, owner = self.why, self.owner
        return {
            "time": format_micro_time(now.epoch_of(self.at)),
            "outcome": self.outcome,
            "namespace": self.ref.key.namespace,
            "name": self.ref.key.name,
            "uid": self.ref.uid,
            "node": self.node_name,
            "owner": owner and owner.argument,
            "taint": str(why.taint),
            "toleration": why.toleration and str(why.toleration),
            "byDefault": why.by_default,
            "ceiling": why.ceiling and why.ceiling._asdict(),
            "since": format_micro_time(now.epoch_of(why.start_at)),
            "sinceBy": why.start_source.value,
            "deadline": format_micro_time(now.epoch_of(self.due_at)),
            "lateSeconds": round(self.late_seconds, 3),
            "heldSeconds": self.held_seconds,
            "heldBy": list(self.held_by),
            "builtInAt": None if self.built_in_at is None else format_micro_time(now.epoch_of(self.built_in_at)),
            "call": self.attempt.call,
            "tries": self.attempt.tries,
            "answer": self.attempt.answer,
            "budget": self.budget,
        }


class RestoredOutcome(NamedTuple):
    """An outcome that another process has kept: as ``RememberedOutcome``, with its document."""

    number: int
    at: float
    ref: PodRef
    node_name: str
    outcome: str
    taint_key: str
    late_seconds: float
    line: bytes
    bytes: int

    def document(self, _now: Moment) -> JsonObject:
        """Return the outcome as the document that was kept, with ``toldBy``."""
        document: JsonObject = orjson.loads(self.line)
        return document


AnyOutcome = RememberedOutcome | RestoredOutcome


def _was_evicted(each: AnyOutcome, namespace: str | None) -> bool:
    """Return whether a pod of this namespace, None: of any, went because it was due."""
    if namespace not in (None, each.ref.key.namespace):
        return False
    return each.outcome == "evicted" or (each.outcome in _SEEN_TO_GO and each.late_seconds >= -_EARLY_SECONDS)


class OutcomeMemory:
    """Remembers a bounded number of outcomes and bytes; the oldest of the namespace with the most are dropped first.
    ``forgotten`` counts those.
    ``began_at``: since when this process has remembered. ``changes`` counts the outcomes that it has brought about or
    seen itself.
    """

    def __init__(self, began_at: float = 0.0, *, max_outcomes: int = MAX_OUTCOMES, max_bytes: int = MAX_BYTES) -> None:
        self._max_outcomes, self._max_bytes = max_outcomes, max_bytes
        # A plain dict skips all removed entries to find its first.
        self._by_uid: OrderedDict[str, AnyOutcome] = OrderedDict()
        # By namespace, the oldest first; and how many each has.
        self._uids: defaultdict[str, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._counts: SortedList[tuple[int, str]] = SortedList()
        self._number = self.forgotten = self.bytes = self.changes = 0
        self._since_at = began_at
        # The attempt that has just ended: its events are reported right after it, at the same moment.
        self._ended: tuple[str, Moment, _Attempt] | None = None

    def __len__(self) -> int:
        return len(self._by_uid)

    def attempted(self, work: Work, outcome: WorkOutcome, now: Moment) -> None:
        """Note how an attempt ended; the events that follow are reported next."""
        self._ended = None
        if isinstance(work, Eviction) and not isinstance(outcome, CalledOff | Suspended):  # Of these nothing was sent.
            call = "evict" if work.by_eviction_api else "delete"
            answer = outcome.answer and outcome.answer[:_MAX_ANSWER]
            self._ended = work.ref.uid, now, _Attempt(call, work.tries + 1, answer)

    def report(self, event: Event, now: Moment) -> None:
        """Remember the outcome of a pod."""
        match event:
            case Evicted():
                self._remember("evicted", event, event.decision, now)
            case Refused(decision=Evict() as decision):
                self._remember("refused" if event.block is None else "blocked", event, decision, now)
            case Cancelled(decision=Evict() as decision, reason=None | StayReason.TERMINATING):
                self._remember("gone" if event.reason is None else "deleted", event, decision, now)
            case _:
                pass

    @property
    def since_at(self) -> float:
        """From when on outcomes are remembered: earlier ones are forgotten, or were never known."""
        return self._since_at

    def restore(self, stored: Sequence[StoredOutcome], since_epoch: float, now: Moment) -> bool:
        """Add outcomes that another process has kept since then, the newest first; return whether more is remembered
        than these.
        """
        best: dict[str, StoredOutcome] = {}
        for each in reversed(stored):
            known = best.get(each.ref.uid)
            if known is None or tells_more(each.outcome, known.outcome):
                best[each.ref.uid] = each
        entries, more = dict(self._by_uid), set(self._by_uid)
        for uid, each in best.items():
            own = entries.get(uid)
            if own is not None and tells_more(own.outcome, each.outcome):
                continue
            more.discard(uid)
            if own is None or own.outcome != each.outcome:
                at, size = min(now.at, now.instant_of(each.epoch)), _RESTORED_BYTES + len(each.line)
                entries[uid] = RestoredOutcome(0, at, *each[:4], each.late_seconds, each.line, size)
        ordered = sorted(entries.items(), key=lambda entry: entry[1].at)
        # Pages of /history that are being read continue in front of the new numbers: nothing appears twice in them.
        self._by_uid = OrderedDict(
            (uid, each._replace(number=self._number + count)) for count, (uid, each) in enumerate(ordered, 1)
        )
        self._number += len(ordered)
        self._uids.clear()
        for uid, entry in self._by_uid.items():
            self._uids[entry.ref.key.namespace][uid] = None
        self._counts = SortedList((len(uids), namespace) for namespace, uids in self._uids.items())
        self.bytes = sum(each.bytes for each in self._by_uid.values())
        self._since_at = min(self._since_at, now.instant_of(since_epoch))
        self._forget_oldest()
        return bool(more)

    def newest(self, before: int | None = None) -> Iterator[AnyOutcome]:
        """Yield the outcomes before this number (None: all), the newest first."""
        return (each for each in reversed(self._by_uid.values()) if before is None or each.number < before)

    def went_since(self, at: float, namespace: str | None = None) -> Counter[tuple[str, str]]:
        """Count the pods that were evicted since that instant, by node and key of the deciding taint.

        ``namespace`` None: of all namespaces.
        """
        counts: Counter[tuple[str, str]] = Counter()
        for each in self.newest():
            if each.at < at:
                break
            counts[each.node_name, each.taint_key] += _was_evicted(each, namespace)
        return +counts

    def storm(self, at: float, namespace: str | None = None) -> tuple[int, float]:
        """Return the number and the rate per second of evictions in the storm at that instant; 0 without one.

        ``namespace`` None: in all namespaces.
        """
        gone, began = 0, at
        for each in self.newest():
            if each.at < began - _PAUSE_SECONDS:
                break
            if _was_evicted(each, namespace):
                gone, began = gone + 1, each.at
        return gone, gone / max(1.0, at - began)

    def _remember(self, outcome: str, event: Evicted | Refused | Cancelled, decision: Evict, now: Moment) -> None:
        ref, owner = event.ref, event.controller
        before = self._forget(ref.uid)
        attempt = self._attempt_behind(outcome, ref.uid, before, now)
        budget = event.block.budget if isinstance(event, Refused) and event.block is not None else None
        # Names of nodes and namespaces are shared; those of owners are where they are short.
        owned = 0 if owner is None else len(owner.kind) + len(owner.name)
        size = _OVERHEAD_BYTES + len(ref.key.name) + len(attempt.answer or "") + owned
        held_by = event.held_by if isinstance(event, Evicted) else ()
        self._number += 1
        self.changes += 1
        self.bytes += size
        self._by_uid[ref.uid] = RememberedOutcome(
            self._number,
            now.at,
            ref,
            event.node_name,
            outcome,
            decision.deciding,
            decision.due_at,
            decision.held_seconds,
            built_in_at(decision.verdicts),
            held_by,
            owner,
            attempt,
            budget,
            size,
        )
        uids = self._uids[ref.key.namespace]
        self._counts.discard((len(uids), ref.key.namespace))
        uids[ref.uid] = None
        self._counts.add((len(uids), ref.key.namespace))
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        while len(self._by_uid) > self._max_outcomes or self.bytes > self._max_bytes:
            _, largest = self._counts[-1]
            oldest = self._forget(next(iter(self._uids[largest])))
            self.forgotten += 1
            if oldest is not None:
                self._since_at = max(self._since_at, oldest.at)

    def _attempt_behind(self, outcome: str, uid: str, before: AnyOutcome | None, now: Moment) -> _Attempt:
        """Return the attempt that caused an outcome.
        If an eviction is seen only later, its attempt was the pod's last one, whose answer was lost.
        """
        if self._ended is not None and self._ended[0] == uid and self._ended[1] == now:
            return self._ended[2]
        return before.attempt if isinstance(before, RememberedOutcome) and outcome == "evicted" else _NO_ATTEMPT

    def _forget(self, uid: str) -> AnyOutcome | None:
        old = self._by_uid.pop(uid, None)
        if old is not None:
            self.bytes -= old.bytes
            namespace = old.ref.key.namespace
            uids = self._uids[namespace]
            self._counts.discard((len(uids), namespace))
            del uids[uid]
            if uids:
                self._counts.add((len(uids), namespace))
            else:
                del self._uids[namespace]
        return old
