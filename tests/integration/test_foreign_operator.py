"""An operator that has nothing to do with taints is tested with the embedded API server: the example of its README."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import kopf
import pytest
from tests.stage.waiting import until

from fake_apiserver import ApiServer, ResourceType, StatusError, custom_resource

pytest_plugins = ["fake_apiserver.pytest_plugin"]


@pytest.fixture
def fake_apiserver_custom() -> Sequence[ResourceType]:
    """The kind that the operator is about."""
    return [custom_resource("example.com/v1", "Database")]


def operator_of(server: ApiServer) -> kopf.OperatorRegistry:
    """Return an operator that makes a ConfigMap for each Database, and says so in its status."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=server.url)

    @kopf.on.create("example.com", "v1", "databases", registry=registry)
    @kopf.on.update("example.com", "v1", "databases", field="spec.size", registry=registry)
    async def configure(name: str, namespace: str | None, spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        body = {"metadata": {"name": name, "namespace": namespace}, "data": {"size": str(spec["size"])}}
        if server.get("configmaps", name, namespace or "") is None:
            server.create("configmaps", body)
        else:
            server.update("configmaps", body)
        patch.status["ready"] = True

    @kopf.on.delete("example.com", "v1", "databases", registry=registry)
    async def clean(name: str, namespace: str | None, **_: Any) -> None:
        server.delete("configmaps", name, namespace or "")

    return registry


@asynccontextmanager
async def running(registry: kopf.OperatorRegistry) -> AsyncIterator[None]:
    """Run an operator, and stop it at the end."""
    stop = asyncio.Event()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    task = asyncio.create_task(
        kopf.operator(registry=registry, settings=settings, standalone=True, namespaces=["default"], stop_flag=stop)
    )
    try:
        yield
    finally:
        stop.set()
        await task


async def test_an_operator_for_a_custom_kind_can_be_tested(fake_apiserver: ApiServer) -> None:
    """It is created, changed and deleted through the API server, and the operator follows."""
    server = fake_apiserver
    server.create("databases", {"metadata": {"name": "orders"}, "spec": {"size": 3, "anything": {"goes": [1, "x"]}}})
    async with running(operator_of(server)):
        await until(lambda: (server.get("databases", "orders") or {}).get("status", {}).get("ready") is True)
        assert size_of(server) == "3"
        stored = server.get("databases", "orders")
        assert stored is not None
        assert stored["spec"] == {"size": 3, "anything": {"goes": [1, "x"]}}
        server.update("databases", {**stored, "spec": {"size": 5}})
        await until(lambda: size_of(server) == "5")
        server.delete("databases", "orders")
        await until(lambda: server.get("databases", "orders") is None)
        assert server.get("configmaps", "orders") is None


def size_of(server: ApiServer) -> str:
    """Return what the operator has written."""
    return str(((server.get("configmaps", "orders") or {}).get("data") or {}).get("size", ""))


async def test_a_custom_kind_is_discovered(fake_apiserver: ApiServer) -> None:
    """Clients find it under its group, with its status as a subresource."""
    found = await asked(fake_apiserver, "/apis/example.com/v1")
    assert [each["name"] for each in found["resources"]] == ["databases", "databases/status"]
    assert "example.com" in [each["name"] for each in (await asked(fake_apiserver, "/apis"))["groups"]]


async def asked(server: ApiServer, path: str) -> Any:
    """Return a document of the server."""
    async with aiohttp.ClientSession() as session, session.get(server.url + path) as response:
        return await response.json()


def test_a_plural_that_is_taken_is_refused() -> None:
    """The server tells kinds apart by it."""
    with pytest.raises(ValueError, match="two kinds have the plural pods"):
        ApiServer(custom=[custom_resource("example.com/v1", "Pod")])


async def test_other_servers_do_not_know_the_kind() -> None:
    """Kinds belong to a server, and not to the process."""
    with pytest.raises(KeyError):
        ApiServer().create("databases", {"metadata": {"name": "orders"}})


async def test_the_spec_alone_counts_generations(fake_apiserver: ApiServer) -> None:
    """As with a CustomResourceDefinition that has a status."""
    made = fake_apiserver.create("databases", {"metadata": {"name": "orders"}, "spec": {"size": 3}})
    assert made["metadata"]["generation"] == 1
    assert fake_apiserver.update("databases", {**made, "status": {"a": 1}})["metadata"]["generation"] == 1
    assert fake_apiserver.update("databases", {**made, "spec": {"size": 4}})["metadata"]["generation"] == 2
    with pytest.raises(StatusError):
        fake_apiserver.create("databases", {"metadata": {"name": "orders"}})
