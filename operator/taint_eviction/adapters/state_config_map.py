"""The ConfigMap with the control state (pauses and the breaker), which reaches every replica and outlives them.
People write to it, by command or by hand; the leader does, too. So each write reads first, changes only its own keys,
and is accepted only for exactly the version that was read.

This module does not interpret the keys (``control_state_data``).
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, ApiRequest
from taint_eviction.adapters.control_state_data import (
    BREAKER_KEY,
    CONFIRMED_KEY,
    NO_ADOPTION_KEY,
    confirmed_text,
    key_of,
    latch_text,
    pause_text,
    read_control_state,
    reset_text,
)
from taint_eviction.adapters.json_fields import is_object
from taint_eviction.core.control_state import ControlState, Latch, Pause, PauseScope
from taint_eviction.runtime.ports import CallFailed, FailureReason

logger = logging.getLogger(__name__)

_CONFLICT = 409
# Each conflict means that another write was accepted meanwhile.
_MAX_TRIES = 8
# Per reading: a ConfigMap full of nonsense must not fill the log.
_MAX_WARNINGS = 10

# New values of keys; None removes the key.
_Changes = Mapping[str, str | None]


class StateConfigMap:
    """One ConfigMap; a ``ControlStateStore``. All other fields and unknown keys are kept."""

    def __init__(self, calls: ApiCalls, namespace: str, name: str) -> None:
        self._calls = calls
        self._namespace = namespace
        self._name = name
        # The complaints about the latest reading: each is logged once.
        self._complaints: set[str] = set()

    def __str__(self) -> str:
        return f"ConfigMap {self._namespace}/{self._name}"

    async def read(self) -> ControlState | None:
        """Read the control state; None if the ConfigMap does not exist. A malformed value suspends what it is about."""
        body = await self._get()
        return None if body is None else self._read(body)

    async def write_latch(self, latch: Latch) -> None:
        """Write that the breaker is open, unless it already is, or was reset since."""

        def wanted(control_state: ControlState) -> _Changes:
            reset_since = control_state.reset_epoch is not None and control_state.reset_epoch >= latch.since_epoch
            return {} if control_state.latch is not None or reset_since else {BREAKER_KEY: latch_text(latch)}

        await self._write(wanted)

    async def close_latch(self, latch: Latch, closed_epoch: float) -> None:
        """Write that the breaker was closed then, if this latch is still the one that is stored."""

        def wanted(control_state: ControlState) -> _Changes:
            stands = control_state.latch is not None and control_state.latch.is_same(latch)
            return {BREAKER_KEY: reset_text(closed_epoch)} if stands else {}

        await self._write(wanted)

    async def write_reset(self, reset_epoch: float) -> None:
        """Write that a person has closed the breaker at that time, unless it opened later."""

        def wanted(control_state: ControlState) -> _Changes:
            opened_since = control_state.latch is not None and control_state.latch.since_epoch > reset_epoch
            return {} if opened_since else {BREAKER_KEY: reset_text(reset_epoch)}

        await self._write(wanted)

    async def redate(self, stated_epoch: float, epoch: float) -> None:
        """Change the time at which the breaker was opened or closed to ``epoch``, if it is ``stated_epoch``."""

        def wanted(control_state: ControlState) -> _Changes:
            if control_state.breaker_epoch != stated_epoch:
                return {}
            return {
                BREAKER_KEY: reset_text(epoch)
                if control_state.latch is None
                else latch_text(replace(control_state.latch, since_epoch=epoch))
            }

        await self._write(wanted)

    async def set_pauses(self, pauses: Mapping[PauseScope, Pause | None]) -> None:
        """Pause the scopes with a pause here, and resume those with None.

        A scope that is paused keeps its pause, unless the new one lasts longer: that counts from when it was paused.
        """

        def wanted(control_state: ControlState) -> _Changes:
            known = control_state.pauses()
            return {
                key_of(scope): None if pause is None else pause_text(_lasting(known.get(scope), pause))
                for scope, pause in pauses.items()
                if (scope in known if pause is None else scope not in known or pause.outlasts(known[scope]))
            }

        await self._write(wanted)

    async def end_pauses(self, ended: Mapping[PauseScope, Pause]) -> None:
        """Remove these pauses, which have ended by themselves; one that was replaced meanwhile stays."""

        def wanted(control_state: ControlState) -> _Changes:
            known = control_state.pauses()
            return {key_of(scope): None for scope, pause in ended.items() if known.get(scope) == pause}

        await self._write(wanted)

    async def set_no_adoption(self, ended: Pause | None) -> None:
        """Stop adoption, or (None) allow it again. If that is already so, nothing changes."""

        def wanted(control_state: ControlState) -> _Changes:
            if (ended is None) == (control_state.no_adoption is None):
                return {}
            # A confirmation of an earlier order does not confirm this one.
            return {NO_ADOPTION_KEY: None if ended is None else pause_text(ended), CONFIRMED_KEY: None}

        await self._write(wanted)

    async def confirm_no_adoption(self, holder: str) -> None:
        """Write that this holder of the Lease adopts nothing, if that is still ordered."""

        def wanted(control_state: ControlState) -> _Changes:
            obeys = control_state.no_adoption is not None and control_state.no_adoption_confirmed_by != holder
            return {CONFIRMED_KEY: confirmed_text(holder)} if obeys else {}

        await self._write(wanted)

    # Reading

    async def _get(self) -> Mapping[str, Any] | None:
        answer = await self._calls.make(ApiRequest("get", "configmaps", self._namespace, self._name))
        if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
            return None
        body: Mapping[str, Any] = answer.body
        metadata = body.get("metadata") if is_object(body) and body.get("kind") == "ConfigMap" else None
        # Another server's answer, such as a proxy's, must not look like a cluster without pauses.
        if not is_object(metadata) or not isinstance(metadata.get("resourceVersion"), str):
            raise CallFailed("the API server's answer is not a ConfigMap")
        return body

    def _read(self, body: Mapping[str, Any]) -> ControlState:
        control_state, complaints = read_control_state(body)
        news = [complaint for complaint in complaints if complaint not in self._complaints]
        for complaint in news[:_MAX_WARNINGS]:
            logger.warning("%s: %s", self, complaint)
        if len(news) > _MAX_WARNINGS:
            logger.warning("%s: %d more keys are unknown or malformed", self, len(news) - _MAX_WARNINGS)
        self._complaints = set(complaints)
        return control_state

    # Writing

    async def _write(self, wanted: Callable[[ControlState], _Changes]) -> None:
        """Read, and make the changes that are then wanted; repeat this after a conflict."""
        for _ in range(_MAX_TRIES):
            body = await self._get()
            changes = wanted(ControlState() if body is None else self._read(body))
            if not changes:
                return
            answer = await self._calls.make(self._creation(changes) if body is None else self._patch(body, changes))
            if answer.status != _CONFLICT and answer.outcome is not Outcome.ABSENT:
                answer.need(Outcome.DONE)
                return
        why = f"{self} was changed by others meanwhile, {_MAX_TRIES} times in a row"
        raise CallFailed(why, reason=FailureReason.CONFLICT)

    def _creation(self, changes: _Changes) -> ApiRequest:
        metadata = {"name": self._name, "namespace": self._namespace}
        data = {key: text for key, text in changes.items() if text is not None}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        return ApiRequest("create", "configmaps", self._namespace, body=body)

    def _patch(self, body: Mapping[str, Any], changes: _Changes) -> ApiRequest:
        patch = {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "data": changes}
        # The API server accepts no key that is in both data and binaryData.
        binary = [key for key in changes if key in (body.get("binaryData") or ())]
        return ApiRequest(
            "patch",
            "configmaps",
            self._namespace,
            self._name,
            body=patch | ({"binaryData": dict.fromkeys(binary)} if binary else {}),
        )


def _lasting(before: Pause | None, pause: Pause) -> Pause:
    """Let a pause that replaces another one count from the start of that one, unless that one had ended."""
    if before is None or pause.since_epoch is None or before.has_ended(pause.since_epoch):
        return pause
    return replace(pause, since_epoch=before.since_epoch)
