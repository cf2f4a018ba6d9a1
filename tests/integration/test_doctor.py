"""`taint-eviction doctor`: what it finds in an installation, and what it reports if rights to read are missing."""

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from tests.stage.client import ClientStage, client_stage

from fake_apiserver import node_object, pod_object
from taint_eviction import __version__
from taint_eviction.cli import cli
from taint_eviction.core.objects import MARK_SECONDS
from taint_eviction.files.kubernetes_times import format_micro_time, format_rfc3339

NAMESPACE, NAME = "kube-system", "taint-eviction-controller"
REVIEWS = "subjectaccessreviews"
ALLOWED, DENIED = json.dumps({"status": {"allowed": True}}), json.dumps({"status": {"allowed": False}})
SWITCHED_OFF = "--controllers=*,bootstrapsigner,-taint-eviction-controller"


@contextlib.asynccontextmanager
async def answering(**status: Any) -> AsyncIterator[int]:
    """Answer as a replica that serves this status; yield the port."""

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.json_response(status)

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def add_replica(
    at: ClientStage,
    name: str,
    node: str,
    version: str = __version__,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Create a ready pod of the controller, on a node that is ready."""
    if at.server.get("nodes", node) is None:
        at.server.create("nodes", node_object(node, "2030-01-01T00:00:00Z"))
    pod = pod_object(NAMESPACE, name, node)
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME, "app.kubernetes.io/version": version}
    pod["metadata"]["labels"] = labels
    pod["spec"] |= {"serviceAccountName": NAME}
    pod["spec"]["containers"][0]["args"] = ["run", *arguments]
    pod["spec"]["containers"][0]["env"] = [{"name": key, "value": value} for key, value in (variables or {}).items()]
    pod["status"] = {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    at.server.create("pods", pod)


def add_manager(at: ClientStage, *arguments: str) -> None:
    """Create the pod of kube-controller-manager."""
    pod = pod_object(NAMESPACE, "kube-controller-manager-n1", "n1")
    pod["metadata"]["labels"] = {"component": "kube-controller-manager"}
    pod["spec"]["containers"][0]["command"] = ["kube-controller-manager", *arguments]
    at.server.create("pods", pod)


def add_lease(at: ClientStage, name: str, ahead_seconds: float = 0.0) -> None:
    """Create a Lease whose renewTime is ahead of the server's clock by these seconds."""
    at_epoch = at.server.clock.now().timestamp()
    spec = {
        "holderIdentity": "one_1",
        "leaseDurationSeconds": 15,
        "renewTime": format_micro_time(at_epoch + ahead_seconds),
    }
    written = [{"manager": name, "operation": "Update", "time": format_rfc3339(at_epoch)}]
    at.server.create(
        "leases", {"metadata": {"name": name, "namespace": NAMESPACE, "managedFields": written}, "spec": spec}
    )


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[ClientStage]:
    """A server that answers every access review with yes."""
    async with client_stage(tmp_path) as made:
        made.server.faults.add(path=REVIEWS, status=201, message=ALLOWED, plain_text=True)
        yield made


@pytest.fixture(autouse=True)
def no_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one server is right: votes on the time take a second of each command, and have tests of their own."""

    async def ask_nobody(*_: object) -> None:
        pass

    monkeypatch.setattr("taint_eviction_ctl.cli.reaching.learn_time", ask_nobody)


ADMISSION_POLICY = f"{NAMESPACE}.{NAME}"


def add_admission_policy(at: ClientStage, account: str = NAME, action: str = "Deny", **spec: Any) -> None:
    """Let the API server have the admission policy, and a binding that names this account."""
    binding = {
        "metadata": {"name": ADMISSION_POLICY},
        "spec": {"policyName": ADMISSION_POLICY, "validationActions": [action]}
        | ({"paramRef": {"name": account, "namespace": NAMESPACE}} if account else {}),
    }
    for path, body in (
        ("validatingadmissionpolicybindings", {"items": [binding]}),
        (f"validatingadmissionpolicies/{ADMISSION_POLICY}", {"spec": spec}),
    ):
        at.server.faults.add(path=path, status=200, message=json.dumps(body), plain_text=True)


def install(at: ClientStage) -> None:
    """Install the controller correctly."""
    add_admission_policy(at)
    add_replica(at, "one", "n1")
    add_replica(at, "two", "n2")
    add_lease(at, NAME)
    add_lease(at, "kube-controller-manager")
    add_manager(at, SWITCHED_OFF)


async def doctor(directory: Path, *arguments: str, port: int | None = None) -> Result:
    """Run the command."""
    env: dict[str, str | None] = {name: None for name in os.environ if name.startswith("TAINT_EVICTION_")}
    env |= {"KUBECONFIG": str(directory / "config")}
    async with answering() as listening:
        line = ["doctor", "--port", str(port or listening), *arguments]
        return await asyncio.to_thread(CliRunner().invoke, cli, line, env=env, catch_exceptions=False)


async def findings(directory: Path, *arguments: str, port: int | None = None) -> dict[str, dict[str, Any]]:
    """Return the findings by check."""
    result = await doctor(directory, "-o", "json", *arguments, port=port)
    found = json.loads(result.stdout)["findings"]
    unchecked = all(each["state"] == "unchecked" for each in found if each["check"] not in ("versions", "time"))
    assert result.exit_code == (1 if any(each["state"] == "wrong" for each in found) else 3 if unchecked else 0)
    return {each["check"]: each for each in found}


async def test_a_correct_installation_passes_all_checks(at: ClientStage, tmp_path: Path) -> None:
    """The exit code is 0; alerts are unchecked if the cluster has no Prometheus operator."""
    install(at)
    found = await findings(tmp_path)
    assert {check: each["state"] for check, each in found.items()} == {
        "versions": "ok",
        "replicas": "ok",
        "leader": "ok",
        "rights": "ok",
        "built-in controller": "ok",
        "admission policy": "ok",
        "guards": "ok",
        "clock": "ok",
        "time": "ok",
        "answers": "ok",
        "alerts": "unchecked",
    }
    assert found["versions"]["found"] == f"Kubernetes v1.36.2+simulation, controller {__version__}"
    assert found["rights"]["found"].startswith(f"system:serviceaccount:{NAMESPACE}:{NAME} may do")


async def test_an_empty_cluster_has_no_controller(at: ClientStage, tmp_path: Path) -> None:
    """There is no replica and nobody to lead, and the rights checked are those of the user."""
    found = await findings(tmp_path)
    assert found["replicas"]["found"] == f"none in {NAMESPACE}"
    assert found["leader"]["found"] == "there is no replica to lead"
    assert found["rights"]["found"].startswith("this user")
    states = [found[check]["state"] for check in ("replicas", "leader", "answers", "alerts")]
    assert states == ["wrong", "unchecked", "unchecked", "unchecked"]


async def test_after_an_uninstallation_the_built_in_controller_evicts(at: ClientStage, tmp_path: Path) -> None:
    """Nothing is wrong then, also where the user lacks rights that only the controller needs."""
    add_manager(at)
    add_lease(at, NAME, -3600.0)
    at.server.faults.clear()
    at.server.faults.add(path=REVIEWS, status=201, message=DENIED, plain_text=True)
    found = await findings(tmp_path)
    assert not [each for each in found.values() if each["state"] == "wrong"]
    assert found["replicas"]["found"] == f"none in {NAMESPACE}: not installed there"
    assert found["built-in controller"] == {
        "check": "built-in controller",
        "state": "ok",
        "found": "active in pod kube-controller-manager-n1: it evicts, and this controller does not run",
        "advice": "",
    }
    assert (await doctor(tmp_path, "--strict")).exit_code == 1


async def test_after_an_uninstallation_in_the_wrong_order_nobody_evicts(at: ClientStage, tmp_path: Path) -> None:
    """The built-in controller is still switched off, and what was taken over waits for ever."""
    add_manager(at, SWITCHED_OFF)
    add_marked(at)
    write_state(at, adopts="true", breaker='{"open": true}')
    found = await findings(tmp_path)
    assert found["replicas"]["found"] == f"none in {NAMESPACE}: nobody evicts"
    assert found["built-in controller"]["state"] == "wrong"
    assert found["built-in controller"]["advice"].startswith(
        "nobody evicts: install this controller, or let it run, or take "
    )
    assert found["adoption"]["advice"].startswith("nobody evicts them: run taint-eviction hand-back")
    assert found["breaker"]["found"].endswith(": a controller that starts evicts nobody")


async def test_an_installation_elsewhere_is_named_where_none_is_here(at: ClientStage, tmp_path: Path) -> None:
    """The command says how to look at that one, and knows that it evicts beside the built-in controller."""
    add_replica(at, "one", "n1")
    add_manager(at)
    found = await findings(tmp_path, "-n", "elsewhere")
    assert found["replicas"]["state"] == "unchecked"
    assert (
        found["installations"]["advice"] == f"taint-eviction doctor --lease-namespace {NAMESPACE} --lease-name {NAME}"
    )
    assert found["built-in controller"]["advice"].startswith("both evict")


async def test_a_controller_that_is_not_seen_may_hold_the_lease(at: ClientStage, tmp_path: Path) -> None:
    """It may run outside of the cluster; the Lease may also be stolen."""
    add_lease(at, NAME)
    add_manager(at)
    found = await findings(tmp_path)
    assert found["leader"]["state"] == "unchecked"
    assert found["leader"]["found"] == f"one_1 holds the Lease {NAMESPACE}/{NAME}, and no replica is seen"
    assert found["built-in controller"]["state"] == "wrong"


async def test_whether_both_evict_is_unknown_without_the_right_to_list_pods(at: ClientStage, tmp_path: Path) -> None:
    """The built-in controller is seen, and this one is not."""
    add_manager(at)
    at.server.faults.add(verb="list", path="namespaces/elsewhere/pods", status=403)
    found = (await findings(tmp_path, "-n", "elsewhere"))["built-in controller"]
    assert found["state"] == "unchecked"
    assert found["found"].endswith("; whether this controller runs is unknown")


UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are free"}
PULLING = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Pending", "conditions": [UNSCHEDULED]}, "two: Unschedulable: 0/1 nodes are free"),
        ({"phase": "Pending", "containerStatuses": [PULLING]}, "two: ImagePullBackOff: no such image"),
        ({"phase": "Pending"}, "two: the kubelet of n2 says nothing of it yet"),
    ],
)
async def test_a_replica_that_does_not_run_is_reported_with_the_reason(
    status: dict[str, Any], said: str, at: ClientStage, tmp_path: Path
) -> None:
    """It is asked for nothing, so no sentence about its address hides the reason."""
    install(at)
    pod = at.server.get("pods", "two", NAMESPACE)
    assert pod is not None
    at.server.update("pods", {**pod, "status": status})
    found = await findings(tmp_path)
    assert (found["replicas"]["state"], found["replicas"]["found"]) == (
        "wrong",
        f"2 replicas, 1 ready, on 1 node; {said}",
    )
    assert found["replicas"]["advice"] == "until another one runs, the loss of node n1 stops evictions"
    assert (found["answers"]["state"], found["answers"]["found"]) == ("ok", "1 replica serves status and metrics")


@pytest.mark.parametrize(("status", "said"), [(None, "is gone"), ("Unknown", "is not Ready")])
async def test_a_replica_on_a_lost_node_does_not_count(
    status: str | None, said: str, at: ClientStage, tmp_path: Path
) -> None:
    """Its pod may still say that it is ready."""
    install(at)
    at.server.create("nodes", node_object("n3", "2030-01-01T00:00:00Z"))
    if status is None:
        at.server.delete("nodes", "n2")
    else:
        at.server.patch("nodes", "n2", {"status": {"conditions": [{"type": "Ready", "status": status}]}})
    found = (await findings(tmp_path))["replicas"]
    assert (found["state"], found["found"]) == ("wrong", f"2 replicas, 1 ready, on 1 node; two: its node n2 {said}")
    assert found["advice"] == "until another one runs, the loss of node n1 stops evictions"


async def test_a_lost_node_is_no_sign_of_a_cluster_of_one_node(at: ClientStage, tmp_path: Path) -> None:
    """Only one is left of two."""
    install(at)
    for node in at.server.list("nodes"):
        if node["metadata"]["name"] != "n1":
            at.server.delete("nodes", node["metadata"]["name"])
    found = (await findings(tmp_path))["replicas"]
    assert found["state"] == "wrong"
    assert found["found"].endswith("two: its node n2 is gone")


async def test_an_installation_elsewhere_may_take_over_from_the_built_in_controller(
    at: ClientStage, tmp_path: Path
) -> None:
    """To switch the built-in one off, as for two that both evict, is no advice then."""
    add_replica(at, "one", "n1", __version__, "--adopt")
    add_manager(at)
    found = await findings(tmp_path, "-n", "elsewhere")
    assert found["installations"]["advice"].endswith(f"--lease-namespace {NAMESPACE} --lease-name {NAME}")
    assert found["built-in controller"] == {
        "check": "built-in controller",
        "state": "ok",
        "found": f"active, and countdowns are taken over from it by the installation of Lease {NAMESPACE}/{NAME}",
        "advice": "",
    }


async def test_one_replica_is_enough_for_a_dry_run(at: ClientStage, tmp_path: Path) -> None:
    """It evicts nobody, so its loss stops nothing, and nobody must be told."""
    add_replica(at, "one", "n1", __version__, "--dry-run")
    found = await findings(tmp_path)
    assert found["replicas"]["found"] == "1 replica, 1 ready, on 1 node; a dry run needs no second one"
    assert (found["replicas"]["state"], found["alerts"]["found"]) == ("ok", "a dry run needs none")


async def test_a_holder_that_says_that_it_does_not_lead_is_wrong(at: ClientStage, tmp_path: Path) -> None:
    """Somebody else may have written its name into the Lease."""
    install(at)
    async with answering(leading=False) as port:
        found = (await findings(tmp_path, port=port))["leader"]
    assert found["state"] == "wrong"
    assert found["found"].endswith(" names one_1, and one says that it does not lead")


async def test_the_last_line_counts_what_is_right_wrong_and_unchecked(at: ClientStage, tmp_path: Path) -> None:
    """JSON has the same numbers."""
    install(at)
    assert (await doctor(tmp_path)).stdout.splitlines()[-1] == "10 ok, 0 wrong, 1 unchecked"
    document = json.loads((await doctor(tmp_path, "-o", "json")).stdout)
    assert document["summary"] == {"ok": 10, "wrong": 0, "unchecked": 1}


async def test_strict_fails_where_something_is_unchecked(at: ClientStage, tmp_path: Path) -> None:
    """For a pipeline that has all rights."""
    install(at)
    assert (await doctor(tmp_path)).exit_code == 0
    assert (await doctor(tmp_path, "--strict")).exit_code == 1


async def test_what_is_wrong_is_reported_with_advice(at: ClientStage, tmp_path: Path) -> None:
    """The output is a table, and the exit code is 1."""
    add_replica(at, "one", "n1")
    add_lease(at, NAME)
    result = await doctor(tmp_path)
    assert result.exit_code == 1
    assert "wrong     replicas             1 replica, 1 ready, on 1 node\n" in result.stdout
    assert "ok        answers              1 replica serves status and metrics\n" in result.stdout
    assert "→ the loss of that node stops evictions" in result.stdout


async def test_a_controller_of_another_version_is_said_to_be_one(at: ClientStage, tmp_path: Path) -> None:
    """As after a rollback: the command looks for what its own version needs."""
    install(at)
    for name in ("one", "two"):
        at.server.patch("pods", name, {"metadata": {"labels": {"app.kubernetes.io/version": "0.1.0"}}}, NAMESPACE)
    found = (await findings(tmp_path))["versions"]
    assert found["state"] == "unchecked"
    assert found["found"] == f"Kubernetes v1.36.2+simulation, controller 0.1.0, this command {__version__}"


async def test_a_missing_right_is_named(at: ClientStage, tmp_path: Path) -> None:
    """The right is that of the controller's service account, not that of the user."""
    install(at)
    at.server.faults.clear()
    at.server.faults.add(path=REVIEWS, status=201, message=DENIED, plain_text=True)
    found = await findings(tmp_path)
    assert found["rights"]["state"] == "wrong"
    assert "may not get nodes, list nodes, watch nodes" in found["rights"]["found"]
    users = {entry.body["spec"].get("user") for entry in at.server.requests.select(verb="create") if entry.body}
    assert f"system:serviceaccount:{NAMESPACE}:{NAME}" in users


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--controllers=*,bootstrapsigner"],
        ["--controllers=taint-eviction-controller,nodelifecycle"],
        [SWITCHED_OFF, "--feature-gates=SeparateTaintEvictionController=false"],
    ],
)
async def test_an_active_built_in_controller_is_reported_as_wrong(
    at: ClientStage, tmp_path: Path, flags: list[str]
) -> None:
    """It may be active by default, by the asterisk, by name, or as a part of the node lifecycle controller."""
    add_replica(at, "one", "n1")
    add_manager(at, *flags)
    found = await findings(tmp_path)
    assert found["built-in controller"]["state"] == "wrong"
    assert "-taint-eviction-controller" in found["built-in controller"]["advice"]


async def test_the_built_in_controller_may_be_active_beside_a_dry_run(at: ClientStage, tmp_path: Path) -> None:
    """A dry run is meant to be compared with the built-in controller, and adopts nothing."""
    add_replica(at, "one", "n1", __version__, "--dry-run", "--adopt")
    add_manager(at)
    found = await findings(tmp_path)
    assert found["built-in controller"]["state"] == "ok"
    assert "adoption" not in found


async def test_another_installation_is_reported_as_wrong(at: ClientStage, tmp_path: Path) -> None:
    """After a move to another namespace both would evict, and take countdowns over from each other."""
    install(at)
    pod = pod_object("taint-eviction", "controller-1", "n1")
    pod["metadata"]["labels"] = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
    at.server.create("pods", pod)
    result = await doctor(tmp_path)
    assert result.exit_code == 1
    assert "there are others, of Leases taint-eviction/taint-eviction-controller" in result.stdout


async def test_another_installation_that_does_not_run_does_not_evict(at: ClientStage, tmp_path: Path) -> None:
    """Its only replica is Pending: it evicts nothing yet, but will."""
    install(at)
    pod = pod_object("taint-eviction", "controller-1", "")
    pod["metadata"]["labels"] = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
    pod["status"] = {"phase": "Pending", "conditions": [UNSCHEDULED]}
    at.server.create("pods", pod)
    said = (await findings(tmp_path))["installations"]
    assert said["state"] == "wrong"
    waits = "no replica of taint-eviction/taint-eviction-controller runs (controller-1: Unschedulable: 0/1 nodes are"
    assert waits in said["found"]
    assert said["advice"].startswith("once each runs, both evict: hand back what the one to be removed")


async def test_beside_the_built_in_controller_a_replica_that_is_pending_evicts_nothing(
    at: ClientStage, tmp_path: Path
) -> None:
    """Whoever switched the built-in controller off now would have nobody that evicts."""
    add_replica(at, "one", "n1")
    add_manager(at)
    pod = at.server.get("pods", "one", NAMESPACE)
    assert pod is not None
    at.server.update("pods", {**pod, "status": {"phase": "Pending", "conditions": [UNSCHEDULED]}})
    found = await findings(tmp_path)
    assert found["built-in controller"]["found"].endswith("it evicts, and this controller does not run")


async def test_pods_that_only_say_that_they_are_a_controller_are_no_installation(
    at: ClientStage, tmp_path: Path
) -> None:
    """Whoever may create pods in some namespace may write these labels and flags: its account may not delete pods."""
    at.server.faults.clear()
    at.server.faults.add(path=REVIEWS, status=201, message=DENIED, plain_text=True)
    add_replica(at, "one", "n1")
    add_manager(at)
    pod = pod_object("tenant", "controller-1", "n1")
    pod["metadata"]["labels"] = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
    pod["spec"] |= {"serviceAccountName": "default"}
    pod["spec"]["containers"][0]["args"] = ["run", "--adopt"]
    at.server.create("pods", pod)
    found = await findings(tmp_path)
    assert "installations" not in found
    assert found["built-in controller"]["advice"].startswith("both evict")


def add_mirror_pod(at: ClientStage, name: str, node: str, *arguments: str) -> None:
    """Create a pod as a kubelet's credential may in any namespace: with any labels and flags, without an account."""
    add_replica(at, name, node, __version__, *arguments)
    pod = at.server.get("pods", name, NAMESPACE) or {}
    at.server.delete("pods", name, NAMESPACE, grace_period_seconds=0)
    del pod["spec"]["serviceAccountName"]
    metadata = {field: pod["metadata"][field] for field in ("name", "namespace", "labels")}
    pod["metadata"] = {**metadata, "annotations": {"kubernetes.io/config.mirror": "x"}}
    at.server.create("pods", pod)


async def test_a_mirror_pod_beside_a_deployment_is_no_replica(at: ClientStage, tmp_path: Path) -> None:
    """Whoever has a kubelet's credential would choose which Lease, ConfigMap and account are looked at."""
    install(at)
    add_mirror_pod(at, "a-mirror", "n1", "--adopt", "--breaker", "--leader-elect-resource-name=mine")
    said = " ".join((await doctor(tmp_path)).stdout.split())
    for found in ("ok replicas 2 replicas, 2 ready, on 2 nodes", "ok leader one_1", "ok guards none is on"):
        assert found in said
    assert f"pods in {NAMESPACE}: pod a-mirror on node n1 has no account, as others have, and is left out" in said


async def test_a_mirror_pod_is_no_second_replica(at: ClientStage, tmp_path: Path) -> None:
    """The loss of the one replica's node stops evictions, whatever pod is Ready elsewhere."""
    install(at)
    at.server.delete("pods", "two", NAMESPACE, grace_period_seconds=0)
    add_mirror_pod(at, "two", "n2")
    assert (await findings(tmp_path))["replicas"]["found"] == "1 replica, 1 ready, on 1 node"


async def test_replicas_of_two_versions_are_reported_as_wrong(at: ClientStage, tmp_path: Path) -> None:
    """A rollout has not finished; both versions are named."""
    add_replica(at, "one", "n1", "0.1.0")
    add_replica(at, "two", "n2", "0.0.9")
    found = (await findings(tmp_path))["versions"]
    assert (found["state"], found["found"]) == ("wrong", "replicas of versions 0.0.9 and 0.1.0")


@pytest.mark.parametrize(("ahead", "said"), [(30.0, r"(30|31) s ahead of"), (-30.0, r"(29|30) s behind")])
async def test_a_wrong_clock_of_kube_controller_manager_is_reported(
    at: ClientStage, tmp_path: Path, ahead: float, said: str
) -> None:
    """The check compares the renewTime in its Lease with the time at which the API server wrote the Lease."""
    add_lease(at, "kube-controller-manager", ahead)
    found = (await findings(tmp_path))["clock"]
    assert found["state"] == "wrong"
    assert re.search(said, found["found"])


async def test_a_replica_that_does_not_answer_is_named(at: ClientStage, tmp_path: Path) -> None:
    """The metrics of such a replica cannot be scraped, either."""
    install(at)
    found = (await findings(tmp_path, port=1))["answers"]
    assert found["state"] == "wrong"
    assert "--listen" in found["advice"]


async def test_a_403_from_a_proxy_is_not_reported_as_a_missing_right(at: ClientStage, tmp_path: Path) -> None:
    """A service mesh beside the pod may answer 403, and Prometheus then gets the same answer."""
    install(at)
    at.server.faults.add(resource="pods/proxy", status=403, message="RBAC: access denied", plain_text=True)
    found = (await findings(tmp_path))["answers"]
    assert found["state"] == "wrong"
    assert found["found"].endswith(": RBAC: access denied (HTTP 403)")


async def test_a_missing_right_to_call_replicas_is_named(at: ClientStage, tmp_path: Path) -> None:
    """Without this right, it is unknown whether replicas answer."""
    install(at)
    at.server.faults.add(resource="pods/proxy", status=403)
    found = (await findings(tmp_path))["answers"]
    assert (found["state"], "the right to get pods/proxy" in found["found"]) == ("unchecked", True)


async def test_checks_without_rights_are_reported_as_unchecked(at: ClientStage, tmp_path: Path) -> None:
    """Nothing of the installation could be checked, so the exit code is 3."""
    install(at)
    at.server.faults.clear()
    for path in ("/pods", "/leases", REVIEWS):
        at.server.faults.add(path=path, status=403, message="no")
    found = await findings(tmp_path)
    unchecked = {check for check, each in found.items() if each["state"] == "unchecked"}
    assert unchecked == {
        *("replicas", "installations", "leader", "rights", "built-in controller", "admission policy", "clock"),
        *("answers", "alerts"),
    }
    assert found["replicas"]["found"].startswith(f"pods in {NAMESPACE} cannot be read: ")


async def test_a_controller_that_cannot_be_seen_is_not_reported_as_absent(at: ClientStage, tmp_path: Path) -> None:
    """The rights of the user are not checked instead of those of the controller."""
    install(at)
    at.server.faults.add(verb="list", resource="pods", status=403, message="no")
    found = await findings(tmp_path)
    assert found["versions"]["found"].endswith(", controller unknown")
    assert found["rights"]["state"] == "unchecked"
    assert found["rights"]["found"].startswith("the controller's account is not known: pods in ")


async def test_an_api_server_that_is_down_exits_3(tmp_path: Path) -> None:
    """The error says that the server cannot be reached."""
    async with client_stage(tmp_path):
        pass
    result = await doctor(tmp_path)
    assert result.exit_code == 3
    assert "cannot be reached" in result.stderr


def add_marked(at: ClientStage, name: str = "web", note: str = "[]") -> None:
    """Create a pod whose countdown was taken over; ``note`` "": its note is gone."""
    pod = pod_object("shop", name, "n1")
    pod["spec"]["tolerations"] = [
        {"key": "down", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": MARK_SECONDS}
    ]
    if note:
        pod["metadata"]["annotations"] = {"taint-eviction/seconds": note}
    at.server.create("pods", pod)


def write_state(at: ClientStage, **data: str) -> None:
    """Create the state ConfigMap."""
    body = {"metadata": {"name": NAME, "namespace": "kube-system"}, "data": data}
    at.server.create("configmaps", body)


async def test_adoption_needs_a_right(at: ClientStage, tmp_path: Path) -> None:
    """With adoption, the built-in controller is expected to be active."""
    add_replica(at, "one", "n1", __version__, "--adopt")
    add_replica(at, "two", "n2", __version__, "--adopt")
    add_lease(at, NAME)
    add_manager(at)
    found = await findings(tmp_path)
    assert found["built-in controller"]["state"] == "ok"
    made = at.server.requests.select(verb="create")
    asked = [entry.body["spec"]["resourceAttributes"] for entry in made if entry.body]
    assert ("patch", "pods", "") in {(each["verb"], each["resource"], each["subresource"]) for each in asked}
    add_marked(at)
    adoption = (await findings(tmp_path))["adoption"]
    assert (adoption["state"], adoption["found"]) == ("ok", "the countdowns of 1 pod are taken over")


async def test_adoption_is_recognized_in_the_environment_too(at: ClientStage, tmp_path: Path) -> None:
    """Each flag of the controller can be set by a variable."""
    add_replica(at, "one", "n1", variables={"TAINT_EVICTION_ADOPT": "true"})
    assert "adoption" in await findings(tmp_path)


async def test_adoption_is_not_fine_while_hand_back_has_ended_it(at: ClientStage, tmp_path: Path) -> None:
    """The order outlasts the command, and both controllers evict again."""
    add_replica(at, "one", "n1", __version__, "--adopt")
    add_lease(at, NAME)
    add_manager(at)
    write_state(at, **{"no-adoption": "true"})
    said = await findings(tmp_path)
    found = said["adoption"]
    assert (found["state"], found["found"]) == ("wrong", "hand-back was ordered: no countdown is taken over")
    assert said["built-in controller"]["state"] == "wrong"


async def test_marked_pods_without_a_leader_are_reported(at: ClientStage, tmp_path: Path) -> None:
    """No controller evicts these pods, since the built-in one has forgotten them."""
    add_replica(at, "one", "n1", __version__, "--adopt")
    add_marked(at)
    found = (await findings(tmp_path))["adoption"]
    assert found["state"] == "wrong"
    assert found["found"] == "no replica leads, so pods whose countdowns are taken over are not evicted"
    assert found["advice"].endswith("taint-eviction hand-back")


async def test_marked_pods_of_a_controller_that_does_not_adopt_are_reported(at: ClientStage, tmp_path: Path) -> None:
    """Such a controller gives them back where it has the right to."""
    install(at)
    add_marked(at)
    write_state(at, adopts="true")
    found = (await findings(tmp_path))["adoption"]
    assert found["state"] == "wrong"
    assert found["found"] == "the countdowns of 1 pod (shop/web) are taken over, and no replica adopts"
    assert "the leader gives them back" in found["advice"]
    assert "taint-eviction hand-back" in found["advice"]


async def test_marked_pods_that_nothing_records_may_be_a_tenants(at: ClientStage, tmp_path: Path) -> None:
    """Whoever may write a pod may write its annotation, also where nobody has ever adopted."""
    install(at)
    add_marked(at)
    write_state(at)
    advice = (await findings(tmp_path))["adoption"]["advice"]
    assert "does not say that any was taken over: a tenant may have written the annotation" in advice
    assert "taint-eviction hand-back" in advice


@pytest.mark.parametrize("installed", [False, True])
async def test_marked_pods_of_another_installation_are_not_reported(
    at: ClientStage, tmp_path: Path, installed: bool
) -> None:
    """It adopts, so it evicts them; handing them back would end what is wanted."""
    if installed:
        install(at)
    add_marked(at)
    pod = pod_object("taint-eviction", "controller-1", "n1")
    pod["metadata"]["labels"] = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
    pod["spec"]["containers"][0]["args"] = ["run", "--adopt"]
    at.server.create("pods", pod)
    found = (await findings(tmp_path))["adoption"]
    said = (
        "the countdowns of 1 pod are taken over by the installation of Lease taint-eviction/taint-eviction-controller"
    )
    assert (found["state"], found["found"]) == ("ok", said)


async def test_a_mark_of_unknown_origin_is_reported_where_somebody_adopts(at: ClientStage, tmp_path: Path) -> None:
    """A tenant may write MaxInt64, too; where nobody adopts, nobody asks."""
    install(at)
    add_marked(at, note="")
    assert "adoption" not in await findings(tmp_path)
    write_state(at, adopts="true")
    found = (await findings(tmp_path))["adoption"]
    assert found["found"].startswith("1 pod (shop/web) tolerates a taint for 9223372036854775807 s")


@pytest.mark.parametrize("field", ["labels", "annotations"])
async def test_pods_that_version_0_2_0_has_adopted_are_reported(at: ClientStage, tmp_path: Path, field: str) -> None:
    """This version reads neither its label nor its annotation, which may be lost apart."""
    install(at)
    pod = pod_object("shop", "old", "n1")
    pod["metadata"][field] = {"taint-eviction/adopted": "controller"}
    at.server.create("pods", pod)
    found = (await findings(tmp_path))["adoption"]
    assert (found["state"], found["found"]) == ("wrong", "version 0.2.0 has adopted 1 pod (shop/old)")
    assert "hand-back of version 0.2.0" in found["advice"]


async def test_the_policy_of_version_0_2_0_at_creation_is_reported(at: ClientStage, tmp_path: Path) -> None:
    """It outlives its controller; policies of others are no business of the command."""
    install(at)
    policies = [{"metadata": {"name": name}} for name in ("somebody-elses", f"prefix-{NAME}-adopt")]
    at.server.faults.add(
        path="mutatingadmissionpolicies", status=200, message=json.dumps({"items": policies}), plain_text=True
    )
    found = (await findings(tmp_path))["adoption"]
    said = f"MutatingAdmissionPolicy prefix-{NAME}-adopt of version 0.2.0 is there: new pods stay for ever"
    assert (found["state"], found["found"]) == ("wrong", said)
    assert "remove its policy" in found["advice"]


def environment(**variables: str) -> list[dict[str, Any]]:
    """Return the environment of a container, with one more variable from a Secret."""
    written = [{"name": f"TAINT_EVICTION_{name}", "value": value} for name, value in variables.items()]
    return [*written, {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]


def add_replica_with(at: ClientStage, name: str, node: str, **variables: str) -> None:
    """Create a pod of the controller that has variables in its environment."""
    add_replica(at, name, node)
    spec = at.server.get("pods", name, NAMESPACE)["spec"]  # type: ignore[index]
    spec["containers"][0]["env"] = environment(**variables)
    at.server.delete("pods", name, NAMESPACE, grace_period_seconds=0)
    pod = pod_object(NAMESPACE, name, node)
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
    pod["metadata"]["labels"] = labels
    at.server.create("pods", {**pod, "spec": spec, "status": {"phase": "Running"}})


@pytest.mark.parametrize(("value", "state"), [("true", "ok"), ("1", "ok"), ("false", "wrong"), ("", "wrong")])
async def test_a_dry_run_is_recognized_in_the_environment(
    at: ClientStage, tmp_path: Path, value: str, state: str
) -> None:
    """The built-in controller may be active beside a dry run."""
    add_replica_with(at, "one", "n1", DRY_RUN=value)
    add_manager(at)
    assert (await findings(tmp_path))["built-in controller"]["state"] == state


@pytest.mark.parametrize(
    "variables",
    [
        {"LEADER_ELECT_RESOURCE_NAME": "mine", "LEADER_ELECT_RESOURCE_NAMESPACE": NAMESPACE},
        {"LEADER_ELECT_RESOURCE_NAME": "mine"},
    ],
)
async def test_the_checked_lease_is_that_in_the_environment_of_the_pods(
    at: ClientStage, tmp_path: Path, variables: dict[str, str]
) -> None:
    """The user need not know its name."""
    add_replica_with(at, "one", "n1", **variables)
    add_lease(at, "mine")
    assert (await findings(tmp_path))["leader"]["found"] == "one_1"
    assert (await findings(tmp_path, "--lease-name", "mine"))["leader"]["found"] == "one_1"


async def test_the_checked_lease_is_that_in_the_arguments_of_the_pods(at: ClientStage, tmp_path: Path) -> None:
    """The arguments may have the name as a separate word or after an equals sign."""
    add_replica(at, "one", "n1", __version__, "--leader-elect-resource-name", "mine")
    add_replica(at, "two", "n2", __version__, "--leader-elect-resource-name=mine")
    add_lease(at, "mine")
    assert (await findings(tmp_path))["leader"]["state"] == "ok"


async def test_replicas_with_two_leases_are_reported_as_wrong(at: ClientStage, tmp_path: Path) -> None:
    """The holder of each Lease leads and evicts."""
    add_replica(at, "one", "n1")
    add_replica(at, "two", "n2", __version__, "--leader-elect-resource-name=other")
    found = (await findings(tmp_path))["leader"]
    assert (found["state"], found["found"]) == ("wrong", f"replicas of Leases {NAMESPACE}/other and {NAMESPACE}/{NAME}")


@pytest.mark.parametrize(
    ("spec", "ahead", "said"),
    [
        ({"leaseDurationSeconds": 2**31 - 1}, 0.0, "is held by one_1 for 2147483647 s (leaseDurationSeconds)"),
        ({"holderIdentity": "thief_1", "leaseDurationSeconds": 2**31 - 1}, -86_450.0, "was renewed 864"),
        ({"holderIdentity": "thief_1"}, 0.0, "is held by thief_1, which is none of the replicas (one, two)"),
        ({"holderIdentity": "thief"}, 0.0, "is held by thief, which is none of the replicas (one, two)"),
        ({}, 2e9, " s in the future"),
    ],
)
async def test_a_lease_that_no_replica_has_written_so_is_reported_as_wrong(
    at: ClientStage, tmp_path: Path, spec: dict[str, Any], ahead: float, said: str
) -> None:
    """Whoever may write it can stop all evictions for 68 years."""
    install(at)
    at.server.delete("leases", NAME, NAMESPACE)
    add_lease(at, NAME, ahead)
    at.server.patch("leases", NAME, {"spec": spec}, NAMESPACE)
    found = (await findings(tmp_path))["leader"]
    assert found["state"] == "wrong"
    assert found["found"].startswith(f"the Lease {NAMESPACE}/{NAME} ")
    assert said in found["found"]
    # Replicas that have seen it wait for it even after it is deleted.
    if "was renewed" not in said:
        at_last = f"kubectl -n {NAMESPACE} delete lease {NAME}, then kubectl -n {NAMESPACE} delete pod one two"
        assert at_last in found["advice"]


@pytest.mark.parametrize("names", [("LEASE_NAME", "LEASE_NAMESPACE"), ("STATE_NAME", "STATE_NAMESPACE")])
async def test_the_lease_is_found_by_the_variables_of_the_other_commands(
    at: ClientStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    """These are the variables of ``status`` and ``pause``, with their older names as well."""
    add_replica(at, "one", "n1", __version__, "--leader-elect-resource-name=mine")
    add_lease(at, "mine")
    for name, value in zip(names, ("mine", NAMESPACE), strict=True):
        monkeypatch.setenv(f"TAINT_EVICTION_{name}", value)
    connection = CliRunner().invoke
    env = {"KUBECONFIG": str(tmp_path / "config")}
    result = await asyncio.to_thread(connection, cli, ["doctor", "-o", "json"], env=env, catch_exceptions=False)
    found = {each["check"]: each for each in json.loads(result.stdout)["findings"]}
    assert found["leader"]["found"] == "one_1"


async def test_a_malformed_pod_is_named_and_the_others_are_checked(at: ClientStage, tmp_path: Path) -> None:
    """An aggregated API server or a proxy may send such an answer."""
    install(at)
    good = at.server.get("pods", "one", NAMESPACE)
    bad: list[Any] = [
        None,
        {"metadata": {"name": "odd", "namespace": NAMESPACE}, "spec": {"containers": 3}},
        {"metadata": []},
    ]
    body = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [*bad, good]})
    at.server.faults.add(verb="list", resource="pods", status=200, message=body, plain_text=True)
    result = await doctor(tmp_path)
    pods = f"pods in {NAMESPACE}: "
    assert f"{pods}items[0] is malformed: " in result.stdout
    assert f"{pods}pod odd is malformed: spec.containers is not a list" in result.stdout
    assert f"{pods}items[2] is malformed: metadata is not an object" in result.stdout
    assert "1 replica, 1 ready, on 1 node" in result.stdout


@pytest.mark.parametrize("body", ["[]", '{"items": 3}', '"words"', "null"])
async def test_an_answer_that_is_no_list_is_reported(at: ClientStage, tmp_path: Path, body: str) -> None:
    """The command does not end with a traceback."""
    install(at)
    for resource in ("pods", "leases"):
        at.server.faults.add(resource=resource, status=200, message=body, plain_text=True)
    result = await doctor(tmp_path)
    assert result.exit_code in (0, 1, 3)
    assert "unchecked replicas" in result.stdout or "wrong     replicas" in result.stdout


async def test_the_namespace_flag_names_the_namespace_of_the_controller(at: ClientStage, tmp_path: Path) -> None:
    """The flag is -n, as for kubectl."""
    install(at)
    assert (await findings(tmp_path, "-n", NAMESPACE))["leader"]["state"] == "ok"
    assert (await findings(tmp_path, "-n", "elsewhere"))["leader"]["state"] == "unchecked"


@pytest.mark.parametrize("kind", ["LEASE", "STATE"])
@pytest.mark.parametrize(("name", "state"), [("other", "wrong"), (NAME, "ok")])
async def test_variables_of_the_pods_that_name_another_lease_are_reported_as_wrong(
    at: ClientStage, tmp_path: Path, kind: str, name: str, state: str
) -> None:
    """Commands run in such a pod use another controller's state; the controller itself reads neither variable."""
    variables = {f"{kind}_NAME": name, f"{kind}_NAMESPACE": NAMESPACE}
    add_replica_with(at, "one", "n1", **variables)
    add_lease(at, NAME)
    found = (await findings(tmp_path))["leader"]
    assert found["state"] == state
    if state == "wrong":
        assert found["found"] == f"one elects by Lease {NAMESPACE}/{NAME}, and its variables name {NAMESPACE}/{name}"
        assert "TAINT_EVICTION_LEADER_ELECT_RESOURCE_NAME" in found["advice"]


# ---- the admission policy


async def test_the_policy_that_narrows_the_account_is_named(at: ClientStage, tmp_path: Path) -> None:
    """The binding names the account of the replicas."""
    install(at)
    found = (await findings(tmp_path))["admission policy"]
    account = f"system:serviceaccount:{NAMESPACE}:{NAME}"
    assert (found["state"], found["found"]) == ("ok", f"{ADMISSION_POLICY} narrows {account}")


async def test_a_policy_for_another_account_narrows_nothing(at: ClientStage, tmp_path: Path) -> None:
    """A prefix that reached the account and not the binding would leave the account with all that RBAC allows."""
    add_replica(at, "one", "n1")
    add_admission_policy(at, "prefix-" + NAME)
    found = (await findings(tmp_path))["admission policy"]
    named = f"system:serviceaccount:{NAMESPACE}:prefix-{NAME}"
    assert found["state"] == "wrong"
    assert found["found"].endswith(f":{NAME}; {ADMISSION_POLICY} narrows {named}")


async def test_a_policy_that_only_warns_narrows_nothing(at: ClientStage, tmp_path: Path) -> None:
    """Its binding must refuse."""
    add_replica(at, "one", "n1")
    add_admission_policy(at, action="Warn")
    assert (await findings(tmp_path))["admission policy"]["state"] == "wrong"


async def test_a_static_pods_policy_names_its_user(at: ClientStage, tmp_path: Path) -> None:
    """A static pod has no account, so the policy compares the user's name."""
    add_replica(at, "one", "n1")
    for pod in at.server.list("pods"):
        del pod["spec"]["serviceAccountName"]
        at.server.update("pods", pod)
    condition = {"name": "a", "expression": f"request.userInfo.username == '{NAME}'"}
    add_admission_policy(at, "", matchConditions=[condition])
    found = (await findings(tmp_path))["admission policy"]
    assert (found["state"], found["found"]) == ("ok", f"{ADMISSION_POLICY} narrows {NAME}")


async def test_a_cluster_without_admission_policies_has_none_to_check(at: ClientStage, tmp_path: Path) -> None:
    """Kubernetes has the kind since 1.30."""
    add_replica(at, "one", "n1")
    assert (await findings(tmp_path))["admission policy"]["state"] == "unchecked"


def told(account: Any, in_force: Any) -> dict[str, Any]:
    """Return the part of a replica's status about the admission policy."""
    return {"admissionPolicy": {"account": account, "inForce": in_force}}


async def test_the_name_that_a_replica_has_at_the_api_server_is_compared(at: ClientStage, tmp_path: Path) -> None:
    """A kubeconfig may give it another account than its pod's spec."""
    install(at)
    async with answering(**told("system:serviceaccount:other:one", True)) as port:
        found = (await findings(tmp_path, port=port))["admission policy"]
    assert found["state"] == "wrong"
    assert found["found"].startswith("no admission policy narrows system:serviceaccount:other:one; ")


async def test_a_policy_that_replicas_found_not_in_force_is_wrong(at: ClientStage, tmp_path: Path) -> None:
    """Its names are right, and it refuses nothing all the same."""
    install(at)
    async with answering(**told(f"system:serviceaccount:{NAMESPACE}:{NAME}", False)) as port:
        found = (await findings(tmp_path, port=port))["admission policy"]
    assert found["state"] == "wrong"
    assert found["found"].endswith("but one, two found it not in force")


async def test_without_the_right_to_read_policies_the_replicas_word_counts(at: ClientStage, tmp_path: Path) -> None:
    """They have tried it."""
    at.server.faults.add(path="validatingadmissionpolicybindings", status=403)
    add_replica(at, "one", "n1")
    account = f"system:serviceaccount:{NAMESPACE}:{NAME}"
    async with answering(**told(account, True)) as port:
        found = (await findings(tmp_path, port=port))["admission policy"]
    assert (found["state"], found["found"]) == ("ok", f"in force for {account}, as the replicas found")
    async with answering(**told(account, None)) as port:
        assert (await findings(tmp_path, port=port))["admission policy"]["state"] == "unchecked"


@pytest.mark.parametrize("answer", [{"admissionPolicy": 7}, told([], True), told({"a": 1}, "yes")])
async def test_what_a_replica_says_may_be_anything(answer: dict[str, Any], at: ClientStage, tmp_path: Path) -> None:
    """Then its spec says whose account it has."""
    install(at)
    async with answering(**answer) as port:
        assert (await findings(tmp_path, port=port))["admission policy"]["state"] == "ok"


# ---- guards that another overlay has switched off


def add_state(at: ClientStage, name: str = NAME, **data: str) -> None:
    """Create the ConfigMap with the control state, or another one."""
    at.server.create("configmaps", {"metadata": {"name": name, "namespace": NAMESPACE}, "data": data})


LEFT_BEHIND = [
    ({"breaker": '{"open":false}'}, "--breaker", "no replica has --breaker"),
    ({"adopts": "true"}, "--adopt", "no replica has --adopt"),
]


@pytest.mark.parametrize(("data", "flag", "said"), LEFT_BEHIND)
async def test_a_record_of_a_guard_that_is_off_is_wrong(
    data: dict[str, str], flag: str, said: str, at: ClientStage, tmp_path: Path
) -> None:
    """Another overlay was applied over the one with the guard; the same record is right where the guard is on."""
    add_state(at, **data)
    add_replica(at, "one", "n1")
    found = (await findings(tmp_path))["guards"]
    assert (found["state"], said in found["found"]) == ("wrong", True)
    at.server.delete("pods", "one", NAMESPACE)
    add_replica(at, "two", "n2", __version__, flag)
    assert (await findings(tmp_path))["guards"]["state"] == "ok"


@pytest.mark.parametrize("data", [[None], "text", 7])
async def test_a_config_map_that_is_malformed_leaves_a_check_out(data: object, at: ClientStage, tmp_path: Path) -> None:
    """A proxy may answer anything. The other checks are made."""
    add_replica(at, "one", "n1")
    body = {"kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE, "resourceVersion": "1"}}
    text = json.dumps({**body, "data": data})
    at.server.faults.add(verb="get", resource="configmaps", status=200, message=text, plain_text=True)
    found = await findings(tmp_path)
    assert (found["guards"]["state"], found["replicas"]["state"]) == ("unchecked", "wrong")
    assert "malformed: data is not an object" in found["guards"]["found"]


async def test_a_policy_file_that_no_replica_reads_is_wrong(at: ClientStage, tmp_path: Path) -> None:
    """Its rules have no effect."""
    add_state(at, "taint-eviction-policy", **{"policy.yaml": "rules: []"})
    add_replica(at, "one", "n1")
    found = (await findings(tmp_path))["guards"]
    assert (found["state"], "no replica has --config" in found["found"]) == ("wrong", True)
    at.server.delete("pods", "one", NAMESPACE)
    add_replica(at, "two", "n2", __version__, "--config=/etc/taint-eviction/policy.yaml", "--breaker")
    found = (await findings(tmp_path))["guards"]
    assert found["found"] == "circuit breaker and policy file on, and nothing is left of others"


async def test_mode_evict_keeps_the_pods_of_dead_nodes_unless_somebody_has_decided(
    at: ClientStage, tmp_path: Path
) -> None:
    """Whatever they have decided; other modes need no decision."""
    add_replica(at, "one", "n1", __version__, "--eviction-mode=evict")
    found = (await findings(tmp_path))["budgets"]
    assert (found["state"], "--budgets-on-lost-nodes=ignore" in found["advice"]) == ("wrong", True)
    for name, words, variables in (
        ("two", ["--mode", "evict", "--budgets-on-lost-nodes=ignore"], {}),
        ("three", [], {"TAINT_EVICTION_EVICTION_MODE": "evict", "TAINT_EVICTION_BUDGETS_ON_LOST_NODES": "respect"}),
    ):
        for pod in at.server.list("pods"):
            at.server.delete("pods", pod["metadata"]["name"], NAMESPACE)
        add_replica(at, name, "n2", __version__, *words, variables=variables)
        assert (await findings(tmp_path))["budgets"]["state"] == "ok"
    at.server.delete("pods", "three", NAMESPACE)
    add_replica(at, "four", "n2", __version__, "--eviction-mode=evict-then-delete")
    assert "budgets" not in await findings(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "pause-selector.1",
            {"selector": "pool=gpux"},
            "evictions from nodes that match pool=gpux are paused, and there is no such node",
        ),
        (
            "pause-selector.1",
            {"selector": "topology.kubernetes.io/zone=b"},
            "evictions from nodes in zone b are paused, and there is no such node",
        ),
        ("pause-node.gone", {}, "evictions from node gone are paused, and there is no such node"),
        ("pause-namespace.gone", {}, "evictions in namespace gone are paused, and there is no such namespace"),
    ],
)
async def test_a_pause_of_what_is_not_there_is_wrong(
    at: ClientStage, tmp_path: Path, key: str, value: dict[str, str], said: str
) -> None:
    """A misspelt selector holds nothing, which nobody notices before pods leave."""
    add_replica(at, "one", "n1")
    add_state(at, format="2", **{key: json.dumps(value), "pause-node.n1": "true"})
    found = (await findings(tmp_path))["pauses"]
    assert (found["state"], found["found"]) == ("wrong", said)


async def test_what_is_paused_is_named_and_is_right(at: ClientStage, tmp_path: Path) -> None:
    """People have ordered it; a pause that has ended is none, and nothing is said where nothing is paused."""
    add_replica(at, "one", "n1")
    assert "pauses" not in await findings(tmp_path)
    pauses = {
        "pause": "true",
        "pause-selector.1": '{"selector": "pool notin (gpu)"}',
        "pause-node.n1": '{"until": "2020-01-01T00:00:00Z"}',
    }
    add_state(at, format="2", **pauses)
    found = (await findings(tmp_path))["pauses"]
    said = "people have paused all evictions, evictions from nodes that match pool notin (gpu)"
    assert (found["state"], found["found"]) == ("ok", said)


@pytest.mark.parametrize(
    ("mode", "rules", "found"),
    [
        ("delete", "{name: db, match: {podSelector: app=db}, mode: evict}", "wrong"),
        ("delete", "{name: db, match: {podSelector: app=db}, mode: evict, pause: true}", None),
        ("delete", "{name: upgrades, match: {taintKeys: [maintenance]}, mode: evict}", None),
        ("evict", "{name: lost, match: {taintKeys: ['node.kubernetes.io/*']}, mode: delete}", None),
        (
            "evict",
            "{name: lost, match: {taintKeys: ['node.kubernetes.io/*'], namespaces: [db]}, mode: delete}",
            "wrong",
        ),
    ],
)
async def test_rules_of_the_policy_file_decide_whether_dead_nodes_keep_pods(
    at: ClientStage, tmp_path: Path, mode: str, rules: str, found: str | None
) -> None:
    """A mode that only other pods have, or that no lost node has, keeps none there."""
    text = f"apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules: [{rules}]\n"
    add_state(at, "taint-eviction-policy", **{"policy.yaml": text})
    flags = f"--eviction-mode={mode}", "--config=/etc/taint-eviction/policy.yaml"
    add_replica(at, "one", "n1", __version__, *flags)
    assert (await findings(tmp_path)).get("budgets", {}).get("state") == found


async def test_the_lease_is_named_after_the_account_where_the_manifests_say_so(at: ClientStage, tmp_path: Path) -> None:
    """The argument names a variable, and the variable is the name of the pod's account."""
    add_replica(at, "one", "n1", __version__, "--leader-elect-resource-name=$(TAINT_EVICTION_LEASE_NAME)")
    [pod] = at.server.list("pods")
    pod["spec"]["serviceAccountName"] = "prefix-" + NAME
    # The API server adds the version.
    account = {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.serviceAccountName"}}
    pod["spec"]["containers"][0]["env"] = [{"name": "TAINT_EVICTION_LEASE_NAME", "valueFrom": account}]
    at.server.update("pods", pod)
    assert (await findings(tmp_path))["leader"]["found"] == f"nobody holds the Lease {NAMESPACE}/prefix-{NAME}"


async def test_the_policy_file_is_looked_for_under_the_prefix_of_the_lease(at: ClientStage, tmp_path: Path) -> None:
    """Kustomize gives both the same prefix and suffix."""
    add_state(at, "x-taint-eviction-policy-y", **{"policy.yaml": "rules: []"})
    name = f"x-{NAME}-y"
    add_replica(at, "one", "n1", __version__, f"--leader-elect-resource-name={name}")
    found = (await findings(tmp_path))["guards"]
    assert (found["state"], f"ConfigMap {NAMESPACE}/x-taint-eviction-policy-y" in found["found"]) == ("wrong", True)


def add_right_to_adopt(at: ClientStage, namespace: str = NAMESPACE) -> None:
    """Bind the ClusterRole of components/adopt to the controller's account in a namespace."""
    name = f"{namespace}.{NAME}-adopt"
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    body = {"metadata": {"name": name}, "roleRef": {"name": name}, "subjects": [subject]}
    at.server.create("clusterrolebindings", body)


@pytest.mark.parametrize("running", [True, False])
async def test_a_right_to_patch_pods_that_nobody_needs_is_wrong(running: bool, at: ClientStage, tmp_path: Path) -> None:
    """Another overlay was applied over the one with adoption, and perhaps deleted since."""
    add_right_to_adopt(at)
    if running:
        install(at)
    found = (await findings(tmp_path))["adoption"]
    assert found["state"] == "wrong"
    assert found["found"] == (
        f"ClusterRoleBinding {NAMESPACE}.{NAME}-adopt grants the right to patch pods, and nobody adopts"
    )
    assert found["advice"].startswith(f"kubectl delete clusterrolebinding {NAMESPACE}.{NAME}-adopt;")


async def test_a_right_to_patch_pods_is_right_while_somebody_needs_it(at: ClientStage, tmp_path: Path) -> None:
    """A leader without --adopt gives back with it as long as the entry is there; another namespace's is not judged."""
    install(at)
    add_right_to_adopt(at, "elsewhere")
    assert "adoption" not in await findings(tmp_path)
    add_right_to_adopt(at)
    write_state(at, adopts="true")
    assert "adoption" not in await findings(tmp_path)


async def test_a_right_to_patch_pods_that_cannot_be_looked_for_is_unchecked(at: ClientStage, tmp_path: Path) -> None:
    """Whoever may not list ClusterRoleBindings learns that."""
    install(at)
    at.server.faults.add(resource="clusterrolebindings", status=403, message="no")
    assert (await findings(tmp_path))["adoption"]["state"] == "unchecked"


# ---- monitoring that is applied beside an overlay


def add_monitoring(at: ClientStage, namespace: str, *names: str) -> None:
    """Let the API server have a PodMonitor that looks in these namespaces, and alerts, in one namespace only."""
    monitor = {"spec": {"namespaceSelector": {"matchNames": list(names)}}}
    for kind, items in (("podmonitors", [monitor]), ("prometheusrules", [{}])):
        body = json.dumps({"items": items})
        at.server.faults.add(path=f"{namespace}/{kind}", status=200, message=body, plain_text=True)
        at.server.faults.add(path=f"/{kind}", status=200, message='{"items": []}', plain_text=True)


@pytest.mark.parametrize(("looks_in", "state"), [("elsewhere", "ok"), ("other", "wrong")])
async def test_monitoring_in_kube_system_counts_for_the_namespaces_that_it_names(
    at: ClientStage, tmp_path: Path, looks_in: str, state: str
) -> None:
    """The overlay puts it there, whatever namespace the controller is in."""
    add_replica(at, "one", "n1")
    [pod] = at.server.list("pods")
    metadata = {"name": "one", "namespace": "elsewhere", "labels": pod["metadata"]["labels"]}
    at.server.create("pods", {**pod, "metadata": metadata})
    add_monitoring(at, NAMESPACE, NAMESPACE, looks_in)
    found = (await findings(tmp_path, "--lease-namespace", "elsewhere"))["alerts"]
    assert found["state"] == state


STACK = {"matchLabels": {"release": "stack"}}


@pytest.mark.parametrize(
    ("labels", "spec", "state", "said"),
    [
        ({"release": "stack"}, {"podMonitorSelector": STACK, "ruleSelector": {}}, "ok", "PodMonitor and"),
        ({"release": "other"}, {"podMonitorSelector": STACK, "ruleSelector": {}}, "wrong", "selects release=stack"),
        ({}, {"podMonitorSelector": {}}, "wrong", "PrometheusRule: monitoring/k8s has no ruleSelector"),
        (
            {},
            {"podMonitorSelector": {}, "podMonitorNamespaceSelector": None, "ruleSelector": {}},
            "wrong",
            "PodMonitor: monitoring/k8s has no podMonitorNamespaceSelector, so that it looks in its own namespace only",
        ),
        (
            {},
            {"podMonitorSelector": {}, "podMonitorNamespaceSelector": STACK, "ruleSelector": {}},
            "wrong",
            "looks in namespaces with release=stack",
        ),
    ],
)
async def test_alerts_that_no_prometheus_selects_reach_nobody(
    at: ClientStage, tmp_path: Path, labels: dict[str, str], spec: dict[str, Any], state: str, said: str
) -> None:
    """The selectors of each Prometheus object are compared with the labels, and with the namespace and its labels."""
    install(at)
    spec = {"podMonitorNamespaceSelector": {}, "ruleNamespaceSelector": {}, **spec}
    prometheus = {"metadata": {"name": "k8s", "namespace": "monitoring"}, "spec": spec}
    item = {"metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels}}
    for kind, body in (("podmonitors", item), ("prometheusrules", item), ("prometheuses", prometheus)):
        listed = json.dumps({"items": [body]})
        at.server.faults.add(path=f"/{kind}", status=200, message=listed, plain_text=True)
    found = (await findings(tmp_path))["alerts"]
    assert (found["state"], said in found["found"]) == (state, True), found


@pytest.mark.parametrize(
    ("argument", "added"), [("--breaker", ""), ("--no-leader-elect", ", although no replica has --breaker")]
)
async def test_an_open_breaker_is_reported_above_all_where_no_replica_has_one(
    at: ClientStage, tmp_path: Path, argument: str, added: str
) -> None:
    """It holds all evictions in both cases."""
    install(at)
    add_replica(at, "three", "n3", __version__, argument)
    latch = '{"open": true, "since": "2030-01-01T00:00:00Z", "cause": "a wave", "controller": "one_1"}'
    metadata = {"name": NAME, "namespace": NAMESPACE}
    at.server.create("configmaps", {"metadata": metadata, "data": {"breaker": latch}})
    found = (await findings(tmp_path))["breaker"]
    opened = "the circuit breaker is open: no pod is evicted (since 2030-01-01 00:00:00 UTC, by one_1: a wave)"
    assert (found["state"], found["found"]) == ("wrong", opened + added)
    assert "see which pods a reset evicts: taint-eviction plan" in found["advice"]
    assert "taint-eviction breaker reset" in found["advice"]
