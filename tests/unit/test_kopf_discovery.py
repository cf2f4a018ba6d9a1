"""What resources there are: asked once, and asked again where the answer was none."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest

from taint_eviction.kopf_shell.discovery import Discovery
from taint_eviction.kopf_shell.responses import RewrittenResponse
from taint_eviction.runtime.ports import WatchEnded

CORE = {"resources": [{"name": name} for name in ("nodes", "pods", "namespaces", "secrets")]}


class ReadResponse(RewrittenResponse):
    """An answer that was read already."""

    def __init__(self, found: Any) -> None:
        self.status = 200
        self.reason = "OK"
        self._decoded = found


class DiscoverySession:
    """A session that answers from memory where it can, as the tap has it, and else what it is given."""

    def __init__(self, discovery: Discovery) -> None:
        self.core: Any = CORE
        self.asked: list[str] = []
        self._discovery = discovery

    async def __aenter__(self) -> "DiscoverySession":
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    @contextlib.asynccontextmanager
    async def get(self, url: str, **_options: object) -> AsyncIterator[RewrittenResponse]:
        """Answer."""
        path = url.removeprefix("http://api")
        if (known := self._discovery.response_to(path)) is not None:
            yield known
            return
        self.asked.append(path)
        answer = ReadResponse({})
        answer._decoded = self._discovery.keep(path, answer, self.core if path == "/api/v1" else {"groups": [{}]})
        yield answer


@pytest.mark.parametrize("core", [{}, [], {"resources": None}, {"resources": [{"name": "nodes"}, 7, {"name": {}}]}])
async def test_an_answer_without_what_is_needed_is_asked_for_again(core: Any) -> None:
    """It must not be kept: a server that has only just started, or somebody else in its place."""
    discovery = Discovery("http://api/", 1.0)
    session = DiscoverySession(discovery)
    session.core = core
    with pytest.raises(WatchEnded, match=r"offers no .*pods"):
        await discovery.ask(lambda: cast(aiohttp.ClientSession, session))
    session.core = CORE
    await discovery.ask(lambda: cast(aiohttp.ClientSession, session))
    await discovery.ask(lambda: cast(aiohttp.ClientSession, session))
    assert session.asked == ["/api", "/api/v1", "/api/v1", "/apis"]


async def test_what_is_kept_is_cut_down_to_what_is_needed() -> None:
    """Kopf asks for the resources of each group that it is shown, and for each resource's own."""
    discovery = Discovery("http://api", 1.0)
    await discovery.ask(lambda: cast(aiohttp.ClientSession, DiscoverySession(discovery)))
    kept = {path: await answer.json() for path in ("/api/v1", "/apis") if (answer := discovery.response_to(path))}
    assert kept == {"/api/v1": {"resources": CORE["resources"][:3]}, "/apis": {"groups": []}}
