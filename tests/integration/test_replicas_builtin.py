"""The built-in taint manager is noticed by the marks that it leaves on pods, whoever's binary it is in."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.stage.clocks import HandClock
from tests.stage.replicas import Theatre, theatre
from tests.stage.waiting import until

from fake_apiserver import ApiServer
from taint_eviction.adapters.builtin_controller import BuiltinController
from taint_eviction.kopf_shell.kept_fields import pod_fields

BUILTIN, OURS = "kube-controller-manager", "taint-eviction-controller"
COUNTED = "taint_eviction_controller_builtin_active_total"


def condition(at: str, reason: str | None = "DeletionByTaintManager", status: str = "True") -> dict[str, Any]:
    """A patch of a pod's status, as the built-in controller makes it."""
    told = {"type": "DisruptionTarget", "status": status, "lastTransitionTime": at, "reason": reason}
    return {"status": {"conditions": [told]}}


class Marks:
    """A server with pods, and what was counted of them."""

    def __init__(self) -> None:
        self.server = ApiServer(seed=1)
        self.server.create("nodes", {"metadata": {"name": "n1"}})
        self.clock = HandClock(at=100.0, epoch=self.server.clock.now().timestamp() - 100.0)
        self.counted = 0
        self.builtin = BuiltinController(self.clock, self._count)

    def _count(self) -> None:
        self.counted += 1

    def sees(self, name: str, *patches: tuple[str, dict[str, Any]]) -> int:
        """Create a pod, patch its status, show it as a watch brings it; return how many were counted until now."""
        spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "pause"}]}
        self.server.create("pods", {"metadata": {"name": name}, "spec": spec})
        for manager, patch in patches:
            self.server.patch("pods", name, patch, manager=manager)
        pod = self.server.get("pods", name)
        assert pod is not None
        self.builtin.inspect(pod_fields(pod))
        self.builtin.inspect(pod)
        return self.counted

    def now(self, plus_seconds: float = 0.0) -> str:
        """The server's time."""
        return self.server.clock.timestamp(plus_seconds)


@pytest.mark.parametrize("manager", [BUILTIN, "k3s"])
def test_a_pod_that_another_one_has_marked_is_counted_once(manager: str) -> None:
    """Cut down as watches bring it or whole, and however often it is seen."""
    on = Marks()
    assert on.sees("a", (manager, condition(on.now()))) == 1
    assert on.sees("b", (manager, condition(on.now()))) == 2


def test_our_own_marks_are_not_counted() -> None:
    """Nor pods without a mark, nor other reasons."""
    on = Marks()
    assert on.sees("none") == 0
    assert on.sees("ours", (OURS, condition(on.now()))) == 0
    assert on.sees("other", (BUILTIN, condition(on.now(), reason="EvictionByEvictionAPI"))) == 0


def test_the_disruption_controller_is_another_matter() -> None:
    """The same binary resets marks of ours that have become stale; we set them again."""
    on = Marks()
    reset = condition(on.now(), reason=None, status="False")
    assert on.sees("reset", (OURS, condition(on.now())), (BUILTIN, reset)) == 0
    assert on.sees("again", (OURS, condition(on.now())), (BUILTIN, reset), (OURS, condition(on.now(2)))) == 0


def test_marks_from_before_this_process_say_nothing() -> None:
    """Evictions that were called off leave them behind, long after the built-in controller was switched off."""
    on = Marks()
    assert on.sees("old", (BUILTIN, condition(on.now(-5)))) == 0
    assert on.sees("new", (BUILTIN, condition(on.now()))) == 1


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": None, "status": {"conditions": [{}]}},
        {"metadata": {"managedFields": 7}, "status": condition("t")["status"]},
        {"metadata": {"managedFields": [{"fieldsV1": []}]}, "status": condition("t")["status"]},
        {"status": []},
        {"status": {"conditions": [None]}},
    ],
)
def test_pods_of_any_shape_are_looked_at_in_peace(pod: dict[str, Any]) -> None:
    """It never raises: nothing depends on it."""
    on = Marks()
    on.builtin.inspect(pod)
    assert on.counted == 0


def test_it_is_told_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    """With the pod and whose name it was done under."""
    caplog.set_level(logging.INFO)
    on = Marks()
    for number, at in enumerate((0.0, 3599.0, 3600.0)):
        on.clock.at = 100.0 + at
        on.sees(f"pod-{number}", (BUILTIN, condition(on.now(3600.0))))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "kube-controller-manager also evicts for NoExecute taints (pod default/pod-0)" in caplog.text
    assert "pod-2" in caplog.text


def test_a_running_controller_says_so_in_log_and_metric(tmp_path: Path) -> None:
    """Of a pod on a tainted node, through the watch."""

    async def play() -> tuple[str, Theatre]:
        async with theatre(tmp_path) as on:
            on.add_node("node-1")
            on.add_pod("pod", "node-1", 60)
            replica = await on.open("alone", "--no-leader-elect", "--dry-run")
            on.taint("node-1")
            on.server.patch("pods", "pod", condition(on.server.clock.timestamp()), manager=BUILTIN)
            await until(lambda: replica.said("the built-in controller is still active"))
            return (await replica.get("/metrics"))[1], on

    text, on = asyncio.run(play())
    assert f"{COUNTED} 1.0" in text.splitlines()
    assert on.changes() == []
