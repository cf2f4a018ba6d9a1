"""Budgets in replays: how many pods a workload wants, when a budget counts them, and what each refusal says."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.simulation.scenario_texts import played

from taint_eviction.core.events import Block, BlockReason
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.runtime.ports import CallFailed, FailureReason
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, What
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.wiring import production_parsing

WEB = NamespacedName("default", "web")
SELECTOR = {"matchLabels": {"app": "web"}}


def budget(name: str = "web", selector: dict[str, Any] = SELECTOR, **spec: Any) -> dict[str, Any]:
    """Make a budget's JSON."""
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
        """Make a pod's JSON."""
        metadata = {"namespace": "default", "name": name, "labels": {"app": "web"}}
        return {"metadata": metadata, "spec": {"nodeName": "node-1"}}

    async def perform(self, action: do.Action) -> None:
        """Perform an action of a scenario."""
        await do.ScenarioStep(0.0, action, 1, "").perform(self.stage)

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
        """Ask for the evictions of pods one after another at the same instant; count those that are allowed."""
        gone = 0
        for number in range(pods):
            with contextlib.suppress(CallFailed):
                gone += self.evict(number)
        return gone


def play(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine in virtual time."""
    run_virtually(main)


def test_a_budget_in_percent_counts_evicted_pods_as_desired() -> None:
    """A workload wants as many pods as it had: ``minAvailable: 50%`` of four is two, however many are left."""

    async def main() -> None:
        scene = BudgetScene(4, budget(minAvailable="50%"))
        assert scene.evicted(4) == 2
        await asyncio.sleep(5)
        assert scene.refused(2).block == Block(BlockReason.BUDGET, "web")

    play(main())


def test_a_successor_counts_once_it_is_ready() -> None:
    """A budget allows the next eviction a moment after the successor of an evicted pod is ready."""

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
    """Until a budget is counted, its refusal says so and advises when to ask again; later refusals advise nothing."""

    async def main() -> None:
        scene = BudgetScene(1)
        await scene.perform(do.CreateBudget(budget(minAvailable=1)))
        refusal = scene.refused(0)
        assert refusal.retry_after_seconds == 10.0
        assert refusal.block == Block(BlockReason.BUDGET_NOT_READY, "web")
        await asyncio.sleep(0.2)
        refusal = scene.refused(0)
        assert refusal.retry_after_seconds is None
        assert refusal.block == Block(BlockReason.BUDGET, "web")
        await scene.perform(do.ChangeBudget(budget(minAvailable=0)))
        assert scene.refused(0).block == Block(BlockReason.BUDGET_NOT_READY, "web")
        await scene.perform(do.DeleteBudget(WEB))
        assert scene.evict(0)

    play(main())


def test_two_budgets_for_one_pod_block_its_eviction() -> None:
    """If two budgets select a pod, the eviction API refuses with an error, whatever both allow."""

    async def main() -> None:
        scene = BudgetScene(1, budget(minAvailable=0), budget("all", {}, minAvailable=0))
        refusal = scene.refused(0)
        assert refusal.reason is FailureReason.OTHER
        assert refusal.block == Block(BlockReason.SEVERAL_BUDGETS, "")
        (entry,) = [entry for entry in scene.stage.timeline if entry.what is What.BLOCKED]
        assert entry.why.startswith("by all, web: ")

    play(main())


def test_an_eviction_marks_and_deletes_only_the_pod_with_its_uid() -> None:
    """The pod gets the eviction API's own condition; a pod of the same name with another UID is not touched."""

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


def test_impossible_changes_of_budgets_are_errors() -> None:
    """A second budget of the same name cannot be created, and a missing one cannot be changed."""

    async def main() -> None:
        scene = BudgetScene(1, budget(minAvailable=0))
        with pytest.raises(Impossible, match=r'poddisruptionbudgets\.policy "web" already exists'):
            await scene.perform(do.CreateBudget(budget(minAvailable=0)))
        with pytest.raises(Impossible, match=r'poddisruptionbudgets\.policy "db" not found'):
            await scene.perform(do.ChangeBudget(budget("db", minAvailable=0)))

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
def test_every_expectation_about_budgets_can_be_broken(held: str, broken: str, expected: str, seen: str) -> None:
    """A broken expectation says what was expected and what happened."""
    assert not played(BLOCKED.replace("CLAIM", held)).broken
    (verdict,) = played(BLOCKED.replace("CLAIM", broken)).broken
    assert verdict.expected == expected
    assert verdict.seen.startswith(seen)
