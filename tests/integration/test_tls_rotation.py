"""Certificates that change while the controller runs, against a real TLS server."""

import base64
import contextlib
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.stage.clocks import HandClock
from tests.stage.objects import add_nodes, add_pod, deletes
from tests.stage.processes import running_controller
from tests.stage.waiting import until

from fake_apiserver import ApiServer, kubeconfig
from taint_eviction.login.credentials import Connection, find_connection, with_kubeconfig
from taint_eviction.login.sessions import NumberedResponse
from taint_eviction.login.token_sources import CredentialsError

DAY = 86_400.0


class Pki:
    """Certificate authorities in a directory, and what they sign."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.directory, check=True, capture_output=True)

    def authority(self, name: str) -> str:
        """Make an authority, and return its certificate."""
        self._request(name, "-subj", f"/CN={name}")
        return self.read(f"{name}.crt")

    def sign(self, name: str, authority: str, days: int = 30) -> tuple[str, str]:
        """Make a certificate for a server and a client, and return it with its key."""
        signed = ["-CA", f"{authority}.crt", "-CAkey", f"{authority}.key"]
        self._request(name, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", *signed, days=days)
        return self.read(f"{name}.crt"), self.read(f"{name}.key")

    def _request(self, name: str, *words: str, days: int = 30) -> None:
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days)]
        self._openssl("req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.crt", *words)

    def read(self, name: str) -> str:
        """Return the content of a file."""
        return (self.directory / name).read_text()

    def renew(self, context: ssl.SSLContext, name: str) -> None:
        """Give a server another certificate, for new connections."""
        context.load_cert_chain(self.directory / f"{name}.crt", self.directory / f"{name}.key")

    def server_tls(self, name: str, clients: str | None = None) -> ssl.SSLContext:
        """Return a server's context; ``clients``: the authority that must have signed the certificates of clients."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.renew(context, name)
        if clients is not None:
            context.load_verify_locations(self.directory / f"{clients}.crt")
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """Two authorities, and a server's certificate of each."""
    directory = tmp_path / "pki"
    directory.mkdir()
    made = Pki(directory)
    for authority in ("old", "new"):
        made.authority(authority)
        made.sign(f"server-of-{authority}", authority)
    return made


def replace_file(path: Path, text: str) -> None:
    """Replace a file at once, as the kubelet does."""
    (path.parent / "next").write_text(text)
    (path.parent / "next").rename(path)


def in_pod(url: str) -> dict[str, str]:
    host, _, port = url.removeprefix("https://").partition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


def account_of(directory: Path, authority: str) -> Path:
    directory.mkdir()
    for name, text in {"token": "one", "ca.crt": authority, "namespace": "kube-system"}.items():
        (directory / name).write_text(text)
    return directory


def written(path: Path, url: str, authority: str, user: dict[str, Any], **cluster: Any) -> Path:
    """Write a kubeconfig."""
    content = kubeconfig(url, ca_certificate=authority.encode())
    content["clusters"][0]["cluster"] |= cluster
    content["users"][0]["user"] = user
    replace_file(path, yaml.safe_dump(content))
    return path


def inline(pair: tuple[str, str]) -> dict[str, str]:
    certificate, key = (base64.b64encode(pem.encode()).decode() for pem in pair)
    return {"client-certificate-data": certificate, "client-key-data": key}


async def get(connection: Connection) -> int:
    """Send a request as Kopf and calls do, and return the status."""
    async with connection.make_session() as session, session.get(f"{connection.url}/api/v1/nodes") as answer:
        await answer.read()
        return answer.status


@contextlib.asynccontextmanager
async def closing(connection: Connection) -> AsyncIterator[Connection]:
    try:
        yield connection
    finally:
        await connection.close()


# Authorities


async def test_a_bundle_that_is_extended_is_trusted_when_the_servers_certificate_is_renewed(
    tmp_path: Path, pki: Pki
) -> None:
    """As kube-controller-manager and the kubelet do it in a rotation; nothing is restarted."""
    account = account_of(tmp_path / "account", pki.read("old.crt"))
    clock = HandClock()
    tls = pki.server_tls("server-of-old")
    async with ApiServer(ssl_context=tls, tokens={"one"}) as server:
        connection = await find_connection(None, None, clock, in_pod(server.url), account, home=tmp_path)
        async with closing(connection):
            assert await get(connection) == 200
            pki.renew(tls, "server-of-new")
            await server.restart()
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await get(connection)
            replace_file(account / "ca.crt", pki.read("old.crt") + pki.read("new.crt"))
            # It is looked at again at once, since a certificate was refused.
            assert await get(connection) == 200
            replace_file(account / "ca.crt", pki.read("old.crt"))
            clock.at += 3.0
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await get(connection)


async def test_a_bundle_that_cannot_be_read_leaves_the_last_one_in_use(
    tmp_path: Path, pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, counted, and read again."""
    account = account_of(tmp_path / "account", pki.read("old.crt"))
    clock = HandClock()
    async with ApiServer(ssl_context=pki.server_tls("server-of-old"), tokens={"one"}) as server:
        connection = await find_connection(None, None, clock, in_pod(server.url), account, home=tmp_path)
        async with closing(connection):
            for broken in ("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", ""):
                replace_file(account / "ca.crt", broken)
                for _ in range(3):
                    clock.at += 3.0
                    assert await get(connection) == 200
            assert connection.failures() == 6
            assert len(caplog.messages) == 1
            assert "certificates cannot be read again, the last ones stay in use" in caplog.text
            replace_file(account / "ca.crt", pki.read("old.crt"))
            clock.at += 3.0
            assert await get(connection) == 200
            assert connection.failures() == 6


# Certificates of clients


@pytest.mark.parametrize("where", ["inline", "files"])
async def test_a_clients_certificate_that_is_renewed_is_used_for_new_connections(
    tmp_path: Path, pki: Pki, where: str
) -> None:
    """Connections that were opened with the old one are not used any more: the API server checks it again and again."""
    clock, config = HandClock(), tmp_path / "config"

    def renew(name: str) -> None:
        pair = pki.sign(name, "old")
        if where == "inline":
            written(config, server.url, pki.read("old.crt"), inline(pair))
            return
        for field, pem in zip(("crt", "key"), pair, strict=True):
            replace_file(tmp_path / f"me.{field}", pem)
        written(config, server.url, pki.read("old.crt"), {"client-certificate": "me.crt", "client-key": "me.key"})

    async with ApiServer(ssl_context=pki.server_tls("server-of-old", "old")) as server:
        renew("me")
        connection = await with_kubeconfig(str(config), None, clock)
        async with closing(connection):
            numbers = []
            for name in ("", "", "me-again", ""):
                if name:
                    renew(name)
                clock.at += 3.0
                async with connection.make_session() as session, session.get(f"{connection.url}/version") as answer:
                    await answer.read()
                    assert isinstance(answer, NumberedResponse)
                    numbers.append(answer.connection_number)
            assert [number == numbers[0] for number in numbers] == [True, True, False, False]
            assert numbers[2] == numbers[3]


async def test_a_token_in_the_kubeconfig_is_read_again_when_it_is_refused(tmp_path: Path, pki: Pki) -> None:
    """A request that was answered with 401 is sent again with the new one."""
    clock, config = HandClock(), tmp_path / "config"
    async with ApiServer(ssl_context=pki.server_tls("server-of-old"), tokens={"one"}) as server:
        written(config, server.url, pki.read("old.crt"), {"token": "one"})
        connection = await with_kubeconfig(str(config), None, clock)
        async with closing(connection):
            assert await get(connection) == 200
            server.tokens = {"two"}
            clock.at += 10.0
            assert await get(connection) == 401
            written(config, server.url, pki.read("old.crt"), {"token": "two"})
            clock.at += 10.0
            assert await get(connection) == 200


async def test_no_key_is_left_in_a_file(tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one inside a kubeconfig, nor those that an exec plugin returns again and again."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    config, clock = tmp_path / "config", HandClock()
    pair = pki.sign("me", "old")
    async with ApiServer(ssl_context=pki.server_tls("server-of-old", "old")) as server:
        written(config, server.url, pki.read("old.crt"), inline(pair))
        async with closing(await with_kubeconfig(str(config), None, clock)) as connection:
            assert await get(connection) == 200
        status = dict(zip(("clientCertificateData", "clientKeyData"), pair, strict=True))
        answer = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {**status, "expirationTimestamp": "2000-01-01T00:00:00Z"},
        }
        (tmp_path / "answer").write_text(json.dumps(answer))
        (tmp_path / "plugin").write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\ncat {tmp_path}/answer\n")
        (tmp_path / "plugin").chmod(0o755)
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "plugin")}
        written(config, server.url, pki.read("old.crt"), {"exec": plugin})
        async with closing(await with_kubeconfig(str(config), None, clock)) as connection:
            for _ in range(3):
                clock.at += 10.0
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    await get(connection)
    assert len((tmp_path / "runs").read_text().split()) > 2
    assert os.listdir(directory) == []


# What is told


async def test_the_end_of_a_certificates_life_is_known_and_told_before(tmp_path: Path, pki: Pki) -> None:
    """In the last twentieth of its life, or in its last week if that is shorter."""
    clock, config = HandClock(), tmp_path / "config"
    written(config, "https://127.0.0.1:1", pki.read("old.crt"), inline(pki.sign("me", "old", days=20)))
    connection = await with_kubeconfig(str(config), None, clock)
    lives = connection.tls.lives()
    assert set(lives) == {"client", "authority"}
    assert lives["client"].ends_epoch - lives["client"].begins_epoch == pytest.approx(20 * DAY, abs=2)
    assert lives["authority"].ends_epoch - lives["authority"].begins_epoch == pytest.approx(30 * DAY, abs=2)
    clock.epoch = lives["client"].ends_epoch - clock.at - 1.1 * DAY
    assert list(connection.warnings()) == []
    clock.at += 0.2 * DAY
    [said] = connection.warnings()
    assert said.startswith(f"the certificate (client) of {connection.where} ends at 2")
    clock.at += DAY
    assert next(connection.warnings()).startswith(f"the certificate (client) of {connection.where} ended at 2")
    await connection.close()


async def test_a_restart_helps_where_everything_is_refused_and_the_kubeconfig_names_another_server(
    tmp_path: Path, pki: Pki
) -> None:
    """Nothing else that changes in it needs one."""
    clock, config = HandClock(), tmp_path / "config"
    async with ApiServer(ssl_context=pki.server_tls("server-of-old"), tokens={"one"}) as server:
        written(config, server.url, pki.read("old.crt"), {"token": "none"})
        connection = await with_kubeconfig(str(config), None, clock)
        async with closing(connection):
            for _ in range(2):
                assert await get(connection) == 401
                clock.at += 60.0
            assert connection.restart_helps() is None
            written(config, "https://elsewhere.example", pki.read("old.crt"), {"token": "none"})
            helps = connection.restart_helps()
            assert helps is not None
            assert "refuses the credentials, and" in helps
            config.write_text("a: [")
            assert connection.restart_helps() is None
            written(config, "https://elsewhere.example", pki.read("old.crt"), {"token": "one"})
            clock.at += 10.0
            assert await get(connection) == 200
            assert connection.restart_helps() is None


async def test_a_kubeconfig_whose_key_does_not_fit_is_refused_in_one_line(tmp_path: Path, pki: Pki) -> None:
    """The error names the context and its file."""
    certificate, _ = pki.sign("me", "old")
    _, key = pki.sign("other", "old")
    written(tmp_path / "config", "https://127.0.0.1:1", pki.read("old.crt"), inline((certificate, key)))
    with pytest.raises(CredentialsError, match=r"config: its certificates cannot be used: .*MISMATCH"):
        await with_kubeconfig(str(tmp_path / "config"), None, HandClock())


# The controller


async def test_a_running_controller_goes_on_evicting_through_a_rotation(tmp_path: Path, pki: Pki) -> None:
    """Kopf's watches and our own calls, after the API server has come back with a certificate of the new authority."""
    config = tmp_path / "config"
    tls = pki.server_tls("server-of-old")
    async with ApiServer(seed=5, ssl_context=tls, tokens={"one"}) as server:
        add_nodes(server, "n1", "n2")
        for node in ("n1", "n2"):
            add_pod(server, f"on-{node}", node)
        written(config, server.url, pki.read("old.crt"), {"token": "one"})
        async with running_controller(config) as run:
            server.taint("n1", "maintenance")
            await run.until(lambda: deletes(server, "on-n1"))
            written(config, server.url, pki.read("old.crt") + pki.read("new.crt"), {"token": "two"})
            server.tokens = {"two"}
            pki.renew(tls, "server-of-new")
            await server.restart()
            server.taint("n2", "maintenance")
            await until(lambda: deletes(server, "on-n2"))
            assert run.said("certificates have changed")
