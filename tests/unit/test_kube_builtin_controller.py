"""Pods that another controller has marked, whatever else stands in them."""

from typing import Any

import pytest
from tests.stage.clocks import HandClock

from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction.kube.api_calls import FIELD_MANAGER
from taint_eviction.kube.builtin_controller import BuiltinController

NESTED: Any = "deep"
for _ in range(1000):
    NESTED = [NESTED]


def marked(clock: HandClock, manager: Any = "kube-controller-manager", **metadata: Any) -> dict[str, Any]:
    """Return a pod that another controller marks now."""
    condition = 'k:{"type":"DisruptionTarget"}'
    owned = {"manager": manager, "fieldsV1": {"f:status": {"f:conditions": {condition: {"f:reason": {}}}}}}
    since = format_rfc3339(clock.now().server_epoch)
    return {
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1", "managedFields": [owned], **metadata},
        "status": {
            "conditions": [
                {"type": "DisruptionTarget", "reason": "DeletionByTaintManager", "lastTransitionTime": since},
            ]
        },
    }


def counted(pod: dict[str, Any], clock: HandClock) -> int:
    """Inspect a pod twice, and return how often it was counted."""
    counts: list[None] = []
    inspector = BuiltinController(clock, lambda: counts.append(None))
    for _ in range(2):
        inspector.inspect(pod)
    return len(counts)


def test_a_pod_that_another_controller_marks_is_counted_once() -> None:
    """A watch brings it again and again."""
    clock = HandClock()
    assert counted(marked(clock), clock) == 1


def test_a_pod_that_this_controller_has_marked_is_never_counted() -> None:
    """Its owner may write another name for the manager: the API server lets everybody write managedFields."""
    clock, counts = HandClock(), list[None]()
    inspector = BuiltinController(clock, lambda: counts.append(None))
    inspector.inspect(marked(clock, FIELD_MANAGER))
    inspector.inspect(marked(clock))
    assert counts == []


@pytest.mark.parametrize(
    "odd", [{"uid": []}, {"uid": NESTED}, {"name": NESTED}, {"namespace": 7}, {"manager": NESTED}, {"manager": None}]
)
def test_a_pod_whose_names_are_no_texts_is_ignored(odd: dict[str, Any]) -> None:
    """No API server sends one; a proxy may, and what it sends must not end the process."""
    clock = HandClock()
    assert counted(marked(clock, **odd), clock) == 0
