"""The embedded API server: a pod is asked over HTTP at the address in its status."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from apiserver_client import PODS, serving
from tests.stage.waiting import free_port

from fake_apiserver import ApiServer, pod_object


@contextlib.asynccontextmanager
async def listening(code: int = 202) -> AsyncIterator[int]:
    """Answer with what was asked, as a pod on loopback; give the port."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.json_response({"asked": request.path_qs}, status=code)

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def add_pod(server: ApiServer, address: str | None = "127.0.0.1") -> None:
    """Create pod p1 with an address."""
    pod = pod_object("default", "p1", "n1", timestamp=server.clock.timestamp())
    server.create("pods", {**pod, "status": {} if address is None else {"podIP": address}})


async def test_a_pod_answers_for_itself() -> None:
    """Path and query are passed on, status and body come back."""
    async with serving() as (server, api), listening() as port:
        add_pod(server)
        answer = await api.get(f"{PODS}/p1:{port}/proxy/a/b?c=d%2Fe")
        assert (answer.code, answer.body) == (202, {"asked": "/a/b?c=d/e"})
        assert (await api.get(f"{PODS}/p1:{port}/proxy")).body == {"asked": "/"}
        [first, _] = server.requests.select(resource="pods/proxy")
        assert (first.verb, first.namespace, first.name) == ("get", "default", f"p1:{port}")


async def test_a_pod_that_cannot_be_asked_is_a_refusal() -> None:
    """404 where there is none, 400 where it has no address, 503 where nobody listens; each a Status."""
    async with serving() as (server, api):
        assert (await api.get(f"{PODS}/p1:80/proxy/")).body["details"] == {"name": "p1", "kind": "pods"}
        add_pod(server, None)
        assert (await api.get(f"{PODS}/p1:80/proxy/")).code == 400
        server.delete("pods", "p1", grace_period_seconds=0)
        add_pod(server)
        answer = await api.get(f"{PODS}/p1:{free_port()}/proxy/")
        assert (answer.code, answer.body["reason"]) == (503, "ServiceUnavailable")
        assert answer.message.startswith("error trying to reach service")


async def test_other_subresources_have_no_paths_below_them() -> None:
    """Only a proxy passes something on."""
    async with serving() as (server, api):
        add_pod(server)
        assert (await api.get(f"{PODS}/p1/status/x")).code == 404
