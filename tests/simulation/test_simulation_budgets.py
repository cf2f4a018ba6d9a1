"""The simulated disruption controller and eviction API: the arithmetic, the delay, and what each refusal says."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.simulation.scenario_texts import played

from taint_eviction.core.effects import Block, BlockReason
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.settings import Settings
from taint_eviction.simulation.budgets import Budget
from taint_eviction.simulation.cluster import Impossible
from taint_eviction.simulation.pod_writes import PodWrites
from taint_eviction.simulation.stage import Stage
from taint_eviction.simulation.timeline import Timeline, What
from taint_eviction.simulation.virtual_loop import run_virtually
from taint_eviction.wiring_simulation import production_parsing

WEB = NamespacedName("default", "web")
SELECTOR = {"matchLabels": {"app": "web"}}


class Scene:
    """A stage with one node and some pods of one app; evictions arrive without a network."""

    def __init__(self, pods: int, *budgets: Budget, ready_seconds: float = 0.0, **pod: Any) -> None:
        self.stage = Stage(Timeline(), Settings(), production_parsing(), seed="test", ready_seconds=ready_seconds)
        self.cluster, self.budgets = self.stage.cluster, self.stage.budgets
        self.writes = PodWrites(self.cluster, self.budgets, self.stage.timeline)
        bodies = [self.body(f"web-{number}", **pod) for number in range(pods)]
        self.stage.give([{"metadata": {"name": "node-1"}}], bodies, budgets)

    def body(self, name: str, labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
        """Make a pod."""
        metadata = {"namespace": "default", "name": name, "labels": labels or {"app": "web"}}
        return {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status}

    def ref(self, number: int) -> PodRef:
        """The pod of this number."""
        key = NamespacedName("default", f"web-{number}")
        return PodRef(key, self.cluster.pods[key]["metadata"]["uid"])

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


@pytest.mark.parametrize(
    ("pods", "minimum", "maximum", "allowed"),
    [
        (3, 2, None, 1),
        (3, 0, None, 3),
        (3, 3, None, 0),
        (3, 4, None, 0),
        (3, "100%", None, 0),
        (3, "50%", None, 1),
        (4, "50%", None, 2),
        (3, "1%", None, 2),
        (3, None, 1, 1),
        (3, None, 0, 0),
        (3, None, "50%", 2),
        (3, None, "100%", 3),
        (3, None, 7, 3),
    ],
)
def test_as_many_may_go_as_a_budget_allows(
    pods: int, minimum: int | str | None, maximum: int | str | None, allowed: int
) -> None:
    """Percentages are rounded up, of both kinds."""

    async def main() -> None:
        scene = Scene(pods, Budget(WEB, SELECTOR, minimum, maximum))
        assert scene.evicted(pods) == allowed

    play(main())


def test_what_went_is_wanted_back() -> None:
    """A workload wants as many pods as it had: half of four is two, however many are left."""

    async def main() -> None:
        scene = Scene(4, Budget(WEB, SELECTOR, "50%"))
        assert scene.evicted(4) == 2
        await asyncio.sleep(5)
        assert scene.refused(2).block == Block(BlockReason.BUDGET, "web")

    play(main())


def test_a_successor_counts_once_it_is_ready() -> None:
    """It is counted a moment after that, and then the next may go."""

    async def main() -> None:
        scene = Scene(2, Budget(WEB, SELECTOR, 1), ready_seconds=20)
        await asyncio.sleep(10)
        assert scene.evict(0)
        await asyncio.sleep(1)
        scene.cluster.recreate_pod(NamespacedName("default", "web-0"), "node-1")
        await asyncio.sleep(20.05)
        assert scene.refused(1).block == Block(BlockReason.BUDGET, "web")
        await asyncio.sleep(0.1)
        assert scene.evict(1)

    play(main())


def test_a_new_budget_is_counted_after_a_moment() -> None:
    """Until then it says so, with an advice; one that has been counted advises nothing."""

    async def main() -> None:
        scene = Scene(1)
        scene.budgets.create(Budget(WEB, SELECTOR, 1))
        refusal = scene.refused(0)
        assert (refusal.status, refusal.retry_after_seconds) == (429, 10.0)
        assert refusal.block == Block(BlockReason.BUDGET_NOT_READY, "web")
        await asyncio.sleep(0.2)
        refusal = scene.refused(0)
        assert (refusal.status, refusal.retry_after_seconds) == (429, None)
        assert refusal.block == Block(BlockReason.BUDGET, "web")
        scene.budgets.change(Budget(WEB, SELECTOR, 0))
        assert scene.refused(0).block == Block(BlockReason.BUDGET_NOT_READY, "web")
        scene.budgets.delete(WEB)
        assert scene.evict(0)

    play(main())


def test_two_budgets_are_one_too_many() -> None:
    """The eviction API answers 500, whatever they allow."""

    async def main() -> None:
        scene = Scene(1, Budget(WEB, SELECTOR, 0), Budget(NamespacedName("default", "all"), {}, 0))
        refusal = scene.refused(0)
        assert refusal.status == 500
        assert refusal.block == Block(BlockReason.SEVERAL_BUDGETS, "")
        (entry,) = [entry for entry in scene.stage.timeline if entry.what is What.BLOCKED]
        assert entry.why.startswith("by all, web: ")

    play(main())


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_who_is_not_running_passes(phase: str) -> None:
    """And costs nothing."""

    async def main() -> None:
        scene = Scene(1, Budget(WEB, SELECTOR, None, 0), phase=phase)
        assert scene.evict(0)

    play(main())


@pytest.mark.parametrize(("always", "passes"), [(True, True), (False, False)])
def test_a_pod_that_is_not_ready_passes_where_it_always_may(always: bool, passes: bool) -> None:
    """By default only while enough others are healthy, and here none is."""

    async def main() -> None:
        unready = [{"type": "Ready", "status": "False"}]
        scene = Scene(2, Budget(WEB, SELECTOR, 1, None, always), conditions=unready)
        assert scene.evicted(2) == (2 if passes else 0)

    play(main())


def test_a_pod_that_is_not_ready_passes_while_enough_others_are_healthy() -> None:
    """It does not count among them, so its going costs nothing."""

    async def main() -> None:
        scene = Scene(2, Budget(WEB, SELECTOR, 2))
        scene.cluster.create_pod(scene.body("web-2", conditions=[{"type": "Ready", "status": "False"}]))
        await asyncio.sleep(1)
        assert scene.refused(0).block == Block(BlockReason.BUDGET, "web")
        assert scene.evict(2)

    play(main())


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "front"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db", "web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists", "values": []}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist", "values": []}]}, False),
    ],
)
def test_a_budget_covers_what_its_selector_chooses(selector: dict[str, Any], covers: bool) -> None:
    """All terms must hold; none chooses all pods of the namespace."""

    async def main() -> None:
        assert Scene(1, Budget(WEB, selector, None, 0)).evicted(1) == (0 if covers else 1)

    play(main())


def test_a_budget_covers_its_own_namespace() -> None:
    """Labels of other namespaces do not matter."""

    async def main() -> None:
        assert Scene(1, Budget(NamespacedName("shop", "web"), SELECTOR, None, 0)).evict(0)

    play(main())


def test_an_eviction_marks_and_deletes_exactly_the_pod_that_was_meant() -> None:
    """With the eviction API's own condition; another UID is neither asked of budgets nor touched."""

    async def main() -> None:
        scene = Scene(1, Budget(WEB, SELECTOR, 0))
        first = scene.ref(0)
        scene.cluster.recreate_pod(first.key, "node-1")
        assert scene.writes.evict(first) is False
        assert "deletionTimestamp" not in scene.cluster.pods[first.key]["metadata"]
        assert scene.evict(0)
        pod = scene.cluster.pods[first.key]
        (condition,) = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
        assert "deletionTimestamp" in pod["metadata"]
        await asyncio.sleep(1)
        assert scene.writes.evict(first) is False

    play(main())


def test_what_cannot_be_done_to_budgets_is_said() -> None:
    """Names are unique, and what is not there cannot be changed."""

    async def main() -> None:
        scene = Scene(1, Budget(WEB, SELECTOR, 0))
        with pytest.raises(Impossible, match="there is a budget 'default/web' already"):
            scene.budgets.create(Budget(WEB, SELECTOR, 0))
        with pytest.raises(Impossible, match="there is no budget 'default/db' at this moment"):
            scene.budgets.change(Budget(NamespacedName("default", "db"), SELECTOR, 0))

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
        ("blocked: 10", "blocked: 11", "blocked at 11", "blocked at 10.040 by web: the disruption budget web"),
        (
            "blocked: {at: 10, by: web}",
            "blocked: {at: 10, by: db}",
            "blocked at 10 by db",
            "blocked at 10.040 by web: ",
        ),
        ("blocked: {at: 9, within: 2}", "blocked: []", "blocked never", "blocked at 10.040 by web"),
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
