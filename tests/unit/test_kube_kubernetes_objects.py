"""Kubernetes JSON becomes values: what is read, what causes a complaint, and what is refused."""

import math
import re
from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taint_eviction.core.instants import TimeSource
from taint_eviction.core.objects import ControllerRef, NamespacedName, Node, Pod, PodRef, Readiness, Taint, Toleration
from taint_eviction.core.pod_parts import PodParts
from taint_eviction.kopf_shell.kept_fields import pod_fields
from taint_eviction.kube.condition_patches import mark_patch, unmark_patch
from taint_eviction.kube.kubernetes_objects import (
    MalformedObject,
    Parsed,
    read_node,
    read_pod,
    readable_uid,
)

EPOCH = 1714557600.0
AT = "2024-05-01T10:00:00Z"


def a_node(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "uid": "u-n1", "resourceVersion": "17"}, "spec": spec}


def a_pod(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": "p", "uid": "u-p", "resourceVersion": "18"},
        "spec": {"nodeName": "n1", **spec},
        "status": {"phase": "Running"},
    }


def owning_taints(time: object, **more: Any) -> dict[str, Any]:
    return {"manager": "m", "time": time, "fieldsV1": {"f:spec": {"f:taints": {}}}, **more}


# Nodes


def test_a_node_is_read() -> None:
    """The value has name, UID, version, and the taints of all effects in their order."""
    body = a_node(
        taints=[
            {"key": "a", "value": "v", "effect": "NoExecute", "timeAdded": AT},
            {"key": "b", "effect": "NoSchedule"},
            {"key": "c", "value": None, "effect": "PreferNoSchedule", "timeAdded": None},
        ]
    )
    taints = (Taint("a", "NoExecute", "v", EPOCH), Taint("b", "NoSchedule"), Taint("c", "PreferNoSchedule"))
    assert read_node(body) == Parsed(Node("n1", "u-n1", taints, None, 17), ())


def test_a_nodes_readiness_zone_and_role_are_read() -> None:
    """The value has the condition Ready with its time, whether the node is shutting down, and three labels."""
    body = a_node()
    body["metadata"]["labels"] = {
        "topology.kubernetes.io/zone": "a",
        "node.kubernetes.io/exclude-disruption": "",
        "node-role.kubernetes.io/control-plane": "",
        "other": "b",
    }
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": AT, "message": "node is shutting down"}
    body["status"] = {"conditions": [{"type": "MemoryPressure", "status": "True"}, ready]}
    node, complaints = read_node(body)
    assert (node.ready, node.zone) == (Readiness("False", EPOCH, shutting_down=True), "a")
    assert (node.excluded_from_disruption, node.control_plane, node.is_ready) == (True, True, False)
    assert node.labels == body["metadata"]["labels"]
    assert complaints == ()


@pytest.mark.parametrize(
    ("change", "complaints"),
    [
        ({"status": None}, 0),
        ({"status": "odd"}, 0),
        ({"status": {"conditions": "odd"}}, 1),
        ({"status": {"conditions": ["odd", {"type": "Other"}]}}, 0),
        ({"metadata": {"name": "n1", "uid": "u", "labels": ["odd"]}}, 1),
        ({"metadata": {"name": "n1", "uid": "u", "labels": {"topology.kubernetes.io/zone": 5}}}, 1),
    ],
)
def test_a_node_without_a_readable_condition_or_labels_still_is_a_node(change: dict[str, Any], complaints: int) -> None:
    """Such a node has no readiness and no zone; conditions or labels of the wrong type cause a complaint."""
    parsed = read_node({**a_node(), **change})
    assert (parsed.value.ready, parsed.value.zone, parsed.value.excluded_from_disruption) == (None, "", False)
    assert len(parsed.complaints) == complaints


def test_a_readiness_whose_time_cannot_be_read_has_no_time() -> None:
    """The complaint has the field's path; a status that is no text is read as empty."""
    ready = {"type": "Ready", "status": True, "lastTransitionTime": "yesterday"}
    node, complaints = read_node({**a_node(), "status": {"conditions": [ready]}})
    assert node.ready == Readiness("", None)
    assert complaints == ("status.conditions[Ready].lastTransitionTime is not a usable time: 'yesterday'",)


@pytest.mark.parametrize("spec", [None, {}, {"taints": None}, {"taints": []}])
def test_null_and_absent_lists_are_empty(spec: object) -> None:
    """A node is clean whether its list of taints is empty, null or absent."""
    assert read_node({"metadata": {"name": "n1", "uid": "u"}, "spec": spec}).value == Node("n1", "u")


def test_the_earliest_write_by_an_owner_of_the_taints_dates_them() -> None:
    """Only entries without subresource that own f:spec.f:taints count, and of their times the earliest."""
    body = a_node(taints=[{"key": "a", "effect": "NoExecute"}])
    body["metadata"]["managedFields"] = [
        owning_taints("2024-05-01T10:00:09Z"),
        owning_taints(AT),
        owning_taints("2024-05-01T09:00:00Z", subresource="status"),
        {"manager": "other", "time": "2024-05-01T08:00:00Z", "fieldsV1": {"f:spec": {"f:podCIDR": {}}}},
        {"manager": "bare", "time": "2024-05-01T07:00:00Z"},
        None,
    ]
    assert read_node(body) == Parsed(Node("n1", "u-n1", (Taint("a", "NoExecute"),), EPOCH, 17), ())


def test_a_write_whose_time_cannot_be_read_is_left_out_with_a_complaint() -> None:
    """The times of the other owners still count."""
    body = a_node(taints=[{"key": "a", "effect": "NoExecute"}])
    body["metadata"]["managedFields"] = [owning_taints("soon"), owning_taints(AT)]
    node, complaints = read_node(body)
    assert node.taints_written_at == EPOCH
    assert complaints == ("metadata.managedFields[f:taints].time is not a usable time: 'soon'",)


@pytest.mark.parametrize("time_added", ["never", 5, [], {}, True, "0001-01-01T00:00:00Z"])
def test_a_time_added_that_cannot_be_read_counts_as_absent(time_added: object) -> None:
    """The taint stays, the next source dates it, and there is a complaint."""
    node, complaints = read_node(a_node(taints=[{"key": "a", "effect": "NoExecute", "timeAdded": time_added}]))
    assert node.taints == (Taint("a", "NoExecute"),)
    assert complaints[0].startswith("spec.taints[0].timeAdded is not a usable time")


@pytest.mark.parametrize(
    ("taint", "what"),
    [
        ("x", "spec.taints[0] is not an object"),
        (None, "spec.taints[0] is not an object"),
        ({"effect": "NoExecute"}, "spec.taints[0].key is missing"),
        ({"key": "", "effect": "NoExecute"}, "spec.taints[0].key is missing"),
        ({"key": 5, "effect": "NoExecute"}, "spec.taints[0].key is not a string"),
        ({"key": "a", "effect": 5}, "spec.taints[0].effect is not a string"),
        ({"key": "a", "effect": ["NoExecute"]}, "spec.taints[0].effect is not a string"),
        ({"key": "a", "effect": "NoExecute", "value": 1}, "spec.taints[0].value is not a string"),
        ({"key": "a", "effect": "NoExecute", "value": {}}, "spec.taints[0].value is not a string"),
    ],
)
def test_a_bad_taint_that_may_be_NoExecute_makes_the_node_malformed(taint: object, what: str) -> None:
    """What may decide an eviction is never guessed: the last known state stays."""
    with pytest.raises(MalformedObject) as malformed:
        read_node(a_node(taints=[taint]))
    assert str(malformed.value) == f"Node n1: {what}"
    assert (malformed.value.kind, malformed.value.uid, malformed.value.resource_version) == ("Node", "u-n1", "17")


@pytest.mark.parametrize(
    "taint",
    [
        {"effect": "NoSchedule"},
        {"key": 5, "effect": "PreferNoSchedule"},
        {"key": "a", "effect": "NoSuchEffect"},
        {"key": "a"},
        {"key": "a", "effect": None},
    ],
)
def test_a_bad_taint_that_evicts_no_pod_is_left_out_with_a_complaint(taint: object) -> None:
    """Unknown effects, and bad taints of other effects, do not stop the other taints from counting."""
    node, complaints = read_node(a_node(taints=[taint, {"key": "b", "effect": "NoExecute"}]))
    assert node.taints == (Taint("b", "NoExecute"),)
    assert len(complaints) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "Node ?: metadata.name is missing"),
        ([], "Node ?: the object is not an object"),
        ({}, "Node ?: metadata.name is missing"),
        ({"metadata": "m"}, "Node ?: metadata is not an object"),
        ({"metadata": {"name": 7, "uid": "u"}}, "Node ?: metadata.name is not a string"),
        ({"metadata": {"name": "n"}}, "Node n: metadata.uid is missing"),
        ({"metadata": {"name": "n", "uid": ""}}, "Node n: metadata.uid is missing"),
        ({"metadata": {"name": "n", "uid": "u"}, "spec": 3}, "Node n: spec is not an object"),
        ({"metadata": {"name": "n", "uid": "u"}, "spec": {"taints": {}}}, "Node n: spec.taints is not a list"),
    ],
)
def test_a_node_that_cannot_be_decided_on_is_refused_with_the_fields_path(body: object, message: str) -> None:
    """The complaint names kind, object and field."""
    with pytest.raises(MalformedObject) as malformed:
        read_node(body)
    assert str(malformed.value) == message


@pytest.mark.parametrize("version", [None, "", "abc", "1.5", "-1", 5, "9" * 21, "٣"])
def test_a_version_that_is_no_number_is_none(version: object) -> None:
    """Without a version no order is known, and no observation is dropped as older."""
    body = a_node()
    body["metadata"]["resourceVersion"] = version
    assert read_node(body).value.resource_version is None


# Pods


def test_a_pod_is_read() -> None:
    """The value has everything that decides, and nothing else."""
    body = a_pod(
        tolerations=[
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "b", "value": "v", "tolerationSeconds": None},
            {"operator": "Exists"},
        ]
    )
    body["status"]["startTime"] = AT
    tolerations = (
        Toleration("a", "Exists", effect="NoExecute", toleration_seconds=300),
        Toleration("b", value="v"),
        Toleration(operator="Exists"),
    )
    ref = PodRef(NamespacedName("ns", "p"), "u-p")
    assert read_pod(body) == Parsed(Pod(ref, "n1", tolerations, EPOCH, TimeSource.START_TIME, 18), ())


CONTROLS = {"kind": "DaemonSet", "name": "agents", "uid": "u-1", "controller": True}


@pytest.mark.parametrize(
    ("references", "controller", "complaints"),
    [
        (None, None, 0),
        ([{"kind": "Node", "name": "n", "uid": "u"}, CONTROLS], ControllerRef("DaemonSet", "agents", "u-1"), 0),
        ([{**CONTROLS, "controller": False}], None, 0),
        ([{**CONTROLS, "controller": "true"}], None, 0),
        ([{**CONTROLS, "uid": None}, "odd"], None, 0),
        ("odd", None, 1),
    ],
)
def test_the_owner_that_controls_a_pod_is_read(
    references: object, controller: ControllerRef | None, complaints: int
) -> None:
    """Other owners do not recreate the pod; an owner that cannot be read counts as none."""
    body = a_pod()
    body["metadata"]["ownerReferences"] = references
    pod, told = read_pod(body)
    assert (pod.controller, len(told)) == (controller, complaints)


def test_pods_of_one_owner_share_its_value() -> None:
    """One owner may have thousands of pods, so sharing saves memory."""
    one, other = a_pod(), a_pod()
    one["metadata"]["ownerReferences"], other["metadata"]["ownerReferences"] = [CONTROLS], [dict(CONTROLS)]
    assert read_pod(one).value.controller is read_pod(other).value.controller


def test_the_names_of_an_owner_are_bounded_and_one_line() -> None:
    """The API server bounds neither: a tenant may write a name of a megabyte, and lines for logs and tables."""
    body = a_pod()
    owner = {"kind": "Set\nofall", "name": "a\x1b" * 500_000, "uid": "u" * 500_000, "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    controller = read_pod(body).value.controller
    assert controller is not None
    assert controller.kind == "Set ofall"
    assert (len(controller.name), len(controller.uid)) == (253, 64)
    assert controller.name.isprintable()
    assert read_pod(pod_fields(body)).value.controller == controller
    assert len(orjson.dumps(pod_fields(body)["metadata"]["ownerReferences"])) < 10_000


def scheduled(status: str, time: object) -> list[dict[str, Any]]:
    return [{"type": "PodScheduled", "status": status, "lastTransitionTime": time}]


@pytest.mark.parametrize(
    ("conditions", "start", "created", "expected", "complaints"),
    [
        (scheduled("True", AT), "x", "x", TimeSource.POD_SCHEDULED, 0),
        (scheduled("False", "x"), AT, "x", TimeSource.START_TIME, 0),
        (scheduled("True", None), AT, "x", TimeSource.START_TIME, 0),
        (scheduled("True", "x"), AT, "x", TimeSource.START_TIME, 1),
        (None, AT, "x", TimeSource.START_TIME, 0),
        ("x", None, AT, TimeSource.CREATION, 1),
        (["x", None], "x", AT, TimeSource.CREATION, 1),
    ],
)
def test_the_best_readable_field_dates_the_binding(
    conditions: object, start: object, created: object, expected: TimeSource, complaints: int
) -> None:
    """PodScheduled comes before startTime, and startTime before creationTimestamp; unreadable fields are skipped."""
    body = a_pod()
    body["status"] |= {"conditions": conditions, "startTime": start}
    body["metadata"]["creationTimestamp"] = created
    pod, told = read_pod(body)
    assert (pod.bound_at, pod.bound_time_source, len(told)) == (EPOCH, expected, complaints)


@pytest.mark.parametrize("name", [None, ""])
def test_a_pod_without_node_is_not_bound(name: object) -> None:
    """An empty nodeName counts as absent, and such a pod has no time of binding."""
    body = a_pod(nodeName=name)
    body["metadata"]["creationTimestamp"] = AT
    pod = read_pod(body).value
    assert (pod.node_name, pod.bound_at) == (None, None)


@pytest.mark.parametrize(
    ("toleration", "what"),
    [
        ("x", "spec.tolerations[0] is not an object"),
        ({"key": 1}, "spec.tolerations[0].key is not a string"),
        ({"key": []}, "spec.tolerations[0].key is not a string"),
        ({"operator": True}, "spec.tolerations[0].operator is not a string"),
        ({"value": 3}, "spec.tolerations[0].value is not a string"),
        ({"effect": {}}, "spec.tolerations[0].effect is not a string"),
        ({"tolerationSeconds": "300"}, "spec.tolerations[0].tolerationSeconds is not an integer"),
        ({"tolerationSeconds": 300.0}, "spec.tolerations[0].tolerationSeconds is not an integer"),
        ({"tolerationSeconds": True}, "spec.tolerations[0].tolerationSeconds is not an integer"),
        ({"tolerationSeconds": []}, "spec.tolerations[0].tolerationSeconds is not an integer"),
    ],
)
def test_a_bad_toleration_makes_the_pod_malformed(toleration: object, what: str) -> None:
    """The pod may tolerate more than can be read, so the controller must not evict it."""
    with pytest.raises(MalformedObject) as malformed:
        read_pod(a_pod(tolerations=[toleration]))
    assert str(malformed.value) == f"Pod ns/p: {what}"


@pytest.mark.parametrize("seconds", [1.0, True])
def test_what_equals_a_legal_number_of_seconds_is_still_refused(seconds: object) -> None:
    """Sharing equal tolerations never lets 1.0 or true pass for a 1 that was read before."""
    assert read_pod(a_pod(tolerations=[{"key": "a", "tolerationSeconds": 1}])).value.tolerations
    with pytest.raises(MalformedObject):
        read_pod(a_pod(tolerations=[{"key": "a", "tolerationSeconds": seconds}]))


@pytest.mark.parametrize("seconds", [0, -5, 18446744074, 2**63 - 1, -(2**63), 10**40])
def test_any_whole_number_of_seconds_is_kept(seconds: int) -> None:
    """The decision, not the reader, says what an absurd number means."""
    tolerations = read_pod(a_pod(tolerations=[{"tolerationSeconds": seconds}])).value.tolerations
    assert tolerations[0].toleration_seconds == seconds


def test_an_unknown_operator_stays_with_a_complaint() -> None:
    """The toleration is kept: the matching finds that it matches nothing."""
    pod, complaints = read_pod(a_pod(tolerations=[{"key": "a", "operator": "Resembles"}]))
    assert pod.tolerations == (Toleration("a", "Resembles"),)
    assert complaints == ("spec.tolerations[0].operator is 'Resembles', which is unknown: it matches nothing",)


def test_pods_with_equal_tolerations_share_one_tuple() -> None:
    """Most pods of a cluster have the same tolerations, so sharing saves memory."""
    tolerations = [{"key": "shared", "operator": "Exists", "tolerationSeconds": 300}]
    one, other = read_pod(a_pod(tolerations=tolerations)), read_pod(a_pod(tolerations=deepcopy(tolerations)))
    assert one.value.tolerations is other.value.tolerations


def disruption(status: str, reason: str) -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": status, "reason": reason}


FLAGS = ("terminating", "mirror", "finished", "marked")


def flags(pod: Pod) -> set[str]:
    return {name for name in FLAGS if getattr(pod, name)}


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"metadata": {"deletionTimestamp": AT}}, "terminating"),
        ({"metadata": {"deletionTimestamp": 0}}, "terminating"),
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": ""}}}, "mirror"),
        ({"status": {"phase": "Succeeded"}}, "finished"),
        ({"status": {"phase": "Failed"}}, "finished"),
        ({"status": {"conditions": [disruption("True", "DeletionByTaintManager")]}}, "marked"),
    ],
)
def test_flags_are_read(change: dict[str, Any], flag: str) -> None:
    """Each of the flags terminating, mirror, finished and marked has its own field."""
    body = a_pod()
    for part, fields in change.items():
        body[part] |= fields
    assert flags(read_pod(body).value) == {flag}


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"deletionTimestamp": None, "annotations": None}},
        {"status": {"phase": None, "conditions": None}},
        {"status": {"conditions": [disruption("False", "DeletionByTaintManager")]}},
        {"status": {"conditions": [disruption("True", "PreemptionByScheduler")]}},
    ],
)
def test_null_fields_and_others_conditions_set_no_flag(change: dict[str, Any]) -> None:
    """null counts as absent, and a condition that is False or somebody else's does not mark the pod."""
    body = a_pod()
    for part, fields in change.items():
        body[part] |= fields
    assert flags(read_pod(body).value) == set()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"metadata": {"namespace": None}}, "Pod ?/p: metadata.namespace is missing"),
        ({"metadata": {"name": None}}, "Pod ns/?: metadata.name is missing"),
        ({"metadata": {"uid": 5}}, "Pod ns/p: metadata.uid is not a string"),
        ({"metadata": {"annotations": []}}, "Pod ns/p: metadata.annotations is not an object"),
        ({"spec": {"nodeName": 5}}, "Pod ns/p: spec.nodeName is not a string"),
        ({"spec": {"tolerations": "all"}}, "Pod ns/p: spec.tolerations is not a list"),
        ({"status": {"phase": 1}}, "Pod ns/p: status.phase is not a string"),
    ],
)
def test_a_pod_that_cannot_be_decided_on_is_refused_with_the_fields_path(change: dict[str, Any], what: str) -> None:
    """The complaint names kind, object and field."""
    body = a_pod()
    for part, fields in change.items():
        body[part] |= fields
    with pytest.raises(MalformedObject) as malformed:
        read_pod(body)
    assert str(malformed.value) == what


# Anything at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["True", AT, "NoExecute"]),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


def _with_fields(names: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make objects in which each of these fields is absent, has a likely value, or is any JSON."""
    return st.fixed_dictionaries({}, optional={name: values | JSON for name in names.split()}) | JSON


TEXTS = st.sampled_from(["", "a", "True", "NoExecute", "NoSchedule", "PodScheduled", "Exists", AT, "12", "0001-01-01"])
TAINTS = st.lists(_with_fields("key value effect timeAdded", TEXTS), max_size=3)
TOLERATIONS = st.lists(_with_fields("key operator value effect tolerationSeconds", TEXTS | st.integers()), max_size=3)
CONDITIONS = st.lists(_with_fields("type status reason lastTransitionTime", TEXTS), max_size=3)
FIELDS_V1: st.SearchStrategy[Any] = st.just({"f:spec": {"f:taints": {}}}) | JSON
MANAGED = st.lists(_with_fields("time subresource", TEXTS) | _with_fields("fieldsV1 time", FIELDS_V1), max_size=3)
METADATA = _with_fields("name namespace uid resourceVersion deletionTimestamp creationTimestamp", TEXTS).flatmap(
    lambda given: (
        st.fixed_dictionaries({"name": TEXTS, "uid": TEXTS, "namespace": TEXTS, "managedFields": MANAGED})
        | st.just(given)
    )
)
SPEC = _with_fields("nodeName", TEXTS) | _with_fields("taints", TAINTS) | _with_fields("tolerations", TOLERATIONS)
STATUS = _with_fields("phase startTime", TEXTS) | _with_fields("conditions", CONDITIONS)
BODIES = st.fixed_dictionaries({"metadata": METADATA, "spec": SPEC, "status": STATUS}) | JSON


@given(BODIES)
def test_any_json_gives_a_node_or_is_malformed(body: Any) -> None:
    """Nothing that a server may send makes reading a node fail in any other way."""
    try:
        node = read_node(body).value
    except MalformedObject:
        return
    assert node.name
    assert node.uid == readable_uid(body)
    assert all(taint.key for taint in node.taints)


@given(BODIES)
def test_any_json_gives_a_pod_or_is_malformed(body: Any) -> None:
    """Nothing that a server may send makes reading a pod fail in any other way."""
    try:
        pod = read_pod(body).value
    except MalformedObject:
        return
    assert pod.ref.key.namespace
    assert pod.ref.uid == readable_uid(body)
    assert all(type(t.toleration_seconds) in (int, type(None)) for t in pod.tolerations)


@given(st.lists(st.tuples(*[st.sampled_from(["", "a", None])] * 4, st.none() | st.integers()), max_size=4))
def test_legal_tolerations_are_read_as_they_are(told: list[tuple[Any, ...]]) -> None:
    """Each field is read into its own place, whatever was read before."""
    names = ("key", "operator", "value", "effect", "tolerationSeconds")
    read = read_pod(a_pod(tolerations=[dict(zip(names, one, strict=True)) for one in told])).value.tolerations
    assert read == tuple(Toleration(k or "", o or "", v or "", e or "", seconds) for k, o, v, e, seconds in told)


# What is written

REF = PodRef(NamespacedName("ns", "p"), "u-p")


def test_the_condition_is_upstreams() -> None:
    """Type, status, reason and message are what Kubernetes' own controller writes, for this UID only."""
    assert mark_patch(REF, EPOCH + 0.9) == {
        "metadata": {"uid": "u-p"},
        "status": {
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByTaintManager",
                    "message": "Taint manager: deleting due to NoExecute taint",
                    "lastTransitionTime": AT,
                }
            ]
        },
    }


def test_a_condition_that_was_set_already_keeps_its_transition_time() -> None:
    """Without a time in the patch the merge leaves the old time."""
    assert "lastTransitionTime" not in mark_patch(REF, None)["status"]["conditions"][0]


def test_taking_back_is_for_one_version_only() -> None:
    """The patch has UID and resourceVersion, so that it does not overwrite a later change by somebody else."""
    patch = unmark_patch(REF, 42, EPOCH)
    assert patch["metadata"] == {"uid": "u-p", "resourceVersion": "42"}
    assert patch["status"]["conditions"][0]["status"] == "False"
    assert patch["status"]["conditions"][0]["message"] == "Taint manager: deletion called off"


def test_a_hold_is_not_read_while_holds_are_not_honoured() -> None:
    """Not even to complain about it: anybody who may annotate a pod writes it."""
    body = a_pod()
    body["metadata"]["annotations"] = {"taint-eviction/hold": "soon"}
    assert read_pod(body, PodParts(holds=False)).value.hold_seconds is None
    assert read_pod(body, PodParts(holds=False)).complaints == ()
    assert read_pod(body).value.hold_seconds == math.inf


def test_only_labels_that_rules_name_are_kept() -> None:
    """A tenant may write 1.5 MB of others."""
    body = a_pod()
    body["metadata"]["labels"] = {"app": "web", "tier": "front", "other": 7}
    pod = read_pod(body, PodParts(frozenset({"app", "team"}))).value
    assert pod.labels == {"app": "web"}


def test_a_time_that_is_nested_deeply_is_a_complaint() -> None:
    """The text of such a value would need more stack than there is."""
    nested: Any = []
    for _ in range(1000):
        nested = [nested]
    body = a_pod()
    body["status"]["startTime"] = nested
    assert read_pod(body).complaints == ("status.startTime is not a usable time",)


def long_list(**fields: Any) -> list[dict[str, Any]]:
    return [{"key": f"k{number}", "operator": "Exists", "effect": "NoExecute", **fields} for number in range(2000)]


def test_a_long_list_of_tolerations_reads_like_a_short_one() -> None:
    """In every element, in its order and its length."""
    raw = long_list(tolerationSeconds=7)
    found = read_pod(a_pod(tolerations=raw)).value.tolerations
    assert (*found,) == tuple(Toleration(f"k{number}", "Exists", "", "NoExecute", 7) for number in range(2000))
    assert (len(found), found[1999], found[-1], found[3:5]) == (2000, found[-1], (*found,)[1999], (*found,)[3:5])


@pytest.mark.parametrize(
    ("spoilt", "what"),
    [
        ([*long_list(), 7], "an entry of spec.tolerations is not an object"),
        (long_list(value=7), "a value in spec.tolerations is not a string"),
        ([*long_list(), {"key": ["a"]}], "a key in spec.tolerations is not a string"),
        ([*long_list(), {"tolerationSeconds": 1.5}], "a tolerationSeconds in spec.tolerations is not an integer"),
        ([*long_list(), {"tolerationSeconds": "1"}], "a tolerationSeconds in spec.tolerations is not an integer"),
        ([*long_list(), {"tolerationSeconds": True}], "a tolerationSeconds in spec.tolerations is not an integer"),
    ],
)
def test_a_long_list_with_a_field_of_the_wrong_type_makes_the_pod_malformed(spoilt: list[Any], what: str) -> None:
    """As a short list does: a toleration that cannot be read may be the one that counts."""
    with pytest.raises(MalformedObject, match=re.escape(what)):
        read_pod(a_pod(tolerations=spoilt))


def test_unknown_operators_of_a_long_list_are_one_complaint() -> None:
    """Not one for each of a hundred thousand tolerations."""
    _, complaints = read_pod(a_pod(tolerations=long_list(operator="Resembles")))
    assert complaints == ("operators in spec.tolerations are unknown and match nothing: 1",)
