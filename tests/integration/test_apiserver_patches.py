"""The embedded API server: merge, strategic merge and JSON patches."""

from __future__ import annotations

import pytest
from apiserver_client import JSON_PATCH, MERGE, NODES, PODS, STRATEGIC, add_node, add_pod, serving

from fake_apiserver.status import StatusError
from fake_apiserver.strategic import strategic_merge_patch

CONDITION = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


async def test_a_strategic_patch_adds_a_condition_and_keeps_the_others() -> None:
    """Conditions merge by type."""
    async with serving() as (server, api):
        uid = add_pod(server)
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [CONDITION]}}
        pod = await api.patch(f"{PODS}/p1/status", patch)
        assert pod.code == 200
        assert {"Ready", "PodScheduled", "DisruptionTarget"} <= {c["type"] for c in pod.body["status"]["conditions"]}


async def test_a_strategic_patch_changes_the_condition_of_the_same_type_in_place() -> None:
    """A second condition of the same type is merged into the first."""
    async with serving() as (server, api):
        add_pod(server)
        await api.patch(f"{PODS}/p1/status", {"status": {"conditions": [CONDITION]}})
        off = {"type": "DisruptionTarget", "status": "False"}
        pod = await api.patch(f"{PODS}/p1/status", {"status": {"conditions": [off]}})
        found = [c for c in pod.body["status"]["conditions"] if c["type"] == "DisruptionTarget"]
        times = {"lastProbeTime": None, "lastTransitionTime": None}
        assert found == [CONDITION | times | {"status": "False"}]


@pytest.mark.parametrize("content_type", [STRATEGIC, MERGE])
async def test_a_patch_with_another_uid_gets_a_422_because_the_field_is_immutable(content_type: str) -> None:
    """So a patch can be limited to the pod with one UID."""
    async with serving() as (server, api):
        add_pod(server)
        refused = await api.patch(f"{PODS}/p1/status", {"metadata": {"uid": "other"}}, content_type)
        assert (refused.code, refused.body["reason"]) == (422, "Invalid")
        assert refused.message == 'Pod "p1" is invalid: metadata.uid: Invalid value: "other": field is immutable'
        for cause in refused.body["details"]["causes"]:
            assert (cause["field"], cause["reason"]) == ("metadata.uid", "FieldValueInvalid")


async def test_a_patch_with_another_version_gets_a_409() -> None:
    """A resourceVersion in a patch is a precondition."""
    async with serving() as (server, api):
        add_node(server)
        stale = await api.patch(f"{NODES}/n1", {"metadata": {"resourceVersion": "1"}}, MERGE)
        assert (stale.code, stale.body["reason"]) == (409, "Conflict")


async def test_a_patch_of_a_missing_object_gets_a_404() -> None:
    """A patch creates nothing."""
    async with serving() as (_, api):
        assert (await api.patch(f"{PODS}/p1", {})).code == 404


@pytest.mark.parametrize("content_type", [STRATEGIC, MERGE])
async def test_both_merge_patches_replace_the_whole_list_of_taints(content_type: str) -> None:
    """The list has no merge key, so ``kubectl taint`` always sends all taints."""
    async with serving() as (server, api):
        add_node(server)
        server.taint("n1", "a")
        patch = {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}
        assert (await api.patch(f"{NODES}/n1", patch, content_type)).body["spec"]["taints"] == patch["spec"]["taints"]
        assert "taints" not in (await api.patch(f"{NODES}/n1", {"spec": {"taints": None}}, content_type)).body["spec"]


async def test_a_json_patch_tests_and_replaces() -> None:
    """If a test operation fails, the patch is refused."""
    async with serving() as (server, api):
        add_node(server)
        escaped = "/metadata/labels/kubernetes.io~1os"
        good = [{"op": "test", "path": escaped, "value": "linux"}, {"op": "replace", "path": escaped, "value": "plan9"}]
        patched = await api.patch(f"{NODES}/n1", good, JSON_PATCH)
        assert patched.body["metadata"]["labels"]["kubernetes.io/os"] == "plan9"
        failing = await api.patch(f"{NODES}/n1", good, JSON_PATCH)
        assert failing.code == 422


async def test_a_json_patch_moves_copies_removes_and_adds() -> None:
    """The operations of RFC 6902 apply to maps and lists."""
    async with serving() as (server, api):
        server.create("configmaps", {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}})
        operations = [
            {"op": "move", "from": "/data/a", "path": "/data/x"},
            {"op": "copy", "from": "/data/b", "path": "/data/y"},
            {"op": "remove", "path": "/data/b"},
            {"op": "add", "path": "/metadata/finalizers", "value": ["f/1"]},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "f/2"},
        ]
        patched = await api.patch("/api/v1/namespaces/default/configmaps/c", operations, JSON_PATCH)
        assert patched.body["data"] == {"x": "1", "y": "2"}
        assert patched.body["metadata"]["finalizers"] == ["f/1", "f/2"]


def test_directives_of_strategic_patches_delete_order_retain_and_replace() -> None:
    """``kubectl apply`` and ``kubectl edit`` send these directives."""
    target = {
        "env": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
        "finalizers": ["x", "y"],
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "labels": {"a": "b"},
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    patch = {
        "env": [{"name": "a", "$patch": "delete"}, {"name": "c", "value": "3"}],
        "$setElementOrder/env": [{"name": "c"}, {"name": "b"}],
        "$deleteFromPrimitiveList/finalizers": ["x"],
        "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
        "labels": {"$patch": "replace", "c": "d"},
        "volumes": [{"$patch": "replace"}, {"name": "w"}],
    }
    assert strategic_merge_patch(target, patch) == {
        "env": [{"name": "c", "value": "3"}, {"name": "b", "value": "2"}],
        "finalizers": ["y"],
        "strategy": {"type": "Recreate"},
        "labels": {"c": "d"},
        "volumes": [{"name": "w"}],
    }


def test_a_strategic_patch_merges_finalizers_as_a_set_and_replaces_tolerations() -> None:
    """Some lists are sets and others are atomic."""
    target = {"finalizers": ["x"], "tolerations": [{"key": "a"}]}
    patched = strategic_merge_patch(target, {"finalizers": ["y", "x"], "tolerations": [{"key": "b"}]})
    assert patched == {"finalizers": ["y", "x"], "tolerations": [{"key": "b"}]}


def test_a_strategic_patch_puts_new_items_before_those_that_it_does_not_name() -> None:
    """The old items keep their order."""
    old = [{"type": "a"}, {"type": "b"}, {"type": "c"}]
    patched = strategic_merge_patch({"conditions": old}, {"conditions": [{"type": "new"}, {"type": "b", "x": 1}]})
    assert [condition["type"] for condition in patched["conditions"]] == ["new", "a", "b", "c"]


def test_an_item_without_its_merge_key_is_refused() -> None:
    """The real server answers 500."""
    with pytest.raises(StatusError, match="does not contain declared merge key: type"):
        strategic_merge_patch({}, {"conditions": [{"status": "True"}]})
