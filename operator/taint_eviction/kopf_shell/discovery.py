"""What resources there are: asked once for all watches, before Kopf asks, and answered to each Kopf from memory.

Two reasons. What core/v1 offers does not change, and 200 watches would ask for it 600 times. And a Kopf that is ended
while it waits for these answers leaves tasks behind that nobody can find: it asks in tasks of tasks, which its own end
does not reach. With the answers at hand it is through within a few turns of the loop.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from taint_eviction.kopf_shell.answers import Answer
from taint_eviction.kopf_shell.endings import one_line, refusal
from taint_eviction.runtime.ports import WatchEnded

# All that Kopf asks for, a test says, if it is shown no other groups.
_PATHS = ("/api", "/api/v1", "/apis")
_NEEDED = ("nodes", "pods", "namespaces")


class Discovery:
    """The answers that were read, by the path of their URL."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._answers: dict[str, Answer] = {}
        self._complete = False
        self._turn = asyncio.Lock()

    def answer_to(self, path: str) -> Answer | None:
        """Return the answer that a request for this path once had, None if there was none yet."""
        return self._answers.get(path)

    def any_answer(self) -> Answer:
        """Return any of them: a success that has been read. There is one once ``ask`` has returned."""
        return next(iter(self._answers.values()))

    def keep(self, path: str, answer: Answer, found: Any) -> Any:
        """Keep an answer that is being read and return what is to be seen of what was found in it."""
        self._answers[path] = answer
        return _cut_down(found)

    async def ask(self, open_session: Callable[[], aiohttp.ClientSession]) -> None:
        """Ask for what is not known yet; one at a time, the others wait and find it known.

        Raises ``WatchEnded`` when the API server does not answer, or offers no nodes or pods. The answers are kept by
        whoever listens in on the sessions (``tap``).
        """
        async with self._turn:
            if self._complete:
                return
            async with open_session() as session:
                for path in _PATHS:
                    await self._ask_for(session, path)
            self._complete = True

    async def _ask_for(self, session: aiohttp.ClientSession, path: str) -> None:
        try:
            async with session.get(self._url + path, timeout=self._timeout) as answer:
                found = await answer.json()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise WatchEnded(one_line(error)) from error
        if not answer.ok:
            raise WatchEnded(refusal(answer.status, found))
        if path == "/api/v1" and (missing := set(_NEEDED) - _names(found)):
            self._answers.pop(path, None)  # to be asked again
            raise WatchEnded(f"the API server offers no {', '.join(sorted(missing))}")


def _names(found: Any) -> set[str]:
    return {name for item in _resources(found) if isinstance(name := item.get("name"), str)}


def _resources(found: Any) -> list[dict[str, Any]]:
    resources = found.get("resources") if isinstance(found, dict) else None
    return [item for item in resources if isinstance(item, dict)] if isinstance(resources, list) else []


def _cut_down(found: Any) -> Any:
    """Cut an answer down to what Kopf needs to know: shown no groups, it does not ask for the resources of each."""
    if not isinstance(found, dict):
        return found
    if "groups" in found:
        return {**found, "groups": []}
    if "resources" in found:
        return {**found, "resources": [item for item in _resources(found) if item.get("name") in _NEEDED]}
    return found
