"""Known mistakes about several capabilities that meet; part of ``known_bugs``."""

import dataclasses
from typing import Any

import pytest

from taint_eviction.core.guards import GuardList
from taint_eviction.core.leaving_order import LeavingOrder, TierWait
from taint_eviction.core.objects import PodRef
from taint_eviction.core.pods import PodRecord
from taint_eviction.core.policy import EvictionPolicy, Handling


def order_passes_what_is_blocked(patch: pytest.MonkeyPatch) -> None:
    """Order and pauses: nobody waits for a pod of an earlier tier that is blocked."""
    wait = LeavingOrder.wait

    def for_the_free(self: LeavingOrder, ref: PodRef, now: float) -> TierWait | None:
        found = wait(self, ref, now)
        first = None if found is None or found.ref is None else self._leaving.get(found.ref.key)
        guards = getattr(self._blocked_seconds, "__self__", None)
        if first is not None and first.flow is not None and isinstance(guards, GuardList):
            return None if guards.blocking_flow(first.flow) is not None else found
        return found

    patch.setattr(LeavingOrder, "wait", for_the_free)


def ceilings_on_all_nodes(patch: pytest.MonkeyPatch) -> None:
    """Ceilings and pools: a rule shortens tolerations on nodes that it does not select, too."""

    def on(self: EvictionPolicy, *node: Any) -> EvictionPolicy:
        shortening = [each for each in self.rules if each.max_toleration_seconds is not None]
        anywhere = [dataclasses.replace(each, node_selector=()) if each in shortening else each for each in self.rules]
        return _on(dataclasses.replace(self, rules=tuple(anywhere)), *node)

    _on = EvictionPolicy.on
    patch.setattr(EvictionPolicy, "on", on)


def pauses_end_evacuations(patch: pytest.MonkeyPatch) -> None:
    """Virtual machines and pauses: after a pause, refusals of a machine that moves away count at once."""
    restart, evacuates = PodRecord.restart_patience, PodRecord.evacuates
    paused: set[str] = set()

    def forget(self: PodRecord) -> None:
        restart(self)
        if self.evacuating_since is not None:
            self.evacuating_since = -1e9
            paused.add(self.ref.uid)

    def unless_paused(self: PodRecord, now: float) -> None:
        if self.ref.uid not in paused:
            evacuates(self, now)

    patch.setattr(PodRecord, "restart_patience", forget)
    patch.setattr(PodRecord, "evacuates", unless_paused)


def lost_nodes_pass_the_breaker(patch: pytest.MonkeyPatch) -> None:
    """Lost nodes and the breaker: what leaves a lost node past its budget passes an open breaker, too."""
    handling = EvictionPolicy.handling

    def exempt(self: EvictionPolicy, *about: object) -> Handling:
        found = handling(self, *about)  # type: ignore[arg-type]
        return dataclasses.replace(found, bypasses_limits=True) if found.node_lost else found

    patch.setattr(EvictionPolicy, "handling", exempt)
