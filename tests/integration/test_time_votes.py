"""Votes on the time over HTTP: a balancer before several API servers chooses one for each connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tests.stage.clocks import HandClock

from fake_apiserver import ApiServer, WallClock
from fake_apiserver.kubeconfig import kubeconfig
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.time_calls import ask_time
from taint_eviction.login.credentials import Connection, with_kubeconfig
from taint_eviction.runtime.clock import ServerClock
from taint_eviction.runtime.time_votes import learn_time
from taint_eviction_ctl.installation.checks import CheckResult, Installation, State

HOUR = 3600.0


class Balancer:
    """A TCP balancer that leads each connection to the next of several ports."""

    def __init__(self, ports: list[int]) -> None:
        self.connections = 0
        self.removes_audit_ids = False
        self.knows_no_server = False
        self._ports = ports

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on, or say that there is nobody to pass it to."""
        if self.knows_no_server:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\naway")
            writer.close()
            return
        port = self._ports[self.connections % len(self._ports)]
        self.connections += 1
        answers, requests = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.wait(
                [asyncio.create_task(_pass(reader, requests)), asyncio.create_task(self._pass_back(answers, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            requests.transport.abort()
            writer.transport.abort()

    async def _pass_back(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await answers.read(2**16):
                writer.write(data.replace(b"Audit-Id:", b"Rewrote-:") if self.removes_audit_ids else data)
                await writer.drain()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def balanced(directory: Path, *ahead_seconds: float) -> AsyncIterator[tuple[Balancer, Connection]]:
    """Serve API servers whose clocks are ahead by so much, and connect to the balancer before them."""
    async with contextlib.AsyncExitStack() as stack:
        ports = []
        for number, ahead in enumerate(ahead_seconds):
            server = ApiServer(seed=number, clock=WallClock(ahead))
            ports.append((await stack.enter_async_context(server)).port)
        balancer = Balancer(ports)
        listening = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
        config = directory / "config"
        config.write_text(json.dumps(kubeconfig(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")))
        connection = await with_kubeconfig(str(config), None, HandClock())
        try:
            yield balancer, connection
        finally:
            await connection.close()
            listening.close()


def calls_of(connection: Connection, clock: ServerClock) -> ApiCalls:
    """Return API calls whose answers this clock hears."""
    return ApiCalls(connection.api_client(), 5.0, clock.heard_date, lambda *_: None)


async def test_each_connection_has_one_vote(tmp_path: Path) -> None:
    """The first connection is kept alive, and leads to the server that is ahead: its fifty answers are one vote."""
    async with balanced(tmp_path, HOUR, 0, 0) as (balancer, connection):
        clock = ServerClock()
        calls = calls_of(connection, clock)
        clock.wait_for_votes()
        for _ in range(50):
            await calls.make(ApiRequest("list", "nodes"))
        assert (balancer.connections, clock.anchored) == (1, False)
        await learn_time(clock, partial(ask_time, calls, connection))
        assert balancer.connections == 11
        assert clock.host_offset_seconds() == pytest.approx(0.5, abs=1.0)
        assert clock.disagreement_seconds() == pytest.approx(HOUR, abs=1.5)


async def test_the_start_takes_a_second_where_all_agree(tmp_path: Path) -> None:
    """Five connections of its own vote, and the anchor is close: a fifth of a second behind at most, plus the way."""
    async with balanced(tmp_path, -HOUR, -HOUR) as (balancer, connection):
        clock = ServerClock()
        await learn_time(clock, partial(ask_time, calls_of(connection, clock), connection))
        assert balancer.connections == 5
        assert clock.host_offset_seconds() == pytest.approx(HOUR + 0.1, abs=0.3)
        assert (clock.audited, clock.votes_disagree) == (True, False)


async def test_a_balancer_without_servers_does_not_end_the_wait_for_votes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first server that is back is an hour ahead: its vote alone must not count, however long all were away."""
    monkeypatch.setattr("taint_eviction.runtime.time_votes._LONGEST_SECONDS", 0.5)
    async with balanced(tmp_path, HOUR, 0, 0) as (balancer, connection):
        balancer.knows_no_server = True
        clock = ServerClock()
        calls = calls_of(connection, clock)
        learning = asyncio.create_task(learn_time(clock, partial(ask_time, calls, connection)))
        await asyncio.wait((learning,), timeout=1.0)
        balancer.knows_no_server = False
        await calls.make(ApiRequest("list", "nodes"))
        assert not clock.anchored
        monkeypatch.setattr("taint_eviction.runtime.time_votes._LONGEST_SECONDS", 10.0)
        await learning
        assert clock.host_offset_seconds() == pytest.approx(0.5, abs=1.0)


async def test_proxied_pods_do_not_vote(tmp_path: Path) -> None:
    """The API server passes their Date on, beside an audit ID of its own."""
    async with balanced(tmp_path, 0) as (_, connection):
        clock = ServerClock()
        path = "/api/v1/namespaces/default/pods/web:80/proxy/"
        await calls_of(connection, clock).make(ApiRequest("get", "pods/proxy", "default", "web", url_path=path))
        assert not clock.anchored


async def found_by_doctor(connection: Connection) -> CheckResult:
    """Return what doctor says about the time."""
    clock = ServerClock()
    calls = calls_of(connection, clock)
    await learn_time(clock, partial(ask_time, calls, connection))
    findings = await Installation(calls, "kube-system", None, 8080, clock).examine()
    return next(finding for finding in findings if finding.check == "time")


async def test_where_a_proxy_removes_audit_ids_plain_answers_vote_and_doctor_says_so(tmp_path: Path) -> None:
    """The time is known all the same, though an answer of the proxy's own could be misdated."""
    async with balanced(tmp_path, 0) as (balancer, connection):
        balancer.removes_audit_ids = True
        found = await found_by_doctor(connection)
        assert (found.state, found.found) == (State.UNCHECKED, "whose clock dates answers: they have no Audit-Id")


async def test_doctor_says_that_clocks_of_api_servers_are_apart(tmp_path: Path) -> None:
    """One of three is an hour ahead."""
    async with balanced(tmp_path, 0, HOUR, 0) as (_, connection):
        found = await found_by_doctor(connection)
        assert found.state is State.WRONG
        assert found.found in (f"the clocks of API servers are {seconds} s apart" for seconds in (3600, 3601))
