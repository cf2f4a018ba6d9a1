"""The ConfigMap in which orders are kept, so that they reach every replica and outlive all of them.

Everybody writes to it: people, by command or by hand, and whoever leads. So each write is decided on what stands there,
changes its own keys alone, and is only accepted for exactly the version it was decided on.

Does not know what its keys say (``orders_data``), nor who obeys them.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, Call
from taint_eviction.adapters.json_fields import is_object
from taint_eviction.adapters.orders_data import (
    BREAKER_KEY,
    PauseScope,
    latch_text,
    pause_text,
    read_orders,
    reset_text,
)
from taint_eviction.core.orders import Latch, Orders, Pause
from taint_eviction.runtime.ports import CallFailed

logger = logging.getLogger(__name__)

_CONFLICT = 409
# Each lost try means that somebody else's write was accepted meanwhile.
_MOST_TRIES = 8
# Of a reading; whoever fills a ConfigMap with nonsense need not fill the log as well.
_MOST_WARNINGS = 10

# Values of keys; None removes the key.
_Changes = Mapping[str, str | None]


class StateConfigMap:
    """One ConfigMap; an ``OrdersStore``. What others have written on it is kept, keys that are unknown as well."""

    def __init__(self, calls: ApiCalls, namespace: str, name: str) -> None:
        self._calls = calls
        self._namespace = namespace
        self._name = name
        self._told: set[str] = set()

    def __str__(self) -> str:
        return f"ConfigMap {self._namespace}/{self._name}"

    async def read(self) -> Orders | None:
        """Read the orders; None if there is no such ConfigMap. What is malformed in it holds what it is about."""
        body = await self._get()
        return None if body is None else self._read(body)

    async def write_latch(self, latch: Latch) -> None:
        """Keep that the breaker is open, unless that stands there already, or that it was reset since."""

        def wanted(orders: Orders) -> _Changes:
            reset_since = orders.reset_epoch is not None and orders.reset_epoch >= latch.since_epoch
            return {} if orders.latch is not None or reset_since else {BREAKER_KEY: latch_text(latch)}

        await self._write(wanted)

    async def write_reset(self, reset_epoch: float) -> None:
        """Keep that the breaker was closed then, unless it is closed already, or was opened later."""

        def wanted(orders: Orders) -> _Changes:
            closed = orders.latch is None and orders.reset_epoch is not None
            opened_since = orders.latch is not None and orders.latch.since_epoch > reset_epoch
            return {} if closed or opened_since else {BREAKER_KEY: reset_text(reset_epoch)}

        await self._write(wanted)

    async def set_pauses(self, pauses: Mapping[PauseScope, Pause | None]) -> None:
        """Pause what has a pause here, and resume what has None. What is paused already keeps the pause it has."""

        def wanted(orders: Orders) -> _Changes:
            return {
                scope.key: None if pause is None else pause_text(pause)
                for scope, pause in pauses.items()
                if (pause is None) != (scope.pause_in(orders) is None)
            }

        await self._write(wanted)

    # Reading

    async def _get(self) -> Mapping[str, Any] | None:
        answer = await self._calls.make(Call("get", "configmaps", self._namespace, self._name))
        if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
            return None
        body: Mapping[str, Any] = answer.body
        metadata = body.get("metadata") if is_object(body) and body.get("kind") == "ConfigMap" else None
        # Somebody else's answer, a proxy's say, must not look like a cluster in which nothing is held.
        if not is_object(metadata) or not isinstance(metadata.get("resourceVersion"), str):
            raise CallFailed("the API server's answer is no ConfigMap")
        return body

    def _read(self, body: Mapping[str, Any]) -> Orders:
        orders, complaints = read_orders(body)
        news = [complaint for complaint in complaints if complaint not in self._told]
        for complaint in news[:_MOST_WARNINGS]:
            logger.warning("%s: %s", self, complaint)
        if len(news) > _MOST_WARNINGS:
            logger.warning("%s: %d more keys are unknown or malformed", self, len(news) - _MOST_WARNINGS)
        self._told = set(complaints)
        return orders

    # Writing

    async def _write(self, wanted: Callable[[Orders], _Changes]) -> None:
        """Make the changes that are wanted given what stands there; decide again when somebody else was faster."""
        for _ in range(_MOST_TRIES):
            body = await self._get()
            changes = wanted(Orders() if body is None else self._read(body))
            if not changes:
                return
            answer = await self._calls.make(self._creation(changes) if body is None else self._patch(body, changes))
            if answer.status != _CONFLICT and answer.outcome is not Outcome.ABSENT:
                answer.need(Outcome.DONE)
                return
        raise CallFailed(f"{self} was changed by others meanwhile, {_MOST_TRIES} times in a row", status=_CONFLICT)

    def _creation(self, changes: _Changes) -> Call:
        metadata = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": changes}
        return Call("create", "configmaps", self._namespace, body=body)

    def _patch(self, body: Mapping[str, Any], changes: _Changes) -> Call:
        patch = {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "data": changes}
        # The API server takes no key that is in both maps.
        binary = [key for key in changes if key in (body.get("binaryData") or ())]
        return Call(
            "patch",
            "configmaps",
            self._namespace,
            self._name,
            body=patch | ({"binaryData": dict.fromkeys(binary)} if binary else {}),
        )
