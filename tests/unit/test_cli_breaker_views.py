"""The circuit breaker for people and machines, also from controllers of other versions."""

from typing import Any

import click
import pytest
from tests.unit.builders import Stage, moment
from tests.unit.test_reporting_status_document import one_due, status

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction.core.control_state import ControlState, Latch, Release
from taint_eviction.kube.release_query import release_text
from taint_eviction_ctl.cli.breaker_views import breaker_document, breaker_lines

HEAD = ("apiVersion", "now", "version", "identity", "leading")


def held() -> Stage:
    """A stage with one pod that is due, and held by an open breaker."""
    on = one_due(breaker=BreakerPolicy(enabled=True))
    on.brain.order(ControlState(latch=Latch(0, "many")), moment(0))
    return on


def document() -> dict[str, Any]:
    """Its status."""
    return status(held())


def released() -> dict[str, Any]:
    """What a reset would let go."""
    return status(held(), release=release_text(Release(reset=True)))


def test_nodes_that_are_not_counted_are_named_with_the_reason() -> None:
    """A line has the names that the status gives for a reason, and the number of further nodes."""
    told = document()
    told["breaker"]["uncounted"] = [
        {"reason": "no_eviction", "text": "no pod has to leave them", "count": 12, "nodeNames": ["n1", "n2"]},
        {"reason": "old", "text": "they were tainted before", "count": 1, "nodeNames": ["n9"]},
    ]
    lines = [click.unstyle(line) for line in breaker_lines(told, released())]
    assert "not counted: n1, n2 and 10 more: no pod has to leave them" in lines
    assert "not counted: n9: they were tainted before" in lines


@pytest.mark.parametrize("absent", [*HEAD, "breaker", "groups"])
def test_what_a_controller_of_another_version_does_not_say_is_null(absent: str) -> None:
    """No other field of the head becomes null."""
    told = document()
    del told[absent]
    found = breaker_document(told, released())
    assert found["kind"] == "Breaker"
    assert [name for name in HEAD if found[name] is None] == ([absent] if absent in HEAD else [])


def test_each_node_has_the_pods_that_the_leader_says_leave_after_a_reset() -> None:
    """An older controller does not say it; so it is not known, and not 0."""
    told = document()
    assert breaker_document(told, released())["nodes"] == [
        {"node": "n1", "taint": "k1:NoExecute", "pods": 1, "held": 1, "leaveNow": 1}
    ]
    assert breaker_document(told, told)["nodes"][0]["leaveNow"] is None
    assert breaker_lines(told, told)[-1].split()[-2:] == ["not", "known"]


def test_a_closed_breaker_has_no_column_of_what_a_reset_lets_go() -> None:
    """There is nothing to reset; the document has the count all the same."""
    told = status(one_due(breaker=BreakerPolicy(enabled=True)))
    header = next(line for line in map(click.unstyle, breaker_lines(told, told)) if "PODS" in line)
    assert header.split() == ["NODE", "TAINT", "PODS", "HELD"]


def test_a_status_without_uncounted_nodes_has_lines_for_people() -> None:
    """Such a status comes from an older controller."""
    told = document()
    del told["breaker"]["uncounted"]
    assert breaker_lines(told, released())
