"""The simulated cluster and its API: versions, UIDs, deletion and the order of events are as in a real one."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from tests.unit.builders import at_once

from taint_eviction.core.objects import NamespacedName, Pod, PodRef
from taint_eviction.runtime.ports import CallFailed, FailureReason, NodesScope, Page, PodsScope, WatchEnded
from taint_eviction.settings import Settings
from taint_eviction_lab.simulation import actions as do
from taint_eviction_lab.simulation.api import SimulatedApi
from taint_eviction_lab.simulation.calls import Network, SimulatedCalls, World
from taint_eviction_lab.simulation.cluster import Impossible
from taint_eviction_lab.simulation.faults import CallFault, CallKind, Picked
from taint_eviction_lab.simulation.node_steps import create_node
from taint_eviction_lab.simulation.pod_steps import create_pod
from taint_eviction_lab.simulation.pod_writes import PodWrites
from taint_eviction_lab.simulation.stage import ReplayStage
from taint_eviction_lab.simulation.timeline import Timeline, What
from taint_eviction_lab.simulation.virtual_clock import HostClock, ProcessClock, virtual_now
from taint_eviction_lab.simulation.virtual_loop import run_virtually
from taint_eviction_lab.simulation.watches import SimulatedWatcher
from taint_eviction_lab.wiring import production_parsing

WEB = NamespacedName("default", "web-0")
TAINT = {"key": "a", "effect": "NoExecute"}


class DoorScene:
    """A stage with one node and one pod, and the API clients of a process that does not run."""

    def __init__(self, page_size: int = 500, cache_age: float = 0.0) -> None:
        self.stage = ReplayStage(Timeline(), Settings(), production_parsing(), seed="test")
        self.cluster = self.stage.cluster
        self.clock = ProcessClock(HostClock(), 0.0)
        network = Network(page_size=page_size)
        timeline = self.stage.timeline
        writes = PodWrites(self.cluster, timeline)
        world = World(self.cluster, self.stage.faults, network, production_parsing(), timeline, writes)
        calls = SimulatedCalls(world, self.clock)
        self.api = SimulatedApi(world, calls, cache_age=lambda: cache_age)
        self.watcher = SimulatedWatcher(world, calls, self.stage.nodes, self.stage.pods)
        create_node(self.cluster, {"metadata": {"name": "node-1"}})
        self.create_pod()

    def create_pod(self, name: str = "web-0", **metadata: Any) -> PodRef:
        """Create a pod on the node."""
        key = NamespacedName("default", name)
        body = {"metadata": {"namespace": "default", "name": name, **metadata}, "spec": {"nodeName": "node-1"}}
        create_pod(self.cluster, body)
        return PodRef(key, self.pod(name)["metadata"]["uid"])

    def pod(self, name: str = "web-0") -> dict[str, Any]:
        """Return a pod as it is now."""
        return self.cluster.body("pods", name, "default")

    @property
    def ref(self) -> PodRef:
        """The pod that has the name now."""
        return PodRef(WEB, self.pod()["metadata"]["uid"])

    async def perform(self, *actions: do.Action) -> None:
        """Perform actions of a scenario."""
        for action in actions:
            await do.ScenarioStep(0.0, action, 1, "").perform(self.stage)


class Heard:
    """A listener that records what it receives."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """Record an event's type, name and version."""
        metadata = body["metadata"]
        self.told.append(f"{virtual_now():.2f} {event_type} {metadata['name']} {metadata['resourceVersion']}")

    def on_listed(self) -> None:
        """Record that the list is complete."""
        self.told.append(f"{virtual_now():.2f} listed")

    def on_heard(self) -> None:
        """Nothing to do."""

    def on_progress(self, version: int | None) -> None:
        """Nothing to do."""


def play(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine in virtual time."""
    run_virtually(main)


def test_a_list_has_the_version_of_the_moment_at_which_it_was_answered() -> None:
    """If a list had the version of its arrival, a pod created meanwhile would seem to be gone."""

    async def main() -> None:
        scene = DoorScene()

        async def first_page() -> Page[Pod]:
            return await anext(aiter(scene.api.list_pods(None)))

        answering = asyncio.create_task(first_page())
        await asyncio.sleep(0.007)
        at_the_answer = scene.cluster.store.resource_version
        scene.create_pod("late")
        page = await answering
        assert page.resource_version == at_the_answer
        assert page.present == {"default-web-0-1"}

    play(main())


def test_a_cached_list_is_as_old_as_the_cache() -> None:
    """A cached list that is ten seconds old still has a pod deleted since, and lacks a pod created since."""

    async def main() -> None:
        scene = DoorScene(cache_age=10.0)
        await asyncio.sleep(20)
        await scene.perform(do.DeletePod(WEB, force=True))
        scene.create_pod("new")
        await asyncio.sleep(9)
        assert [pod.ref.key.name for pod in await scene.api.cached_pods("node-1")] == ["web-0"]
        await asyncio.sleep(1)
        assert [pod.ref.key.name for pod in await scene.api.cached_pods("node-1")] == ["new"]
        assert await scene.api.cached_pods("node-2") == ()

    play(main())


def test_all_pages_of_a_list_show_one_moment() -> None:
    """A pod created between two pages is not in the list, and a pod deleted between them still is."""

    async def main() -> None:
        scene = DoorScene(page_size=1)
        scene.create_pod("web-1")
        pages: list[Page[Any]] = []
        async for page in scene.api.list_pods("node-1"):
            pages.append(page)
            if len(pages) == 1:
                await scene.perform(do.DeletePod(NamespacedName("default", "web-1"), force=True))
                scene.create_pod("web-2")
        assert [sorted(page.present) for page in pages] == [["default-web-0-1"], ["default-web-1-1"]]
        assert pages[0].resource_version == pages[1].resource_version

    play(main())


def test_malformed_objects_are_present_in_lists() -> None:
    """A malformed object cannot be read, but its UID is present in the list, so the object does not seem gone."""

    async def main() -> None:
        scene = DoorScene()
        create_node(scene.cluster, {"metadata": {"name": "node-2"}, "spec": {"taints": 7}})
        page = await anext(aiter(scene.api.list_nodes()))
        assert [node.name for node in page.objects] == ["node-1"]
        assert page.present == {"node-1-1", "node-2-1"}

    play(main())


def test_a_delete_with_another_uid_deletes_nothing() -> None:
    """Calls with the UID of a predecessor change nothing: DELETE, the condition's PATCH and GET find no such pod."""

    async def main() -> None:
        scene = DoorScene()
        first = scene.ref
        await scene.perform(do.RecreatePod(WEB))
        assert scene.ref.uid != first.uid
        assert await scene.api.delete(first, at_once) is False
        assert await scene.api.mark(first, False, scene.clock.server_clock.now()) is None
        assert await scene.api.read_pod(first) is None
        assert scene.cluster.pod(WEB) is not None
        assert await scene.api.delete(scene.ref, at_once) is True

    play(main())


def test_a_deleted_pod_is_gone_when_its_kubelet_and_its_finalizers_allow_it() -> None:
    """A deleted pod is Terminating until its kubelet is no longer frozen and its finalizers are removed."""

    async def main() -> None:
        scene = DoorScene()
        key = scene.create_pod("held", finalizers=["example.com/backup"]).key
        await scene.perform(do.FreezeKubelet("node-1", frozen=True), do.DeletePod(key), do.DeletePod(key))
        await asyncio.sleep(60)
        assert scene.pod("held")["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:30Z"
        await scene.perform(do.FreezeKubelet("node-1", frozen=False))
        await asyncio.sleep(60)
        assert scene.cluster.pod(key) is not None
        await scene.perform(do.RemoveFinalizers(key))
        assert scene.cluster.pod(key) is None
        with pytest.raises(Impossible, match="not found"):
            await scene.perform(do.DeletePod(key))

    play(main())


def test_taking_the_condition_back_needs_the_version_that_was_read() -> None:
    """If somebody else writes the pod in between, the call is refused with a conflict, as by a real API server."""

    async def main() -> None:
        scene = DoorScene()
        pod = await scene.api.mark(scene.ref, False, scene.clock.server_clock.now())
        assert pod is not None
        assert pod.marked
        await scene.perform(do.SetHold(WEB, "10m"))
        with pytest.raises(CallFailed) as raised:
            await scene.api.unmark(pod, scene.clock.server_clock.now())
        assert raised.value.reason is FailureReason.CONFLICT

    play(main())


def test_managed_fields_tell_who_wrote_the_taints_and_when() -> None:
    """The entry belongs to the last writer of the list of taints; its time moves with each write of that manager."""

    async def main() -> None:
        scene = DoorScene()

        def owners() -> list[tuple[str, str]]:
            entries = scene.cluster.body("nodes", "node-1")["metadata"]["managedFields"]
            return [(entry["manager"], entry["time"][-3:]) for entry in entries if entry["manager"] != "kubelet"]

        await asyncio.sleep(5.2)
        await scene.perform(do.AddTaints("node-1", (TAINT,)))
        assert owners() == [("kubectl-taint", "05Z")]
        await asyncio.sleep(5)
        await scene.perform(do.WriteNode("node-1", "kubectl-taint"))
        assert owners() == [("kubectl-taint", "10Z")]
        await scene.perform(do.AddTaints("node-1", ({**TAINT, "key": "b"},), "other"))
        assert ("other", "10Z") in owners()
        await scene.perform(do.RemoveTaints("node-1", None))
        assert owners() == [("kubectl-taint", "10Z")]

    play(main())


def test_events_arrive_in_order_whatever_the_lag() -> None:
    """An event with a shorter lag does not overtake an earlier one with a longer lag."""

    async def main() -> None:
        scene, heard = DoorScene(), Heard()
        watching = asyncio.create_task(scene.watcher.watch(PodsScope("node-1"), heard))
        await asyncio.sleep(1)
        scene.stage.pods.lag(10)
        scene.create_pod("first")
        scene.stage.pods.lag(0)
        scene.create_pod("second")
        await scene.perform(do.AddTaints("node-1", (TAINT,)))
        await asyncio.sleep(20)
        watching.cancel()
        assert heard.told == [
            "0.01 None web-0 102",
            "0.01 listed",
            "11.00 ADDED first 103",
            "11.00 ADDED second 104",
        ]

    play(main())


def test_a_cut_watch_ends_and_cannot_be_opened_for_a_while() -> None:
    """Changes during the cut arrive with the next list, not as events."""

    async def main() -> None:
        scene, heard = DoorScene(), Heard()
        watching = asyncio.create_task(scene.watcher.watch(NodesScope(), heard))
        await asyncio.sleep(1)
        scene.stage.nodes.cut(10)
        with pytest.raises(WatchEnded, match="reset"):
            await watching
        with pytest.raises(WatchEnded, match="refused"):
            await scene.watcher.watch(NodesScope(), heard)
        await scene.perform(do.AddTaints("node-1", (TAINT,)))
        await asyncio.sleep(10)
        again = asyncio.create_task(scene.watcher.watch(NodesScope(), heard))
        await asyncio.sleep(1)
        again.cancel()
        assert heard.told == [
            "0.01 None node-1 101",
            "0.01 listed",
            "11.01 None node-1 103",
            "11.01 listed",
        ]

    play(main())


def test_calls_fail_as_their_faults_say() -> None:
    """A fault applies as many times as it says, with its status and advice, with or without effect on the pod."""

    async def main() -> None:
        scene = DoorScene()
        deletes = frozenset({CallKind.DELETE})
        scene.stage.faults.add(Picked(deletes, times=1), CallFault(fails=True, status=429, retry_after_seconds=7))
        scene.stage.faults.add(Picked(deletes, times=1), CallFault(hangs=True, takes_effect=True))
        ref = scene.ref
        with pytest.raises(CallFailed) as raised:
            await scene.api.delete(ref, at_once)
        assert raised.value.retry_after_seconds == 7
        assert scene.cluster.pod(WEB) is not None
        begun = virtual_now()
        with pytest.raises(CallFailed, match="no answer within 10 s"):
            await scene.api.delete(ref, at_once)
        assert virtual_now() - begun == pytest.approx(10)
        assert scene.cluster.pod(WEB) is None
        assert await scene.api.delete(ref, at_once) is False
        kinds = [entry.what for entry in scene.stage.timeline.about(str(ref), *What)]
        assert kinds == [What.CALL_FAILED, What.EVICTED, What.CALL_FAILED, What.GONE, What.DELETE_MISSED]

    play(main())


def test_a_slow_call_gives_up_in_time() -> None:
    """A call that would arrive after its timeout never arrives."""

    async def main() -> None:
        scene = DoorScene()
        scene.stage.faults.add(Picked(frozenset({CallKind.DELETE})), CallFault(delay_seconds=30))
        with pytest.raises(CallFailed, match="no answer within 10 s"):
            await scene.api.delete(scene.ref, at_once)
        assert virtual_now() == pytest.approx(10)
        assert scene.cluster.pod(WEB) is not None

    play(main())


def test_impossible_actions_are_errors() -> None:
    """An action that the cluster cannot perform is an error that names the reason."""

    async def main() -> None:
        scene = DoorScene()
        pod = {"metadata": {"namespace": "default", "name": "web-0"}}
        impossible: dict[str, do.Action] = {
            'pods "web-0" already exists': do.CreatePods((pod,)),
            'pod web-0 is already assigned to node "node-1"': do.BindPod(WEB, "node-1"),
            'nodes "node-9" not found': do.DeleteNode("node-9"),
            "there has never been a node 'node-9'": do.RecreateNode("node-9"),
        }
        for why, action in impossible.items():
            with pytest.raises(Impossible, match=why):
                await scene.perform(action)

    play(main())
