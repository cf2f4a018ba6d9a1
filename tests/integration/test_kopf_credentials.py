"""Watches, and credentials that rotate, are refused and become valid again."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from kopf_watching import Recorder, tasks_left, watcher_of, watching
from tests.stage.waiting import PATIENCE_SECONDS

from fake_apiserver import ApiServer
from taint_eviction.runtime.ports import NodesScope, PodsScope, WatchEnded


class RotatedTokens:
    """The token that the client has at the moment."""

    def __init__(self) -> None:
        self.current = "first"

    def authorization(self) -> str:
        return f"Bearer {self.current}"


async def test_a_rotated_token_is_used_by_the_next_request() -> None:
    """The server accepts another token and cuts the watch, which continues with the new token and without a list."""
    tokens = RotatedTokens()
    async with (
        ApiServer(tokens={"first"}) as server,
        watcher_of(server, authorization=tokens.authorization) as watcher,
        watching(watcher, NodesScope()) as told,
    ):
        for number in range(5):
            tokens.current = f"token-{number}"
            server.tokens = {tokens.current}
            server.watches.cut()
            server.create("nodes", {"metadata": {"name": f"n{number}"}})
            await told.until(lambda number=number: ("ADDED", f"n{number}") in told.told)  # type: ignore[misc]
        assert told.listed == 1


async def test_a_watch_survives_single_401s() -> None:
    """The server refuses a token once; the client logs in with another session, and the watch continues."""
    async with ApiServer() as server, watcher_of(server) as watcher, watching(watcher, NodesScope()) as told:
        for number in range(6):
            refusals = server.faults.add(verb="watch", status=401, times=1)
            server.watches.cut()
            server.create("nodes", {"metadata": {"name": f"n{number}"}})
            await told.until(lambda number=number: ("ADDED", f"n{number}") in told.told)  # type: ignore[misc]
            assert refusals.used_up
        assert told.listed == 1


async def test_credentials_that_are_always_refused_end_the_watch() -> None:
    """The watch ends after a few logins in a row; the same watcher can watch again later."""
    async with ApiServer(tokens={"other"}) as server, watcher_of(server) as watcher:
        with pytest.raises(WatchEnded, match=r"^401: Unauthorized$"):
            await asyncio.wait_for(watcher.watch(NodesScope(), Recorder()), PATIENCE_SECONDS)
        assert len(server.requests.select(lambda request: request.code == 401)) < 10
        assert not list(tasks_left())
        server.tokens = None
        async with watching(watcher, NodesScope()):
            pass


async def test_refused_credentials_of_one_watch_do_not_affect_another() -> None:
    """Kopf closes the session with the refused credentials; the connector that all sessions share stays open."""
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        ApiServer() as server,
        watcher_of(server, connector=connector) as watcher,
        watching(watcher, NodesScope()) as told,
    ):
        server.faults.add(resource="pods", status=401)
        with pytest.raises(WatchEnded):
            await asyncio.wait_for(watcher.watch(PodsScope("n1"), Recorder()), PATIENCE_SECONDS)
        assert not connector.closed
        server.create("nodes", {"metadata": {"name": "n1"}})
        await told.until(lambda: told.told == [("ADDED", "n1")])
        assert told.listed == 1
