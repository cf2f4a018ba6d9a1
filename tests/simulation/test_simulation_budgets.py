"""Budgets in replays: how many pods a workload wants, when it is counted, and what each refusal says."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.simulation.scenario_texts import played

from taint_eviction.core.effects import Block, BlockReason
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation import suspension_actions as suspend
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, What
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing

WEB = NamespacedName("default", "web")
SELECTOR = {"matchLabels": {"app": "web"}}


def budget(name: str = "web", selector: dict[str, Any] = SELECTOR, **spec: Any) -> dict[str, Any]:
    """Make a budget."""
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"selector": selector, **spec}}


class BudgetScene:
    """A stage with one node and some pods of one app; evictions arrive without a network."""

    def __init__(self, pods: int, *budgets: dict[str, Any], ready_seconds: float = 0.0) -> None:
        self.stage = ReplayStage(Timeline(), Settings(), production_parsing(), seed="test", ready_seconds=ready_seconds)
        self.cluster = self.stage.cluster
        self.writes = PodWrites(self.cluster, self.stage.timeline)
        bodies = [self.body(f"web-{number}") for number in range(pods)]
        self.stage.give([{"metadata": {"name": "node-1"}}], bodies, budgets)

    def body(self, name: str) -> dict[str, Any]:
        """Make a pod."""
        metadata = {"namespace": "default", "name": name, "labels": {"app": "web"}}
        return {"metadata": metadata, "spec": {"nodeName": "node-1"}}

    async def perform(self, action: do.Action) -> None:
        """Do what a scenario can do."""
        await self.stage.perform(do.ScenarioStep(0.0, action, 1, ""))

    def ref(self, number: int) -> PodRef:
        """The pod of this number."""
        key = NamespacedName("default", f"web-{number}")
        pod = self.cluster.pod(key)
        assert pod is not None
        return PodRef(key, pod["metadata"]["uid"])

    def evict(self, number: int) -> bool:
        """Ask for the pod's eviction."""
        return self.writes.evict(self.ref(number))

    def refused(self, number: int) -> CallFailed:
        """Ask for the pod's eviction and return the refusal."""
        with pytest.raises(CallFailed) as raised:
            self.evict(number)
        return raised.value

    def evicted(self, pods: int) -> int:
        """Ask for one pod's eviction after the other, all at one instant; count those that may go."""
        gone = 0
        for number in range(pods):
            with contextlib.suppress(CallFailed):
                gone += self.evict(number)
        return gone


def play(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine in virtual time."""
    run_virtually(main)


def test_what_went_is_wanted_back() -> None:
    """A workload wants as many pods as it had: half of four is two, however many are left."""

    async def main() -> None:
        scene = BudgetScene(4, budget(minAvailable="50%"))
        assert scene.evicted(4) == 2
        await asyncio.sleep(5)
        assert scene.refused(2).block == Block(BlockReason.BUDGET, "web")

    play(main())


def test_a_successor_counts_once_it_is_ready() -> None:
    """It is counted a moment after that, and then the next may go."""

    async def main() -> None:
        scene = BudgetScene(2, budget(minAvailable=1), ready_seconds=20)
        await asyncio.sleep(10)
        assert scene.evict(0)
        await asyncio.sleep(1)
        await scene.perform(do.RecreatePod(NamespacedName("default", "web-0")))
        await asyncio.sleep(20.05)
        assert scene.refused(1).block == Block(BlockReason.BUDGET, "web")
        await asyncio.sleep(0.1)
        assert scene.evict(1)

    play(main())


def test_a_new_budget_is_counted_after_a_moment() -> None:
    """Until then it says so, with an advice; one that has been counted advises nothing."""

    async def main() -> None:
        scene = BudgetScene(1)
        await scene.perform(suspend.CreateBudget(budget(minAvailable=1)))
        refusal = scene.refused(0)
        assert refusal.retry_after_seconds == 10.0
        assert refusal.block == Block(BlockReason.BUDGET_NOT_READY, "web")
        await asyncio.sleep(0.2)
        refusal = scene.refused(0)
        assert refusal.retry_after_seconds is None
        assert refusal.block == Block(BlockReason.BUDGET, "web")
        await scene.perform(suspend.ChangeBudget(budget(minAvailable=0)))
        assert scene.refused(0).block == Block(BlockReason.BUDGET_NOT_READY, "web")
        await scene.perform(suspend.DeleteBudget(WEB))
        assert scene.evict(0)

    play(main())


def test_two_budgets_are_one_too_many() -> None:
    """The eviction API answers 500, whatever they allow."""

    async def main() -> None:
        scene = BudgetScene(1, budget(minAvailable=0), budget("all", {}, minAvailable=0))
        refusal = scene.refused(0)
        assert refusal.reason is FailureReason.OTHER
        assert refusal.block == Block(BlockReason.SEVERAL_BUDGETS, "")
        (entry,) = [entry for entry in scene.stage.timeline if entry.what is What.BLOCKED]
        assert entry.why.startswith("by all, web: ")

    play(main())


def test_an_eviction_marks_and_deletes_exactly_the_pod_that_was_meant() -> None:
    """With the eviction API's own condition; another UID is not touched."""

    async def main() -> None:
        scene = BudgetScene(1)
        first = scene.ref(0)
        await scene.perform(do.RecreatePod(first.key))
        assert scene.writes.evict(first) is False
        assert "deletionTimestamp" not in scene.cluster.body("pods", *reversed(first.key))["metadata"]
        assert scene.evict(0)
        pod = scene.cluster.body("pods", *reversed(first.key))
        (condition,) = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
        assert "deletionTimestamp" in pod["metadata"]
        await asyncio.sleep(1)
        assert scene.writes.evict(first) is False

    play(main())


def test_what_cannot_be_done_to_budgets_is_said() -> None:
    """Names are unique, and what is not there cannot be changed."""

    async def main() -> None:
        scene = BudgetScene(1, budget(minAvailable=0))
        with pytest.raises(Impossible, match=r'poddisruptionbudgets\.policy "web" already exists'):
            await scene.perform(suspend.CreateBudget(budget(minAvailable=0)))
        with pytest.raises(Impossible, match=r'poddisruptionbudgets\.policy "db" not found'):
            await scene.perform(suspend.ChangeBudget(budget("db", minAvailable=0)))

    play(main())


BLOCKED = """
about: A pod that its budget blocks until 12.
settings: {evictionMode: evict}
given:
  nodes: [node-1]
  pods: [{name: web-0, nodeName: node-1, labels: {app: web}}]
  budgets: [{name: web, selector: {app: web}, minAvailable: 1}, {name: db, selector: {app: db}, minAvailable: 1}]
timeline:
  - {at: 10, taint: "node-1 maintenance=now:NoExecute"}
  - {at: 12, deleteBudget: web}
expect:
  web-0: {evicted: {at: 15, within: 2}, CLAIM}
"""


@pytest.mark.parametrize(
    ("held", "broken", "expected", "seen"),
    [
        (
            "blocked: 10",
            "blocked: 11",
            "blocked at 11",
            "blocked at 10.040 by web: Cannot evict pod as it would violate the pod",
        ),
        (
            "blocked: {at: 10, by: web}",
            "blocked: {at: 10, by: db}",
            "blocked at 10 by db",
            "blocked at 10.040 by web: ",
        ),
        ("blocked: {at: 9, within: 2}", "blocked: []", "never blocked", "blocked at 10.040 by web"),
        ("evictCalls: 2", "evictCalls: 1", "1 calls to the eviction API", "2 calls to the eviction API"),
        ("deletes: 0", "deletes: 2", "2 DELETE calls", "0 DELETE calls"),
        ("pods: {atMost: 0, to: 15}", "pods: {atLeast: 1, from: 17}", "at least 1 pods evicted from 17 on", "0 pods"),
    ],
)
def test_what_is_expected_of_budgets_can_be_broken(held: str, broken: str, expected: str, seen: str) -> None:
    """Each says what it expected and what it saw."""
    assert not played(BLOCKED.replace("CLAIM", held)).broken
    (verdict,) = played(BLOCKED.replace("CLAIM", broken)).broken
    assert verdict.expected == expected
    assert verdict.seen.startswith(seen)
