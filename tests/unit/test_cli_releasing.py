"""Which pods ``resume`` counts as leaving at once."""

from typing import Any, cast

import pytest

from taint_eviction.core.control_state import ControlState
from taint_eviction_ctl.cli.asking import Ask
from taint_eviction_ctl.cli.control_state import Reached
from taint_eviction_ctl.cli.releasing import Going, count_going

ROW = {"dueInSeconds": -5, "node": "n1", "namespace": "shop", "rule": None}


@pytest.mark.parametrize(("reason", "going"), [("paused", ["off"]), ("breaker_open", [])])
async def test_pods_of_a_node_out_of_service_leave_unless_the_breaker_holds_them_too(
    monkeypatch: pytest.MonkeyPatch, reason: str, going: list[str]
) -> None:
    """The leader says by what each pod is held; a breaker that it names goes on holding it after a resume."""
    pending = [
        ROW | {"name": "web", "outOfService": False, "hold": {"reason": "breaker_open"}},
        ROW | {"name": "off", "outOfService": True, "hold": {"reason": reason}},
    ]
    document = {"breaker": {"open": True}, "policy": {"rules": []}, "pending": pending}

    async def whole_status(*_: object) -> dict[str, Any]:
        return document

    def asking_leader(*_: object) -> Ask:
        return cast(Ask, None)

    monkeypatch.setattr("taint_eviction_ctl.cli.releasing.whole_status", whole_status)
    monkeypatch.setattr("taint_eviction_ctl.cli.releasing.asking_leader", asking_leader)

    class Anywhere:
        calls = where = None

    found = await count_going(cast(Reached, Anywhere()), {}, ControlState(), reset=False)
    assert isinstance(found, Going)
    assert [row["name"] for row in found.rows] == going
