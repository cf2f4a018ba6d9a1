"""A watch need not deliver what the core knows already."""

from typing import Any

import pytest

from taint_eviction.core.controller import Controller
from taint_eviction.core.events import Done
from taint_eviction.core.facts import NodeSeen, PodSeen
from taint_eviction.core.instants import Moment
from taint_eviction.core.objects import NO_EXECUTE, NamespacedName, Node, Pod, PodRef, Taint
from taint_eviction.kube.malformed import MalformedObjects
from taint_eviction.kube.observations import Observations

NOW = Moment(100.0, 1_000_000.0)


def body(version: object, uid: object = "u1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "uid": uid, "resourceVersion": version, **metadata}}


@pytest.fixture
def brain() -> Controller:
    """A brain that knows node x with UID u1 and a pod d/x with UID u2 on it, both at version 7."""
    controller = Controller()
    controller.observe(NodeSeen(Node("x", "u1", (Taint("k", NO_EXECUTE),), None, 7), after_gap=True), NOW)
    controller.observe(PodSeen(Pod(PodRef(NamespacedName("d", "x"), "u2"), "x", resource_version=7)), NOW)
    return controller


@pytest.mark.parametrize(
    ("kind", "seen", "known"),
    [
        ("Node", body("7"), True),
        ("Node", body("6"), True),
        ("Node", body("8"), False),
        ("Node", body("7", uid="another"), False),
        ("Node", body("7", name="y"), False),
        ("Pod", body("7", uid="u2", namespace="d"), True),
        ("Pod", body("8", uid="u2", namespace="d"), False),
        ("Pod", body("7", uid="u1", namespace="d"), False),
        ("Pod", body("7", uid="u2", namespace="e"), False),
    ],
)
def test_a_version_is_known_if_it_or_a_later_one_was_seen(
    brain: Controller, kind: str, seen: dict[str, Any], known: bool
) -> None:
    """Versions are compared within one object: another UID, name or namespace is another object."""
    assert Observations(MalformedObjects(lambda _: None)).known_to(brain)(kind, seen) is known


def test_of_a_terminating_pod_only_its_end_is_news(brain: Controller) -> None:
    """Changes of its status are no news; a pod that a backup has restored, without deletionTimestamp, is news."""
    is_known = Observations(MalformedObjects(lambda _: None)).known_to(brain)
    ref = PodRef(NamespacedName("d", "x"), "u2")
    going = body("8", uid="u2", namespace="d", deletionTimestamp="t")
    assert not is_known("Pod", going)
    brain.observe(PodSeen(Pod(ref, "x", resource_version=8, terminating=True)), NOW)
    assert is_known("Pod", {"metadata": {**going["metadata"], "resourceVersion": "9"}})
    assert not is_known("Pod", body("9", uid="u2", namespace="d"))


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_accepted_deletion_says_that_a_pod_is_terminating(dry_run: bool) -> None:
    """In a dry run nothing was accepted: somebody else deletes the pod."""
    controller = Controller(dry_run=dry_run)
    ref = PodRef(NamespacedName("d", "x"), "u2")
    controller.observe(NodeSeen(Node("x", "u1", (Taint("k", NO_EXECUTE),), None, 7), after_gap=True), NOW)
    controller.observe(PodSeen(Pod(ref, "x", resource_version=7)), NOW)
    [work] = controller.attempts.take_due(NOW, 1, 1)
    controller.attempts.finish(work, Done(), NOW)
    is_known = Observations(MalformedObjects(lambda _: None)).known_to(controller)
    assert is_known("Pod", body("8", uid="u2", namespace="d", deletionTimestamp="t")) is not dry_run


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"metadata": None},
        {"metadata": []},
        {"metadata": "text"},
        body("no number"),
        body(7),
        body("7", uid=[1]),
        body("7", name={}),
        body("7", namespace=3),
    ],
)
def test_an_object_that_cannot_be_read_is_never_known(brain: Controller, odd: dict[str, Any]) -> None:
    """Such an object is delivered, so that it is reported as malformed."""
    is_known = Observations(MalformedObjects(lambda _: None)).known_to(brain)
    assert not is_known("Node", odd)
    assert not is_known("Pod", odd)


def test_marks_of_others_are_looked_for_in_pods_that_are_known_too(brain: Controller) -> None:
    """The built-in controller may have marked a pod before it was listed."""
    looked: list[Any] = []
    is_known = Observations(MalformedObjects(lambda _: None), looked.append).known_to(brain)
    pod = body("7", uid="u2", namespace="d")
    assert is_known("Pod", pod)
    assert is_known("Node", body("7"))
    assert looked == [pod]
