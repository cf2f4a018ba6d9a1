"""The embedded API server and real clients: Kopf, kubernetes.aio and kubectl."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
from apiserver_client import add_node, add_pod, serving
from kubernetes import aio as kubernetes_aio
from tests.stage.waiting import PATIENCE_SECONDS

from fake_apiserver import ApiServer, kubeconfig

OLDEST_KUBECTL = 25
POD_MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: applied}
spec:
  nodeName: n1
  containers: [{name: c, image: i}]
"""


# -- Kopf ---------------------------------------------------------------------


@asynccontextmanager
async def _kopf_watching(server: ApiServer, seen: asyncio.Queue[tuple[str | None, str]]) -> AsyncIterator[None]:
    """An embedded Kopf that only watches nodes."""
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    settings.watching.reconnect_backoff = 0.01

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=server.url)

    @kopf.on.event("", "v1", "nodes", registry=registry)
    async def node_event(event: Any, name: str, **_: Any) -> None:
        seen.put_nowait((event["type"], name))

    stop = asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(registry=registry, settings=settings, standalone=True, clusterwide=True, stop_flag=stop)
    )
    try:
        yield
    finally:
        stop.set()
        await operator


async def _next(seen: asyncio.Queue[tuple[str | None, str]]) -> tuple[str | None, str]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await seen.get()


@pytest.mark.filterwarnings("default")
async def test_kopf_lists_watches_and_continues_after_410() -> None:
    """Kopf discovers, lists and sees changes, and lists again after the history was compacted."""
    logging.getLogger("kopf").setLevel(logging.ERROR)
    seen: asyncio.Queue[tuple[str | None, str]] = asyncio.Queue()
    async with serving() as (server, _):
        add_node(server, "n1")
        async with _kopf_watching(server, seen):
            assert await _next(seen) == (None, "n1")
            await server.requests.wait_for(verb="watch", resource="nodes")
            server.taint("n1", "k")
            assert await _next(seen) == ("MODIFIED", "n1")
            server.watches.cut()
            server.store.compact()
            server.delete("nodes", "n1")
            add_node(server, "n2")
            server.store.compact()
            assert (await _next(seen))[1] == "n2"
        assert {entry.verb for entry in server.requests.entries} <= {"get", "list", "watch"}


# -- kubernetes.aio -----------------------------------------------------------


async def test_kubernetes_aio_lists_patches_and_deletes() -> None:
    """The generated client uses its own content types and bodies."""
    async with serving() as (server, _):
        add_node(server, "n1")
        uid = add_pod(server)
        configuration = kubernetes_aio.client.Configuration(host=server.url)
        async with kubernetes_aio.client.ApiClient(configuration) as client:
            core = kubernetes_aio.client.CoreV1Api(client)
            pods = await core.list_pod_for_all_namespaces(field_selector="spec.nodeName=n1")
            assert [pod.metadata.uid for pod in pods.items if pod.metadata] == [uid]
            condition = {"type": "DisruptionTarget", "status": "True"}
            patched = await core.patch_namespaced_pod_status(
                "p1", "default", {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
            )
            assert patched.status is not None
            assert "DisruptionTarget" in {c.type for c in patched.status.conditions or []}
            options = kubernetes_aio.client.V1DeleteOptions(
                preconditions=kubernetes_aio.client.V1Preconditions(uid="other")
            )
            with pytest.raises(kubernetes_aio.client.ApiException) as refused:
                await core.delete_namespaced_pod("p1", "default", body=options)
            assert refused.value.status == 409
            eviction = kubernetes_aio.client.V1Eviction(
                metadata=kubernetes_aio.client.V1ObjectMeta(name="p1", namespace="default")
            )
            await core.create_namespaced_pod_eviction("p1", "default", eviction)
            assert "deletionTimestamp" in (server.get("pods", "p1") or {})["metadata"]


# -- kubectl ------------------------------------------------------------------


def _kubectls() -> Iterator[tuple[str, int]]:
    """The kubectl in KUBECTL, then that in PATH, if new enough, each with its minor version."""
    for candidate in (os.environ.get("KUBECTL"), shutil.which("kubectl")):
        if not candidate:
            continue
        version = subprocess.run([candidate, "version", "--client", "-o", "json"], capture_output=True, check=False)
        if version.returncode == 0:
            minor = json.loads(version.stdout)["clientVersion"]["minor"].rstrip("+")
            if int(minor) >= OLDEST_KUBECTL:
                yield candidate, int(minor)


KUBECTL, KUBECTL_MINOR = next(_kubectls(), (None, 0))
# Older versions need the schemas of openapi/v2, which this server does not have.
VALIDATION = [] if KUBECTL_MINOR >= 29 else ["--validate=false"]
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="no kubectl of 1.25 or newer on this machine")


class Kubectl:
    """Runs kubectl against one server."""

    def __init__(self, config: Path) -> None:
        self._config = config

    async def __call__(self, *arguments: str, succeeds: bool = True) -> str:
        assert KUBECTL is not None
        environment = {"KUBECONFIG": str(self._config), "HOME": str(self._config.parent), "PATH": "/usr/bin:/bin"}
        running = await asyncio.create_subprocess_exec(
            KUBECTL, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await running.communicate()
        assert (running.returncode == 0) == succeeds, output.decode()
        return output.decode()


@asynccontextmanager
async def _cluster(directory: Path) -> AsyncIterator[tuple[ApiServer, Kubectl]]:
    async with serving() as (server, _):
        add_node(server, "n1")
        add_pod(server, "p1")
        config = directory / "kubeconfig"
        config.write_text(json.dumps(kubeconfig(server)))
        yield server, Kubectl(config)


@needs_kubectl
async def test_kubectl_gets_tables_yaml_and_json(tmp_path: Path) -> None:
    """These are the outputs that people use for nodes and pods."""
    async with _cluster(tmp_path) as (_, kubectl):
        assert "n1     Ready" in await kubectl("get", "nodes")
        assert "default     p1" in await kubectl("get", "pods", "-A", "-o", "wide")
        assert json.loads(await kubectl("get", "pods", "-o", "json"))["items"][0]["kind"] == "Pod"
        assert "name: n1" in await kubectl("get", "no", "n1", "-o", "yaml")
        assert "NotFound" in await kubectl("get", "pod", "none", succeeds=False)


@needs_kubectl
async def test_kubectl_taints_and_untaints(tmp_path: Path) -> None:
    """The server records kubectl as the owner of the taints."""
    async with _cluster(tmp_path) as (server, kubectl):
        await kubectl("taint", "nodes", "n1", "k=v:NoExecute")
        await kubectl("taint", "nodes", "n1", "other:NoSchedule")
        node = server.get("nodes", "n1") or {}
        assert {taint["key"]: taint["effect"] for taint in node["spec"]["taints"]} == {
            "k": "NoExecute",
            "other": "NoSchedule",
        }
        owners = [e["manager"] for e in node["metadata"]["managedFields"] if "f:spec" in e["fieldsV1"]]
        assert owners == ["kubectl-taint"]
        await kubectl("taint", "nodes", "n1", "k:NoExecute-")
        await kubectl("taint", "nodes", "n1", "other-")
        assert "taints" not in (server.get("nodes", "n1") or {})["spec"]


@needs_kubectl
async def test_kubectl_deletes_and_waits_until_the_object_is_gone(tmp_path: Path) -> None:
    """The command waits until the pod or the node no longer exists."""
    async with _cluster(tmp_path) as (server, kubectl):
        assert "deleted" in await kubectl("delete", "pod", "p1", "--timeout=60s")
        assert server.get("pods", "p1") is None
        await kubectl("delete", "node", "n1", "--timeout=60s")
        assert server.get("nodes", "n1") is None


@needs_kubectl
async def test_kubectl_applies_creates_and_describes(tmp_path: Path) -> None:
    """Validation is on, except with the oldest versions, and ``describe`` finds events by the pod's UID."""
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD_MANIFEST)
    async with _cluster(tmp_path) as (server, kubectl):
        assert "created" in await kubectl("apply", *VALIDATION, "-f", str(manifest))
        assert "unchanged" in await kubectl("apply", *VALIDATION, "-f", str(manifest))
        assert "AlreadyExists" in await kubectl("create", *VALIDATION, "-f", str(manifest), succeeds=False)
        pod = server.get("pods", "applied") or {}
        involved = {"kind": "Pod", "namespace": "default", "name": "applied", "uid": pod["metadata"]["uid"]}
        event = {"reason": "TaintManagerEviction", "message": "Marking for deletion", "type": "Normal"}
        server.create("events", {"metadata": {"name": "e"}, "involvedObject": involved, **event})
        assert "TaintManagerEviction" in await kubectl("describe", "pod", "applied")


@needs_kubectl
async def test_kubectl_drains_within_a_budget(tmp_path: Path) -> None:
    """The command cordons the node, evicts its pod and waits."""
    async with _cluster(tmp_path) as (server, kubectl):
        output = await kubectl("drain", "n1", "--force", "--timeout=60s")
        assert "drained" in output
        assert server.requests.counts["create", "pods/eviction", 201] == 1
        assert (server.get("nodes", "n1") or {})["spec"]["unschedulable"] is True


@needs_kubectl
async def test_kubectl_watches(tmp_path: Path) -> None:
    """kubectl prints the first row and one row for each change."""
    async with _cluster(tmp_path) as (server, _):
        assert KUBECTL is not None
        running = await asyncio.create_subprocess_exec(
            KUBECTL, f"--server={server.url}", "get", "pods", "-w", "--no-headers",
            env={"HOME": str(tmp_path)}, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert running.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert b"Running" in await running.stdout.readline()
                await server.requests.wait_for(verb="watch")
                server.kubelets.freeze("n1")
                server.delete("pods", "p1")
                assert b"Terminating" in await running.stdout.readline()
        finally:
            running.terminate()
            await running.wait()


# -- another process ----------------------------------------------------------


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine to make a certificate with")
async def test_the_server_speaks_tls(tmp_path: Path) -> None:
    """The server presents a certificate that clients can check."""
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    making = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
        "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await making.wait() == 0
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with (
        ApiServer(ssl_context=context) as server,
        aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(ssl=trusting)) as session,
    ):
        assert server.url.startswith("https://")
        async with session.get("/api/v1/nodes") as response:
            assert response.status == 200


async def test_the_server_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The process prints its address, writes a kubeconfig, creates the objects, and ends on SIGTERM."""
    config = tmp_path / "kubeconfig"
    arguments = ["--nodes", "2", "--pods", "4", "--pod-bytes", "6000", "--token", "t", "--kubeconfig", str(config)]
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fake_apiserver", *arguments,
        env={"PYTHONPATH": ":".join(sys.path)}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert running.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            address = json.loads(await running.stdout.readline())
            headers = {"Authorization": "Bearer t"}
            async with (
                aiohttp.ClientSession(address["url"], headers=headers) as session,
                session.get("/api/v1/pods") as response,
            ):
                pods = (await response.json())["items"]
            sizes = [len(json.dumps(pod, separators=(",", ":"))) for pod in pods]
            assert len(pods) == 4
            assert all(5_500 < size < 6_500 for size in sizes), sizes
            assert json.loads(config.read_text())["users"][0]["user"] == {"token": "t"}
    finally:
        running.terminate()
        assert await running.wait() == 0
