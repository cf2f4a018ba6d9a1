"""The fake node lifecycle controller does to nodes, and when, what that of Kubernetes 1.36 does."""

from collections.abc import Iterable
from typing import Any

import pytest
from tests.unit.hand_time import HandTime

from fake_apiserver import NodeLifecycleSettings, WallClock
from fake_apiserver.cluster import FakeCluster
from fake_apiserver.node_heartbeats import ready_condition
from fake_apiserver.node_zones import ZoneState, zone_of, zone_state
from fake_apiserver.records import Change

NOON = 1_893_499_200.0  # 2030-01-01T12:00:00Z
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
JsonObject = dict[str, Any]


class LifecycleScene:
    """Nodes by zone, all ready, with the controller from second 0 on; ``heard``: each NoExecute taint, come or gone."""

    def __init__(self, zones: dict[str, int], settings: NodeLifecycleSettings | None = None) -> None:
        self.time = HandTime()
        self.heard: list[tuple[float, str]] = []
        self._known: dict[str, set[str]] = {}
        self.cluster = FakeCluster(
            clock=WallClock(source=lambda: NOON + self.time.seconds),
            call_later=self.time.call_later,
            recorder=self._record,
            node_lifecycle=settings or NodeLifecycleSettings(),
        )
        self.cluster.kubelets.resume()
        for zone, number in zones.items():
            for index in range(number):
                self.create(f"{zone}{index:03}", zone)
        assert self.cluster.node_lifecycle is not None
        self.controller = self.cluster.node_lifecycle
        self.controller.resume()

    def create(self, name: str, zone: str = "a", **status: Any) -> None:
        """Create a node."""
        labels = {"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r"}
        body: JsonObject = {"metadata": {"name": name, "labels": labels}, "spec": {}}
        self.cluster.put("nodes", body | ({"status": status} if status else {}))

    def _record(self, change: Change) -> None:
        if change.new.resource.plural == "nodes":
            name = change.new.name
            taints = change.new.decode().get("spec", {}).get("taints") or []
            now = {taint["key"].rpartition("/")[2] for taint in taints if taint["effect"] == "NoExecute"}
            before = self._known.setdefault(name, set())
            at = round(self.time.seconds, 3)
            self.heard += [(at, f"{name} +{key}") for key in sorted(now - before)]
            self.heard += [(at, f"{name} -{key}") for key in sorted(before - now)]
            self._known[name] = now

    def until(self, second: float) -> list[tuple[float, str]]:
        """Let time pass; return what is new."""
        self.heard.clear()
        self.time.pass_by(second - self.time.seconds)
        return list(self.heard)

    def silence(self, *nodes: str) -> None:
        """Let kubelets fall silent."""
        for node in nodes:
            self.controller.heartbeats.silence(node)

    def speak(self, *nodes: str) -> None:
        """Let kubelets come back."""
        for node in nodes:
            self.controller.heartbeats.speak(node)

    def post(self, node: str, status: str) -> None:
        """Let a kubelet post this status of Ready."""
        now = self.cluster.clock.timestamp()
        condition = {"type": "Ready", "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now}
        self.cluster.patch("nodes", node, {"status": {"conditions": [condition]}}, manager="kubelet")

    def ready(self, node: str) -> JsonObject:
        """Return the node's condition Ready."""
        condition = ready_condition(self.node(node))
        assert condition is not None
        return condition

    def node(self, name: str) -> JsonObject:
        """Return a node."""
        found = self.cluster.get("nodes", name)
        assert found is not None
        return found

    def taints(self, node: str) -> list[tuple[str, str, str]]:
        """List the node's taints: key, effect, time of day."""
        taints = self.node(node)["spec"].get("taints") or []
        return [(taint["key"], taint["effect"], taint["timeAdded"][11:19]) for taint in taints]


def nodes(zone: str, numbers: Iterable[int]) -> list[str]:
    """Name nodes of a zone."""
    return [f"{zone}{index:03}" for index in numbers]


# One node


def test_a_silent_node_is_unknown_after_the_grace_period_and_tainted_at_once_and_then_by_the_queue() -> None:
    """Counted from the pass that saw the last renewal; NoSchedule at the same instant, NoExecute 0.1 s later."""
    scene = LifecycleScene({"a": 2})
    scene.time.pass_by(12)
    scene.silence("a000")
    assert scene.until(59.9) == []
    assert scene.ready("a000")["status"] == "True"
    assert scene.until(60.0) == []
    assert scene.ready("a000") == {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastHeartbeatTime": "2030-01-01T12:00:00Z",
        "lastTransitionTime": "2030-01-01T12:01:00Z",
    }
    assert scene.taints("a000") == [(UNREACHABLE, "NoSchedule", "12:01:00")]
    assert scene.until(100) == [(60.1, "a000 +unreachable")]
    assert scene.taints("a000")[1] == (UNREACHABLE, "NoExecute", "12:01:00")


def test_before_1_32_the_grace_period_was_40_seconds() -> None:
    """It is a setting, as the period is."""
    scene = LifecycleScene({"a": 2}, NodeLifecycleSettings(grace_period_seconds=40))
    scene.silence("a000")
    assert scene.until(100) == [(40.1, "a000 +unreachable")]


def test_a_kubelet_that_comes_back_in_time_is_never_tainted() -> None:
    """Its Lease is renewed again."""
    scene = LifecycleScene({"a": 2})
    scene.silence("a000")
    scene.time.pass_by(49)
    scene.speak("a000")
    assert scene.until(500) == []


def test_a_kubelet_that_comes_back_is_ready_at_once_and_untainted_by_the_next_pass() -> None:
    """The NoSchedule taint goes at once, too."""
    scene = LifecycleScene({"a": 2})
    scene.silence("a000")
    scene.time.pass_by(71)
    scene.speak("a000")
    assert scene.ready("a000")["status"] == "True"
    assert scene.ready("a000")["lastTransitionTime"] == "2030-01-01T12:01:11Z"
    assert scene.until(74.9) == []
    assert scene.taints("a000") == [(UNREACHABLE, "NoExecute", "12:00:50")]
    assert scene.until(75) == [(75, "a000 -unreachable")]
    assert scene.taints("a000") == []


def test_pods_of_a_node_that_falls_silent_are_not_ready_until_it_speaks() -> None:
    """Nobody else restores that; a pod that was not ready before is not ready after."""
    scene = LifecycleScene({"a": 2})
    for name, status in (("well", "True"), ("ill", "False")):
        ready = {"type": "Ready", "status": status}
        pod = {"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": "a000"}}
        scene.cluster.put("pods", {**pod, "status": {"phase": "Running", "conditions": [ready]}})

    def statuses() -> list[str]:
        return [found["status"] for pod in scene.cluster.list("pods") if (found := ready_condition(pod)) is not None]

    scene.silence("a000")
    assert statuses() == ["False", "True"]
    scene.time.pass_by(50)
    assert statuses() == ["False", "False"]
    scene.speak("a000")
    assert statuses() == ["False", "True"]


def test_a_node_that_posts_not_ready_is_tainted_not_ready_by_the_next_pass() -> None:
    """The NoSchedule taint does not wait for it."""
    scene = LifecycleScene({"a": 2})
    scene.time.pass_by(12)
    scene.post("a000", "False")
    scene.time.pass_by(0)
    assert scene.taints("a000") == [(NOT_READY, "NoSchedule", "12:00:12")]
    assert scene.until(60) == [(15.1, "a000 +not-ready")]


def test_a_node_that_is_not_ready_and_then_silent_gets_the_other_taint_first_and_loses_the_old_one_then() -> None:
    """Two writes at once, past the queue."""
    scene = LifecycleScene({"a": 2})
    scene.time.pass_by(2)
    scene.post("a000", "False")
    scene.time.pass_by(4)
    scene.silence("a000")
    assert scene.until(200) == [(55, "a000 +unreachable"), (55, "a000 -not-ready")]
    assert (UNREACHABLE, "NoExecute", "12:00:55") in scene.taints("a000")


def test_a_taint_that_somebody_removes_from_a_silent_node_is_set_again() -> None:
    """By the next pass, through the queue."""
    scene = LifecycleScene({"a": 2})
    scene.silence("a000")
    scene.time.pass_by(62)
    scene.cluster.untaint("a000", UNREACHABLE, "NoExecute")
    assert scene.until(100) == [(65.1, "a000 +unreachable")]


def test_a_node_whose_kubelet_never_posted_anything_is_unknown_60_seconds_after_its_creation() -> None:
    """The startup grace period; its reason tells it from others."""
    scene = LifecycleScene({"a": 2})
    scene.time.pass_by(2)
    scene.silence("new")
    scene.create("new")
    assert scene.until(70) == [(65.1, "new +unreachable")]
    assert scene.ready("new")["reason"] == "NodeStatusNeverUpdated"


def test_a_node_that_is_registered_is_ready_and_has_a_lease() -> None:
    """Its kubelet posts it."""
    scene = LifecycleScene({"a": 1})
    scene.time.pass_by(3)
    scene.create("new")
    scene.time.pass_by(0)
    assert scene.ready("new")["status"] == "True"
    scene.time.pass_by(29)
    lease = scene.cluster.get("leases", "new", "kube-node-lease")
    assert lease is not None
    assert lease["spec"] == {
        "holderIdentity": "new",
        "leaseDurationSeconds": 40,
        "renewTime": "2030-01-01T12:00:23.000000Z",
    }
    scene.cluster.delete("nodes", "new")
    assert [lease["metadata"]["name"] for lease in scene.cluster.list("leases")] == ["a000"]


def test_a_cordoned_node_gets_the_taint_that_says_so() -> None:
    """As do nodes under pressure."""
    scene = LifecycleScene({"a": 1})
    scene.cluster.patch("nodes", "a000", {"spec": {"unschedulable": True}})
    scene.cluster.patch("nodes", "a000", {"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}})
    scene.time.pass_by(0)
    keys = {(key, effect) for key, effect, _ in scene.taints("a000")}
    assert keys == {
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    }


# Zones


@pytest.mark.parametrize(
    ("ready", "unready", "state"),
    [
        (1, 0, ZoneState.NORMAL),
        (1, 2, ZoneState.NORMAL),
        (3, 3, ZoneState.NORMAL),
        (9, 11, ZoneState.PARTIAL),
        (2, 3, ZoneState.PARTIAL),
        (0, 1, ZoneState.FULL),
    ],
)
def test_the_state_of_a_zone(ready: int, unready: int, state: ZoneState) -> None:
    """Partial disruption takes three nodes, and 55 % of them."""
    assert zone_state([True] * ready + [False] * unready) is state


def test_a_zone_is_told_by_region_and_zone_and_the_old_labels_first() -> None:
    """No labels are a zone, too."""
    new = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}
    old = {"failure-domain.beta.kubernetes.io/zone": "y"}
    assert zone_of({"metadata": {"labels": new}}) == "r:z"
    assert zone_of({"metadata": {"labels": {**new, **old}}}) == "r:y"
    assert zone_of({"metadata": {}}) == ""


def test_a_normal_zone_gets_one_taint_in_ten_seconds() -> None:
    """The first at once."""
    scene = LifecycleScene({"a": 7})
    scene.silence(*nodes("a", range(3)))
    taints = [(50.1, "a000 +unreachable"), (60.1, "a001 +unreachable"), (70.1, "a002 +unreachable")]
    assert scene.until(200) == taints


def test_a_zone_of_up_to_50_nodes_gets_none_while_55_percent_are_not_ready() -> None:
    """With the next node that is ready again, at the normal rate; a zone that stood still begins without a token."""
    scene = LifecycleScene({"a": 5})
    scene.silence(*nodes("a", range(3)))
    assert scene.until(1000) == []
    scene.speak("a000")
    assert scene.until(1100) == [(1015, "a001 +unreachable"), (1025, "a002 +unreachable")]


def test_a_larger_zone_gets_one_taint_in_100_seconds_while_55_percent_are_not_ready() -> None:
    """The zone's size counts, not that of the cluster."""
    scene = LifecycleScene({"a": 51, "b": 1})
    scene.silence(*nodes("a", range(30)))
    assert [at for at, _ in scene.until(300)] == [50.1, 150.1, 250.1]


def test_a_zone_that_is_lost_as_a_whole_gets_taints_at_the_normal_rate_while_others_live() -> None:
    """Unlike one that is lost in part."""
    scene = LifecycleScene({"a": 3, "b": 1})
    scene.silence(*nodes("a", range(3)))
    assert [at for at, _ in scene.until(200)] == [50.1, 60.1, 70.1]


def test_where_all_zones_are_lost_the_taints_are_taken_back_and_no_more_are_set() -> None:
    """Every NoExecute taint goes at once, and the NoSchedule taints stay."""
    scene = LifecycleScene({"a": 2, "b": 1})
    scene.silence(*nodes("a", range(2)))
    assert scene.until(71) == [(50.1, "a000 +unreachable"), (60.1, "a001 +unreachable")]
    scene.silence("b000")
    assert scene.until(3000) == [(120, "a000 -unreachable"), (120, "a001 -unreachable")]
    assert scene.taints("b000") == [(UNREACHABLE, "NoSchedule", "12:02:00")]
    assert set(scene.controller.zone_states.values()) == {ZoneState.FULL}


def test_when_the_first_node_is_back_after_all_were_lost_the_others_are_tainted_ten_seconds_later() -> None:
    """A zone that stood still begins without a token."""
    scene = LifecycleScene({"a": 2, "b": 2})
    scene.silence(*nodes("a", range(2)), *nodes("b", range(2)))
    assert scene.until(101) == []
    scene.speak("b000")
    assert scene.until(200) == [(115, "a000 +unreachable"), (115, "b001 +unreachable"), (125, "a001 +unreachable")]


def test_after_all_were_lost_a_node_that_is_still_called_ready_has_the_grace_period_anew() -> None:
    """All probe timestamps are set to now when the first node is back."""
    scene = LifecycleScene({"a": 3})
    excluded = {"node.kubernetes.io/exclude-disruption": ""}
    scene.cluster.patch("nodes", "a002", {"metadata": {"labels": excluded}})
    scene.silence("a000", "a001")
    scene.time.pass_by(47)
    scene.silence("a002")
    scene.time.pass_by(36)
    scene.speak("a000")
    assert scene.until(84.9) == []
    assert scene.ready("a002")["status"] == "True"
    assert scene.until(134) == [(95, "a001 +unreachable")]
    assert scene.ready("a002")["status"] == "True"
    assert scene.until(140) == [(135.1, "a002 +unreachable")]


def test_excluded_nodes_count_for_no_zone() -> None:
    """One that is ready keeps nobody's taints, one that is not disturbs nobody."""
    scene = LifecycleScene({"a": 2})
    scene.cluster.patch("nodes", "a001", {"metadata": {"labels": {"node.kubernetes.io/exclude-disruption": ""}}})
    scene.silence("a000")
    assert scene.until(1000) == []
    assert scene.ready("a000")["status"] == "Unknown"


# Restarts


def test_a_new_leader_removes_the_taint_of_a_node_that_is_down_and_sets_it_again_with_another_time() -> None:
    """The node stays Unknown, since when it was, and keeps its NoSchedule taint."""
    scene = LifecycleScene({"a": 2})
    scene.silence("a000")
    scene.time.pass_by(70)
    before = scene.ready("a000")
    scene.controller.restart(15)
    assert scene.until(200) == [(85, "a000 -unreachable"), (85.1, "a000 +unreachable")]
    assert scene.ready("a000") == before
    assert scene.taints("a000") == [(UNREACHABLE, "NoSchedule", "12:00:50"), (UNREACHABLE, "NoExecute", "12:01:25")]


def test_a_new_leader_sets_the_taints_of_many_nodes_again_one_in_ten_seconds_and_zone() -> None:
    """All are removed at once."""
    scene = LifecycleScene({"a": 5, "b": 3})
    down = [*nodes("a", range(2)), *nodes("b", range(1))]
    scene.silence(*down)
    scene.time.pass_by(100)
    scene.controller.restart(0)
    removed = [(100, f"{node} -unreachable") for node in down]
    again = [(100.1, "a000 +unreachable"), (100.1, "b000 +unreachable"), (110.1, "a001 +unreachable")]
    assert scene.until(300) == removed + again


def test_a_new_leader_sets_no_taint_again_in_a_small_zone_that_is_lost_in_part() -> None:
    """The taints were set before the zone was."""
    scene = LifecycleScene({"a": 5})
    scene.silence("a000")
    scene.time.pass_by(60)
    scene.silence("a001", "a002")
    scene.time.pass_by(60)
    scene.controller.restart(0)
    assert scene.until(1000) == [(120, "a000 -unreachable")]


def test_a_new_leader_gives_a_node_that_fell_silent_before_it_the_whole_grace_period() -> None:
    """It has seen no heartbeat yet, so it takes now for the last."""
    scene = LifecycleScene({"a": 2})
    scene.silence("a000")
    scene.time.pass_by(41)
    scene.controller.restart(0)
    assert scene.until(300) == [(91.1, "a000 +unreachable")]


def test_while_nobody_leads_nothing_is_written() -> None:
    """Not even NoSchedule taints; the next leader makes up for it."""
    scene = LifecycleScene({"a": 3})
    scene.controller.restart(1000)
    scene.post("a000", "False")
    scene.silence("a001")
    assert scene.until(999) == []
    assert scene.taints("a000") == []
    assert scene.until(1060) == [(1000.1, "a000 +not-ready"), (1050.1, "a001 +unreachable")]


def test_the_same_events_give_the_same_writes() -> None:
    """Nothing is left to chance."""

    def writes() -> list[tuple[float, str]]:
        scene = LifecycleScene({"a": 6, "b": 4})
        scene.silence(*nodes("a", range(3)), "b001")
        return scene.until(333)

    assert writes() == writes()
