"""A served API server with our own client before it: what the tests of the adapters play on."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taint_eviction.adapters.api_calls import ApiCalls
from taint_eviction.adapters.api_client import ApiClient
from taint_eviction.adapters.credentials import Connection, with_kubeconfig
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.simulation.apiserver import ApiServer, kubeconfig, node_object, pod_object

EPOCH = 1_900_000_000.0


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> Moment:
        """The instant it was moved to."""
        return Moment(self.at, EPOCH + self.at)


@dataclass
class Stage:
    """The server, the client, and what the client told."""

    server: ApiServer
    client: ApiClient
    calls: ApiCalls
    connection: Connection
    dates: list[float] = field(default_factory=list)
    counted: list[tuple[str, str, str]] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)

    def pod(self, name: str = "web", node: str = "n1") -> PodRef:
        """Create a pod on the server and name it."""
        body = self.server.create("pods", pod_object("default", name, node))
        return PodRef(NamespacedName("default", name), body["metadata"]["uid"])

    def condition(self, name: str = "web") -> dict[str, Any]:
        """The pod's DisruptionTarget condition on the server, empty if it has none."""
        pod = self.server.get("pods", name)
        found = ((pod or {}).get("status") or {}).get("conditions") or []
        return next((c for c in found if c["type"] == "DisruptionTarget"), {})


def write_kubeconfig(path: Path, server: ApiServer | str, token: str | None = None, **user: Any) -> str:
    """Write a kubeconfig for ``server``; return its path."""
    content = kubeconfig(server, token=token)
    content["users"][0]["user"] |= user
    path.write_text(json.dumps(content))
    return str(path)


@asynccontextmanager
async def stage(directory: Path, timeout_seconds: float = 5.0, **options: Any) -> AsyncIterator[Stage]:
    """Serve an API server with nodes n1 and n2, and connect to it."""
    async with ApiServer(seed=1, **options) as server:
        for name in ("n1", "n2"):
            server.create("nodes", node_object(name, server.clock.timestamp()))
        connection = await with_kubeconfig(write_kubeconfig(directory / "config", server), None, HandClock())
        dates: list[float] = []
        counted: list[tuple[str, str, str]] = []
        malformed: list[str] = []
        calls = ApiCalls(connection.api_client(), timeout_seconds, dates.append, lambda *count: counted.append(count))
        try:
            yield Stage(
                server,
                ApiClient(calls, MalformedObjects(malformed.append)),
                calls,
                connection,
                dates,
                counted,
                malformed,
            )
        finally:
            await connection.close()
