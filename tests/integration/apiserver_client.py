"""A started API server and a bare HTTP client for it, for the tests of the embedded API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from tests.stage.waiting import PATIENCE_SECONDS

from fake_apiserver import ApiServer, node_object, pod_object

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@dataclass(slots=True)
class HttpAnswer:
    """Status code, decoded body and headers of one answer."""

    code: int
    body: Any
    headers: dict[str, str]

    @property
    def names(self) -> list[str]:
        """The names of the items of a list."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def message(self) -> str:
        return cast(str, self.body["message"])


class Stream:
    """One open watch; `next` waits for an event."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def line(self) -> bytes:
        """The next line, b"" at the end of the stream."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.response.content.readline()

    async def next(self) -> tuple[str, Any]:
        """Type and object of the next event."""
        event = json.loads(await self.line())
        return event["type"], event["object"]

    async def seen(self, count: int) -> list[tuple[str, str]]:
        """Types and names of the next ``count`` events."""
        return [(kind, obj["metadata"]["name"]) for kind, obj in [await self.next() for _ in range(count)]]


class Api:
    """Requests against one server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def request(self, method: str, path: str, body: Any = None, **options: Any) -> HttpAnswer:
        async with self.session.request(method, path, json=body, **options) as response:
            text = await response.text()
            is_json = "json" in response.headers.get("Content-Type", "")
            return HttpAnswer(response.status, json.loads(text) if is_json else text, dict(response.headers))

    async def get(self, path: str, **query: str) -> HttpAnswer:
        return await self.request("GET", path, params=query)

    async def post(self, path: str, body: Any, **options: Any) -> HttpAnswer:
        return await self.request("POST", path, body, **options)

    async def put(self, path: str, body: Any, **options: Any) -> HttpAnswer:
        return await self.request("PUT", path, body, **options)

    async def delete(self, path: str, body: Any = None, **options: Any) -> HttpAnswer:
        return await self.request("DELETE", path, body, **options)

    async def patch(self, path: str, body: Any, content_type: str = STRATEGIC, **options: Any) -> HttpAnswer:
        headers = {"Content-Type": content_type, **options.pop("headers", {})}
        return await self.request("PATCH", path, body, headers=headers, **options)

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Stream]:
        async with self.session.get(path, params={"watch": "true", **query}) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[ApiServer, Api]]:
    """A started server and a client for it; both end with the block."""
    async with ApiServer(seed=1, **options) as server, aiohttp.ClientSession(server.url) as session:
        yield server, Api(session)


def add_node(server: ApiServer, name: str = "n1") -> None:
    server.create("nodes", node_object(name, server.clock.timestamp()))


def add_pod(server: ApiServer, name: str = "p1", node: str = "n1", **metadata: Any) -> str:
    """A running, ready pod in `default`; returns its uid."""
    pod = pod_object("default", name, node, timestamp=server.clock.timestamp())
    pod["metadata"] |= metadata
    return cast(str, server.create("pods", pod)["metadata"]["uid"])


def pod_body(name: str = "p1", **spec: Any) -> dict[str, Any]:
    """The body of a POST that creates a pod."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
