"""Adopted countdowns beside the built-in controller, if one runs: it ends none of them, and all guards hold pods.

The embedded API server has no built-in controller; there the same must happen.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster import ClusterUnderTest, Json, WatchedPod
from tests.e2e.conftest import Order, Start, own_controller

from taint_eviction.runtime.clock import read_monotonic

KEY = "taint-eviction-test/maintenance"
ADOPTED = "taint-eviction/seconds"
# Only a process that holds the Lease adopts.
ELECTED = ("--leader-elect", "--adopt")
ADOPTING = (*ELECTED, "--adopt-from=1s")
# These tests take long, and replays show the same in virtual time.
real_only = pytest.mark.parametrize("config", [pytest.param("real", marks=pytest.mark.e2e)], indirect=True)
# Half a second for the watch, half a second until the leader evaluates, and more on a busy machine.
_SOON_SECONDS = 5.0


def tolerates(seconds: int | None, key: str = KEY) -> Json:
    """Return a toleration; None: indefinitely."""
    toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


def is_adopted(pod: WatchedPod) -> bool:
    """Return whether a pod had a note when it was last seen."""
    return ADOPTED in (pod.body["metadata"].get("annotations") or {})


def seconds_of(pod: WatchedPod) -> list[Any]:
    """Return the seconds of a pod's tolerations for the test's key."""
    return [each.get("tolerationSeconds") for each in pod.body["spec"]["tolerations"] if each.get("key") == KEY]


def comparable(body: Json) -> Json:
    """Return a pod without the fields that each of its changes changes."""
    left_out = ("generation", "resourceVersion", "managedFields")
    metadata = {field: value for field, value in body["metadata"].items() if field not in left_out}
    for field in ("labels", "annotations"):
        metadata.setdefault(field, {})
    return {"metadata": metadata, "spec": body["spec"]}


async def adopted(cluster: ClusterUnderTest, pod: WatchedPod) -> None:
    """Wait until a pod is adopted."""
    await cluster.until(lambda: is_adopted(pod), _SOON_SECONDS)


@real_only
async def test_an_adopted_pod_is_evicted_at_its_own_deadline(cluster: ClusterUnderTest, start: Start) -> None:
    """The seconds of all matching tolerations are noted; another toleration keeps its seconds."""
    await start(*ADOPTING)
    await cluster.create_node("a")
    others = tolerates(30, "taint-eviction-test/other")
    pod = await cluster.create_pod("pod", "a", [tolerates(4), tolerates(60), others])
    began = read_monotonic()
    await cluster.taint("a", KEY)
    await adopted(cluster, pod)
    assert seconds_of(pod) == [None, None]
    assert others in pod.body["spec"]["tolerations"]
    # Nothing sets timeAdded, so the countdown begins when the taint was first seen.
    assert 4.0 <= await cluster.evicted(pod) - began < 7.0


@real_only
async def test_a_pause_holds_an_adopted_pod(cluster: ClusterUnderTest, start: Start, order: Order) -> None:
    """The built-in controller, which knows no pauses, does not evict the pod, either."""
    await start(*ADOPTING)
    await order("pause")
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(5)])
    await cluster.taint("a", KEY)
    await adopted(cluster, pod)
    await cluster.stays(pod, 6.0)
    await order("resume", "--yes")
    await cluster.evicted(pod)


@real_only
async def test_a_budget_holds_an_adopted_pod(cluster: ClusterUnderTest, start: Start) -> None:
    """The pod is evicted once the budget allows a disruption."""
    await start(*ADOPTING, "--eviction-mode=evict", "--retry-max=2s")
    for node in ("a", "b"):
        await cluster.create_node(node)
    budget = await cluster.create_budget("guard", "db", min_available=2)
    pods = [await cluster.create_pod(f"db-{node}", node, [tolerates(4)], labels={"app": "db"}) for node in ("a", "b")]
    for pod in pods:
        await cluster.make_ready(pod.name)
    try:
        await cluster.eventually(budget, lambda found: found.get("status", {}).get("currentHealthy") == 2)
    except TimeoutError:
        pytest.skip("nobody fills in the status of budgets here: the cluster has no disruption controller")
    await cluster.taint("a", KEY)
    await adopted(cluster, pods[0])
    await cluster.stays(pods[0], 8.0)
    await cluster.relax_budget(budget, min_available=1)
    await cluster.evicted(pods[0])


@real_only
async def test_an_open_breaker_holds_adopted_pods(cluster: ClusterUnderTest, start: Start, order: Order) -> None:
    """A surge opens the breaker before the first pod is evicted."""
    await start(*ADOPTING, "--breaker", "--breaker-nodes=2")
    pods = []
    for node in ("a", "b", "c"):
        await cluster.create_node(node)
        pods.append(await cluster.create_pod(f"pod-{node}", node, [tolerates(4)]))
    for node in ("a", "b", "c"):
        await cluster.taint(node, KEY)
    for pod in pods:
        await adopted(cluster, pod)
    await cluster.stays(pods[0], 8.0)
    await order("breaker", "reset", "--yes")
    for pod in pods:
        await cluster.evicted(pod)


@real_only
async def test_an_adopted_pod_is_restored_when_the_taint_is_removed(cluster: ClusterUnderTest, start: Start) -> None:
    """The pod gets back its seconds, labels and annotations."""
    await start(*ADOPTING)
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(300), tolerates(20)], labels={"app": "web"})
    before = comparable(pod.body)
    await cluster.taint("a", KEY)
    await adopted(cluster, pod)
    await cluster.untaint("a", KEY)
    await cluster.until(lambda: not is_adopted(pod), 15.0)
    assert comparable(pod.body) == before


@real_only
async def test_the_next_process_continues_from_the_note(cluster: ClusterUnderTest, config: Path, start: Start) -> None:
    """It evicts a pod whose time ran out while no process ran; the built-in controller did not evict this pod."""
    async with own_controller(config, cluster.prefix, *ADOPTING):
        await cluster.create_node("a")
        pod = await cluster.create_pod("pod", "a", [tolerates(6)])
        await cluster.taint("a", KEY)
        await adopted(cluster, pod)
    await cluster.stays(pod, 6.0)
    await start(*ADOPTING)
    await cluster.evicted(pod)


@real_only
async def test_hand_back_ends_adoption(cluster: ClusterUnderTest, start: Start, order: Order) -> None:
    """The leader confirms, the pod gets back its seconds, and no pod is adopted before the undo."""
    await start(*ADOPTING)
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(300)])
    before = comparable(pod.body)
    await cluster.taint("a", KEY)
    await adopted(cluster, pod)
    told = await order("hand-back", "--yes")
    assert "leads, and no longer adopts pods" in told
    assert comparable(pod.body) == before
    later = await cluster.create_pod("later", "a", [tolerates(300)])
    with pytest.raises(TimeoutError):
        await cluster.until(lambda: is_adopted(later), 3.0)
    await order("hand-back", "--undo")
    await cluster.until(lambda: is_adopted(later) and is_adopted(pod), 15.0)


@real_only
async def test_a_pod_with_too_little_time_is_not_adopted(cluster: ClusterUnderTest, start: Start) -> None:
    """A pod that does not tolerate the taint is not adopted, either; both are evicted."""
    await start(*ELECTED, "--adopt-from=10s")
    await cluster.create_node("a")
    short = await cluster.create_pod("short", "a", [tolerates(3)])
    none = await cluster.create_pod("none", "a")
    await cluster.taint("a", KEY)
    for pod in (none, short):
        await cluster.evicted(pod)
        assert not is_adopted(pod)
