"""The embedded API server: the proxy to a pod, at the address in the pod's status."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from apiserver_client import PODS, serving
from tests.stage.waiting import free_port

from fake_apiserver import ApiServer, pod_object


@contextlib.asynccontextmanager
async def listening(code: int = 202) -> AsyncIterator[int]:
    """Answer each request with its path and query, as a pod on the loopback interface; yield the port."""

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
    """Create pod p1 with this address."""
    pod = pod_object("default", "p1", "n1", timestamp=server.clock.timestamp())
    server.create("pods", {**pod, "status": {} if address is None else {"podIP": address}})


async def test_the_proxy_forwards_a_request_to_the_pod() -> None:
    """Path and query are forwarded; the pod's status code and body are the answer."""
    async with serving() as (server, api), listening() as port:
        add_pod(server)
        answer = await api.get(f"{PODS}/p1:{port}/proxy/a/b?c=d%2Fe")
        assert (answer.code, answer.body) == (202, {"asked": "/a/b?c=d/e"})
        assert (await api.get(f"{PODS}/p1:{port}/proxy")).body == {"asked": "/"}
        [first, _] = server.requests.select(resource="pods/proxy")
        assert (first.verb, first.namespace, first.name) == ("get", "default", f"p1:{port}")


async def test_a_pod_that_cannot_be_reached_is_refused_with_a_status() -> None:
    """A missing pod gets a Status that names it, a pod without an address a 400, and one that does not listen a 503."""
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
    """Only the proxy subresource forwards a path."""
    async with serving() as (server, api):
        add_pod(server)
        assert (await api.get(f"{PODS}/p1/status/x")).code == 404
