"""Credentials that live for 1.5 seconds, a twentieth of a short life in a cluster: nothing is lost over rotations.

The intervals at which the controller reads credentials again are scaled down by the same factor. A token is replaced
after it was used, and its predecessor is valid until then; tests with virtual time check that each token is renewed in
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from kubernetes.aio.client import Configuration
from tests.stage.controlled import QUICK_KOPF, controlling, plain_connection
from tests.stage.objects import KEY, add_nodes, add_pod, deleted, is_leaving, write_kubeconfig
from tests.stage.waiting import until

from fake_apiserver import ApiServer, LoggedRequest
from taint_eviction.login import token_sources
from taint_eviction.login.credentials import Connection, in_cluster, with_kubeconfig
from taint_eviction.runtime.clock import ServerClock, read_wall

LIFE_SECONDS = 1.5
ROTATIONS = 2
SCALE = LIFE_SECONDS / 30.0


class Issuer:
    """Issues tokens, accepts the newest two, and writes the newest where clients read it.

    ``used``: the tokens that clients have sent.
    """

    def __init__(self, directory: Path) -> None:
        self.token_file = directory / "token"
        self.credential_file = directory / "credential.json"
        self.used: set[str] = set()
        self._issued = 0
        self._good: list[str] = []
        self.issue()

    def issue(self) -> None:
        """Issue another token."""
        self._issued += 1
        token = f"token-{self._issued}"
        self._good = [*self._good[-1:], token]
        expires = datetime.datetime.fromtimestamp(read_wall() + LIFE_SECONDS, datetime.UTC)
        status = {"token": token, "expirationTimestamp": expires.isoformat().replace("+00:00", "Z")}
        credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        for path, text in ((self.token_file, token), (self.credential_file, json.dumps(credential))):
            fresh = path.with_suffix(".new")
            fresh.write_text(text)
            fresh.replace(path)

    def accepts(self, token: str) -> bool:
        """Return whether a token is valid now."""
        self.used.add(token)
        return token in self._good

    def revoke(self) -> None:
        """Accept none of the tokens issued so far."""
        self._good.clear()

    @contextlib.asynccontextmanager
    async def issuing(self) -> AsyncIterator[None]:
        """During the block, replace each token after it was used, but not before 80 % of its life."""

        async def go_on() -> None:
            while True:
                await asyncio.sleep(0.8 * LIFE_SECONDS)
                await until(lambda: self._good[-1] in self.used)
                self.issue()

        task = asyncio.create_task(go_on())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def by_token_file(server: ApiServer, issuer: Issuer, directory: Path, clock: ServerClock) -> Connection:
    path = write_kubeconfig(directory / "config", server, tokenFile=str(issuer.token_file))
    return await with_kubeconfig(str(path), None, clock)


async def by_exec_plugin(server: ApiServer, issuer: Issuer, directory: Path, clock: ServerClock) -> Connection:
    plugin = directory / "plugin"
    plugin.write_text(f"#!/bin/sh\nexec cat {issuer.credential_file}\n")
    plugin.chmod(0o755)
    spec = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    path = write_kubeconfig(directory / "config", server, exec=spec)
    return await with_kubeconfig(str(path), None, clock)


async def by_service_account(server: ApiServer, issuer: Issuer, directory: Path, clock: ServerClock) -> Connection:
    environ = {"KUBERNETES_SERVICE_HOST": server.host, "KUBERNETES_SERVICE_PORT": str(server.port)}
    return in_cluster(clock, environ, directory)


def certificate(directory: Path) -> ssl.SSLContext:
    """Create a certificate for the loopback address, in the file in which a pod finds that of its cluster."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", "tls.key", "-out", "ca.crt", "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(["openssl", "req", "-x509", *curve, *files], cwd=directory, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "ca.crt", directory / "tls.key")
    return context


Login = Callable[[ApiServer, Issuer, Path, ServerClock], Awaitable[Connection]]


@pytest.mark.parametrize(
    ("login", "tls"),
    [(by_token_file, False), (by_exec_plugin, False), (by_service_account, True)],
    ids=["tokenFile", "exec plugin", "service account"],
)
async def test_rotating_tokens_lose_neither_watch_nor_eviction(
    login: Login, tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over some rotations, no watch breaks, each pod is evicted, and no request is refused."""
    monkeypatch.setattr(token_sources, "_FILE_SECONDS", 3.0 * SCALE)
    monkeypatch.setattr(token_sources, "_RENEW_PAUSE_SECONDS", 5.0 * SCALE)
    issuer, clock = Issuer(tmp_path), ServerClock()
    context = certificate(tmp_path) if tls else None
    async with ApiServer(seed=1, tokens=issuer.accepts, ssl_context=context) as server:
        add_nodes(server, "n1", "n2")
        async with issuer.issuing():
            connection = await login(server, issuer, tmp_path, clock)
            async with controlling(server, connection=connection, clock=clock, sharpening=True) as running:
                server.taint("n1", KEY)
                await running.watching_pods_of("n1")
                number = 0
                while len(issuer.used) <= ROTATIONS:
                    number += 1
                    # Streams outlive tokens: Kopf's session sends its token again only when a stream ends.
                    server.watches.cut()
                    add_pod(server, f"web-{number}", "n1")
                    await deleted(server, f"web-{number}")
                    await asyncio.sleep(0.1)
                assert running.metric("watch_restarts_total", kind="nodes") == 0
                assert running.metric("watch_restarts_total", kind="pods") == 0
        assert [request for request in server.requests.entries if request.code == 401] == []


async def test_token_that_is_replaced_too_late_causes_only_a_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a 401, each session reads the file again at once; until a token is valid, evictions and watches retry."""
    monkeypatch.setattr(token_sources, "_FILE_SECONDS", 60.0)  # so that only the 401 shows the change
    issuer, clock = Issuer(tmp_path), ServerClock()
    async with ApiServer(seed=1, tokens=issuer.accepts) as server:
        add_nodes(server, "n1", "n2")
        connection = await by_token_file(server, issuer, tmp_path, clock)
        async with controlling(server, connection=connection, clock=clock, tuning=QUICK_KOPF) as running:
            server.taint("n1", KEY)
            await running.watching_pods_of("n1")
            issuer.revoke()
            server.watches.cut()
            add_pod(server, "web", "n1")
            server.taint("n2", KEY)
            add_pod(server, "other", "n2")
            await server.requests.wait_for(lambda request: request.code == 401, count=5)
            assert not is_leaving(server, "web")
            issuer.issue()
            await deleted(server, "web", "other")
            await running.synced()


async def test_delete_refused_with_401_is_decided_again_before_it_is_sent_with_the_new_token(tmp_path: Path) -> None:
    """W11: the node was untainted while the credentials were renewed, so the pod lives."""
    issuer, clock = Issuer(tmp_path), ServerClock()
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        connection = await by_token_file(server, issuer, tmp_path, clock)
        async with controlling(server, connection=connection, clock=clock) as running:
            refusal = server.faults.add(verb="delete", resource="pods", status=401, delay_seconds=2.0, times=1)
            server.taint("n1", KEY)
            await running.until(lambda: refusal.hits)
            issuer.issue()
            server.untaint("n1", KEY)
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert len(server.requests.select(verb="delete", resource="pods")) == 1
            assert not is_leaving(server, "web")


class HeldBack:
    """A source of credentials that may need time, like an exec plugin that asks an identity provider."""

    failures = 0

    def __init__(self) -> None:
        self.at_hand = asyncio.Event()
        self.at_hand.set()

    async def authorization(self, rejected: str | None = None) -> str | None:
        """Return None, once the credentials are available."""
        await self.at_hand.wait()
        return None

    async def close(self) -> None:
        """Do nothing, since no work is in progress."""


async def test_delete_that_waited_for_credentials_is_decided_again() -> None:
    """W11, W14: the node was untainted while the DELETE waited for new credentials, so the pod lives."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n1")
        add_pod(server, "web", "n1")
        source = HeldBack()
        connection = plain_connection(Configuration(host=server.url), source)
        async with controlling(server, connection=connection) as running:

            def hold_back(request: LoggedRequest) -> None:
                if request.resource == "pods/status":
                    source.at_hand.clear()

            server.requests.subscribe(hold_back)
            server.taint("n1", KEY)
            await running.until(lambda: not source.at_hand.is_set())
            server.untaint("n1", KEY)
            await running.until(lambda: not running.application.engine.live.controller.tainted_nodes())
            await asyncio.sleep(0.2)
            source.at_hand.set()
            await running.until(lambda: running.metric("pending_evictions") == 0)
            await running.end()
            assert server.requests.select(verb="delete", resource="pods") == []
            assert not is_leaving(server, "web")
