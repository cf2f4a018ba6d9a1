"""What the filter before Kopf keeps of objects and lets pass of events."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from taint_eviction.core.pod_parts import PodParts
from taint_eviction.kopf_shell.kept_fields import pod_fields
from taint_eviction.kopf_shell.watch_filter import WatchFilter

TAINT = {"key": "broken", "effect": "NoExecute", "value": "yes"}
TAINTS_WRITE = {"manager": "m", "time": "t", "fieldsV1": {"f:spec": {"f:taints": {}}}}


def node(version: int, taints: list[dict[str, str]] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": str(version), **metadata},
        "spec": {"podCIDR": "10.0.0.0/24", **({"taints": taints} if taints else {})},
        "status": {
            "conditions": [
                {"type": "MemoryPressure", "status": "True" if version % 2 else "False"},
                {"type": "Ready", "status": "True", "lastHeartbeatTime": f"at {version}", "lastTransitionTime": "t"},
            ],
            "images": [{}],
        },
    }


def pod(version: int, status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p1", "namespace": "d", "uid": "u1", "resourceVersion": str(version), **metadata},
        "spec": {"nodeName": "n1", "containers": [{}]},
        "status": {"phase": "Running", **(status or {})},
    }


def line(event_type: str, body: dict[str, Any]) -> bytes:
    return json.dumps({"type": event_type, "object": body}).encode()


def filtered(watch_filter: WatchFilter, *lines: bytes) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pass lines through and return types and versions of what Kopf sees, and of what is told without it."""
    passed, endings = watch_filter.filter(lines)
    told, direct = (
        [(event["type"], event["object"]["metadata"]["resourceVersion"]) for event in events]
        for events in (map(json.loads, passed), endings)
    )
    return told, direct


def seen(watch_filter: WatchFilter, *lines: bytes) -> list[tuple[str, str]]:
    """Pass lines through that Kopf is to see, and return types and versions of what it sees."""
    told, direct = filtered(watch_filter, *lines)
    assert direct == []
    return told


def listed(watch_filter: WatchFilter, page: dict[str, Any]) -> dict[str, Any]:
    """Return a list as Kopf sees it."""
    watch_filter.begin_list()
    kept: list[Any] = []
    for item in page["items"]:
        watch_filter.filter_item(item, kept)
    return {**page, "items": kept}


def test_a_heartbeat_becomes_a_bookmark() -> None:
    """No field that the controller reads has changed, but Kopf has to remember the version."""
    watch_filter = WatchFilter("Node")
    assert seen(watch_filter, line("ADDED", node(1)), line("MODIFIED", node(2))) == [("ADDED", "1"), ("BOOKMARK", "2")]


@pytest.mark.parametrize(
    "changed",
    [
        {**node(2), "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": True}},
        {**node(2), "status": {**node(1)["status"], "images": [{}, {}], "volumesInUse": ["v"]}},
        node(2, labels={}),
        node(2, annotations={"csi": "x"}),
        node(2, managedFields=[{"manager": "m", "time": "t", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]),
    ],
)
def test_a_cordon_and_other_changes_that_decide_nothing_cost_no_event(changed: dict[str, Any]) -> None:
    """Cordon, images, volumes, annotations: no decision depends on them."""
    watch_filter = WatchFilter("Node")
    seen(watch_filter, line("ADDED", node(1)))
    assert seen(watch_filter, line("MODIFIED", changed)) == [("BOOKMARK", "2")]


@pytest.mark.parametrize(
    "changed",
    [
        pod(2, {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.0.0.1"}),
        pod(2, ownerReferences=[{"uid": "o"}], finalizers=["f"]),
        {**pod(2), "spec": {"nodeName": "n1", "containers": [{"image": "new"}], "subdomain": "x"}},
    ],
)
def test_a_pods_readiness_owners_and_containers_cost_no_event(changed: dict[str, Any]) -> None:
    """No decision depends on them."""
    watch_filter = WatchFilter("Pod")
    seen(watch_filter, line("ADDED", pod(1)))
    assert seen(watch_filter, line("MODIFIED", changed)) == [("BOOKMARK", "2")]


def test_the_watch_has_come_as_far_as_its_latest_line_unless_something_is_under_way() -> None:
    """Heartbeats, bookmarks and endings need no telling; what Kopf is shown counts once the listener was told it."""
    watch_filter = WatchFilter("Node")
    assert watch_filter.progress() is None
    watch_filter.filter([line("ADDED", node(1))])
    watch_filter.filter(
        [line("MODIFIED", node(2)), line("MODIFIED", node(3, [TAINT])), line("MODIFIED", node(4, [TAINT]))]
    )
    assert watch_filter.progress() is None
    watch_filter.seen(node(1))
    assert watch_filter.progress() is None
    watch_filter.seen(node(3, [TAINT]))
    assert [watch_filter.progress(), watch_filter.progress()] == ["4", None]
    watch_filter.filter([b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}'])
    assert watch_filter.progress() == "9"
    watch_filter.filter([line("DELETED", node(10, uid="never shown"))])
    assert watch_filter.progress() == "10"


def test_what_was_listed_is_under_way_until_it_was_told() -> None:
    """After a gap the list comes before the stream; one that failed half way never comes."""
    watch_filter = WatchFilter("Node")
    heartbeat = line("MODIFIED", node(7))
    listed(watch_filter, {"kind": "NodeList", "metadata": {}, "items": [node(1, uid="vanished")]})
    listed(watch_filter, {"kind": "NodeList", "metadata": {}, "items": [node(5)]})
    watch_filter.filter([heartbeat])
    assert watch_filter.progress() is None
    watch_filter.seen(node(5))
    assert watch_filter.progress() == "7"


def test_a_list_has_come_no_further_than_its_own_objects() -> None:
    """Where the storage was restored, what the stream before it had reached would make all that comes old news."""
    watch_filter = WatchFilter("Node")
    watch_filter.filter([line("ADDED", node(1000))])
    listed(watch_filter, {"kind": "NodeList", "metadata": {}, "items": [node(500, [TAINT])]})
    watch_filter.seen(node(500, [TAINT]))
    assert watch_filter.progress() is None
    watch_filter.filter([line("MODIFIED", node(501))])
    watch_filter.seen(node(501))
    assert watch_filter.progress() == "501"


def test_what_was_listed_without_a_version_is_under_way_until_it_was_told() -> None:
    """It does not keep the watch from progress for good."""
    watch_filter = WatchFilter("Node")
    unversioned = {**node(1), "metadata": {"name": "node-1", "uid": "u1"}}
    listed(watch_filter, {"kind": "NodeList", "metadata": {}, "items": [unversioned]})
    watch_filter.seen(unversioned)
    watch_filter.filter([b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}'])
    assert watch_filter.progress() == "9"


def test_what_cannot_be_cut_down_is_under_way_as_well() -> None:
    """The listener may read more of it."""
    watch_filter = WatchFilter("Node")
    watch_filter.filter([line("MODIFIED", {**node(3), "status": []})])
    assert watch_filter.progress() is None
    watch_filter.seen(node(3))
    assert watch_filter.progress() == "3"


def test_of_several_bookmarks_only_the_last_is_passed_on() -> None:
    """And none before an event that is told: its version is higher."""
    watch_filter = WatchFilter("Node")
    seen(watch_filter, line("ADDED", node(1)))
    beats = [line("MODIFIED", node(version)) for version in (2, 3, 4)]
    assert seen(watch_filter, *beats) == [("BOOKMARK", "4")]
    assert seen(watch_filter, *beats, line("MODIFIED", node(5, [TAINT]))) == [("MODIFIED", "5")]


def test_of_heartbeats_that_come_one_by_one_each_tenth_becomes_a_bookmark() -> None:
    """The first, too: Kopf hears now and then how far it has come."""
    watch_filter = WatchFilter("Node")
    seen(watch_filter, line("ADDED", node(1)))
    beats = [line("MODIFIED", node(version)) for version in range(2, 25)]
    told = [told for beat in beats for told in seen(watch_filter, beat)]
    assert told == [("BOOKMARK", "2"), ("BOOKMARK", "12"), ("BOOKMARK", "22")]


@pytest.mark.parametrize(
    ("first", "changed"),
    [
        (node(1), node(2, [TAINT])),
        (node(1, [TAINT]), node(2, [TAINT], managedFields=[TAINTS_WRITE])),
        (node(1), {**node(2), "status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        (
            node(1),
            {
                **node(2),
                "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "later"}]},
            },
        ),
        (pod(1), pod(2, labels={"app": "a"})),
        (pod(1), pod(2, annotations={"taint-eviction/hold": "yes"})),
        (pod(1), pod(2, {"phase": "Failed"})),
    ],
)
def test_a_change_of_a_field_that_is_read_is_seen(first: dict[str, Any], changed: dict[str, Any]) -> None:
    """Whatever part of the object it is in."""
    watch_filter = WatchFilter(first["kind"])
    seen(watch_filter, line("ADDED", first))
    assert seen(watch_filter, line("MODIFIED", changed)) == [("MODIFIED", "2")]


def test_a_taint_removed_and_set_again_is_told_twice() -> None:
    """What counts is the last that was told, not all that ever was."""
    watch_filter = WatchFilter("Node")
    events = [line("MODIFIED", node(version, [TAINT] if version % 2 else None)) for version in (1, 2, 3)]
    assert [version for _, version in seen(watch_filter, *events)] == ["1", "2", "3"]


def test_an_object_added_again_is_told_again() -> None:
    """ADDED and DELETED are always told, even if nothing is new."""
    watch_filter = WatchFilter("Node")
    events = [line("ADDED", node(1)), line("ADDED", node(1)), line("DELETED", node(2))]
    assert [event_type for event_type, _ in seen(watch_filter, *events)] == ["ADDED", "ADDED", "DELETED"]
    assert filtered(watch_filter, line("DELETED", node(3))) == ([("BOOKMARK", "3")], [("DELETED", "3")])


def test_a_fresh_list_is_told_in_full_and_forgets_what_was_told() -> None:
    """So it repairs whatever was lost; what it shows is known from then on."""
    watch_filter = WatchFilter("Node")
    seen(watch_filter, line("ADDED", node(1)), line("ADDED", node(1, uid="vanished")))
    page = listed(watch_filter, {"kind": "NodeList", "metadata": {}, "items": [node(2)]})
    assert [item["metadata"]["resourceVersion"] for item in page["items"]] == ["2"]
    assert seen(watch_filter, line("MODIFIED", node(3))) == [("BOOKMARK", "3")]
    assert seen(watch_filter, line("MODIFIED", node(4, uid="vanished"))) == [("MODIFIED", "4")]


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
    assert WatchFilter("Pod").filter([odd]) == ([odd], [])


@pytest.mark.parametrize(
    "odd", [b"{", b'{"type":"BOOKMARK","object":{"metadata":NaN}}', b'{"type":"\\ud800"}', b"\xff"]
)
def test_what_is_no_json_is_none_to_kopf_either(odd: bytes) -> None:
    """It reads a little more than JSON; by this its watch ends."""
    [passed], endings = WatchFilter("Node").filter([odd])
    assert endings == []
    with pytest.raises(ValueError, match=r"Expecting value|decode"):
        json.loads(passed)


def test_what_comes_after_an_event_that_cannot_be_cut_down_is_told() -> None:
    """The listener may have made more of it: what was told before is not what it knows last."""
    watch_filter = WatchFilter("Node")
    seen(watch_filter, line("ADDED", node(1)))
    odd = line("MODIFIED", {**node(2, [TAINT]), "metadata": {"uid": "u1", "resourceVersion": 2}})
    assert watch_filter.filter([odd]) == ([odd], [])
    assert seen(watch_filter, line("MODIFIED", node(3))) == [("MODIFIED", "3")]


@pytest.mark.parametrize("labels", [{"a": []}, [[[]]]])
def test_an_item_with_an_unusable_name_or_depth_is_kept_as_it_is(labels: Any) -> None:
    """Whoever reads it shall see that it is malformed."""
    deep: Any = labels
    for _ in range(400):
        deep = [deep]
    items = [
        {"metadata": {"uid": {}}},
        {"metadata": {"uid": "u1", "labels": deep}},
        {"kind": deep, "metadata": {"uid": "u1"}},
        {"metadata": {"uid": "u1"}, "spec": 0},
    ]
    assert listed(WatchFilter("Pod"), {"items": items})["items"] == items


def test_a_malformed_object_in_a_list_is_kept_as_it_is() -> None:
    """Whoever reads it shall see that it is malformed; the others are cut down."""
    page = listed(WatchFilter("Node"), {"kind": "NodeList", "items": [{"metadata": "text"}, node(1)]})
    assert page["items"][0] == {"metadata": "text"}
    assert "podCIDR" not in page["items"][1]["spec"]


def test_an_unwanted_object_is_swallowed_until_it_is_wanted() -> None:
    """The predicate is asked for each event; deletions are told in any case."""
    wanted: set[str] = set()
    watch_filter = WatchFilter("Node", lambda kind, body: kind == "Node" and body["metadata"]["name"] in wanted)
    assert seen(watch_filter, line("ADDED", node(1))) == [("BOOKMARK", "1")]
    wanted.add("n1")
    assert seen(watch_filter, line("MODIFIED", node(2))) == [("MODIFIED", "2")]
    wanted.clear()
    assert seen(watch_filter, line("MODIFIED", node(3, [TAINT])), line("DELETED", node(4))) == [("DELETED", "4")]


def test_a_version_that_is_known_from_elsewhere_is_swallowed() -> None:
    """In lists and in events, where a bookmark takes its place; later changes are told, deletions in any case."""
    watch_filter = WatchFilter(
        "Node", known=lambda kind, body: kind == "Node" and int(body["metadata"]["resourceVersion"]) <= 3
    )
    page = listed(watch_filter, {"kind": "NodeList", "items": [node(1), {"metadata": "text"}]})
    assert page["items"] == [{"metadata": "text"}]
    assert seen(watch_filter, line("ADDED", node(2, uid="u2")), line("MODIFIED", node(3, [TAINT]))) == [
        ("BOOKMARK", "3")
    ]
    later = [line("MODIFIED", node(version, taints)) for version, taints in ((4, [TAINT]), (5, [TAINT]), (6, None))]
    assert seen(watch_filter, *later) == [("MODIFIED", "4"), ("MODIFIED", "6")]
    assert filtered(watch_filter, line("DELETED", node(6, uid="u2"))) == ([], [("DELETED", "6")])


def test_what_was_told_before_a_version_that_is_known_is_told_again() -> None:
    """A taint that was told, was gone by what the listener read itself, and is back: that is news."""
    watch_filter = WatchFilter("Node", known=lambda _kind, body: body["metadata"]["resourceVersion"] == "2")
    beats = [line("MODIFIED", node(version, taints)) for version, taints in ((1, [TAINT]), (2, None), (3, [TAINT]))]
    assert seen(watch_filter, *beats) == [("MODIFIED", "1"), ("MODIFIED", "3")]


def test_of_what_nobody_asks_for_only_the_version_is_read() -> None:
    """Whatever else is in it: it is not cut down at all."""
    watch_filter = WatchFilter("Pod", wanted=lambda _kind, body: body["spec"].get("nodeName") != "clean")
    odd = {"kind": "Pod", "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}, "status": "odd"}
    assert seen(watch_filter, line("MODIFIED", {**odd, "spec": {"nodeName": "clean"}})) == [("BOOKMARK", "7")]
    assert seen(watch_filter, line("MODIFIED", {**odd, "spec": {"nodeName": "tainted"}})) == [("MODIFIED", "7")]


@pytest.mark.parametrize(
    "ending",
    [
        line("DELETED", pod(7)),
        line("MODIFIED", pod(7, deletionTimestamp="2026-01-01T00:00:00Z")),
        line("MODIFIED", pod(7, {"conditions": [{"type": "DisruptionTarget", "status": "True"}]})),
    ],
)
def test_the_ending_of_what_kopf_was_never_shown_is_told_without_it(ending: bytes) -> None:
    """Be it known from a list of the listener's own, or not wanted before; Kopf gets the version alone."""
    known = WatchFilter("Pod", known=lambda _kind, body: body["metadata"]["resourceVersion"] == "1")
    listed(known, {"kind": "PodList", "items": [pod(1)]})
    event_type = json.loads(ending)["type"]
    assert filtered(known, ending) == ([("BOOKMARK", "7")], [(event_type, "7")])


def test_the_ending_of_what_kopf_was_shown_goes_through_it() -> None:
    """In a list or in an event: so it lets go of the object, and tells all of it in order."""
    watch_filter = WatchFilter("Pod")
    listed(watch_filter, {"kind": "PodList", "items": [pod(1)]})
    seen(watch_filter, line("ADDED", pod(2, uid="u2")))
    ended = [line("MODIFIED", pod(3, uid=uid, deletionTimestamp="t")) for uid in ("u1", "u2")]
    assert seen(watch_filter, *ended) == [("MODIFIED", "3")] * 2
    assert seen(watch_filter, *[line("DELETED", pod(4, uid=uid)) for uid in ("u1", "u2")]) == [("DELETED", "4")] * 2


def test_an_ending_is_cut_down_like_all_that_is_told() -> None:
    """Whoever reads it need not know which way it came."""
    _, endings = WatchFilter("Pod").filter([line("DELETED", pod(7))])
    assert endings == [{"type": "DELETED", "object": pod_fields(pod(7))}]


LONG = [{"key": f"k{number}", "operator": "Exists"} for number in range(5000)]


def long_pod(version: int) -> dict[str, Any]:
    return {**pod(version), "spec": {"nodeName": "n1", "tolerations": LONG}}


def test_kopf_sees_the_identity_of_a_long_object_and_the_listener_all_of_it() -> None:
    """Kopf would decode and copy what a tenant made long; the listener is shown what it reads."""
    watch_filter = WatchFilter("Pod")
    [passed], _ = watch_filter.filter([line("ADDED", long_pod(1))])
    brought = json.loads(passed)["object"]
    assert len(passed) < 300
    assert brought["metadata"]["name"] == "p1"
    assert watch_filter.whole(brought) == pod_fields(long_pod(1))


def test_an_older_version_of_a_long_object_is_not_shown() -> None:
    """Only the latest is kept, and Kopf brings it next."""
    watch_filter = WatchFilter("Pod")
    passed, _ = watch_filter.filter([line("ADDED", long_pod(1)), line("MODIFIED", {**long_pod(2), "status": {}})])
    first, second = (json.loads(each)["object"] for each in passed)
    assert watch_filter.whole(first) is None
    assert watch_filter.whole(second) == pod_fields({**long_pod(2), "status": {}})


def test_a_long_object_of_a_list_waits_as_well() -> None:
    """Kopf's own list follows a gap, and its items go through Kopf, too."""
    watch_filter = WatchFilter("Pod")
    [item] = listed(watch_filter, {"items": [long_pod(1)]})["items"]
    assert "spec" not in item
    assert watch_filter.whole(item) == pod_fields(long_pod(1))


def test_a_long_object_of_a_list_may_lack_a_version() -> None:
    """As one that a proxy answers with."""
    watch_filter = WatchFilter("Pod")
    without = long_pod(1)
    del without["metadata"]["resourceVersion"]
    [item] = listed(watch_filter, {"items": [without]})["items"]
    assert watch_filter.whole(item) == pod_fields(without)
    assert watch_filter.whole(item) is None


def test_labels_and_holds_that_no_setting_uses_are_cut_off() -> None:
    """So a change of them costs no event, however long they are."""
    watch_filter = WatchFilter("Pod", parts=PodParts(frozenset({"app"}), holds=False))
    before = line("ADDED", pod(1, labels={"app": "web", "hash": "1"}))
    after = line("MODIFIED", pod(2, labels={"app": "web", "hash": "2"}, annotations={"taint-eviction/hold": "true"}))
    assert seen(watch_filter, before, after) == [("ADDED", "1"), ("BOOKMARK", "2")]


def test_an_object_that_vanished_in_a_gap_is_not_remembered_as_shown() -> None:
    """A list that is complete without it is the last that is heard of it; an incomplete list proves nothing."""
    watch_filter = WatchFilter("Pod")
    both: list[Any] = [pod(1, uid="vanished"), pod(1, uid="stays")]
    listed(watch_filter, {"items": both})
    watch_filter.end_list()
    listed(watch_filter, {"items": both[1:]})
    assert filtered(watch_filter, line("DELETED", pod(2, uid="vanished")))[0] == [("DELETED", "2")]
    listed(watch_filter, {"items": both})
    watch_filter.end_list()
    listed(watch_filter, {"items": both[1:]})
    watch_filter.end_list()
    told, direct = filtered(watch_filter, line("DELETED", pod(3, uid="vanished")), line("DELETED", pod(4, uid="stays")))
    assert (told, direct) == ([("DELETED", "4")], [("DELETED", "3")])


def test_of_events_of_unknown_types_kopf_is_shown_one() -> None:
    """Kopf warns of each and writes out its object: thousands from a broken proxy would starve the loop."""
    watch_filter = WatchFilter("Pod")
    unknown = line("RENAMED", pod(1))
    assert seen(watch_filter, unknown, unknown, line("ADDED", pod(2)), unknown) == [("RENAMED", "1"), ("ADDED", "2")]
    assert seen(watch_filter, unknown, line("MODIFIED", pod(3, {"phase": "Failed"}))) == [("MODIFIED", "3")]


@pytest.mark.parametrize("kind", ["Node", "Pod"])
def test_a_stream_whose_versions_go_back_is_noticed(kind: Literal["Node", "Pod"]) -> None:
    """Equal ones are in order; an event that comes again after the stream was opened again is no step back."""
    made = node if kind == "Node" else pod
    watch_filter = WatchFilter(kind)
    watch_filter.begin_stream(4)
    watch_filter.filter([line("ADDED", made(5)), line("MODIFIED", made(9)), line("BOOKMARK", made(9))])
    watch_filter.begin_stream(5)
    watch_filter.filter([line("MODIFIED", made(6))])
    assert not watch_filter.went_back
    watch_filter.filter([line("BOOKMARK", made(2**63)), line("MODIFIED", made(7))])
    assert watch_filter.went_back


def test_a_stream_goes_back_behind_the_version_after_which_it_begins() -> None:
    """Kopf may have read one that is too high before the last stream ended."""
    watch_filter = WatchFilter("Node")
    watch_filter.begin_stream(2**63)
    watch_filter.filter([line("ADDED", node(5))])
    assert watch_filter.went_back


@pytest.mark.parametrize("since", [None, 0])
def test_a_stream_that_begins_with_all_objects_may_bring_them_in_any_order(since: int | None) -> None:
    """The API server does not sort them by version."""
    watch_filter = WatchFilter("Node")
    watch_filter.begin_stream(since)
    watch_filter.filter([line("ADDED", node(5)), line("ADDED", node(3))])
    assert not watch_filter.went_back
