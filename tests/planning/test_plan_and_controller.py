"""What a plan predicts, and what the controller then does: pod by pod and second by second, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.planning.shop import run, tolerates
from tests.stage.objects import deletes
from tests.stage.processes import running_controller
from tests.stage.waiting import now, sleep_until, until

from fake_apiserver import ApiServer, node_object, pod_object
from taint_eviction.core.objects import UNREACHABLE
from taint_eviction.files.kubernetes_times import parse_rfc3339
from taint_eviction.kube.kubernetes_objects import HOLD_ANNOTATION as HOLD

TAINT = "n1=maintenance=now:NoExecute"


def create(server: ApiServer, name: str, *tolerations: dict[str, Any], on: str = "n1", **metadata: Any) -> None:
    """Create a pod that runs."""
    body = pod_object("default", name, on, timestamp=server.clock.timestamp())
    body["spec"]["tolerations"] = list(tolerations)
    body["metadata"] |= metadata
    server.create("pods", body)


def protect(server: ApiServer, app: str, least: int, namespace: str = "default") -> None:
    """Create a budget that keeps this many pods of an application available."""
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": app}}}
    server.create("poddisruptionbudgets", {"metadata": {"name": app, "namespace": namespace}, "spec": spec})


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Serve two nodes and pods of every kind."""
    async with ApiServer(seed=8) as started:
        started.kubelets.finish_after_seconds = 0.05
        for name in ("n1", "n2"):
            started.create("nodes", node_object(name, started.clock.timestamp()))
        create(started, "none")
        create(started, "one", tolerates(1))
        create(started, "three", tolerates(3))
        create(started, "first-counts", tolerates(2), tolerates(60))
        create(started, "negative", tolerates(-5))
        create(started, "ever", tolerates())
        create(started, "other-taint", tolerates(None, "other"))
        create(started, "mirror", annotations={"kubernetes.io/config.mirror": "x"})
        create(started, "elsewhere", on="n2")
        yield started


async def plan(*arguments: str) -> dict[str, Any]:
    """Run the command in another thread: the server runs in the loop of this one."""
    result = await asyncio.to_thread(run, *arguments, "-o", "json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


async def carried_out(
    server: ApiServer, config: str, expected: dict[str, float], taint: tuple[str, ...], *flags: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Taint a node under the controller, and wait until the expected pods have gone and no other pod can follow.

    Return for each pod that went how much later than expected its DELETE arrived, and how much later than expected its
    deadline is by the controller's log, in whole seconds of Unix time.
    """
    async with running_controller(config, *flags) as run:
        tainted_at = now()
        server.taint(*taint)
        await until(lambda: {request.name for request in deletes(server)} >= expected.keys())
        await sleep_until(tainted_at + max(expected.values()) + 2)
        said = {line["pod"].partition("/")[2]: line["deadline"] for line in run.told(what="scheduled")}
    late = {request.name: request.arrived_at - tainted_at - expected[request.name] for request in deletes(server)}
    due = {name: datetime.fromisoformat(deadline).timestamp() - expected[name] for name, deadline in said.items()}
    return late, due


def assert_as_foretold(late: dict[str, float], due: dict[str, float], expected: dict[str, float]) -> None:
    """Assert that only the expected pods went, none early, and that deadlines are as far apart as predicted.

    The log's deadlines are cut to whole seconds, so two that were seen a moment apart may differ by one.
    """
    assert late.keys() == due.keys() == expected.keys()
    assert all(seconds >= 0.0 for seconds in late.values()), late
    assert max(due.values()) - min(due.values()) <= 1.0, due


async def test_a_plan_predicts_what_the_controller_does(server: ApiServer, config: str) -> None:
    """The same pods go and stay, each at the predicted instant, never before."""
    foretold = await plan("--kubeconfig", config, "--taint", TAINT)
    expected = {pod["name"]: pod["inSeconds"] for pod in foretold["pods"] if pod["outcome"] == "leaves"}
    assert expected == {"none": 0, "negative": 0, "one": 1, "first-counts": 2, "three": 3, "other-taint": 0}
    late, due = await carried_out(server, config, expected, ("n1", "maintenance", "now"))
    assert_as_foretold(late, due, expected)
    assert {pod["metadata"]["name"] for pod in server.list("pods")} == {"ever", "mirror", "elsewhere"}


async def test_plan_and_controller_agree_with_every_flag_that_changes_decisions(server: ApiServer, config: str) -> None:
    """Both have the same flags for default tolerances, holds and finished pods."""
    server.admission.default_toleration_seconds = None
    server.create("nodes", node_object("n3", server.clock.timestamp()))
    create(server, "lacks-one", on="n3")
    create(server, "held", on="n3", annotations={HOLD: "1s"})
    create(server, "held-for-ever", on="n3", annotations={HOLD: "true"})
    create(server, "has-one", tolerates(2, UNREACHABLE), on="n3", annotations={HOLD: "500ms"})
    create(server, "finished", on="n3")
    server.patch("pods", "finished", {"status": {"phase": "Succeeded"}})
    flags = ("--default-unreachable-seconds=1", "--honour-holds=3s", "--keep-finished")
    foretold = await plan("--kubeconfig", config, "--taint", f"n3={UNREACHABLE}:NoExecute", *flags)
    expected = {pod["name"]: pod["inSeconds"] for pod in foretold["pods"] if pod["outcome"] == "leaves"}
    assert expected == {"lacks-one": 1, "held": 2, "has-one": 2.5, "held-for-ever": 4}
    late, due = await carried_out(server, config, expected, ("n3", UNREACHABLE), *flags)
    assert_as_foretold(late, due, expected)


async def test_a_plan_changes_nothing(server: ApiServer, config: str) -> None:
    """A plan only lists objects, and tries evictions with dryRun."""
    before = {pod["metadata"]["resourceVersion"] for pod in server.list("pods")}
    server.create(
        "poddisruptionbudgets", {"metadata": {"name": "all"}, "spec": {"selector": {"matchLabels": {"app": "none"}}}}
    )
    await plan("--kubeconfig", config, "--taint", TAINT, "--mode", "evict")
    assert {pod["metadata"]["resourceVersion"] for pod in server.list("pods")} == before


async def test_the_api_server_confirms_what_a_budget_blocks(server: ApiServer, config: str) -> None:
    """The plan tries a dry-run eviction of each pod that has a budget."""
    for index in range(2):
        create(server, f"web-{index}", labels={"app": "web"})
    protect(server, "web", 2)
    await asyncio.sleep(0.1)
    document = await plan("--kubeconfig", config, "--taint", TAINT, "--mode", "evict")
    blocked = {pod["name"]: pod["blocked"] for pod in document["pods"] if "blocked" in pod}
    assert blocked.keys() == {"web-0", "web-1"}
    assert all("would violate the pod's disruption budget" in said for said in blocked.values())
    assert any("the API server allows 0 and refuses 2" in note for note in document["notes"])


async def test_a_busy_api_server_confirms_nothing(server: ApiServer, config: str) -> None:
    """Its 429 names no budget and says nothing about the pod, so the plan says that it does not know."""
    create(server, "web-0", labels={"app": "web"})
    protect(server, "web", 0)
    server.faults.add(resource="pods/eviction", status=429, plain_text=True)
    document = await plan("--kubeconfig", config, "--taint", TAINT, "--mode", "evict")
    assert document["counts"]["blocked"] == 0
    assert any("allows 0 and refuses 0; 1 could not be asked" in note for note in document["notes"])


async def test_a_virtual_machine_that_kubevirt_moves_away_is_told_from_a_busy_server(
    server: ApiServer, config: str
) -> None:
    """Its webhook refuses with 429 and names no budget; the patience begins after the background timeout alone."""
    create(server, "vm-0", labels={"app": "vm"})
    protect(server, "vm", 1)
    said = 'admission webhook "interceptor.example.com" denied the request: Eviction triggered evacuation of VMI "vm"'
    server.faults.add(resource="pods/eviction", status=429, message=said)
    flags = ("--mode", "evict-then-delete", "--evict-timeout", "60s", "--background-timeout", "10m")
    document = await plan("--kubeconfig", config, "--taint", TAINT, *flags)
    [machine] = [pod for pod in document["pods"] if pod["name"] == "vm-0"]
    assert machine["blocked"] == "the virtual machine in it is moving away (KubeVirt)"
    passed = parse_rfc3339(machine["deletedAt"]), parse_rfc3339(machine["leavesAt"])
    assert passed[0] is not None
    assert passed[1] is not None
    assert passed[0] - passed[1] == 660
    assert any("KubeVirt moves the virtual machines in 1 pod away" in note for note in document["notes"])


@pytest.mark.parametrize(
    "fault",
    [
        {"hang": True},
        {"delay_seconds": 0.7, "status": 500, "message": 'failed calling webhook "w": context deadline exceeded'},
        {"delay_seconds": 0.7},
    ],
    ids=["it hangs", "its timeout is shorter than that of calls", "it allows each after a while"],
)
async def test_a_slow_webhook_is_asked_about_few_pods(
    server: ApiServer, config: str, fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its namespace is not asked again, so that it keeps nobody waiting for the plan; others are asked."""
    monkeypatch.setattr("taint_eviction_ctl.planning.cluster._LONG_SECONDS", 0.6)
    for namespace, count in (("slow", 60), ("answers", 20)):
        server.create("namespaces", {"metadata": {"name": namespace}})
        for index in range(count):
            body = pod_object(namespace, f"web-{index}", "n1", timestamp=server.clock.timestamp())
            body["metadata"]["labels"] = {"app": "web"}
            server.create("pods", body)
        protect(server, "web", 0, namespace)
    webhook = server.faults.add(resource="pods/eviction", namespace="slow", **fault)
    document = await plan("--kubeconfig", config, "--taint", TAINT, "--mode", "evict", "--call-timeout", "1s")
    assert 0 < webhook.hits <= 10
    allowed = 20 if "hang" in fault or "status" in fault else 20 + webhook.hits
    said = f"allows {allowed} and refuses 0; {80 - allowed} could not be asked"
    assert any(said in note for note in document["notes"])


async def test_a_webhook_that_names_the_eviction_api_is_no_missing_right(server: ApiServer, config: str) -> None:
    """What admission refuses with 403, in whatever words, blocks its pod alone."""
    create(server, "web-0", labels={"app": "web"})
    protect(server, "web", 0)
    said = 'admission webhook "interceptor.example.com" denied the request: no pods/eviction here'
    server.faults.add(resource="pods/eviction", status=403, message=said)
    document = await plan("--kubeconfig", config, "--taint", TAINT, "--mode", "evict")
    assert any("allows 0 and refuses 1" in note for note in document["notes"])


async def test_without_the_right_to_evict_the_plan_continues(server: ApiServer, config: str) -> None:
    """The plan says so, and keeps its own calculation."""
    create(server, "web-0", labels={"app": "web"})
    protect(server, "web", 1)
    server.answerer.authorize = lambda request: request.resource_name != "pods/eviction"
    document = await plan("--kubeconfig", config, "--taint", TAINT, "--mode", "evict")
    assert any("may not create pods/eviction" in note for note in document["notes"])
    assert document["counts"]["blocked"] == 1


async def test_the_api_server_is_asked_only_about_pods_that_a_rule_evicts(
    server: ApiServer, config: str, tmp_path: Path
) -> None:
    """Pods that are deleted or paused do not need the eviction API."""
    for tier in ("gold", "silver", "bronze"):
        create(server, f"web-{tier}", labels={"app": "web", "tier": tier})
    protect(server, "web", 0)
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules:\n"
        "  - {name: gold, match: {podSelector: tier=gold}, mode: evict}\n"
        "  - {name: silver, match: {podSelector: tier=silver}, mode: evict, pause: true}\n"
    )
    asked: list[str] = []
    server.requests.subscribe(lambda request: asked.append(request.name) if request.verb == "create" else None)
    document = await plan("--kubeconfig", config, "--taint", TAINT, "--config", str(policy))
    assert asked == ["web-gold"]
    assert any("the API server allows 1 and refuses 0" in note for note in document["notes"])


async def test_present_pauses_are_mentioned(server: ApiServer, config: str) -> None:
    """The first line says that no pod leaves, and the notes since when and why; the figures are as without pauses."""
    data = {"pause": '{"since": "2026-03-01T12:00:00Z", "reason": "upgrade"}', "pause-node.n1": "true"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here", "namespace": "default"}, "data": data}
    server.create("configmaps", body)
    where = ("--state-namespace", "default", "--state-name", "here")
    document = await plan("--kubeconfig", config, "--taint", TAINT, *where)
    assert document["counts"]["leaving"] == 6
    assert [note for note in document["notes"] if "paused" in note] == [
        "all evictions are paused (since 2026-03-01 12:00:00 UTC: upgrade)",
        "evictions are paused for node n1",
    ]
    assert (document["counts"]["leaving"], document["counts"]["held"]) == (6, 6)
    assert document["summary"].startswith("0 of 8 pods on 1 node would leave now (6 blocked by the pause of all evict")
    assert "; 6 would leave when all of that ends" in document["summary"]
    assert not any("paused" in note for note in (await plan("--kubeconfig", config))["notes"])
    server.answerer.authorize = lambda request: request.resource_name != "configmaps"
    unknown = "whether evictions are paused is not known: ConfigMap kube-system/taint-eviction-controller"
    assert any(note.startswith(unknown) for note in (await plan("--kubeconfig", config))["notes"])


async def test_an_open_breaker_is_said_to_let_pods_of_nodes_out_of_service_pass(server: ApiServer, config: str) -> None:
    """Until too many nodes are out of service: then it stops these, too."""
    key = "node.kubernetes.io/out-of-service"
    down = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    server.patch("nodes", "n1", down)
    open_since = {"open": True, "since": "2026-03-01T12:00:00Z", "cause": "5 of 9 nodes"}
    where = ("--state-namespace", "default", "--state-name", "here")
    for more, whose in (
        ({}, "evictions, except from nodes that are out of service,"),
        ({"outOfService": True}, "all evictions"),
    ):
        data = {"breaker": json.dumps({**open_since, **more})}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here", "namespace": "default"}}
        if more:
            server.delete("configmaps", "here")
        server.create("configmaps", {**body, "data": data})
        document = await plan("--kubeconfig", config, "--taint", f"n1={key}:NoExecute", *where)
        assert any(note.startswith(f"{whose} are stopped: the circuit breaker is open") for note in document["notes"])
