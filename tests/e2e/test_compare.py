"""The output of ``compare`` beside the real built-in controller: its faults are provoked and must be named correctly.

These tests need a cluster whose kube-controller-manager evicts (``-m e2e``); elsewhere they are skipped with this
reason. The controller under test is a dry run. TAINT_EVICTION_TEST_RESTART_BUILT_IN is a shell command that restarts
kube-controller-manager, TAINT_EVICTION_TEST_MINUTES the duration of the test with ordinary taints (default 1).
"""

import asyncio
import contextlib
import json
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.cluster import ClusterUnderTest, Json, WatchedPod
from tests.e2e.conftest import Start
from tests.stage.processes import RunningController

from taint_eviction.runtime.clock import read_monotonic

pytestmark = pytest.mark.e2e

KEY = "taint-eviction-test/maintenance"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
# A built-in controller that runs evicts within this time, however busy it is.
_EVICTS_SECONDS = 30.0


def tolerates(seconds: int) -> Json:
    """Return a toleration."""
    return {"key": KEY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}


@pytest.fixture
def config() -> Path:
    """The kubeconfig of the real cluster."""
    if not (named := os.environ.get("KUBECONFIG")):
        pytest.skip("KUBECONFIG names no cluster")
    return Path(named)


@pytest.fixture
async def shadow(cluster: ClusterUnderTest, start: Start) -> RunningController:
    """A dry run beside the built-in controller, which has evicted a pod to show that it runs."""
    shadow = await start("--dry-run")
    await cluster.create_node("first")
    pod = await cluster.create_pod("first", "first")
    await cluster.taint("first", KEY)
    try:
        await cluster.evicted(pod, _EVICTS_SECONDS)
    except TimeoutError:
        pytest.skip("no built-in controller evicts in this cluster")
    await settled(shadow, 1)
    return shadow


async def settled(shadow: RunningController, compared: int) -> Json:
    """Wait until this number of evictions has been compared, and return the document."""
    document: Json = {}

    async def all_compared() -> bool:
        nonlocal document
        document = json.loads(await shadow.ask("compare", "-o", "json"))
        return bool(document["compared"] >= compared and not document["outstanding"])

    await shadow.until(all_compared, 90.0)
    return document


def difference(document: Json, pod: WatchedPod) -> Json:
    """Return the difference that was found for a pod."""
    [found] = [each for each in document["differences"] if each["uid"] == pod.uid]
    return dict(found)


async def change_toleration(cluster: ClusterUnderTest, pod: WatchedPod, seconds: int) -> None:
    """Change the seconds for which a pod tolerates the taint; its other tolerations stay."""
    kept = [each for each in pod.body["spec"]["tolerations"] if each.get("key") != KEY]
    await cluster.patch_pod(pod.name, {"spec": {"tolerations": [tolerates(seconds), *kept]}})


async def test_an_ordinary_eviction_has_the_result_same(shadow: RunningController) -> None:
    """The pod does not tolerate the taint."""
    document = await settled(shadow, 1)
    assert (document["results"]["same"], document["differences"]) == (1, [])


async def test_changed_tolerations_are_reported_as_old_deadlines(
    cluster: ClusterUnderTest, shadow: RunningController
) -> None:
    """W5: the built-in controller keeps its timer, whether the toleration becomes shorter or longer."""
    await cluster.create_node("a")
    shortened = await cluster.create_pod("shortened", "a", [tolerates(25)])
    lengthened = await cluster.create_pod("lengthened", "a", [tolerates(10)])
    await cluster.taint("a", KEY)
    await shadow.says(what="scheduled", pod=f"{cluster.prefix}/lengthened")
    await change_toleration(cluster, shortened, 5)
    await change_toleration(cluster, lengthened, 300)
    for pod in (lengthened, shortened):
        await cluster.evicted(pod)
    document = await settled(shadow, 3)
    late, early = difference(document, shortened), difference(document, lengthened)
    assert (late["result"], late["reason"], round(late["seconds"], -1)) == ("later", "old_deadline", 20)
    assert (early["result"], early["reason"], round(early["seconds"], -1)) == ("built_in_only", "old_deadline", 290)


async def test_a_restart_of_the_built_in_controller_is_reported_as_a_new_countdown(
    cluster: ClusterUnderTest, shadow: RunningController
) -> None:
    """W7, #108268: with 60 s and a restart after 10 s, the built-in controller evicts after 70 s or later."""
    if not (command := os.environ.get("TAINT_EVICTION_TEST_RESTART_BUILT_IN")):
        pytest.skip("TAINT_EVICTION_TEST_RESTART_BUILT_IN names no command")
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(60)])
    await cluster.taint("a", KEY)
    await asyncio.sleep(10.0)
    restarted = await asyncio.create_subprocess_shell(command)
    assert await restarted.wait() == 0
    await cluster.evicted(pod, 180.0)
    found = difference(await settled(shadow, 2), pod)
    assert (found["result"], found["reason"]) == ("later", "begun_anew")
    assert found["seconds"] >= 9.0


@contextlib.asynccontextmanager
async def no_deletions(cluster: ClusterUnderTest) -> AsyncIterator[None]:
    """Make the API server deny each deletion of a pod of this test, until the end of the block."""
    name, own = cluster.prefix, {"matchLabels": {"kubernetes.io/metadata.name": cluster.prefix}}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}]
    policy = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": own}}
    made = [
        (f"{ADMISSION}/validatingadmissionpolicies", policy),
        (f"{ADMISSION}/validatingadmissionpolicybindings", binding),
    ]
    try:
        for path, spec in made:
            await cluster.call("POST", path, {"metadata": {"name": name}, "spec": spec})
        probe = f"/api/v1/namespaces/{cluster.prefix}/pods/denied?dryRun=All"
        async with asyncio.timeout(60.0):
            while await cluster.call("DELETE", probe, fine=(403, 422)) is not None:  # noqa: ASYNC110 - asked again
                await asyncio.sleep(0.5)
        yield
    finally:
        for path, _ in reversed(made):
            await cluster.call("DELETE", f"{path}/{name}", fine=(404,))


async def test_an_eviction_that_the_built_in_controller_gives_up_is_reported(
    cluster: ClusterUnderTest, shadow: RunningController
) -> None:
    """W8, #140639: the built-in controller tries five times within 50 ms, and the pod stays with the condition."""
    await cluster.create_node("a")
    await cluster.create_node("b")
    pod = await cluster.create_pod("pod", "a")
    await cluster.create_pod("denied", "b")
    async with no_deletions(cluster):
        await cluster.taint("a", KEY)
        await cluster.until(lambda: pod.condition("DisruptionTarget") is not None)
        await asyncio.sleep(2.0)
    await cluster.stays(pod, 15.0)
    await cluster.untaint("a", KEY)
    found = difference(await settled(shadow, 2), pod)
    assert (found["result"], found["reason"]) == ("never", "gave_up")


async def test_ordinary_taints_cause_no_differences(cluster: ClusterUnderTest, shadow: RunningController) -> None:
    """Pods tolerate the taint or not, the taint is removed in time or not, and the test deletes some pods itself."""
    rng, ends_at = random.Random(1), read_monotonic() + 60.0 * float(os.environ.get("TAINT_EVICTION_TEST_MINUTES", "1"))
    for node in "abc":
        await cluster.create_node(node)
    number = 0
    while read_monotonic() < ends_at:
        node, pods = rng.choice("abc"), []
        for _ in range(4):
            number += 1
            seconds = rng.choice([None, 3, 8, 20])
            tolerations = [] if seconds is None else [tolerates(seconds)]
            pods.append(await cluster.create_pod(f"pod-{number}", node, tolerations))
        await cluster.taint(node, KEY)
        await asyncio.sleep(rng.choice([1.0, 5.0, 12.0]))
        await cluster.remove_pod(rng.choice(pods).name)
        await asyncio.sleep(rng.choice([0.0, 5.0, 12.0]))
        await cluster.untaint(node, KEY)
        for pod in pods:
            await cluster.remove_pod(pod.name)
    document = await settled(shadow, 1)
    assert document["differences"] == []
    assert document["results"]["same"] > 1
