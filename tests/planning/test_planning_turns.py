"""Plans of pods that wait for their turn: limits, and a circuit breaker that the plan itself would open."""

import json
from typing import Any

from tests.planning.shop import JsonObject, node, pod, run

CLUSTER: list[JsonObject] = [node("node-1"), node("node-2"), pod("a"), pod("b"), pod("c", "node-2")]


def planned(*flags: str) -> dict[str, Any]:
    """Plan a taint on all nodes at noon."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER})
    result = run("-", "--now", "2026-03-01T12:00:00Z", "--taint", "*=k:NoExecute", *flags, "-o", "json", stdin=text)
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_a_limit_lets_one_pod_go_after_the_other() -> None:
    """The deadline stays what it is; the plan says which pods it cannot know."""
    document = planned("--evictions-per-second=0.1")
    assert sorted(each["goesAt"][14:19] for each in document["pods"]) == ["00:00", "00:10", "00:20"]
    assert {each["inSeconds"] for each in document["pods"]} == {0}
    assert document["summary"].startswith("3 of 3 pods on 2 nodes would leave: 1 at once, 2 within 20 s")
    assert any(note.startswith("limits count as unused until now") for note in document["notes"])


def test_a_plan_says_that_the_breaker_would_open() -> None:
    """No pod leaves then."""
    document = planned("--breaker", "--breaker-nodes=1")
    assert [each["heldBy"] for each in document["pods"]] == [["breaker_open"]] * 3
    assert not any("goesAt" in each for each in document["pods"])
    said = (
        "the circuit breaker would open at 2026-03-01 12:00:00 UTC, and no pod would leave from then on: 2 of 2 nodes"
    )
    assert any(note.startswith(said) for note in document["notes"])
    assert "heldBy" not in str(planned("--breaker", "--breaker-nodes=2"))
