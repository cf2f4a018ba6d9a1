"""The patches that set and take back the DisruptionTarget condition: strategic merge patches of ``pods/status``.

They contain ``metadata.uid``, so that another pod with the same name is never changed: the API server answers 422.
Server-side apply is not used: it fails on pods with duplicate ports or env keys.

Reference: ``addConditionAndDeletePod`` in pkg/controller/tainteviction; KEP-3329.
"""

from typing import Any

from taint_eviction.core.objects import PodRef
from taint_eviction.files.kubernetes_times import format_rfc3339

CONDITION_TYPE = "DisruptionTarget"
CONDITION_REASON = "DeletionByTaintManager"
MARK_MESSAGE = "Taint manager: deleting due to NoExecute taint"
UNMARK_MESSAGE = "Taint manager: deletion called off"


def mark_patch(ref: PodRef, transition_epoch: float | None) -> dict[str, Any]:
    """Return the patch that sets the condition. ``transition_epoch`` is the server's time; None leaves the transition
    time as it is.
    """
    return {"metadata": {"uid": ref.uid}, "status": _conditions("True", MARK_MESSAGE, transition_epoch)}


def unmark_patch(ref: PodRef, resource_version: int, transition_epoch: float) -> dict[str, Any]:
    """Return the patch that sets the condition's status to False, on exactly this version of the pod."""
    metadata = {"uid": ref.uid, "resourceVersion": str(resource_version)}
    return {"metadata": metadata, "status": _conditions("False", UNMARK_MESSAGE, transition_epoch)}


def _conditions(status: str, message: str, transition_epoch: float | None) -> dict[str, Any]:
    condition = {"type": CONDITION_TYPE, "status": status, "reason": CONDITION_REASON, "message": message}
    if transition_epoch is not None:
        condition["lastTransitionTime"] = format_rfc3339(transition_epoch)
    return {"conditions": [condition]}
