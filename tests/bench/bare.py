"""The minimum that a client can do, with only aiohttp and orjson. Floors are measured with it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import orjson
from tests.bench.population import NAMESPACE, TAINT_KEY, Json
from tests.bench.processes import now

from taint_eviction.login.credentials import Connection, with_kubeconfig
from taint_eviction.runtime.clock import ServerClock

T = TypeVar("T")

_PATCH = {"Content-Type": "application/strategic-merge-patch+json"}
_JSON = {"Content-Type": "application/json"}
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}


class BareClient:
    """A session with the API server of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._connection: Connection | None = None
        self._session: aiohttp.ClientSession | None = None
        self._url = ""

    async def __aenter__(self) -> Self:
        """Read the kubeconfig and open a session."""
        self._connection = await with_kubeconfig(str(self._kubeconfig), None, ServerClock())
        authorization = await self._connection.source.authorization()
        headers = {"Authorization": authorization} if authorization else {}
        connector = aiohttp.TCPConnector(limit=0, ssl=self._connection.ssl_context)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=2**21)
        self._url = self._connection.url
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session and the connection."""
        assert self._session is not None
        assert self._connection is not None
        await self._session.close()
        await self._connection.close()

    async def call(self, method: str, path: str, body: Json | None = None, *, allowed: Iterable[int] = ()) -> Any:
        """Make a request and decode the answer; raise if it is refused with a status that is not ``allowed``."""
        assert self._session is not None
        headers = _PATCH if method == "PATCH" else _JSON
        data = None if body is None else orjson.dumps(body)
        async with self._session.request(method, self._url + path, data=data, headers=headers) as answer:
            content = await answer.read()
            if not answer.ok and answer.status not in allowed:
                raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
        return orjson.loads(content)

    async def list_all(self, path: str, selector: str = "") -> list[Json]:
        """List all objects in pages of 500."""
        items: list[Json] = []
        token = ""
        while True:
            page = await self.call("GET", f"{path}?limit=500{selector}{'&continue=' + token if token else ''}")
            items += page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return items

    async def list_node(self, node: str) -> list[Json]:
        """List the pods of a node in one answer."""
        found = await self.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node}")
        items: list[Json] = found["items"]
        return items

    async def version(self, path: str) -> str:
        """Return the current version, from a list of one object."""
        version: str = (await self.call("GET", f"{path}?limit=1"))["metadata"]["resourceVersion"]
        return version

    async def watch(self, path: str, version: str, selector: str = "") -> AsyncIterator[Json]:
        """Yield the changes since a version, until cancelled or until the server ends the watch."""
        assert self._session is not None
        url = f"{self._url}{path}?watch=true&resourceVersion={version}{selector}"
        async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield orjson.loads(line)

    async def taint(self, node: str, *, value: str = "") -> None:
        """Set the taint of this benchmark on a node."""
        taint = {"key": TAINT_KEY, "effect": "NoExecute", "value": value}
        await self.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})

    async def untaint(self, node: str) -> None:
        """Remove all taints from a node."""
        await self.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": None}}, allowed=(404,))

    async def evict(self, pod: str, uid: str) -> None:
        """Make only the two necessary calls of an eviction, the condition and the deletion."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}"
        condition = {**_CONDITION, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await self.call("PATCH", f"{path}/status", {"metadata": {"uid": uid}, "status": {"conditions": [condition]}})
        await self.call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}})


async def all_at_once(work: Callable[[T], Awaitable[object]], items: Iterable[T], concurrency: int) -> list[float]:
    """Do the work for each item with this concurrency, and return the times at which items were done, in order."""
    waiting = iter(items)
    done_at: list[float] = []

    async def worker() -> None:
        for item in waiting:
            await work(item)
            done_at.append(now())

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return done_at
