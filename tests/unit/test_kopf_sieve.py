"""What the filter before Kopf keeps of objects and lets pass of events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from taint_eviction.kopf_shell.sieve import Sieve, cut_down

TAINT = {"key": "broken", "effect": "NoExecute", "value": "yes"}


def node(version: int, taints: list[dict[str, str]] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": str(version), **metadata},
        "spec": {"podCIDR": "10.0.0.0/24", **({"taints": taints} if taints else {})},
        "status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": f"at {version}"}], "images": [{}]},
    }


def line(event_type: str, body: dict[str, Any]) -> bytes:
    return json.dumps({"type": event_type, "object": body}).encode()


def strained(sieve: Sieve, *lines: bytes) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pass lines through and return types and versions of what Kopf sees, and of what is told without it."""
    passed, endings = sieve.strain(lines)
    told, direct = (
        [(event["type"], event["object"]["metadata"]["resourceVersion"]) for event in events]
        for events in (map(json.loads, passed), endings)
    )
    return told, direct


def seen(sieve: Sieve, *lines: bytes) -> list[tuple[str, str]]:
    """Pass lines through that Kopf is to see, and return types and versions of what it sees."""
    told, direct = strained(sieve, *lines)
    assert direct == []
    return told


def test_a_heartbeat_becomes_a_bookmark() -> None:
    """Nothing that is read has changed, but the version is to be remembered."""
    sieve = Sieve()
    assert seen(sieve, line("ADDED", node(1)), line("MODIFIED", node(2))) == [("ADDED", "1"), ("BOOKMARK", "2")]
    assert sieve.swallowed == 1


def test_of_several_bookmarks_only_the_last_is_passed_on() -> None:
    """And none before an event that is told: its version is higher."""
    sieve = Sieve()
    seen(sieve, line("ADDED", node(1)))
    beats = [line("MODIFIED", node(version)) for version in (2, 3, 4)]
    assert seen(sieve, *beats) == [("BOOKMARK", "4")]
    assert seen(sieve, *beats, line("MODIFIED", node(5, [TAINT]))) == [("MODIFIED", "5")]


def test_of_heartbeats_that_come_one_by_one_each_tenth_becomes_a_bookmark() -> None:
    """The first, too: Kopf hears now and then how far it has come."""
    sieve = Sieve()
    seen(sieve, line("ADDED", node(1)))
    beats = [line("MODIFIED", node(version)) for version in range(2, 25)]
    told = [told for beat in beats for told in seen(sieve, beat)]
    assert told == [("BOOKMARK", "2"), ("BOOKMARK", "12"), ("BOOKMARK", "22")]


@pytest.mark.parametrize(
    "changed",
    [
        node(2, [TAINT]),
        node(2, deletionTimestamp="2026-01-01T00:00:00Z"),
        node(2, labels={"zone": "a"}),
        node(2, annotations={"taint-eviction/hold": "yes"}),
        node(2, managedFields=[{"manager": "m", "time": "t", "fieldsV1": {"f:spec": {"f:taints": {}}}}]),
    ],
)
def test_a_change_of_what_is_read_is_told(changed: dict[str, Any]) -> None:
    """Whatever part it is in."""
    sieve = Sieve()
    seen(sieve, line("ADDED", node(1)))
    assert seen(sieve, line("MODIFIED", changed)) == [("MODIFIED", "2")]


def test_a_taint_removed_and_set_again_is_told_twice() -> None:
    """What counts is the last that was told, not all that ever was."""
    sieve = Sieve()
    events = [line("MODIFIED", node(version, [TAINT] if version % 2 else None)) for version in (1, 2, 3)]
    assert [version for _, version in seen(sieve, *events)] == ["1", "2", "3"]


def test_an_object_added_again_is_told_again() -> None:
    """ADDED and DELETED are always told, even if nothing is new."""
    sieve = Sieve()
    events = [line("ADDED", node(1)), line("ADDED", node(1)), line("DELETED", node(2))]
    assert [event_type for event_type, _ in seen(sieve, *events)] == ["ADDED", "ADDED", "DELETED"]
    assert strained(sieve, line("DELETED", node(3))) == ([("BOOKMARK", "3")], [("DELETED", "3")])


def test_a_fresh_list_is_told_in_full_and_forgets_what_was_told() -> None:
    """So it repairs whatever was lost; what it shows is known from then on."""
    sieve = Sieve()
    seen(sieve, line("ADDED", node(1)), line("ADDED", node(1, uid="vanished")))
    page = sieve.list_page({"kind": "NodeList", "metadata": {}, "items": [node(2)]}, first=True)
    assert [item["metadata"]["resourceVersion"] for item in page["items"]] == ["2"]
    assert seen(sieve, line("MODIFIED", node(3))) == [("BOOKMARK", "3")]
    assert seen(sieve, line("MODIFIED", node(4, uid="vanished"))) == [("MODIFIED", "4")]


@pytest.mark.parametrize(
    "odd",
    [
        b"[]",
        b'{"type":"ERROR","object":{"code":410}}',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}',
        b'{"type":"MODIFIED","object":{"metadata":null}}',
        b'{"type":"MODIFIED","object":{"metadata":"text"}}',
        b'{"type":"MODIFIED","object":{"metadata":{"uid":"u1","managedFields":[7]}}}',
        b'{"type":["MODIFIED"],"object":{"metadata":{"uid":"u1","resourceVersion":"7"}}}',
        b'{"type":"MODIFIED","object":{"metadata":{"uid":{},"resourceVersion":"7"}}}',
        b'{"type":"DELETED","object":{"metadata":{"uid":[],"resourceVersion":"7"}}}',
        b'{"type":"DELETED","object":{"metadata":{"uid":"u1","resourceVersion":7}}}',
        b'{"type":"MODIFIED","object":{"metadata":{"uid":"u1","resourceVersion":"7"},"spec":""}}',
        b'{"type":"MODIFIED","object":{"metadata":{"uid":"u1","resourceVersion":"7"},"status":[]}}',
        b'{"type":"MODIFIED","object":{"metadata":{"uid":"u1","resourceVersion":"7","annotations":[]}}}',
        b'{"type":"MODIFIED","object":{"metadata":{"uid":"u1","resourceVersion":"7","labels":'
        + b"[" * 400 + b"]" * 400 + b"}}}",
    ],
)  # fmt: skip
def test_what_is_no_event_of_an_object_is_passed_on_as_it_is(odd: bytes) -> None:
    """It is for Kopf to act on, or to fail at; a spec that is no object is none without taints."""
    assert Sieve().strain([odd]) == ([odd], [])


@pytest.mark.parametrize(
    "odd", [b"{", b'{"type":"BOOKMARK","object":{"metadata":NaN}}', b'{"type":"\\ud800"}', b"\xff"]
)
def test_what_is_no_json_is_none_to_kopf_either(odd: bytes) -> None:
    """It reads a little more than JSON; by this its watch ends."""
    [passed], endings = Sieve().strain([odd])
    assert endings == []
    with pytest.raises(ValueError, match=r"Expecting value|decode"):
        json.loads(passed)


def test_what_comes_after_an_event_that_cannot_be_cut_down_is_told() -> None:
    """The listener may have made more of it: what was told before is not what it knows last."""
    sieve = Sieve()
    seen(sieve, line("ADDED", node(1)))
    odd = line("MODIFIED", node(2, [TAINT], managedFields=[7]))
    assert sieve.strain([odd]) == ([odd], [])
    assert seen(sieve, line("MODIFIED", node(3))) == [("MODIFIED", "3")]


@pytest.mark.parametrize("items", [None, 7, "text", {"a": 1}])
def test_a_list_of_another_shape_is_left_as_it_is(items: object) -> None:
    """It is for Kopf to fail at."""
    assert Sieve().list_page({"kind": "NodeList", "items": items}, first=True) == {"kind": "NodeList", "items": items}


@pytest.mark.parametrize("labels", [{"a": []}, [[[]]]])
def test_an_item_with_an_unusable_name_or_depth_is_kept_as_it_is(labels: Any) -> None:
    """Whoever reads it shall see that it is malformed."""
    deep: Any = labels
    for _ in range(400):
        deep = [deep]
    items = [
        {"metadata": {"uid": {}}},
        {"metadata": {"uid": "u1", "labels": deep}},
        {"metadata": {"uid": "u1"}, "spec": 0},
    ]
    assert Sieve().list_page({"items": items}, first=True)["items"] == items


def test_a_malformed_object_in_a_list_is_kept_as_it_is() -> None:
    """Whoever reads it shall see that it is malformed; the others are cut down."""
    page = Sieve().list_page({"kind": "NodeList", "items": [{"metadata": "text"}, node(1)]}, first=True)
    assert page["items"][0] == {"metadata": "text"}
    assert "podCIDR" not in page["items"][1]["spec"]


def test_an_unwanted_object_is_swallowed_until_it_is_wanted() -> None:
    """The predicate is asked for each event; deletions are told in any case."""
    wanted: set[str] = set()
    sieve = Sieve(lambda kind, body: kind == "Node" and body["metadata"]["name"] in wanted)
    assert seen(sieve, line("ADDED", node(1))) == [("BOOKMARK", "1")]
    wanted.add("n1")
    assert seen(sieve, line("MODIFIED", node(2))) == [("MODIFIED", "2")]
    wanted.clear()
    assert seen(sieve, line("MODIFIED", node(3, [TAINT])), line("DELETED", node(4))) == [("DELETED", "4")]


def test_a_version_that_is_known_from_elsewhere_is_swallowed() -> None:
    """In lists and in events, where a bookmark takes its place; later changes are told, deletions in any case."""
    sieve = Sieve(known=lambda kind, body: kind == "Node" and int(body["metadata"]["resourceVersion"]) <= 3)
    page = sieve.list_page({"kind": "NodeList", "items": [node(1), {"metadata": "text"}]}, first=True)
    assert page["items"] == [{"metadata": "text"}]
    assert seen(sieve, line("ADDED", node(2, uid="u2")), line("MODIFIED", node(3, [TAINT]))) == [("BOOKMARK", "3")]
    later = [line("MODIFIED", node(version, taints)) for version, taints in ((4, [TAINT]), (5, [TAINT]), (6, None))]
    assert seen(sieve, *later) == [("MODIFIED", "4"), ("MODIFIED", "6")]
    assert strained(sieve, line("DELETED", node(6, uid="u2"))) == ([], [("DELETED", "6")])


def test_what_was_told_before_a_version_that_is_known_is_told_again() -> None:
    """A taint that was told, was gone by what the listener read itself, and is back: that is news."""
    sieve = Sieve(known=lambda _kind, body: body["metadata"]["resourceVersion"] == "2")
    beats = [line("MODIFIED", node(version, taints)) for version, taints in ((1, [TAINT]), (2, None), (3, [TAINT]))]
    assert seen(sieve, *beats) == [("MODIFIED", "1"), ("MODIFIED", "3")]


def test_of_what_nobody_asks_for_only_the_version_is_read() -> None:
    """Whatever else is in it: it is not cut down at all."""
    sieve = Sieve(wanted=lambda _kind, body: body["spec"].get("nodeName") != "clean")
    odd = {"kind": "Pod", "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}, "status": "odd"}
    assert seen(sieve, line("MODIFIED", {**odd, "spec": {"nodeName": "clean"}})) == [("BOOKMARK", "7")]
    assert seen(sieve, line("MODIFIED", {**odd, "spec": {"nodeName": "tainted"}})) == [("MODIFIED", "7")]


@pytest.mark.parametrize(
    "ending",
    [
        line("DELETED", node(7)),
        line("MODIFIED", node(7, deletionTimestamp="2026-01-01T00:00:00Z")),
        line("MODIFIED", {**node(7), "status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}}),
    ],
)
def test_the_ending_of_what_kopf_was_never_shown_is_told_without_it(ending: bytes) -> None:
    """Be it known from a list of the listener's own, or not wanted before; Kopf gets the version alone."""
    known = Sieve(known=lambda _kind, body: body["metadata"]["resourceVersion"] == "1")
    known.list_page({"kind": "NodeList", "items": [node(1)]}, first=True)
    event_type = json.loads(ending)["type"]
    assert strained(known, ending) == ([("BOOKMARK", "7")], [(event_type, "7")])


def test_the_ending_of_what_kopf_was_shown_goes_through_it() -> None:
    """In a list or in an event: so it lets go of the object, and tells all of it in order."""
    sieve = Sieve()
    sieve.list_page({"kind": "NodeList", "items": [node(1)]}, first=True)
    seen(sieve, line("ADDED", node(2, uid="u2")))
    ended = [line("MODIFIED", node(3, uid=uid, deletionTimestamp="t")) for uid in ("u1", "u2")]
    assert seen(sieve, *ended) == [("MODIFIED", "3")] * 2
    assert seen(sieve, *[line("DELETED", node(4, uid=uid)) for uid in ("u1", "u2")]) == [("DELETED", "4")] * 2


def test_an_ending_is_cut_down_like_all_that_is_told() -> None:
    """Whoever reads it need not know which way it came."""
    _, endings = Sieve().strain([line("DELETED", node(7))])
    assert endings == [{"type": "DELETED", "object": cut_down(node(7))}]


def test_of_managed_fields_only_the_owners_of_taints_are_kept() -> None:
    """With their times and subresources, and the field that makes them owners."""
    owner = {"manager": "kubectl-taint", "operation": "Update", "time": "t1"}
    entries = [
        {**owner, "fieldsV1": {"f:spec": {"f:taints": {}, "f:unschedulable": {}}, "f:metadata": {}}},
        {"manager": "kubelet", "subresource": "status", "time": "t2", "fieldsV1": {"f:status": {}}},
    ]
    kept = cut_down(node(1, managedFields=entries))["metadata"]["managedFields"]
    assert kept == [{**owner, "fieldsV1": {"f:spec": {"f:taints": {}}}}]


def test_of_a_pod_everything_that_decides_is_kept() -> None:
    """Identity, place, tolerations, phase, times, and the two conditions that are read."""
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "DisruptionTarget", "Ready")]
    metadata = {"name": "p", "namespace": "d", "uid": "u", "creationTimestamp": "t", "deletionTimestamp": "t"}
    spec = {"nodeName": "n1", "tolerations": [{"operator": "Exists", "tolerationSeconds": 9223372036854775807}]}
    status = {"phase": "Running", "startTime": "t"}
    mirror = {"kubernetes.io/config.mirror": "hash"}
    pod = {
        "metadata": {**metadata, "annotations": {**mirror, "other": "x"}},
        "spec": {**spec, "containers": [{}]},
        "status": {**status, "conditions": conditions, "podIP": "10.0.0.1"},
    }
    assert cut_down(pod) == {
        "metadata": {**metadata, "annotations": mirror, "managedFields": []},
        "spec": spec,
        "status": {**status, "conditions": conditions[:2]},
    }
