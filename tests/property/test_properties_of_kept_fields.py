"""The fields that the watch filter keeps of an object are read like the whole object, whatever the object contains."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property import strategies as _profiles  # noqa: F401  # the profiles under which properties run

from taint_eviction.kopf_shell.kept_fields import node_fields, pod_fields
from taint_eviction.kube.kubernetes_objects import MalformedObject, read_node, read_pod

AT = "2024-05-01T10:00:00Z"
DISRUPTION_TARGET = 'k:{"type":"DisruptionTarget"}'

TEXTS = st.sampled_from(["", "a", "True", "false", "30s", "Running", "Failed", AT, "12", "0001-01-01T00:00:00Z"])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXTS, children, max_size=3),
    max_leaves=6,
)


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any] = JSON) -> st.SearchStrategy[Any]:
    """Draw mostly a usual value, now and then an odd one."""
    return st.one_of([usual] * 7 + [odd])


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw objects that have any of these fields, and a field that nobody reads."""
    named = {name.replace("_", ":"): values for name, values in fields.items()}
    return mostly(st.fixed_dictionaries({}, optional={**named, "unread": JSON}))


def lists(entries: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw lists of these entries."""
    return mostly(st.lists(mostly(entries), max_size=3))


TAINTS = lists(objects(key=TEXTS, value=TEXTS, effect=mostly(st.just("NoExecute") | TEXTS), timeAdded=TEXTS))
TOLERATIONS = lists(objects(key=TEXTS, operator=TEXTS, value=TEXTS, effect=TEXTS, tolerationSeconds=st.integers()))
CONDITIONS = lists(
    objects(
        type=st.sampled_from(["Ready", "PodScheduled", "DisruptionTarget"]),
        status=TEXTS,
        reason=st.just("DeletionByTaintManager") | TEXTS,
        lastTransitionTime=TEXTS,
        lastHeartbeatTime=TEXTS,
        message=st.just("node is shutting down") | TEXTS,
    )
)
FIELDS = objects(
    f_spec=objects(f_taints=JSON),
    f_status=objects(
        f_conditions=mostly(st.dictionaries(st.just(DISRUPTION_TARGET), objects(f_reason=JSON), max_size=1))
    ),
)
MANAGED = lists(objects(manager=TEXTS, subresource=TEXTS, time=TEXTS, fieldsV1=FIELDS))
OWNERS = lists(objects(kind=TEXTS, name=TEXTS, uid=TEXTS, controller=mostly(st.booleans())))
ANNOTATIONS = mostly(
    st.dictionaries(
        st.sampled_from(["kubernetes.io/config.mirror", "taint-eviction/hold", "taint-eviction/seconds", "b"]), TEXTS
    )
)
LABELS = TEXTS | st.sampled_from(
    [
        "topology.kubernetes.io/zone",
        "node.kubernetes.io/exclude-disruption",
        "node-role.kubernetes.io/control-plane",
    ]
)
NAMES = mostly(st.sampled_from(["a", "b"]))
METADATA = mostly(
    st.fixed_dictionaries(
        {"name": NAMES, "namespace": NAMES, "uid": NAMES},
        optional={
            "resourceVersion": TEXTS,
            "creationTimestamp": TEXTS,
            "deletionTimestamp": TEXTS,
            "deletionGracePeriodSeconds": mostly(st.integers()),
            "labels": mostly(st.dictionaries(LABELS, mostly(TEXTS), max_size=2)),
            "annotations": ANNOTATIONS,
            "managedFields": MANAGED,
            "ownerReferences": OWNERS,
            "unread": JSON,
        },
    )
)
SPEC = objects(
    nodeName=TEXTS, taints=TAINTS, tolerations=TOLERATIONS, priority=st.integers(), unschedulable=st.booleans()
)
STATUS = objects(phase=TEXTS, startTime=TEXTS, conditions=CONDITIONS)
BODIES = st.fixed_dictionaries({}, optional={"kind": TEXTS, "metadata": METADATA, "spec": SPEC, "status": STATUS})


def outcome(read: Callable[[object], Any], body: object) -> Any:
    """Return what reading an object gives: its value with all complaints, or the error."""
    try:
        return read(body)
    except MalformedObject as malformed:
        return str(malformed), malformed.uid, malformed.resource_version


@given(BODIES)
def test_a_node_reads_the_same_after_the_filter(body: dict[str, Any]) -> None:
    """Reading gives the same node with the same complaints, or the same error; the filter does not change its input."""
    whole = deepcopy(body)
    assert outcome(read_node, node_fields(body)) == outcome(read_node, body)
    assert body == whole


@given(BODIES)
def test_a_pod_reads_the_same_after_the_filter(body: dict[str, Any]) -> None:
    """Reading gives the same pod with the same complaints, or the same error; the filter does not change its input."""
    whole = deepcopy(body)
    assert outcome(read_pod, pod_fields(body)) == outcome(read_pod, body)
    assert body == whole


@given(BODIES)
def test_filtering_twice_gives_the_same_as_filtering_once(body: dict[str, Any]) -> None:
    """The filter keeps all fields of an object that was filtered already."""
    assert node_fields(node_fields(body)) == node_fields(body)
    assert pod_fields(pod_fields(body)) == pod_fields(body)
