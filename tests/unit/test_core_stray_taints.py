"""When the controller reports a taint of the node lifecycle controller that stays on a ready node."""

from dataclasses import replace

import pytest
from tests.unit.builders import Stage, node, taint

from taint_eviction.core.events import Event, StrayTaint
from taint_eviction.core.facts import NodeGone
from taint_eviction.core.objects import NOT_READY, OUT_OF_SERVICE, UNREACHABLE, Node, Readiness, Taint


def reporting(status: str, *taints: Taint) -> Node:
    """A node whose condition Ready has this status."""
    return replace(node(*taints), ready=Readiness(status))


def told(stage: Stage, *seconds: float) -> list[tuple[float, Event]]:
    """List the stray taints that evaluations at these instants report, with the instant."""
    told = [(second, effect) for second in seconds for effect in stage.at(second).evaluate()]
    return [(second, effect) for second, effect in told if isinstance(effect, StrayTaint)]


@pytest.mark.parametrize("key", [NOT_READY, UNREACHABLE])
def test_a_lifecycle_taint_on_a_ready_node_is_reported_once_after_a_minute(key: str) -> None:
    """Until then the node lifecycle controller may be about to remove it."""
    stage = Stage()
    stage.at(10).sees(reporting("False", taint(key)))
    stage.at(20).sees(reporting("True", taint(key)))
    assert told(stage, 21, 80, 80.5, 81, 5000) == [(80.5, StrayTaint("n1", taint(key)))]


def test_a_taint_removed_within_a_minute_is_not_reported() -> None:
    """If the taint comes back, the minute begins anew."""
    stage = Stage()
    stage.sees(reporting("True", taint(NOT_READY)))
    stage.at(59).sees(reporting("True"))
    stage.at(60).sees(reporting("True", taint(NOT_READY)))
    assert told(stage, 61, 120, 120.5) == [(120.5, StrayTaint("n1", taint(NOT_READY)))]


def test_a_node_that_is_not_ready_in_between_starts_the_minute_anew() -> None:
    """A taint that was reported is not reported again before it was removed."""
    stage = Stage()
    stage.sees(reporting("True", taint(NOT_READY)))
    stage.at(50).sees(reporting("Unknown", taint(NOT_READY)))
    stage.at(55).sees(reporting("True", taint(NOT_READY)))
    assert told(stage, 61, 115.5) == [(115.5, StrayTaint("n1", taint(NOT_READY)))]
    stage.at(200).sees(reporting("False", taint(NOT_READY)))
    stage.at(210).sees(reporting("True", taint(NOT_READY)))
    assert told(stage, 300) == []


@pytest.mark.parametrize(
    "seen",
    [
        node(taint(NOT_READY)),
        reporting("False", taint(NOT_READY)),
        reporting("True", taint("maintenance"), taint(OUT_OF_SERVICE), taint(NOT_READY, effect="NoSchedule")),
    ],
    ids=["no condition", "not ready", "other taints"],
)
def test_other_nodes_and_taints_are_not_reported(seen: Node) -> None:
    """Without a condition, it is unknown whether the node is ready."""
    stage = Stage()
    stage.sees(seen)
    assert told(stage, 100) == []


def test_a_deleted_node_is_not_reported() -> None:
    """For a node that is created with the same name, the minute begins anew."""
    stage = Stage()
    stage.sees(reporting("True", taint(NOT_READY)))
    stage.at(10).observe(NodeGone("n1", "uid-n1"))
    assert told(stage, 100) == []
    stage.sees(replace(reporting("True", taint(NOT_READY)), uid="uid-2"))
    assert [second for second, _ in told(stage, 160, 161)] == [161]


def test_a_taint_that_comes_back_is_reported_again() -> None:
    """The taint was removed in between."""
    stage = Stage()
    stage.sees(reporting("True", taint(NOT_READY)))
    assert [second for second, _ in told(stage, 61)] == [61]
    stage.at(62).sees(reporting("True"))
    stage.at(63).sees(reporting("True", taint(NOT_READY)))
    assert [second for second, _ in told(stage, 124)] == [124]
