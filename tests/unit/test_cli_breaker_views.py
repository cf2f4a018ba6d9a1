"""The circuit breaker for people and machines, also of controllers of other versions."""

from typing import Any

import click
import pytest
from tests.unit.test_adapters_status_document import one_due, status

from taint_eviction.cli.breaker_views import breaker_document, breaker_lines
from taint_eviction.core.breaker_policy import BreakerPolicy

HEAD = ("apiVersion", "now", "version", "identity", "leading")


def document() -> dict[str, Any]:
    """A status with one pod that is due."""
    return status(one_due(breaker=BreakerPolicy(enabled=True)))


def test_nodes_that_are_not_counted_are_named_with_the_reason() -> None:
    """The first ten of each reason, and how many more."""
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
    """A machine gets the rest."""
    told = document()
    del told[absent]
    found = breaker_document(told)
    assert found["kind"] == "Breaker"
    assert [name for name in HEAD if found[name] is None] == ([absent] if absent in HEAD else [])


@pytest.mark.parametrize("absent", ["node", "taint", "hold", "dueInSeconds"])
def test_a_pod_of_which_less_is_said_is_counted(absent: str) -> None:
    """What it would lose is told as well as that is known."""
    told = document()
    del told["pending"][0][absent]
    [node] = breaker_document(told)["nodes"]
    assert node["pods"] == 1


def test_people_read_of_a_controller_that_names_no_uncounted_nodes() -> None:
    """It is older."""
    told = document()
    del told["breaker"]["uncounted"]
    assert breaker_lines(told)
