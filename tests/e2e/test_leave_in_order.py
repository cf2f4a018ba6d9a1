"""The order of tiers where kubelets are played by a script: a pod ends only while the plugin's pod of its node runs.

The pods have no real DaemonSet, whose controller would replace them: a rule of the policy names their tier. No volume
is mounted: the script shows what the order is for, and not that a kubelet unmounts.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.cluster import ClusterUnderTest, WatchedPod
from tests.e2e.conftest import Start

KEY = "taint-eviction-test/maintenance"
PLUGIN, FINALIZER = "csi", "taint-eviction-test/volume"
POLICY = """
apiVersion: taint-eviction/v1
kind: EvictionPolicy
rules: [{name: plugins, match: {podSelector: app=csi}, tier: critical-daemonsets}]
"""
# How long an unmount takes.
UNMOUNT_SECONDS = 1.5


@contextlib.asynccontextmanager
async def kubelet(cluster: ClusterUnderTest) -> AsyncIterator[None]:
    """Play the kubelet of the node: end the plugin's pod at once, and others only while that one runs."""

    async def end(pod: WatchedPod) -> None:
        plugin = next(each for each in cluster.pods.values() if each.name == PLUGIN)
        await cluster.until(lambda: pod.evicted_at is not None, seconds=120)
        if pod is not plugin:
            await asyncio.sleep(UNMOUNT_SECONDS)
            if plugin.evicted_at is not None:
                return  # Nobody unmounts its volume any more.
        await cluster.remove_pod(pod.name)

    tasks = [asyncio.create_task(end(pod)) for pod in cluster.pods.values()]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def node_with_pods(cluster: ClusterUnderTest) -> tuple[list[WatchedPod], WatchedPod]:
    """Create a node with two pods that have volumes, and the plugin's pod; return both kinds."""
    await cluster.create_node("a")
    plugin = await cluster.create_pod(PLUGIN, "a", labels={"app": "csi"})
    users = [await cluster.create_pod(name, "a", finalizers=[FINALIZER]) for name in ("db-0", "db-1")]
    return users, plugin


@pytest.fixture
def policy(tmp_path: Path) -> str:
    """Return the flag that names the policy file."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return f"--config={file}"


async def test_with_the_order_every_pod_ends_and_the_plugin_leaves_last(
    cluster: ClusterUnderTest, start: Start, policy: str
) -> None:
    """The plugin's pod is evicted when the last volume is unmounted."""
    await start("--order=tiers", policy)
    users, plugin = await node_with_pods(cluster)
    async with kubelet(cluster):
        await cluster.taint("a", KEY)
        evicted_at = await cluster.evicted(plugin)
        assert [user.name for user in users if user.gone_at is None or user.gone_at > evicted_at] == []


async def test_without_the_order_pods_hang_since_the_plugin_has_left(
    cluster: ClusterUnderTest, start: Start, policy: str
) -> None:
    """All are evicted at once."""
    await start(policy)
    users, plugin = await node_with_pods(cluster)
    async with kubelet(cluster):
        await cluster.taint("a", KEY)
        await cluster.evicted(plugin)
        for user in users:
            await cluster.evicted(user)
        await asyncio.sleep(2 * UNMOUNT_SECONDS)
        assert [user.name for user in users if user.gone_at is not None] == []
    for user in users:
        await cluster.remove_pod(user.name)
