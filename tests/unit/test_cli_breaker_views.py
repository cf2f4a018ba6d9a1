"""The circuit breaker for people and machines, also from controllers of other versions."""

from typing import Any

import click
import pytest
from tests.unit.test_adapters_status_document import one_due, status

from taint_eviction.core.breaker_policy import BreakerPolicy
from taint_eviction_ctl.cli.breaker_views import breaker_document, breaker_lines

HEAD = ("apiVersion", "now", "version", "identity", "leading")


def document() -> dict[str, Any]:
    """A status with one pod that is due."""
    return status(one_due(breaker=BreakerPolicy(enabled=True)))


def test_nodes_that_are_not_counted_are_named_with_the_reason() -> None:
    """A line has the names that the status gives for a reason, and the number of further nodes."""
    told = document()
    told["breaker"]["uncounted"] = [
        {"reason": "no_eviction", "text": "no pod has to leave them", "count": 12, "nodeNames": ["n1", "n2"]},
        {"reason": "old", "text": "they were tainted before", "count": 1, "nodeNames": ["n9"]},
    ]
    lines = [click.unstyle(line) for line in breaker_lines(told)]
    assert "not counted: n1, n2 and 10 more: no pod has to leave them" in lines
    assert "not counted: n9: they were tainted before" in lines


@pytest.mark.parametrize("absent", [*HEAD, "breaker", "pending"])
def test_what_a_controller_of_another_version_does_not_say_is_null(absent: str) -> None:
    """No other field of the head becomes null."""
    told = document()
    del told[absent]
    found = breaker_document(told)
    assert found["kind"] == "Breaker"
    assert [name for name in HEAD if found[name] is None] == ([absent] if absent in HEAD else [])


@pytest.mark.parametrize("absent", ["node", "taint", "hold", "dueInSeconds"])
def test_a_pod_with_an_absent_field_is_still_counted(absent: str) -> None:
    """The document still has how many pods the node would lose."""
    told = document()
    del told["pending"][0][absent]
    [node] = breaker_document(told)["nodes"]
    assert node["pods"] == 1


def test_a_status_without_uncounted_nodes_has_lines_for_people() -> None:
    """Such a status comes from an older controller."""
    told = document()
    del told["breaker"]["uncounted"]
    assert breaker_lines(told)
