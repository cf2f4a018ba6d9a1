"""Budgets that keep the pods of a dead node, and --budgets-on-lost-nodes=ignore, which deletes such pods.

In a real cluster, budgets need its disruption controller.
"""

import json

import pytest
from tests.e2e.cluster import ClusterUnderTest, WatchedPod
from tests.e2e.conftest import Start

from taint_eviction.core.objects import UNREACHABLE

KEY = "taint-eviction-test/maintenance"
SECONDS = 3


def tolerates(key: str, seconds: int | None) -> dict[str, object]:
    """Return a toleration; None: without a limit."""
    span = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **span}


async def two_of_two(cluster: ClusterUnderTest, seconds: int | None = SECONDS) -> list[WatchedPod]:
    """Create two pods on one of two nodes, and a budget that wants both; they tolerate the loss for ``seconds``."""
    for node in "ab":
        await cluster.create_node(node)
    for name in ("web-0", "web-1"):
        await cluster.create_pod(name, "a", [tolerates(UNREACHABLE, seconds)], labels={"app": "web"})
        await cluster.make_ready(name)
    budget = await cluster.create_budget("web", "web", min_available=2)
    try:
        await cluster.eventually(budget, lambda found: found.get("status", {}).get("currentHealthy") == 2)
    except TimeoutError:
        pytest.skip("nobody fills in the status of budgets here: the cluster has no disruption controller")
    return list(cluster.pods.values())


async def test_where_budgets_are_ignored_the_pods_of_a_dead_node_are_deleted(
    cluster: ClusterUnderTest, start: Start
) -> None:
    """Both leave at their deadline; without the kubelet they stay Terminating."""
    controller = await start("--eviction-mode=evict", "--budgets-on-lost-nodes=ignore")
    pods = await two_of_two(cluster)
    await cluster.set_ready("a", "Unknown")
    await cluster.taint("a", UNREACHABLE)
    for pod in pods:
        await cluster.evicted(pod)
        condition = pod.condition("DisruptionTarget")
        assert condition is not None
        assert condition["reason"] == "DeletionByTaintManager"
    assert not any(line.get("what") == "refused" for line in controller.told())


async def test_by_default_a_budget_keeps_the_pods_of_a_dead_node(cluster: ClusterUnderTest, start: Start) -> None:
    """In mode evict, for as long as nobody changes the budget."""
    controller = await start("--eviction-mode=evict")
    pods = await two_of_two(cluster)
    await cluster.set_ready("a", "Unknown")
    await cluster.taint("a", UNREACHABLE)
    refused = await controller.says(what="refused")
    assert (refused["block"], refused["budget"]) == ("budget", "web")
    await cluster.stays(pods[0], 10.0)
    assert pods[1].evicted_at is None


async def test_a_pod_that_leaves_a_dead_node_for_another_reason_has_its_budget(
    cluster: ClusterUnderTest, start: Start
) -> None:
    """It tolerates the loss of its node without a limit, and a person has tainted the node."""
    controller = await start("--eviction-mode=evict", "--budgets-on-lost-nodes=ignore")
    pods = await two_of_two(cluster, seconds=None)
    await cluster.set_ready("a", "Unknown")
    await cluster.taint("a", KEY)
    refused = await controller.says(what="refused")
    assert (refused["block"], refused["budget"]) == ("budget", "web")
    document = json.loads(await controller.ask("explain", "-o", "json", f"{cluster.prefix}/web-0"))
    assert (document["eviction"]["mode"], document["eviction"]["nodeLost"]) == ("evict", False)
    assert [pod.evicted_at for pod in pods] == [None, None]
