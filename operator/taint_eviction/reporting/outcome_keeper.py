"""Keeps the last outcomes in a ConfigMap, so that they outlive a rollout: the leader writes, the next one restores.

A leader first reads what earlier ones have kept, and adds it to its memory. Then it writes at most once a minute, while
there is something new, and once more at its end. A write is accepted only for exactly the version that was read: so a
late write of a former leader erases nothing, and after a conflict both are merged. A failed call is made again at the
next minute. None of this delays an eviction, or the Lease.

This module does not remember outcomes (``outcome_memory``), and does not know their format (``outcome_record``).
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from taint_eviction.core.objects import NamespacedName
from taint_eviction.core.text import JsonObject
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.json_fields import Unreadable
from taint_eviction.kube.outcome_record import OutcomePacker, OutcomeRecord, read_record
from taint_eviction.reporting.outcome_memory import OutcomeMemory
from taint_eviction.runtime.lasting_failure import LastingFailure
from taint_eviction.runtime.ports import CallFailed, Clock, Gate

logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")

_INTERVAL_SECONDS = 60.0
# How often the keeper checks whether this process leads.
_CHECK_SECONDS = 1.0
# Each conflict means that another process has written meanwhile.
_MAX_TRIES = 3
_CONFLICT = 409
# How many outcomes are read or written before others have their turn.
_SLICE = 100


async def read_kept(calls: ApiCalls, key: NamespacedName) -> tuple[str | None, OutcomeRecord | None]:
    """Read the ConfigMap; return its version (None: it does not exist) and what it has (None: nothing).

    Raises ``CallFailed``, and ``Unreadable`` with the version.
    """
    answer = await calls.make(ApiRequest("get", "configmaps", *key))
    if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
        return None, None
    version = answer.body["metadata"].get("resourceVersion")
    if not isinstance(version, str):
        raise CallFailed("the API server's answer is not a ConfigMap with a version")
    try:
        return version, read_record(answer.body)
    except Unreadable as error:
        raise UnreadableRecord(version, str(error)) from error


class UnreadableRecord(Unreadable):
    """A ConfigMap of this ``version`` whose outcomes cannot be read; the message says why."""

    def __init__(self, version: str, why: str) -> None:
        super().__init__(why)
        self.version = version


class OutcomeKeeper:
    """Keeps the outcomes of ``memory`` in the ConfigMap ``key`` while ``gate`` says that this process leads.

    ``identity`` is the process, as others know it. ``reasons`` False: what names a taint is left out. ``counted`` is
    called with the result of each attempt: written or failed.
    """

    def __init__(
        self,
        calls: ApiCalls,
        clock: Clock,
        gate: Gate,
        memory: OutcomeMemory,
        key: NamespacedName,
        *,
        identity: str,
        reasons: bool,
        dry_run: bool,
        counted: Callable[[str], None],
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._gate = gate
        self._memory = memory
        self._key = key
        self._identity = identity
        self._reasons = reasons
        self._dry_run = dry_run
        self._counted = counted
        # The leadership in which the ConfigMap was read, None: in none yet.
        self._term: int | None = None
        # Of the ConfigMap as it was last read or written, None: it did not exist.
        self._version: str | None = None
        # The changes of the memory that the ConfigMap has, None: it lacks what was read from elsewhere.
        self._written: int | None = None
        self._turn = asyncio.Lock()
        self._failing = LastingFailure()

    def unkept_seconds(self) -> float:
        """Return for how long outcomes could not be kept or restored; 0 if they can, or others have to."""
        since = self._failing.since_at if self._gate.may_act() else None
        return 0.0 if since is None else self._clock.now().at - since

    def restored_from(self) -> str | None:
        """Return the ConfigMap if this process has restored what was kept there, else None."""
        return None if self._term is None else str(self._key)

    async def run(self) -> None:
        """Restore, and keep, until cancelled."""
        term, next_at = None, -math.inf
        while True:
            now = self._clock.now().at
            if self._gate.may_act() and (now >= next_at or term != self._gate.term):
                term, next_at = self._gate.term, now + _INTERVAL_SECONDS
                await self._keep()
            await asyncio.sleep(_CHECK_SECONDS)

    async def drain(self, timeout_seconds: float) -> bool:
        """Write what is not written yet, in this time at most; return whether everything is written."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                return await self._keep()
        return False

    async def _keep(self) -> bool:
        async with self._turn:
            if not self._gate.may_act():
                return False
            try:
                await self._sync()
            except CallFailed as failure:
                self._counted("failed")
                if self._failing.goes_on(self._clock.now().at):
                    logger.warning("the last outcomes cannot be kept in ConfigMap %s: %s", self._key, failure)
                return False
            if self._failing.ends():
                logger.info("the last outcomes are kept in ConfigMap %s again", self._key)
            return True

    async def _sync(self) -> None:
        """Read unless the version is known, and write unless nothing is new; repeat this after a conflict."""
        for _ in range(_MAX_TRIES):
            if self._term != self._gate.term:
                await self._restore()
            if self._written == self._memory.changes or not self._gate.may_act():
                return
            changes = self._memory.changes
            body = await self._packed()
            answer = await self._calls.make(self._request(body))
            if answer.status == _CONFLICT or answer.outcome is Outcome.ABSENT:
                self._term = None
                continue
            self._version = answer.need(Outcome.DONE).body["metadata"].get("resourceVersion")
            self._written = changes
            self._counted("written")
            return
        raise CallFailed(f"it was changed by others meanwhile, {_MAX_TRIES} times in a row")

    async def _restore(self) -> None:
        term = self._gate.term
        try:
            self._version, record = await read_kept(self._calls, self._key)
        except UnreadableRecord as error:
            logger.warning("the outcomes in ConfigMap %s are dropped: %s", self._key, error)
            self._version, record = error.version, None
        changes, more = self._memory.changes, len(self._memory) > 0
        if record is not None:
            outcomes = await _in_turns(record.outcomes())
            readable = [each for each in outcomes if each is not None]
            if len(readable) < len(outcomes):
                dropped = len(outcomes) - len(readable)
                logger.warning("%d outcomes in ConfigMap %s cannot be read, and are dropped", dropped, self._key)
            more = self._memory.restore(readable, record.since_epoch, self._clock.now())
            logger.info(
                "restored %d outcomes that %s has kept in ConfigMap %s", len(readable), record.writer, self._key
            )
        self._written = None if more else changes
        self._term = term

    async def _packed(self) -> JsonObject:
        now = self._clock.now()
        packer = OutcomePacker(self._reasons, self._identity)
        since_at = self._memory.since_at
        outcomes = iter(list(self._memory.newest()))
        oldest_at = now.at
        while part := list(islice(outcomes, _SLICE)):
            if not packer.add([each.document(now) for each in part]):
                since_at = oldest_at
                break
            oldest_at = part[-1].at
            await asyncio.sleep(0)
        return packer.finish(now.epoch_of(since_at), now.server_epoch, self._dry_run)

    def _request(self, content: JsonObject) -> ApiRequest:
        if self._version is None:
            metadata = {"name": self._key.name, "namespace": self._key.namespace}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}
            return ApiRequest("create", "configmaps", self._key.namespace, body=body)
        body = {"metadata": {"resourceVersion": self._version}, **content}
        return ApiRequest("patch", "configmaps", *self._key, body=body)


async def _in_turns(items: Iterable[ItemT]) -> list[ItemT]:
    """Return all items; others have their turn between slices of them."""
    found: list[ItemT] = []
    left = iter(items)
    while part := list(islice(left, _SLICE)):
        found += part
        await asyncio.sleep(0)
    return found
