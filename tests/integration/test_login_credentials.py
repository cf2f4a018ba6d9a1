"""Credentials: kubeconfigs, exec plugins, tokens that rotate, and the messages for what does not work."""

import asyncio
import base64
import contextlib
import json
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp
import pytest
import yaml
from aiohttp import web
from kubernetes.aio.config.kube_config import KubeConfigMerger
from tests.stage.clocks import EPOCH, HandClock
from tests.stage.objects import write_kubeconfig
from tests.stage.waiting import PATIENCE_SECONDS, until
from yarl import URL

from fake_apiserver import ApiServer, kubeconfig
from taint_eviction.files.kubernetes_times import format_rfc3339
from taint_eviction.login.credentials import Connection, CredentialsError, find_connection, with_kubeconfig
from taint_eviction.login.sessions import AuthorizationMiddleware, environment_proxy
from taint_eviction.login.token_sources import FixedAuthorization

BETA = "client.authentication.k8s.io/v1beta1"
NotedT = TypeVar("NotedT")


@contextlib.asynccontextmanager
async def listener(note: Callable[[web.BaseRequest], NotedT]) -> AsyncIterator[tuple[str, list[NotedT]]]:
    """Answer every request; yield host and port, and what ``note`` returns of each request."""
    noted: list[NotedT] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        noted.append(note(request))
        return web.Response(text="{}")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}", noted
    finally:
        await runner.cleanup()


async def get(connection: Connection) -> int:
    """Ask for the nodes over a session of the kind that watches use."""
    async with (
        connection.make_session() as session,
        session.get(f"{connection.url}/api/v1/nodes") as answer,
    ):
        return answer.status


def plugin(directory: Path, script: str) -> dict[str, Any]:
    """Write an exec plugin in Python; the file ``runs`` beside it gets one line per run."""
    file = directory / "plugin.py"
    file.write_text(f"import json, os, sys\nopen({str(directory / 'runs')!r}, 'a').write('x\\n')\n{script}\n")
    return {"apiVersion": BETA, "command": sys.executable, "args": [str(file)]}


def token_script(directory: Path, expires: str = "None") -> str:
    """Return a script that prints the token that the file ``token`` contains when the script runs."""
    return (
        f"token = open({str(directory / 'token')!r}).read()\n"
        f"status = {{'token': token, 'expirationTimestamp': {expires}}}\n"
        f"print(json.dumps({{'kind': 'ExecCredential', 'apiVersion': '{BETA}', 'status': status}}))"
    )


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text().splitlines())


async def renewal() -> None:
    """Wait for the renewal of credentials, which runs beside the calls."""
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "renew credentials"]
    await task


# Tokens


async def test_a_token_in_the_kubeconfig_is_sent(tmp_path: Path) -> None:
    """Sessions of watches send the token, too."""
    async with ApiServer(tokens={"secret"}) as server:
        connection = await with_kubeconfig(str(write_kubeconfig(tmp_path / "c", server, "secret")), None, HandClock())
        assert await get(connection) == 200
        assert connection.namespace == "default"
        assert not connection.in_cluster
        await connection.close()


async def test_a_rotated_token_file_is_read_again_after_a_while(tmp_path: Path) -> None:
    """The file is read again after five seconds without any 401; its path is relative to the kubeconfig."""
    (tmp_path / "token").write_text("one\n")
    clock = HandClock()
    async with ApiServer(tokens={"one", "two"}) as server:
        path = write_kubeconfig(tmp_path / "c", server, tokenFile="token")
        connection = await with_kubeconfig(str(path), None, clock)
        assert await connection.source.authorization() == "Bearer one"
        (tmp_path / "token").write_text("two\n")
        assert await connection.source.authorization() == "Bearer one"
        clock.at += 5.0
        assert await connection.source.authorization() == "Bearer two"
        await connection.close()


async def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    """After a 401, the request is sent again with the token that the file contains now; the caller sees no error."""
    (tmp_path / "token").write_text("one")
    async with ApiServer(tokens={"one"}) as server:
        connection = await with_kubeconfig(
            str(write_kubeconfig(tmp_path / "c", server, tokenFile="token")), None, HandClock()
        )
        assert await get(connection) == 200
        server.tokens = {"two"}
        (tmp_path / "token").write_text("two")
        assert await get(connection) == 200
        assert server.requests.counts["list", "nodes", 401] == 1
        (tmp_path / "token").unlink()
        assert await get(connection) == 200
        server.tokens = {"three"}
        assert await get(connection) == 401
        await connection.close()


async def test_an_exec_plugin_gives_the_token_and_is_run_again_before_it_expires(tmp_path: Path) -> None:
    """The plugin runs again once 80 % of the token's lifetime have passed, by the server's clock."""
    (tmp_path / "token").write_text("one")
    clock = HandClock()
    expires = repr(format_rfc3339(EPOCH + clock.at + 30.0))
    async with ApiServer(tokens={"one"}) as server:
        path = write_kubeconfig(tmp_path / "c", server, exec=plugin(tmp_path, token_script(tmp_path, expires)))
        connection = await with_kubeconfig(str(path), None, clock)
        assert await get(connection) == 200
        clock.at += 23.0
        assert (await connection.source.authorization(), runs(tmp_path)) == ("Bearer one", 1)
        (tmp_path / "token").write_text("two")
        clock.at += 1.5
        assert await connection.source.authorization() == "Bearer one"
        await renewal()
        assert (await connection.source.authorization(), runs(tmp_path)) == ("Bearer two", 2)
        await connection.close()


async def test_an_exec_plugin_that_hangs_delays_no_request_while_its_token_is_good(tmp_path: Path) -> None:
    """The plugin runs beside the requests; only a request made when the token has almost expired waits for it."""
    (tmp_path / "token").write_text("one")
    clock = HandClock()
    expires = repr(format_rfc3339(EPOCH + clock.at + 300.0))
    async with ApiServer(tokens={"one"}) as server:
        path = write_kubeconfig(tmp_path / "c", server, exec=plugin(tmp_path, token_script(tmp_path, expires)))
        connection = await with_kubeconfig(str(path), None, clock)
        (tmp_path / "plugin.py").write_text("import time; time.sleep(600)")
        clock.at += 250.0
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [await get(connection) for _ in range(3)] == [200] * 3
            assert connection.failures() == 0
            clock.at += 46.0
            waiting = asyncio.create_task(get(connection))
            done, _ = await asyncio.wait([waiting], timeout=0.5)
            assert not done, "the token has all but expired"
            await connection.close()
            await asyncio.gather(waiting, return_exceptions=True)


async def test_an_exec_plugin_that_waits_for_its_own_child_ends_together_with_the_child(tmp_path: Path) -> None:
    """A plugin may be a script around another command: while this command lives, the plugin's output stays open."""
    (tmp_path / "token").write_text("one")
    clock = HandClock()
    expires = repr(format_rfc3339(EPOCH + clock.at + 300.0))
    async with ApiServer(tokens={"one"}) as server:
        path = write_kubeconfig(tmp_path / "c", server, exec=plugin(tmp_path, token_script(tmp_path, expires)))
        connection = await with_kubeconfig(str(path), None, clock)
        started = tmp_path / "started"
        script = f"import subprocess; subprocess.run(['sh', '-c', 'touch {started}; sleep 600'])"
        (tmp_path / "plugin.py").write_text(script)
        clock.at += 250.0
        assert await get(connection) == 200
        await until(started.exists)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await connection.close()


async def test_an_exec_plugin_runs_once_more_for_all_requests_that_get_a_401(tmp_path: Path) -> None:
    """Twenty requests are refused at the same time; the plugin runs once, and all of them succeed."""
    (tmp_path / "token").write_text("one")
    clock = HandClock()
    async with ApiServer(tokens={"one"}) as server:
        path = write_kubeconfig(tmp_path / "c", server, exec=plugin(tmp_path, token_script(tmp_path)))
        connection = await with_kubeconfig(str(path), None, clock)
        server.tokens = {"two"}
        (tmp_path / "token").write_text("two")
        clock.at += 60.0
        assert await asyncio.gather(*(get(connection) for _ in range(20))) == [200] * 20
        assert runs(tmp_path) == 2
        server.tokens = {"three"}
        assert await asyncio.gather(*(get(connection) for _ in range(20))) == [401] * 20
        assert runs(tmp_path) == 2, "a plugin that has just run is not run again at once"
        await connection.close()


async def test_a_plugin_that_fails_later_leaves_the_token_in_use_until_it_expires(tmp_path: Path) -> None:
    """After the token has expired, each request fails with the plugin's last error."""
    (tmp_path / "token").write_text("one")
    clock = HandClock()
    expires = repr(format_rfc3339(EPOCH + clock.at + 100.0))
    async with ApiServer() as server:
        path = write_kubeconfig(tmp_path / "c", server, exec=plugin(tmp_path, token_script(tmp_path, expires)))
        connection = await with_kubeconfig(str(path), None, clock)
        (tmp_path / "plugin.py").write_text("raise SystemExit('no network')")
        clock.at += 90.0
        assert await connection.source.authorization() == "Bearer one"
        await renewal()
        assert (await connection.source.authorization(), connection.failures()) == ("Bearer one", 1)
        clock.at += 20.0
        with pytest.raises(CredentialsError, match="no network"):
            await connection.source.authorization()
        with pytest.raises(aiohttp.ClientConnectionError, match="no network"):
            await get(connection)
        await connection.close()


async def test_an_exec_plugin_receives_what_the_kubeconfig_says(tmp_path: Path) -> None:
    """The plugin gets its environment, the cluster if wanted, and the information that no person can answer it."""
    script = (
        "told = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "token = os.environ['ROLE'] + str(told['spec']['interactive']) + told['spec']['cluster']['server'][:4]\n"
        f"print(json.dumps({{'apiVersion': '{BETA}', 'status': {{'token': token}}}}))"
    )
    exec_section = plugin(tmp_path, script) | {
        "env": [{"name": "ROLE", "value": "admin"}],
        "provideClusterInfo": True,
    }
    path = write_kubeconfig(tmp_path / "c", "http://127.0.0.1:1", exec=exec_section)
    connection = await with_kubeconfig(str(path), None, HandClock())
    assert await connection.source.authorization() == "Bearer adminFalsehttp"
    await connection.close()


async def test_passwords_are_sent(tmp_path: Path) -> None:
    """User name and password are sent as basic authentication."""
    path = write_kubeconfig(tmp_path / "c", "http://127.0.0.1:1", username="me", password="it")
    connection = await with_kubeconfig(str(path), None, HandClock())
    assert await connection.source.authorization() == "Basic " + base64.b64encode(b"me:it").decode()
    await connection.close()


async def test_the_token_is_not_sent_elsewhere(tmp_path: Path) -> None:
    """A session sends the token to no other host."""
    async with listener(lambda request: request.headers.get("Authorization")) as (elsewhere, heard):
        connection = await with_kubeconfig(
            str(write_kubeconfig(tmp_path / "c", "http://127.0.0.1:1", "s")), None, HandClock()
        )
        async with connection.make_session() as session, session.get(f"http://{elsewhere}/") as answer:
            assert answer.status == 200
        assert heard == [None]
        await connection.close()


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://10.0.0.1:6443", None),
        ("http://apiserver.example:6443", None),
        ("http://[fd00::1]:6443", None),
        ("http://localhost:6443", "Bearer s"),
        ("http://127.0.0.1:6443", "Bearer s"),
        ("http://[::1]:6443", "Bearer s"),
        ("https://10.0.0.1:6443", "Bearer s"),
    ],
)
async def test_credentials_are_sent_over_https_or_to_this_machine_only(
    url: str, sent: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Over plain http everybody on the way could read them; a log line says once that they are missing."""
    middleware = AuthorizationMiddleware(FixedAuthorization("Bearer s"), url)
    heard: list[str | None] = []

    async def handle(request: Any) -> Any:
        heard.append(request.headers.get("Authorization"))
        return SimpleNamespace(status=200)

    for _ in range(2):
        request: Any = SimpleNamespace(url=URL(url), method="GET", headers={})
        await middleware(request, handle)
    assert heard == [sent, sent]
    assert len([record for record in caplog.records if "is plain http" in record.message]) == (sent is None)


async def test_no_session_asks_for_compressed_answers(tmp_path: Path) -> None:
    """Compressing a list costs an API server more than it saves on a short network path."""
    async with ApiServer() as server:
        connection = await with_kubeconfig(str(write_kubeconfig(tmp_path / "c", server.url, "s")), None, HandClock())
        async with connection.make_session() as session, session.get(f"{server.url}/api/v1/nodes") as answer:
            assert answer.request_info.headers["Accept-Encoding"] == "identity"
        await connection.close()


async def test_each_session_uses_the_proxy_of_the_kubeconfig(tmp_path: Path) -> None:
    """Code that uses a session need not know of the proxy."""
    async with listener(lambda request: str(request.url)) as (proxy, asked):
        content = kubeconfig("http://api.example:6443")
        content["clusters"][0]["cluster"]["proxy-url"] = f"http://{proxy}"
        (tmp_path / "c").write_text(json.dumps(content))
        connection = await with_kubeconfig(str(tmp_path / "c"), None, HandClock())
        assert await get(connection) == 200
        assert asked == ["http://api.example:6443/api/v1/nodes"]
        await connection.close()


async def test_a_proxy_of_the_environment_is_used_where_the_kubeconfig_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy gets the login that its URL contains; for hosts in NO_PROXY it is not used."""
    async with listener(lambda request: (str(request.url), request.headers.get("Proxy-Authorization"))) as (
        proxy,
        asked,
    ):
        monkeypatch.setenv("http_proxy", f"http://me:secret@{proxy}")
        monkeypatch.setenv("no_proxy", "near.example")
        connection = await with_kubeconfig(
            str(write_kubeconfig(tmp_path / "c", "http://far.example", "s")), None, HandClock()
        )
        assert await get(connection) == 200
        assert asked == [("http://far.example/api/v1/nodes", f"Basic {base64.b64encode(b'me:secret').decode()}")]
        await connection.close()
        assert environment_proxy("http://near.example:6443") is None


@pytest.mark.parametrize(
    ("url", "proxied"),
    [
        ("https://10.96.0.1:443", False),
        ("https://10.112.0.1:443", True),
        ("https://[fd00::1]:443", False),
        ("https://[fd01::1]:443", True),
        ("https://192.0.2.7:6443", False),
        ("https://192.0.2.7:443", True),
        ("https://127.0.0.1:6443", False),
        ("https://[::1]:6443", False),
        ("http://localhost:8001", False),
        ("https://api.example", True),
    ],
)
def test_the_environments_proxy_is_not_used_for_networks_in_no_proxy_nor_for_this_machine(
    url: str, proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in kubectl: clusters name their networks of pods and Services so, and the API server is an address in one."""
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", ".svc, 10.96.0.0/12,fd00::/16,192.0.2.7:6443,none/8")
    assert environment_proxy(url) == ("http://proxy.example:3128" if proxied else None)


async def test_credentials_for_this_machine_are_not_sent_to_a_proxy(tmp_path: Path) -> None:
    """Between the two they would be plain text."""
    async with listener(lambda request: request.headers.get("Authorization")) as (proxy, asked):
        content = kubeconfig("http://127.0.0.1:8001", token="secret")
        content["clusters"][0]["cluster"]["proxy-url"] = f"http://{proxy}"
        (tmp_path / "c").write_text(json.dumps(content))
        connection = await with_kubeconfig(str(tmp_path / "c"), None, HandClock())
        assert await get(connection) == 200
        assert asked == [None]
        await connection.close()


# TLS and client certificates


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority with a server's and a client's certificate."""
    directory = tmp_path_factory.mktemp("pki")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    authority = ["-CA", "ca.crt", "-CAkey", "ca.key"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca")
    alternative = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:kubernetes"]
    openssl("req", "-x509", *key, *authority, "-keyout", "tls.key", "-out", "tls.crt", "-subj", "/CN=api", *alternative)
    openssl("req", "-x509", *key, *authority, "-keyout", "me.key", "-out", "me.crt", "-subj", "/CN=me")
    return directory


def server_tls(pki: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "tls.crt", pki / "tls.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def tls_kubeconfig(path: Path, pki: Path, url: str, user: dict[str, Any], **cluster: Any) -> str:
    content = kubeconfig(url, ca_certificate=(pki / "ca.crt").read_bytes())
    content["clusters"][0]["cluster"] |= cluster
    content["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(content))
    return str(path)


def inline(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


async def test_client_certificates_in_files_or_inline_log_in(tmp_path: Path, pki: Path) -> None:
    """The server's certificate is checked with the kubeconfig's certificate authority."""
    async with ApiServer(ssl_context=server_tls(pki)) as server:
        users = (
            {"client-certificate": str(pki / "me.crt"), "client-key": f"../{pki.name}/me.key"},
            {"client-certificate-data": inline(pki / "me.crt"), "client-key-data": inline(pki / "me.key")},
        )
        for user in users:
            connection = await with_kubeconfig(tls_kubeconfig(tmp_path / "c", pki, server.url, user), None, HandClock())
            assert await get(connection) == 200
            await connection.close()


async def test_a_plugin_may_give_a_certificate(tmp_path: Path, pki: Path) -> None:
    """The plugin prints a certificate with its key instead of a token."""
    script = (
        f"read = lambda name: open({str(pki)!r} + name).read()\n"
        "status = {'clientCertificateData': read('/me.crt'), 'clientKeyData': read('/me.key')}\n"
        f"print(json.dumps({{'apiVersion': '{BETA}', 'status': status}}))"
    )
    async with ApiServer(ssl_context=server_tls(pki)) as server:
        path = tls_kubeconfig(tmp_path / "c", pki, server.url, {"exec": plugin(tmp_path, script)})
        connection = await with_kubeconfig(str(path), None, HandClock())
        assert await get(connection) == 200
        await connection.close()


async def test_the_servers_name_may_differ_from_its_address(tmp_path: Path, pki: Path) -> None:
    """The certificate is checked against tls-server-name instead of the host in the URL."""
    user = {"client-certificate": str(pki / "me.crt"), "client-key": str(pki / "me.key")}
    async with ApiServer(ssl_context=server_tls(pki)) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        for name, works in (("kubernetes", True), ("somebody.else", False)):
            path = tls_kubeconfig(tmp_path / "c", pki, url, user, **{"tls-server-name": name})
            connection = await with_kubeconfig(str(path), None, HandClock())
            if works:
                assert await get(connection) == 200
            else:
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await get(connection)
            await connection.close()


# In a cluster


def service_account(directory: Path, pki: Path) -> Path:
    (directory / "token").write_text("one")
    (directory / "ca.crt").write_bytes((pki / "ca.crt").read_bytes())
    (directory / "namespace").write_text("kube-system")
    return directory


def in_pod(url: str) -> dict[str, str]:
    host, _, port = url.removeprefix("https://").partition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


async def test_the_service_account_of_the_pod_logs_in(tmp_path: Path, pki: Path) -> None:
    """No kubeconfig is needed, and a token that is replaced while the process runs is used without a 401."""
    tls = server_tls(pki)
    tls.verify_mode = ssl.CERT_NONE
    clock = HandClock()
    account = service_account(tmp_path, pki)
    async with ApiServer(ssl_context=tls, tokens={"one"}) as server:
        connection = await find_connection(None, None, clock, in_pod(server.url), account, home=tmp_path)
        assert (connection.in_cluster, connection.namespace) == (True, "kube-system")
        assert await get(connection) == 200
        server.tokens = {"two"}
        (tmp_path / "token").write_text("two")
        clock.at += 5.0
        assert await get(connection) == 200
        assert server.requests.counts["list", "nodes", 401] == 0
        await connection.close()


async def test_the_error_for_a_service_account_without_token_names_the_likely_cause(tmp_path: Path) -> None:
    """The pod's automountServiceAccountToken is most likely false."""
    with pytest.raises(CredentialsError, match="automountServiceAccountToken"):
        await find_connection(None, None, HandClock(), in_pod("https://10.0.0.1:443"), tmp_path, home=tmp_path)


# How the connection is found


async def test_a_named_kubeconfig_comes_before_the_pods_service_account_and_the_home_directory(
    tmp_path: Path, pki: Path
) -> None:
    """The order is: the flag, KUBECONFIG, the service account, ~/.kube/config."""
    account, home, clock = service_account(tmp_path, pki), tmp_path / "home", HandClock()
    (home / ".kube").mkdir(parents=True)
    flag = str(write_kubeconfig(tmp_path / "flag", "http://flag:1"))
    env = str(write_kubeconfig(tmp_path / "env", "http://env:1"))
    write_kubeconfig(home / ".kube" / "config", "http://home:1")
    pod = in_pod("https://pod:1")

    async def found(named: str | None, environ: dict[str, str]) -> str:
        connection = await find_connection(named, None, clock, environ, account, home)
        await connection.close()
        return connection.url

    assert await found(flag, {"KUBECONFIG": env, **pod}) == "http://flag:1"
    assert await found(None, {"KUBECONFIG": env, **pod}) == "http://env:1"
    assert await found(None, pod) == "https://pod:1"
    assert await found(None, {}) == "http://home:1"


async def test_several_kubeconfigs_are_merged_and_the_first_entry_of_a_name_counts(tmp_path: Path) -> None:
    """As with kubectl, files that are missing or empty are skipped."""
    one, two = kubeconfig("http://one:1", token="1"), kubeconfig("http://two:1", token="2")
    two["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "simulation"}})
    two["clusters"].append({"name": "other", "cluster": {"server": "http://other:1"}})
    two["current-context"] = "other"
    for name, content in (("one", json.dumps(one)), ("two", json.dumps(two)), ("empty", "")):
        (tmp_path / name).write_text(content)
    paths = os.pathsep.join(str(tmp_path / name) for name in ("missing", "empty", "one", "two"))
    for context, expected in ((None, ("http://one:1", "Bearer 1")), ("other", ("http://other:1", "Bearer 1"))):
        connection = await with_kubeconfig(paths, context, HandClock())
        assert (connection.url, await connection.source.authorization()) == expected
        await connection.close()


# Errors


def broken(**changes: Any) -> str:
    content = kubeconfig("http://127.0.0.1:1")
    return json.dumps(content | changes)


def with_exec(**section: Any) -> str:
    user = {"exec": {"apiVersion": BETA, "args": [], **section}}
    return broken(users=[{"name": "simulation", "user": user}])


def printing(text: str) -> str:
    return with_exec(command=sys.executable, args=["-c", f"print({text!r})"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", "line 1 is not valid YAML"),
        ("- a", "is not a kubeconfig: it should be a mapping"),
        (broken(contexts={}), "has no context|there are: none|no context"),
        (broken(contexts="x"), "contexts should be a list"),
        (broken(users=[]), 'names the user "simulation"; there are: none'),
        (broken(clusters=[{"name": "prod"}]), 'names the cluster "simulation"; there are: prod'),
        (broken(clusters=[{"name": "simulation", "cluster": {}}]), "its cluster has no server"),
        (broken(clusters=[{"name": "simulation", "cluster": {"server": "ftp://x"}}]), "not an http or https URL"),
        (
            broken(
                clusters=[{"name": "simulation", "cluster": {"server": "https://x", "certificate-authority": "/no"}}]
            ),
            "/no",
        ),
        (
            broken(
                clusters=[
                    {"name": "simulation", "cluster": {"server": "https://x", "certificate-authority-data": "Z29uZQ=="}}
                ]
            ),
            "certificates cannot be used",
        ),
        (with_exec(command="/no/such/plugin"), "cannot run the exec plugin /no/such/plugin"),
        (with_exec(command="no-such-plugin", installHint="brew install it"), "brew install it"),
        (with_exec(command=5), "lacks command"),
        (
            with_exec(command=sys.executable, args=["-c", "raise SystemExit('first\\nyour login has expired')"]),
            "failed with 1: your login has expired$",
        ),
        (printing("hello"), "did not print an ExecCredential"),
        (
            with_exec(command=sys.executable, args=["-c", f'print(\'{{"apiVersion": "{BETA}", "status": {{}}}}\')']),
            "neither a token nor a certificate",
        ),
        (
            with_exec(command=sys.executable, args=["-c", 'print(\'{"apiVersion": "v9", "status": {}}\')']),
            "answers in v9",
        ),
    ],
)
async def test_what_is_wrong_with_a_kubeconfig_is_reported_in_one_line(tmp_path: Path, content: str, said: str) -> None:
    """The error says what is wrong and, where names are missing, which names exist."""
    (tmp_path / "c").write_text(content)
    with pytest.raises(CredentialsError, match=said) as failed:
        await with_kubeconfig(str(tmp_path / "c"), None, HandClock())
    assert "\n" not in str(failed.value)


async def test_a_kubeconfig_that_is_half_written_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader reads the file once more than the checks before it."""
    file = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")

    def written_meanwhile(paths: str) -> Any:
        file.write_text('{"clusters": [')
        return KubeConfigMerger(paths)  # type: ignore[no-untyped-call]

    monkeypatch.setattr("taint_eviction.login.kubeconfig.KubeConfigMerger", written_meanwhile)
    with pytest.raises(CredentialsError, match="config"):
        await with_kubeconfig(str(file), None, HandClock())


async def test_the_error_for_an_unknown_context_names_the_known_ones(tmp_path: Path) -> None:
    """The known names show a typing error."""
    path = write_kubeconfig(tmp_path / "c", "http://x:1")
    with pytest.raises(CredentialsError, match=r'there is no context "prod" in .*; there are: simulation'):
        await with_kubeconfig(str(path), "prod", HandClock())


@pytest.mark.parametrize(
    ("find", "said"),
    [
        (lambda home: find_connection(str(home / "no"), None, HandClock(), {}, home, home), "no such kubeconfig: "),
        (lambda home: find_connection(None, None, HandClock(), {}, home, home), "set --kubeconfig or KUBECONFIG"),
    ],
)
async def test_the_error_says_that_no_connection_is_configured(
    tmp_path: Path, find: Callable[[Path], Any], said: str
) -> None:
    """The error names the missing file, or the flag and the variable to set."""
    with pytest.raises(CredentialsError, match=said):
        await find(tmp_path)
