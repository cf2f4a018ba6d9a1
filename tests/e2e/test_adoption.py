"""Countdowns taken over beside the real built-in controller, by the controller's own account under its policy.

The tests need a cluster whose kube-controller-manager runs its taint-eviction-controller, and a user that may install
manifests and create tokens. They take half a minute each: a countdown is taken over late.
"""

import asyncio
import contextlib
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e import test_admission as admission
from tests.e2e.cluster import STRATEGIC, ClusterUnderTest, Json, WatchedPod
from tests.e2e.slow_writes import LateWrite, in_between
from tests.stage.processes import RunningController, output_of, running_controller, start
from tests.stage.waiting import free_port

from taint_eviction.core.objects import MARK_SECONDS
from taint_eviction.runtime.clock import read_monotonic

pytestmark = admission.pytestmark
config, installed = admission.config, admission.installed

KEY, OTHER = "taint-eviction-test/maintenance", "taint-eviction-test/other"
NOTE = "taint-eviction/seconds"


def tolerates(seconds: int, key: str = KEY) -> Json:
    """Return a toleration."""
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}


def seconds_of(pod: WatchedPod) -> list[int | None]:
    """Return the seconds of a pod's tolerations of the test's keys."""
    tolerations = pod.body["spec"]["tolerations"]
    return [each.get("tolerationSeconds") for each in tolerations if each.get("key") in (KEY, OTHER)]


def is_noted(pod: WatchedPod) -> bool:
    """Return whether a pod had a note when it was last seen."""
    return NOTE in (pod.body["metadata"].get("annotations") or {})


@dataclass
class Adopting:
    """An installation of overlays/managed, whose controllers run outside the cluster with its account's token."""

    made: admission.Installed
    admin: Path
    own: Path

    @contextlib.asynccontextmanager
    async def controller(self, *, adopts: bool = True) -> AsyncIterator[RunningController]:
        """Run a controller until the end of the block."""
        flags = [flag for flag in self.made.flags if adopts or flag != "--adopt"]
        where = ("--leader-elect-resource-namespace", self.made.namespace)
        async with running_controller(
            self.own, "--leader-elect", *flags, *where, listen=f"127.0.0.1:{free_port()}"
        ) as running:
            await running.until(running.leads)
            if adopts:
                await self.made.cluster.eventually(self.state, lambda found: "adopts" in (found.get("data") or {}))
            yield running
            if running.process.returncode != -signal.SIGKILL:  # Killed by the test.
                assert await running.end() == 0, running.lines[-5:]

    @property
    def state(self) -> str:
        """The path of the state ConfigMap."""
        return f"/api/v1/namespaces/{self.made.namespace}/configmaps/{self.made.lease}"

    @property
    def right(self) -> str:
        """The path of the ClusterRoleBinding that grants marking."""
        names = [document["metadata"]["name"] for document in self.made.documents]
        adopt = next(name for name in names if "controller-adopt" in name)
        return f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{adopt}"

    @property
    def named(self) -> tuple[str, ...]:
        """The flags with which an administrator's command finds the ConfigMap."""
        named = ("--state-namespace", self.made.namespace, "--state-name", self.made.lease)
        return ("--kubeconfig", str(self.admin), *named)

    async def order(self, *words: str) -> str:
        """Run a command as an administrator, and return what it prints."""
        return await output_of(*words, *self.named)

    async def has_no_right(self, pod: WatchedPod) -> None:
        """Wait until the API server knows that the account may not mark a pod."""
        path, nothing = self.path_of(pod), [{"op": "test", "path": "/kind", "value": "Pod"}]
        while not await self.made.refusal("PATCH", path, nothing, admission.JSON_PATCH):  # noqa: ASYNC110 - asked again
            await asyncio.sleep(0.1)

    async def set_seconds(self, pod: WatchedPod, seconds: int) -> None:
        """Set the seconds of a pod's toleration, as its owner may."""
        place = [each.get("key") for each in pod.body["spec"]["tolerations"]].index(KEY)
        await self.made.cluster.call(
            "PATCH", self.path_of(pod), [admission.seconds(place, seconds)], headers=admission.JSON_PATCH
        )

    def path_of(self, pod: WatchedPod) -> str:
        """Return the path of a pod."""
        return f"/api/v1/namespaces/{self.made.cluster.prefix}/pods/{pod.name}"


@pytest.fixture
async def adopting(installed: admission.Installed, cluster: ClusterUnderTest, config: Path, tmp_path: Path) -> Adopting:
    """Install, with evictions paused and a running pod on which the policy can be tried."""
    own = admission.write_own_kubeconfig(config, tmp_path, await admission.token_of(installed))
    await admission.in_force(installed)
    await cluster.create_node("asked")
    await cluster.create_pod("asked", "asked")
    running = f"/api/v1/namespaces/{cluster.prefix}/pods/asked/status"
    await cluster.call("PATCH", running, {"status": {"phase": "Running"}}, headers=STRATEGIC)
    made = Adopting(installed, config, own)
    await made.order("pause")
    return made


managed = pytest.mark.parametrize("installed", ["managed", "managed, all three"], indirect=True)
# Tests of minutes, to which names do not matter.
once = pytest.mark.parametrize("installed", ["managed"], indirect=True)


@managed
async def test_no_timer_of_the_built_in_controller_outlives_the_marks(
    adopting: Adopting, cluster: ClusterUnderTest
) -> None:
    """Two tolerations of 25 and 1,000 s, a taint whose value changes, and the plain case: a pause holds them all."""
    async with adopting.controller():
        for node in ("b", "c"):
            await cluster.create_node(node)
        plain = await cluster.create_pod("plain", "a", [tolerates(30)])
        two = await cluster.create_pod("two", "b", [tolerates(25), tolerates(1000, OTHER)])
        rewritten = await cluster.create_pod("rewritten", "c", [tolerates(30)])
        for node in ("a", "b", "c"):
            await cluster.taint(node, KEY)
        await cluster.taint("b", OTHER)
        await cluster.stays(plain, 8.0)
        assert not any(is_noted(pod) for pod in (plain, two, rewritten))
        await cluster.taint("c", KEY, "another")
        await cluster.stays(plain, 30.0)
        assert seconds_of(two) == [MARK_SECONDS, MARK_SECONDS]
        for pod in (plain, two, rewritten):
            assert is_noted(pod)
            assert pod.evicted_at is None


@managed
async def test_a_blip_costs_no_write_and_the_seconds_come_back(adopting: Adopting, cluster: ClusterUnderTest) -> None:
    """A node that is back before its pods are late changes none of them; afterwards they are as they were."""
    async with adopting.controller():
        pod = await cluster.create_pod("pod", "a", [tolerates(30), tolerates(7, OTHER)])
        version = pod.body["metadata"]["resourceVersion"]
        await cluster.taint("a", KEY)
        await cluster.stays(pod, 10.0)
        await cluster.untaint("a", KEY)
        await cluster.stays(pod, 12.0)
        assert pod.body["metadata"]["resourceVersion"] == version
        before = (pod.body["spec"], pod.body["metadata"].get("annotations"))
        await cluster.taint("a", KEY)
        await cluster.until(lambda: is_noted(pod), 25.0)
        assert seconds_of(pod) == [MARK_SECONDS, 7]
        await cluster.untaint("a", KEY)
        await cluster.until(lambda: not is_noted(pod), 20.0)
        assert (pod.body["spec"], pod.body["metadata"].get("annotations") or None) == before


@managed
async def test_an_owner_who_removes_the_seconds_keeps_the_pod(adopting: Adopting, cluster: ClusterUnderTest) -> None:
    """That is the known rescue; the void note goes."""
    async with adopting.controller():
        pod = await cluster.create_pod("pod", "a", [tolerates(30)])
        await cluster.taint("a", KEY)
        await cluster.until(lambda: is_noted(pod), 25.0)
        place = [each.get("key") for each in pod.body["spec"]["tolerations"]].index(KEY)
        patch = [{"op": "remove", "path": f"/spec/tolerations/{place}/tolerationSeconds"}]
        await cluster.call("PATCH", adopting.path_of(pod), patch, headers=admission.JSON_PATCH)
        await adopting.order("resume", "--yes")
        await cluster.until(lambda: not is_noted(pod), 10.0)
        await cluster.stays(pod, 15.0)
        assert seconds_of(pod) == [None]


@managed
async def test_a_leader_without_the_flag_gives_everything_back(adopting: Adopting, cluster: ClusterUnderTest) -> None:
    """Another overlay leaves the component's right; the entry goes when no late write can follow."""
    async with adopting.controller():
        pod = await cluster.create_pod("pod", "a", [tolerates(300)])
        short = await cluster.create_pod("short", "a", [tolerates(15)])
        await cluster.taint("a", KEY)
        await cluster.until(lambda: is_noted(short), 15.0)
    async with adopting.controller(adopts=False):
        await cluster.until(lambda: not is_noted(short), 20.0)
        assert (seconds_of(short), seconds_of(pod)) == ([15], [300])
        await cluster.eventually(adopting.state, lambda found: "adopts" not in found["data"], 100.0)


@managed
async def test_a_leader_without_the_right_says_what_it_leaves(adopting: Adopting, cluster: ClusterUnderTest) -> None:
    """The binding is gone as well: log and status name the pod, and the entry stays for the next leader."""
    async with adopting.controller():
        pod = await cluster.create_pod("pod", "a", [tolerates(15)])
        await cluster.taint("a", KEY)
        await cluster.until(lambda: is_noted(pod), 15.0)
    await cluster.call("DELETE", adopting.right)
    await adopting.has_no_right(pod)
    async with adopting.controller(adopts=False) as running:
        await running.until(lambda: running.said("/pod cannot be given back to the built-in controller"))
        assert "the countdowns of 1 pod cannot be given back" in await running.ask("status")
        assert is_noted(pod)
        assert "adopts" in (await cluster.call("GET", adopting.state))["data"]


@managed
async def test_hand_back_takes_the_right_away(adopting: Adopting, cluster: ClusterUnderTest) -> None:
    """It ends with a look at every pod, 75 s after the last request may have been sent."""
    async with adopting.controller():
        pod = await cluster.create_pod("pod", "a", [tolerates(30)])
        await cluster.taint("a", KEY)
        await cluster.until(lambda: is_noted(pod), 25.0)
        told = await adopting.order("hand-back", "--yes")
        assert "leads, and no longer adopts pods" in told
        assert "removed ClusterRoleBinding" in told
        assert "nothing is adopted any more" in told
        assert not is_noted(pod)
        assert await cluster.call("GET", adopting.right, fine=(404,)) is None


@managed
async def test_what_admission_refuses_is_said_when_it_is_too_late(
    adopting: Adopting, cluster: ClusterUnderTest
) -> None:
    """Somebody's policy refuses marks: the pod's event quotes it, and the built-in controller evicts in its time."""
    mark = MARK_SECONDS
    kind = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.prefix}}}
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
            ],
            **where,
        },
        "validations": [
            {
                "expression": f"!object.spec.tolerations.exists(each, each.?tolerationSeconds.orValue(0) == {mark})",
                "message": "nobody stays for ever here",
            }
        ],
    }
    binding = {"policyName": cluster.prefix, "validationActions": ["Deny"]}
    async with contextlib.AsyncExitStack() as stack:
        for path, document in ((kind, spec), (f"{kind[:-3]}ybindings", binding)):
            await cluster.call("POST", path, {"metadata": {"name": cluster.prefix}, "spec": document})
            stack.push_async_callback(cluster.call, "DELETE", f"{path}/{cluster.prefix}")
        running = await stack.enter_async_context(adopting.controller())
        pod = await cluster.create_pod("pod", "a", [tolerates(30)])
        await cluster.taint("a", KEY)
        await cluster.evicted(pod, 45.0)
        assert not is_noted(pod)
        told = await cluster.told(pod)
        assert any(each["reason"] == "CountdownNotAdopted" and "for ever here" in each["message"] for each in told)
        assert running.said(f"countdowns in namespace {cluster.prefix} cannot be taken over")


@managed
async def test_a_copy_on_a_clean_node_is_given_back_by_the_next_leader(
    adopting: Adopting, cluster: ClusterUnderTest
) -> None:
    """Somebody copies a marked pod together with its annotation; a leader looks for notes when it begins."""
    async with adopting.controller():
        pod = await cluster.create_pod("pod", "a", [tolerates(30)])
        await cluster.taint("a", KEY)
        await cluster.until(lambda: is_noted(pod), 25.0)
        await cluster.create_node("b")
        note = pod.body["metadata"]["annotations"]
        copy = await cluster.create_pod("copy", "b", [tolerates(MARK_SECONDS)], annotations=note)
        await cluster.stays(copy, 3.0)
        assert is_noted(copy)
    async with adopting.controller():
        await cluster.until(lambda: not is_noted(copy), 30.0)
        assert seconds_of(copy) == [30]
        assert is_noted(pod)


@managed
async def test_who_must_not_be_taken_over_is_not(adopting: Adopting, cluster: ClusterUnderTest) -> None:
    """Pods that finish, terminate or are the controller's own keep their seconds behind a pause; others do not."""
    async with adopting.controller():
        own = {"labels": {"app.kubernetes.io/name": "taint-eviction-controller"}}
        pods = {
            "other": await cluster.create_pod("other", "a", [tolerates(30)]),
            "own": await cluster.create_pod("own", "a", [tolerates(30)], **own),
            "finished": await cluster.create_pod("finished", "a", [tolerates(30)]),
            "terminating": await cluster.create_pod("terminating", "a", [tolerates(30)], finalizers=["example.com/a"]),
        }
        finished = f"/api/v1/namespaces/{cluster.prefix}/pods/finished/status"
        await cluster.call("PATCH", finished, {"status": {"phase": "Succeeded"}}, headers=STRATEGIC)
        await cluster.call("DELETE", f"/api/v1/namespaces/{cluster.prefix}/pods/terminating")
        await cluster.taint("a", KEY)
        await cluster.until(lambda: is_noted(pods["other"]), 25.0)
        await cluster.stays(pods["other"], 3.0)
        assert {name: seconds_of(pod) for name, pod in pods.items() if name != "other"} == {
            "own": [30],
            "finished": [30],
            "terminating": [30],
        }


@once
async def test_seconds_that_are_set_again_and_again_are_taken_over_each_time(
    adopting: Adopting, cluster: ClusterUnderTest
) -> None:
    """Every 35 s, behind a pause: a success is no refusal, so nothing slows down, and the pod's events say no other."""
    async with adopting.controller():
        pod = await cluster.create_pod("pod", "a", [tolerates(30)])
        await cluster.taint("a", KEY)
        for _ in range(6):
            await cluster.stays(pod, 35.0)
            assert is_noted(pod)
            await adopting.set_seconds(pod, 30)
        await cluster.stays(pod, 35.0)
        assert seconds_of(pod) == [MARK_SECONDS]
        assert is_noted(pod)
        reasons = {each["reason"] for each in await cluster.told(pod)}
        assert "CountdownAdopted" in reasons
        assert "CountdownNotAdopted" not in reasons


@managed
async def test_nothing_happens_at_creation(adopting: Adopting, cluster: ClusterUnderTest) -> None:
    """A pod that is created on a tainted node is taken over late, as any other one. After hand-back nothing of this
    project touches a new pod, and the built-in controller evicts it in its time.
    """
    async with adopting.controller():
        await cluster.taint("a", KEY)
        early = await cluster.create_pod("early", "a", [tolerates(30)])
        await cluster.stays(early, 8.0)
        assert (seconds_of(early), is_noted(early)) == ([30], False)
        await cluster.until(lambda: is_noted(early), 20.0)
        assert seconds_of(early) == [MARK_SECONDS]
        await adopting.order("hand-back", "--yes")
        created_at = read_monotonic()
        late = await cluster.create_pod("late", "a", [tolerates(30)])
        evicted_at = await cluster.evicted(late, 45.0)
        assert (seconds_of(late), is_noted(late)) == ([30], False)
        assert evicted_at - created_at >= 29.0


@managed
async def test_server_side_apply_of_a_bare_pod_needs_force_once(adopting: Adopting, cluster: ClusterUnderTest) -> None:
    """A list of tolerations belongs as a whole to who wrote it last; with one forced apply it is the owner's again."""
    metadata = {"name": "pod", "namespace": cluster.prefix}
    spec = {
        "nodeName": cluster.node_name("a"),
        "containers": [{"name": "main", "image": "pause"}],
        "tolerations": [tolerates(30)],
    }
    manifest = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def apply(*words: str) -> str:
        """Apply the manifest, as the page says, and return what kubectl says."""
        command = ("kubectl", "--kubeconfig", str(adopting.admin), "apply", "--server-side", *words, "--filename", "-")
        done = await asyncio.to_thread(
            subprocess.run, command, input=manifest, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    applied = "pod/pod serverside-applied\n"
    async with adopting.controller():
        assert await apply() == applied
        assert await apply() == applied
        pod = next(each for each in cluster.pods.values() if each.name == "pod")
        await cluster.taint("a", KEY)
        await cluster.until(lambda: is_noted(pod), 25.0)
        await cluster.untaint("a", KEY)
        await cluster.until(lambda: not is_noted(pod), 20.0)
        said = await apply()
        assert 'conflict with "taint-eviction-controller"' in said
        assert ".spec.tolerations" in said
        assert await apply("--force-conflicts") == applied
        assert await apply() == applied
        await cluster.stays(pod, 3.0)
        assert seconds_of(pod) == [30]


async def unmarked_by_a_dead_leader(adopting: Adopting, cluster: ClusterUnderTest, late: LateWrite) -> WatchedPod:
    """Let a leader die when it has sent the mark of a pod, which the API server has not got yet."""
    pod = await cluster.create_pod("pod", "a", [tolerates(600)])
    await cluster.taint("a", KEY)  # A leader that has not seen the beginning takes the countdown over at once.
    async with adopting.controller() as running:
        await late.has_come(30.0)
        await running.kill()
    assert not is_noted(pod)
    return pod


@once
async def test_a_dead_leaders_mark_is_refused_once_hand_back_has_removed_the_right(
    adopting: Adopting, cluster: ClusterUnderTest
) -> None:
    """The request arrives while the command waits for it, and changes nothing."""
    async with in_between(adopting.own, 0.0) as slow:
        late = slow.keep_back("PATCH pods")
        pod = await unmarked_by_a_dead_leader(adopting, cluster, late)
        ends = asyncio.create_task(adopting.order("hand-back", "--yes"))
        await adopting.has_no_right(pod)
        answer = await late.arrive()
        assert (answer.status, "cannot patch resource" in answer.text) == (403, True)
        assert "nothing is adopted any more" in await ends
        assert seconds_of(pod) == [600]
        assert not is_noted(pod)


@once
async def test_a_dead_leaders_mark_is_found_where_hand_back_cannot_remove_the_right(
    adopting: Adopting, cluster: ClusterUnderTest
) -> None:
    """Somebody else's binding grants it: the request arrives after the pods were given back, and the last look finds
    its mark.
    """
    rights = {
        "metadata": {"name": cluster.prefix},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": adopting.made.user}],
    }
    bindings = admission.PATHS["ClusterRoleBinding"]
    await cluster.call("POST", bindings, rights)
    try:
        async with in_between(adopting.own, 0.0) as slow:
            late = slow.keep_back("PATCH pods")
            pod = await unmarked_by_a_dead_leader(adopting, cluster, late)
            pipe = asyncio.subprocess.PIPE
            process = await start("hand-back", "--yes", *adopting.named, stdout=pipe)
            assert process.stderr is not None
            async for line in process.stderr:
                if b"until then a request of a dead leader may still arrive" in line:
                    break
            assert (await late.arrive()).status == 200
            await cluster.until(lambda: is_noted(pod))
            out, complaints = await process.communicate()
            assert process.returncode == 0, complaints.decode()
            assert "1 pod has been given back\nnothing is adopted any more" in out.decode()
            assert "may keep the right to change tolerations" in complaints.decode()
            assert seconds_of(pod) == [600]
            assert not is_noted(pod)
    finally:
        await cluster.call("DELETE", f"{bindings}/{cluster.prefix}")


@once
async def test_a_dead_leaders_mark_on_a_clean_node_is_found_by_the_next_leader(
    adopting: Adopting, cluster: ClusterUnderTest
) -> None:
    """It arrives after the look at the beginning, and nobody watches the pod; the leader looks again after 75 s."""
    async with in_between(adopting.own, 0.0) as slow:
        late = slow.keep_back("PATCH pods")
        pod = await unmarked_by_a_dead_leader(adopting, cluster, late)
        await cluster.untaint("a", KEY)
        async with adopting.controller():
            await cluster.stays(pod, 10.0)
            assert (await late.arrive()).status == 200
            await cluster.until(lambda: is_noted(pod))
            await cluster.stays(pod, 30.0)
            assert is_noted(pod)
            await cluster.until(lambda: not is_noted(pod), 60.0)
            assert seconds_of(pod) == [600]
