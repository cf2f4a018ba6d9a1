"""Pauses of nodes by their labels: pools and zones, also of nodes that join later.

Labels have the test's own values, so that these pauses concern no nodes of others.
"""

import json

import pytest
from tests.e2e.cluster import MERGE, ClusterUnderTest
from tests.e2e.conftest import Order, Start

from taint_eviction.core.objects import ZONE_LABEL

KEY = "taint-eviction-test/pools"
TAINT = {"key": KEY, "effect": "NoExecute"}


async def test_a_paused_pool_covers_a_node_that_joins_it_later(
    cluster: ClusterUnderTest, start: Start, order: Order
) -> None:
    """Its pods stay until the node leaves the pool, or somebody resumes it; other nodes are not concerned."""
    pool, selector = {"pool": cluster.prefix}, f"pool=={cluster.prefix}"
    await cluster.create_node("a", labels=pool)
    await cluster.create_node("b")
    pods = {node: await cluster.create_pod(f"web-{node}", node) for node in "ab"}
    controller = await start()
    said = await order("pause", "-l", selector, "--reason", "new drivers")
    assert said.startswith(f"evictions are paused for nodes that match pool={cluster.prefix} (since ")
    await controller.says(what="paused", scope_kind="selector")
    for node in "ab":
        await cluster.taint(node, KEY)
    await cluster.evicted(pods["b"])
    for node in "cd":
        await cluster.create_node(node, [TAINT], labels=pool)
        pods[node] = await cluster.create_pod(f"web-{node}", node)
    await cluster.stays(pods["d"], 5.0)
    assert [pods[node].evicted_at for node in "acd"] == [None, None, None]
    document = json.loads(await controller.ask("explain", "-o", "json", f"{cluster.prefix}/web-c"))
    assert document["eviction"]["hold"]["reason"] == "selector_paused"
    found = await cluster.call("GET", cluster.state_path)
    assert found["data"]["format"] == "2"
    without = {"metadata": {"labels": {"pool": None}}}
    await cluster.call("PATCH", f"/api/v1/nodes/{cluster.node_name('d')}", without, headers=MERGE)
    await cluster.evicted(pods["d"])
    await cluster.stays(pods["a"], 2.0)
    await order("resume", "-l", f"pool in ({cluster.prefix})", "--yes")
    for node in "ac":
        await cluster.evicted(pods[node])
    assert (await cluster.call("GET", cluster.state_path))["data"] == {"format": "1"}


async def test_zones_are_released_one_after_the_other(cluster: ClusterUnderTest, start: Start, order: Order) -> None:
    """The pause of everything becomes one of all nodes outside of the zone, which covers a node that joins later."""
    zones = {zone: f"{cluster.prefix}-{zone}" for zone in "abc"}
    for zone in "ab":
        await cluster.create_node(zone, labels={ZONE_LABEL: zones[zone]})
    pods = {zone: await cluster.create_pod(f"web-{zone}", zone) for zone in "ab"}
    controller = await start()
    await order("pause")
    await controller.says(what="paused", scope_kind="all")
    for zone in "ab":
        await cluster.taint(zone, KEY)
    await cluster.stays(pods["a"], 3.0)
    said = await order("resume", "--only", f"zone/{zones['a']}", "--yes")
    assert f"evictions from nodes outside of zone {zones['a']} are paused instead" in said
    await cluster.evicted(pods["a"])
    await cluster.create_node("c", [TAINT], labels={ZONE_LABEL: zones["c"]})
    pods["c"] = await cluster.create_pod("web-c", "c")
    await cluster.stays(pods["c"], 5.0)
    assert pods["b"].evicted_at is None
    data = (await cluster.call("GET", cluster.state_path))["data"]
    [selector] = [json.loads(value)["selector"] for key, value in data.items() if key.startswith("pause-selector.")]
    assert selector == f"{ZONE_LABEL} notin ({zones['a']})"
    await order("resume", "--only", f"zone/{zones['a']}", f"zone/{zones['b']}", "--yes")
    await cluster.evicted(pods["b"])
    await cluster.stays(pods["c"], 3.0)
    await order("resume", "--all", "--yes")
    await cluster.evicted(pods["c"])


async def test_a_zone_that_is_not_there_is_refused(cluster: ClusterUnderTest, order: Order) -> None:
    """Nothing is written."""
    await cluster.create_node("a", labels={ZONE_LABEL: f"{cluster.prefix}-a"})
    with pytest.raises(AssertionError, match="there are no nodes in zone"):
        await order("pause", f"zone/{cluster.prefix}-x")
