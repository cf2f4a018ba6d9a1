"""Probes and metrics over HTTP."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from taint_eviction.reporting.http_port import Address, ListenError
from taint_eviction.reporting.metrics import CONTENT_TYPE, Metrics
from taint_eviction.reporting.probe_server import ProbeServer
from taint_eviction.settings import Settings


def broken() -> tuple[bool, str]:
    raise RuntimeError("bug")


async def echo(query: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    return 400 if "no" in query else 200, dict(query)


@pytest.fixture
async def server() -> AsyncIterator[ProbeServer]:
    """A server with a probe of each kind."""
    probes = {"/healthz": lambda: (True, "turning"), "/readyz": lambda: (False, "nodes are not listed"), "/bug": broken}
    metrics = Metrics("1.0", Settings())
    pages = {"/metrics": lambda: (metrics.render(), CONTENT_TYPE)}
    server = ProbeServer(Address("127.0.0.1", 0), probes, {"/echo": echo}, pages)
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
    """The code is 200 for a good state and 503 for a bad one, and the text says why."""
    assert (await ask(server, "/healthz"))[:2] == (200, "turning\n")
    assert (await ask(server, "/readyz"))[:2] == (503, "nodes are not listed\n")
    assert (await ask(server, "/readyz", "HEAD"))[:2] == (503, "")


async def test_metrics_are_rendered(server: ProbeServer) -> None:
    """The metrics are in Prometheus' text format."""
    status, text, content_type = await ask(server, "/metrics")
    assert (status, content_type) == (200, CONTENT_TYPE)
    assert "taint_eviction_controller_pod_deletions_total 0.0" in text


async def test_a_document_gets_the_query_and_is_answered_as_json(server: ProbeServer) -> None:
    """The document chooses the status code."""
    assert await ask(server, "/echo?pod=shop/web-0") == (200, '{"pod":"shop/web-0"}\n', "application/json")
    assert (await ask(server, "/echo?no=1"))[0] == 400


async def test_a_bug_in_a_probe_is_answered_with_500(server: ProbeServer) -> None:
    """A probe that hangs would give no information."""
    assert (await ask(server, "/bug"))[0] == 500


async def test_anything_else_is_refused(server: ProbeServer) -> None:
    """Other methods get 405; other paths get 404 and a list of those that exist."""
    assert (await ask(server, "/healthz", "POST"))[0] == 405
    status, text, _ = await ask(server, "/")
    assert (status, text) == (404, "no such path; these exist: /bug, /echo, /healthz, /metrics, /readyz\n")


async def test_a_port_in_use_is_reported_in_one_line(server: ProbeServer) -> None:
    """The error contains the address."""
    second = ProbeServer(Address("127.0.0.1", server.port), {})
    with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{server.port}: .*in use"):
        await second.start()
    await second.stop()


async def test_the_server_can_be_stopped_twice_and_then_has_no_port(server: ProbeServer) -> None:
    """Stopping is idempotent."""
    await server.stop()
    await server.stop()
    port = server.port
    assert port == 0
