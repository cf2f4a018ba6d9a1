"""What the controller does to the pods of a cluster, observed only from outside."""

from tests.e2e.cluster import ClusterUnderTest, Json
from tests.stage.processes import RunningController

from taint_eviction.runtime.clock import read_monotonic

KEY = "taint-eviction-test/maintenance"


def tolerates(seconds: int | None = None, key: str = KEY) -> Json:
    """Return a toleration, without a limit if ``seconds`` is None."""
    toleration: Json = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


async def test_pods_are_evicted_at_once_or_in_time_or_never_by_their_tolerations(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """A pod without toleration is evicted at once, one with 3 s after 3 s, and one without a limit not at all."""
    await cluster.create_node("a")
    none = await cluster.create_pod("none", "a")
    some = await cluster.create_pod("some", "a", [tolerates(3)])
    ever = await cluster.create_pod("ever", "a", [tolerates()])
    tainted_at = read_monotonic()
    await cluster.taint("a", KEY)
    await cluster.evicted(none)
    assert await cluster.evicted(some) - tainted_at >= 3.0
    await cluster.stays(ever, 1.0)


async def test_evicted_pod_has_the_condition_and_one_event_with_its_uid(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """The pod gets DisruptionTarget before its deletion, and one TaintManagerEviction event with its UID (W17)."""
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", finalizers=["taint-eviction-test/hold"])
    await cluster.taint("a", KEY)
    await cluster.evicted(pod)
    condition = pod.condition("DisruptionTarget")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByTaintManager")
    events = await cluster.told(pod)
    assert [(event["reason"], event["type"], event["source"]["component"]) for event in events] == [
        ("TaintManagerEviction", "Normal", "taint-eviction-controller")
    ]
    reason = f"taint {KEY}:NoExecute is not tolerated"
    assert events[0]["message"] == f"Marking for deletion Pod {cluster.prefix}/pod: {reason}"


async def test_removing_the_taint_cancels_the_eviction(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """The pod still exists after its deadline would have passed."""
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(3)])
    await cluster.taint("a", KEY)
    await cluster.untaint("a", KEY)
    await cluster.stays(pod, 5.0)


async def test_pod_recreated_with_its_name_is_evicted_again(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """W1: the pod has another UID, and its node is tainted again."""
    await cluster.create_node("a")
    first = await cluster.create_pod("web-0", "a", [tolerates(1)])
    await cluster.taint("a", KEY)
    await cluster.evicted(first)
    await cluster.untaint("a", KEY)
    await cluster.remove_pod("web-0")
    await cluster.until(lambda: first.gone_at is not None)
    second = await cluster.create_pod("web-0", "a", [tolerates(1)])
    assert second.uid != first.uid
    await cluster.taint("a", KEY)
    await cluster.evicted(second)


async def test_deadline_of_a_deleted_pod_does_not_evict_its_successor_on_a_clean_node(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """W2: a deadline belongs to one UID, not to a name."""
    await cluster.create_node("a")
    await cluster.create_node("b")
    first = await cluster.create_pod("web-0", "a", [tolerates(2)])
    await cluster.taint("a", KEY)
    await cluster.remove_pod("web-0")
    await cluster.until(lambda: first.gone_at is not None)
    second = await cluster.create_pod("web-0", "b", [tolerates(2)])
    await cluster.stays(second, 4.0)


async def test_changed_seconds_count_from_the_same_start(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """W5: shorter tolerationSeconds hasten an eviction, and longer ones prevent it for now."""
    await cluster.create_node("a")
    hastened = await cluster.create_pod("hastened", "a", [tolerates(600)])
    spared = await cluster.create_pod("spared", "a", [tolerates(6)])
    tainted_at = read_monotonic()
    await cluster.taint("a", KEY)
    for pod, seconds in ((hastened, 3), (spared, 600)):
        kept = [t for t in pod.body["spec"]["tolerations"] if t["key"] != KEY]
        await cluster.patch_pod(pod.name, {"spec": {"tolerations": [tolerates(seconds), *kept]}})
    assert await cluster.evicted(hastened) - tainted_at >= 3.0
    await cluster.stays(spared, 5.0)


async def test_removing_a_shorter_second_taint_restores_the_later_deadline(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """W6: at any moment, the earliest deadline of all present taints counts."""
    other = f"{KEY}-2"
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(8), tolerates(4, other)])
    tainted_at = read_monotonic()
    await cluster.taint("a", KEY)
    await cluster.taint("a", other)
    await cluster.untaint("a", other)
    assert await cluster.evicted(pod) - tainted_at >= 8.0


async def test_pod_bound_to_a_tainted_node_is_evicted(cluster: ClusterUnderTest, controller: RunningController) -> None:
    """The pod is not evicted before it is bound."""
    await cluster.create_node("a")
    await cluster.taint("a", KEY)
    pod = await cluster.create_pod("pod", None)
    await cluster.stays(pod, 1.5)
    await cluster.bind_pod("pod", "a")
    await cluster.evicted(pod)


async def test_mirror_pods_are_never_evicted(cluster: ClusterUnderTest, controller: RunningController) -> None:
    """W15: a deleted mirror pod would only be recreated."""
    await cluster.create_node("a")
    mirror = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}
    pod = await cluster.create_pod("mirror", "a", annotations=mirror)
    await cluster.taint("a", KEY)
    await cluster.stays(pod, 2.0)


async def test_deleting_a_node_cancels_its_evictions(cluster: ClusterUnderTest, controller: RunningController) -> None:
    """W12: the pods of a deleted node are left to the pod garbage collector."""
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(2)])
    await cluster.taint("a", KEY)
    await cluster.delete_node("a")
    await cluster.stays(pod, 4.0)
