"""What ``doctor`` says in each state of an installation's life, in a real cluster.

These tests play the scheduler, the kubelets and the flags of kube-controller-manager, so they are skipped where the
cluster has nodes: they need etcd, kube-apiserver and kube-controller-manager alone.
"""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster import ClusterUnderTest
from tests.e2e.life import CONTROLLER, KUBE_SYSTEM, MANAGERS, OFF, OVERLAYS, PlayedLife, living, own_address, path_of
from tests.e2e.test_admission import NOTE, PATHS, config, pytestmark
from tests.manifests.test_kinds import MANIFESTS

__all__ = ["config", "pytestmark"]

KEY = "taint-eviction-test/maintenance"
# What lets an account mark pods, and outlives an uninstallation; first what grants it.
OF_THE_RIGHT = [
    *(f"{PATHS[kind]}/taint-eviction:{CONTROLLER}-adopt" for kind in ("ClusterRoleBinding", "ClusterRole")),
    *(f"{PATHS[kind]}/taint-eviction.{CONTROLLER}-adopt" for kind in PATHS if "Admission" in kind),
]


@pytest.fixture
async def life(cluster: ClusterUnderTest, config: Path, tmp_path: Path) -> AsyncIterator[PlayedLife]:
    """A cluster of two played nodes in which nothing is installed, and the built-in controller evicts."""
    if (await cluster.call("GET", "/api/v1/nodes"))["items"]:
        pytest.skip("the cluster has nodes of its own")
    if (await cluster.call("GET", f"{MANAGERS}?labelSelector=component%3Dkube-controller-manager"))["items"]:
        pytest.skip("the flags of kube-controller-manager are seen already")
    if (address := own_address()) is None:
        pytest.skip("this machine has no address but loopback")
    async with living(cluster, config, tmp_path, address) as played:
        if await played.pods():
            pytest.skip("the controller is installed already")
        await played.switch()
        yield played


@pytest.fixture
async def guarded(life: PlayedLife) -> PlayedLife:
    """An installation of overlays/guarded whose leader has begun, with the built-in controller switched off."""
    await life.switch(OFF)
    await life.apply("guarded")
    await life.ready(2)
    await life.leader()
    return life


AS_JSON = ("-o", "json")


class Said:
    """What the doctor found: by check, the findings; the exit code; the last line of the table."""

    def __init__(self, code: int, document: dict[str, Any], last: str) -> None:
        self.code = code
        self.last = last
        self._findings = document["findings"]

    def of(self, check: str, state: str) -> str:
        """Return what was found, and the advice, of the only finding of a check, which has this state."""
        [found] = [each for each in self._findings if each["check"] == check]
        assert found["state"] == state, found
        return f"{found['found']} → {found['advice']}"

    def wrong(self) -> set[str]:
        """Return the checks that found something wrong."""
        return {each["check"] for each in self._findings if each["state"] == "wrong"}


async def ask(life: PlayedLife, *words: str) -> Said:
    """Ask the doctor for a document and a table, which say the same; again, if the state changed between the two."""
    before, table, after = [await life.doctor(*flags, *words) for flags in (AS_JSON, (), AS_JSON)]
    if json.loads(before.out)["summary"] != json.loads(after.out)["summary"]:
        return await ask(life, *words)
    assert after.code == table.code, table.out
    said = json.loads(after.out)
    last = table.out.splitlines()[-1]
    assert last == ", ".join(f"{count} {state}" for state, count in said["summary"].items())
    return Said(table.code, said, last)


async def test_without_an_installation_the_built_in_controller_evicts(life: PlayedLife) -> None:
    """Nothing is wrong then."""
    said = await ask(life)
    assert (said.code, said.wrong()) == (0, set())
    assert said.of("replicas", "unchecked").startswith("none in kube-system: not installed there → the built-in cont")
    assert "it evicts, and this controller does not run" in said.of("built-in controller", "ok")
    assert (await ask(life, "--strict")).code == 1


async def test_a_dry_run_beside_the_built_in_controller_is_right(life: PlayedLife) -> None:
    """One replica is enough; it holds the Lease of its own account."""
    await life.apply("dry-run")
    await life.ready(1)
    leader = await life.leader("dry-run")
    said = await ask(life)
    assert (said.code, said.wrong()) == (0, set())
    assert "a dry run needs no second one" in said.of("replicas", "ok")
    assert said.of("leader", "ok").startswith(leader)


async def test_two_controllers_evict_until_the_built_in_one_is_switched_off(life: PlayedLife) -> None:
    """That is all that is wrong between the two steps."""
    await life.apply("guarded")
    await life.ready(2)
    leader = await life.leader()
    said = await ask(life)
    assert (said.code, said.wrong()) == (1, {"built-in controller"})
    assert "both evict" in said.of("built-in controller", "wrong")
    await life.switch(OFF)
    said = await ask(life)
    assert (said.code, said.wrong()) == (0, set())
    assert said.of("replicas", "ok").startswith("2 replicas, 2 ready, on 2 nodes")
    assert said.of("leader", "ok").startswith(leader)
    assert said.of("answers", "ok").startswith("2 replicas serve status and metrics")


async def test_a_replica_that_finds_no_place_is_said_by_the_schedulers_words(guarded: PlayedLife) -> None:
    """It is asked for nothing, so no sentence about its address hides them."""
    standby = await guarded.standby()
    guarded.places.remove(standby["spec"]["nodeName"])
    await guarded.cluster.call("DELETE", path_of(standby))
    await guarded.ready(1)
    [pending] = [pod for pod in await guarded.pods() if "nodeName" not in pod["spec"]]
    await guarded.cluster.eventually(path_of(pending), lambda found: found["status"].get("conditions"))
    said = await ask(guarded)
    assert said.wrong() == {"replicas"}
    found = said.of("replicas", "wrong")
    assert f"2 replicas, 1 ready, on 1 node; {pending['metadata']['name']}: Unschedulable: 0/1 nodes" in found
    assert f"until another one runs, the loss of node {guarded.places[0]} stops evictions" in found
    assert said.of("answers", "ok").startswith("1 replica serves")


async def test_a_replica_on_a_node_that_is_lost_does_not_count(guarded: PlayedLife) -> None:
    """The pod itself says that it is ready, before and after the node is gone."""
    standby = await guarded.standby()
    name, node = standby["metadata"]["name"], standby["spec"]["nodeName"]
    short = node.removeprefix(f"{guarded.cluster.prefix}-")
    await guarded.cluster.set_ready(short, "Unknown")
    assert f"{name}: its node {node} is not Ready" in (await ask(guarded)).of("replicas", "wrong")
    await guarded.cluster.delete_node(short)
    assert f"{name}: its node {node} is gone" in (await ask(guarded)).of("replicas", "wrong")


async def test_a_leader_that_is_lost_is_replaced_or_missed(guarded: PlayedLife) -> None:
    """The pods say that they are ready, as pods of a hanging kubelet do."""
    first = await guarded.leader()
    await guarded.stop(first)
    second = await guarded.leader()
    said = await ask(guarded)
    assert said.of("leader", "ok").startswith(second)
    assert first in said.of("answers", "wrong")
    await guarded.stop(second)
    async with asyncio.timeout(60):
        while "leader" not in (said := await ask(guarded)).wrong():  # noqa: ASYNC110 - asked again
            await asyncio.sleep(2)
    assert "its holder is gone, and no other replica has taken over" in said.of("leader", "wrong")


async def test_what_is_advised_ends_the_theft_of_a_lease(guarded: PlayedLife) -> None:
    """Replicas that have seen the thief's Lease wait for its end also after it is deleted."""
    await guarded.steal_lease(3600)
    said = await ask(guarded)
    found = said.of("leader", "wrong")
    assert "is held by thief_1, which is none of the replicas" in found
    for command in re.findall(r"kubectl (-n \S+ delete (?:lease|pod) [^,]+)(?:,|$)", found):
        await guarded.kubectl(*command.split(), "--wait=false")
    await asyncio.sleep(1)
    await guarded.ready(2)
    leader = await guarded.leader()
    assert (await ask(guarded)).of("leader", "ok").startswith(leader)


async def test_what_a_rollback_leaves_behind_is_named(guarded: PlayedLife) -> None:
    """Another overlay replaces the flags and leaves the file; another version is not that of the command."""
    await guarded.apply("../base")
    await guarded.rolled_out()
    said = await ask(guarded)
    assert said.wrong() == {"guards"}
    assert "there is a ConfigMap kube-system/taint-eviction-policy, and no replica has --config" in said.of(
        "guards", "wrong"
    )
    version = '{"spec": {"template": {"metadata": {"labels": {"app.kubernetes.io/version": "0.1.0"}}}}}'
    await guarded.kubectl("-n", KUBE_SYSTEM, "patch", "deployment", CONTROLLER, "--type=merge", "--patch", version)
    await guarded.rolled_out()
    assert "controller 0.1.0, this command " in (await ask(guarded)).of("versions", "unchecked")


async def test_after_a_removal_somebody_evicts_or_nobody_does(guarded: PlayedLife) -> None:
    """The wrong order leaves the flag of kube-controller-manager behind."""
    await guarded.remove("guarded")
    await guarded.ready(0)
    said = await ask(guarded)
    assert (said.code, said.wrong()) == (1, {"replicas", "built-in controller"})
    assert said.of("replicas", "wrong").startswith("none in kube-system: nobody evicts")
    assert "nobody evicts: install this controller, or let it run, or take" in said.of("built-in controller", "wrong")
    await guarded.switch()
    said = await ask(guarded)
    assert (said.code, said.wrong()) == (0, set())


async def test_an_installation_that_takes_over_is_right_beside_the_built_in_controller(life: PlayedLife) -> None:
    """It is found from its own namespace, and its place is named elsewhere."""
    await life.apply("managed")
    await life.ready(2)
    leader = await life.leader("managed")
    state = f"/api/v1/namespaces/{OVERLAYS['managed']}/configmaps/{CONTROLLER}"
    await life.cluster.eventually(state, lambda found: "adopts" in (found.get("data") or {}))
    said = await ask(life, "--lease-namespace", OVERLAYS["managed"])
    assert (said.code, said.wrong()) == (0, set())
    assert said.of("leader", "ok").startswith(leader)
    assert said.of("adoption", "ok").startswith("the countdowns of 0 pods are taken over")
    said = await ask(life)
    assert said.wrong() == {"installations"}
    assert f"--lease-namespace {OVERLAYS['managed']} --lease-name {CONTROLLER}" in said.of("installations", "wrong")
    assert "countdowns are taken over from it" in said.of("built-in controller", "ok")


async def test_a_move_to_another_namespace_is_seen_from_both(life: PlayedLife) -> None:
    """The new overlay is applied before the old one is deleted. Then nothing of the old one is to be handed back."""
    await life.apply("guarded")
    await life.ready(2)
    await life.leader()
    await life.cluster.create_node("work")
    tolerates = {"key": KEY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}
    pod = await life.cluster.create_pod("pod", "work", [tolerates])
    await life.cluster.taint("work", KEY)
    await life.apply("managed")
    await life.ready(4)
    await life.leader("managed")
    for where in (KUBE_SYSTEM, OVERLAYS["managed"]):
        said = await ask(life, "--lease-namespace", where)
        assert "both evict: hand back what the one to be removed" in said.of("installations", "wrong")
    await life.remove("guarded")
    await life.ready(2)
    await life.cluster.until(lambda: "taint-eviction/seconds" in pod.body["metadata"].get("annotations", {}))
    said = await ask(life, "--lease-namespace", OVERLAYS["managed"])
    assert (said.code, said.wrong()) == (0, set())
    said = await ask(life)
    assert said.wrong() == {"installations"}
    by = f"by the installation of Lease {OVERLAYS['managed']}/{CONTROLLER}"
    assert f"the countdowns of 1 pod are taken over {by}" in said.of("adoption", "ok")


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
async def test_what_helm_installs_takes_over_and_goes_again(life: PlayedLife) -> None:
    """One value in a namespace of its own. After hand-back and uninstalling, the pages' commands delete the rest."""
    cluster, where = life.cluster, OVERLAYS["managed"]
    namespace = f"/api/v1/namespaces/{where}"
    await cluster.eventually(namespace, lambda found: found is None)
    await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": where}})
    await life.helm("install", str(MANIFESTS / "chart"), "--set", "adoption.enabled=true,breaker.enabled=true")
    await life.ready(2)
    leader = await life.leader("managed")
    await life.order("pause", "--lease-namespace", where)
    await cluster.create_node("work")
    tolerates = {"key": KEY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    pod = await cluster.create_pod("pod", "work", [tolerates])
    await cluster.taint("work", KEY)
    await cluster.until(lambda: NOTE in pod.body["metadata"].get("annotations", {}))
    said = await ask(life, "--lease-namespace", where)
    assert (said.code, said.wrong()) == (0, set())
    assert said.of("leader", "ok").startswith(leader)
    assert said.of("admission policy", "ok").startswith(f"{where}.{CONTROLLER} narrows")
    assert said.of("adoption", "ok").startswith("the countdowns of 1 pod are taken over")
    assert "nothing is adopted any more" in await life.order("hand-back", "--yes", "--lease-namespace", where)
    await life.helm("uninstall")
    await life.ready(0)
    rest = (f"lease/{CONTROLLER}", f"configmap/{CONTROLLER}-history")
    await life.kubectl("--namespace", where, "delete", *rest, "--ignore-not-found")
    assert NOTE not in pod.body["metadata"].get("annotations", {})
    said = await ask(life, "--lease-namespace", where)
    assert (said.code, said.wrong()) == (0, set())
    left = [path for path in OF_THE_RIGHT if await cluster.call("GET", path, fine=(404,)) is not None]
    assert left == OF_THE_RIGHT[1:]  # hand-back has removed the first one.
    page = (MANIFESTS.parent / "docs/install/managed-control-planes.md").read_text()
    commands = re.findall(r"^kubectl (delete .*-adopt --ignore-not-found)$", page, re.MULTILINE)
    for command in commands:
        await life.kubectl(*command.split())
    assert [path for path in OF_THE_RIGHT if await cluster.call("GET", path, fine=(404,)) is not None] == []
