"""What holds evictions back: budgets, pauses, the circuit breaker, limits, holds; and what people are told of it.

In a real cluster nobody else may evict for taints meanwhile, and budgets take its disruption controller.
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
    """Make two ready pods, on nodes a and b, and the budget "guard" that wants both.

    Return the pod on a, and where the budget is.
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
    """Log and status name the budget meanwhile; the server marks the pod when it goes, and the other one stays."""
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


async def test_evict_then_delete_waits_for_a_budget_only_so_long(cluster: ClusterUnderTest, start: Start) -> None:
    """The pod is deleted once the budget has refused it for 6 s, though it still does."""
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


async def test_a_pause_of_all_holds_everything_until_it_is_resumed(
    cluster: ClusterUnderTest, start: Start, order: Order
) -> None:
    """Once it is in force nobody goes; deadlines run on meanwhile, and what is due goes after the resumption."""
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


async def test_a_pause_of_a_node_holds_no_other(cluster: ClusterUnderTest, start: Start, order: Order) -> None:
    """Pods go from node b while node a is paused, and from node a once it is resumed."""
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


async def test_a_pause_of_a_namespace_holds_no_other(cluster: ClusterUnderTest, start: Start, order: Order) -> None:
    """Pods go from another namespace while this one is paused, and from this one once it is resumed."""
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


async def test_a_wave_opens_the_breaker_and_nobody_goes_until_it_is_reset(
    cluster: ClusterUnderTest, start: Start, order: Order
) -> None:
    """Three nodes are tainted at once, and two are allowed: the ConfigMap says so until a human has looked."""
    controller = await start("--breaker", "--breaker-nodes=2")
    for node in "abcd":
        await cluster.create_node(node)
    pods = [await cluster.create_pod(f"pod-{node}", node) for node in "abcd"]
    await asyncio.gather(*(cluster.taint(node, KEY) for node in "abc"))
    await controller.says(what="breaker_opened")
    state = await cluster.eventually(cluster.state_path, lambda found: found is not None)
    kept = json.loads(state["data"]["breaker"])
    assert kept["open"] is True
    assert kept["cause"].startswith("3 of ")
    assert kept["cause"].endswith(" nodes newly tainted within 300 s, more than 2")
    await cluster.stays(pods[0], 4.0)  # Longer than an eviction waits for a surge to show itself.
    assert [pod.name for pod in pods if pod.evicted_at is not None] == []
    assert f"the circuit breaker is closed; it was open (since {kept['since'][:19]}" in await order(
        "breaker", "reset", "--yes"
    )
    for pod in pods[:3]:
        await cluster.evicted(pod)
    await cluster.stays(pods[3], 1.0)
    assert json.loads((await cluster.call("GET", cluster.state_path))["data"]["breaker"])["open"] is False


# Limits


async def test_limited_to_two_a_second_six_pods_take_their_time(cluster: ClusterUnderTest, start: Start) -> None:
    """Two go at once and then one each half second."""
    await start("--evictions-per-second=2", "--evictions-burst=2")
    await cluster.create_node("a")
    pods = [await cluster.create_pod(f"pod-{number}", "a") for number in range(6)]
    tainted_at = read_monotonic()
    await cluster.taint("a", KEY)
    gone_at = sorted([await cluster.evicted(pod) - tainted_at for pod in pods])
    assert [at >= earliest for at, earliest in zip(gone_at, (0.0, 0.0, 0.5, 1.0, 1.5, 2.0), strict=True)] == [True] * 6


# What the policy grants a pod


async def test_holds_and_default_tolerances_postpone(cluster: ClusterUnderTest, start: Start) -> None:
    """An annotation holds a pod for as long as is honoured; not-ready is tolerated by those that say nothing of it."""
    await start("--honour-holds=4s", "--default-not-ready-seconds=3")
    await cluster.create_node("a")
    await cluster.create_node("b", ready=False)
    plain = await cluster.create_pod("plain", "a")
    held = await cluster.create_pod("held", "a", annotations={"taint-eviction/hold": "true"})
    # With a toleration for this key, which does not match the taint, admission adds none of its own for 300 s.
    other: Json = {"key": NOT_READY, "operator": "Equal", "value": "other", "effect": "NoExecute"}
    # The node lifecycle controller may taint this node itself, and sooner: what counts then is when the pod was made.
    made_at = read_monotonic()
    silent = await cluster.create_pod("silent", "b", [other])
    tainted_at = read_monotonic()
    await asyncio.gather(cluster.taint("a", KEY), cluster.taint("b", NOT_READY))
    assert await cluster.evicted(silent) - made_at >= 3.0
    await cluster.evicted(plain)
    assert await cluster.evicted(held) - tainted_at >= 4.0


# What people are told


async def test_status_and_explain_say_who_goes_when_and_why(cluster: ClusterUnderTest, start: Start) -> None:
    """Status has a line for the pod; explain names the toleration that counts, and a later one that does not."""
    controller = await start()
    await cluster.create_node("a", [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}])
    for_ever: Json = {"key": KEY, "operator": "Exists"}
    await cluster.create_pod("pod", "a", [tolerates(605), for_ever])
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
    assert cells[1:] == ["waiting", pod, node, f"{KEY}:NoExecute is tolerated by [{KEY}:NoExecute for 605 s]"]
    headline, *facts = (await controller.ask("explain", pod)).splitlines()
    assert headline.startswith(f"{pod} leaves node {node} in 10 m ")
    told = dict(fact.split(maxsplit=1) for fact in facts)
    assert told["because"] == f"{KEY}:NoExecute is tolerated by [{KEY}:NoExecute for 605 s]"
    assert told["but"].startswith(f"[{KEY} indefinitely] comes later in the pod's list")
    assert told["again"].startswith("a new pod like it could not be scheduled there: it does not tolerate dedicated")


def tolerates(seconds: int) -> Json:
    """Make a toleration."""
    return {"key": KEY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
