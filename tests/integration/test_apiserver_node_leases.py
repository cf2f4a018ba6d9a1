"""Nodes of the embedded API server have Leases, which clients read over HTTP."""

import asyncio
from datetime import datetime

from apiserver_client import add_node, serving
from tests.stage.waiting import until

from fake_apiserver import NodeLifecycleSettings
from fake_apiserver.node_taints import UNREACHABLE, has_no_execute

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def test_each_node_has_a_lease_with_the_time_of_its_last_renewal() -> None:
    """Reading the Lease does not renew it."""
    async with serving(node_lifecycle=NodeLifecycleSettings()) as (server, api):
        begin = server.clock.now()
        add_node(server, "n1")
        await asyncio.sleep(0)
        lease = (await api.get(f"{LEASES}/n1")).body
        assert begin <= datetime.fromisoformat(lease["spec"]["renewTime"]) <= server.clock.now()
        assert (await api.get(f"{LEASES}/n1")).body == lease
        assert [item["metadata"]["name"] for item in (await api.get(LEASES)).body["items"]] == ["n1"]


async def test_the_node_lifecycle_controller_taints_silent_nodes_in_real_time() -> None:
    """The kubelet of one of two nodes stops sending heartbeats, and this node alone is tainted."""
    settings = NodeLifecycleSettings(period_seconds=0.1, grace_period_seconds=1.0, renew_seconds=0.1)
    async with serving(node_lifecycle=settings) as (server, _):
        for name in ("n1", "n2"):
            add_node(server, name)
        assert server.node_lifecycle is not None
        await asyncio.sleep(0)
        server.node_lifecycle.heartbeats.silence("n1")

        def tainted() -> list[str]:
            nodes = [node for node in server.list("nodes") if has_no_execute(node, UNREACHABLE)]
            return [node["metadata"]["name"] for node in nodes]

        await until(tainted)
        assert tainted() == ["n1"]


async def test_nodes_have_no_leases_without_the_node_lifecycle_controller() -> None:
    """The model of that controller is off by default."""
    async with serving() as (server, api):
        add_node(server, "n1")
        assert (await api.get(f"{LEASES}/n1")).code == 404
