"""Malformed objects are logged once."""

import logging

import pytest

from taint_eviction.core.objects import NamespacedName, Node, Pod, PodRef
from taint_eviction.kube import malformed
from taint_eviction.kube.kubernetes_objects import MalformedObject
from taint_eviction.kube.malformed import MalformedObjects


def test_each_version_is_logged_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    """Lists name the same object again and again; a changed object is news."""
    kinds: list[str] = []
    told = MalformedObjects(kinds.append)
    for version in ("1", "1", "2", "2"):
        told.malformed(MalformedObject("Pod ns/p", "spec is not an object", "u", version))
    told.malformed(MalformedObject("Node ?", "metadata.name is missing"))
    assert kinds == ["Pod", "Pod", "Node"]
    assert len(caplog.records) == 3


def test_complaints_are_logged_once_for_each_version(caplog: pytest.LogCaptureFixture) -> None:
    """Each line names the node or pod."""
    told = MalformedObjects(lambda kind: None)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            told.complained(Node("n1", "u1", resource_version=1), ("a", "b"))
            told.complained(Pod(PodRef(NamespacedName("ns", "p"), "u2")), ("c",))
    assert [record.message for record in caplog.records] == ["Node n1: a; b", "Pod ns/p: c"]


def test_of_one_pod_three_versions_are_logged_and_all_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Its owner may write it a hundred times a second; a node's owner writes what concerns all."""
    kinds: list[str] = []
    told = MalformedObjects(kinds.append)
    for version in range(9):
        told.complained(Pod(PodRef(NamespacedName("ns", "p"), "u"), resource_version=version), (f"note {version}",))
        told.malformed(MalformedObject("Pod ns/p", "spec is not an object", "u", f"{version}!"))
        told.complained(Node("n1", "u1", resource_version=version), ("a",))
    messages = [record.message for record in caplog.records]
    assert len([message for message in messages if "ns/p" in message]) == 3
    assert len([message for message in messages if "n1" in message]) == 9
    assert len(kinds) == 9


def test_what_was_logged_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest object is forgotten, and counts again when it is seen again."""
    monkeypatch.setattr(malformed, "_REMEMBERED", 2)
    kinds: list[str] = []
    told = MalformedObjects(kinds.append)
    for uid in ("a", "b", "c", "a"):
        told.malformed(MalformedObject("Pod ns/p", "x", uid))
    assert len(kinds) == 4
