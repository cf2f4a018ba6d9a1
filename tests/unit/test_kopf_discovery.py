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
    """A session that answers what it is given."""

    def __init__(self) -> None:
        self.core: Any = CORE
        self.asked: list[str] = []

    async def __aenter__(self) -> "DiscoverySession":
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    @contextlib.asynccontextmanager
    async def get(self, url: str, **_options: object) -> AsyncIterator[RewrittenResponse]:
        """Answer."""
        self.asked.append(url.removeprefix("http://api"))
        yield ReadResponse(self.core)


@pytest.mark.parametrize("core", [{}, [], {"resources": None}, {"resources": [{"name": "nodes"}, 7, {"name": {}}]}])
async def test_an_answer_without_what_is_needed_is_asked_for_again(core: Any) -> None:
    """It must not be kept: a server that has only just started, or somebody else in its place."""
    discovery, session = Discovery("http://api/", 1.0), DiscoverySession()
    session.core = core
    with pytest.raises(WatchEnded, match=r"offers no .*pods"):
        await discovery.ask(lambda: cast(aiohttp.ClientSession, session))
    assert discovery.response_to("/api/v1") is None
    session.core = CORE
    await discovery.ask(lambda: cast(aiohttp.ClientSession, session))
    await discovery.ask(lambda: cast(aiohttp.ClientSession, session))
    assert session.asked == ["/api/v1", "/api/v1"]


async def test_kopf_reads_nothing_of_what_the_server_answered() -> None:
    """What somebody else answered in its place would end every watch until the process ends."""
    discovery, session = Discovery("http://api", 1.0), DiscoverySession()
    session.core = {"resources": [{"name": "nodes", "kind": 7}, {"name": "pods"}], "versions": None}
    await discovery.ask(lambda: cast(aiohttp.ClientSession, session))
    kept = {path: await answer.json() for path in ("/api", "/apis") if (answer := discovery.response_to(path))}
    assert (kept["/api"]["versions"], kept["/apis"]["groups"]) == (["v1"], [])
    core = discovery.response_to("/api/v1")
    assert core is not None
    assert [(each["name"], each["kind"]) for each in (await core.json())["resources"]] == [
        ("nodes", "Node"),
        ("pods", "Pod"),
        ("namespaces", "Namespace"),
    ]
