"""A small cluster with a leading controller, which commands ask as people do from a terminal."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.stage.controlled import QUICK, Controlled, controlling
from tests.stage.objects import KEY, add_nodes, add_pod, tolerates, write_kubeconfig
from tests.stage.processes import CommandResult, invoked
from tests.stage.waiting import until

from fake_apiserver import ApiServer, pod_object
from taint_eviction.core.objects import ZONE_LABEL
from taint_eviction.settings import ElectionSettings

LEASE = ElectionSettings()


@dataclass
class Shop:
    """A server with a leading controller, and a kubeconfig whose context names no namespace."""

    server: ApiServer
    controlled: Controlled
    config: Path

    async def say(self, *words: str) -> CommandResult:
        """Run a command; ``plan`` is the only one here that asks no controller."""
        port = () if words[0] == "plan" else ("--port", str(self.controlled.listen.port))
        return await invoked(*words, "--kubeconfig", str(self.config), *port)


@contextlib.asynccontextmanager
async def open_shop(directory: Path) -> AsyncIterator[Shop]:
    """A server with n1 tainted: shop/db-1 was evicted from it, shop/db-0 stays on it, and bank/web-7 is on n2."""
    async with ApiServer(seed=1) as server:
        server.admission.default_toleration_seconds = None
        add_nodes(server, "n1", "n2", "cp")
        for node, zone in (("n1", "b"), ("n2", "a"), ("cp", "a")):
            server.patch("nodes", node, {"metadata": {"labels": {ZONE_LABEL: zone}}})
        for namespace in ("shop", "bank"):
            server.create("namespaces", {"metadata": {"name": namespace}})
        add_pod(server, "db-0", "n1", tolerates(), namespace="shop")
        add_pod(server, "db-1", "n1", namespace="shop")
        add_pod(server, "web-7", "n2", namespace="bank")
        add_pod(server, "api", "n1", tolerates(600))
        async with controlling(server, replace(QUICK, election=LEASE)) as controlled:
            await controlled.until(controlled.application.gate.may_act)
            server.taint("n1", KEY)
            await until(lambda: server.get("pods", "db-1", "shop") is None)
            await until(lambda: server.get("configmaps", f"{LEASE.lease_name}-history", LEASE.lease_namespace))
            own = pod_object(LEASE.lease_namespace, socket.gethostname(), "cp", timestamp=server.clock.timestamp())
            server.create("pods", {**own, "status": {**own["status"], "podIP": "127.0.0.1"}})
            yield Shop(server, controlled, write_kubeconfig(directory / "config", server))
