"""Detects another controller that evicts for NoExecute taints: the built-in one of kube-controller-manager.

That controller sets the condition DisruptionTarget with the taint manager's reason, and the pod's ``managedFields``
name the writer. In most clusters it is kube-controller-manager; others have other names, so every manager except this
controller counts. A kubelet does not: where somebody has overwritten this controller's condition, as a drain does, a
kubelet's patch of the status may write its older copy back, and the kubelet owns it then. A kubelet is known by the
conditions Ready and ContainersReady, not by its name. (k3s is one binary with one name for both. So its built-in
controller is not detected once its kubelet has reported on the pod.)
Conditions older than this process do not count: an eviction that was cancelled leaves its condition on the pod. Nor do
pods that were seen with this controller's own condition: their owners may write managedFields, too, and thereby name
anybody as the writer. (Nobody can be named before: that the API server corrects with the write.)

This module reads raw JSON. No decision depends on it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.kube.api_calls import FIELD_MANAGER
from taint_eviction.kube.bounded import BoundedDict, Throttle
from taint_eviction.kube.condition_patches import CONDITION_REASON, CONDITION_TYPE
from taint_eviction.runtime.ports import Clock

logger = logging.getLogger(__name__)

_LOG_SECONDS = 3600.0
# Pods that were counted, or marked by this controller. When an entry is dropped, its pod has long been deleted.
_REMEMBERED = 4096
_OWNED = f'k:{{"type":"{CONDITION_TYPE}"}}'
_SWITCH_IT_OFF = "the first of the two evicts a pod, so switch it off with --controllers=*,-taint-eviction-controller"
# Conditions that kubelets alone own.
_OF_KUBELETS = frozenset(f'k:{{"type":"{kind}"}}' for kind in ("Ready", "ContainersReady"))


class BuiltinController:
    """``counted`` is called once for each pod that another controller marked.

    ``expected``: why the built-in controller is on, which is then logged at INFO; None: it should be switched off.
    """

    def __init__(self, clock: Clock, counted: Callable[[], None], expected: str | None = None) -> None:
        self._clock = clock
        self._counted = counted
        self._level = logging.WARNING if expected is None else logging.INFO
        self._advice = _SWITCH_IT_OFF if expected is None else expected
        self._begun_at = clock.now().at
        self._log_throttle = Throttle(clock, _LOG_SECONDS)
        self._seen: BoundedDict[str, None] = BoundedDict(_REMEMBERED)

    def inspect(self, pod: Mapping[str, Any]) -> None:
        """Inspect the JSON of a pod, every time it is seen. A malformed pod is ignored."""
        try:
            marked_epoch, manager = _mark(pod)
            uid, *names = (pod["metadata"][field] for field in ("uid", "namespace", "name"))
        except (AttributeError, KeyError, TypeError):
            return
        if not isinstance(uid, str) or not all(isinstance(name, str) for name in names):
            return
        now = self._clock.now()
        # Times of conditions are truncated to whole seconds.
        if marked_epoch + 1.0 < now.server_epoch - (now.at - self._begun_at) or uid in self._seen:
            return
        self._seen[uid] = None
        if not manager:
            return
        self._counted()
        if self._log_throttle.passes():
            logger.log(
                self._level,
                "%s also evicts for NoExecute taints (pod %s): the built-in controller is active; %s",
                manager,
                "/".join(names),
                self._advice,
            )


def _mark(pod: Mapping[str, Any]) -> tuple[float, str]:
    """Return when a controller marked the pod, and the name of another one, "" for this one; raise ``KeyError`` if none
    did.
    """
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if (condition.get("type"), condition.get("reason")) == (CONDITION_TYPE, CONDITION_REASON):
            return parse_rfc3339(condition.get("lastTransitionTime")) or 0.0, _another_owner(pod["metadata"])
    raise KeyError(CONDITION_TYPE)


def _another_owner(metadata: Mapping[str, Any]) -> str:
    owners = set[str]()
    for entry in metadata.get("managedFields") or ():
        owned = ((entry.get("fieldsV1") or {}).get("f:status") or {}).get("f:conditions") or {}
        # A manager that resets a condition, as the disruption controller of the same binary does, does not own its
        # reason.
        is_owner = "f:reason" in owned.get(_OWNED, {}) and not _OF_KUBELETS & owned.keys()
        if is_owner and isinstance(manager := entry.get("manager"), str):
            owners.add(manager)
    if not owners:
        raise KeyError(_OWNED)
    return "" if FIELD_MANAGER in owners else min(owners)
