"""What blocks pods that stay Terminating, as users see it in ``explain``, ``status`` and ``status --stuck``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.stage.controlled import controlling
from tests.stage.objects import KEY, Json, add_nodes, add_pod, write_kubeconfig
from tests.stage.processes import CommandResult, invoked
from tests.stage.waiting import until

from fake_apiserver import ApiServer, node_object
from taint_eviction_ctl.failover import cluster as failover_cluster

OUT_OF_SERVICE = "kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
LONG_AGO = "2026-01-01T00:00:00"
NO_CONTROLLER = "there is no Lease kube-system/taint-eviction-controller"


@dataclass
class DownNode:
    """A server on which node n1 is down, and its kubeconfig."""

    server: ApiServer
    config: str

    async def run(self, *words: str) -> CommandResult:
        """Run a command with the kubeconfig."""
        return await invoked(*words, "--kubeconfig", self.config)

    async def lines(self, *words: str) -> list[str]:
        """Return the lines that a command prints; the command must succeed."""
        said = await self.run(*words)
        assert said.code == 0, said.complaints
        return said.out.splitlines()

    def forbid(self, *resources: str) -> None:
        """Take away the user's right to read these resources."""
        self.server.answerer.authorize = lambda info: info.resource_name not in resources


def owner(kind: str, name: str) -> list[Json]:
    """Return the reference to the owner that controls a pod."""
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def add_down_node(server: ApiServer, name: str) -> None:
    """Create a node whose kubelet has not reported for a long time, with its Lease."""
    server.kubelets.freeze(name)
    node = node_object(name, server.clock.timestamp())
    [ready] = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
    ready |= {
        "status": "Unknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": f"{LONG_AGO}Z",
    }
    server.create("nodes", node)
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": f"{LONG_AGO}.000000Z"}
    server.create("leases", {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec})


def add_volume(server: ApiServer, claim: str, volume: str, node: str, **status: Any) -> None:
    """Create a claim, and the attachment of its volume."""
    spec = {"volumeName": volume, "accessModes": ["ReadWriteOnce"]}
    server.create("persistentvolumeclaims", {"metadata": {"name": claim, "namespace": "default"}, "spec": spec})
    attachment = {"attacher": "ebs.example.com", "nodeName": node, "source": {"persistentVolumeName": volume}}
    status = {"attached": True, **status}
    server.create("volumeattachments", {"metadata": {"name": f"csi-{volume}"}, "spec": attachment, "status": status})


def add_claiming_pod(server: ApiServer, name: str, node: str, claim: str, **metadata: Any) -> None:
    """Create a pod with a claim."""
    containers = [{"name": "main", "image": "pause"}]
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"containers": containers, "nodeName": node, "volumes": volumes}
    server.create("pods", {"metadata": {"name": name, **metadata}, "spec": spec})


@pytest.fixture
async def outage(tmp_path: Path) -> AsyncIterator[DownNode]:
    """A pod of a StatefulSet with a volume and a pod of a Deployment are Terminating on n1, which is down; n2 is up."""
    async with ApiServer(seed=1) as server:
        add_nodes(server, "n2")
        server.kubelets.frozen_nodes |= {"n2", "gone"}
        add_down_node(server, "n1")
        add_claiming_pod(server, "db-0", "n1", "data-db-0", ownerReferences=owner("StatefulSet", "db"))
        add_volume(server, "data-db-0", "pv-1", "n1", detachError={"message": "\x1b[31mdevice is busy"})
        add_pod(server, "web-old", "n1", ownerReferences=owner("ReplicaSet", "web"))
        add_pod(server, "well", "n2")
        for name in ("db-0", "web-old"):
            server.delete("pods", name, grace_period_seconds=30)
        add_pod(server, "web-new", None, ownerReferences=owner("ReplicaSet", "web"))
        yield DownNode(server, str(write_kubeconfig(tmp_path / "config", server)))


async def test_explain_shows_what_blocks_a_terminating_pod_without_a_controller(outage: DownNode) -> None:
    """The first cause is the first to treat; objects' messages are shown with control characters escaped."""
    said = await outage.run("explain", "default/db-0")
    assert (said.code, said.complaints) == (0, "")
    lines = said.out.splitlines()
    assert lines[0].startswith("default/db-0 is not known: no controller answers: " + NO_CONTROLLER)
    assert lines[2].startswith("it has been Terminating for ")
    assert lines[3].startswith("  1. the kubelet of n1 is silent: it last renewed its Lease ")
    assert f"Ready is Unknown since {LONG_AGO.replace('T', ' ')} UTC (Kubelet stopped posting node status.)" in lines[3]
    assert lines[6].startswith("       taint-eviction plan --taint n1=")
    assert lines[8] == f"       {OUT_OF_SERVICE}"
    assert lines[13].startswith("  2. volume pv-1 (claim data-db-0) is still attached to n1; ebs.example.com cannot")
    assert lines[13].endswith("[31mdevice is busy")
    assert "\x1b" not in said.out
    assert lines[16].startswith("  3. StatefulSet db cannot create its replacement before this pod is gone")
    assert "not checked" not in said.out


async def test_explain_shows_the_causes_as_json(outage: DownNode) -> None:
    """The causes are in the field ``failover``."""
    said = await outage.run("explain", "default/web-old", "-o", "json")
    document = json.loads(said.out)
    assert (said.code, document["known"], document["name"]) == (0, True, "web-old")
    failover = document["failover"]
    assert (failover["terminating"], failover["node"], failover["unchecked"]) == (True, "n1", [])
    assert [finding["cause"] for finding in failover["findings"]] == ["kubeletSilent", "noReplacement"]
    assert failover["findings"][0]["command"] == OUT_OF_SERVICE
    assert failover["findings"][1]["text"].startswith("web-new, which ReplicaSet web created since then, is Pending: ")


async def test_explain_adds_the_causes_to_the_controllers_answer(tmp_path: Path) -> None:
    """For a pod that is not Terminating, it adds nothing."""
    async with ApiServer(seed=1) as server:
        add_down_node(server, "n1")
        add_pod(server, "web-0", "n1")
        config = str(write_kubeconfig(tmp_path / "config", server))
        async with controlling(server) as controlled:
            at = ("--server", f"http://127.0.0.1:{controlled.listen.port}", "--kubeconfig", config)
            before = await invoked("explain", "default/web-0", *at)
            assert "Terminating" not in before.out
            server.taint("n1", KEY)
            await until(lambda: "deletionTimestamp" in (server.get("pods", "web-0") or {})["metadata"])
            words = (await invoked("explain", "default/web-0", *at)).out
            assert words.startswith("default/web-0 has been evicted from node n1: ")
            assert "  1. the kubelet of n1 is silent: " in words
            after = await invoked("explain", "default/web-0", *at, "-o", "json")
            document = json.loads(after.out)
            assert (document["known"], document["node"]) == (True, "n1")
            assert document["failover"]["findings"][0]["cause"] == "kubeletSilent"
            server.answerer.authorize = lambda info: info.resource_name != "pods"
            words = (await invoked("explain", "default/web-0", *at)).out
            assert words.splitlines()[-1].endswith(
                "whether the pod is Terminating, and what holds it: Pods: you may not get them"
            )


async def test_explain_notices_a_replica_of_another_cluster(outage: DownNode, tmp_path: Path) -> None:
    """The replica's pod has another UID than the pod in the cluster of the kubeconfig."""
    async with ApiServer(seed=2) as other:
        add_nodes(other, "n9")
        other.taint("n9", KEY)
        add_pod(other, "db-0", "n9", {"operator": "Exists"})
        async with controlling(other) as controlled:
            said = await outage.run("explain", "default/db-0", "--server", f"http://127.0.0.1:{controlled.listen.port}")
    assert said.code == 0
    assert said.out.splitlines()[-1].endswith("has another pod of this name: is it another cluster?")
    assert "kubelet" not in said.out


async def test_forbidden_reads_are_named(outage: DownNode) -> None:
    """The causes that need no forbidden read are still found."""
    outage.forbid("volumeattachments", "leases")
    lines = await outage.lines("explain", "default/db-0", "--lease-name", "nobody")
    assert lines[3].startswith("  1. the kubelet of n1 is silent: its condition Ready is Unknown")
    assert lines[-2:] == [
        "  not checked: Leases in kube-node-lease: you may not get them",
        "  not checked: VolumeAttachments: you may not list them",
    ]
    outage.forbid("volumeattachments", "leases", "nodes", "persistentvolumeclaims")
    unchecked = json.loads((await outage.run("explain", "default/db-0", "-o", "json")).out)["failover"]["unchecked"]
    assert [each.partition(":")[0] for each in unchecked] == [
        "Nodes",
        "Leases in kube-node-lease",
        "PersistentVolumeClaims",
    ]


async def test_explain_without_the_right_to_read_pods_fails_without_a_controller(outage: DownNode) -> None:
    """The command exits with 3, since it knows nothing about the pod."""
    outage.forbid("pods")
    said = await outage.run("explain", "default/db-0")
    assert (said.code, said.out) == (3, "")
    assert NO_CONTROLLER in said.complaints


async def test_explain_without_a_controller_fails_for_a_pod_that_is_not_terminating(outage: DownNode) -> None:
    """Only a controller knows whether the pod will be evicted."""
    said = await outage.run("explain", "default/well")
    assert (said.code, said.out) == (3, "")


# status --stuck


async def test_stuck_pods_are_listed_by_node(outage: DownNode) -> None:
    """Causes are named, with the first step once per node; a pod of a Ready node is not stuck in its grace period."""
    outage.server.delete("pods", "well", grace_period_seconds=300)
    lines = await outage.lines("status", "--stuck", "-A")
    assert lines[:4] == ["2 pods stuck Terminating on 1 node", "", "n1: 2 pods", lines[3]]
    assert lines[3].split() == ["SINCE", "POD", "CAUSES"]
    assert lines[4].endswith("  default/db-0     kubelet silent, volume attached, no replacement")
    assert lines[5].endswith("  default/web-old  kubelet silent, no replacement")
    assert lines[6].startswith("  - the kubelet of n1 is silent: ")
    assert f"      {OUT_OF_SERVICE}" in lines
    assert lines[-1] == "      kubectl delete node n1"


async def test_pods_of_a_ready_node_are_stuck_after_their_grace_period(outage: DownNode) -> None:
    """This also holds for pods of a deleted node."""
    add_pod(outage.server, "orphan", "gone")
    for name in ("well", "orphan"):
        outage.server.delete("pods", name, grace_period_seconds=1)
    pods: list[Json] = []

    async def are_four() -> bool:
        nonlocal pods
        pods = json.loads((await outage.run("status", "--stuck", "-o", "json")).out)["pods"]
        return len(pods) == 4

    await until(are_four)
    assert [(pod["node"], pod["name"], pod["findings"][0]["cause"]) for pod in pods] == [
        ("gone", "orphan", "nodeDeleted"),
        ("n1", "db-0", "kubeletSilent"),
        ("n1", "web-old", "kubeletSilent"),
        ("n2", "well", "pastGracePeriod"),
    ]


async def test_stuck_pods_can_be_limited_to_one_namespace(outage: DownNode) -> None:
    """A user who may read only one namespace gets a hint to use -n."""
    assert await outage.lines("status", "--stuck", "-n", "elsewhere") == ["no pod is stuck Terminating"]
    outage.server.answerer.authorize = lambda info: info.namespace == "default"
    said = await outage.run("status", "--stuck")
    assert (said.code, said.out) == (3, "")
    assert said.complaints.endswith("; -n asks for one namespace\n")


async def test_reads_that_are_forbidden_for_stuck_pods_are_named(outage: DownNode) -> None:
    """Without nodes, only pods past their grace period are known to be stuck."""
    outage.forbid("volumeattachments")
    lines = await outage.lines("status", "--stuck", "-n", "default")
    assert lines[-1] == "  not checked: VolumeAttachments: you may not list them"
    outage.forbid("nodes", "leases")
    lines = await outage.lines("status", "--stuck", "-n", "default")
    assert lines == [
        "no pod is stuck Terminating",
        "  not checked: Nodes: you may not list them",
        "  not checked: Leases in kube-node-lease: you may not get them",
    ]


async def test_the_output_says_that_not_all_pods_were_read(outage: DownNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is one pod here; both stuck pods are still counted."""
    monkeypatch.setattr(failover_cluster, "MAX_PODS", 1)
    lines = await outage.lines("status", "--stuck")
    assert lines[0] == "2 pods stuck Terminating on 1 node"
    assert lines[-1] == "  not checked: Pods: only the first 1 were read"


async def test_one_namespace_does_not_use_up_the_claims_that_are_read(
    outage: DownNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two claims are read here; three pods of another namespace have one each, and come first."""
    monkeypatch.setattr(failover_cluster, "MAX_CLAIMS", 2)
    for name in ("x", "y", "z"):
        add_claiming_pod(outage.server, name, "n1", name, namespace="a")
        outage.server.delete("pods", name, "a", grace_period_seconds=30)
    answer = json.loads((await outage.run("status", "--stuck", "-o", "json")).out)
    [db] = [pod for pod in answer["pods"] if pod["name"] == "db-0"]
    assert "volumeAttached" in [finding["cause"] for finding in db["findings"]]
    assert answer["unchecked"] == ["PersistentVolumeClaims: only the first 2 were read"]


async def test_a_stuck_list_changes_nothing(outage: DownNode) -> None:
    """``explain`` writes nothing, either."""
    await outage.lines("status", "--stuck")
    await outage.lines("explain", "default/db-0")
    assert {entry.verb for entry in outage.server.requests.select()} <= {"get", "list"}


@pytest.mark.parametrize("words", [("--watch",), ("--server", "http://127.0.0.1:1")])
async def test_stuck_excludes_flags_that_concern_a_controller(words: tuple[str, ...]) -> None:
    """``status --stuck`` reads from the API server, and only once."""
    said = await invoked("status", "--stuck", *words)
    assert (said.code, said.out) == (2, "")


# The line of the status


async def test_status_counts_pods_terminating_on_nodes_that_are_not_ready(outage: DownNode) -> None:
    """The count comes from reads with the user's rights; the output says if they are forbidden."""
    async with controlling(outage.server) as controlled:
        at = ("--server", f"http://127.0.0.1:{controlled.listen.port}")
        lines = await outage.lines("status", *at)
        [line] = [line for line in lines if "Terminating" in line]
        assert line.startswith("2 pods Terminating on nodes that are not Ready: n1 (2); see status --stuck")
        assert "Terminating" not in (await outage.run("status", *at, "-o", "json")).out
        outage.forbid("nodes")
        lines = await outage.lines("status", *at)
        assert (
            "pods Terminating on nodes that are not Ready could not be checked: Nodes or Pods: you may not list them"
        ) in lines


async def test_status_names_a_node_that_is_left_out_of_service(outage: DownNode) -> None:
    """No pod is Terminating there any more, and still somebody has to remove the taint or the node."""
    server = outage.server
    for name in ("db-0", "web-old"):
        server.delete("pods", name, grace_period_seconds=0)
    node = server.get("nodes", "n1") or {}
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    server.update("nodes", {**node, "spec": {"taints": [taint]}})
    async with controlling(server) as controlled:
        lines = await outage.lines("status", "--server", f"http://127.0.0.1:{controlled.listen.port}")
    [line] = [line for line in lines if "status --stuck" in line]
    assert line.startswith("n1 has the taint node.kubernetes.io/out-of-service: status --stuck says how that ends")
