"""Which pods ``resume`` counts as leaving at once."""

from typing import Any, cast

import pytest

from taint_eviction.cli.asking import Ask
from taint_eviction.cli.control_state import Reached
from taint_eviction.cli.releasing import Going, count_going
from taint_eviction.core.control_state import ControlState, Latch

ROW = {"dueInSeconds": -5, "hold": {"reason": "breaker_open"}, "node": "n1", "namespace": "shop", "rule": None}
DOCUMENT = {
    "breaker": {"open": True},
    "policy": {"rules": []},
    "pending": [ROW | {"name": "web", "outOfService": False}, ROW | {"name": "off", "outOfService": True}],
}


@pytest.mark.parametrize(
    ("latch", "going"),
    [
        (Latch(0.0, "5 of 9 nodes"), ["off"]),
        (Latch(0.0, "5 of 9 nodes", out_of_service=True), []),
        (Latch(0.0, "malformed", unreadable=True), []),
    ],
)
async def test_a_breaker_that_too_many_nodes_out_of_service_have_opened_holds_their_pods_too(
    monkeypatch: pytest.MonkeyPatch, latch: Latch, going: list[str]
) -> None:
    """Any other open breaker lets the pods of nodes that are out of service go."""

    async def whole_status(*_: object) -> dict[str, Any]:
        return DOCUMENT

    def asking_leader(*_: object) -> Ask:
        return cast(Ask, None)

    monkeypatch.setattr("taint_eviction.cli.releasing.whole_status", whole_status)
    monkeypatch.setattr("taint_eviction.cli.releasing.asking_leader", asking_leader)

    class Anywhere:
        calls = where = None

    found = await count_going(cast(Reached, Anywhere()), {}, ControlState(latch=latch), reset=False)
    assert isinstance(found, Going)
    assert [row["name"] for row in found.rows] == going
