"""Kubernetes events, mostly about pods: posted in the background, aggregated and limited as client-go does it.

Posting never blocks and never raises: the queue is bounded and the oldest is dropped. The same event about the same
pod again counts up the earlier one. Of one pod a burst of 25 and then one in 5 minutes is posted. Events carry the
pod's UID: without it ``kubectl describe pod`` does not show them.

Reference: k8s.io/client-go/tools/record (``EventAggregator``, ``EventSourceObjectSpamFilter``).
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import FIELD_MANAGER, ApiCalls, Call
from taint_eviction.adapters.kubernetes_times import format_rfc3339
from taint_eviction.core.objects import PodRef, Taint
from taint_eviction.runtime.ports import CallFailed, Clock

logger = logging.getLogger(__name__)

COMPONENT = "taint-eviction-controller"

# An eviction of a whole zone: while it lasts nothing is posted.
_QUEUE = 20_000
# How soon it is seen that evictions no longer need all that the API server gives.
_LOOK_SECONDS = 0.1
# Pods and events that are remembered for limiting and counting up, as many as in client-go.
_REMEMBERED = 4096
_BURST = 25
_REFILL_SECONDS = 300.0
# A try may be repeated so often, after so many seconds, doubled each time, or what the server advises if that is more.
_TRIES = 4
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 10.0
# The name of an object has at most 253 characters.
_LONGEST_POD_NAME = 253 - 1 - 17
# Failures are told at most this often.
_TELL_SECONDS = 60.0


def marking_for_deletion(ref: PodRef, taint: Taint | None = None) -> str:
    """Say that a pod is being deleted, in upstream's words; ``taint`` None: without naming it."""
    return f"Marking for deletion Pod {ref}" + _due_to(taint)


def cancelling_deletion(ref: PodRef, taint: Taint | None = None) -> str:
    """Say that a pod stays after all, in upstream's words."""
    return f"Cancelling deletion of Pod {ref}" + _due_to(taint)


def _due_to(taint: Taint | None) -> str:
    return "" if taint is None else f" due to taint {taint}"


@dataclass(frozen=True, slots=True)
class _Event:
    ref: PodRef
    reason: str
    message: str
    type: str
    number: int
    epoch: float
    kind: str

    @property
    def name(self) -> str:
        """The event's own, the same for each try: as in client-go the pod's and a time in nanoseconds, but unique."""
        return f"{self.ref.key.name[:_LONGEST_POD_NAME].rstrip('-.')}.{int(self.epoch * 1e9) + self.number:x}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.ref.uid, self.reason, self.message


@dataclass(slots=True)
class _Posted:
    """An event that is on the server, as far as it has to be known to count it up."""

    name: str
    count: int


@dataclass(slots=True)
class _Allowance:
    """What is left of a pod's burst."""

    tokens: float
    at: float


class EventRecorder:
    """Takes events at any time; ``run`` posts them.

    ``counted`` is told what became of each: posted, aggregated, limited, dropped or failed. ``instance`` names this
    replica. ``busy``: there are things to do that matter more than telling of them; events wait until it is false.
    """

    def __init__(
        self,
        calls: ApiCalls,
        clock: Clock,
        instance: str,
        counted: Callable[[str], None],
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._instance = instance
        self._counted = counted
        self._busy = busy
        self._queue: deque[_Event] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._posted: OrderedDict[tuple[str, str, str], _Posted] = OrderedDict()
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()
        self._told_at = float("-inf")
        self._number = 0

    def post(self, ref: PodRef, reason: str, message: str, type: str = "Normal", kind: str = "Pod") -> None:
        """Have an event posted soon, about a pod or another object of the core group; it is dated now."""
        now = self._clock.now()
        if not self._allowed(ref.uid, now.at):
            self._counted("limited")
            return
        if len(self._queue) >= _QUEUE:
            self._queue.popleft()
            self._counted("dropped")
        self._number += 1
        self._queue.append(_Event(ref, reason, message, type, self._number, now.server_epoch, kind))
        self._idle.clear()
        self._arrived.set()

    async def run(self) -> None:
        """Post what arrives until cancelled."""
        while True:
            if not self._queue:
                self._idle.set()
                self._arrived.clear()
                await self._arrived.wait()
            # Many evictions can end it; looking now and then is simpler, and what waits for it can.
            while self._busy():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
            await self._deliver(self._queue.popleft())

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait until everything is posted, while ``run`` runs; False if that was not so in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        return self._idle.is_set()

    async def _deliver(self, event: _Event) -> None:
        wait = _FIRST_WAIT_SECONDS
        for left in reversed(range(_TRIES)):
            try:
                self._counted(await self._send(event))
            except CallFailed as failure:
                if left == 0 or not _is_worth_repeating(failure):
                    self._counted("failed")
                    self._tell(event, failure)
                    return
                await asyncio.sleep(min(max(wait, failure.retry_after_seconds or 0.0), _LONGEST_WAIT_SECONDS))
                wait *= 2
            else:
                return

    async def _send(self, event: _Event) -> str:
        """Count up the earlier one if there is one, create it if not; return what was done."""
        namespace, earlier = event.ref.key.namespace, self._posted.get(event.key)
        if earlier is not None:
            patch = {"count": earlier.count + 1, "lastTimestamp": format_rfc3339(event.epoch)}
            query = {"fieldManager": FIELD_MANAGER}
            answer = await self._calls.make(Call("patch", "events", namespace, earlier.name, query, patch))
            if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.DONE:
                earlier.count += 1
                self._posted.move_to_end(event.key)
                return "aggregated"
            del self._posted[event.key]  # Events expire after an hour.
        call = Call("create", "events", namespace, query={"fieldManager": FIELD_MANAGER}, body=self._body(event))
        answer = await self._calls.make(call)
        if answer.status != 409:  # An earlier try arrived, and only its answer was lost.
            answer.need(Outcome.DONE)
        self._posted[event.key] = _Posted(event.name, 1)
        if len(self._posted) > _REMEMBERED:
            self._posted.popitem(last=False)
        return "posted"

    def _body(self, event: _Event) -> dict[str, Any]:
        ref, at = event.ref, format_rfc3339(event.epoch)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": ref.key.namespace},
            "involvedObject": {
                "kind": event.kind,
                "apiVersion": "v1",
                "namespace": ref.key.namespace,
                "name": ref.key.name,
                "uid": ref.uid,
            },
            "reason": event.reason,
            "message": event.message,
            "type": event.type,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }

    def _allowed(self, uid: str, at: float) -> bool:
        allowance = self._allowances.get(uid)
        if allowance is None:
            allowance = self._allowances[uid] = _Allowance(float(_BURST), at)
            if len(self._allowances) > _REMEMBERED:
                self._allowances.popitem(last=False)
        self._allowances.move_to_end(uid)
        allowance.tokens = min(float(_BURST), allowance.tokens + max(0.0, at - allowance.at) / _REFILL_SECONDS)
        allowance.at = at
        if allowance.tokens < 1.0:
            return False
        allowance.tokens -= 1.0
        return True

    def _tell(self, event: _Event, failure: CallFailed) -> None:
        now = self._clock.now().at
        if now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            logger.warning("an event about %s %s could not be posted: %s", event.kind, event.ref, failure)


def _is_worth_repeating(failure: CallFailed) -> bool:
    """Tell whether it may go well next time: no answer, too many requests, or the server's own trouble."""
    return failure.status is None or failure.status == 429 or failure.status >= 500
