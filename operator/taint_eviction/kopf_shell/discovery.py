"""API discovery for all embedded Kopfs: the controller asks once, and each Kopf gets answers from memory.

Two reasons. What core/v1 offers does not change, and 200 watches would ask 600 times. And a Kopf that is cancelled
while it waits for these answers leaves tasks behind that cannot be found: it asks in tasks started by other tasks,
which its end does not cancel. With answers from memory discovery takes a few turns of the event loop.

Kopf sees nothing of the API server's own answer. It is only asked whether there are nodes and pods: what a proxy once
answered in its place must not be what every Kopf reads until the process ends.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import aiohttp
from yarl import URL

from taint_eviction.core.text import JsonObject
from taint_eviction.kopf_shell.endings import error_line, refusal
from taint_eviction.kopf_shell.responses import RewrittenResponse
from taint_eviction.runtime.ports import WatchEnded

_CORE = "/api/v1"
_NEEDED = ("nodes", "pods")


def _resource(kind: str, *, namespaced: bool) -> JsonObject:
    singular = kind.lower()
    verbs = ["get", "list", "watch"]
    return {"name": f"{singular}s", "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs}


_RESOURCES = [
    _resource("Node", namespaced=False),
    _resource("Pod", namespaced=True),
    _resource("Namespace", namespaced=False),
]
# By path below the API server's, all that Kopf asks for while it sees no other API groups; a test checks that.
_ANSWERS: dict[str, JsonObject] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    _CORE: {"kind": "APIResourceList", "groupVersion": "v1", "resources": _RESOURCES},
    "/apis": {"kind": "APIGroupList", "groups": []},
}


class Discovery:
    """The answers, by the path of their URL, once the API server has said that it offers nodes and pods.

    ``url``: the API server's, perhaps with a path, below which a gateway offers it.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url.rstrip("/")
        self._below = URL(self._url).path.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._responses: dict[str, RewrittenResponse] = {}
        self._asking = asyncio.Lock()

    def response_to(self, path: str) -> RewrittenResponse | None:
        """Return the response to a request for this path; None if there is none yet."""
        return self._responses.get(path)

    def any_response(self) -> RewrittenResponse:
        """Return any of the responses: a success that has been read. There is one once ``ask`` has returned."""
        return next(iter(self._responses.values()))

    async def ask(self, open_session: Callable[[], aiohttp.ClientSession]) -> None:
        """Ask the API server, unless it has answered before. One caller asks, the others wait for it.

        Raises ``WatchEnded`` when the API server does not answer, or offers no nodes or pods.
        """
        async with self._asking:
            if self._responses:
                return
            async with open_session() as session:
                response = await self._offered(session)
            self._responses = {self._below + path: response.with_json(answer) for path, answer in _ANSWERS.items()}

    async def _offered(self, session: aiohttp.ClientSession) -> RewrittenResponse:
        try:
            async with session.get(self._url + _CORE, timeout=self._timeout) as response:
                found = await response.json()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise WatchEnded(error_line(error)) from error
        if not response.ok:
            raise WatchEnded(refusal(response.status, found))
        if missing := set(_NEEDED) - _names(found):
            raise WatchEnded(f"the API server offers no {', '.join(sorted(missing))}")
        return cast(RewrittenResponse, response)


def _names(found: Any) -> set[str]:
    resources = found.get("resources") if isinstance(found, dict) else None
    items = resources if isinstance(resources, list) else []
    return {name for item in items if isinstance(item, dict) and isinstance(name := item.get("name"), str)}
