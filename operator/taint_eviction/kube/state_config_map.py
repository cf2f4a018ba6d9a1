"""The ConfigMap with the control state (pauses and the breaker), which reaches every replica and outlives them.
People write to it, by command or by hand; the leader does, too. So each write reads first, changes only its own keys,
and is accepted only for exactly the version that was read. Nothing is written to one that this version does not
understand.

A tool that applies manifests may create the ConfigMap again after it was deleted, or replace all that is in it. The key
``format``, which only a leader adds (``keep``), tells whether what was lost has been added to it.

This module does not interpret the keys (``control_state_data``).
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from taint_eviction.core.control_state import ControlState, Latch, Pause, PauseScope
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.control_state_data import (
    ADOPTS_KEY,
    BREAKER_KEY,
    CONFIRMED_KEY,
    FORMAT_KEY,
    NO_ADOPTION_KEY,
    TAKEN_OVER,
    Changes,
    confirmed_text,
    has_format,
    keys_of,
    latch_text,
    pause_changes,
    pause_text,
    read_control_state,
    reset_text,
    too_many,
    unusable,
    with_format,
)
from taint_eviction.runtime.ports import CallFailed, FailureReason

logger = logging.getLogger(__name__)

_CONFLICT = 409
# Each conflict means that another write was accepted meanwhile.
_MAX_TRIES = 8
# Per reading: a ConfigMap full of nonsense must not fill the log.
_MAX_WARNINGS = 10

Body = Mapping[str, Any]

_NO_PAUSES: Mapping[PauseScope, Pause] = MappingProxyType({})


class UnusableState(CallFailed):
    """The ConfigMap has a newer format, or more keys, than this version can read or write."""


class StateConfigMap:
    """One ConfigMap; a ``ControlStateStore``. All other fields and unknown keys are kept."""

    def __init__(self, calls: ApiCalls, namespace: str, name: str) -> None:
        self._calls = calls
        self._namespace = namespace
        self._name = name
        # The complaints about the latest reading: each is logged once.
        self._complaints: set[str] = set()
        # Of the object that was read last, unless no leader has taken over what was created or replaced since.
        self._uid, self._formatted = "", False

    def __str__(self) -> str:
        return f"ConfigMap {self._namespace}/{self._name}"

    async def read(self) -> ControlState | None:
        """Read the control state; None if the ConfigMap does not exist. A malformed value suspends what it is about."""
        body = await self._get()
        if body is None:
            return None
        uid, formatted = str(body["metadata"].get("uid")), has_format(body)
        if not formatted and (self._formatted or self._uid not in ("", uid)):
            return replace(self._read(body), recreated=True)
        self._uid, self._formatted = uid, formatted
        return self._read(body)

    async def keep(self, lost: ControlState) -> None:
        """Create the ConfigMap, or take it over, unless a leader already has: add what was lost with an earlier one."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            known, merged = control_state.pauses(), control_state.with_lost(lost)
            lacking = {scope: pause for scope, pause in merged.pauses().items() if scope not in known}
            missing = dict(pause_changes(body, lacking))
            if control_state.breaker_epoch is None and merged.latch is not None:
                missing[BREAKER_KEY] = latch_text(merged.latch)
            elif control_state.breaker_epoch is None and merged.reset_epoch is not None:
                missing[BREAKER_KEY] = reset_text(merged.reset_epoch, merged.closed_by)
            if control_state.no_adoption is None and merged.no_adoption is not None:
                missing[NO_ADOPTION_KEY] = pause_text(merged.no_adoption)
            if merged.adopter and not control_state.adopter:
                missing[ADOPTS_KEY] = merged.adopter
            return {**missing, FORMAT_KEY: TAKEN_OVER}

        await self._write(wanted, unless=lambda body: has_format(body) or unusable(body) is not None)

    async def write_latch(self, latch: Latch) -> None:
        """Write that the breaker is open, unless it was reset since; what is written already stays (``added_to``)."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            reset_since = control_state.reset_epoch is not None and control_state.reset_epoch >= latch.since_epoch
            after = latch.added_to(control_state.latch)
            return {} if after == control_state.latch or reset_since else {BREAKER_KEY: latch_text(after)}

        await self._write(wanted)

    async def close_latch(self, latch: Latch, closed_epoch: float, closed_by: str = "") -> None:
        """Write that the breaker was closed then, if this latch is still the one that is stored."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            stands = control_state.latch is not None and control_state.latch.is_same(latch)
            return {BREAKER_KEY: reset_text(closed_epoch, closed_by)} if stands else {}

        await self._write(wanted)

    async def write_reset(self, reset_epoch: float) -> None:
        """Write that a person has closed the breaker at that time, unless it opened later."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            opened_since = control_state.latch is not None and control_state.latch.since_epoch > reset_epoch
            return {} if opened_since else {BREAKER_KEY: reset_text(reset_epoch)}

        await self._write(wanted)

    async def redate(self, stated_epoch: float, epoch: float) -> None:
        """Change the time at which the breaker was opened or closed to ``epoch``, if it is ``stated_epoch``."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            if control_state.breaker_epoch != stated_epoch:
                return {}
            return {
                BREAKER_KEY: reset_text(epoch, control_state.closed_by)
                if control_state.latch is None
                else latch_text(replace(control_state.latch, since_epoch=epoch))
            }

        await self._write(wanted)

    async def set_pauses(
        self, pauses: Mapping[PauseScope, Pause | None], shown: Mapping[PauseScope, Pause] = _NO_PAUSES
    ) -> bool:
        """Pause the scopes with a pause here, and resume those with None.

        A scope that is paused keeps its pause, unless the new one lasts longer: that counts from when it was paused.
        Change nothing, and return False, if one of the pauses ``shown`` is not in force any more as it was.
        """
        stand = True

        def wanted(control_state: ControlState, body: Body) -> Changes:
            nonlocal stand
            known = control_state.pauses()
            stand = all(known.get(scope) == pause for scope, pause in shown.items())
            if not stand:
                return {}
            changed = {
                scope: None if pause is None else _lasting(known.get(scope), pause)
                for scope, pause in pauses.items()
                if (scope in known if pause is None else scope not in known or pause.outlasts(known[scope]))
            }
            return pause_changes(body, changed)

        await self._write(wanted)
        return stand

    async def end_pauses(self, ended: Mapping[PauseScope, Pause]) -> None:
        """Remove these pauses, which have ended by themselves; one that was replaced meanwhile stays."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            known = control_state.pauses()
            return pause_changes(body, {scope: None for scope, pause in ended.items() if known.get(scope) == pause})

        await self._write(wanted)

    async def set_no_adoption(self, ended: Pause | None) -> None:
        """Stop adoption, or (None) allow it again. If that is already so, nothing changes."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            if (ended is None) == (control_state.no_adoption is None):
                return {}
            # A confirmation of an earlier order does not confirm this one.
            return {NO_ADOPTION_KEY: None if ended is None else pause_text(ended), CONFIRMED_KEY: None}

        await self._write(wanted)

    async def confirm_no_adoption(self, holder: str, order: Pause) -> None:
        """Write that this holder of the Lease obeys the order to adopt nothing, if it is still this order."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            obeys = control_state.no_adoption == order and control_state.no_adoption_confirmed_by != holder
            return {CONFIRMED_KEY: confirmed_text(holder)} if obeys else {}

        await self._write(wanted, unless=lambda body: unusable(body) is not None)

    async def write_adopter(self, adopter: str) -> None:
        """Write who takes countdowns over from now on."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            return {} if control_state.adopter == adopter else {ADOPTS_KEY: adopter}

        await self._write(wanted)

    async def remove_adopter(self, seen: str) -> None:
        """Write that nobody takes countdowns over, unless somebody else does so since ``seen``."""

        def wanted(control_state: ControlState, body: Body) -> Changes:
            return {ADOPTS_KEY: None} if seen and control_state.adopter == seen else {}

        await self._write(wanted)

    async def fit_format(self) -> None:
        """Write the format that the keys need, where somebody has changed keys by hand."""
        await self._write(lambda *_: {})

    # Reading

    async def _get(self) -> Mapping[str, Any] | None:
        answer = await self._calls.make(ApiRequest("get", "configmaps", self._namespace, self._name))
        if answer.need(Outcome.DONE, Outcome.ABSENT).outcome is Outcome.ABSENT:
            return None
        body: Mapping[str, Any] = answer.body
        # Another server's answer, such as a proxy's, must not look like a cluster without pauses.
        if not isinstance(body["metadata"].get("resourceVersion"), str):
            raise CallFailed("the API server's answer is not a ConfigMap with a version")
        return body

    def _read(self, body: Mapping[str, Any]) -> ControlState:
        control_state, complaints = read_control_state(body)
        new = [complaint for complaint in complaints if complaint not in self._complaints]
        for complaint in new[:_MAX_WARNINGS]:
            logger.warning("%s: %s", self, complaint)
        if len(new) > _MAX_WARNINGS:
            logger.warning("%s: %d more keys are unknown or malformed", self, len(new) - _MAX_WARNINGS)
        self._complaints = set(complaints)
        return control_state

    # Writing

    async def _write(
        self,
        wanted: Callable[[ControlState, Body], Changes],
        unless: Callable[[Body], bool] = lambda _: False,
    ) -> None:
        """Read, and make the changes that are then wanted, with the format that they need; after a conflict, again.

        Nothing changes if ``unless`` returns True for the ConfigMap.
        """
        for _ in range(_MAX_TRIES):
            body = await self._get()
            if body is not None and unless(body):
                return
            # People who order something must not be told that this version's reading of it says so already.
            if body is not None and (why := unusable(body)) is not None:
                raise UnusableState(f"{self} {why}", reason=FailureReason.OTHER)
            changes = with_format(body or {}, wanted(ControlState() if body is None else self._read(body), body or {}))
            if not changes:
                return
            self._need_room(keys_of(body or {}), changes)
            answer = await self._calls.make(self._creation(changes) if body is None else self._patch(body, changes))
            if answer.status != _CONFLICT and answer.outcome is not Outcome.ABSENT:
                answer.need(Outcome.DONE)
                return
        why = f"{self} was changed by others meanwhile, {_MAX_TRIES} times in a row"
        raise CallFailed(why, reason=FailureReason.CONFLICT)

    def _need_room(self, before: Collection[str], changes: Changes) -> None:
        if why := too_many({*before, *changes} - {key for key, text in changes.items() if text is None}):
            raise UnusableState(f"{self} would have {why}, and could not be read", reason=FailureReason.OTHER)

    def _creation(self, changes: Changes) -> ApiRequest:
        metadata = {"name": self._name, "namespace": self._namespace}
        data = {key: text for key, text in changes.items() if text is not None}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        return ApiRequest("create", "configmaps", self._namespace, body=body)

    def _patch(self, body: Mapping[str, Any], changes: Changes) -> ApiRequest:
        patch = {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "data": changes}
        # The API server accepts no key that is in both data and binaryData.
        held = body.get("binaryData")
        binary = [key for key in changes if key in held] if isinstance(held, Mapping) else []
        return ApiRequest(
            "patch",
            "configmaps",
            self._namespace,
            self._name,
            body=patch | ({"binaryData": dict.fromkeys(binary)} if binary else {}),
        )


def _lasting(before: Pause | None, pause: Pause) -> Pause:
    """Let a pause that replaces another one count from the start of that one, unless that one had ended.

    A start later than its own is from a clock that was put right since: the pause would end too early.
    """
    if before is None or pause.since_epoch is None or before.has_ended(pause.since_epoch):
        return pause
    if before.since_epoch is not None and before.since_epoch > pause.since_epoch:
        return pause
    return replace(pause, since_epoch=before.since_epoch)
