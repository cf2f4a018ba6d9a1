"""Pods of virtual machines that move away: a webhook and a budget answer as KubeVirt's do, one after the other.

Only a real API server calls webhooks. This one listens on loopback, inside the test.
"""

import asyncio
import base64
import json
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from tests.e2e.cluster import ClusterUnderTest, WatchedPod
from tests.e2e.conftest import Start

from taint_eviction.runtime.clock import read_monotonic

KEY = "taint-eviction-test/maintenance"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
pytestmark = [
    pytest.mark.parametrize("config", [pytest.param("real", marks=pytest.mark.e2e)], indirect=True),
]


@dataclass
class Interceptor:
    """Refuses the first eviction of each pod, as KubeVirt's webhook does that moves a machine away, and admits others.

    ``asked_at``: the instants at which it was asked.
    """

    asked_at: list[float] = field(default_factory=list)
    _moving: set[str] = field(default_factory=set)

    async def in_force(self, cluster: ClusterUnderTest, pod: WatchedPod) -> None:
        """Wait until the API server calls the webhook, some time after its configuration was created."""
        path = f"/api/v1/namespaces/{cluster.prefix}/pods/{pod.name}/eviction?dryRun=All"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name}}
        while not self.asked_at:
            await cluster.call("POST", path, {**body, "deleteOptions": {"dryRun": ["All"]}}, fine=(429,))
            await asyncio.sleep(0.2)
        self.asked_at.clear()
        self._moving.clear()

    async def review(self, request: web.Request) -> web.Response:
        """Answer an AdmissionReview."""
        asked = (await request.json())["request"]
        self.asked_at.append(read_monotonic())
        answer: dict[str, object] = {"uid": asked["uid"], "allowed": asked["name"] in self._moving}
        if not answer["allowed"]:
            self._moving.add(asked["name"])
            said = f'Eviction triggered evacuation of VMI "{asked["namespace"]}/vm"'
            answer["status"] = {"code": 429, "message": said}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})


async def certificate(directory: Path) -> ssl.SSLContext:
    """Make a certificate for 127.0.0.1, signed by itself: ``tls.crt`` and ``tls.key``."""
    words = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1")
    named = (
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        "tls.key",
        "-out",
        "tls.crt",
    )
    quiet = asyncio.subprocess.DEVNULL
    made = await asyncio.create_subprocess_exec("openssl", *words, *named, cwd=directory, stderr=quiet)
    assert await made.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return context


@pytest.fixture
async def interceptor(cluster: ClusterUnderTest, tmp_path: Path) -> AsyncIterator[Interceptor]:
    """Let the webhook see the evictions of this test's namespace."""
    found, application = Interceptor(), web.Application()
    application.router.add_post("/evict", found.review)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    context = await certificate(tmp_path)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    bundle = base64.b64encode(await asyncio.to_thread((tmp_path / "tls.crt").read_bytes)).decode()
    webhook = {
        "name": "virt-launcher-eviction-interceptor.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{runner.addresses[0][1]}/evict", "caBundle": bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods/eviction"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.prefix}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "failurePolicy": "Fail",
    }
    await cluster.call("POST", WEBHOOKS, {"metadata": {"name": cluster.prefix}, "webhooks": [webhook]})
    yield found
    await cluster.call("DELETE", f"{WEBHOOKS}/{cluster.prefix}", fine=(404,))
    await runner.cleanup()


async def machine(cluster: ClusterUnderTest, interceptor: Interceptor) -> WatchedPod:
    """Create the pod of a virtual machine, with KubeVirt's budget for it."""
    for node in "ab":
        await cluster.create_node(node)
    pod = await cluster.create_pod("virt-launcher-vm", "a", labels={"app": "vm"})
    await cluster.make_ready(pod.name)
    budget = await cluster.create_budget("kubevirt-disruption-budget", "vm", min_available=1)
    await cluster.eventually(budget, lambda found: found.get("status", {}).get("currentHealthy") == 1)
    await interceptor.in_force(cluster, pod)
    return pod


async def test_a_machine_that_moves_away_is_neither_deleted_nor_a_failure(
    cluster: ClusterUnderTest, start: Start, interceptor: Interceptor
) -> None:
    """The webhook refuses first, then the budget. The pod is asked for every 30 s, and no alert would fire."""
    controller = await start("--eviction-mode=evict-then-delete", "--evict-timeout=5s")
    pod = await machine(cluster, interceptor)
    await cluster.taint("a", KEY)
    first = await controller.says(what="refused")
    assert (first["block"], "Eviction triggered evacuation" in first["error"]) == ("evacuation", True)
    await cluster.stays(pod, 45.0)
    refusals = controller.told(what="refused")
    assert {line["block"] for line in refusals} == {"evacuation"}
    assert "disruption budget" in refusals[-1]["error"]
    spans = [later - before for before, later in zip(interceptor.asked_at, interceptor.asked_at[1:], strict=False)]
    assert spans
    assert min(spans) >= 29.0
    document = json.loads(await controller.ask("explain", "-o", "json", f"{cluster.prefix}/{pod.name}"))
    assert document["eviction"]["blockedBy"]["text"].endswith("is moving away (KubeVirt)")
    _, metrics = await controller.get("/metrics")
    assert re.search(r"^taint_eviction_controller_longest_blocked_seconds 0\.0$", metrics, re.MULTILINE)
    assert not re.search(r'result="refused"\} [1-9]', metrics)
    await cluster.remove_pod(pod.name)  # The machine has moved.


async def test_after_the_background_timeout_refusals_count(
    cluster: ClusterUnderTest, start: Start, interceptor: Interceptor
) -> None:
    """The budget refuses for the patience, and then the pod is deleted."""
    flags = ("--eviction-mode=evict-then-delete", "--evict-timeout=6s", "--background-timeout=10s")
    controller = await start(*flags)
    pod = await machine(cluster, interceptor)
    await cluster.taint("a", KEY)
    await controller.says(what="refused", block="evacuation")
    moving_at = read_monotonic()
    assert await cluster.evicted(pod, 120) - moving_at >= 30.0
    blocks = [line["block"] for line in controller.told(what="refused")]
    assert (blocks[0], blocks[-1]) == ("evacuation", "budget")
