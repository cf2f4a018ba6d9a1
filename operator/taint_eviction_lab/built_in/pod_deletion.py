"""How the model deletes a pod: an event, and five tries of GET, PATCH of the condition, and DELETE.

The pod is identified by its name only. Nothing is decided again between the timer and the last call. An answer with a
Retry-After is no failure for Kubernetes' client: it tries again up to ten times within one call.

Reference: ``deletePodHandler`` and ``addConditionAndDeletePod`` in pkg/controller/tainteviction/taint_eviction.go,
k8s.io/client-go/rest/with_retry.go.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from taint_eviction.core.objects import NamespacedName
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_lab.built_in.doors import BuiltInReporter, PodClient
from taint_eviction_lab.built_in.rate_limit import ClientRateLimit
from taint_eviction_lab.built_in.version import BuiltInVersion

AnswerT = TypeVar("AnswerT")

_TRIES = 5
_BETWEEN_TRIES_SECONDS = 0.010
_CLIENT_RETRIES = 10
_NANOSECONDS = 10**9


def go_int64(number: int) -> int:
    """Return a number as Go's int64, which wraps around."""
    return (number + 2**63) % 2**64 - 2**63


class PodDeletion:
    """Deletes pods; ``durations`` are what its metric has observed, in order."""

    def __init__(self, version: BuiltInVersion, client: PodClient, reporter: BuiltInReporter) -> None:
        self.durations: list[float] = []
        self._version = version
        self._client = client
        self._reporter = reporter
        self._limit = ClientRateLimit()
        self._events: asyncio.Queue[tuple[NamespacedName, str]] = asyncio.Queue()

    async def delete(self, key: NamespacedName, fire_at: float) -> bool:
        """Delete the pod of this name; False after five failures."""
        self.post(key, f"Marking for deletion Pod {key}")
        failure = ""
        for _ in range(_TRIES):
            try:
                await self._mark_and_delete(key)
            except CallFailed as failed:
                failure = str(failed)
                await asyncio.sleep(_BETWEEN_TRIES_SECONDS)
            else:
                self._observe(asyncio.get_running_loop().time() - fire_at)
                return True
        self._reporter.gave_up(key, failure)
        return False

    async def _mark_and_delete(self, key: NamespacedName) -> None:
        pod = await self._call(lambda: self._client.get(key))
        if not pod.marked:
            await self._call(lambda: self._client.mark(pod))
        await self._call(lambda: self._client.delete(key))

    async def _call(self, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        for _ in range(_CLIENT_RETRIES):
            await self._limit.wait()
            try:
                return await call()
            except CallFailed as failure:
                if failure.retry_after_seconds is None:
                    raise
                await asyncio.sleep(failure.retry_after_seconds)
        await self._limit.wait()
        return await call()

    def _observe(self, seconds: float) -> None:
        if self._version.measures_seconds:
            self.durations.append(seconds)
        else:
            self.durations.append(float(go_int64(round(seconds * _NANOSECONDS) * _NANOSECONDS)))

    # Events

    def post(self, key: NamespacedName, message: str) -> None:
        """Queue an event, to be posted in its turn."""
        self._events.put_nowait((key, message))

    async def post_events(self) -> None:
        """Post events one after another, until cancelled."""
        while True:
            key, message = await self._events.get()
            await self._limit.wait()
            self._reporter.event(key, message)
