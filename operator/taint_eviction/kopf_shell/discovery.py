"""API discovery for all embedded Kopfs: the controller asks once, and each Kopf gets the stored responses.

Two reasons. What core/v1 offers does not change, and 200 watches would ask 600 times. And a Kopf that is cancelled
while it waits for these responses leaves tasks behind that cannot be found: it asks in tasks started by other tasks,
which its end does not cancel. With stored responses discovery takes a few turns of the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from taint_eviction.core.text import JsonObject
from taint_eviction.kopf_shell.endings import error_line, refusal
from taint_eviction.kopf_shell.responses import RewrittenResponse
from taint_eviction.runtime.ports import WatchEnded

# All that Kopf asks for while it sees no other API groups; a test checks that.
_PATHS = ("/api", "/api/v1", "/apis")
_NEEDED = ("nodes", "pods", "namespaces")


class Discovery:
    """The stored responses, by the path of their URL."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._responses: dict[str, RewrittenResponse] = {}
        self._complete = False
        self._asking = asyncio.Lock()

    def response_to(self, path: str) -> RewrittenResponse | None:
        """Return the stored response to a request for this path; None if there is none yet."""
        return self._responses.get(path)

    def any_response(self) -> RewrittenResponse:
        """Return any stored response: a success that has been read. There is one once ``ask`` has returned."""
        return next(iter(self._responses.values()))

    def keep(self, path: str, response: RewrittenResponse, found: Any) -> Any:
        """Store a response that is being read; return what Kopf reads of its JSON."""
        self._responses[path] = response
        return _cut_down(found)

    async def ask(self, open_session: Callable[[], aiohttp.ClientSession]) -> None:
        """Ask the API server for everything that is not stored yet. One caller asks, the others wait for it.

        Raises ``WatchEnded`` when the API server does not answer, or offers no nodes or pods. The responses are stored
        by the interceptor of the session (``watch_interceptor``).
        """
        async with self._asking:
            if self._complete:
                return
            async with open_session() as session:
                for path in _PATHS:
                    await self._ask_for(session, path)
            self._complete = True

    async def _ask_for(self, session: aiohttp.ClientSession, path: str) -> None:
        try:
            async with session.get(self._url + path, timeout=self._timeout) as response:
                found = await response.json()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise WatchEnded(error_line(error)) from error
        if not response.ok:
            raise WatchEnded(refusal(response.status, found))
        if path == "/api/v1" and (missing := set(_NEEDED) - _names(found)):
            self._responses.pop(path, None)  # The next call asks again.
            raise WatchEnded(f"the API server offers no {', '.join(sorted(missing))}")


def _names(found: Any) -> set[str]:
    return {name for item in _resources(found) if isinstance(name := item.get("name"), str)}


def _resources(found: Any) -> list[JsonObject]:
    resources = found.get("resources") if isinstance(found, dict) else None
    return [item for item in resources if isinstance(item, dict)] if isinstance(resources, list) else []


def _cut_down(found: Any) -> Any:
    """Cut a response down to what Kopf needs: if Kopf sees no groups, it does not ask for their resources."""
    if not isinstance(found, dict):
        return found
    if "groups" in found:
        return {**found, "groups": []}
    if "resources" in found:
        return {**found, "resources": [item for item in _resources(found) if item.get("name") in _NEEDED]}
    return found
