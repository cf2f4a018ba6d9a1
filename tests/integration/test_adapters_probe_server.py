"""Probes and metrics over HTTP."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from taint_eviction.adapters.metrics import CONTENT_TYPE, Metrics
from taint_eviction.adapters.probe_server import Address, ListenError, ProbeServer


def broken() -> tuple[bool, str]:
    raise RuntimeError("bug")


async def echo(query: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    return 400 if "no" in query else 200, dict(query)


@pytest.fixture
async def server() -> AsyncIterator[ProbeServer]:
    """A server with a probe of each kind."""
    probes = {"/healthz": lambda: (True, "turning"), "/readyz": lambda: (False, "nodes are not listed"), "/bug": broken}
    server = ProbeServer(Address("127.0.0.1", 0), probes, {"/echo": echo}, Metrics("1.0").render, CONTENT_TYPE)
    await server.start()
    yield server
    await server.stop()


async def ask(server: ProbeServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{server.port}{path}") as answer,
    ):
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_a_probe_answers_with_its_text(server: ProbeServer) -> None:
    """200 if it is well, 503 if not, and why."""
    assert (await ask(server, "/healthz"))[:2] == (200, "turning\n")
    assert (await ask(server, "/readyz"))[:2] == (503, "nodes are not listed\n")
    assert (await ask(server, "/readyz", "HEAD"))[:2] == (503, "")


async def test_metrics_are_rendered(server: ProbeServer) -> None:
    """In Prometheus' text format."""
    status, text, content_type = await ask(server, "/metrics")
    assert (status, content_type) == (200, CONTENT_TYPE)
    assert "taint_eviction_controller_pod_deletions_total 0.0" in text


async def test_a_document_is_told_the_query_and_answered_as_json(server: ProbeServer) -> None:
    """With the status that it chooses."""
    assert await ask(server, "/echo?pod=shop/web-0") == (200, '{"pod":"shop/web-0"}\n', "application/json")
    assert (await ask(server, "/echo?no=1"))[0] == 400


async def test_a_bug_in_a_probe_is_answered(server: ProbeServer) -> None:
    """A probe that hangs tells nobody anything."""
    assert (await ask(server, "/bug"))[0] == 500


async def test_anything_else_is_refused(server: ProbeServer) -> None:
    """Other methods and other paths."""
    assert (await ask(server, "/healthz", "POST"))[0] == 405
    status, text, _ = await ask(server, "/")
    assert (status, text) == (404, "no such path; these exist: /bug, /echo, /healthz, /metrics, /readyz\n")


async def test_a_port_in_use_is_said_in_one_line(server: ProbeServer) -> None:
    """With the address."""
    second = ProbeServer(Address("127.0.0.1", server.port), {}, {}, bytes, CONTENT_TYPE)
    with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{server.port}: .*in use"):
        await second.start()
    await second.stop()


async def test_it_can_be_stopped_twice_and_stops_listening(server: ProbeServer) -> None:
    """Idempotent."""
    await server.stop()
    await server.stop()
    port = server.port
    assert port == 0
