"""The model at work on an embedded API server, in real time.

Its calls use HTTP, and so are subject to the faults. Its informers read the server's store directly, without a watch;
``fall_behind`` delays them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import aiohttp

from fake_apiserver import ApiServer
from fake_apiserver.records import Change
from taint_eviction.core.objects import NamespacedName, Pod
from taint_eviction.kube.condition_patches import mark_patch
from taint_eviction.kube.kubernetes_objects import read_node, read_pod
from taint_eviction.runtime.ports import CallFailed
from taint_eviction_lab.built_in.controller import BuiltInController
from taint_eviction_lab.built_in.doors import BuiltInReporter
from taint_eviction_lab.built_in.version import BuiltInVersion

MANAGER = "kube-controller-manager"
_PATCH = "application/strategic-merge-patch+json"


class HttpPodClient:
    """The model's ``PodClient`` over HTTP."""

    def __init__(self, server: ApiServer, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    async def get(self, key: NamespacedName) -> Pod:
        """Read the pod that has this name."""
        return read_pod(await self._call("GET", key))[0]

    async def mark(self, pod: Pod) -> None:
        """Set the condition on this pod."""
        patch = mark_patch(pod.ref, self._server.clock.now().timestamp())
        await self._call("PATCH", pod.ref.key, "/status", json=patch, headers={"Content-Type": _PATCH})

    async def delete(self, key: NamespacedName) -> None:
        """Delete the pod that has this name."""
        await self._call("DELETE", key)

    async def _call(self, method: str, key: NamespacedName, part: str = "", **options: Any) -> Any:
        url = f"{self._server.url}/api/v1/namespaces/{key.namespace}/pods/{key.name}{part}"
        try:
            async with self._session.request(method, url, params={"fieldManager": MANAGER}, **options) as answer:
                body = await answer.json()
        except aiohttp.ClientError as error:
            raise CallFailed(str(error)) from error
        if answer.status >= 300:
            retry_after = answer.headers.get("Retry-After")
            seconds = None if retry_after is None else float(retry_after)
            raise CallFailed(body.get("message", str(answer.status)), retry_after_seconds=seconds)
        return body


class LiveBuiltIn:
    """The processes of kube-controller-manager, one after another, between ``start`` and ``stop``."""

    def __init__(self, server: ApiServer, version: BuiltInVersion, reporter: BuiltInReporter) -> None:
        self._server = server
        self._version = version
        self._reporter = reporter
        self._waiting: deque[Callable[[], None]] | None = None

    async def start(self) -> None:
        """Start a process that knows only the present state."""
        self._session = aiohttp.ClientSession(headers={"User-Agent": MANAGER})
        client = HttpPodClient(self._server, self._session)
        self._controller = controller = BuiltInController(self._version, client, self._reporter)
        for plural in ("nodes", "pods"):
            for record in self._server.list(plural):
                _take_in(controller, plural, record, deleted=False)
        self._unsubscribe = self._server.store.subscribe(self._changed)
        self._events = asyncio.create_task(controller.deletion.post_events())
        controller.synced()

    async def stop(self) -> None:
        """End the process: its timers and calls under way are lost."""
        self._unsubscribe()
        self._events.cancel()
        await self._controller.stop()
        await self._session.close()

    async def restart(self) -> None:
        """End the process and start another one."""
        await self.stop()
        await self.start()

    def fall_behind(self, seconds: float) -> None:
        """Delay the informers: from now on the process notices each change this many seconds later."""
        if self._waiting is None:
            self._waiting = deque()
            asyncio.get_running_loop().call_later(seconds, self._catch_up)

    def _catch_up(self) -> None:
        waiting, self._waiting = self._waiting or deque(), None
        for notice in waiting:
            notice()

    def _changed(self, change: Change) -> None:
        plural, controller = change.new.resource.plural, self._controller
        if plural not in ("nodes", "pods"):
            return

        def notice() -> None:
            _take_in(controller, plural, change.new.decode(), change.type == "DELETED")

        if self._waiting is None:
            notice()
        else:
            self._waiting.append(notice)


def _take_in(controller: BuiltInController, plural: str, body: Any, deleted: bool) -> None:
    if plural == "nodes":
        node = read_node(body)[0]
        controller.node_changed(node.name, None if deleted else node)
    else:
        pod = read_pod(body)[0]
        controller.pod_changed(pod.ref.key, None if deleted else pod)
