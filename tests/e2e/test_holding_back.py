"""What holds evictions back: budgets, pauses, the breaker, limits and holds; and what people see of this.

In a real cluster, no other controller may evict for taints meanwhile, and budgets need its disruption controller.
"""

import asyncio
import json

import pytest
from tests.e2e.cluster import ClusterUnderTest, Json, WatchedPod
from tests.e2e.conftest import Order, Start

from taint_eviction.core.objects import NOT_READY
from taint_eviction.runtime.clock import read_monotonic

KEY = "taint-eviction-test/mistake"


# Budgets


async def guard(cluster: ClusterUnderTest) -> tuple[WatchedPod, str]:
    """Create two ready pods, on nodes a and b, and the budget "guard" that requires both.

    Return the pod on a, and the path of the budget.
    """
    for node in "ab":
        await cluster.create_node(node)
    pods = [await cluster.create_pod(f"db-{node}", node, labels={"app": "db"}) for node in "ab"]
    for pod in pods:
        await cluster.make_ready(pod.name)
    budget = await cluster.create_budget("guard", "db", min_available=2)
    try:
        await cluster.eventually(budget, lambda found: found.get("status", {}).get("currentHealthy") == 2)
    except TimeoutError:
        pytest.skip("nobody fills in the status of budgets here: the cluster has no disruption controller")
    return pods[0], budget


async def test_a_budget_holds_a_pod_until_it_allows_a_disruption(cluster: ClusterUnderTest, start: Start) -> None:
    """Meanwhile log and status name the budget; then the server sets the condition, and the other pod stays."""
    controller = await start("--eviction-mode=evict")
    pod, budget = await guard(cluster)
    await cluster.taint("a", KEY)
    refused = await controller.says(what="refused", pod=f"{cluster.prefix}/{pod.name}")
    assert (refused["block"], refused["budget"]) == ("budget", "guard")
    [pending] = json.loads(await controller.ask("status", "-o", "json", "-n", cluster.prefix))["pending"]
    assert (pending["name"], pending["state"]) == (pod.name, "blocked")
    assert (pending["blockedBy"]["reason"], pending["blockedBy"]["budget"]) == ("budget", "guard")
    assert pod.evicted_at is None
    await cluster.relax_budget(budget, min_available=1)
    await cluster.evicted(pod)
    condition = pod.condition("DisruptionTarget")
    assert condition is not None
    assert condition["reason"] == "EvictionByEvictionAPI"
    assert [other.name for other in cluster.pods.values() if other.evicted_at is None] == ["db-b"]


async def test_evict_then_delete_waits_for_a_budget_only_until_the_timeout(
    cluster: ClusterUnderTest, start: Start
) -> None:
    """The pod is deleted after 6 s although the budget still refuses its eviction."""
    controller = await start("--eviction-mode=evict-then-delete", "--evict-timeout=6s")
    pod, budget = await guard(cluster)
    tainted_at = read_monotonic()
    await cluster.taint("a", KEY)
    await controller.says(what="refused", budget="guard")
    assert await cluster.evicted(pod) - tainted_at >= 6.0
    condition = pod.condition("DisruptionTarget")
    assert condition is not None
    assert condition["reason"] == "DeletionByTaintManager"
    assert (await cluster.call("GET", budget))["spec"]["minAvailable"] == 2


# Pauses


async def test_a_pause_of_all_evictions_holds_every_pod_until_the_resume(
    cluster: ClusterUnderTest, start: Start, order: Order
) -> None:
    """Deadlines continue during the pause, and the pods that are due are evicted after the resume."""
    controller = await start()
    await cluster.create_node("a")
    now = await cluster.create_pod("now", "a")
    soon = await cluster.create_pod("soon", "a", [tolerates(2)])
    assert "all evictions are paused" in await order("pause", "--reason", "looking into it")
    await controller.says(what="paused", reason="looking into it")
    await cluster.taint("a", KEY)
    await cluster.stays(now, 4.0)
    assert soon.evicted_at is None
    resumed_at = read_monotonic()
    assert "all evictions are no longer paused" in await order("resume", "--yes")
    for pod in (now, soon):
        assert await cluster.evicted(pod) > resumed_at


async def test_a_pause_of_a_node_does_not_affect_other_nodes(
    cluster: ClusterUnderTest, start: Start, order: Order
) -> None:
    """A pod of node b is evicted while node a is paused, and the pod of node a after the resume."""
    controller = await start()
    for node in "ab":
        await cluster.create_node(node)
    held = await cluster.create_pod("held", "a")
    free = await cluster.create_pod("free", "b")
    await order("pause", "--node", cluster.node_name("a"))
    await controller.says(what="paused")
    await asyncio.gather(cluster.taint("a", KEY), cluster.taint("b", KEY))
    await cluster.evicted(free)
    await cluster.stays(held, 2.0)
    await order("resume", "--yes", "--node", cluster.node_name("a"))
    await cluster.evicted(held)


async def test_a_pause_of_a_namespace_does_not_affect_other_namespaces(
    cluster: ClusterUnderTest, start: Start, order: Order
) -> None:
    """A pod of another namespace is evicted while this one is paused, and the pod of this one after the resume."""
    controller = await start()
    async with ClusterUnderTest(cluster.connection) as elsewhere:
        for each in (cluster, elsewhere):
            await each.create_node("a")
        held = await cluster.create_pod("held", "a")
        free = await elsewhere.create_pod("free", "a")
        await order("pause", "--namespace", cluster.prefix)
        await controller.says(what="paused")
        await asyncio.gather(cluster.taint("a", KEY), elsewhere.taint("a", KEY))
        await elsewhere.evicted(free)
        await cluster.stays(held, 2.0)
        await order("resume", "--yes", "--namespace", cluster.prefix)
        await cluster.evicted(held)


# The circuit breaker


async def test_a_surge_opens_the_breaker_and_no_pod_is_evicted_until_its_reset(
    cluster: ClusterUnderTest, start: Start, order: Order
) -> None:
    """Three nodes are tainted at once and two are allowed: the breaker stays open until a person resets it."""
    controller = await start("--breaker", "--breaker-nodes=2")
    for node in "abcd":
        await cluster.create_node(node)
    pods = [await cluster.create_pod(f"pod-{node}", node) for node in "abcd"]
    await asyncio.gather(*(cluster.taint(node, KEY) for node in "abc"))
    await controller.says(what="breaker_opened")
    state = await cluster.eventually(cluster.state_path, lambda found: "breaker" in (found or {}).get("data", {}))
    kept = json.loads(state["data"]["breaker"])
    assert kept["open"] is True
    assert kept["cause"].startswith("3 of ")
    assert kept["cause"].endswith(" nodes newly tainted within 300 s, more than 2")
    await cluster.stays(pods[0], 4.0)  # longer than an eviction waits for a surge to become visible
    assert [pod.name for pod in pods if pod.evicted_at is not None] == []
    assert (
        f"the circuit breaker is closed; it was open (since {kept['since'][:19].replace('T', ' ')} UTC"
        in await order("breaker", "reset", "--yes")
    )
    for pod in pods[:3]:
        await cluster.evicted(pod)
    await cluster.stays(pods[3], 1.0)
    assert json.loads((await cluster.call("GET", cluster.state_path))["data"]["breaker"])["open"] is False


# Limits


async def test_six_pods_are_not_evicted_faster_than_the_limit_of_two_per_second(
    cluster: ClusterUnderTest, start: Start
) -> None:
    """After a burst of two, one pod may be evicted each half second."""
    await start("--evictions-per-second=2", "--evictions-burst=2")
    await cluster.create_node("a")
    pods = [await cluster.create_pod(f"pod-{number}", "a") for number in range(6)]
    tainted_at = read_monotonic()
    await cluster.taint("a", KEY)
    gone_at = sorted([await cluster.evicted(pod) - tainted_at for pod in pods])
    assert [at >= earliest for at, earliest in zip(gone_at, (0.0, 0.0, 0.5, 1.0, 1.5, 2.0), strict=True)] == [True] * 6


# Holds and default tolerations


async def test_holds_and_default_tolerations_postpone_evictions(cluster: ClusterUnderTest, start: Start) -> None:
    """A hold counts for the time that is set; a default toleration counts for a pod without one for not-ready."""
    await start("--honour-holds=4s", "--default-not-ready-seconds=3")
    await cluster.create_node("a")
    await cluster.create_node("b", ready=False)
    plain = await cluster.create_pod("plain", "a")
    held = await cluster.create_pod("held", "a", annotations={"taint-eviction/hold": "true"})
    # With a toleration for this key, even one that does not match the taint, admission adds none for 300 s.
    other: Json = {"key": NOT_READY, "operator": "Equal", "value": "other", "effect": "NoExecute"}
    # The node lifecycle controller may taint this node sooner; then the creation of the pod is the start that counts.
    made_at = read_monotonic()
    silent = await cluster.create_pod("silent", "b", [other])
    tainted_at = read_monotonic()
    await asyncio.gather(cluster.taint("a", KEY), cluster.taint("b", NOT_READY))
    assert await cluster.evicted(silent) - made_at >= 3.0
    await cluster.evicted(plain)
    assert await cluster.evicted(held) - tainted_at >= 4.0


# What people see


async def test_status_and_explain_say_when_and_why_a_pod_will_be_evicted(
    cluster: ClusterUnderTest, start: Start
) -> None:
    """Status has a line for the pod; explain names the toleration that counts, and a later one that does not count."""
    controller = await start()
    await cluster.create_node("a", [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}])
    for_ever: Json = {"key": KEY, "operator": "Exists"}
    await cluster.create_pod("pod", "a", [tolerates(645), for_ever])
    await cluster.taint("a", KEY)
    pod = f"{cluster.prefix}/pod"
    await controller.says(what="scheduled", pod=pod)
    node = cluster.node_name("a")
    rows = (await controller.ask("status", "--namespace", cluster.prefix)).splitlines()
    [group] = [row.split() for row in rows if row.strip().startswith(node)]
    assert group[:7] == [node, KEY, "1", "1", "-", "-", "-"]
    header = next(number for number, row in enumerate(rows) if row.split()[:2] == ["DUE", "STATE"])
    assert rows[header].split() == ["DUE", "STATE", "POD", "NODE", "WHY"]
    [row] = [row.split("  ") for row in rows[header + 1 :] if row]
    cells = [cell.strip() for cell in row if cell]
    assert cells[0].startswith("in 10 m ")
    assert cells[1:] == ["waiting", pod, node, f"{KEY}:NoExecute is tolerated by [{KEY}:NoExecute for 645 s]"]
    headline, *facts = (await controller.ask("explain", pod)).splitlines()
    assert headline.startswith(f"{pod} leaves node {node} in 10 m ")
    told = dict(fact.split(maxsplit=1) for fact in facts)
    assert told["because"] == f"{KEY}:NoExecute is tolerated by [{KEY}:NoExecute for 645 s]"
    assert told["but"].startswith(f"[{KEY} indefinitely] comes later in the pod's list")
    assert told["again"].startswith("a new pod like it could not be scheduled there: it does not tolerate dedicated")


def tolerates(seconds: int) -> Json:
    """Return a toleration."""
    return {"key": KEY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
