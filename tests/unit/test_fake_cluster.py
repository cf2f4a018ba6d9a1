"""The fake API server's cluster without HTTP: clocks and timers from outside, a recorder, and its budgets."""

import contextlib
from typing import Any

import pytest
from tests.unit.hand_time import HandTime

from fake_apiserver import StatusError, WallClock
from fake_apiserver.cluster import FakeCluster
from fake_apiserver.eviction import evict
from fake_apiserver.records import Change
from fake_apiserver.resources import RESOURCES

BUDGETS = "poddisruptionbudgets"
READY = {"type": "Ready", "status": "True"}
NOON = 1_893_499_200.0  # 2030-01-01T12:00:00Z


def pod(name: str = "p1", namespace: str = "default", **status: Any) -> dict[str, Any]:
    """Make a pod of the app web that is ready on n1, unless ``status`` says otherwise."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app": "web"}}
    spec = {"nodeName": "n1", "terminationGracePeriodSeconds": 30}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running", "conditions": [READY], **status}}


class ClusterScene:
    """A cluster whose time is the test's, with ``heard``: all changes in order."""

    def __init__(self, pods: int = 1, **status: Any) -> None:
        self.time = HandTime()
        self.heard: list[str] = []
        self.cluster = FakeCluster(
            clock=WallClock(source=lambda: NOON + self.time.seconds),
            call_later=self.time.call_later,
            recorder=self._record,
        )
        self.cluster.kubelets.resume()
        self.cluster.put("nodes", {"metadata": {"name": "n1"}})
        for number in range(1, pods + 1):
            self.cluster.put("pods", pod(f"p{number}", **status))

    def _record(self, change: Change) -> None:
        self.heard.append(f"{self.time.seconds:g} {change.type} {change.new.name}")

    def budget(self, namespace: str = "default", **spec: Any) -> None:
        """Create a budget and count for it."""
        body = {"metadata": {"name": "b", "namespace": namespace}, "spec": {"selector": {}, **spec}}
        self.cluster.create(BUDGETS, body)
        self.cluster.budgets.catch_up()

    def evicted(self, pods: int) -> int:
        """Ask for one pod's eviction after the other, all at one instant; count those that may go."""
        gone = 0
        for number in range(1, pods + 1):
            record = self.cluster.registry.get(RESOURCES["pods"], "default", f"p{number}")
            with contextlib.suppress(StatusError):
                evict(self.cluster.registry, record, {}, {})
                gone += 1
        return gone


def test_times_and_timers_come_from_outside() -> None:
    """Objects are dated by the given clock, and a kubelet ends a pod when the given timer says so."""
    scene = ClusterScene()
    scene.cluster.kubelets.finish_after_seconds = 2.0
    scene.time.pass_by(5)
    scene.cluster.delete("pods", "p1")
    terminating = scene.cluster.get("pods", "p1")
    assert terminating is not None
    assert terminating["metadata"]["deletionTimestamp"] == "2030-01-01T12:00:35Z"
    scene.time.pass_by(1.9)
    assert scene.cluster.get("pods", "p1") is not None
    scene.time.pass_by(0.2)
    assert scene.cluster.get("pods", "p1") is None


def test_the_recorder_hears_of_every_change_in_order_and_at_its_instant() -> None:
    """Before anybody reacts to it."""
    scene = ClusterScene()
    scene.cluster.taint("n1", "a")
    scene.time.pass_by(3)
    scene.cluster.delete("pods", "p1")
    scene.time.pass_by(1)
    changes = ["0 ADDED n1", "0 ADDED p1", "0 MODIFIED n1", "3 MODIFIED p1", "3.05 MODIFIED p1", "3.05 DELETED p1"]
    assert scene.heard == changes


def test_a_node_without_an_object_has_no_kubelet_where_that_is_asked_for() -> None:
    """Its pods stay terminating until a node of that name registers again."""
    scene = ClusterScene()
    scene.cluster.kubelets.registered_only = True
    scene.cluster.delete("nodes", "n1")
    scene.cluster.delete("pods", "p1")
    scene.time.pass_by(60)
    assert scene.cluster.get("pods", "p1") is not None
    scene.cluster.put("nodes", {"metadata": {"name": "n1"}})
    scene.time.pass_by(1)
    assert scene.cluster.get("pods", "p1") is None


def test_what_is_put_is_stored_as_it_is() -> None:
    """Malformed parts stay; what is missing in metadata is completed; a name is taken only once."""
    scene = ClusterScene(0)
    broken = {"metadata": {"name": "p1", "namespace": "default", "labels": 7}, "spec": {"tolerations": "everything"}}
    scene.cluster.put("pods", broken)
    stored = scene.cluster.get("pods", "p1")
    assert stored is not None
    assert stored["spec"] == {"tolerations": "everything"}
    assert stored["metadata"]["labels"] == 7
    assert stored["metadata"]["creationTimestamp"] == "2030-01-01T12:00:00Z"
    assert stored["metadata"]["uid"]
    with pytest.raises(StatusError, match='pods "p1" already exists'):
        scene.cluster.put("pods", broken)


@pytest.mark.parametrize(
    ("pods", "spec", "allowed"),
    [
        (3, {"minAvailable": 2}, 1),
        (3, {"minAvailable": 0}, 3),
        (3, {"minAvailable": 3}, 0),
        (3, {"minAvailable": 4}, 0),
        (3, {"minAvailable": "100%"}, 0),
        (3, {"minAvailable": "50%"}, 1),
        (4, {"minAvailable": "50%"}, 2),
        (3, {"minAvailable": "1%"}, 2),
        (3, {"maxUnavailable": 1}, 1),
        (3, {"maxUnavailable": 0}, 0),
        (3, {"maxUnavailable": "50%"}, 2),
        (3, {"maxUnavailable": "100%"}, 3),
        (3, {"maxUnavailable": 7}, 3),
    ],
)
def test_as_many_may_go_as_a_budget_allows(pods: int, spec: dict[str, Any], allowed: int) -> None:
    """Percentages are rounded up, of both kinds."""
    scene = ClusterScene(pods)
    scene.budget(**spec)
    assert scene.evicted(pods) == allowed


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pods_that_do_not_run_pass_every_budget(phase: str) -> None:
    """Their going costs nothing."""
    scene = ClusterScene(1, phase=phase)
    scene.budget(maxUnavailable=0)
    assert scene.evicted(1) == 1


@pytest.mark.parametrize(("policy", "gone"), [("AlwaysAllow", 2), ("IfHealthyBudget", 0)])
def test_a_pod_that_is_not_ready_passes_where_it_always_may(policy: str, gone: int) -> None:
    """By default only while enough others are healthy, and here none is."""
    scene = ClusterScene(2, conditions=[{"type": "Ready", "status": "False"}])
    scene.budget(minAvailable=1, unhealthyPodEvictionPolicy=policy)
    assert scene.evicted(2) == gone


def test_a_pod_that_is_not_ready_passes_while_enough_others_are_healthy() -> None:
    """It does not count among them, so its going costs nothing."""
    scene = ClusterScene(2)
    scene.cluster.put("pods", pod("p3", conditions=[{"type": "Ready", "status": "False"}]))
    scene.budget(minAvailable=2)
    assert scene.evicted(3) == 1


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "front"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db", "web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_budget_covers_what_its_selector_chooses(selector: dict[str, Any], covers: bool) -> None:
    """All terms must hold; none chooses all pods of the namespace."""
    scene = ClusterScene(1)
    scene.budget(selector=selector, maxUnavailable=0)
    assert scene.evicted(1) == (0 if covers else 1)


def test_a_budget_covers_its_own_namespace() -> None:
    """Labels of other namespaces do not matter."""
    scene = ClusterScene(1)
    scene.budget(namespace="shop", maxUnavailable=0)
    assert scene.evicted(1) == 1
