"""What the controller does to the pods of a cluster, seen from outside only."""

from tests.e2e.cluster import ClusterUnderTest, Json
from tests.stage.processes import RunningController

from taint_eviction.runtime.clock import read_monotonic

KEY = "taint-eviction-test/maintenance"


def tolerates(seconds: int | None = None, key: str = KEY) -> Json:
    """Make a toleration, indefinitely where ``seconds`` is None."""
    toleration: Json = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


async def test_untolerating_goes_at_once_tolerating_in_time_and_for_ever_stays(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """A pod without toleration goes at once, one with 3 s after 3 s, one that tolerates indefinitely never."""
    await cluster.create_node("a")
    none = await cluster.create_pod("none", "a")
    some = await cluster.create_pod("some", "a", [tolerates(3)])
    ever = await cluster.create_pod("ever", "a", [tolerates()])
    tainted_at = read_monotonic()
    await cluster.taint("a", KEY)
    await cluster.evicted(none)
    assert await cluster.evicted(some) - tainted_at >= 3.0
    await cluster.stays(ever, 1.0)


async def test_evicted_pod_carries_the_condition_and_one_event_with_its_uid(
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


async def test_clearing_the_taint_cancels(cluster: ClusterUnderTest, controller: RunningController) -> None:
    """A pod whose taint is removed before its time is up stays."""
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(3)])
    await cluster.taint("a", KEY)
    await cluster.untaint("a", KEY)
    await cluster.stays(pod, 5.0)


async def test_recreated_under_its_name_it_is_evicted_again(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """A pod that is recreated under its name is evicted as the first was when the node is tainted again (W1)."""
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


async def test_recreated_elsewhere_the_name_protects_nobody_and_dooms_nobody(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """The deadline of a pod that is gone does not hit its successor on a clean node (W2)."""
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
    """Shorter tolerationSeconds hasten an armed pod, longer ones spare it (W5)."""
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


async def test_shorter_second_taint_hastens_and_its_removal_extends(
    cluster: ClusterUnderTest, controller: RunningController
) -> None:
    """The earliest deadline of all taints counts at any moment (W6)."""
    other = f"{KEY}-2"
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(8), tolerates(4, other)])
    tainted_at = read_monotonic()
    await cluster.taint("a", KEY)
    await cluster.taint("a", other)
    await cluster.untaint("a", other)
    assert await cluster.evicted(pod) - tainted_at >= 8.0


async def test_bound_late_to_a_tainted_node(cluster: ClusterUnderTest, controller: RunningController) -> None:
    """A pod that is bound to a tainted node after the fact is evicted; unbound it is not."""
    await cluster.create_node("a")
    await cluster.taint("a", KEY)
    pod = await cluster.create_pod("pod", None)
    await cluster.stays(pod, 1.5)
    await cluster.bind_pod("pod", "a")
    await cluster.evicted(pod)


async def test_mirror_pods_are_left_alone(cluster: ClusterUnderTest, controller: RunningController) -> None:
    """A mirror pod is never evicted (W15)."""
    await cluster.create_node("a")
    mirror = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}
    pod = await cluster.create_pod("mirror", "a", annotations=mirror)
    await cluster.taint("a", KEY)
    await cluster.stays(pod, 2.0)


async def test_deleted_node_evicts_nobody(cluster: ClusterUnderTest, controller: RunningController) -> None:
    """Deleting a node cancels the deadlines on it; its pods are left to the pod garbage collector (W12)."""
    await cluster.create_node("a")
    pod = await cluster.create_pod("pod", "a", [tolerates(2)])
    await cluster.taint("a", KEY)
    await cluster.delete_node("a")
    await cluster.stays(pod, 4.0)
