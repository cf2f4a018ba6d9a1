"""Kubernetes events, mostly about pods: posted in the background, aggregated and rate limited as in client-go.

Posting neither blocks nor raises: each namespace has a queue, they take turns, and one whose post fails rests, longer
each time, and then comes after those whose posts succeed. A post that takes longer than a second lends its turn, while
few are lent. So an admission webhook that hangs for some namespaces does not hold up the events of others. The queues
are bounded together: the longest drops its oldest event. A repeated event about the same pod increases the count of the
earlier one. Each pod has a burst of 25 events, and then one event in 5 minutes. Events carry the pod's UID: without it
``kubectl describe pod`` does not show them.

Reference: k8s.io/client-go/tools/record (``EventAggregator``, ``EventSourceObjectSpamFilter``).
"""

import asyncio
import contextlib
import logging
import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from taint_eviction.core.objects import PodRef
from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import FIELD_MANAGER, ApiCalls, ApiRequest
from taint_eviction.kube.bounded import BoundedDict, Throttle
from taint_eviction.runtime.ports import CallFailed, Clock

logger = logging.getLogger(__name__)

COMPONENT = "taint-eviction-controller"

# Enough for the eviction of a whole zone: nothing is posted while it lasts.
_QUEUE = 20_000
# How often the recorder checks whether evictions still need all of the API server's capacity.
_CHECK_SECONDS = 0.1
# How many pods, events and namespaces are remembered for limiting and aggregating; as many as in client-go.
_REMEMBERED = 4096
_BURST = 25
_REFILL_SECONDS = 300.0
# How often an event is sent. Meanwhile its namespace rests, twice as long each time until a post succeeds there.
_TRIES = 4
_FIRST_REST_SECONDS = 0.5
_MAX_REST_SECONDS = 300.0
# A post that takes longer lends its turn; at most so many are under way at a time.
_LENDS_SECONDS = 1.0
_MAX_UNDER_WAY = 10
# All namespaces wait for as long as the API server asks, up to this.
_MAX_WAIT_SECONDS = 10.0
# The name of an object has at most 253 characters.
_MAX_POD_NAME = 253 - 1 - 17
# Failures are logged at most this often.
_LOG_SECONDS = 60.0


def marking_for_deletion(ref: PodRef, reason: str = "") -> str:
    """Return upstream's message about a pod that is deleted, with the reason, if there is one."""
    return f"Marking for deletion Pod {ref}{reason and f': {reason}'}"


def cancelling_deletion(ref: PodRef, reason: str = "") -> str:
    """Return upstream's message about a pod whose deletion is cancelled, with the reason, if there is one."""
    return f"Cancelling deletion of Pod {ref}{reason and f': {reason}'}"


@dataclass(frozen=True, slots=True)
class _Event:
    ref: PodRef
    reason: str
    message: str
    type: str
    number: int
    epoch: float
    kind: str
    tries: int = 0

    @property
    def name(self) -> str:
        """The name of the event: as in client-go the pod's name and nanoseconds, but unique and equal for each try."""
        return f"{self.ref.key.name[:_MAX_POD_NAME].rstrip('-.')}.{int(self.epoch * 1e9) + self.number:x}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.ref.uid, self.reason, self.message


@dataclass(frozen=True, slots=True)
class _PostedEvent:
    """The part of an event on the API server that is needed to increase its count."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class _Allowance:
    """The rest of a pod's burst, as of ``at``."""

    tokens: float
    at: float


class EventRecorder:
    """Takes events at any time; ``run`` posts them.

    ``counted`` is called with the result of each event: posted, aggregated, limited, dropped or failed. ``instance``
    names this replica. Events wait while ``busy`` returns True: evictions come first.
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
        # By namespace; one that rests, or whose post is under way, may have an empty queue, and has no turn.
        self._queues: defaultdict[str, deque[_Event]] = defaultdict(deque)
        # Namespaces whose last post failed come after all others.
        self._turns: deque[str] = deque()
        self._later_turns: deque[str] = deque()
        # No event is posted before, by the loop's clock: the API server asked for that.
        self._resumes_at = -math.inf
        # How many events are not posted yet, with those that are under way.
        self._waiting = 0
        self._has_turn = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._posted: BoundedDict[tuple[str, str, str], _PostedEvent] = BoundedDict(_REMEMBERED)
        self._allowances: BoundedDict[str, _Allowance] = BoundedDict(_REMEMBERED)
        # By namespace: how long its next rest is, unless that is the first.
        self._rest_seconds: BoundedDict[str, float] = BoundedDict(_REMEMBERED)
        self._log_throttle = Throttle(clock, _LOG_SECONDS)
        self._number = 0

    def post(self, ref: PodRef, reason: str, message: str, type: str = "Normal", kind: str = "Pod") -> None:
        """Queue an event about a pod or another object of the core group, with the current time."""
        now = self._clock.now()
        if not self._allowed(ref.uid, now.at):
            self._counted("limited")
            return
        if self._waiting >= _QUEUE:
            max(self._queues.values(), key=len).popleft()
            self._waiting -= 1
            self._counted("dropped")
        self._number += 1
        self._waiting += 1
        self._idle.clear()
        namespace = ref.key.namespace
        if namespace not in self._queues:
            self._give_turn(namespace)
        self._queues[namespace].append(_Event(ref, reason, message, type, self._number, now.server_epoch, kind))

    def _give_turn(self, namespace: str) -> None:
        (self._later_turns if namespace in self._rest_seconds else self._turns).append(namespace)
        self._has_turn.set()

    async def run(self) -> None:
        """Post queued events until cancelled."""
        loop, room = asyncio.get_running_loop(), asyncio.Semaphore(_MAX_UNDER_WAY)
        async with asyncio.TaskGroup() as group:
            while True:
                await room.acquire()
                await self._has_turn.wait()
                # The end of any eviction can end this wait. Polling is simpler, and events are not urgent.
                while self._busy():  # noqa: ASYNC110
                    await asyncio.sleep(_CHECK_SECONDS)
                await asyncio.sleep(max(0.0, self._resumes_at - loop.time()))
                namespace = (self._turns or self._later_turns).popleft()
                if not (self._turns or self._later_turns):
                    self._has_turn.clear()
                turn = group.create_task(self._take_turn(namespace), name=f"post an event in {namespace}")
                turn.add_done_callback(lambda _: room.release())
                await asyncio.wait((turn,), timeout=_LENDS_SECONDS)

    async def _take_turn(self, namespace: str) -> None:
        queue = self._queues[namespace]
        rest_seconds = await self._deliver(queue) if queue else 0.0
        if rest_seconds:
            asyncio.get_running_loop().call_later(rest_seconds, self._give_turn, namespace)
        elif queue:
            self._give_turn(namespace)
        else:
            del self._queues[namespace]
        if self._waiting == 0:
            self._idle.set()

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait until ``run`` has posted everything; return False on timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        return self._idle.is_set()

    async def _deliver(self, queue: deque[_Event]) -> float:
        """Send the first event of a queue; return for how long its namespace rests then."""
        event, rest_seconds = queue.popleft(), 0.0
        namespace = event.ref.key.namespace
        try:
            result = await self._send(event)
        except CallFailed as failure:
            if failure.may_pass:
                rest_seconds = self._rest_seconds.get(namespace, _FIRST_REST_SECONDS)
                self._rest_seconds[namespace] = min(2 * rest_seconds, _MAX_REST_SECONDS)
                wait_seconds = min(failure.retry_after_seconds or 0.0, _MAX_WAIT_SECONDS)
                if not failure.denied:  # A webhook speaks for its namespace alone.
                    self._resumes_at = max(self._resumes_at, asyncio.get_running_loop().time() + wait_seconds)
                rest_seconds += wait_seconds
                if event.tries + 1 < _TRIES:
                    queue.appendleft(replace(event, tries=event.tries + 1))
                    return rest_seconds
            result = "failed"
            self._report(event, failure)
        else:
            self._rest_seconds.pop(namespace, None)
        self._waiting -= 1
        self._counted(result)
        return rest_seconds

    async def _send(self, event: _Event) -> str:
        """Increase the count of the earlier event, or create an event if there is none; return the result."""
        namespace, earlier = event.ref.key.namespace, self._posted.get(event.key)
        if earlier is not None:
            patch = {"count": earlier.count + 1, "lastTimestamp": format_rfc3339(event.epoch)}
            query = {"fieldManager": FIELD_MANAGER}
            answer = await self._calls.make(ApiRequest("patch", "events", namespace, earlier.name, query, patch))
            if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.DONE:
                self._posted[event.key] = _PostedEvent(earlier.name, earlier.count + 1)
                return "aggregated"
            del self._posted[event.key]  # It has expired, as events do after an hour.
        call = ApiRequest("create", "events", namespace, query={"fieldManager": FIELD_MANAGER}, body=self._body(event))
        answer = await self._calls.make(call)
        if answer.status != 409:  # An earlier try created it, and its answer was lost.
            answer.need(Outcome.DONE)
        self._posted[event.key] = _PostedEvent(event.name, 1)
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
        before = self._allowances.get(uid) or _Allowance(float(_BURST), at)
        tokens = min(float(_BURST), before.tokens + max(0.0, at - before.at) / _REFILL_SECONDS)
        allowed = tokens >= 1.0
        self._allowances[uid] = _Allowance(tokens - 1.0 if allowed else tokens, at)
        return allowed

    def _report(self, event: _Event, failure: CallFailed) -> None:
        if self._log_throttle.passes():
            logger.warning("an event about %s %s could not be posted: %s", event.kind, event.ref, failure)
