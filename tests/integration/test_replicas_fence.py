"""The fence at the last step: a leader that loses the Lease while a request is on its way out does not send it."""

import asyncio
import contextlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from adapters_stage import HandClock
from kubernetes.aio.client import Configuration
from replicas_stage import Line
from yarl import URL

from taint_eviction.adapters.answers import Outcome
from taint_eviction.adapters.api_calls import ApiCalls, Call
from taint_eviction.adapters.api_client import ApiClient
from taint_eviction.adapters.credentials import Connection, with_kubeconfig
from taint_eviction.adapters.fence import changes_pod, ends_pod
from taint_eviction.adapters.lease import KubernetesLease
from taint_eviction.adapters.malformed import MalformedObjects
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.runtime.ports import CallFailed
from taint_eviction.simulation.apiserver import ApiServer, kubeconfig, node_object, pod_object

HELD = "not sent: this process does not lead any more"


class Tokens:
    """A token source whose answers take a while; the lead may be lost meanwhile."""

    def __init__(self) -> None:
        self.token = "old"
        self.leading = True
        self.loses_at_asking = False
        self.loses_at_renewing = False

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return the token."""
        await asyncio.sleep(0)
        if rejected is not None:
            self.token = "new"
        if self.loses_at_renewing if rejected is not None else self.loses_at_asking:
            self.leading = False
        return f"Bearer {self.token}"

    async def close(self) -> None:
        """Nothing is under way."""


@dataclass
class Stage:
    """A client behind the fence."""

    server: ApiServer
    tokens: Tokens
    calls: ApiCalls
    client: ApiClient
    ref: PodRef
    counted: list[tuple[str, str, str]]

    def arrived(self) -> list[tuple[str, str, int | None]]:
        """What the server was asked, and what it answered."""
        return [(entry.verb, entry.resource, entry.code) for entry in self.server.requests.entries]

    async def change(self, verb: str) -> object:
        """Change the pod, by one of the ways there are."""
        if verb == "patch":
            return await self.client.mark(self.ref, False, HandClock().now())
        if verb == "delete":
            return await self.client.delete(self.ref)
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "default"}}
        answer = await self.calls.make(Call("create", "pods/eviction", "default", "web", body=body))
        return answer.need(Outcome.DONE)


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Serve a pod; the server accepts any token."""
    async with ApiServer(seed=1) as server:
        server.create("nodes", node_object("n1", server.clock.timestamp()))
        uid = server.create("pods", pod_object("default", "web", "n1"))["metadata"]["uid"]
        configuration, tokens = Configuration(), Tokens()
        configuration.host = server.url
        connection = Connection(configuration, tokens, "a test", None, in_cluster=False)
        counted: list[tuple[str, str, str]] = []
        api = connection.api_client(may_act=lambda: tokens.leading)
        calls = ApiCalls(api, 5.0, lambda _: None, lambda *count: counted.append(count))
        ref = PodRef(NamespacedName("default", "web"), uid)
        try:
            yield Stage(server, tokens, calls, ApiClient(calls, MalformedObjects(lambda _: None)), ref, counted)
        finally:
            await connection.close()


@pytest.mark.parametrize("verb", ["patch", "delete", "evict"])
async def test_a_lead_that_is_lost_while_the_token_is_fetched_holds_the_request_back(verb: str) -> None:
    """It was decided by a leader; by the time that it could be sent, there is another one."""
    async with stage() as on:
        on.tokens.loses_at_asking = True
        with pytest.raises(CallFailed, match=HELD) as failure:
            await on.change(verb)
        assert failure.value.status is None
        assert on.arrived() == []
        assert [count[2] for count in on.counted] == ["held"]


@pytest.mark.parametrize("verb", ["patch", "delete", "evict"])
async def test_a_leader_sends(verb: str) -> None:
    """The fence is open while it leads."""
    async with stage() as on:
        await on.change(verb)
        assert [code for _, _, code in on.arrived()] in ([200], [201])


@pytest.mark.parametrize(("verb", "name"), [("delete", "pods"), ("evict", "pods/eviction")])
async def test_what_ends_a_pod_is_not_sent_again_after_a_401(verb: str, name: str) -> None:
    """The token is renewed and the answer stays: the next attempt decides again first."""
    async with stage() as on:
        on.server.tokens = {"new"}
        with pytest.raises(CallFailed) as failure:
            await on.change(verb)
        assert failure.value.status == 401
        assert [call[1:] for call in on.arrived()] == [(name, 401)]
        await on.change(verb)
        assert on.arrived()[-1][2] in {200, 201}


async def test_a_condition_is_sent_again_after_a_401_but_not_past_the_fence() -> None:
    """A rotated token must not cost the condition; a lost lead does."""
    async with stage() as on:
        on.server.tokens = {"new"}
        await on.change("patch")
        assert on.arrived() == [("patch", "pods/status", 401), ("patch", "pods/status", 200)]
        on.server.requests.clear()
        on.server.tokens = {"newer"}
        on.tokens.loses_at_renewing = True
        on.tokens.token = "old"
        with pytest.raises(CallFailed, match=HELD):
            await on.change("patch")
        assert on.arrived() == [("patch", "pods/status", 401)]


async def test_leases_events_and_reads_are_not_fenced() -> None:
    """By the Lease one comes to be allowed; the rest changes no pod."""
    async with stage() as on:
        on.tokens.leading = False
        lease = KubernetesLease(on.calls, "kube-system", "l")
        await lease.write(await lease.write(LeaseRecord("me", 15, 1e9, 1e9, 0)))
        assert (await on.client.read_pod(on.ref)) is not None
        event = {
            "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        }
        await on.calls.make(Call("create", "events", "default", body=event))
        assert [code for _, _, code in on.arrived()] == [201, 200, 200, 201]


def certified(directory: Path) -> ssl.SSLContext:
    """Make a certificate for a server."""
    key, subject = ("-newkey", "rsa:2048", "-nodes", "-days", "1"), ("-subj", "/CN=api")
    command = ["openssl", "req", "-x509", *key, "-keyout", "key.pem", "-out", "cert.pem", *subject]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return context


async def test_a_lead_that_is_lost_while_the_connection_is_made_holds_the_request_back(tmp_path: Path) -> None:
    """A handshake that takes seconds: the fence comes after it, where no middleware could."""
    context = certified(tmp_path)
    async with ApiServer(seed=1, ssl_context=context) as server:
        server.create("nodes", node_object("n1", server.clock.timestamp()))
        uid = server.create("pods", pod_object("default", "web", "n1"))["metadata"]["uid"]
        line = Line(server.port)
        config = tmp_path / "config"
        config.write_text(json.dumps(kubeconfig(f"https://127.0.0.1:{await line.start()}")))
        connection = await with_kubeconfig(str(config), None, HandClock())
        leading = True
        api = connection.api_client(may_act=lambda: leading)
        client = ApiClient(ApiCalls(api, 5.0, lambda _: None, lambda *_: None), MalformedObjects(lambda _: None))
        ref = PodRef(NamespacedName("default", "web"), uid)
        line.cut()
        deleting = asyncio.create_task(client.delete(ref))
        await line.called.wait()
        leading = False
        line.let_go()
        with pytest.raises(CallFailed, match=HELD):
            await deleting
        assert list(server.requests.entries) == []
        leading = True
        assert await client.delete(ref) is True
        await connection.close()
        await line.stop()


PREFIX = "https://rancher/k8s/clusters/c1"


@pytest.mark.parametrize(
    ("method", "path", "changes", "ends"),
    [
        ("DELETE", "/api/v1/namespaces/default/pods/web", True, True),
        ("DELETE", "/api/v1/namespaces/pods/pods/pods", True, True),
        ("POST", "/api/v1/namespaces/default/pods/web/eviction", True, True),
        ("PATCH", "/api/v1/namespaces/default/pods/web/status?fieldManager=m", True, False),
        ("GET", "/api/v1/namespaces/default/pods/web", False, False),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", False, False),
        ("POST", "/api/v1/namespaces/pods/events", False, False),
        ("PATCH", "/api/v1/namespaces/pods/events/pods", False, False),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/pods/leases/pods", False, False),
    ],
)
def test_requests_that_change_a_pod_are_known_by_method_and_path(
    method: str, path: str, changes: bool, ends: bool
) -> None:
    """Behind a path of the API server's own as well, and whatever namespaces are called."""
    for base in ("https://api", PREFIX):
        url = URL(base + path)
        assert (changes_pod(method, url), ends_pod(method, url)) == (changes, ends)
