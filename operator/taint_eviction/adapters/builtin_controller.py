"""Notices that somebody else evicts for NoExecute taints too: the built-in controller of kube-controller-manager.

Its mark is the DisruptionTarget condition with the taint manager's reason, of which the pod's ``managedFields`` say who
wrote it. In most clusters that is kube-controller-manager; distributions in one binary write it under their own name
(k3s), so everybody but this controller counts. Conditions from before this process are left aside: an eviction that was
called off leaves them behind for as long as the pod lives.

Looks at raw JSON, and no decision depends on it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from taint_eviction.adapters.api_calls import FIELD_MANAGER
from taint_eviction.adapters.condition_patches import CONDITION_REASON, CONDITION_TYPE
from taint_eviction.adapters.kubernetes_times import parse_rfc3339
from taint_eviction.runtime.ports import Clock

logger = logging.getLogger(__name__)

_TELL_SECONDS = 3600.0
# Pods that were counted already; the oldest is forgotten, and by then gone.
_REMEMBERED = 4096
_OWNED = f'k:{{"type":"{CONDITION_TYPE}"}}'


class BuiltinController:
    """``counted`` is called once for each pod that somebody else marked; ``expected``: in a dry run that is fine."""

    def __init__(self, clock: Clock, counted: Callable[[], None], expected: bool = False) -> None:
        self._clock = clock
        self._counted = counted
        self._level = logging.INFO if expected else logging.WARNING
        self._begun_at = clock.now().at
        self._told_at = float("-inf")
        self._seen: dict[str, None] = {}

    def look(self, pod: Mapping[str, Any]) -> None:
        """Look at a pod as JSON, as often as it is seen; one of another shape says nothing."""
        try:
            marked_epoch, manager = _mark(pod)
            metadata = pod["metadata"]
            uid, name = metadata["uid"], f"{metadata['namespace']}/{metadata['name']}"
        except (AttributeError, KeyError, TypeError):
            return
        now = self._clock.now()
        # Conditions are dated to whole seconds, cut off.
        if marked_epoch + 1.0 < now.server_epoch - (now.at - self._begun_at) or uid in self._seen:
            return
        self._seen[uid] = None
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._counted()
        if now.at - self._told_at >= _TELL_SECONDS:
            self._told_at = now.at
            logger.log(
                self._level,
                "%s evicts for NoExecute taints too (pod %s): the built-in controller is still active; "
                "whichever of the two comes first evicts, until that one is switched off "
                "(--controllers=*,-taint-eviction-controller)",
                manager,
                name,
            )


def _mark(pod: Mapping[str, Any]) -> tuple[float, str]:
    """Say when the pod was marked, and by whom else; raise ``KeyError`` if it was not."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if (condition.get("type"), condition.get("reason")) == (CONDITION_TYPE, CONDITION_REASON):
            return parse_rfc3339(condition.get("lastTransitionTime")) or 0.0, _another_owner(pod["metadata"])
    raise KeyError(CONDITION_TYPE)


def _another_owner(metadata: Mapping[str, Any]) -> str:
    for entry in metadata.get("managedFields") or ():
        owned = ((entry.get("fieldsV1") or {}).get("f:status") or {}).get("f:conditions") or {}
        # The reason: the disruption controller, which resets such conditions and may be the same binary, writes none.
        if "f:reason" in owned.get(_OWNED, {}) and entry.get("manager") != FIELD_MANAGER:
            return str(entry.get("manager"))
    raise KeyError(_OWNED)
