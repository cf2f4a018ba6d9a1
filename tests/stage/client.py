"""An embedded API server and our own client of it, for tests of ``kube``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stage.clocks import HandClock
from tests.stage.objects import add_nodes, condition_of, write_kubeconfig
from tests.stage.waiting import PATIENCE_SECONDS

from fake_apiserver import ApiServer, pod_object
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.kube.api_calls import ApiCalls
from taint_eviction.kube.api_reader import ApiReader
from taint_eviction.kube.api_writer import ApiWriter
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.login.credentials import Connection, with_kubeconfig


@dataclass
class ClientStage:
    """The server, the client (reader and writer), and what the client reported."""

    server: ApiServer
    reader: ApiReader
    writer: ApiWriter
    calls: ApiCalls
    connection: Connection
    dates: list[float] = field(default_factory=list)
    counted: list[tuple[str, str, str]] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)

    def pod(self, name: str = "web", node: str = "n1") -> PodRef:
        """Create a pod on the server and return its reference."""
        body = self.server.create("pods", pod_object("default", name, node))
        return PodRef(NamespacedName("default", name), body["metadata"]["uid"])

    def condition(self, name: str = "web") -> dict[str, Any]:
        """The pod's DisruptionTarget condition on the server, empty if it has none."""
        return condition_of(self.server, name)


@asynccontextmanager
async def client_stage(
    directory: Path, timeout_seconds: float = PATIENCE_SECONDS, **options: Any
) -> AsyncIterator[ClientStage]:
    """Serve an API server with nodes n1 and n2, and connect to it."""
    async with ApiServer(seed=1, **options) as server:
        add_nodes(server, "n1", "n2")
        connection = await with_kubeconfig(str(write_kubeconfig(directory / "config", server)), None, HandClock())
        dates: list[float] = []
        counted: list[tuple[str, str, str]] = []
        malformed: list[str] = []
        reporter = MalformedObjects(malformed.append)
        calls = ApiCalls(
            connection.api_client(),
            timeout_seconds,
            lambda date, *_: dates.append(date),
            lambda *count: counted.append(count),
        )
        try:
            yield ClientStage(
                server,
                ApiReader(calls, reporter),
                ApiWriter(calls, reporter),
                calls,
                connection,
                dates,
                counted,
                malformed,
            )
        finally:
            await connection.close()
