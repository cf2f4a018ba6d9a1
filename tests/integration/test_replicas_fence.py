"""The fence at the last step: a leader that loses the Lease before its request is sent does not send it."""

import asyncio
import contextlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes.aio.client import Configuration
from tests.stage.clocks import HandClock
from tests.stage.controlled import plain_connection
from tests.stage.replicas import Line
from tests.stage.waiting import PATIENCE_SECONDS
from tests.unit.builders import at_once
from yarl import URL

from fake_apiserver import ApiServer, kubeconfig, node_object, pod_object
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.kube.answers import Outcome
from taint_eviction.kube.api_calls import ApiCalls, ApiRequest
from taint_eviction.kube.api_reader import ApiReader
from taint_eviction.kube.api_writer import ApiWriter
from taint_eviction.kube.lease import KubernetesLease
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.login.credentials import with_kubeconfig
from taint_eviction.login.fence import changes_pod, ends_pod
from taint_eviction.runtime.leadership import LeaseRecord
from taint_eviction.runtime.ports import CallFailed, FailureReason

HELD = "not sent: this process no longer leads"


class SlowTokens:
    """A token source whose answers take time; this process may stop leading meanwhile."""

    failures = 0

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
        """Do nothing, since no work is in progress."""


@dataclass
class FencedStage:
    """A client behind the fence."""

    server: ApiServer
    line: Line
    tokens: SlowTokens
    calls: ApiCalls
    reader: ApiReader
    writer: ApiWriter
    ref: PodRef
    counted: list[tuple[str, str, str]]

    def arrived(self) -> list[tuple[str, str, int | None]]:
        """Return verb, resource and code of each request that has arrived."""
        return [(entry.verb, entry.resource, entry.code) for entry in self.server.requests.entries]

    async def change(self, verb: str) -> object:
        """Change the pod in one of the three possible ways."""
        if verb == "patch":
            return await self.writer.mark(self.ref, False, HandClock().now())
        if verb == "delete":
            return await self.writer.delete(self.ref, at_once)
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "default"}}
        answer = await self.calls.make(ApiRequest("create", "pods/eviction", "default", "web", body=body))
        return answer.need(Outcome.DONE)


@contextlib.asynccontextmanager
async def fenced_stage(
    call_timeout_seconds: float = PATIENCE_SECONDS, *, through_line: bool = False
) -> AsyncIterator[FencedStage]:
    """Serve a pod; the server accepts any token. ``through_line``: the client reaches it by the line of the stage."""
    async with ApiServer(seed=1) as server:
        server.create("nodes", node_object("n1", server.clock.timestamp()))
        uid = server.create("pods", pod_object("default", "web", "n1"))["metadata"]["uid"]
        configuration, tokens = Configuration(), SlowTokens()
        line = Line(server.port)
        configuration.host = f"http://127.0.0.1:{await line.start()}" if through_line else server.url
        connection = plain_connection(configuration, tokens)
        counted: list[tuple[str, str, str]] = []
        api = connection.api_client(may_act=lambda: tokens.leading)
        calls = ApiCalls(api, call_timeout_seconds, lambda *_: None, lambda *count: counted.append(count))
        ref = PodRef(NamespacedName("default", "web"), uid)
        try:
            malformed = MalformedObjects(lambda _: None)
            reader, writer = ApiReader(calls, malformed), ApiWriter(calls, malformed)
            yield FencedStage(server, line, tokens, calls, reader, writer, ref, counted)
        finally:
            await connection.close()


@pytest.mark.parametrize("verb", ["patch", "delete", "evict"])
async def test_no_request_is_sent_if_the_lease_is_lost_while_the_token_is_fetched(verb: str) -> None:
    """The leader decided on the request, but another replica may lead when it could be sent."""
    async with fenced_stage() as on:
        on.tokens.loses_at_asking = True
        with pytest.raises(CallFailed, match=HELD) as failure:
            await on.change(verb)
        assert failure.value.reason is FailureReason.NO_ANSWER
        assert on.arrived() == []
        assert [count[2] for count in on.counted] == ["held"]


@pytest.mark.parametrize("verb", ["patch", "delete", "evict"])
async def test_the_leader_sends_its_requests(verb: str) -> None:
    """The fence lets requests through while the process leads."""
    async with fenced_stage() as on:
        await on.change(verb)
        assert [code for _, _, code in on.arrived()] in ([200], [201])


@pytest.mark.parametrize(("verb", "name"), [("delete", "pods"), ("evict", "pods/eviction")])
async def test_a_request_that_ends_a_pod_is_not_sent_again_after_a_401(verb: str, name: str) -> None:
    """The token is renewed and the call fails; the next attempt decides again first."""
    async with fenced_stage() as on:
        on.server.tokens = {"new"}
        with pytest.raises(CallFailed) as failure:
            await on.change(verb)
        assert failure.value.reason is FailureReason.UNAUTHORIZED
        assert [call[1:] for call in on.arrived()] == [(name, 401)]
        await on.change(verb)
        assert on.arrived()[-1][2] in {200, 201}


async def test_a_condition_is_sent_again_after_a_401_only_while_the_process_leads() -> None:
    """A rotated token must not prevent the condition; a lost Lease does."""
    async with fenced_stage() as on:
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


async def test_the_last_check_before_a_deletion_may_take_longer_than_the_timeout_of_a_call() -> None:
    """The last check reads the node and has its own timeout; the deletion is sent nevertheless."""
    async with fenced_stage(call_timeout_seconds=2.0) as on:
        assert await on.writer.delete(on.ref, lambda: asyncio.sleep(2.5)) is True
        assert on.arrived() == [("delete", "pods", 200)]


@pytest.mark.parametrize("call", ["delete", "evict"])
async def test_an_exception_of_the_last_check_prevents_the_request(call: str) -> None:
    """The caller gets the exception as it was raised."""

    async def objecting() -> None:
        raise LookupError("its node is clean")

    async with fenced_stage() as on:
        end = on.writer.delete if call == "delete" else on.writer.evict
        with pytest.raises(LookupError, match="its node is clean"):
            await end(on.ref, objecting)
        assert on.arrived() == []
        assert await end(on.ref, at_once) is True


async def test_a_connection_that_closes_during_the_last_check_fails_the_call_without_a_request() -> None:
    """The next attempt decides again."""
    async with fenced_stage(through_line=True) as on:

        async def closing() -> None:
            on.line.mend()
            await asyncio.sleep(0.5)

        with pytest.raises(CallFailed, match="not sent: its connection was closed") as failure:
            await on.writer.delete(on.ref, closing)
        assert (failure.value.reason, on.arrived()) == (FailureReason.NO_ANSWER, [])
        assert await on.writer.delete(on.ref, at_once) is True
        await on.line.stop()


async def test_leases_events_and_reads_are_not_fenced() -> None:
    """The Lease is what allows a process to act, and the other requests change no pod."""
    async with fenced_stage() as on:
        on.tokens.leading = False
        lease = KubernetesLease(on.calls, "kube-system", "l")
        await lease.write(await lease.write(LeaseRecord("me", 15, 1e9, 1e9, 0)))
        assert (await on.reader.read_pod(on.ref)) is not None
        event = {
            "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        }
        await on.calls.make(ApiRequest("create", "events", "default", body=event))
        assert [code for _, _, code in on.arrived()] == [201, 200, 200, 201]


def certified(directory: Path) -> ssl.SSLContext:
    """Create a certificate for a server."""
    key, subject = ("-newkey", "rsa:2048", "-nodes", "-days", "1"), ("-subj", "/CN=api")
    command = ["openssl", "req", "-x509", *key, "-keyout", "key.pem", "-out", "cert.pem", *subject]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return context


async def test_no_request_is_sent_if_the_lease_is_lost_during_the_tls_handshake(tmp_path: Path) -> None:
    """The handshake is slow; the fence is after it, where no middleware could check."""
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
        writer = ApiWriter(
            ApiCalls(api, PATIENCE_SECONDS, lambda *_: None, lambda *_: None), MalformedObjects(lambda _: None)
        )
        ref = PodRef(NamespacedName("default", "web"), uid)
        line.cut()
        deleting = asyncio.create_task(writer.delete(ref, at_once))
        await line.called.wait()
        leading = False
        line.let_go()
        with pytest.raises(CallFailed, match=HELD):
            await deleting
        assert list(server.requests.entries) == []
        leading = True
        assert await writer.delete(ref, at_once) is True
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
def test_requests_that_change_a_pod_are_recognized_by_method_and_path(
    method: str, path: str, changes: bool, ends: bool
) -> None:
    """This also holds if the API server's URL has a path, and whatever the names of namespaces are."""
    for base in ("https://api", PREFIX):
        url = URL(base + path)
        assert (changes_pod(method, url), ends_pod(method, url)) == (changes, ends)
