"""The built-in taint manager is detected by the conditions that it sets on pods, whatever the name of its binary."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.stage.clocks import HandClock
from tests.stage.replicas import Theatre, theatre
from tests.stage.waiting import until

from fake_apiserver import ApiServer
from taint_eviction.kopf_shell.kept_fields import pod_fields
from taint_eviction.kube.builtin_controller import BuiltinController

BUILTIN, OURS = "kube-controller-manager", "taint-eviction-controller"
COUNTED = "taint_eviction_controller_builtin_active_total"


def condition(at: str, reason: str | None = "DeletionByTaintManager", status: str = "True") -> dict[str, Any]:
    """A patch of a pod's status, as the built-in controller makes it."""
    told = {"type": "DisruptionTarget", "status": status, "lastTransitionTime": at, "reason": reason}
    return {"status": {"conditions": [told]}}


class Marks:
    """A server with pods, and the number of conditions that were counted."""

    def __init__(self) -> None:
        self.server = ApiServer(seed=1)
        self.server.create("nodes", {"metadata": {"name": "n1"}})
        self.clock = HandClock(at=100.0, epoch=self.server.clock.now().timestamp() - 100.0)
        self.counted = 0
        self.builtin = BuiltinController(self.clock, self._count)

    def _count(self) -> None:
        self.counted += 1

    def sees(self, name: str, *patches: tuple[str, dict[str, Any]]) -> int:
        """Create a pod, patch its status, inspect it as a watch delivers it; return the number counted so far."""
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
def test_a_pod_with_the_condition_of_another_controller_is_counted_once(manager: str) -> None:
    """This holds for a reduced and a whole object, however often the pod is seen."""
    on = Marks()
    assert on.sees("a", (manager, condition(on.now()))) == 1
    assert on.sees("b", (manager, condition(on.now()))) == 2


def test_our_own_conditions_are_not_counted() -> None:
    """Pods without a condition, and conditions with other reasons, are not counted, either."""
    on = Marks()
    assert on.sees("none") == 0
    assert on.sees("ours", (OURS, condition(on.now()))) == 0
    assert on.sees("other", (BUILTIN, condition(on.now(), reason="EvictionByEvictionAPI"))) == 0


def test_conditions_reset_by_the_disruption_controller_are_not_counted() -> None:
    """The same binary resets our conditions when they are stale; the controller sets them again."""
    on = Marks()
    reset = condition(on.now(), reason=None, status="False")
    assert on.sees("reset", (OURS, condition(on.now())), (BUILTIN, reset)) == 0
    assert on.sees("again", (OURS, condition(on.now())), (BUILTIN, reset), (OURS, condition(on.now(2)))) == 0


@pytest.mark.parametrize("kubelet", ["kubelet", "k3s"])
def test_conditions_that_a_kubelet_writes_back_are_not_counted(kubelet: str) -> None:
    """A drain overwrites our condition's reason, and the kubelet's next patch of the status has its older copy."""
    on, at = Marks(), Marks().now()
    drained = condition(at, reason="EvictionByEvictionAPI")
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": at}
    back = {"status": {"conditions": [*condition(at)["status"]["conditions"], ready]}}
    ours, drain = (OURS, condition(at)), ("kube-apiserver", drained)
    assert on.sees("drained", ours, drain) == 0
    assert on.sees("written-back", ours, drain, (kubelet, back)) == 0


def test_conditions_older_than_this_process_are_not_counted() -> None:
    """Cancelled evictions leave conditions behind, long after the built-in controller was switched off."""
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
def test_pods_of_any_shape_can_be_inspected(pod: dict[str, Any]) -> None:
    """The inspection raises no exception, since nothing depends on its result."""
    on = Marks()
    on.builtin.inspect(pod)
    assert on.counted == 0


def test_the_built_in_controller_is_logged_at_most_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    """The line contains the pod and the field manager."""
    caplog.set_level(logging.INFO)
    on = Marks()
    for number, at in enumerate((0.0, 3599.0, 3600.0)):
        on.clock.at = 100.0 + at
        on.sees(f"pod-{number}", (BUILTIN, condition(on.now(3600.0))))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "kube-controller-manager also evicts for NoExecute taints (pod default/pod-0)" in caplog.text
    assert "pod-2" in caplog.text


@pytest.mark.parametrize(
    ("flags", "advice", "level"),
    [
        (["--no-leader-elect"], "switch it off with --controllers=*,-taint-eviction-controller", "WARNING"),
        (["--adopt"], "with --adopt, it evicts the pods whose countdowns are not taken over", "INFO"),
        (["--no-leader-elect", "--dry-run"], "this process is a dry run, so it evicts nothing", "INFO"),
    ],
)
def test_a_running_controller_shows_the_built_in_one_in_log_and_metric(
    tmp_path: Path, flags: list[str], advice: str, level: str
) -> None:
    """The condition is on a pod of a tainted node, and arrives through the watch. The advice fits the flags."""

    async def play() -> tuple[str, list[dict[str, Any]], Theatre]:
        async with theatre(tmp_path) as on:
            on.add_node("node-1")
            on.add_pod("pod", "node-1", 60)
            replica = await on.open("alone", *flags)
            on.taint("node-1")
            on.server.patch("pods", "pod", condition(on.server.clock.timestamp()), manager=BUILTIN)
            await until(lambda: replica.said("the built-in controller is active"))
            return (await replica.get("/metrics"))[1], replica.said("the built-in controller is active"), on

    text, [line], on = asyncio.run(play())
    assert f"{COUNTED} 1.0" in text.splitlines()
    assert advice in line["message"]
    assert line["level"] == level
    if "--dry-run" in flags:
        assert on.changes() == []
